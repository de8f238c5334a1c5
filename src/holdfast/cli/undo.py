"""`holdfast undo` puts back the files that the last messages changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from holdfast.app import open_workshop, redactor_for
from holdfast.cli.options import HomeFlag, JsonFlag, SessionName, home_of
from holdfast.cli.reading import about_to_write, find_session
from holdfast.cli.sitting import sender
from holdfast.cli.terminal import say, say_json, tell
from holdfast.config.load import load
from holdfast.config.paths import Home
from holdfast.protocol.commands import Restoring
from holdfast.protocol.ports import Store
from holdfast.protocol.tools import FileRestore, KeptFile
from holdfast.runtime import copies
from holdfast.runtime.differences import changed_since
from holdfast.runtime.fold import readable
from holdfast.runtime.undo import Plan, Workshop, planned, put_back, shelf_of
from holdfast.views.diffs import FileDiff, diff_lines
from holdfast.views.edits import Edit, Look, Todo, redo_of, undo_of, workspaces_of
from holdfast.views.lines import Line, Span, neutral

MESSAGES_MAX = 10_000
_KEPT = 1


def undo(
    session: SessionName,
    count: Annotated[
        int,
        typer.Argument(metavar="[N]", min=1, max=MESSAGES_MAX, help="How many messages with edits to undo."),
    ] = 1,
    is_redo: Annotated[bool, typer.Option("--redo", help="Make the undone edits again.")] = False,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> int:
    """Put back the files that the last message with edits changed, or the last N.

    \b
    holdfast undo last --dry-run
    holdfast undo last
    holdfast undo cli:docs 3
    holdfast undo last --redo

    If something else has changed a file since, undo leaves that file alone and exits with 1. It undoes only edits of
    file tools, not what shell commands changed. What `accept` took over is undone whole. The model reads about the
    undo in its next turn.
    """
    why: Restoring = "redo" if is_redo else "undo"
    found = asyncio.run(_put_back(home_of(home), session, why, plan_of(why, count), is_dry=is_dry))
    if is_json:
        say_json({"session": found.session, **files_row(found)})
    else:
        say(files_lines(found, why, is_dry=is_dry))
        if not is_redo and not found.is_whole:
            tell("What shell commands changed is not undone.")
    return _KEPT if found.kept else 0


class Found(NamedTuple):
    """What became of the files of a session, or would become of them."""

    session: str
    done: Sequence[FileRestore]
    kept: Sequence[KeptFile]
    diffs: Sequence[FileDiff] = ()
    """What something else changed in the files that stay as they are."""
    is_whole: bool = False
    """It was accepted from a copy of the workspace, so what commands changed is in it."""


def plan_of(why: Restoring, count: int) -> Plan:
    """Return the plan that undoes, or makes again, the edits of the last messages."""

    def plan(edits: Sequence[Edit], look: Look) -> Todo:
        return (redo_of if why == "redo" else undo_of)(edits, count, look)

    return plan


async def _put_back(home: Home, name: str, why: Restoring, plan: Plan, *, is_dry: bool) -> Found:
    async with about_to_write(home) as store:
        return await put_files_back(home, store, await find_session(store, name), why, plan, is_dry=is_dry)


async def put_files_back(
    home: Home, store: Store, session: str, why: Restoring, plan: Plan, *, is_dry: bool = False
) -> Found:
    """Put the files of a session back, or only say what would be done. Raises what `runtime.undo.put_back` raises."""
    config = load(home, None, {}, os.environ)
    workshop = open_workshop(home, store, config, os.environ)
    if is_dry:
        todo = await planned(workshop, session, why, plan)
        found = Found(session, [each for each in todo.files if each.before != each.after], todo.kept)
    else:
        outcome = await put_back(workshop, session, sender(), why, plan)
        found = Found(session, outcome.done, outcome.kept)
    row = await store.session(session)
    folder = row.workspace if row is not None else ""
    is_copy = copies.beside(home.folder) in Path(folder).parents
    is_whole = is_copy and bool(found.done) and all(each.workspace != folder for each in found.done)
    return found._replace(is_whole=is_whole, diffs=await diffs_of(workshop, session, found.kept, home))


async def diffs_of(
    workshop: Workshop, session: str, kept: Sequence[KeptFile], home: Home
) -> Sequence[FileDiff]:
    """Return what something else changed in the files that were left as they are."""
    if not kept:
        return ()
    records = [readable(each) for each in await workshop.store.read(session)]
    config = load(home, None, {}, os.environ)
    redact = redactor_for(config, home, os.environ, workspaces_of(records))
    shelf = await shelf_of(workshop, session)
    return await asyncio.to_thread(changed_since, workshop, shelf, records, kept, redact)


def files_row(found: Found) -> dict[str, Any]:
    """Return what became of the files, for scripts."""
    kept = [{"path": each.path, "reason": each.reason} for each in found.kept]
    return {"restored": [each.path for each in found.done], "kept": kept}


def files_lines(found: Found, why: Restoring = "undo", *, is_dry: bool = False) -> Iterator[Line]:
    """Return what became of the files, for people."""
    put_back = "written again" if why == "redo" else "restored"
    for each in found.done:
        verb = put_back if each.after else "removed"
        yield [Span(f"would be {verb}  " if is_dry else f"{verb}  ", "green"), neutral(each.path)]
    for left in found.kept:
        yield [Span("left as it is  ", "yellow"), neutral(left.path), f": {neutral(left.reason)}"]
    yield from diff_lines(found.diffs)
    if not found.done and not found.kept:
        yield ["There is nothing to redo." if why == "redo" else "There is nothing to put back."]
