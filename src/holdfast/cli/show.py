"""`holdfast show`: prints a view of a session."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from holdfast.cli.diffs import show_diff
from holdfast.cli.isolate import tell_copy, tell_lost
from holdfast.cli.options import HomeFlag, JsonFlag, SessionName, home_of
from holdfast.cli.reading import read_session, reading
from holdfast.cli.terminal import columns, say, say_json, tell
from holdfast.config.paths import Home
from holdfast.context.requests import attached, body_of, requests
from holdfast.errors import NoSuchSession, RecordErased, StorageCorrupt, UsageError
from holdfast.protocol.counts import counted
from holdfast.protocol.ports import Journals, Store
from holdfast.protocol.rows import OPEN_STATUSES
from holdfast.runtime.enclosing import contents_of
from holdfast.runtime.plain import PlainEvents
from holdfast.views.events_view import event_lines, event_row
from holdfast.views.lines import MASKED
from holdfast.views.plans import plan_in, plan_lines, plan_row
from holdfast.views.stored import StoredSession
from holdfast.views.story import runs_of, story
from holdfast.views.tables import call_lines, call_rows, cost_lines, cost_rows, request_lines, request_rows
from holdfast.views.timeline import timeline_lines, timeline_rows
from holdfast.views.transcript import overview, transcript_lines

_TABLES = {
    "--requests": (request_lines, request_rows),
    "--tools": (call_lines, call_rows),
    "--timeline": (timeline_lines, timeline_rows),
    "--cost": (cost_lines, cost_rows),
}
"""The views of a story: functions that return lines for people and rows for scripts."""


def show(  # noqa: PLR0913 -- each parameter is a flag of the command
    session: SessionName,
    is_events: Annotated[bool, typer.Option("--events", help="Every record of the journal.")] = False,
    is_requests: Annotated[bool, typer.Option("--requests", help="Every attempt of a model call.")] = False,
    request: Annotated[
        int | None,
        typer.Option("--request", metavar="N", min=1, help="The exact bytes of the N-th request."),
    ] = None,
    is_tools: Annotated[bool, typer.Option("--tools", help="Every tool call with its result.")] = False,
    is_timeline: Annotated[
        bool, typer.Option("--timeline", help="A timeline of turns, calls, repeats and cost.")
    ] = False,
    is_cost: Annotated[bool, typer.Option("--cost", help="Cost and tokens of each turn.")] = False,
    is_diff: Annotated[bool, typer.Option("--diff", help="All that file tools changed, as a diff.")] = False,
    is_plan: Annotated[bool, typer.Option("--plan", help="The plan of the task, step by step.")] = False,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> None:
    """Show what was said, done and paid in a session.

    \b
    holdfast show last
    holdfast show cli:demo --timeline
    holdfast show 01J8 --request 3 | jq .
    holdfast show last --diff
    """
    flags = {
        "--events": is_events,
        "--requests": is_requests,
        "--request": request is not None,
        "--tools": is_tools,
        "--timeline": is_timeline,
        "--cost": is_cost,
        "--diff": is_diff,
        "--plan": is_plan,
    }
    views = [flag for flag, is_given in flags.items() if is_given]
    if len(views) > 1:
        raise UsageError(f"{' and '.join(views)} cannot be combined.", hint="Choose one view.")
    asyncio.run(show_view(home_of(home), session, "".join(views), request or 0, is_json=is_json))


async def show_view(home: Home, name: str, view: str = "", number: int = 0, *, is_json: bool = False) -> None:
    """Print a view of a session; empty: the transcript. `number` is that of a request.

    Raises:
        NoSuchSession: There is no such session or request.
        StorageError: The journal cannot be read.
    """
    async with reading(home) as store:
        session = await read_session(store, name)
        if session.newer:
            newer = counted(session.newer, "record")
            tell(f"Only --events --json shows {newer} of a newer version of Holdfast.")
        if session.erased:
            tell(f"The content of {counted(session.erased, 'record')} was erased or lost.")
        match view:
            case "":
                if is_json:
                    say_json(overview(session))
                else:
                    say(transcript_lines(session, columns(sys.stdout)))
                    await _tell_copy(home, store, session)
            case "--events":
                await _show_events(store, session, is_json)
            case "--request":
                await _show_request(store, session, number)
            case "--diff":
                await show_diff(home, store, session, is_json=is_json)
            case "--plan":
                planned = plan_in(session.records)
                say_json(plan_row(planned)) if is_json else say(plan_lines(planned))
            case _:
                lines, rows = _TABLES[view]
                told = story(session.records)
                if is_json:
                    for row in rows(told):
                        say_json(row)
                else:
                    say(lines(told, columns(sys.stdout)))


async def _tell_copy(home: Home, store: Store, session: StoredSession) -> None:
    """Tell what waits in the copy of the workspace, if the session works in one."""
    folder, name = session.row.workspace, session.row.session
    tell_lost(home, folder, name)
    await tell_copy(home, store, folder, name, is_open=session.row.status in OPEN_STATUSES)


async def _show_events(store: Journals, session: StoredSession, is_json: bool) -> None:
    if not is_json:
        say(event_lines(session, columns(sys.stdout)))
        return
    runs = dict(zip((r.seq for r in session.records), runs_of(session.records), strict=True))
    records = {record.seq: record for record in session.records}
    events = PlainEvents(store, session.row.session, tell)
    run = 0
    for stored in session.stored:
        run, record = runs.get(stored.seq, run), records.get(stored.seq)
        body = await events.data(record) if record is not None else None
        say_json(event_row(stored, record, run, body))


async def _show_request(store: Journals, session: StoredSession, number: int) -> None:
    count = 0
    try:
        contents = await contents_of(store.blobs, attached(session.records))
        for sent in requests(session.records, contents):
            count += 1
            if sent.number == number:
                body = body_of(sent, await store.blobs.get(sent.started.request.base))
                if any(call.is_masked for call in story(session.records).calls):
                    tell(
                        f"Calls in it may be a {MASKED}: what looks like a secret was hidden from the model too."
                    )
                sys.stdout.buffer.write(body)
                sys.stdout.buffer.flush()
                return
    except StorageCorrupt:
        if session.erased:
            raise RecordErased(f"Request {number} cannot be shown: a part of it was erased.") from None
        raise
    raise NoSuchSession(
        f"There is no request {number}: {session.row.session} sent {count}.",
        hint=f"`holdfast show {session.row.session} --requests` lists them.",
    )
