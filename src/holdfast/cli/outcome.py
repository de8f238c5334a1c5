"""What is told at the end of a stretch of work: the exit code, the object of `--json`, closing words for people.

What a run came to is `runtime.report`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict, replace

from holdfast.cli.tables import money
from holdfast.cli.terminal import Line, Span, counted, local, short, took
from holdfast.runtime.report import Result

INTERRUPTED = 130
WAITING = 5

_CODES = {
    "done": 0, "failed": 1, "limit": 4, "waiting": WAITING, "stuck": 6, "parked": 7, "interrupted": INTERRUPTED,
}  # fmt: skip
_COST_REACHED = 3
_UNAVAILABLE = 7
_PROVIDER_REASONS = frozenset({"provider_transient", "rate_limited", "provider_refused"})
_STYLES = {"done": "green", "waiting": "yellow", "parked": "yellow"}
_USAGE = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


def exit_code(status: str, reason: str) -> int:
    """The code that tells a script how a run ended, or why it rests."""
    if status == "failed" and reason in _PROVIDER_REASONS:
        return _UNAVAILABLE
    if status == "limit" and reason == "cost":
        return _COST_REACHED
    return _CODES[status]


def left(report: Result) -> Result:
    """The report for a person who went away before the session came to rest."""
    goes_on = (
        "It still waits for a person." if report.status == "waiting" else "Another process goes on with it."
    )
    return replace(report, status="interrupted", reason="left", message=goes_on)


def is_answer(report: Result) -> bool:
    """Whether the last words are the run's answer, and not what was said on the way."""
    return bool(report.text) and report.status in ("done", "limit")


def as_json(report: Result) -> dict[str, Any]:
    """The object of `run --json`."""
    return {
        "session": report.session_id,
        "status": report.status,
        "reason": report.reason,
        "text": report.text,
        "turns": report.turns,
        "model_calls": report.model_calls,
        "tool_calls": report.tool_calls,
        "usage": {name: asdict(report.usage)[name] for name in _USAGE},
        "cost_usd": report.cost_usd,
        "trace_id": report.trace_id,
        "resume": _resume(report) if report.can_go_on else None,
    }


def _resume(report: Result) -> str:
    return f"holdfast resume {report.session_id}"


def closing_lines(report: Result, driven_ms: int) -> Iterator[Line]:
    """How it stands, and what it took."""
    spent = (
        counted(report.turns, "turn"),
        counted(report.tool_calls, "tool call"),
        f"{short(report.usage.total_tokens)} tokens",
        "cost unknown" if report.cost_microusd is None else money(report.cost_microusd),
        took(driven_ms),
    )
    style = f"bold {_STYLES.get(report.status, 'red')}"
    yield [Span(report.status, style), Span(" · " + " · ".join(spent), "dim")]
    if report.message or report.can_go_on:
        yield [f"  {report.message or report.reason}"]
    if report.status == "failed":
        yield [Span(f"  trace {report.trace_id}", "dim")]
    if report.status == "parked":
        yield [f"  It may go on at {local(report.due_ms)}; `resume` tries at once."]


def next_steps(report: Result) -> Iterator[Line]:
    """The commands that go on from here."""
    if report.reason == "question":
        yield ["  answer:  ", Span(f'{_resume(report)} "TEXT"', "bold")]
        return
    if report.reason == "approval":
        yield [
            "  decide:  ",
            Span("holdfast approvals", "bold"),
            ", then ",
            Span("holdfast approve ID", "bold"),
        ]
    if report.can_go_on:
        yield ["  go on:   ", Span(_resume(report), "bold")]
