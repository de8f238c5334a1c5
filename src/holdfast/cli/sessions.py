"""`holdfast sessions` and `holdfast approvals`: what there is in a home, and what waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.answer import call_lines, clipped_call
from holdfast.cli.journal import reading
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.tables import money
from holdfast.cli.terminal import Line, Span, columns, iso, local, one_line, say, say_json, table
from holdfast.cli.transcript import status_of
from holdfast.config.paths import Home
from holdfast.protocol.limits import usd
from holdfast.protocol.rows import ApprovalRow, SessionRow, SessionStatus
from holdfast.protocol.untrusted import decode_untrusted

LIMIT_MAX = 100


def sessions(
    status: Annotated[
        SessionStatus | None, typer.Option("--status", help="Only those with this status.")
    ] = None,
    grep: Annotated[
        str, typer.Option("--grep", metavar="TEXT", help="Only those whose title or messages hold the text.")
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=LIMIT_MAX, help="So many at the most.")
    ] = 20,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> None:
    """List sessions, newest first.

    \b
    holdfast sessions --status failed
    holdfast sessions --grep "connection refused" --limit 5
    """
    rows = asyncio.run(_sessions(home_of(home), status or "", grep, limit))
    if is_json:
        for row in rows:
            say_json(session_row(row))
    elif rows:
        say(_session_lines(rows, columns()))
    else:
        say(
            [
                "No session matches."
                if status or grep
                else 'No sessions yet. Begin with `holdfast run "TASK"`.'
            ]
        )


async def _sessions(home: Home, status: str, grep: str, limit: int) -> list[SessionRow]:
    async with reading(home) as store:
        return await store.sessions(status, grep, limit)


def session_row(row: SessionRow) -> dict[str, Any]:
    """A line of the list, for scripts."""
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
        "created_at": iso(row.created_ms),
        "updated_at": iso(row.updated_ms),
        "due_at": iso(row.due_ms) if row.due_ms else None,
        "seq": row.seq,
    }


def _session_lines(rows: list[SessionRow], width: int) -> list[Line]:
    names = ("session", "key", "status", "last", "turns", "cost", "title")
    cells: list[list[Span | str]] = [[Span(name, "bold") for name in names]]
    for row in rows:
        cells.append([
            row.session, one_line(row.key, 24), status_of(row), local(row.updated_ms, "%m-%d %H:%M"),
            str(row.turns), money(row.cost_microusd), one_line(row.title, max(width - 90, 24)),
        ])  # fmt: skip
    return table(cells, right=(4, 5))


def approvals(home: HomeFlag = None, is_json: JsonFlag = False) -> None:
    """List what waits for a person's decision, oldest first.

    \b
    holdfast approvals
    holdfast approve ID        or: holdfast deny ID --note "not on a Friday"
    """
    rows = asyncio.run(_approvals(home_of(home)))
    if is_json:
        for row in rows:
            say_json(approval_row(row))
    else:
        say(_approval_lines(rows, columns()) if rows else ["Nothing waits for a decision."])


async def _approvals(home: Home) -> list[ApprovalRow]:
    async with reading(home) as store:
        return await store.approvals()


def approval_row(row: ApprovalRow) -> dict[str, Any]:
    """An open approval, for scripts."""
    return {
        "id": row.id,
        "session": row.session,
        "tool": row.tool,
        "arguments": _arguments(row.arguments),
        "asked_at": iso(row.asked_ms),
        "deadline": iso(row.deadline_ms) if row.deadline_ms else None,
        "cwd": row.cwd or None,
        "binary": row.binary or None,
    }


def _arguments(canonical: str) -> Any:
    try:
        return decode_untrusted(canonical)
    except msgspec.DecodeError:
        return canonical


def _approval_lines(rows: list[ApprovalRow], width: int) -> Iterator[Line]:
    for row in rows:
        until = f", until {local(row.deadline_ms)}" if row.deadline_ms else ""
        yield [Span(row.id, "bold"), Span(f"  asked {local(row.asked_ms)}{until}", "dim")]
        asked = row.question or f"{row.tool}: {row.reason}"
        yield [Span(f"  {one_line(asked, width - 2)}", "yellow")]
        if row.options:
            yield [f"  one of: {one_line(', '.join(row.options), width - 10)}"]
        if not row.question:
            yield from call_lines(row)
        yield [""]
    yield [Span("holdfast approve ID", "bold"), "  or  ", Span('holdfast deny ID --note "..."', "bold")]
    if any(clipped_call(row.arguments)[1] for row in rows):
        yield ["What is hidden stands in ", Span("holdfast approvals --json", "bold"), "."]
