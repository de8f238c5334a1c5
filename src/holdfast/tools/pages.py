"""Reads a text file one page at a time, and never has a whole file or a whole line; or an image as a whole."""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import suppress
from io import BufferedReader
from typing import NamedTuple

from holdfast.clock import SYSTEM_CLOCK, is_fresh
from holdfast.protocol.counts import counted
from holdfast.protocol.media import MEDIA_BYTES, is_whole, media_type
from holdfast.protocol.ports import Medium
from holdfast.redact import AROUND_CHARS, Redactor, ever_known, split_at
from holdfast.tools.blocking import Refused
from holdfast.tools.workspace import Root, open_to_read

PAGE_LINES = 2_000
PAGE_BYTES = 20_000
"""Less than the limit of a result, so that a page is never clipped."""
COUNTED_BYTES = 256 << 20
"""How far after a page lines are counted."""

KNOWN_PAGES = 64
"""How many pages are remembered, for all sessions of a process."""

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_HEAD_BYTES = 16
"""Enough to tell an image by."""
_CHUNK_BYTES = 1 << 20
_CHAR_BYTES = 4
"""The longest that one character is in UTF-8."""
_Version = tuple[int, int, int, int, int]


class Page(NamedTuple):
    """A page, and whether it was known."""

    text: str
    is_known: bool = False
    image: Medium | None = None


class Pages:
    """Reads pages, and remembers those that it read. Where a file is still the same version, it reads nothing."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, int, int], tuple[_Version, str]] = OrderedDict()
        """By session, path, first line and number of lines; those that were used last come last."""

    def look(self, root: Root, path: str) -> Page | None:
        """Return an image, and what the model reads beside it; None for another file. Raises what `read_page` raises,
        also for an image that no provider would take.
        """
        with open_to_read(root, path) as (fd, _), open(fd, "rb", closefd=False) as file:
            kind, size = media_type(file.peek(_HEAD_BYTES)[:_HEAD_BYTES]), os.fstat(fd).st_size
            if kind not in _IMAGES:
                return None
            if size > MEDIA_BYTES:
                raise Refused(
                    f"{path} is an image of {counted(size, 'byte')}. At most {MEDIA_BYTES:,} can be shown."
                )
            content = file.read(MEDIA_BYTES)
        if not is_whole(kind, content):
            raise Refused(f"{path} is an image without a whole header, or without an end.")
        return Page(f"[{kind}, {counted(len(content), 'byte')}: attached]", image=Medium(kind, content))

    def read(self, root: Root, path: str, offset: int, limit: int, session: str) -> Page:
        """Return a page. Raises what `read_page` raises, also for a known one: the path is judged each time."""
        with open_to_read(root, path) as (fd, found):
            looked_ms = SYSTEM_CLOCK.now_ms()
            version, key = _version(fd), (session, found.whole, offset, limit)
            known = self._known.get(key)
            if known is not None and known[0] == version:
                with suppress(KeyError):  # another thread may just have dropped it
                    self._known.move_to_end(key)
                return Page(known[1], is_known=True)
            text = read_page(fd, path, offset, limit)
            if not is_fresh(version[-1], looked_ms) and _version(fd) == version:
                self._known[key] = version, text
                while len(self._known) > KNOWN_PAGES:
                    with suppress(KeyError):
                        self._known.popitem(last=False)
            return Page(text)


def _version(fd: int) -> _Version:
    """Return what changes whenever somebody writes the file or puts another one in its place."""
    facts = os.fstat(fd)
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def read_page(fd: int, path: str, offset: int, limit: int) -> str:
    """Return the lines from `offset` on, as they are in the file. If there are more, a last line in brackets says how
    many, and where to continue.

    Raises:
        Refused: the file is binary, or it has no such line.
        OSError: the file cannot be read.
    """
    with open(fd, "rb", closefd=False) as file:
        if b"\0" in file.peek(8192)[:8192]:
            raise Refused(
                f"{path} is binary ({counted(os.fstat(fd).st_size, 'byte')}). Only text can be read."
            )
        page, last, is_cut, newlines, last_byte = _page(file, offset, limit)
        newlines, last_byte, is_counted = _count_rest(file, newlines, last_byte)
    total = newlines + (last_byte not in (b"", b"\n"))
    if total == 0:
        return f"[{path} is empty]"
    if not page:
        raise Refused(f"{path} has {counted(total, 'line')}. There is no line {offset}.")
    text = page.decode(errors="replace")
    if offset == 1 and last == total and not is_cut:
        return text
    notes = [f"lines {offset}-{last} of {total if is_counted else f'more than {total}'}"]
    if is_cut:
        notes.append(f"line {last} is longer than a page and was cut")
    if last < total:
        notes.append(f"continue with offset={last + 1}")
    newline = "" if text.endswith("\n") else "\n"
    return f"{text}{newline}[{'; '.join(notes)}]"


def _page(file: BufferedReader, offset: int, limit: int) -> tuple[bytes, int, bool, int, bytes]:
    """Return the bytes of a page, its last line, whether that line was cut, and the newlines and last byte so far."""
    page, line, last, last_byte = bytearray(), 1, 0, b""
    is_cut, redact = False, ever_known()
    more = max(AROUND_CHARS, _CHAR_BYTES * redact.longest_known)
    while line < offset + limit:
        # Never read a whole line: it may be as long as the file.
        piece = file.readline(PAGE_BYTES + more)
        if not piece:
            break
        last_byte = piece[-1:]
        is_full = bool(page) and len(page) + len(piece) > PAGE_BYTES
        if line >= offset and not is_full:
            last, is_cut = line, len(piece) > PAGE_BYTES
            page += _begin(piece, redact) if is_cut else piece
        line += last_byte == b"\n"
        if is_full:
            break
    return bytes(page), last, is_cut, line - 1, last_byte


def _begin(line: bytes, redact: Redactor) -> bytes:
    """Return the beginning of a long line, without a part of a secret: nobody would mask it."""
    before, after = (each.decode(errors="replace") for each in (line[:PAGE_BYTES], line[PAGE_BYTES:]))
    return split_at(redact, before + after, len(before))[0].encode()


def _count_rest(file: BufferedReader, newlines: int, last_byte: bytes) -> tuple[int, bytes, bool]:
    """Continue to count newlines. Return False if there are too many bytes to count."""
    counted_bytes = 0
    while chunk := file.read(_CHUNK_BYTES):
        newlines, last_byte = newlines + chunk.count(b"\n"), chunk[-1:]
        counted_bytes += len(chunk)
        if counted_bytes > COUNTED_BYTES:
            return newlines, last_byte, False
    return newlines, last_byte, True
