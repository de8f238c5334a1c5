"""read_file, write_file and edit_file: paged reading, and writing that is whole or not at all.

A write goes to a temporary file beside its target, then takes its name in one step. A crash may leave the
temporary file; its writer's lock is gone with the writer, so every later write and every probe in that folder
removes it. Where paths lead belongs to `workspace`.
"""

from __future__ import annotations

import asyncio
import difflib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from typing import Any, TypeVar

from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.tools import FileChange, ToolSpec
from holdfast.tools.workspace import (
    MISSING,
    PathRefused,
    Place,
    look,
    open_regular,
    open_to_read,
    place,
    refuse_other_kinds,
    refuse_protected,
)

PAGE_LINES = 2_000
PAGE_BYTES = 20_000
"""Below a result's limit, so that a page is never clipped in its middle."""
EDIT_BYTES = 16 << 20
"""The largest file that edit_file takes: it must be held in memory."""
COUNTED_BYTES = 256 << 20
"""How far behind a page lines are counted."""

_CHUNK_BYTES = 1 << 20
_PREFIX, _SUFFIX = ".holdfast-", ".tmp"
_HINT_LINES = 5_000

_PATH = {"type": "string", "minLength": 1, "description": "Relative to the workspace."}


class ReadFile:
    """read_file: a page of a text file."""

    def __init__(self) -> None:
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
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """The page as it stands in the file, then a line in brackets when the file has more."""
        path, limit = arguments["path"], min(arguments.get("limit", PAGE_LINES), PAGE_LINES)
        offset = arguments.get("offset", 1)
        return await answer(path, lambda: _read_page(context.workspace, path, offset, limit))

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> FileChange | None:
        """Nothing changes."""
        return None


