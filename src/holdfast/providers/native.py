"""A provider that speaks one of our own wires over HTTP: sends the body, gives what comes to a reader.

The formats themselves stand in `openai`, `anthropic` and their `_reply` modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from holdfast.protocol.failures import Failure
from holdfast.protocol.messages import ModelReply, Usage
from holdfast.protocol.outcomes import ModelFailure
from holdfast.protocol.ports import ModelAttempt, OnDelta, Wire
from holdfast.providers.errors import BadAnswer, from_status
from holdfast.providers.http import Answer, HttpPool
from holdfast.providers.sse import MAX_EVENT_BYTES, Event, EventParser, EventTooLarge, Heard

TOKENS_MAX = 10**9
"""No call has as many; a server that says so errs, and its word must not end a run."""


class Reader(Protocol):
    """Gathers one response, from a stream's events or from one whole body; any step may raise `BadAnswer`."""

    @property
    def usage(self) -> Usage:
        """What the provider reported so far."""
        ...

    def take(self, event: Event) -> Heard:
        """Add one event, and tell what it says."""
        ...

    def take_body(self, body: bytes) -> None:
        """Take a response that came whole."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether all that counts has come: a connection that breaks from now on loses nothing."""
        ...

    def reply(self, request_ref: str) -> ModelReply:
        """The response; raises when it is not whole."""
        ...


NewReader = Callable[[str, int, OnDelta], Reader]
"""Makes the reader of one response from PROVIDER:MODEL, the size of the request in bytes, and who watches."""


class NativeProvider:
    """A `Provider` for one address and key. Its `repr` and its failures never hold the key."""

    def __init__(
        self,
        wire: Wire,
        url: str,
        http: HttpPool,
        new_reader: NewReader,
        *,
        headers: Mapping[str, str],
        secret: str = "",
    ) -> None:
        self.wire = wire
        self._url = url
        self._http = http
        self._new_reader = new_reader
        self._headers = {**headers, "Content-Type": "application/json"}
        self._secret = secret

    async def call(self, attempt: ModelAttempt) -> ModelReply | ModelFailure:
        """One attempt, as `ports.Provider` promises."""
        model = attempt.facts.name
        reader = self._new_reader(model, len(attempt.body), attempt.on_delta)
        parser = EventParser()

        def receive(chunk: bytes) -> Heard:
            return max(map(reader.take, parser.feed(chunk)), default=Heard.NOTHING)

        try:
            answer = await self._http.post(
                self._url,
                self._headers,
                attempt.body,
                idle_s=attempt.idle_s,
                check=attempt.check,
                receive=receive if attempt.is_streaming else None,
            )
            return _read(answer, reader, model)
        except BadAnswer as bad:
            failure = bad.failure
        except EventTooLarge:
            message = f"The response holds an event that is larger than {MAX_EVENT_BYTES >> 20} MiB."
            failure = Failure("provider_fatal", message)
        return ModelFailure(self._scrubbed(failure), reader.usage)

    async def aclose(self) -> None:
        """The pool is shared: whoever made it closes it."""

    def _scrubbed(self, failure: Failure) -> Failure:
        if self._secret and self._secret in failure.detail:
            return msgspec.structs.replace(failure, detail=failure.detail.replace(self._secret, "[redacted]"))
        return failure


def _read(answer: Answer | Failure, reader: Reader, model: str) -> ModelReply:
    if isinstance(answer, Failure):
        # The connection may break after the last word: asking again would pay twice for the same answer.
        if reader.is_whole:
            return reader.reply("")
        raise BadAnswer(answer)
    if answer.status != 200:
        body = answer.body.decode("utf-8", "replace")
        raise BadAnswer(from_status(answer.status, answer.headers, body, model))
    if answer.body:
        reader.take_body(answer.body)
    return reader.reply(answer.headers.get("x-request-id") or answer.headers.get("request-id") or "")


def count(value: object) -> int:
    """A number of tokens as a server wrote it; anything else counts as none, and so does what no call can have."""
    return int(value) if isinstance(value, int | float) and 0 < value < TOKENS_MAX else 0


def estimated_usage(sent_bytes: int, received: str) -> Usage:
    """A guess at the tokens of a call whose server reported none: four bytes to a token."""
    return Usage(input_tokens=sent_bytes // 4 + 1, output_tokens=len(received.encode()) // 4 + 1)
