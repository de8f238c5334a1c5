"""read_file, write_file and edit_file: what each takes, and what an edit makes of a text.

Reading in pages is in `pages`, replacing a file in `writing`, where a path leads in `workspace`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.tools import Expectation, ToolSpec
from holdfast.tools.blocking import Refused, answer, in_thread
from holdfast.tools.own import OwnPlaces
from holdfast.tools.pages import PAGE_LINES, read_page
from holdfast.tools.schema import arguments_object
from holdfast.tools.unplanned import Unplanned
from holdfast.tools.workspace import Place, Root, look, open_regular
from holdfast.tools.writing import Make, plan, probe, write

EDIT_BYTES = 16 << 20
"""The largest file that edit_file takes: it must be held in memory."""
_HINT_LINES = 5_000

_PATH = {"type": "string", "minLength": 1, "description": "Relative to the workspace."}


class ReadFile(Unplanned):
    """read_file: a page of a text file."""

    def __init__(self, own: OwnPlaces) -> None:
        self._own = own
        self.spec = ToolSpec(
            name="read_file",
            description="Read a text file, a page of lines at a time. When there is more, the last line says "
            "how many lines there are and where to go on.",
            parameters=arguments_object(
                required=["path"],
                path=_PATH,
                offset={"type": "integer", "minimum": 1, "description": "First line, from 1."},
                limit={"type": "integer", "minimum": 1, "description": f"Lines, at most {PAGE_LINES}."},
            ),
            effect="read",
            on_interrupt="rerun",
            source="builtin",
            trust="data",
            kinds={"path": "path"},
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """The page as it stands in the file, then a line in brackets when the file has more."""
        path, limit = arguments["path"], min(arguments.get("limit", PAGE_LINES), PAGE_LINES)
        offset = arguments.get("offset", 1)
        return await answer(path, lambda: read_page(Root(context.workspace, self._own), path, offset, limit))


class WriteFile:
    """write_file: a file with exactly this content."""

    def __init__(self, own: OwnPlaces) -> None:
        self._own = own
        self.spec = ToolSpec(
            name="write_file",
            description="Write a file, making folders as needed. Replaces a file that is there.",
            parameters=arguments_object(required=["path", "content"], path=_PATH, content={"type": "string"}),
            effect="write",
            on_interrupt="probe",
            source="builtin",
            trust="data",
            kinds={"path": "path"},
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Says what was written. The old file is whole until the new one is."""
        path, make = arguments["path"], _new_content(arguments)
        root = Root(context.workspace, self._own)
        return await answer(path, lambda: write(root, path, make, context.check, makes_folders=True))

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> Expectation | None:
        """The content's hash before and after; None when the path would be refused."""
        make = _new_content(arguments)
        return await in_thread(lambda: plan(Root(context.workspace, self._own), arguments["path"], make))

    async def probe(self, expectation: Expectation, context: CallContext) -> Probed:
        """Whether the file has the new content. What an interrupted writer left behind is cleared away."""
        return await in_thread(lambda: probe(Root(context.workspace, self._own), expectation))


class EditFile:
    """edit_file: one text in a file replaced by another."""

    def __init__(self, own: OwnPlaces) -> None:
        self._own = own
        self.spec = ToolSpec(
            name="edit_file",
            description="Replace a text in a file. `old` must match exactly, blanks and line ends included, "
            "and occur once, unless `all` is true.",
            parameters=arguments_object(
                required=["path", "old", "new"],
                path=_PATH,
                old={"type": "string", "minLength": 1},
                new={"type": "string"},
                all={"type": "boolean", "description": "Replace every occurrence."},
            ),
            effect="write",
            on_interrupt="probe",
            source="builtin",
            trust="data",
            kinds={"path": "path"},
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Says how many places were replaced, or why none were."""
        path, make = arguments["path"], _edited_content(arguments)
        root = Root(context.workspace, self._own)
        return await answer(path, lambda: write(root, path, make, context.check, makes_folders=False))

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> Expectation | None:
        """The content's hash before and after; None when the edit would fail."""
        make = _edited_content(arguments)
        return await in_thread(lambda: plan(Root(context.workspace, self._own), arguments["path"], make))

    async def probe(self, expectation: Expectation, context: CallContext) -> Probed:
        """Whether the file has the new content. What an interrupted writer left behind is cleared away."""
        return await in_thread(lambda: probe(Root(context.workspace, self._own), expectation))


class EditFailed(Refused):
    """The edit does not fit the file; the message is for the model."""


def _new_content(arguments: dict[str, Any]) -> Make:
    content: bytes = arguments["content"].encode()
    return lambda path, _: (content, f"Wrote {len(content)} bytes to {path}.")


def _edited_content(arguments: dict[str, Any]) -> Make:
    old, new, is_all = arguments["old"], arguments["new"], arguments.get("all", False)

    def make(path: str, found: Place) -> tuple[bytes, str]:
        text = _text_to_edit(path, found)
        count = text.count(old)
        if old == new:
            raise EditFailed("`old` and `new` are the same: there is nothing to change.")
        if count == 0:
            raise EditFailed(f"`old` is not in {path}. {_nearest_line(text, old)}")
        if count > 1 and not is_all:
            lines = ", ".join(str(line) for line in _lines_of(text, old))
            raise EditFailed(
                f"`old` occurs {count} times in {path} (lines {lines}): give more of the text around it, "
                "or set `all` to true."
            )
        places = "1 place" if count == 1 else f"{count} places"
        return text.replace(old, new).encode(), f"Replaced {places} in {path}."

    return make


def _text_to_edit(path: str, found: Place) -> str:
    if look(found) is None:
        raise EditFailed(f"{path} does not exist; write_file makes it.")
    with open_regular(found, path) as fd, open(fd, "rb", closefd=False) as file:
        content = file.read(EDIT_BYTES + 1)
    if len(content) > EDIT_BYTES:
        raise EditFailed(f"{path} is larger than {EDIT_BYTES >> 20} MiB: too large to edit.")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise EditFailed(f"{path} is not UTF-8 text: it cannot be edited.") from None


def _nearest_line(text: str, old: str) -> str:
    """Where the text comes nearest to the first telling line of `old`."""
    if "\r\n" in text and "\r\n" not in old and text.replace("\r\n", "\n").count(old):
        return "The file's lines end in \\r\\n: write them so."
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = [line.strip() for line in text.splitlines()[:_HINT_LINES]]
    nearest = difflib.get_close_matches(wanted[:200], [line[:200] for line in lines if line], n=1, cutoff=0.5)
    if not nearest:
        return "Nothing in it is like it: read the file first."
    number = next(index for index, line in enumerate(lines, 1) if line[:200] == nearest[0])
    return f"The nearest line is {number}: {nearest[0]!r}. Mind blanks and line ends."


def _lines_of(text: str, old: str) -> Iterator[int]:
    """The lines in which the first few occurrences begin."""
    position = text.find(old)
    for _ in range(8):
        if position < 0:
            return
        yield text.count("\n", 0, position) + 1
        position = text.find(old, position + len(old))
