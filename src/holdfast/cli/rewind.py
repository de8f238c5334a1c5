"""`holdfast rewind` goes back to an earlier record."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from holdfast.app import open_workshop
from holdfast.cli.options import HomeFlag, JsonFlag, SessionName, home_of
from holdfast.cli.reading import about_to_write, find_session
from holdfast.cli.sitting import sender
from holdfast.cli.terminal import is_terminal, say, say_json, tell
from holdfast.cli.undo import Found, diffs_of, files_lines, files_row
from holdfast.config.load import load
from holdfast.config.paths import Home
from holdfast.runtime.rewind import planned_rewind
from holdfast.runtime.rewind import rewind as go_back
from holdfast.views.edits import Todo
from holdfast.views.lines import COMMAND, Span

_KEPT = 1


def rewind(
    session: SessionName,
    to: Annotated[int, typer.Option("--to", metavar="SEQ", min=0, help="The last record that stays.")],
    is_with_files: Annotated[bool, typer.Option("--files", help="Put files back too.")] = False,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> int:
    """Go back to a record. A branch from there takes over the session's name; the session itself keeps its id.

    \b
    holdfast show cli:docs --events
    holdfast rewind cli:docs --to 12 --dry-run --files
    holdfast rewind cli:docs --to 12 --files
    holdfast rewind cli:docs --to 0            before the first message

    --files also takes back what file tools did after the record, but not what shell commands did. If something else
    has changed a file since, rewind leaves that file alone and exits with 1.
    """
    parent, found = asyncio.run(
        _rewind(home_of(home), session, to, is_with_files=is_with_files, is_dry=is_dry)
    )
    if is_json:
        say_json({"session": found.session or None, "from": parent, **files_row(found)})
    else:
        say([found.session] if found.session else [])
        if is_with_files:
            say(files_lines(found, is_dry=is_dry))
            tell("What shell commands changed is not taken back.")
        if found.session and is_terminal():
            say([["  continue:  ", Span(f"holdfast resume {found.session}", COMMAND)]])
    return _KEPT if found.kept else 0


async def _rewind(home: Home, name: str, seq: int, *, is_with_files: bool, is_dry: bool) -> tuple[str, Found]:
    config = load(home, None, {}, os.environ)
    async with about_to_write(home) as store:
        parent = await find_session(store, name)
        workshop = open_workshop(home, store, config, os.environ)
        if is_dry:
            todo = await planned_rewind(workshop, parent, seq)
            todo = todo if is_with_files else Todo((), (), ())
            done = [each for each in todo.files if each.before != each.after]
            found = Found("", done, todo.kept)
        else:
            found = Found(*await go_back(workshop, parent, sender(), seq, with_files=is_with_files))
        return parent, found._replace(diffs=await diffs_of(workshop, parent, found.kept, home))
