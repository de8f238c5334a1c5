"""The default view of a session: its status, the next command, and everything that was said and done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast.config.values import spoken
from holdfast.protocol.counts import counted
from holdfast.protocol.events import (
    AnswerGiven,
    MessageReceived,
    ModelCallCut,
    ModelCallFailed,
    ModelCallUnready,
    Record,
    Responded,
    RunStopped,
    SessionForked,
    SessionImported,
    ToolCallStarted,
)
from holdfast.protocol.ids import trace_id
from holdfast.protocol.limits import usd
from holdfast.protocol.messages import Reasoning, Text, ToolCall
from holdfast.protocol.rows import SessionRow
from holdfast.protocol.settings import Group
from holdfast.protocol.trust import FLAGS
from holdfast.views.lines import COMMAND, MASKED, Line, Span, iso, local, neutral, one_line, took
from holdfast.views.notices import notice
from holdfast.views.stored import StoredSession
from holdfast.views.story import Call, Run, Story, runs_of, story
from holdfast.views.tables import (
    STYLES,
    counted_calls,
    counted_turns,
    has_price,
    label_lines,
    length_of,
    money,
    result_lines,
    status_span,
)
from holdfast.views.words import last_words

_STATUS_STYLES = {
    "done": "green",
    "open": "cyan",
    "running": "cyan",
    "waiting": "yellow",
    "paused": "yellow",
    "parked": "yellow",
}
_INDENT = "    "
_NOTICE_CELLS = 240
"""The most cells of a notice, if three lines of the terminal are not more."""


def next_command(session: StoredSession) -> str:
    """Return the command that continues the session."""
    row = session.row
    match row.status:
        case "waiting" if row.reason == "question":
            return f'holdfast resume {row.session} "ANSWER"'
        case "waiting":
            return "holdfast approvals"
        case "done":
            return f'holdfast resume {row.session} "TEXT"'
        case "new" if not session.waiting:
            return f'holdfast run "TASK" -s {row.key}' if row.key else 'holdfast run "TASK"'
    return f"holdfast resume {row.session}"


def status_of(row: SessionRow) -> Span:
    """Return the status of the session in its colour."""
    return Span(row.status, _STATUS_STYLES.get(row.status, "red"))


def overview(session: StoredSession) -> dict[str, Any]:
    """Return the status of a session for scripts."""
    row, told = session.row, story(session.records)
    return {
        "session": row.session,
        "key": row.key or None,
        "status": row.status,
        "reason": row.reason,
        "title": row.title,
        "model": row.model,
        "workspace": row.workspace,
        "text": last_words(session.records),
        "runs": len(told.runs),
        "turns": row.turns,
        "model_calls": row.model_calls,
        "tool_calls": row.tool_calls,
        "masked_calls": sum(call.is_masked for call in told.calls),
        "usage": {name: getattr(row.usage, name) for name in row.usage.__struct_fields__},
        "cost_usd": None if row.cost_microusd is None else usd(row.cost_microusd),
        "held_usd": usd(row.held_microusd),
        "parent": row.parent or None,
        "parent_cost_usd": None if row.parent_microusd is None else usd(row.parent_microusd),
        "created_at": iso(row.created_ms),
        "updated_at": iso(row.updated_ms),
        "due_at": iso(row.due_ms) if row.due_ms else None,
        "trace_id": trace_id(row.session, told.runs[-1].number if told.runs else 0),
        "taint": {flag: getattr(told.taint, flag) for flag in FLAGS},
        "records": len(session.stored),
        "waiting": session.waiting,
        "left_out": [list(r) for r in told.attempts[-1].left_out] if told.attempts else [],
        "next": next_command(session),
    }


def transcript_lines(session: StoredSession, width: int) -> Iterator[Line]:
    """Return the status of the session and its whole conversation."""
    told = story(session.records)
    yield from _head(session, told)
    calls = {call.call_id: call for call in told.calls}
    runs = {run.number: run for run in told.runs}
    shown_run = 0
    for number, record in zip(runs_of(session.records), session.records, strict=True):
        if number != shown_run and number in runs:
            shown_run = number
            yield from _run_line(runs[number], width)
        yield from _record_lines(record, calls, told.groups, width)


def _head(session: StoredSession, told: Story) -> Iterator[Line]:
    row = session.row
    reason = f"  ({one_line(row.reason, 60)})" if row.reason and row.reason != row.status else ""
    yield [Span(row.session, "bold"), f"  {row.key}  " if row.key else "  ", status_of(row), reason]
    facts = [("model", neutral(row.model)), ("workspace", neutral(row.workspace))]
    if told.runs:
        facts.append(("limits", _limits(told.runs[-1])))
    own, shared = _own_story(session, told)
    facts.append(("spent", _spent(own)))
    if shared is not None:
        facts.append(("parent", f"{row.parent} spent {_spent(shared)}"))
    marks = [(flag, getattr(told.taint, flag)) for flag in FLAGS]
    set_ = [
        f"{flag} ({one_line(mark.origin, 80)}, record {mark.seq})" for flag, mark in marks if mark is not None
    ]
    facts.append(("has read", ", ".join(set_)))
    facts.append(("last", local(row.updated_ms) + (f", due {local(row.due_ms)}" if row.due_ms else "")))
    if session.waiting:
        facts.append(("inbox", f"{counted(session.waiting, 'command')} that no process has read yet"))
    if told.runs:
        facts.append(("trace", trace_id(row.session, told.runs[-1].number)))
    for name, value in facts:
        if value:
            yield [Span(f"  {name:<10}", "dim"), value]
    yield [Span(f"  {'next':<10}", "dim"), Span(next_command(session), COMMAND)]


def _limits(run: Run) -> str:
    limits, facts = run.settings.limits, run.settings
    cost = money(limits.cost_microusd) if facts.model.facts.price != "unknown" else "cost unknown"
    return (
        f"{counted(limits.turns, 'turn')}, {counted(limits.tokens, 'token')}, {cost}, {spoken(limits.wall_s)},"
        f" idle {spoken(limits.idle_s)}; {facts.posture.autonomy}"
    )


def _own_story(session: StoredSession, told: Story) -> tuple[Story, Story | None]:
    """Return what a session spent, and what its parent spent on the records that they share."""
    forks = [record.seq for record in session.records if isinstance(record.event, SessionForked)]
    if not forks:
        return told, None
    own = {attempt.number for attempt in told.attempts if attempt.seq > forks[-1]}
    started = {
        each.event.call_id: each.seq for each in session.records if isinstance(each.event, ToolCallStarted)
    }
    mine = {call.call_id for call in told.calls if started.get(call.call_id, 0) > forks[-1]}

    def part(*, is_own: bool) -> Story:
        attempts = tuple(each for each in told.attempts if (each.number in own) == is_own)
        calls = tuple(each for each in told.calls if (each.call_id in mine) == is_own)
        return msgspec.structs.replace(told, attempts=attempts, calls=calls)

    return part(is_own=True), part(is_own=False)


def _spent(told: Story) -> str:
    # Counted from the journal: the row is derived from it and may be damaged.
    usages = [attempt.usage for attempt in told.attempts]
    is_priced = all(has_price(told, run.number) for run in told.runs)
    cost = sum(attempt.spent_microusd for attempt in told.attempts) if is_priced else None
    held = sum(attempt.held_microusd for attempt in told.attempts)
    return (
        f"{counted_turns(told.attempts)}, {counted(len(told.attempts), 'model call')},"
        f" {counted_calls(told.calls)},"
        f" {counted(sum(u.input_tokens for u in usages), 'token')} in, {sum(u.output_tokens for u in usages):,} out,"
        f" {money(cost)}{f' and {money(held)} held' if held and is_priced else ''}"
    )


def _run_line(run: Run, width: int) -> Iterator[Line]:
    title = f"── run {run.number} · {local(run.at_ms)} · {one_line(run.settings.model.facts.name, 40)} "
    yield [""]
    yield [Span(title + "─" * max(width - len(title), 0), "dim")]


def _record_lines(
    record: Record, calls: dict[str, Call], groups: Mapping[str, Group], width: int
) -> Iterator[Line]:
    at = local(record.at_ms, "%H:%M:%S")
    match record.event:
        case MessageReceived(text=text, sender=sender, attachments=attachments):
            yield [""]
            yield [Span("user", "bold cyan"), Span(f"  {at}  {one_line(sender, 40)}", "dim")]
            yield from _words(text)
            for each in attachments:
                yield [
                    Span(f"  {one_line(each.head, width)}  {each.media_type}  blob {each.blob[:12]}", "dim")
                ]
        case Responded() as response:
            yield [""]
            told = f"  {at}  {took(response.duration_ms)}" if response.duration_ms else f"  {at}"
            yield [Span("agent", "bold green"), Span(told, "dim")]
            yield from _said(response, calls, width)
        case AnswerGiven(answer=answer):
            yield [Span(f"{_INDENT}answer", "bold green"), Span(f"  confidence {answer.confidence:g}", "dim")]
            yield from _words(answer.text)
            for what, remarks in (("because", answer.reasons), ("but", answer.caveats)):
                for remark in remarks:
                    yield [Span(f"{_INDENT}{what}: ", "dim"), one_line(remark, max(width * 3, _NOTICE_CELLS))]
        case ModelCallCut(text=text):
            yield [""]
            yield [Span("agent", "bold green"), Span(f"  {at}  cut off", "yellow")]
            yield from _words(text)
        case _:
            said, style = _notice(record, groups)
            if said:
                yield [Span(f"{_INDENT}· {at}  {one_line(said, max(width * 3, _NOTICE_CELLS))}", style)]


def _said(response: Responded, calls: dict[str, Call], width: int) -> Iterator[Line]:
    for part in response.parts:
        match part:
            case Text(text=text):
                yield from _words(text)
            case Reasoning(text=text) if text.strip():
                yield [Span(f"{_INDENT}({one_line(text, width - 6)})", "dim italic")]
            case ToolCall(call_id=call_id) as asked:
                yield from _call(asked, calls.get(call_id), width)


def _call(asked: ToolCall, call: Call | None, width: int) -> Iterator[Line]:
    line: list[Span | str] = [
        Span(f"{_INDENT}→ ", "dim"),
        Span(one_line(asked.name, 40), "bold"),
        f" {one_line(asked.arguments, max(width - 40, 20))}",
        Span(f"  ({MASKED})" if asked.is_masked else "", "dim"),
    ]
    if call is None:
        yield line
        return
    length = f" {length_of(call)}".rstrip()
    repeat = f" ↻ {call.repeat}" if call.repeat > 1 else ""
    trust = f"  {call.trust}" if call.trust is not None else ""
    walled = f"  {call.walled.backend}" if call.walled is not None else ""
    yield [*line, "  ", status_span(call.status), Span(f"{length}{repeat}{trust}{walled}", "dim")]
    yield from label_lines(call, f"{_INDENT}  ")
    if call.arguments != asked.arguments:  # converted, or changed by a hook
        yield [Span(f"{_INDENT}  ran with {one_line(call.arguments, max(width - 40, 20))}", "dim")]
    yield from result_lines(call.text, width, f"{_INDENT}  ")


def _notice(record: Record, groups: Mapping[str, Group]) -> tuple[str, str]:
    """Return what the runtime or a person did, with its style; empty if there is nothing to say."""
    match record.event:
        case RunStopped(status=status, reason=reason, message=message):
            style = STYLES.get(status, "green" if status == "done" else "red")
            return f"{status}: {message or reason}", style
        case ModelCallFailed() | ModelCallUnready():
            return notice(record, groups), "red"
        case SessionForked() | SessionImported():
            return notice(record, groups), "dim"
    return notice(record, groups), "yellow"


def _words(text: str) -> Iterator[Line]:
    for line in neutral(text).strip("\n").split("\n"):
        yield [_INDENT + line]
