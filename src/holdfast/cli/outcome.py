"""The end of a command that ran a session: the exit code, the closing lines, the next commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import UnsetType
from msgspec.structs import replace

from holdfast.protocol.budgets import REACHED
from holdfast.protocol.counts import counted
from holdfast.protocol.events import MessageReceived, Record, ToolCallFinished
from holdfast.protocol.failures import SAID_CHARS
from holdfast.protocol.rows import Approval
from holdfast.views.lines import COMMAND, Line, Span, local, one_line, short, took
from holdfast.views.lists import approval_call_lines
from holdfast.views.report import Result, ResultStatus, next_command
from holdfast.views.tables import money

INTERRUPTED = 130
WAITING = 5

_CODES: Mapping[ResultStatus, int] = {
    "done": 0, "failed": 1, "limit": 4, "waiting": WAITING, "stuck": 6, "parked": 7, "interrupted": INTERRUPTED,
}  # fmt: skip
_COST_REACHED = 3
_UNAVAILABLE = 7
_PROVIDER_REASONS = frozenset({"provider_transient", "rate_limited", "provider_refused", "provider_unready"})
_STYLES = {"done": "green", "waiting": "yellow", "parked": "yellow"}


def exit_code(status: ResultStatus, reason: str) -> int:
    """Return the exit code for the status of a run."""
    if status == "failed" and reason in _PROVIDER_REASONS:
        return _UNAVAILABLE
    if status == "limit" and (reason == "cost" or reason in REACHED.values()):
        return _COST_REACHED
    return _CODES[status]


def left(report: Result[Any]) -> Result[Any]:
    """Return the report for a person who left before the session came to rest."""
    goes_on = "It still waits for you." if report.status == "waiting" else "Another process continues it."
    return replace(report, status="interrupted", reason="left", message=goes_on)


def is_answer(report: Result[Any]) -> bool:
    """Return whether the run has ended with an answer. With a schema it has only if the answer matches."""
    return not isinstance(report.answer, UnsetType)


def closing_lines(report: Result[Any], lasted_ms: int) -> Iterator[Line]:
    """Return the status of the run, what it used and how long it lasted."""
    about = "about " if report.is_estimated else ""
    spent = (
        counted(report.turns, "turn"),
        counted(report.tool_calls, "tool call"),
        f"{about}{short(report.usage.total_tokens)} tokens",
        "cost unknown" if report.cost_microusd is None else about + money(report.cost_microusd),
        took(lasted_ms),
    )
    style = f"bold {_STYLES.get(report.status, 'red')}"
    yield [Span(report.status, style), Span(" · " + " · ".join(spent), "dim")]
    if report.is_calibrated and is_answer(report):
        yield from _calibration(report)
    if report.message or report.can_go_on:
        yield [f"  {report.message or report.reason}"]
    if report.reason == "refusal" and report.text.strip():
        yield [f"  It said: {' '.join(report.text.split())[:SAID_CHARS]}"]
    if report.status == "failed":
        yield [Span(f"  trace {report.trace_id}", "dim")]
    if report.status == "parked":
        yield [f"  It can continue at {local(report.due_ms)}; `resume` tries immediately."]


def _calibration(report: Result[Any]) -> Iterator[Line]:
    if report.confidence is None:
        yield ["  confidence: the model did not say"]
        return
    yield [f"  confidence {report.confidence:g}"]
    for what, remarks in (("because", report.reasons), ("but", report.caveats)):
        for remark in remarks:
            yield [f"  {what}: {one_line(remark, SAID_CHARS)}"]


def last_before_files(records: Iterable[Record]) -> int:
    """Return the number of the record before the last message that brought files; 0 without any.

    A tool may bring them too.
    """
    message = found = 0
    for record in records:
        match record.event:
            case MessageReceived(attachments=attached):
                message = record.seq
                found = message - 1 if attached else found
            case ToolCallFinished(result=result) if result.attachments:
                found = message - 1
    return found


def next_steps(
    report: Result[Any], approvals: Sequence[Approval], *, before_files: int = 0
) -> Iterator[Line]:
    """Return the commands that continue from here, with everything that each open approval is about.

    Args:
        before_files: The record before the last message with files, which each request repeats. So what a provider
            refuses because of one, it refuses again. 0: there are no files.
    """
    if report.reason == "question":
        yield ["  answer:    ", Span(f'{next_command(report)} "TEXT"', COMMAND)]
        return
    if report.reason == "approval":
        for row in approvals:
            yield from approval_call_lines(row)
            yield ["  approve:   ", Span(f"holdfast approve {row.id}", COMMAND)]
            yield ["  deny:      ", Span(f'holdfast deny {row.id} --note "why"', COMMAND)]
    if report.reason == "provider_fatal" and before_files:
        yield ["  If it refuses a file of this session, go back to before its message, or branch off there:"]
        yield ["  go back:   ", Span(f"holdfast rewind {report.session_id} --to {before_files}", COMMAND)]
        yield ["  branch:    ", Span(f"holdfast fork {report.session_id} --at {before_files}", COMMAND)]
    if report.can_go_on:
        yield ["  continue:  ", Span(next_command(report), COMMAND)]
