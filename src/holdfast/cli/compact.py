"""`holdfast compact` cuts the view of a session, or brings it back."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from holdfast.app import App, open_app
from holdfast.cli.options import HomeFlag, JsonFlag, SessionName, home_of
from holdfast.cli.reading import about_to_write, find_session
from holdfast.cli.sitting import sender
from holdfast.cli.terminal import say, say_json
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import load_only
from holdfast.config.paths import Home
from holdfast.errors import Conflict
from holdfast.protocol.commands import Compact
from holdfast.protocol.counts import counted
from holdfast.protocol.request import names_of
from holdfast.runtime.compact import Outcome, restore
from holdfast.runtime.compact import compact as compact_view
from holdfast.views.lines import COMMAND, Line, Span

_BAD_NEWS = 1


def compact(
    session: SessionName,
    is_undo: Annotated[
        bool,
        typer.Option("--undo", help="Bring back everything that compactions left out, if it still fits."),
    ] = False,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> int:
    """Shorten what the model sees of a session: the task, the last turns and a list of what was done stay.

    \b
    holdfast compact last
    holdfast compact cli:docs --undo

    The journal keeps everything. If a run is open, it is shortened before the next request. With --undo, 1 means that
    the whole conversation does not fit into the window of the model.
    """
    name, outcome = asyncio.run(_compact(home_of(home), session, is_undo=is_undo))
    if is_json:
        say_json({"session": name, **_row(outcome)})
    else:
        say(outcome_lines(name, outcome, is_undo=is_undo))
    return _BAD_NEWS if outcome.done == "too_large" else 0


async def _compact(home: Home, name: str, *, is_undo: bool) -> tuple[str, Outcome]:
    async with about_to_write(home) as store:
        session = await find_session(store, name)
        if is_undo:
            return session, await restore(store, SYSTEM_CLOCK, session, sender())
    async with open_app(load_only({}), home, offers=None) as app:
        return session, await shortened(app, session)


async def shortened(app: App, session: str) -> Outcome:
    """Compact the view of the session. If a process drives it, that one does, before its next request."""
    try:
        return await compact_view(app.store, app.clock, session, sender())
    except Conflict:
        await app.controller.decide_now(session, sender(), Compact())
        return Outcome("asked")


def _row(outcome: Outcome) -> dict[str, Any]:
    """Return what became of the view, for scripts."""
    view = outcome.view
    return {
        "status": outcome.done,
        "tokens_before": outcome.tokens_before,
        "tokens_after": outcome.tokens_after,
        "left_out": [list(each) for each in view.left_out] if view is not None else [],
        "kept_share": view.kept_share if view is not None else None,
    }


def outcome_lines(session: str, outcome: Outcome, *, is_undo: bool) -> list[Line]:
    """Return what became of the view, for people."""
    before, after = counted(outcome.tokens_before, "token"), counted(outcome.tokens_after, "token")
    match outcome.done:
        case "compacted":
            assert outcome.view is not None
            gone, undo = names_of(outcome.view.left_out), f"holdfast compact {session} --undo"
            return [
                [f"The model sees about {after} instead of {before}, without {gone}."],
                ["The journal keeps them. Bring them back with: ", Span(undo, COMMAND)],
            ]
        case "asked":
            return [["The open run shortens what the model sees before its next request."]]
        case "restored":
            return [[f"The model sees the whole conversation again: about {after} instead of {before}."]]
        case "too_large":
            return [
                [f"The whole conversation, about {after}, does not fit into the model's window."],
                ["Nothing was changed. See it all with: ", Span(f"holdfast show {session}", COMMAND)],
            ]
        case "nothing":
            return [["Nothing was left out." if is_undo else "There is nothing to leave out yet."]]
