"""The events of putting files back. `events` has them all."""

from __future__ import annotations

import msgspec

from holdfast.protocol.commands import Restoring
from holdfast.protocol.tools import FileRestore, KeptFile


class FilesRestoring(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The intent to put files back. Until its outcome is recorded, the next request for the same completes it."""

    why: Restoring
    by: str
    messages: tuple[int, ...]
    """The records of the messages whose edits are taken back, or made again by a redo."""
    files: tuple[FileRestore, ...] = ()
    kept: tuple[KeptFile, ...] = ()
    """The files that stay as they are, as far as the intent knows."""


class FilesRestored(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What became of the files."""

    why: Restoring
    restored: tuple[str, ...] = ()
    kept: tuple[KeptFile, ...] = ()
    """The files that stayed as they were, with the reason."""
