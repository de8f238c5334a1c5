"""Remembers which project files are trusted: one small record in the home for each file, with its path and hash.

Trust is for a path and a content: a file that was moved, linked or changed is not trusted. `load` decides what
trust allows. A record that cannot be read counts as no trust.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.config.files import Unreadable, read_file
from holdfast.config.paths import Home

_FOLDER = "trust"
_RECORD_MAX_BYTES = 64 * 1024


class _Trusted(msgspec.Struct, frozen=True):
    path: str
    sha256: str


def is_trusted(home: Home, file: Path, sha256: str) -> bool:
    """Return whether the file was trusted with a content of that hash."""
    try:
        content = read_file(_record(home, file), _RECORD_MAX_BYTES)
        return msgspec.json.decode(content, type=_Trusted) == _Trusted(_place(file), sha256)
    except (Unreadable, msgspec.DecodeError, UnicodeDecodeError):
        return False


def trust(home: Home, file: Path, sha256: str) -> None:
    """Trust the file with a content of that hash, and no other.

    Raises:
        OSError: the home is not writable.
    """
    record = _record(home, file)
    draft = record.with_name(f"{record.name}.{secrets.token_hex(8)}")
    content = msgspec.json.encode(_Trusted(_place(file), sha256))
    try:
        home.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as written:  # noqa: PTH123 - the rights are what matters
            written.write(content)
            written.flush()
            os.fsync(descriptor)
        draft.replace(record)
    finally:
        with suppress(OSError):
            draft.unlink()


def _record(home: Home, file: Path) -> Path:
    name = hashlib.sha256(os.fsencode(_place(file))).hexdigest()
    return home.folder / _FOLDER / f"{name}.json"


def _place(file: Path) -> str:
    """Return the path of the file. A link counts as its own file: its target was trusted for another folder."""
    return str(file.parent.resolve() / file.name)
