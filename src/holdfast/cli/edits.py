"""Shows what each call of a file tool changed, right after it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.app import App, open_workshop
from holdfast.protocol.counts import counted
from holdfast.protocol.events import Record, Responded, ToolCallFinished, ToolCallStarted
from holdfast.protocol.messages import ToolCall, calls_of
from holdfast.protocol.rows import Approval
from holdfast.protocol.tools import Files
from holdfast.protocol.untrusted import decode_untrusted
from holdfast.runtime.differences import difference
from holdfast.tools.restoring import Shelf, content_at
from holdfast.views.diffs import FileDiff, diff_lines, file_diff
from holdfast.views.edits import Edit, Place, masked_texts
from holdfast.views.lines import COMMAND, Line, Span

_BUILT_IN = "builtin"
FOLDED_LINES = 40
"""The most lines of a diff that are shown with a call."""


class Edits:
    """The edits of a session while they happen."""

    def __init__(self, app: App, session: str) -> None:
        self._app, self._session = app, session
        self._copies: dict[str, ToolCall] = {}
        """The calls of this turn that contained what looks like a secret."""
        self._planned: dict[str, Sequence[Edit]] = {}
        """What each running call said that it would change."""

    async def lines(self, record: Record) -> list[Line]:
        """Return the diff of the call that the record ends; empty for other records."""
        match record.event:
            case Responded(parts=parts):
                self._copies = {call.call_id: call for call in calls_of(parts) if call.is_masked}
            case ToolCallStarted(call_id=call_id, expects=Files(changes=changes)) as started:
                masked = masked_texts(self._copies.get(call_id)) if started.is_masked else None
                self._planned[call_id] = [
                    Edit(record.seq, 0, "", each, masked=masked)
                    for each in changes
                    if each.before != each.after
                ]
            case ToolCallFinished(call_id=call_id, result=result):
                planned: Sequence[Edit] = self._planned.pop(call_id, ())
                if planned and result.status == "ok" and self._app.home is not None:
                    return self._folded(await asyncio.to_thread(self._diffs, planned))
        return []

    def _diffs(self, edits: Sequence[Edit]) -> list[FileDiff]:
        app = self._app
        assert app.home is not None
        images = open_workshop(app.home, app.store, app.config, os.environ).images
        shelf = Shelf(images, self._session, (self._session,))
        return [
            difference(shelf, each.change.path, (each.change.before, each.change.after), app.redact, [each])
            for each in edits
        ]

    def _folded(self, diffs: Sequence[FileDiff]) -> list[Line]:
        whole = Span(f"holdfast show {self._session} --diff", COMMAND)
        return folded(diff_lines(diffs), ": ", whole)


def folded(diff: Iterable[Line], *rest: Span | str) -> list[Line]:
    """Return a diff with at most so many lines that a screen has room for them. `rest`: where all of it is."""
    lines: list[Line] = [["    ", *line] for line in diff]
    if len(lines) <= FOLDED_LINES:
        return lines
    return [*lines[:FOLDED_LINES], [f"    … {counted(len(lines) - FOLDED_LINES, 'more line')}", *rest]]


def proposed(app: App, row: Approval) -> list[Line]:
    """Return the diff of the edit that an approval is about; empty if it is about something else."""
    given = decode_untrusted(row.arguments)
    if row.source == _BUILT_IN and isinstance(given, dict) and isinstance(text := given.get("patch"), str):
        return folded(_patch_lines(app.redact(text)))
    path = given.get("path") if isinstance(given, dict) else None
    if row.source != _BUILT_IN or not isinstance(path, str) or app.home is None:
        return []
    app.secret_files.look_now(row.workspace)
    workshop = open_workshop(app.home, app.store, app.config, os.environ)
    before = content_at(workshop.own, Place(row.workspace, path))
    after = _after(row.tool, given, before)
    return [] if after is None else folded(diff_lines([file_diff(path, before, after, app.redact)]))


def _patch_lines(text: str) -> Iterator[Line]:
    """Return a patch as the model wrote it."""
    yield from diff_lines([FileDiff("", "changed", text if text.endswith("\n") else f"{text}\n")])


def _after(tool: str, given: Mapping[str, Any], before: bytes | None) -> bytes | None:
    """Return the new content of the file; None if the call would fail or edits no file."""
    match tool, given:
        case "write_file", {"content": str(content)}:
            return content.encode()
        case "edit_file", {"old": str(old), "new": str(new)} if before is not None and old:
            is_clear = given.get("all") is True or before.count(old.encode()) == 1
            return before.replace(old.encode(), new.encode()) if is_clear else None
    return None
