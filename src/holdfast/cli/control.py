"""Commands that act on a session from any process: `pause`, `stop`, `approve`, `deny`.

If a process drives the session, it gets the command and we wait for the outcome. Otherwise the command is recorded by
a visit, and the session continues at the next `resume`. `ask` asks at the terminal.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Literal, NamedTuple

import typer

from holdfast.app import App, open_app
from holdfast.cli.options import HomeFlag, SessionName, home_of
from holdfast.cli.reading import about_to_write, find_session
from holdfast.cli.sitting import sender
from holdfast.cli.terminal import say
from holdfast.config.load import load, load_only
from holdfast.config.paths import Home
from holdfast.core.state import State, open_run
from holdfast.core.summary import status
from holdfast.errors import NoSuchSession, UsageError
from holdfast.protocol.commands import CommandBody, Decided, Pause, Resolve, Stop
from holdfast.protocol.rows import Approval
from holdfast.views.lines import COMMAND, Span, local, neutral
from holdfast.views.lists import approval_call_lines

_BAD_NEWS = 1
_DECIDED: Mapping[Decided, str] = {"approve": "approved", "deny": "denied", "answer": "answered"}

ApprovalName = Annotated[str, typer.Argument(metavar="ID", help="The id that `holdfast approvals` lists.")]
Note = Annotated[
    str, typer.Option("--note", metavar="TEXT", help="Words for the model, or the answer to a question.")
]


def pause(session: SessionName, home: HomeFlag = None) -> None:
    """Pause a session: what runs may finish, nothing new starts. `resume` continues it.

    \b
    holdfast pause last
    """
    ended = asyncio.run(_command(home_of(home), session, Pause()))
    _say_result(ended, f"{ended.state.session} is {_PAUSING.get(status(ended.state), status(ended.state))}.")


_PAUSING = {"open": "finishing what runs, then it pauses"}


def stop(session: SessionName, home: HomeFlag = None) -> None:
    """Stop a session's run and cancel what runs. `resume` starts another run.

    \b
    holdfast stop cli:docs
    """
    ended = asyncio.run(_command(home_of(home), session, Stop()))
    is_open = open_run(ended.state) is not None
    _say_result(ended, f"{ended.state.session} is {'stopping' if is_open else status(ended.state)}.")


class _Ended(NamedTuple):
    """How a command of this process ended."""

    state: State
    """The state after the command."""
    was_open: bool
    """Whether a run was open before the command."""


async def _command(home: Home, name: str, body: CommandBody) -> _Ended:
    """Send a command to a session. A broken configuration must not prevent it."""
    async with about_to_write(home) as store:
        session = await find_session(store, name)
    async with open_app(load_only({}), home, offers=None) as app:
        past = await app.controller.prospect(session)
        was_open = open_run(past.ahead) is not None
        if was_open or past.ahead is not past.now:  # also handles the commands that nobody has read
            await app.controller.decide_now(session, sender(), body)
        return _Ended(await app.controller.state(session), was_open)


def _say_result(ended: _Ended, how: str) -> None:
    if ended.was_open:
        say([how, ["Continue with: ", Span(f"holdfast resume {ended.state.session}", COMMAND)]])
    else:
        say([f"{ended.state.session} has no open run: it is {status(ended.state)}."])


# --- approvals ----------------------------------------------------------------------------------


def approve(
    approval: ApprovalName,
    note: Note = "",
    is_for_always: Annotated[
        bool, typer.Option("--always", help="Also approve all such calls of this session, for a while.")
    ] = False,
    home: HomeFlag = None,
) -> int:
    """Approve a call that waits for you, or answer a question with --note.

    \b
    holdfast approvals
    holdfast approve ID
    holdfast approve ID --always      the same command needs no approval for 12 hours
    """
    return asyncio.run(_decide(home_of(home), approval, "approve", note, makes_grant=is_for_always))


def deny(approval: ApprovalName, note: Note = "", home: HomeFlag = None) -> int:
    """Deny a call that waits for you. The note tells the model why.

    \b
    holdfast deny ID --note "not on a Friday"
    """
    return asyncio.run(_decide(home_of(home), approval, "deny", note))


async def _decide(
    home: Home, name: str, decision: Literal["approve", "deny"], note: str, *, makes_grant: bool = False
) -> int:
    async with _asked(home, name) as (app, row):
        if makes_grant and not row.decision:
            _check_offer(row)
        if row.question and decision == "approve" and not note.strip():
            hint = f'Answer it with `holdfast approve {row.id} --note "TEXT"`.'
            raise UsageError(f"{row.id} is a question: {neutral(row.question)}", hint=hint)
        is_ours = False
        if not row.decision:
            is_answer = bool(row.question) and decision == "approve"
            body = Resolve(row.id, "answer" if is_answer else decision, note, makes_grant)
            command_id = await app.controller.decide_now(row.session, sender(), body)
            row = await app.store.approval(row.id) or row
            records = await app.store.read(row.session)
            decided = (each.cause for each in records if each.type == "ApprovalResolved")
            is_ours = f"command {command_id}" in decided
        match row.decision:
            case "":
                raise UsageError(f"{row.id} cannot be decided: its session no longer waits for it.")
            case "expired":
                return _too_late("Expired", f" {local(row.decided_ms)}: nobody decided in time.")
            case "withdrawn":
                return _too_late("Withdrawn", f" {local(row.decided_ms)}: its run ended first.")
            case "approve" | "deny" | "answer" as decided_as if not is_ours:
                why = f": {neutral(row.note)}" if row.note else ""
                by = f" by {row.decided_by}, {local(row.decided_ms)}{why}."
                return _too_late(f"Already {_DECIDED[decided_as]}", by)
            case "approve" | "deny" | "answer" as decided_as:
                say([f"{_DECIDED[decided_as]}: {row.tool} in session {row.session}."])
                if not row.question:
                    say(approval_call_lines(row))
                if makes_grant:
                    await _say_grant(app, row)
                if not await app.controller.is_driven_elsewhere(row.session):
                    say(["A process that waits for it at a terminal continues. If none does, continue with:"])
                    say([["  ", Span(f"holdfast resume {row.session}", COMMAND)]])
                return 0


def _check_offer(row: Approval) -> None:
    """Refuse a grant that the question did not offer. Nothing is decided then.

    Raises:
        UsageError: no grant may cover the call.
    """
    if row.question:
        raise UsageError(f"{row.id} is a question, and --always is for calls. Nothing was decided.")
    if row.offer is None:
        why = neutral(row.no_offer) or "It was asked before grants existed."
        hint = f"Approve this one call with `holdfast approve {row.id}`."
        raise UsageError(f"No grant may cover this call. {why} Nothing was decided.", hint=hint)


async def _say_grant(app: App, row: Approval) -> None:
    session = await app.store.session(row.session)
    if session is not None and session.grants:
        grant = session.grants[-1]
        until = f"until {local(grant.until_ms)}"
        say(
            [
                f"granted: {neutral(grant.rule)} in this session, {until}.",
                ["Take it back with: ", Span(f"holdfast grants revoke {grant.id}", COMMAND)],
            ]
        )


def _too_late(how: str, when: str) -> int:
    say([[Span(how, "yellow"), when]])
    return _BAD_NEWS


@asynccontextmanager
async def _asked(home: Home, name: str) -> AsyncIterator[tuple[App, Approval]]:
    """Open the app and read the approval.

    Raises:
        NoSuchSession: There is no such approval.
    """
    async with about_to_write(home) as store:
        row = await store.approval(name)
    if row is None:
        raise NoSuchSession(
            f"There is no approval {name!r} in this home.", hint="`holdfast approvals` lists them."
        )
    async with open_app(load(home, None, {}, os.environ), home, offers=None) as app:
        yield app, row
