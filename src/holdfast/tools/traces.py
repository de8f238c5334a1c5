"""Keeps what commands in a sandbox left, until somebody hears of it; also of commands whose Holdfast was killed.

A command has a file in the home while it runs: what must be known to put aside what it made, and copies of what it
could change and must not. If the process dies, the next one that drives the session puts all of it right. What could
not be put back stays here until it can be. Without a home, nothing outlives the process.
"""

# Pathlib makes an object for each name.
# ruff: noqa: PTH208

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.locks import try_lock
from holdfast.policy.paths import is_inside
from holdfast.protocol.fence import Undone
from holdfast.tools.aside import NOT_YET, not_put_back, sentence
from holdfast.tools.blocking import Refused
from holdfast.tools.kept import put_back
from holdfast.tools.moved import Elsewhere, is_elsewhere
from holdfast.tools.trace import Trace, session_of
from holdfast.tools.turns import table_of

FOLDER = "aside"
_MOST_TOLD = 10
"""The most commands of one session of which something is said at once."""
STUCK = (
    "Nothing was run: an earlier command changed files that control other programs, and they could not be put back: "
    f"{{paths}}. {NOT_YET}"
)


class Traces:
    """The commands of a home that run, or of which something must be said or done.

    Args:
        home: The folder of the home; None without one.
    """

    def __init__(self, home: Path | None = None) -> None:
        self._folder = home / FOLDER if home is not None else None
        self._table = table_of(self._folder)
        self.looking, self.alone = self._table.looking, self._table.alone
        self._running: dict[str, Trace] = {}
        self._held: dict[str, int] = {}
        """Their files, which are locked: so other processes know that this one lives."""
        self._failed: set[str] = set()
        self._stuck: dict[str, Trace] = {}
        self._faulty: dict[str, Trace] = {}
        """What other processes left, and this one could not undo."""
        self._untold: dict[str, list[str]] = {}
        self._told: set[str] = set()
        """What was found of other processes. It goes when the record that tells of it is stored."""

    def begin(self, key: str, trace: Trace) -> None:
        """Keep it: the command with this key is about to start.

        Raises:
            OSError: it cannot be stored.
        """
        name = _name(key)
        self._keep(name, trace, is_running=True)
        self._running[name] = self._table.running[name] = trace
        self._table.enter(trace.writable[0])

    def beside(self, roots: Collection[str]) -> list[Trace]:
        """Return the commands that may have changed something in these folders and were not undone: those that run,
        of this process and of others, and those whose Holdfast was killed. The oldest comes first.
        """
        found = dict(self._table.running)
        for name in self._names():
            with suppress(OSError, ValueError):
                if name not in found and not (trace := self._read(name)).changed:
                    found[name] = trace
        return sorted((each for each in found.values() if meet(each.writable, roots)), key=_age)

    def fail(self, key: str) -> None:
        """It has ended, and could not be undone. Nothing begins beside it until it is."""
        self._failed.add(_name(key))

    def failed(self) -> list[Trace]:
        """Return the commands of this process that have ended and could not be undone."""
        return [self._running[name] for name in self._failed]

    def are_any(self) -> bool:
        """Return whether there are commands that run, or of which something must be said or done."""
        return bool(self._running or self._stuck or self._names())

    def note_fault(self, name: str, trace: Trace, error: Exception) -> None:
        """Keep what another process left, because an error kept it from being undone, or nobody knows where it is."""
        self._told.discard(name)
        fault = str(error) if isinstance(error, Elsewhere) else type(error).__name__
        self._faulty[name] = replace(trace, fault=fault)
        with suppress(OSError):
            self._keep(name, self._faulty[name])

    def faulty(self) -> dict[str, Trace]:
        """Return what other processes left, and nobody could undo because of an error, by their names."""
        stored = self._stored()
        found = {name: trace for name, trace in stored.items() if trace.fault}
        return {**found, **{name: trace for name, trace in self._faulty.items() if name in stored}}

    def is_running(self, key: str) -> bool:
        """Return whether it began and has not ended."""
        return _name(key) in self._running

    def end(self, key: str, undone: Undone, now: Trace | None = None) -> None:
        """Keep what is left to say and to do. The command has ended. `now`: its trace with paths as they are now."""
        trace = self._running.pop(_name(key))
        self._failed.discard(_name(key))
        if undone.changed:
            untold = self._untold.setdefault(_mark(session_of(key)), [])
            untold.append(sentence(undone, trace.writable[0]))
            del untold[:-_MOST_TOLD]
        self.finish(_name(key), now or trace, undone)

    def finish(self, name: str, trace: Trace, undone: Undone) -> None:
        """Keep only what is left of a command that has ended."""
        kept = trace.kept.only(undone.stuck) if trace.kept is not None and undone.stuck else None
        self._faulty.pop(name, None)
        rest = replace(
            trace,
            fault="",
            before={},
            gone=(),
            led=(),
            inodes=trace.inodes if undone.stuck else {},
            covered=(),
            changed=undone.changed,
            stuck=undone.stuck,
            kept=kept,
        )
        if (fd := self._held.pop(name, None)) is not None:
            os.close(fd)
        if (was := self._table.running.pop(name, None)) is not None:
            self._table.leave(was.writable[0])
        if undone.stuck:
            self._stuck[name] = rest
        if not undone.changed:
            self._drop(name)
            return
        try:
            self._keep(name, rest)
        except OSError:  # what the file has is more than what is left to do
            if not undone.stuck:
                self._drop(name)

    def taken(self, session: str) -> list[str]:
        """Return sentences about what was put aside of a session's commands, once."""
        if not (self._untold or self._told):  # it is asked after each attempt
            return []
        found = self._untold.pop(_mark(session), [])
        for name in self._names(session) if found else {*self._told}:
            if name.startswith(_mark(session)) and name not in self._running:
                self._told.discard(name)
                if name not in self._stuck and name not in self._faulty:
                    self._drop(name)
        return found

    def left(self, session: str) -> dict[str, Trace]:
        """Return what other processes left of a session's commands, which have all ended, by their names."""
        found: dict[str, Trace] = {}
        for name in self._names(session):
            if name in self._running or name in self._stuck:
                continue
            with suppress(OSError, ValueError):
                found[name] = self._read(name)
                self._told.add(name)
                continue
            self._drop(name)
        return found

    def abandoned(self) -> dict[str, Trace]:
        """Return what is left of commands of all sessions, whose processes no longer live, by their names."""
        found: dict[str, Trace] = {}
        for name in self._names():
            with suppress(OSError, ValueError):
                if name not in self._running and name not in self._stuck and self._is_abandoned(name):
                    found[name] = self._read(name)
        return found

    def told(self, name: str) -> None:
        """Somebody has heard of it."""
        self._drop(name)

    def _is_abandoned(self, name: str) -> bool:
        """Return whether the process that stored it no longer lives.

        Raises:
            OSError: there is nothing.
        """
        fd = os.open(self._path(name) or "", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return try_lock(fd) == "ours"
        finally:
            os.close(fd)

    def put_back_stuck(self, roots: Sequence[str]) -> None:
        """Put back what could not be put back before, of the commands that could change something in these folders,
        the workspace first.

        Raises:
            Refused: it still cannot be.
        """
        still = Undone()
        for name, trace in {**self._left_stuck(), **self._stuck}.items():
            if not meet(trace.writable, roots) or is_elsewhere(trace):
                continue
            undone = put_back(trace.kept) if trace.kept is not None else Undone()
            still = Undone(stuck=(*still.stuck, *undone.stuck), why=still.why or undone.why)
            if undone.stuck:
                continue
            if self._stuck.pop(name, None) is not None:
                self._drop(name)
            else:  # its session has not yet been told
                self._keep(name, replace(trace, stuck=(), kept=None))
        if still.stuck:
            raise Refused(STUCK.format(paths=not_put_back(still, roots[0])))

    def _left_stuck(self) -> dict[str, Trace]:
        """Return what other processes could not put back."""
        return {name: trace for name, trace in self._stored().items() if trace.stuck}

    def _stored(self) -> dict[str, Trace]:
        """Return what is stored and does not run in this process."""
        found: dict[str, Trace] = {}
        for name in self._names():
            with suppress(OSError, ValueError):
                if name not in self._running:
                    found[name] = self._read(name)
        return found

    def forget(self, session: str) -> None:
        """Remove what is kept of a session, which nobody drives. What a killed command changed is put back first."""
        for trace in self.left(session).values():
            if trace.kept is not None and not is_elsewhere(trace):
                put_back(trace.kept)
        for name in self._names(session):
            self._drop(name)

    def _path(self, name: str) -> Path | None:
        return self._folder / f"{name}.json" if self._folder is not None else None

    def _names(self, session: str = "") -> list[str]:
        """Return the names of what is stored of a session or of all, also of what was not stored to its end."""
        if self._folder is None:
            return []
        begin = f"{_mark(session)}-" if session else ""
        with suppress(OSError):
            return sorted(
                {name.rpartition(".")[0] for name in os.listdir(self._folder) if name.startswith(begin)}
            )
        return []

    def _read(self, name: str) -> Trace:
        """Read what is stored.

        Raises:
            OSError: there is nothing.
            ValueError: it is not what was stored.
        """
        path = self._path(name)
        if path is None:
            raise FileNotFoundError(name)
        return msgspec.convert(json.loads(path.read_bytes()), Trace)

    def _keep(self, name: str, trace: Trace, *, is_running: bool = False) -> None:
        path = self._path(name)
        if path is None:
            return
        path.parent.mkdir(mode=0o700, exist_ok=True)
        draft = path.with_suffix(".tmp")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            try_lock(fd)
            # Names of files need not be text, and only this encoder takes them.
            with open(fd, "w", encoding="ascii", closefd=False) as file:
                file.write(json.dumps(msgspec.to_builtins(trace)))
            draft.replace(path)
        except OSError:
            os.close(fd)
            with suppress(OSError):
                draft.unlink()
            raise
        if is_running:
            self._held[name] = fd
        else:
            os.close(fd)

    def _drop(self, name: str) -> None:
        path = self._path(name)
        if path is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)
                path.with_suffix(".tmp").unlink(missing_ok=True)


def meet(these: Iterable[str], those: Collection[str]) -> bool:
    """Return whether one of these folders lies in one of those, or the other way round."""
    return any(is_inside(one, other) or is_inside(other, one) for one in these for other in those)


def _age(trace: Trace) -> int:
    return trace.looked_ms


def _name(key: str) -> str:
    """Return the name of what is stored of a command."""
    return f"{_mark(session_of(key))}-{_mark(key)}"


def _mark(text: str) -> str:
    return sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
