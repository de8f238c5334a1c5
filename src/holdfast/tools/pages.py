"""Reads a text file one page at a time. It never has a whole file or a whole line."""

from __future__ import annotations

import os
from io import BufferedReader

from holdfast.protocol.counts import counted
from holdfast.tools.blocking import Refused
from holdfast.tools.workspace import Root, open_to_read

PAGE_LINES = 2_000
PAGE_BYTES = 20_000
"""Less than the limit of a result, so that a page is never clipped."""
COUNTED_BYTES = 256 << 20
"""How far after a page lines are counted."""

_CHUNK_BYTES = 1 << 20


def read_page(root: Root, path: str, offset: int, limit: int) -> str:
    """Return the lines from `offset` on, as they are in the file. If there are more, a last line in brackets says how
    many, and where to continue.

    Raises:
        Refused: the path is refused, the file is binary, or it has no such line.
        OSError: the file cannot be opened.
    """
    with open_to_read(root, path) as (fd, _), open(fd, "rb", closefd=False) as file:
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
    is_cut = False
    while line < offset + limit:
        # Never read a whole line: it may be as long as the file.
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
    """Continue to count newlines. Return False if there are too many bytes to count."""
    counted_bytes = 0
    while chunk := file.read(_CHUNK_BYTES):
        newlines, last_byte = newlines + chunk.count(b"\n"), chunk[-1:]
        counted_bytes += len(chunk)
        if counted_bytes > COUNTED_BYTES:
            return newlines, last_byte, False
    return newlines, last_byte, True
