"""Shows what each call of a file tool changed, right after it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from holdfast.app import App, open_workshop
from holdfast.protocol.events import Record, ToolCallFinished, ToolCallStarted
from holdfast.protocol.tools import FileChange, Files
from holdfast.runtime.differences import difference
from holdfast.tools.restoring import Shelf
from holdfast.views.diffs import FileDiff, diff_lines
from holdfast.views.lines import COMMAND, Line, Span

FOLDED_LINES = 40
"""The most lines of a diff that are shown with a call."""


class Edits:
    """The edits of a session while they happen."""

    def __init__(self, app: App, session: str) -> None:
        self._app, self._session = app, session
        self._planned: dict[str, Sequence[FileChange]] = {}
        """What each running call said that it would change."""

    async def lines(self, record: Record) -> list[Line]:
        """Return the diff of the call that the record ends; empty for other records."""
        match record.event:
            case ToolCallStarted(call_id=call_id, expects=Files(changes=changes)):
                self._planned[call_id] = changes
            case ToolCallFinished(call_id=call_id, result=result):
                planned: Sequence[FileChange] = self._planned.pop(call_id, ())
                if planned and result.status == "ok" and self._app.home is not None:
                    return self._folded(await asyncio.to_thread(self._diffs, planned))
        return []

    def _diffs(self, changes: Sequence[FileChange]) -> list[FileDiff]:
        app = self._app
        assert app.home is not None
        images = open_workshop(app.home, app.store, app.config, os.environ).images
        shelf = Shelf(images, self._session, (self._session,))
        return [difference(shelf, each.path, each.before, each.after, app.redact) for each in changes]

    def _folded(self, diffs: Sequence[FileDiff]) -> list[Line]:
        lines = [["    ", *line] for line in diff_lines(diffs)]
        if len(lines) <= FOLDED_LINES:
            return [*lines]
        whole = Span(f"holdfast show {self._session} --diff", COMMAND)
        return [*lines[:FOLDED_LINES], [f"    … {len(lines) - FOLDED_LINES} more lines: ", whole]]
