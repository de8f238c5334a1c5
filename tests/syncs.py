"""What is made durable, in order: every `fsync` of this process, which really happens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest


class Sync(NamedTuple):
    """A file or folder that was synced, and what was there at that moment."""

    path: Path
    size_bytes: int
    names: frozenset[str]
    """The names in the folder that was synced; for a file, the names beside it."""


def record_syncs(monkeypatch: pytest.MonkeyPatch) -> list[Sync]:
    """The syncs from now on."""
    syncs: list[Sync] = []
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        folder = path if path.is_dir() else path.parent
        syncs.append(Sync(path, os.fstat(descriptor).st_size, frozenset(os.listdir(folder))))  # noqa: PTH208
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return syncs
