"""The history of the prompt: the last messages of all chats of a home, for the Up key and Ctrl-R.

It is a convenience and no record. So it may be deleted at any time, and a home that cannot be written has none.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from holdfast.cli.pastes import Message, Pasted, Piece

HISTORY_FILE = "history"
ENTRIES_MAX = 1_000
ENTRY_MAX_CHARS = 32_000
"""A longer message is not kept."""
FILE_MAX_BYTES = 4_000_000

_Pieces = tuple[Piece, ...]


class Recall:
    """The history file of a home: one message per line, oldest first, redacted, private to its user."""

    def __init__(self, folder: Path, redact: Callable[[str], str]) -> None:
        self._path = folder / HISTORY_FILE
        self._redact = redact
        self._last: Message | None = None

    def entries(self) -> list[Message]:
        """Return the kept messages, oldest first."""
        try:
            with open(self._opened(os.O_RDONLY), "rb") as file:  # noqa: PTH123
                found = [entry for line in _lines(file.fileno()) if (entry := _entry(line)) is not None]
        except OSError:
            return []
        self._last = found[-1] if found else None
        return found

    def add(self, message: Message) -> None:
        """Keep a message, without its secrets. Nothing happens if the file cannot be written."""
        kept = self._redacted(message)
        if kept == self._last or len(kept.text) > ENTRY_MAX_CHARS:
            return
        self._last = kept
        line = msgspec.json.encode(kept.pieces)
        try:
            with open(self._opened(os.O_RDWR | os.O_CREAT | os.O_APPEND), "r+b", 0) as file:  # noqa: PTH123
                fcntl.flock(file, fcntl.LOCK_EX)  # chats of one home share it
                os.fchmod(file.fileno(), 0o600)
                lines = _lines(file.fileno())
                if len(lines) < ENTRIES_MAX and os.fstat(file.fileno()).st_size + len(line) < FILE_MAX_BYTES:
                    file.write(line + b"\n")
                else:
                    kept_lines = _last_lines([*lines, line])
                    file.truncate(0)
                    file.write(b"".join(each + b"\n" for each in kept_lines))
        except OSError:
            return

    def forget(self, messages: Iterable[str]) -> None:
        """Remove what was typed for these recorded messages, wherever it was typed.

        Raises:
            OSError: the file cannot be written.
        """
        told = [message.strip() for message in messages]
        try:
            fd = self._opened(os.O_RDWR)
        except FileNotFoundError:
            return
        with open(fd, "r+b", 0) as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_EX)
            lines = _lines(file.fileno())
            kept = [line for line in lines if (found := _entry(line)) is None or not _is_told(found, told)]
            if len(kept) < len(lines):
                file.truncate(0)
                file.write(b"".join(line + b"\n" for line in kept))
                os.fsync(file.fileno())

    def _opened(self, flags: int) -> int:
        return os.open(self._path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)

    def _redacted(self, message: Message) -> Message:
        """Mask each piece. A secret that is half typed and half pasted is found in the whole text."""
        pieces = tuple(
            Pasted(self._redact(each.pasted)) if isinstance(each, Pasted) else self._redact(each)
            for each in message.pieces
        )
        masked, whole = Message(pieces), self._redact(message.text)
        return masked if masked.text == whole else Message((Pasted(whole),))


def _lines(fd: int) -> list[bytes]:
    """Return the last lines of the file."""
    size = os.fstat(fd).st_size
    content = os.pread(fd, FILE_MAX_BYTES, max(size - FILE_MAX_BYTES, 0))
    lines = content.splitlines()
    return lines[-ENTRIES_MAX:] if size <= FILE_MAX_BYTES else lines[1:][-ENTRIES_MAX:]


def _last_lines(lines: list[bytes]) -> list[bytes]:
    """Return the last lines that fit into the file, with room for more, so that few messages rewrite it."""
    kept, used = 0, 0
    for line in reversed(lines[-ENTRIES_MAX:]):
        used += len(line) + 1
        if used > FILE_MAX_BYTES // 2:
            break
        kept += 1
    return lines[-kept:] if kept else []


def _is_told(entry: Message, messages: Sequence[str]) -> bool:
    """Return whether one of the messages came of this entry. What a command printed goes before the next message."""
    text = entry.text.strip()
    if text.startswith("!") and any(f"`{text[1:].strip()}`" in message for message in messages):
        return True
    # A paste is sent as it is, however it begins.
    sent = (text, text.removeprefix("/")) if text.startswith("//") else (text,)
    return any(message == each or message.endswith(f"\n\n{each}") for message in messages for each in sent)


def _entry(line: bytes) -> Message | None:
    """Return the message of a line; None for a line that was cut or changed."""
    try:
        return Message(msgspec.json.decode(line, type=_Pieces))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
