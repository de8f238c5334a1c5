"""read_file, write_file and edit_file: their parameters and results, and how an edit changes a text.

`pages` reads pages, `writing` replaces files, and `workspace` resolves paths.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from holdfast.protocol.counts import counted
from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.tools import Expectation, ToolSpec
from holdfast.redact import begin_of
from holdfast.storage.images import Images
from holdfast.tools.blocking import Refused, answer, attempt, in_thread
from holdfast.tools.own import OwnPlaces
from holdfast.tools.pages import PAGE_LINES, Page, Pages
from holdfast.tools.readers import reader
from holdfast.tools.schema import arguments_object
from holdfast.tools.unplanned import Unplanned
from holdfast.tools.workspace import Place, Root, look, open_regular
from holdfast.tools.writing import Kept, Make, plan, probe, write

EDIT_BYTES = 16 << 20
"""The largest file for edit_file, which has the whole file in memory."""
_HINT_LINES = 5_000

_PATH = {"type": "string", "minLength": 1, "description": "Relative to the workspace."}


class ReadFile(Unplanned):
    """read_file: a page of a text file, or an image."""

    def __init__(self, own: OwnPlaces) -> None:
        self._own = own
        self._pages = Pages()
        self.spec = reader(
            name="read_file",
            description="Read a text file, one page of lines at a time. If there is more, the last line says "
            "how many lines there are and where to continue.",
            parameters=arguments_object(
                required=["path"],
                path=_PATH,
                offset={"type": "integer", "minimum": 1, "description": "First line, from 1."},
                limit={"type": "integer", "minimum": 1, "description": f"Lines, at most {PAGE_LINES}."},
            ),
            kinds={"path": "path"},
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Return the page as it is in the file. A line in brackets follows if there is more. An image is attached, if
        the model reads images."""
        path, limit = arguments["path"], min(arguments.get("limit", PAGE_LINES), PAGE_LINES)
        offset, root = arguments.get("offset", 1), Root(context.workspace, self._own)

        def read() -> Page:
            image = self._pages.look(root, path) if context.reads_images else None
            return image or self._pages.read(root, path, offset, limit, context.session)

        page = await attempt(path, read)
        if isinstance(page, RawResult):
            return page
        media = (page.image,) if page.image is not None else ()
        return RawResult("ok", page.text, is_known=page.is_known, media=media)


class _Writer:
    """What the tools that write one file have in common."""

    spec: ToolSpec
    makes_folders = False

    def __init__(self, own: OwnPlaces, images: Images | None = None) -> None:
        self._own = own
        self._images = images

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Return what was written, or why nothing was. The old file stays whole until the new one replaces it."""
        path, make, root = arguments["path"], self._content(arguments), Root(context.workspace, self._own)
        kept = Kept(self._images, context.session, context.expects) if self._images is not None else None
        return await answer(
            path, lambda: write(root, path, make, context.check, makes_folders=self.makes_folders, kept=kept)
        )

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> Expectation | None:
        """Return the hash of the content before and after; None if the write would fail."""
        make, root = self._content(arguments), Root(context.workspace, self._own)
        return await in_thread(lambda: plan(root, arguments["path"], make, self._images))

    async def probe(self, expectation: Expectation, context: CallContext) -> Probed:
        """Return whether the file has the new content. Remove what an interrupted writer left."""
        return await in_thread(lambda: probe(Root(context.workspace, self._own), expectation, self._images))

    def _content(self, arguments: dict[str, Any]) -> Make:
        raise NotImplementedError


class WriteFile(_Writer):
    """write_file: replaces a file or makes it."""

    makes_folders = True
    spec = ToolSpec(
        name="write_file",
        description="Write a file and make missing folders. Replaces an existing file.",
        parameters=arguments_object(required=["path", "content"], path=_PATH, content={"type": "string"}),
        effect="write",
        on_interrupt="probe",
        source="builtin",
        trust="data",
        kinds={"path": "path"},
    )

    def _content(self, arguments: dict[str, Any]) -> Make:
        content: bytes = arguments["content"].encode()
        return lambda path, _: (content, f"Wrote {counted(len(content), 'byte')} to {path}.")


class EditFile(_Writer):
    """edit_file: replaces a text in a file."""

    spec = ToolSpec(
        name="edit_file",
        description="Replace a text in a file. `old` must match exactly, including spaces and line ends, "
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

    def _content(self, arguments: dict[str, Any]) -> Make:
        return _edited_content(arguments)


class EditFailed(Refused):
    """The edit does not fit the file. The message is for the model."""


def _edited_content(arguments: dict[str, Any]) -> Make:
    old, new, is_all = arguments["old"], arguments["new"], arguments.get("all", False)

    def make(path: str, found: Place) -> tuple[bytes, str]:
        text = _text_to_edit(path, found)
        count = text.count(old)
        if old == new:
            raise EditFailed("`old` and `new` are the same. There is nothing to change.")
        if count == 0:
            raise EditFailed(f"`old` is not in {path}. {_nearest_line(text, old)}")
        if count > 1 and not is_all:
            lines = ", ".join(str(line) for line in _lines_of(text, old))
            raise EditFailed(
                f"`old` occurs {count} times in {path} (lines {lines}). Give more of the text around it, "
                "or set `all` to true."
            )
        places = "1 place" if count == 1 else f"{count} places"
        return text.replace(old, new).encode(), f"Replaced {places} in {path}."

    return make


def _text_to_edit(path: str, found: Place) -> str:
    if look(found) is None:
        raise EditFailed(f"{path} does not exist. Use write_file to make it.")
    with open_regular(found, path) as fd, open(fd, "rb", closefd=False) as file:
        content = file.read(EDIT_BYTES + 1)
    if len(content) > EDIT_BYTES:
        raise EditFailed(f"{path} is larger than {EDIT_BYTES >> 20} MiB and too large to edit.")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise EditFailed(f"{path} is not UTF-8 text and cannot be edited.") from None


def _nearest_line(text: str, old: str) -> str:
    """Return the place in the text that is most like the first distinctive line of `old`."""
    if "\r\n" in text and "\r\n" not in old and text.replace("\r\n", "\n").count(old):
        return "The lines of the file end in \\r\\n. Write them so."
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = [line.strip() for line in text.splitlines()[:_HINT_LINES]]
    nearest = difflib.get_close_matches(wanted[:200], [line[:200] for line in lines if line], n=1, cutoff=0.5)
    if not nearest:
        return "No line is like it. Read the file first."
    number = next(index for index, line in enumerate(lines, 1) if line[:200] == nearest[0])
    shown = begin_of(lines[number - 1], 200)
    return f"The nearest line is {number}: {shown!r}. Check spaces and line ends."


def _lines_of(text: str, old: str) -> Iterator[int]:
    """Return the line numbers of the first few occurrences."""
    position = text.find(old)
    for _ in range(8):
        if position < 0:
            return
        yield text.count("\n", 0, position) + 1
        position = text.find(old, position + len(old))
