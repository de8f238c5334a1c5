"""The progress of a session: lines for each record while it happens.

`transcript` shows a session afterwards. Where the lines are written is the business of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from holdfast.core.state import Call, State
from holdfast.protocol.counts import counted
from holdfast.protocol.events import (
    AnswerGiven,
    ApprovalRequested,
    PlanChanged,
    Record,
    Responded,
    SettingsStored,
    ToolCallAbandoned,
    ToolCallFinished,
    ToolCallRefused,
)
from holdfast.protocol.messages import ToolCall, calls_of
from holdfast.protocol.untrusted import decode_untrusted
from holdfast.views.caching import CacheWatch
from holdfast.views.lines import MASKED, Line, Span, neutral, one_line, took
from holdfast.views.lists import clipped_text, framed, readable_call
from holdfast.views.notices import notice
from holdfast.views.plans import plan_told

Detail = Literal["quiet", "usual", "verbose"]
"""quiet: questions only. usual: a line for each call. verbose: also the arguments and results of calls."""
_Mark = Literal["ok", "error", "timeout", "cancelled", "unknown", "refused"]
_MARKS: Mapping[_Mark, Span] = {
    "ok": Span("✓", "green"), "error": Span("✗", "red"), "timeout": Span("✗", "red"),
    "cancelled": Span("■", "yellow"), "unknown": Span("?", "yellow"), "refused": Span("⊘", "red"),
}  # fmt: skip
_ENDED = re.compile(r"\[((?:exit code|killed by signal) \d+)\]\s*\Z")
"""The end of the result of a command that failed."""
_TELLING = ("command", "path", "pattern", "question", "url", "query")
"""The arguments that say most about a call. The first one that a call has is shown."""


class Happenings:
    """Turns records into lines, in order. It remembers calls, because later records only name them."""

    def __init__(self, state: State, *, is_asked_here: bool = False, detail: Detail = "usual") -> None:
        """Create a reader of the records after `state`.

        Args:
            is_asked_here: The person who watches is asked for approvals, so requests need no line.
            detail: How much to say.
        """
        self._is_asked_here = is_asked_here
        self._detail = detail
        self._groups = state.groups
        self._cache = CacheWatch()
        self._came_to: dict[str, str] = {}
        """What the last call that told Holdfast something came to, by its id."""
        self._calls: dict[str, ToolCall | Call] = {call.call_id: call for call in state.turn.calls}

    def lines(self, record: Record, width: int) -> Sequence[Line]:
        """Return the lines of a record. Most records have none."""
        lines = [*self._lines(record, width)]
        if warning := self._cache.add(record):
            lines.append(_notice(warning, width))
        if self._detail == "quiet":
            return lines if isinstance(record.event, ApprovalRequested) else ()
        return [*lines, *self._in_full(record)] if self._detail == "verbose" else lines

    def _in_full(self, record: Record) -> Iterator[Line]:
        """Return the arguments of a call that is over, and its result."""
        match record.event:
            case ToolCallFinished(call_id=call_id, result=result):
                text = result.text
            case ToolCallRefused(call_id=call_id, failure=failure):
                text = failure.message
            case ToolCallAbandoned(call_id=call_id, text=text):
                pass
            case _:
                return
        call = self._calls.get(call_id)
        if call is not None:
            yield from framed(readable_call(call.arguments))
        yield from framed(clipped_text(neutral(text.rstrip("\n")))[0])

    def _lines(self, record: Record, width: int) -> Iterator[Line]:
        match record.event:
            case Responded(parts=parts):
                self._calls |= {call.call_id: call for call in calls_of(parts)}
            case PlanChanged(call_id=call_id, plan=plan):
                self._came_to = {call_id: plan_told(plan)}
            case AnswerGiven(call_id=call_id, answer=answer, is_doubted=is_doubted):
                self._came_to = {call_id: f"confidence {answer.confidence:g}"}
                if is_doubted:
                    yield _notice(notice(record, self._groups), width)
            case ToolCallFinished(call_id=call_id, result=result):
                if result.status == "deferred":
                    return  # the line about its approval has said it
                why = "" if result.status == "ok" else _why(result.status, result.text)
                length = "" if call_id in self._came_to else took(result.duration_ms)  # nothing ran
                yield self._call(call_id, result.status, length, why, width)
            case ToolCallRefused(call_id=call_id, name=name, failure=failure):
                yield self._call(call_id, "refused", "", failure.message, width, name)
            case ToolCallAbandoned(call_id=call_id, text=text):
                yield self._call(call_id, "unknown", "", text, width)
            case ApprovalRequested() if self._is_asked_here:
                return
            case SettingsStored(groups=groups):
                self._groups = {**self._groups, **groups}
            case _:
                said = notice(record, self._groups)
                if said:
                    yield _notice(said, width)

    def about(self, call_id: str, width: int) -> str:
        """Return the call in a few words: its name and the argument that says most."""
        call = self._calls.get(call_id)
        return one_line(f"{call.name} {_told(call.arguments)}", width) if call else call_id

    def _call(self, call_id: str, status: _Mark, length: str, why: str, width: int, name: str = "") -> Line:
        call = self._calls.get(call_id)
        name = name or (call.name if call else call_id)
        room = max(width - len(name) - len(length) - 10, 20)
        said = self._came_to.get(call_id) or (_told(call.arguments) if call else "")
        told = one_line(said, room // 2 if why else room)
        line: list[Span | str] = ["  ", _MARKS[status], " ", Span(name, "bold"), f" {told}" if told else ""]
        if call is not None and call.is_masked:
            line.append(Span(f"  ({MASKED})", "dim"))
        if length:
            line.append(Span(f"  {length}", "dim"))
        if why:
            line.append(Span("  " + one_line(why, max(room - len(told), 30)), _MARKS[status].style))
        return line


def _notice(text: str, width: int) -> Line:
    return ["  ", Span("! ", "yellow"), Span(one_line(text, max(width * 3, 240)), "yellow")]


def _why(status: str, text: str) -> str:
    """Return why a call failed. Of a command: its exit code, and the last line that it printed."""
    ended = _ENDED.search(text)
    if ended is None:
        return f"{status}: {text}"
    says = text[: ended.start()].rstrip().rpartition("\n")[2]
    return f"{ended[1]}: {says}" if says else ended[1]


def _told(arguments: str) -> str:
    try:
        given = decode_untrusted(arguments or "{}")
    except msgspec.DecodeError:
        return arguments
    if isinstance(given, dict):
        telling = next((given[name] for name in _TELLING if isinstance(given.get(name), str)), None)
        if telling is not None:
            return str(telling)
    return arguments if given else ""


def spent(state: State) -> str:
    """Return the turns and the cost of the run."""
    if state.run is None:
        return ""
    totals = state.run.totals
    cost = "cost unknown" if totals.is_unpriced else f"${totals.cost_microusd / 1_000_000:.4f}"
    return f"{counted(totals.turns, 'turn')} · {cost}"
