"""Lists of sessions and of open approvals, made from the rows that the store derives from journals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.protocol.counts import counted
from holdfast.protocol.limits import usd
from holdfast.protocol.rows import Approval, GrantRow, SessionRow
from holdfast.protocol.tools import Content
from holdfast.protocol.untrusted import decode_untrusted
from holdfast.views.lines import (
    COMMAND,
    EXACT,
    FRAME,
    MASKED,
    Line,
    Span,
    iso,
    local,
    neutral,
    one_line,
    table,
)
from holdfast.views.notices import decided, offer_told
from holdfast.views.tables import money
from holdfast.views.transcript import status_of

SHOWN_LINES = 40
SHOWN_CHARS = 4_000
_HIDDEN = (
    "what looks like a secret is hidden. What the model wrote runs, in the process that asked or not at all."
)


# --- sessions -----------------------------------------------------------------------------------


def session_row(row: SessionRow) -> dict[str, Any]:
    """Return a session for scripts."""
    return {
        "session": row.session,
        "key": row.key or None,
        "status": row.status,
        "reason": row.reason,
        "title": row.title,
        "model": row.model,
        "workspace": row.workspace,
        "runs": row.runs,
        "turns": row.turns,
        "model_calls": row.model_calls,
        "tool_calls": row.tool_calls,
        "tokens": row.usage.total_tokens,
        "cost_usd": None if row.cost_microusd is None else usd(row.cost_microusd),
        "parent": row.parent or None,
        "parent_cost_usd": None if row.parent_microusd is None else usd(row.parent_microusd),
        "created_at": iso(row.created_ms),
        "updated_at": iso(row.updated_ms),
        "due_at": iso(row.due_ms) if row.due_ms else None,
        "seq": row.seq,
    }


def session_lines(rows: Sequence[SessionRow], width: int) -> list[Line]:
    """Return one line per session."""
    names = ("session", "key", "status", "last", "turns", "cost", "title")
    cells: list[list[Span | str]] = [[Span(name, "bold") for name in names]]
    for row in rows:
        cells.append([
            row.session, one_line(row.key, 24), status_of(row), local(row.updated_ms, "%m-%d %H:%M"),
            str(row.turns), money(row.cost_microusd), one_line(row.title, width),
        ])  # fmt: skip
    return table(cells, width, right=(4, 5), drop=(4, 5, 3, 1, 6))


# --- approvals ----------------------------------------------------------------------------------


def approval_row(row: Approval) -> dict[str, Any]:
    """Return an open approval for scripts."""
    return {
        "id": row.id,
        "session": row.session,
        "tool": row.tool,
        "arguments": _arguments(row.arguments),
        "asked_at": iso(row.asked_ms),
        "deadline": iso(row.deadline_ms) if row.deadline_ms else None,
        "source": row.source or None,
        "workspace": row.workspace or None,
        "cwd": row.cwd or None,
        "binary": row.binary or None,
        "programs": [{"path": each.path, "content": each.mark} for each in row.reach.programs],
        "files": list(row.reach.files),
        "hosts": list(row.reach.hosts),
        "is_masked": row.is_masked,
        "decided": row.decision or None,
    }


def _arguments(canonical: str) -> Any:
    try:
        return decode_untrusted(canonical)
    except msgspec.DecodeError:
        return canonical


def approval_lines(rows: list[Approval], width: int) -> Iterator[Line]:
    """Return each open approval with its call and the commands that decide it."""
    for row in rows:
        until = f", until {local(row.deadline_ms)}" if row.deadline_ms else ""
        yield [Span(row.id, "bold")]
        yield [Span(f"  {'asked':<12}{local(row.asked_ms)}{until}", "dim")]
        asked, _ = clipped_text(neutral(row.question or f"{row.tool}: {row.reason}"))
        yield from ([Span(f"  {line}", "yellow")] for line in asked.split("\n"))
        if row.options:
            yield [f"  one of: {neutral(', '.join(row.options))}"]
        if not row.question:
            yield from approval_call_lines(row)
            yield from lasting_lines(row)
        if row.decision:  # accepted, and read by nobody yet
            how = decided(row.decision, neutral(row.decided_by))
            yield [f"  {how}, {local(row.decided_ms)}; it counts when the session goes on:"]
        for what, command in _answers(row):
            yield [f"  {what:<11} ", Span(command, COMMAND)]
        yield [""]
    if any(clipped_call(row.arguments)[1] for row in rows):
        yield ["The hidden part is in ", Span("holdfast approvals --json", COMMAND)]


def grant_row(session: str, row: GrantRow) -> dict[str, Any]:
    """Return a grant for scripts."""
    return {
        "id": row.id,
        "session": session,
        "tool": row.tool,
        "rule": row.rule,
        "until": iso(row.until_ms),
    }


def grant_lines(rows: Sequence[tuple[str, GrantRow]], width: int) -> list[Line]:
    """Return one line per grant."""
    cells: list[list[Span | str]] = [[Span(name, "bold") for name in ("id", "until", "rule")]]
    for _, row in rows:
        cells.append([row.id, local(row.until_ms, "%m-%d %H:%M"), one_line(row.rule, width)])
    return table(cells, width)


def lasting_lines(row: Approval) -> Iterator[Line]:
    """Return which grant an approval may make, or why none, and which one has ended."""
    if row.lapsed is not None:
        ended = (
            f"ended {local(row.lapsed.until_ms)}"
            if row.lapsed.uses
            else "has been used as often as it may be"
        )
        yield [Span(f"  The grant {row.lapsed.id} covered this, and {ended}.", "yellow")]
    if row.offer is not None:
        yield [Span(f"  {'always':<12}", "dim"), Span(neutral(offer_told(row.offer)), EXACT)]


def question_lines(session: str, text: str) -> Iterator[Line]:
    """Return what a run asks before it goes on, with the command that answers it."""
    yield [Span(session, "bold")]
    asked, _ = clipped_text(neutral(text or f"Read it with `holdfast show {session}`."))
    yield from ([Span(f"  {line}", "yellow")] for line in asked.split("\n"))
    yield [f"  {'answer':<11} ", Span(f'holdfast resume {session} "TEXT"', COMMAND)]
    yield [""]


def _answers(row: Approval) -> list[tuple[str, str]]:
    """Return the commands that decide the approval, with a word for each."""
    if row.decision:
        return [("continue", f"holdfast resume {row.session}")]
    if row.question:
        return [("answer", f'holdfast approve {row.id} --note "TEXT"'), ("deny", f"holdfast deny {row.id}")]
    always = [("always", f"holdfast approve {row.id} --always")] if row.offer is not None else []
    return [
        ("approve", f"holdfast approve {row.id}"),
        *always,
        ("deny", f'holdfast deny {row.id} --note "WHY"'),
    ]


def approval_call_lines(row: Approval) -> Iterator[Line]:
    """Return everything that the approval covers: the call, its folder, its program and its tool."""
    call, _ = clipped_call(row.arguments)
    yield from framed(call)
    if row.is_masked:
        yield [Span(f"  {MASKED}: {_HIDDEN}", "yellow")]
    tool = f"{row.tool} ({row.source})" if row.source else ""
    shown = [
        ("in", row.cwd or row.workspace),
        ("begins with", row.binary),
        *(("runs", _said(each)) for each in row.reach.programs if each.path != row.binary),
        *(("names", path) for path in row.reach.files),
        *(("reaches", host) for host in row.reach.hosts),
        ("tool", tool),
    ]
    for name, value in shown:
        if value:
            yield [Span(f"  {name:<12}", "dim"), Span(neutral(value).replace("\n", "\\n"), EXACT)]


def _said(content: Content) -> str:
    """Return a program for people. Its content is compared; that of a large one only by its size and times."""
    return content.path if " " not in content.mark else f"{content.path} ({content.mark.partition(',')[0]})"


def clipped_call(arguments: str) -> tuple[str, int]:
    """Return the arguments of a call for people, cut in the middle, and how many characters are hidden."""
    return clipped_text(readable_call(arguments))


def clipped_text(text: str) -> tuple[str, int]:
    """Cut a long text in the middle. Return it and how many characters are hidden."""
    lines = text.split("\n")
    if len(text) <= SHOWN_CHARS and len(lines) <= SHOWN_LINES:
        return text, 0
    head = "\n".join(lines[: SHOWN_LINES // 2])[: SHOWN_CHARS // 2]
    tail = "\n".join(lines[-SHOWN_LINES // 2 :])[-SHOWN_CHARS // 2 :]
    hidden = len(text) - len(head) - len(tail)
    return f"{head}\n[... {counted(hidden, 'character')} hidden ...]\n{tail}", hidden


def readable_call(arguments: str) -> str:
    """Return JSON arguments as `name: value` lines that are safe to show. Line breaks in values are kept."""
    try:
        given = decode_untrusted(arguments or "{}")
    except msgspec.DecodeError:
        given = None
    if not isinstance(given, dict):
        return neutral(arguments)
    said = {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in given.items()
    }
    return "\n".join(neutral(f"{name}: {value}") for name, value in said.items())


def framed(text: str) -> Iterator[Line]:
    """Return the lines of a text, each after a bar."""
    for line in text.split("\n"):
        yield [Span(f"  {FRAME}", "yellow"), Span(line, EXACT)]
