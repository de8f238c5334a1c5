"""`holdfast parse-calls`: which tool calls a text has, without a session, a model or an effect."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.batch import answered
from holdfast.cli.options import HomeFlag, JsonFlag
from holdfast.cli.terminal import say, say_json
from holdfast.config.files import Unreadable, read_opened, reading
from holdfast.config.paths import expanded
from holdfast.errors import UsageError
from holdfast.protocol.text_formats import AUTO, TEXT_FORMATS
from holdfast.protocol.tools import ToolSpec
from holdfast.protocol.untrusted import decode_exact
from holdfast.tools.text_calls import ReadText, Refusal, TextChecker
from holdfast.views.lines import Line, Span, neutral

MAX_BYTES = 4_000_000
"""The longest text, and the longest file of tools."""
_MAX_TOOLS = 1_000
_A_TOOL = 'A tool is {"name": ..., "parameters": {...}}.'


def parse_calls(
    format_name: Annotated[
        str, typer.Option("--format", metavar="NAME", help="The format, or auto: any that has a wrapper.")
    ] = AUTO,
    tools: Annotated[
        str | None,
        typer.Option(
            "--tools",
            metavar="FILE",
            help="The known tools: a JSON list of {name, parameters}, or one a line.",
        ),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch", metavar="FILE", help='One {"text", "tools"?, "format"?} per line. - reads stdin.'
        ),
    ] = None,
    home: HomeFlag = None,  # like every command; it has no part in the answer
    is_json: JsonFlag = False,
) -> int:
    """Say which tool calls the text on stdin has, what is left of it, and what was rejected and why.

    A call in a quotation, a fence, thinking or a repeated tool result does not count, nor does one that is cut off.
    With auto, JSON without a wrapper is never a call. With tools, only calls of these tools with arguments that fit
    count.

    \b
    holdfast parse-calls --format hermes --tools tools.json --json < answer.txt
    holdfast parse-calls --batch answers.jsonl --json
    """
    checker = TextChecker()
    named = _format_of(format_name)
    known = _tools_in(tools) if tools is not None else None
    if batch is None:
        _say(checker.read(_stdin_text(), known, named), is_json=is_json)
        return 0
    return answered(
        batch, lambda said: _say(_answer(checker, said, known, named), is_json=is_json), is_json=is_json
    )


def _answer(checker: TextChecker, said: Any, known: dict[str, ToolSpec] | None, format_name: str) -> ReadText:
    """Return the answer to one line of a batch."""
    if not isinstance(said, dict) or not isinstance(said.get("text"), str):
        raise UsageError('The line is not an object with a "text".')
    tools = _tools_of(said["tools"], "tools") if said.get("tools") is not None else known
    named = said.get("format")
    return checker.read(said["text"], tools, format_name if named is None else _format_of(named))


def _format_of(name: Any) -> str:
    """Return the name of a format.

    Raises:
        UsageError: there is no such format.
    """
    if name == AUTO or name in TEXT_FORMATS:
        return str(name)
    begins = [known for known in TEXT_FORMATS if name and known.startswith(str(name))]
    near = begins or get_close_matches(str(name)[:80], [AUTO, *TEXT_FORMATS], n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Known: {AUTO}, {', '.join(TEXT_FORMATS)}."
    raise UsageError(f"There is no format {str(name)[:80]!r}.", hint=hint)


def _stdin_text() -> str:
    if sys.stdin.isatty():
        raise UsageError("Nothing comes on stdin.", hint="Give a text: `holdfast parse-calls < answer.txt`.")
    content = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise UsageError(f"stdin has more than {MAX_BYTES:,} bytes.")
    return content.decode("utf-8", "replace")


def _tools_in(file: str) -> dict[str, ToolSpec]:
    """Return the tools that a file lists.

    Raises:
        UsageError: it cannot be read, or lists no tools.
    """
    try:
        with read_opened(expanded(file)) as opened, reading():
            content = opened.read(MAX_BYTES + 1)
    except Unreadable as error:
        raise UsageError(f"--tools {file} {error}.", hint="Name a JSON file with a list of tools.") from None
    if len(content) > MAX_BYTES:
        raise UsageError(f"--tools {file} has more than {MAX_BYTES:,} bytes.")
    try:
        return _tools_of(_listed(content), f"--tools {file}")
    except msgspec.DecodeError as error:
        raise UsageError(f"--tools {file} is not JSON: {error}.") from None


def _listed(content: bytes) -> Any:
    """Return what a file has: one document, or one tool a line, as `holdfast tools --json` prints them."""
    lines = [line for line in content.splitlines() if line.strip()]
    if len(lines) > 1 and all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
        return [decode_exact(line) for line in lines]
    return decode_exact(content)


def _tools_of(value: Any, where: str) -> dict[str, ToolSpec]:
    """Return the tools of a list. Each is `{name, parameters}`, alone or under `function`."""
    listed = value.get("tools") if isinstance(value, dict) else value
    if not isinstance(listed, list) or len(listed) > _MAX_TOOLS:
        raise UsageError(
            f"{where} is not a list of tools.", hint='A tool is {"name": ..., "parameters": {...}}.'
        )
    specs: dict[str, ToolSpec] = {}
    problems: list[str] = []
    for number, each in enumerate(listed, 1):
        tool = each.get("function", each) if isinstance(each, dict) else {}
        name = tool.get("name") if isinstance(tool, dict) else None
        parameters = (tool.get("parameters") if name else None) or {}
        if not isinstance(name, str) or not name or not isinstance(parameters, dict):
            problems.append(f"tool {number} has no name, or its parameters are not an object")
        elif name in specs:
            problems.append(f"tool {number} has the name {name[:80]!r} again")
        else:
            # A schema that names no arguments allows any.
            schema = (
                parameters if "properties" in parameters else {"additionalProperties": True, **parameters}
            )
            specs[name] = ToolSpec(name=name, description="", parameters=schema)
    if problems:
        raise UsageError(
            f"{where}: {'; '.join(problems[:10])}.", hint='A tool is {"name": ..., "parameters": {...}}.'
        )
    return specs


def _say(read: ReadText, *, is_json: bool) -> None:
    if not is_json:
        say(_lines(read))
        return
    say_json({
        "calls": [{"name": call.name, "arguments": call.arguments} for call in read.calls],
        "text": read.text,
        "rejected": [_members(each) for each in read.rejected],
    })  # fmt: skip


def _members(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal without what it does not have."""
    return {key: value for key, value in refusal._asdict().items() if value not in ("", None)}


def _lines(read: ReadText) -> list[Line | str]:
    lines: list[Line | str] = [
        [Span("call", "green"), f"  {neutral(call.name)} {neutral(_json(call.arguments))}"]
        for call in read.calls
    ]
    for each in read.rejected:
        subject = f"{each.name} {_json(each.arguments)}" if each.name else each.text
        lines.append([Span(each.reason, "red"), f"  {neutral(each.why)}: {neutral(subject)}"])
    if read.text.strip():
        lines.append([Span("text", "bold"), f"  {neutral(read.text.strip())}"])
    return lines


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