class WriteFile:
    """write_file: a file with exactly this content."""

    def __init__(self) -> None:
        self.spec = ToolSpec(
            name="write_file",
            description="Write a file, making folders as needed. Replaces a file that is there.",
            parameters=arguments_object(required=["path", "content"], path=_PATH, content={"type": "string"}),
            effect="write",
            on_interrupt="probe",
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Says what was written. The old file is whole until the new one is."""
        path, make = arguments["path"], _new_content(arguments)
        return await answer(path, lambda: _write(context.workspace, path, make, makes_folders=True))

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> FileChange | None:
        """The content's hash before and after; None when the path would be refused."""
        make = _new_content(arguments)
        return await in_thread(lambda: _plan(context.workspace, arguments["path"], make))


class EditFile:
    """edit_file: one text in a file replaced by another."""

    def __init__(self) -> None:
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
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Says how many places were replaced, or why none were."""
        path, make = arguments["path"], _edited_content(arguments)
        return await answer(path, lambda: _write(context.workspace, path, make, makes_folders=False))

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> FileChange | None:
        """The content's hash before and after; None when the edit would fail."""
        make = _edited_content(arguments)
        return await in_thread(lambda: _plan(context.workspace, arguments["path"], make))


class EditFailed(Exception):
    """The edit does not fit the file; the message is for the model."""


def probe(workspace: str, change: FileChange) -> Probed:
    """Whether an interrupted write happened: the file's content is the new one, the old one, or neither.

    Also removes what the interrupted writer may have left behind.
    """
    try:
        with place(workspace, change.path) as found:
            if found.folder_fd != MISSING:
                with _listable(found) as folder:
                    _sweep(folder)
            now = _content_hash(found)
    except (PathRefused, OSError):
        return Probed("unknown")
    if now == change.after:
        return Probed("yes")
    return Probed("no" if now == change.before else "unknown")


def arguments_object(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of an arguments object that takes these and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_T = TypeVar("_T")


async def in_thread(work: Callable[[], _T]) -> _T:
    """Do blocking work without stopping the loop. A cancellation is raised when the work is done, since a
    thread can't be stopped and nobody may be told that it was."""
    task = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        task.exception()  # looked at, so that nobody reports it as overlooked
        raise


async def attempt(path: str, work: Callable[[], _T]) -> _T | RawResult:
    """What blocking work on a path returns, or the result that tells why there is nothing."""
    try:
        return await in_thread(work)
    except (PathRefused, EditFailed) as refusal:
        return RawResult("error", str(refusal))
    except OSError as error:
        return RawResult("error", f"{path}: {error.strerror or error}.", detail=repr(error))


async def answer(path: str, work: Callable[[], str]) -> RawResult:
    """The text that blocking work on a path returns, as a result."""
    text = await attempt(path, work)
    return text if isinstance(text, RawResult) else RawResult("ok", text)


# --- reading ------------------------------------------------------------------------------------


def _read_page(workspace: str, path: str, offset: int, limit: int) -> str:
    with open_to_read(workspace, path) as (fd, _), open(fd, "rb", closefd=False) as file:
        if b"\0" in file.peek(8192)[:8192]:
            raise PathRefused(f"{path} is binary ({os.fstat(fd).st_size} bytes); only text can be read.")
        page, last, is_cut, newlines, last_byte = _page(file, offset, limit)
        newlines, last_byte, is_counted = _count_rest(file, newlines, last_byte)
    total = newlines + (last_byte not in (b"", b"\n"))
    if total == 0:
        return f"[{path} is empty]"
    if not page:
        raise PathRefused(f"{path} has {total} lines; there is no line {offset}.")
    text = page.decode(errors="replace")
    if offset == 1 and last == total and not is_cut:
        return text
    notes = [f"lines {offset}-{last} of {total if is_counted else f'more than {total}'}"]
    if is_cut:
        notes.append(f"line {last} is longer than a page and cut")
    if last < total:
        notes.append(f"go on with offset={last + 1}")
    newline = "" if text.endswith("\n") else "\n"
    return f"{text}{newline}[{'; '.join(notes)}]"


def _page(file: BufferedReader, offset: int, limit: int) -> tuple[bytes, int, bool, int, bytes]:
    """The bytes of a page, its last line, whether that is cut, and the newlines and last byte read so far."""
    page, line, last, last_byte = bytearray(), 1, 0, b""
    is_cut = False
    while line < offset + limit:
        # Never a whole line at once: a line may be as long as the file.
        piece = file.readline(PAGE_BYTES + 1)
        if not piece:
            break
        last_byte = piece[-1:]
        is_full = bool(page) and len(page) + len(piece) > PAGE_BYTES
        if line >= offset and not is_full:
            page += piece[:PAGE_BYTES]
            last, is_cut = line, len(piece) > PAGE_BYTES
        line += last_byte == b"\n"
        if is_full:
            break
    return bytes(page), last, is_cut, line - 1, last_byte


def _count_rest(file: BufferedReader, newlines: int, last_byte: bytes) -> tuple[int, bytes, bool]:
    """Go on counting newlines; False when there was too much to count."""
    counted_bytes = 0
    while chunk := file.read(_CHUNK_BYTES):
        newlines, last_byte = newlines + chunk.count(b"\n"), chunk[-1:]
        counted_bytes += len(chunk)
        if counted_bytes > COUNTED_BYTES:
            return newlines, last_byte, False
    return newlines, last_byte, True


# --- writing ------------------------------------------------------------------------------------

_Make = Callable[[str, Place], tuple[bytes, str]]
"""The new content of a file at a place, and what the model is told when it is written."""


def _new_content(arguments: dict[str, Any]) -> _Make:
    content: bytes = arguments["content"].encode()
    return lambda path, _: (content, f"Wrote {len(content)} bytes to {path}.")


def _edited_content(arguments: dict[str, Any]) -> _Make:
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


def _write(workspace: str, path: str, make: _Make, *, makes_folders: bool) -> str:
    with place(workspace, path, makes_folders=makes_folders) as found:
        refuse_protected(workspace, path, found)
        facts = look(found)
        if facts is not None:
            refuse_other_kinds(path, facts.st_mode)
            if facts.st_nlink > 1:
                raise PathRefused(
                    f"{path} has other names (hard links), maybe outside the workspace: it is not written. "
                    "Write to a new file instead, or remove this name first."
                )
        content, told = make(path, found)
        _replace(found, content, facts)
    return told


def _plan(workspace: str, path: str, make: _Make) -> FileChange | None:
    try:
        with place(workspace, path) as found:
            refuse_protected(workspace, path, found)
            content, _ = make(path, found)
            before = _content_hash(found)
            return FileChange(path=found.path, before=before, after=hashlib.sha256(content).hexdigest())
    except (PathRefused, EditFailed, OSError):
        return None


def _replace(found: Place, content: bytes, before: os.stat_result | None) -> None:
    """Give the content the name in one step: whoever looks sees the old file or the new one."""
    with _listable(found) as folder:
        with _temporary(folder) as (fd, name):
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if before is not None:
                os.fchmod(fd, before.st_mode & 0o7777)
                with suppress(PermissionError):
                    os.fchown(fd, before.st_uid, before.st_gid)
            os.fsync(fd)
            os.rename(name, found.name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)


@contextmanager
def _listable(found: Place) -> Iterator[int]:
    """The folder of a place, opened so that it can be listed and synced (the walk's descriptor can't)."""
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=found.folder_fd)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _temporary(folder: int) -> Iterator[tuple[int, str]]:
    """A new file that only we write, locked while we live; it is gone at the end unless it was renamed."""
    while True:
        name = f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            with suppress(OSError):  # a file system without locks: then nobody sweeps it either
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_named(fd, name, folder):  # swept before we had the lock
                continue
            try:
                yield fd, name
            finally:
                if _is_named(fd, name, folder):
                    os.unlink(name, dir_fd=folder)
            return
        finally:
            os.close(fd)


def _sweep(folder: int) -> None:
    """Remove temporary files in a folder whose writers are gone."""
    for name in os.listdir(folder):
        if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
            continue
        with suppress(OSError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(name, flags, dir_fd=folder)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_named(fd, name, folder):
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(fd)


def _is_named(fd: int, name: str, folder: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


# --- contents -----------------------------------------------------------------------------------


def _content_hash(found: Place) -> str:
    """SHA-256 in hex; empty when there is no file."""
    if look(found) is None:
        return ""
    digest = hashlib.sha256()
    with open_regular(found, found.path) as fd:
        while chunk := os.read(fd, _CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


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
