"""Acting on a session from any process: `pause`, `stop`, `approve`, `deny`.

Where somebody drives the session the command is handed over and seen settled; else its facts are recorded by a
visit, and the session goes on at the next `resume`. Being asked at the terminal stands in `answer`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Literal, NamedTuple

import typer

from holdfast.app import App, open_app
from holdfast.cli.journal import about_to_write, find_session
from holdfast.cli.options import HomeFlag, SessionName, home_of
from holdfast.cli.sitting import sender
from holdfast.cli.terminal import say
from holdfast.config.load import load, load_only
from holdfast.config.paths import Home
from holdfast.core.state import State, open_run
from holdfast.core.summary import status
from holdfast.errors import NoSuchSession, UsageError
from holdfast.protocol.commands import CommandBody, Pause, Resolve, Stop
from holdfast.protocol.rows import ApprovalRow
from holdfast.views.lines import COMMAND, Span, local, neutral
from holdfast.views.lists import approval_call_lines

_BAD_NEWS = 1
_DECIDED = {"approve": "approved", "deny": "denied", "answer": "answered"}

ApprovalName = Annotated[str, typer.Argument(metavar="ID", help="As `holdfast approvals` lists it.")]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Words for the model; answers a question.")]


def pause(session: SessionName, home: HomeFlag = None) -> None:
    """Let a session start nothing new; what runs may finish. `resume` goes on.

    \b
    holdfast pause last
    """
    stood = asyncio.run(_command(home_of(home), session, Pause()))
    _say_settled(stood, f"{stood.state.session} is {_STANDS.get(status(stood.state), status(stood.state))}.")


_STANDS = {"running": "finishing what runs, and pauses then"}


def stop(session: SessionName, home: HomeFlag = None) -> None:
    """End a session's run, cancelling what runs. `resume` opens another run.

    \b
    holdfast stop cli:docs
    """
    stood = asyncio.run(_command(home_of(home), session, Stop()))
    is_open = open_run(stood.state) is not None
    _say_settled(stood, f"{stood.state.session} is {'stopping' if is_open else status(stood.state)}.")


class _Stood(NamedTuple):
    state: State
    """After the command."""
    was_open: bool
    """Whether a run was open before it."""


async def _command(home: Home, name: str, body: CommandBody) -> _Stood:
    """Put a command before a session, whatever the configuration says today: a runaway must be stoppable."""
    async with about_to_write(home) as store:
        session = await find_session(store, name)
    async with open_app(load_only({}), home) as app:
        before = await app.controller.state(session)
        if open_run(before) is not None:
            await app.controller.decide_now(session, sender(), body)
        return _Stood(await app.controller.state(session), open_run(before) is not None)


def _say_settled(stood: _Stood, how: str) -> None:
    if stood.was_open:
        say([how, ["Continue with: ", Span(f"holdfast resume {stood.state.session}", COMMAND)]])
    else:
        say([f"{stood.state.session} has no open run: it is {status(stood.state)}."])


# --- approvals ----------------------------------------------------------------------------------


def approve(
    approval: ApprovalName,
    note: Note = "",
    is_for_always: Annotated[bool, typer.Option("--always", hidden=True)] = False,
    home: HomeFlag = None,
) -> int:
    """Allow a call that waits for a decision, or answer a question with --note.

    \b
    holdfast approvals
    holdfast approve ID
    """
    if is_for_always:
        raise UsageError(
            "--always (to allow it from now on) comes with a later version.", hint="Leave it out."
        )
    return asyncio.run(_decide(home_of(home), approval, "approve", note))


def deny(approval: ApprovalName, note: Note = "", home: HomeFlag = None) -> int:
    """Refuse a call that waits for a decision; the note tells the model why.

    \b
    holdfast deny ID --note "not on a Friday"
    """
    return asyncio.run(_decide(home_of(home), approval, "deny", note))


async def _decide(home: Home, name: str, decision: Literal["approve", "deny"], note: str) -> int:
    async with _asked(home, name) as (app, row):
        if row.question and decision == "approve" and not note.strip():
            hint = f'Answer it with `holdfast approve {row.id} --note "TEXT"`.'
            raise UsageError(f"It is a question: {neutral(row.question)}", hint=hint)
        if not row.decision:
            is_answer = bool(row.question) and decision == "approve"
            body = Resolve(row.id, "answer" if is_answer else decision, note)
            command_id = await app.controller.decide_now(row.session, sender(), body)
            row = await app.store.approval(row.id) or row
            records = await app.store.read(row.session)
            decided = (each.cause for each in records if each.type == "ApprovalResolved")
            if f"command {command_id}" in decided:
                say([f"{_DECIDED[row.decision]}: {row.tool} in session {row.session}."])
                if not row.question:
                    say(approval_call_lines(row))
                if not await app.controller.is_driven_elsewhere(row.session):
                    say(
                        [
                            "No process runs this session now. Unless somebody waits at its prompt, continue with:"
                        ]
                    )
                    say([["  ", Span(f"holdfast resume {row.session}", COMMAND)]])
                return 0
        if not row.decision:
            raise UsageError(f"{row.id} cannot be decided: its session does not wait for it.")
        word = _DECIDED.get(row.decision, row.decision)
        if row.decision == "expired":
            say([[Span("Expired", "yellow"), f" {local(row.decided_ms)}: nobody decided in time."]])
            return _BAD_NEWS
        why = f": {neutral(row.note)}" if row.note else ""
        say([[Span(f"Already {word}", "yellow"), f" by {row.decided_by}, {local(row.decided_ms)}{why}."]])
        return _BAD_NEWS


@asynccontextmanager
async def _asked(home: Home, name: str) -> AsyncIterator[tuple[App, ApprovalRow]]:
    """The rooms, and the approval of that name.

    Raises:
        NoSuchSession: there is none.
    """
    async with about_to_write(home) as store:
        row = await store.approval(name)
    if row is None:
        raise NoSuchSession(
            f"There is no approval {name!r} in this home.", hint="`holdfast approvals` lists them."
        )
    async with open_app(load(home, None, {}, os.environ), home) as app:
        yield app, row
