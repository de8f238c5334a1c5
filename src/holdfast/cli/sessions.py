"""`holdfast sessions` and `holdfast approvals`: lists of sessions and of open approvals."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.cli.journal import reading
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import columns, say, say_json
from holdfast.config.paths import Home
from holdfast.protocol.rows import ApprovalRow, SessionRow, SessionStatus
from holdfast.runtime.driven import listed
from holdfast.runtime.unread import with_unread
from holdfast.views.lists import approval_lines, approval_row, session_lines, session_row

LIMIT_MAX = 100


def sessions(
    status: Annotated[
        SessionStatus | None, typer.Option("--status", help="Only sessions with this status.")
    ] = None,
    grep: Annotated[
        str,
        typer.Option("--grep", metavar="TEXT", help="Only sessions with this text in a title or message."),
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=LIMIT_MAX, help="The most sessions to list.")
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
        say(session_lines(rows, columns(sys.stdout)))
    else:
        say(
            [
                "No session matches."
                if status or grep
                else 'No sessions yet. Start one with `holdfast run "TASK"`.'
            ]
        )


async def _sessions(home: Home, status: str, grep: str, limit: int) -> Sequence[SessionRow]:
    async with reading(home) as store:
        return await listed(store, status, grep, limit)


def approvals(home: HomeFlag = None, is_json: JsonFlag = False) -> None:
    """List the calls and questions that wait for you, oldest first.

    \b
    holdfast approvals
    holdfast approve ID        or: holdfast deny ID --note "not on a Friday"
    """
    rows = asyncio.run(_approvals(home_of(home)))
    if is_json:
        for row in rows:
            say_json(approval_row(row))
    else:
        say(approval_lines(rows, columns(sys.stdout)) if rows else ["Nothing waits for you."])


async def _approvals(home: Home) -> list[ApprovalRow]:
    async with reading(home) as store:
        return await with_unread(store, await store.approvals())
