"""What happens in a session, told to people record by record: lines, for a terminal or a pipe.

Where and how they are shown is `live`'s business; what a finished session shows is `transcript`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.core.state import Call, State
from holdfast.protocol.events import (
    ApprovalRequested,
    ApprovalResolved,
    ModelCallAbandoned,
    ModelCallCut,
    ModelCallFailed,
    ModelCallUnready,
    NoteAdded,
    Record,
    Responded,
    RunLanding,
    RunPaused,
    RunResumed,
    SettingsChanged,
    ToolCallAbandoned,
    ToolCallFinished,
    ToolCallRefused,
)
from holdfast.protocol.messages import ToolCall, calls_of
from holdfast.protocol.untrusted import decode_untrusted
from holdfast.views.lines import Line, Span, counted, moment, one_line, took

_MARKS = {
    "ok": Span("✓", "green"), "error": Span("✗", "red"), "timeout": Span("✗", "red"),
    "cancelled": Span("■", "yellow"), "unknown": Span("?", "yellow"), "refused": Span("⊘", "red"),
}  # fmt: skip
_TELLING = ("command", "path", "pattern", "question", "url", "query")
"""The arguments that say most about a call, the first that is there counts."""


class Happenings:
    """Tells records in their order; remembers which calls were asked for, since later records only name them."""

    def __init__(self, state: State, *, is_asked_here: bool = False) -> None:
        """`state`: how the session stands before the first record to tell, with the calls that are open then;
        `is_asked_here`: the person who watches is asked, so that asking need not be told."""
        self._is_asked_here = is_asked_here
        self._calls: dict[str, ToolCall | Call] = {call.call_id: call for call in state.turn.calls}

    def lines(self, record: Record, width: int) -> Iterator[Line]:
        """The lines of one record; most have none."""
        match record.event:
            case Responded(parts=parts):
                self._calls |= {call.call_id: call for call in calls_of(parts)}
            case ToolCallFinished(call_id=call_id, result=result):
                why = "" if result.status == "ok" else f"{result.status}: {result.text}"
                yield self._call(call_id, result.status, took(result.duration_ms), why, width)
            case ToolCallRefused(call_id=call_id, name=name, failure=failure):
                yield self._call(call_id, "refused", "", failure.message, width, name)
            case ToolCallAbandoned(call_id=call_id, text=text):
                yield self._call(call_id, "unknown", "", text, width)
            case ApprovalRequested() if self._is_asked_here:
                return
            case _:
                notice = _notice(record)
                if notice:
                    yield ["  ", Span("! ", "yellow"), Span(one_line(notice, max(width * 3, 240)), "yellow")]

    def about(self, call_id: str, width: int) -> str:
        """The call in a few words: its name and the argument that says most."""
        call = self._calls.get(call_id)
        return one_line(f"{call.name} {_told(call.arguments)}", width) if call else call_id

    def _call(self, call_id: str, status: str, length: str, why: str, width: int, name: str = "") -> Line:
        call = self._calls.get(call_id)
        name = name or (call.name if call else call_id)
        room = max(width - len(name) - len(length) - 10, 20)
        told = one_line(_told(call.arguments) if call else "", room // 2 if why else room)
        line: list[Span | str] = ["  ", _MARKS[status], " ", Span(name, "bold"), f" {told}" if told else ""]
        if length:
            line.append(Span(f"  {length}", "dim"))
        if why:
            line.append(Span("  " + one_line(why, max(room - len(told), 30)), _MARKS[status].style))
        return line


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


def _notice(record: Record) -> str:
    """What the runtime or a person did that a watcher should know of; empty for the rest."""
    match record.event:
        case NoteAdded(text=text) | RunLanding(message=text):
            return text
        case SettingsChanged(settings=settings):
            return f"from here on: {settings.facts.name} in {settings.workspace}, {settings.autonomy}"
        case (
            ModelCallFailed(failure=failure, retry_at_ms=retry_at_ms)
            | ModelCallUnready(failure=failure, retry_at_ms=retry_at_ms)
        ):
            again = f" It is tried again at {moment(retry_at_ms, record.at_ms)}." if retry_at_ms else ""
            return f"{failure.code}: {failure.message}{again}"
        case ModelCallAbandoned():
            return "a model call was in flight when its process ended; what it may have cost is held"
        case ModelCallCut():
            return "the response was stopped"
        case ApprovalRequested(approval_id=approval_id, name=name, question=question, reason=reason):
            asked = f"asks: {question}" if question else f"needs a decision: {reason}"
            return f"{name} {asked} ({approval_id})"
        case ApprovalResolved(decision=decision, by=by, note=note):
            return _resolved(decision, by, note)
        case RunPaused(by=by):
            return f"paused by {by}"
        case RunResumed(by=by) if by != "timer":
            return f"resumed by {by}"
    return ""


def _resolved(decision: str, by: str, note: str) -> str:
    if decision == "expired":
        return "the approval expired: nobody decided in time"
    words = {"approve": "approved", "deny": "denied", "answer": "answered"}
    return f"{words.get(decision, decision)} by {by}" + (f": {note}" if note else "")


def spent(state: State) -> str:
    """Where the run stands, in a few words: turns and cost."""
    if state.run is None:
        return ""
    totals = state.run.totals
    cost = "cost unknown" if totals.is_unpriced else f"${totals.cost_microusd / 1_000_000:.4f}"
    return f"{counted(totals.turns, 'turn')} · {cost}"
