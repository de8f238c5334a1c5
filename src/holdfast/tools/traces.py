"""Keeps what commands in a sandbox left, until somebody hears of it; also of commands whose Holdfast was killed.

A command has a file in the home while it runs: what must be known to put aside what it made. If the process dies, the
next one that drives the session does it. Without a home, nothing outlives the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.tools.aside import Place, sentence

FOLDER = "aside"
_MOST_TOLD = 10
"""The most commands of one session of which something is said at once."""


class Trace(msgspec.Struct, frozen=True):
    """What must be known to undo what a command made."""

    writable: tuple[str, ...]
    """What it may change, the workspace first."""
    beside: int
    """How many of these the settings name, at the end."""
    before: Mapping[str, Place]
    """What lay at the places with controlling names."""
    covered: tuple[str, ...]
    """Where a sandbox may leave an empty file."""
    changed: tuple[str, ...] = ()
    """What was put aside when it had ended, and nobody was told yet."""


class Traces:
    """The commands of a home that run, or of which something must be said.

    Args:
        home: The folder of the home; None without one.
    """

    def __init__(self, home: Path | None = None) -> None:
        self._folder = home / FOLDER if home is not None else None
        self._running: dict[str, Trace] = {}
        self._untold: dict[str, list[str]] = {}

    def begin(self, key: str, trace: Trace) -> None:
        """Keep it: the command with this key is about to start."""
        self._running[key] = trace
        self._keep(key, trace)

    def end(self, key: str, changed: tuple[str, ...]) -> None:
        """Tell what was put aside of a command. It has ended."""
        trace = self._running.pop(key, None)
        if changed and trace is not None:
            untold = self._untold.setdefault(_session(key), [])
            untold.append(sentence(changed, trace.writable[0]))
            del untold[:-_MOST_TOLD]
            self._keep(key, replace(trace, before={}, covered=(), changed=changed))
        else:
            self._drop(key)

    def taken(self, session: str) -> list[str]:
        """Return sentences about what was put aside of a session's commands, once."""
        found = self._untold.pop(session, [])
        if found and self._folder is not None:
            running = {self._path(key) for key in self._running}
            for path in self._paths(session):
                if path not in running:
                    path.unlink(missing_ok=True)
        return found

    def left(self, session: str) -> Iterator[Trace]:
        """Yield what other processes left of a session's commands, which have all ended, and forget it."""
        running = {self._path(key) for key in self._running}
        for path in self._paths(session):
            if path not in running:
                with suppress(OSError, msgspec.MsgspecError):
                    yield msgspec.json.decode(path.read_bytes(), type=Trace)
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path | None:
        name = f"{_mark(_session(key))}-{_mark(key)}.json"
        return self._folder / name if self._folder is not None else None

    def _paths(self, session: str) -> list[Path]:
        if self._folder is None or not self._folder.is_dir():
            return []
        return sorted(self._folder.glob(f"{_mark(session)}-*.json"))

    def _keep(self, key: str, trace: Trace) -> None:
        path = self._path(key)
        if path is None:
            return
        path.parent.mkdir(mode=0o700, exist_ok=True)
        draft = path.with_suffix(".tmp")
        draft.touch(0o600)
        draft.write_bytes(msgspec.json.encode(trace))
        draft.replace(path)

    def _drop(self, key: str) -> None:
        path = self._path(key)
        if path is not None:
            path.unlink(missing_ok=True)


def _session(key: str) -> str:
    return key.partition(":")[0]


def _mark(text: str) -> str:
    return sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
