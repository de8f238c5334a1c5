"""Prints what file tools changed: `show --diff`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from holdfast.app import open_workshop, redactor_for
from holdfast.cli.isolate import copy_diffs, tell_lost, waiting_copy
from holdfast.cli.terminal import say, say_json, tell
from holdfast.config.load import load
from holdfast.config.paths import Home
from holdfast.protocol.ports import Store
from holdfast.runtime.differences import all_changes
from holdfast.runtime.undo import shelf_of
from holdfast.views.diffs import FileDiff, diff_lines, diff_row
from holdfast.views.edits import workspaces_of
from holdfast.views.stored import StoredSession


async def show_diff(home: Home, store: Store, session: StoredSession, *, is_json: bool) -> None:
    """Print all that file tools changed in a session; in a copy of the workspace, all that changed there. Secrets are
    masked, so the configuration must be readable: it names the variables with keys.
    """
    waits = await waiting_copy(home, store, session.row.workspace)
    if waits is not None:
        found = await copy_diffs(home, store, waits, workspaces_of(session.records))
        say_diffs(found, is_json=is_json)
        return
    tell_lost(home, session.row.workspace, session.row.session)
    config = load(home, None, {}, os.environ)
    workshop = open_workshop(home, store, config, os.environ)
    redact = redactor_for(config, home, os.environ, workspaces_of(session.records))
    shelf = await shelf_of(workshop, session.row.session)
    edits = await asyncio.to_thread(all_changes, shelf, session.records, redact)
    say_diffs(edits, is_json=is_json)


def say_diffs(found: Sequence[FileDiff], *, is_json: bool) -> None:
    """Print diffs, one object a line or one after the other."""
    if not found:
        tell("File tools changed no files.")
    if is_json:
        for each in found:
            say_json(diff_row(each))
    else:
        say(diff_lines(found))
