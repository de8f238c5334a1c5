"""Decides which calls that were read from a text could run: those of known tools, with arguments that fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.protocol.failures import CLASSES, Failure
from holdfast.protocol.text_formats import AUTO
from holdfast.protocol.tools import ToolSpec
from holdfast.providers.text_blocks import RawCall
from holdfast.providers.text_calls import Rejected, read_text
from holdfast.providers.text_types import fitted
from holdfast.tools.schema import BadSchema, SchemaGate


class ReadCall(msgspec.Struct, frozen=True):
    """A call that could run."""

    name: str
    arguments: dict[str, Any]


class Refusal(NamedTuple):
    """What looked like a call and does not run."""

    reason: str
    why: str
    text: str = ""
    """The beginning of what was written, if it could not be read."""
    name: str = ""
    arguments: dict[str, Any] | None = None


class ReadText(msgspec.Struct, frozen=True):
    """What a text says, judged."""

    calls: tuple[ReadCall, ...]
    text: str
    rejected: tuple[Refusal, ...]


class TextChecker:
    """Reads texts. Each schema is compiled once."""

    def __init__(self) -> None:
        self._gate = SchemaGate()

    def read(self, text: str, tools: Mapping[str, ToolSpec] | None, format_name: str = AUTO) -> ReadText:
        """Return the calls of a text that could run, and why the others do not. Without tools, any name will do."""
        reading = read_text(text, format_name)
        rejected = [_refusal(each) for each in reading.rejected]
        calls: list[ReadCall] = []
        for raw in reading.calls:
            judged = self._judged(raw, tools)
            if isinstance(judged, ReadCall):
                calls.append(judged)
            else:
                rejected.append(judged)
        return ReadText(tuple(calls), reading.text, tuple(rejected))

    def _judged(self, raw: RawCall, tools: Mapping[str, ToolSpec] | None) -> ReadCall | Refusal:
        spec = tools.get(raw.name) if tools is not None else None
        call = fitted(raw, spec.parameters if spec is not None else None)
        if tools is None:
            return ReadCall(call.name, call.arguments)
        if spec is None:
            known = ", ".join(tools) or "none"
            return Refusal(
                "unknown_tool", f"there is no such tool; known: {known}", "", call.name, call.arguments
            )
        try:
            written = msgspec.json.encode(call.arguments).decode()
            judged = self._gate.check(spec, written)
        except (BadSchema, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            judged = Failure("tool_validation", f"the arguments cannot be checked: {error}")
        if isinstance(judged, Failure):
            return Refusal(CLASSES[judged.code], judged.message, "", call.name, call.arguments)
        return ReadCall(call.name, judged.values)


def _refusal(rejected: Rejected) -> Refusal:
    return Refusal(rejected.reason, rejected.why, rejected.excerpt)
