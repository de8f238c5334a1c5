"""A scripted model: answers from a file of JSON Lines, one response per line, for demonstrations and tests.

The number of outcomes in the session's journal selects the line, never a pointer here. A side call takes the lines of
its purpose, by the outcomes of its purpose. So a session that resumes in
another process continues in the right place. A line is used up when its outcome is recorded: a response, an error
that it asked for, or the failure of a silence longer than the idle limit (the same line would be silent again). An
attempt that the wall limit, a stop or a kill cut short has no outcome: the same line answers the next one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from holdfast.config.files import Unreadable, read_text
from holdfast.errors import UsageError
from holdfast.protocol.failures import Failure
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import (
    Estimated,
    Finish,
    Message,
    ModelReply,
    Part,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    calls_of,
)
from holdfast.protocol.outcomes import ModelFailure
from holdfast.protocol.ports import Delta, ModelAttempt, Wire
from holdfast.protocol.request import Purpose
from holdfast.protocol.tools import ToolSpec
from holdfast.protocol.untrusted import decode_untrusted
from holdfast.protocol.zone import without_head
from holdfast.providers.errors import from_status

SCRIPT_MAX_BYTES = 64 << 20
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]
_encode = msgspec.json.Encoder().encode
_WHERE = re.compile(r" - at `\$\.?(?P<key>\w*)[^`]*`$")


class ScriptCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call of a line. Arguments given as text stay unchanged, even if they are malformed."""

    name: str
    arguments: dict[str, Any] | str = {}


class ScriptUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The usage that a line reports."""

    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cache_read_tokens: _Count = 0
    cache_write_tokens: _Count = 0
    cache_write_1h_tokens: _Count = 0
    reasoning_tokens: _Count = 0


class ScriptError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line that fails like a server with this status."""

    status: Annotated[int, msgspec.Meta(ge=300, le=599)]
    retry_after: _Seconds | None = None
    message: str = ""


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One response of a script."""

    text: str = ""
    tool_calls: tuple[ScriptCall, ...] = ()
    usage: ScriptUsage | None = None
    finish: Literal["", "length", "refusal"] = ""
    """Empty: the response ended by itself."""
    delay_s: _Seconds = 0.0
    """Spread over the chunks."""
    chunks: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    """The number of pieces of a streamed text."""
    error: ScriptError | None = None
    when: str = ""
    """A regular expression that must match in the last user or tool message."""
    repeat: bool = False
    """Whether the line, if it is the last one for its purpose, answers every later request too."""
    purpose: Purpose = "work"
    """What the model call has to be for. Each purpose has its own lines."""


class NumberedLine(msgspec.Struct, frozen=True):
    """A line with its place."""

    number: int
    line: Line


class ScriptWire:
    """`ports.Wire` of a script. Every message begins on its own line, so that the last one is found from the end
    without reading the others (JSON text always escapes line breaks).
    """

    name = "script"
    keeps_tools = False

    def base(self, facts: ModelFacts, system: str, tools: Sequence[ToolSpec]) -> bytes:
        """Encode model, system text and tools, for people who read the request. See `ports.Wire`."""
        head = {"model": facts.model, "system": system, "tools": [spec.name for spec in tools]}
        return _encode(head)[:-1] + b',"messages":['

    def message(self, message: Message) -> Sequence[bytes]:
        """Encode one element. See `ports.Wire`."""
        written: dict[str, Any] = {"role": message.role}
        if message.role == "tool":
            results = [part for part in message.parts if isinstance(part, ToolResult)]
            written["results"] = [{"call": result.call_id, "text": result.text} for result in results]
        else:
            texts = [part.text for part in message.parts if isinstance(part, Text)]
            written["text"] = "\n\n".join(texts) if message.role == "user" else "".join(texts)
        if calls := calls_of(message.parts):
            written["calls"] = [
                {"call": call.call_id, "name": call.name, "arguments": call.arguments} for call in calls
            ]
        return [b"\n" + _encode(written)]

    def tail(
        self, facts: ModelFacts, output_cap_tokens: int, *, is_streaming: bool, is_last_pass: bool
    ) -> bytes:
        """See `ports.Wire`."""
        return b'\n],"max_tokens":%d,"stream":%s}' % (
            output_cap_tokens,
            b"true" if is_streaming else b"false",
        )


class ScriptProvider:
    """A `ports.Provider` that answers from a script."""

    def __init__(self, lines: Sequence[NumberedLine], source: str) -> None:
        self.wire: Wire = ScriptWire()
        self._lines: Mapping[Purpose, Sequence[NumberedLine]] = {
            purpose: [each for each in lines if each.line.purpose == purpose] for purpose in get_args(Purpose)
        }
        self._source = source

    async def respond(self, attempt: ModelAttempt) -> ModelReply | ModelFailure:
        """Answer with the line after the first `outcomes` lines. See `ports.Provider`."""
        attempt.check()
        body, idle_s, outcomes = attempt.body, attempt.idle_s, attempt.outcomes
        chosen = self._choose(attempt.purpose, outcomes)
        if chosen is None:
            return _fatal(f"{self._source} has no line for {_of(attempt.purpose)} {outcomes + 1}.")
        number, line = chosen.number, chosen.line
        if line.when and not re.search(line.when, _last_heard(body)):
            return _fatal(
                f"{self._source}, line {number}: the last message does not match `when`.", line.when
            )
        if line.delay_s / line.chunks > idle_s:
            await asyncio.sleep(idle_s)
            message = f"{self._source}, line {number} was silent for {idle_s:g} s."
            return ModelFailure(Failure("provider_transient", message))
        for piece in _pieces(line):
            if line.delay_s:
                await asyncio.sleep(line.delay_s / line.chunks)
            if attempt.is_streaming and piece and line.error is None:
                attempt.on_delta(Delta("text", piece))
        if line.error is not None:
            return ModelFailure(_failure(line.error, attempt.facts.name))
        return _reply(line, attempt.facts.model, outcomes)

    async def aclose(self) -> None:
        """Do nothing: a script has nothing open."""

    def _choose(self, purpose: Purpose, outcomes: int) -> NumberedLine | None:
        lines = self._lines[purpose]
        if outcomes < len(lines):
            return lines[outcomes]
        return lines[-1] if lines and lines[-1].line.repeat else None


def script_from_file(path: str | Path) -> ScriptProvider:
    """Return the scripted model in a JSON Lines file.

    Raises:
        UsageError: the file cannot be read or has no line, or a line is wrong. The message says where and what.
    """
    try:
        content = read_text(Path(path), SCRIPT_MAX_BYTES)
    except Unreadable as error:
        hint = "Name a file with one JSON response per line: -m script:FILE, relative to the current folder."
        raise UsageError(f"The script {path} {error}.", hint=hint) from None
    lines: list[NumberedLine] = []
    for number, text in enumerate(content.split("\n"), start=1):
        if text.strip():
            try:
                raw = decode_untrusted(text)
            except msgspec.DecodeError as error:
                raise UsageError(f"{path}, line {number} is not JSON: {error}.") from None
            lines.append(_numbered(raw, number, str(path)))
    return _script(lines, str(path))


def script_from_lines(lines: Sequence[Mapping[str, Any]], source: str = "the script") -> ScriptProvider:
    """Return the scripted model of lines in memory, with the keys of the file.

    Raises:
        UsageError: there is no line, or one is wrong.
    """
    numbered = [_numbered(dict(raw), number, source) for number, raw in enumerate(lines, start=1)]
    return _script(numbered, source)


def _script(lines: Sequence[NumberedLine], source: str) -> ScriptProvider:
    if not lines:
        raise UsageError(f"{source} has no line.")
    return ScriptProvider(lines, source)


def _numbered(raw: object, number: int, source: str) -> NumberedLine:
    try:
        line = msgspec.convert(raw, Line)
        re.compile(line.when)
    except msgspec.ValidationError as error:
        found = _WHERE.search(str(error))
        key = found["key"] if found else ""
        value = f", {key} = {raw[key]!r:.80}" if isinstance(raw, dict) and key in raw else ""
        raise UsageError(f"{source}, line {number}{value}: {_WHERE.sub('', str(error))}.") from None
    except re.error as error:
        raise UsageError(f"{source}, line {number}, when = {line.when!r}: {error}.") from None
    return NumberedLine(number, line)


def _last_heard(body: bytes) -> str:
    """Return the text of the last user or tool message in a body that `ScriptWire` wrote, without the time before a
    person's words.
    """
    end = body.rfind(b"\n]")
    while (start := body.rfind(b"\n", 0, end)) >= 0:
        message = msgspec.json.decode(body[start:end].rstrip(b","))
        match message["role"]:
            case "user":
                return without_head(message["text"])
            case "tool":
                return "\n".join(result["text"] for result in message["results"])
        end = start
    return ""


def _pieces(line: Line) -> list[str]:
    """Split the text into as many pieces as asked for. The last ones are empty if there are too few characters."""
    size = max(-(-len(line.text) // line.chunks), 1)
    return [line.text[index * size : (index + 1) * size] for index in range(line.chunks)]


def _reply(line: Line, model: str, outcomes: int) -> ModelReply:
    calls = [
        ToolCall(f"call_{outcomes}_{index}", call.name, _arguments(call))
        for index, call in enumerate(line.tool_calls)
    ]
    parts: list[Part] = [Text(line.text)] if line.text else []
    usage = Usage() if line.usage is None else msgspec.convert(line.usage, Usage, from_attributes=True)
    estimated: Estimated = ("input", "output") if line.usage is None else ()
    finish: Finish = line.finish or ("tool_calls" if calls else "stop")
    return ModelReply((*parts, *calls), usage, finish, model, estimated=estimated)


def _arguments(call: ScriptCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else _encode(call.arguments).decode()


def _failure(error: ScriptError, model: str) -> Failure:
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return from_status(error.status, headers, error.message, model)


def _of(purpose: Purpose) -> str:
    return "response" if purpose == "work" else purpose


def _fatal(message: str, detail: str = "") -> ModelFailure:
    return ModelFailure(Failure("provider_fatal", message, detail))
