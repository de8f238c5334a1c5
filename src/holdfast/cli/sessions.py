"""`holdfast sessions` and `holdfast approvals`: lists of sessions and of open approvals."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from holdfast.cli.copied import copy_lines, waiting_sessions
from holdfast.cli.options import HomeFlag, JsonFlag, home_of, since_ms
from holdfast.cli.reading import find_session, reading
from holdfast.cli.terminal import columns, say, say_json
from holdfast.config.paths import Home
from holdfast.protocol.rows import EVERY, Approval, SessionRow, SessionStatus, Sought
from holdfast.runtime.driven import listed
from holdfast.runtime.unread import Question, questions, with_unread
from holdfast.views.lines import COMMAND, Line, Span
from holdfast.views.lists import approval_lines, approval_row, question_lines, session_lines, session_row

LIMIT_MAX = 100


def sessions(  # noqa: PLR0913 -- each parameter is a flag of the command
    status: Annotated[
        SessionStatus | None, typer.Option("--status", help="Only sessions with this status.")
    ] = None,
    grep: Annotated[
        str,
        typer.Option("--grep", metavar="TEXT", help="Only sessions with this text in a title or message."),
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="12h", help="Only sessions with a record in that time.")
    ] = "",
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", metavar="DIR", help="Only sessions that work in this folder."),
    ] = None,
    before: Annotated[
        str, typer.Option("--before", metavar="ID", help="The next page: only sessions below this one.")
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
    holdfast sessions --since 12h --workspace .
    holdfast sessions --before ID              the next page: ID is the last one that was listed
    """
    folder = os.path.realpath(workspace) if workspace is not None else ""
    sought = Sought(status or "", grep, before, since_ms(since), folder)
    rows = asyncio.run(_sessions(home_of(home), sought, limit))
    waiting = waiting_sessions(home_of(home), rows)
    if is_json:
        for row in rows:
            say_json({**session_row(row), "copy_waits": row.session in waiting})
    elif rows:
        say(session_lines(rows, columns(sys.stdout)))
        say(copy_lines([row.session for row in rows if row.session in waiting]))
        if len(rows) == limit:
            given = {"--status": status, "--grep": grep, "--since": since, "--workspace": folder}
            flags = [word for flag, value in given.items() if value for word in (flag, value)]
            page = ["--limit", str(limit), "--before", rows[-1].session]
            say([["more:  ", Span(shlex.join(["holdfast", "sessions", *flags, *page]), COMMAND)]])
    else:
        say(
            [
                'No sessions yet. Start one with `holdfast run "TASK"`.'
                if sought == EVERY
                else "No session matches."
            ]
        )


async def _sessions(home: Home, sought: Sought, limit: int) -> Sequence[SessionRow]:
    async with reading(home) as store:
        if sought.before:
            sought = replace(sought, before=await find_session(store, sought.before))
        return await listed(store, sought, limit)


def approvals(home: HomeFlag = None, is_json: JsonFlag = False) -> None:
    """List the calls and questions that wait for you, oldest first.

    \b
    holdfast approvals
    holdfast approve ID        or: holdfast deny ID --note "not on a Friday"
    """
    rows, asked = asyncio.run(_approvals(home_of(home)))
    if is_json:
        for row in rows:
            say_json(approval_row(row))
    else:
        say(waiting_lines(rows, asked))


async def _approvals(home: Home) -> tuple[list[Approval], list[Question]]:
    async with reading(home) as store:
        return await with_unread(store, await store.approvals()), await questions(store)


def waiting_lines(rows: list[Approval], asked: Sequence[Question]) -> Iterator[Line]:
    """Return everything that waits for a person."""
    yield from approval_lines(rows, columns(sys.stdout))
    for each in asked:
        yield from question_lines(each.session, each.text)
    if not rows and not asked:
        yield ["Nothing waits for you."]
