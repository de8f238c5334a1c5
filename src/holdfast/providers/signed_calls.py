"""Signed calls: keeps the `extra_content` beside a call and sends it back unchanged.

Gemini's newer models refuse a conversation whose calls come back without their thought signature
(https://ai.google.dev/gemini-api/docs/thought-signatures). The content is opaque to us, and only the provider that
wrote it gets it. `openai_reply` reads everything else in a response.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.protocol.messages import ModelReply, Reasoning
from holdfast.protocol.ports import OnDelta
from holdfast.providers.openai_reply import ChatReader
from holdfast.providers.sse import Event, Heard
from holdfast.providers.usage import Reported


class _Call(msgspec.Struct, frozen=True):
    id: str | None = None
    extra_content: Any = None


class _Said(msgspec.Struct, frozen=True):
    tool_calls: tuple[_Call, ...] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Said | None = None
    message: _Said | None = None


class _Choices(msgspec.Struct, frozen=True):
    """The fields of a whole body or a chunk that matter here."""

    choices: tuple[_Choice, ...] | None = None


_decode = msgspec.json.Decoder(_Choices).decode


class SignedReader:
    """A `native.Reader` that reads like `ChatReader`, and keeps what is beside each call."""

    def __init__(self, model: str, on_delta: OnDelta) -> None:
        self._chat = ChatReader(model, on_delta)
        self._provider = model.partition(":")[0]
        self._extras: dict[str, Any] = {}
        """The extra content of each call, by the server's id of it. The first call without an id is under ""."""
        self._ref = ""
        """The id of the call that the last piece belonged to."""

    @property
    def reported(self) -> Reported:
        """See `native.Reader`."""
        return self._chat.reported

    @property
    def received_bytes(self) -> int:
        """See `native.Reader`."""
        return self._chat.received_bytes

    @property
    def is_whole(self) -> bool:
        """See `native.Reader`."""
        return self._chat.is_whole

    def take(self, event: Event) -> Heard:
        """See `native.Reader`."""
        heard = self._chat.take(event)
        self._keep(event.data)
        return heard

    def take_body(self, body: bytes) -> None:
        """See `native.Reader`."""
        self._chat.take_body(body)
        self._keep(body)

    def reply(self, request_ref: str) -> ModelReply:
        """See `native.Reader`."""
        reply = self._chat.reply(request_ref)
        if not self._extras:
            return reply
        kept = Reasoning(self._provider, payload=msgspec.json.encode(self._extras).decode())
        return msgspec.structs.replace(reply, parts=(kept, *reply.parts))

    def _keep(self, response: str | bytes) -> None:
        try:
            choices = _decode(response).choices or ()
        except (
            msgspec.DecodeError,
            UnicodeDecodeError,
        ):  # `[DONE]`, or a shape that `ChatReader` understands
            return
        for choice in choices:
            for call in _calls(choice):
                self._ref = call.id or self._ref
                if call.extra_content is not None:
                    self._extras.setdefault(self._ref, call.extra_content)


def extras(thoughts: Iterable[Reasoning]) -> dict[str, Any]:
    """Return what was beside the calls of a response, by the server's ids of the calls."""
    kept: dict[str, Any] = {}
    for thought in thoughts:
        if thought.payload:
            kept |= msgspec.json.decode(thought.payload)
    return kept


def _calls(choice: _Choice) -> tuple[_Call, ...]:
    said = choice.delta or choice.message
    return (said.tool_calls if said else None) or ()
