"""Reads the write-ahead log beside a database, without SQLite.

SQLite reads the log up to the first damaged frame, and silently ignores everything behind it. So it undoes a write
that a power cut broke off. A flipped bit looks the same, and every later commit is lost with it. What follows tells
the two apart: SQLite writes nothing behind a commit before that commit is on the disk.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_HEAD, _FRAME_HEAD = 32, 24
_INDEX_BYTES = 32 << 10
"""The least size of the index of a log that was in use."""
_MAGIC, _VERSION = 0x377F0682, 3007000
_ORDERS = {_MAGIC: "<", _MAGIC + 1: ">"}
PAGE_SIZES = {1 << power for power in range(9, 17)}
USUAL_PAGE_SIZE = 4096

Sums = tuple[int, int]


class Frame(NamedTuple):
    """A page as a commit wrote it."""

    head: bytes
    """The number of the page, and the size of the database where a commit ends with it."""
    salts: bytes
    sums: Sums
    """The checksums over this frame and all frames before it."""
    page: bytes

    @property
    def is_commit(self) -> bool:
        """Whether a commit ends with this frame."""
        return self.head[4:] != bytes(4)

    @property
    def summed(self) -> bytes:
        """The part of the frame that the checksums cover."""
        return self.head + self.page


class Log(NamedTuple):
    """What lies in a log."""

    salts: bytes
    """The mark of all that was written since the log began anew."""
    order: str
    """The order of the bytes in a word, for the checksums."""
    frames: tuple[Frame, ...]
    """The frames with this mark, and the frames between them, sound or not."""
    sound: int
    """How many of the frames SQLite reads, from the first one on."""

    @property
    def lost_commits(self) -> int:
        """How many commits on the disk are not read. The last one does not count: it may never have been there."""
        unread = [frame.is_commit for frame in self.frames[self.sound :]]
        return sum(unread[:-1])


def is_log_lost(database: Path) -> bool:
    """Return whether the index of a log exists without its log. A closing process would remove the index first."""
    index, log = (database.with_name(f"{database.name}-{ending}") for ending in ("shm", "wal"))
    try:
        is_in_use = index.stat().st_size >= _INDEX_BYTES
        return is_in_use and not log.exists() and index.exists()  # still: others may close it meanwhile
    except FileNotFoundError:
        return False


def read_log(database: Path) -> Log | None:
    """Return the log of the database; None if it is missing or empty."""
    try:
        content = database.with_name(f"{database.name}-wal").read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return None
    if len(content) <= _HEAD:
        return None
    magic, _, size = struct.unpack(">3I", content[:12])
    order = _ORDERS.get(magic, "<")
    if size not in PAGE_SIZES:
        size = USUAL_PAGE_SIZE
    last: Sums = struct.unpack(">2I", content[24:_HEAD])
    is_sound = magic in _ORDERS and _sums(content[:24], (0, 0), order) == last
    lying = list(_frames(content, size))
    salts = content[16:24]
    if lying and not is_sound and _sums(lying[0].summed, last, order) == lying[0].sums:
        salts = lying[0].salts  # the log's own head was changed, and is that of these frames all the same
    ends_at = max((at for at, frame in enumerate(lying, 1) if frame.salts == salts), default=0)
    sound = 0
    for at, frame in enumerate(
        lying[:ends_at], 1
    ):  # behind them lies what was there before the log began anew
        is_sound = is_sound and frame.salts == salts and _sums(frame.summed, last, order) == frame.sums
        sound = at if is_sound else sound
        last = frame.sums
        if not is_sound:
            break
    return Log(salts, order, tuple(lying[:ends_at]), sound)


def _frames(content: bytes, size: int) -> Iterator[Frame]:
    for at in range(_HEAD, len(content) - _FRAME_HEAD - size + 1, _FRAME_HEAD + size):
        body = at + _FRAME_HEAD
        sums = struct.unpack(">2I", content[at + 16 : body])
        yield Frame(content[at : at + 8], content[at + 8 : at + 16], sums, content[body : body + size])


def mended(log: Log) -> bytes:
    """Return a log of all these frames that SQLite reads to the end."""
    size = len(log.frames[0].page) if log.frames else USUAL_PAGE_SIZE
    head = struct.pack(">4I", _MAGIC, _VERSION, size, 0) + log.salts
    sums = _sums(head, (0, 0), "<")
    chunks = [head, struct.pack(">2I", *sums)]
    for frame in log.frames:
        sums = _sums(frame.summed, sums, "<")
        chunks += [frame.head, log.salts, struct.pack(">2I", *sums), frame.page]
    return b"".join(chunks)


def _sums(data: bytes, before: Sums, order: str) -> Sums:
    """Return the checksums that SQLite computes for a log."""
    first, second = before
    words: Sequence[int] = struct.unpack(f"{order}{len(data) // 4}I", data)
    for odd, even in zip(words[::2], words[1::2], strict=True):
        first = (first + odd + second) & 0xFFFFFFFF
        second = (second + even + first) & 0xFFFFFFFF
    return first, second
