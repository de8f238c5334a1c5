"""`run --isolate`, `holdfast accept` and `discard`: work in a copy of the workspace, and what becomes of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.app import App, open_workshop, redactor_for
from holdfast.cli.options import HomeFlag, JsonFlag, SessionName, home_of
from holdfast.cli.reading import about_to_write, find_session
from holdfast.cli.sitting import sender
from holdfast.cli.terminal import say, say_json, tell
from holdfast.config.load import load
from holdfast.config.paths import Home
from holdfast.errors import UsageError
from holdfast.protocol.counts import counted
from holdfast.protocol.ports import Store
from holdfast.protocol.settings import Settings
from holdfast.runtime import copies, isolate
from holdfast.runtime.copies import Copy
from holdfast.runtime.isolate import Accepted, Waiting, copy_for, differences, kind_of, shown_path, waiting
from holdfast.runtime.undo import Workshop
from holdfast.tools.aside import is_aside
from holdfast.views.diffs import FileDiff
from holdfast.views.lines import COMMAND, Line, Span, neutral

_REFUSED = 1
_NOTHING_DONE = " Nothing was done."
_SHOWN = 20
_STYLES = {"added": "green", "changed": "yellow", "deleted": "red"}

_ALLOW = "--allow"
AllowFlag = Annotated[
    list[str] | None,
    typer.Option(
        _ALLOW,
        metavar="FILE",
        help="Accept this file, which controls other programs or was put aside. Repeatable.",
    ),
]
SkipFlag = Annotated[
    list[str] | None,
    typer.Option("--skip", metavar="PATH", help="Leave this file or folder as it is. Repeatable."),
]


def accept(
    session: SessionName,
    allow: AllowFlag = None,
    skip: SkipFlag = None,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> int:
    """Take over what a session changed in its copy of the workspace: all files, or none.

    \b
    holdfast run "fix the failing test" --isolate
    holdfast show last --diff
    holdfast accept last
    holdfast accept last --skip notes/ --allow .github/workflows/ci.yml

    If a file of the workspace has changed since the copy was made, or may not be written, nothing is done and the
    exit code is 1. After --skip, the copy stays with what was left out. Commits of the copy become new branches,
    holdfast/SESSION/BRANCH. `holdfast undo` takes all back but these.
    """
    return asyncio.run(_accept(home_of(home), session, allow or (), skip or (), is_json=is_json))


def discard(session: SessionName, home: HomeFlag = None, is_json: JsonFlag = False) -> int:
    """Remove the copy in which a session worked, with everything that changed in it.

    \b
    holdfast discard last

    The workspace stays as it is. If the session continues, it gets a new copy. There is no way back.
    """
    return asyncio.run(_discard(home_of(home), session, is_json=is_json))


async def _accept(
    home: Home, name: str, allowed: Sequence[str], skipped: Sequence[str], *, is_json: bool
) -> int:
    async with about_to_write(home) as store:
        session = await find_session(store, name)
        workshop = _workshop(home, store)
        found = await isolate.accept(workshop, home.folder, session, sender(), allowed, skipped)
    if is_json:
        say_json(_row(found))
    else:
        say(accepted_lines(found))
    return _REFUSED if found.problems else 0


async def _discard(home: Home, name: str, *, is_json: bool) -> int:
    async with about_to_write(home) as store:
        session = await find_session(store, name)
        found = await isolate.discard(_workshop(home, store), home.folder, session, sender())
    if is_json:
        say_json({"session": session, "discarded": found.is_copy})
    elif found.is_copy:
        say(["The copy was removed, with everything that changed in it."])
    else:
        say([_NOTHING])
    return 0


_NOTHING = (
    "Nothing waits: the session has no copy now. It was accepted or discarded, or nothing was begun in it."
)


def _workshop(home: Home, store: Store) -> Workshop:
    return open_workshop(home, store, load(home, None, {}, os.environ), os.environ)


def _row(found: Accepted) -> dict[str, Any]:
    return {
        "session": found.session,
        "accepted": [each.path for each in found.done],
        "refused": [{"path": each.path, "reason": each.reason} for each in found.problems],
        "changed": list(found.changed),
        "skipped": list(found.skipped),
        "branches": list(found.branches),
    }


def accepted_lines(found: Accepted) -> Iterator[Line | str]:
    """Return what became of each file and branch, and what can be done now."""
    for each in found.done:
        change = "added" if not each.before else "changed" if each.after else "deleted"
        yield [Span(f"{change}  ", _STYLES[change]), neutral(each.path)]
    for branch in found.branches:
        yield [Span("branch  ", "green"), neutral(branch), ", with the commits of the copy"]
    for problem in found.problems:
        yield [Span("refused  ", "red"), neutral(problem.path), f": {neutral(problem.reason)}"]
    for path in found.skipped:
        why = f": it may have been put aside. Read it, then name it with {_ALLOW}." if is_aside(path) else ""
        yield [Span("left out  ", "yellow"), neutral(path), why]
    for path in found.changed:
        yield [Span("stays changed  ", "red"), neutral(path), ": it could not be changed back"]
    if found.problems:
        yield _after_problems(found)
        return
    if not found.done and not found.skipped and not found.branches:
        stays = "There was nothing to accept. The copy stays until you discard it:  "
        rest: list[Span | str] = [stays, _discarding(found.session)]
        yield rest if found.is_copy else _NOTHING
    if any(each.before != each.after for each in found.done):
        yield ["Take it back:  ", Span(f"holdfast undo {found.session}", COMMAND)]
    if any(each.before == each.after for each in found.done):
        yield "Changed permissions stay after an undo."
    if found.skipped:
        yield ["The copy stays with what was left out:  ", _discarding(found.session)]


def _after_problems(found: Accepted) -> str:
    if found.changed:
        way_back = f"holdfast undo {found.session}"
        return (
            f"When what failed is mended, complete it by accepting again, or take it back with `{way_back}`."
        )
    if found.branches:
        done = f"No {'other ' if found.done else ''}file was changed. The new branches stay."
    else:  # an `accept` that was cut off may have been completed before that
        done = "Nothing else was changed." if found.done else "Nothing was changed."
    return f"{done} Leave files out with --skip PATH, or change the workspace, and accept again."


def _discarding(session: str) -> Span:
    return Span(f"holdfast discard {session}", COMMAND)


# --- a run in a copy ----------------------------------------------------------------------------


async def copy_of_run(app: App, home: Home, recorded: Settings | None, workspace: Path) -> Copy:
    """Return the copy in which a run is to work: that of its session, or a new one.

    Args:
        app: The open app.
        home: The home.
        recorded: The settings of the session until now.
        workspace: The workspace of the user, without links.

    Raises:
        UsageError: the workspace cannot be copied, or is another one than that of the session.
    """
    was = recorded.tools.copy_of if recorded is not None else ""
    origin = str(workspace)
    if was and origin != was:
        raise UsageError(
            f"The session works in a copy of {was}, so -w cannot name another folder.",
            hint="Accept or discard the copy, and begin a new session.",
        )
    workshop = open_workshop(home, app.store, app.config, os.environ)
    found = await copy_for(workshop, home.folder, recorded, origin)
    for what in found.copied.left_out[:_SHOWN]:
        tell([Span("not copied  ", "dim"), neutral(what)])
    return found


async def waiting_copy(home: Home, store: Store, folder: str) -> Waiting | None:
    """Return what waits in a copy; None for another folder."""
    if copies.beside(home.folder) not in Path(folder).parents:
        return None
    return await waiting(_workshop(home, store), home.folder, folder)


def tell_lost(home: Home, folder: str, session: str) -> None:
    """Tell if the copy in which a session works is not where it was made."""
    if copies.is_lost(home.folder, folder):
        found = isolate.lost(folder, session)
        tell(found.message.removesuffix(_NOTHING_DONE))
        tell(found.hint)


async def copy_diffs(home: Home, store: Store, found: Waiting, workspaces: set[str]) -> Sequence[FileDiff]:
    """Return what changed in a copy, file by file. Secrets are masked."""
    config = load(home, None, {}, os.environ)
    redact = redactor_for(config, home, os.environ, workspaces | {found.copy.origin})
    workshop = open_workshop(home, store, config, os.environ)
    return await asyncio.to_thread(differences, workshop, found, redact)


async def tell_copy(home: Home, store: Store, folder: str, session: str, *, is_open: bool) -> None:
    """Tell what waits in the copy of a session, if it works in one. What cannot be found out changes no outcome.

    Args:
        home: The home.
        store: Its open store.
        folder: Where the session works.
        session: The session.
        is_open: Whether its run goes on.
    """
    try:
        found = await waiting_copy(home, store, folder)
    except UsageError as error:
        tell(neutral(error.message))
        tell(["The copy waits:  ", _discarding(session)])
        return
    for line in waiting_lines(session, found, is_open=is_open) if found is not None else ():
        tell(line)


def waiting_lines(session: str, found: Waiting, *, is_open: bool) -> Iterator[Line]:
    """Return which files changed in a copy, and the commands that decide about them.

    Args:
        session: The session that works in the copy.
        found: What waits in it.
        is_open: Whether its run goes on. Then nothing can be decided yet.
    """
    if not found.changes and not found.tips:
        if is_open:
            return
        yield ["  Nothing changed that `accept` would take over. Ignored files stay in the copy."]
        return
    origin = neutral(found.copy.origin)
    if found.changes:
        yield [f"  {counted(len(found.changes), 'file')} changed in a copy of {origin}:"]
    for each in found.changes[:_SHOWN]:
        kind = kind_of(each)
        shown = shown_path(each.path)
        yield [Span(f"    {kind:<8}", _STYLES[kind]), neutral(shown)]
    if len(found.changes) > _SHOWN:
        yield [Span(f"    ... {len(found.changes) - _SHOWN} more", "dim")]
    for tip in found.tips[:_SHOWN]:
        yield [
            f"  {counted(tip.count, 'commit')} for the new branch holdfast/{session}/{neutral(tip.branch)}"
        ]
    ways = (("see", "show {} --diff"), ("accept", "accept {}"), ("discard", "discard {}"))
    for what, command in ways[:1] if is_open else ways:
        yield [f"  {what + ':':<11}", Span(f"holdfast {command.format(session)}", COMMAND)]
    if is_open:
        yield ["  `accept` and `discard` wait for the end of the run."]
