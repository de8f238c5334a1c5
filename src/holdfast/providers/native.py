"""A provider that speaks one of our own wire formats over HTTP: sends the body, and gives the response to a reader.

`openai`, `anthropic` and their `_reply` modules have the formats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from holdfast.protocol.failures import Failure
from holdfast.protocol.messages import ModelReply
from holdfast.protocol.outcomes import ModelCut, ModelFailure
from holdfast.protocol.ports import ModelAttempt, OnDelta, Wire
from holdfast.providers.errors import BadResponse, from_status, quiet_s
from holdfast.providers.http import USUAL_LINK, HttpPool, Link, NoResponse, Response
from holdfast.providers.objects import is_json
from holdfast.providers.sse import MAX_EVENT_BYTES, Event, EventParser, EventTooLarge, Heard
from holdfast.providers.usage import Reported


class Reader(Protocol):
    """Collects one response, from the events of a stream or from a whole body. Any step may raise `BadResponse`."""

    @property
    def reported(self) -> Reported:
        """The usage that the provider has reported so far."""
        ...

    @property
    def received_bytes(self) -> int:
        """The length of what came so far: words, thoughts, and parts of calls. Counted when needed."""
        ...

    def take(self, event: Event) -> Heard:
        """Add one event, and return what it says."""
        ...

    def take_body(self, body: bytes) -> None:
        """Take a whole response."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether everything that counts has come. Nothing is lost if the connection breaks after that."""
        ...

    def reply(self, request_ref: str) -> ModelReply:
        """Return the response. Raises if it is not whole."""
        ...


NewReader = Callable[[str, OnDelta], Reader]
"""Makes the reader of one response from PROVIDER:MODEL, and who receives its deltas."""


REFUSED = 400
"""From this status on, the server has not done what it was asked for."""


class NativeProvider:
    """A `Provider` for one address and key. Its `repr` and its failures never contain the key."""

    def __init__(
        self,
        wire: Wire,
        url: str,
        http: HttpPool,
        new_reader: NewReader,
        *,
        headers: Mapping[str, str],
        secret: str = "",
        link: Link = USUAL_LINK,
    ) -> None:
        self.wire = wire
        self._url = url
        self._http = http
        self._new_reader = new_reader
        said = {name.lower() for name in link.headers}
        own = {**headers, "Content-Type": "application/json"}
        self._headers = {name: own[name] for name in own if name.lower() not in said}
        self._headers |= link.headers
        if link is not USUAL_LINK:
            http.route(url, link)
        self._secret = secret

    async def respond(self, attempt: ModelAttempt) -> ModelReply | ModelFailure:
        """Make one attempt. See `ports.Provider`."""
        model = attempt.facts.name
        reader = self._new_reader(model, attempt.on_delta)
        parser = EventParser()

        streamed_bytes = 0
        kept: list[bytes] = []

        def receive(chunk: bytes) -> Heard:
            nonlocal streamed_bytes
            streamed_bytes += len(chunk)
            return max(map(reader.take, parser.feed(chunk)), default=Heard.NOTHING)

        try:
            response = await self._http.post(
                self._url,
                self._headers,
                attempt.body,
                idle_s=attempt.idle_s,
                check=attempt.check,
                receive=receive if attempt.is_streaming else None,
                kept=kept,
            )
            result: ModelReply | ModelFailure = _read(response, reader, model, streamed_bytes, kept)
            if isinstance(response, Response) and (wait_s := quiet_s(response.status, response.headers)):
                result = replace(result, quiet_s=wait_s)
        except BadResponse as bad:
            result = _charged(bad.failure, reader)
        except EventTooLarge:
            message = f"The response has an event that is larger than {MAX_EVENT_BYTES >> 20} MiB."
            result = _charged(Failure("provider_fatal", message), reader, MAX_EVENT_BYTES)
        except asyncio.CancelledError:
            reported = reader.reported
            received_bytes = max(reader.received_bytes, _size(kept))
            attempt.on_cut(ModelCut("", reported.usage, reported.estimated, received_bytes))
            raise
        if isinstance(result, ModelFailure):
            result = replace(result, failure=self._scrubbed(result.failure))
        return result

    async def aclose(self) -> None:
        """Do nothing: the pool is shared, and its owner closes it."""

    def _scrubbed(self, failure: Failure) -> Failure:
        """Return the failure without the key that its own server may have repeated."""
        if not self._secret:
            return failure
        detail, said = (text.replace(self._secret, "[redacted]") for text in (failure.detail, failure.said))
        return replace(failure, detail=detail, said=said)


def _size(chunks: list[bytes]) -> int:
    return sum(map(len, chunks))


def _read(
    response: Response | NoResponse, reader: Reader, model: str, streamed_bytes: int, kept: list[bytes]
) -> ModelReply | ModelFailure:
    if isinstance(response, NoResponse):
        # The connection may break after the last word. Another attempt would pay twice for the same response.
        if reader.is_whole:
            return _whole(reader, "")
        if response.was_sent:
            return _charged(response.failure, reader, max(response.size_bytes, _size(kept)))
        return ModelFailure(response.failure)
    if response.status != 200:
        body = response.body.decode("utf-8", "replace")
        failure = from_status(response.status, response.headers, body, model)
        return ModelFailure(failure) if response.status >= REFUSED else _charged(failure, reader)
    try:
        if response.body:
            reader.take_body(response.body)
        return _whole(
            reader, response.headers.get("x-request-id") or response.headers.get("request-id") or ""
        )
    except BadResponse as bad:
        if streamed_bytes or _is_half(response.body):
            return _charged(bad.failure, reader, _size(kept))
        raise


def _whole(reader: Reader, request_ref: str) -> ModelReply:
    reply = reader.reply(request_ref)
    if reply.usage.output_tokens and "output" not in reply.estimated:
        return reply
    return replace(reply, received_bytes=reader.received_bytes)


def _is_half(body: bytes) -> bool:
    """Whether an object was begun and not ended: a response that got lost on its way. Any other text is not one."""
    return body.lstrip().startswith(b"{") and not is_json(body.decode("utf-8", "replace"))


def _charged(failure: Failure, reader: Reader, size_bytes: int = 0) -> ModelFailure:
    """Return a sent request with what came of it: its server may charge for what it did not report."""
    reported, received_bytes = reader.reported, max(reader.received_bytes, size_bytes)
    return ModelFailure(failure, reported.usage, reported.estimated, received_bytes)
