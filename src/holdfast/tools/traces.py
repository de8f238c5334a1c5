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
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.locks import is_named, try_lock
from holdfast.policy.paths import is_inside
from holdfast.protocol.fence import Undone
from holdfast.tools.aside import NOT_YET, not_put_back, sentence
from holdfast.tools.blocking import Refused
from holdfast.tools.moved import Elsewhere, is_elsewhere
from holdfast.tools.trace import Trace, session_of
from holdfast.tools.turns import table_of

FOLDER = "aside"
_MOST_TOLD = 10
"""The most commands of one session of which something is said at once."""
_ENDED = b"null"
"""What the file has in it of a command of which nothing is left, if it could not be removed."""
STUCK = (
    "Nothing was run: an earlier command changed files that control other programs, and they could not be put back: "
    f"{{paths}}. {NOT_YET}"
)
UNREADABLE = (
    "What an earlier command left cannot be read, so nobody knows what it changed: {path} ({why}). Until it can be "
    "read or is removed, no command runs. `holdfast doctor` says more."
)
_NOT_FORGOTTEN = (
    "Nothing was deleted: what a command of the session changed in {workspace} is not put right: {what}. It would be "
    "forgotten with the session."
)


class Traces:
    """The commands of a home that run, or of which something must be said or done.

    What is stored counts, and what is known here only where nothing could be stored: another process may have put
    right meanwhile what this one could not.

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
        self._own: set[str] = set()
        """The commands of this process that have ended, of which something is stored."""
        self._unstored: dict[str, Trace] = {}
        """What is left to do of those of which nothing could be stored. Their files stay locked."""
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

        Raises:
            Refused: some of them cannot be read.
        """
        found, (stored, _) = dict(self._table.running), self._readable()
        for name, trace in stored.items():
            if name not in found and name not in self._unstored and not trace.changed:
                found[name] = trace
        return sorted((each for each in found.values() if meet(each.writable, roots)), key=_age)

    def fail(self, key: str) -> None:
        """It has ended, and could not be undone. Nothing begins beside it until it is."""
        self._failed.add(_name(key))

    def failed(self) -> list[Trace]:
        """Return the commands of this process that have ended and could not be undone."""
        return [self._running[name] for name in self._failed]

    def are_any(self) -> bool:
        """Return whether there are commands that run, or of which something must be said or done.

        Raises:
            Refused: nobody can tell.
        """
        try:
            return bool(self._running or self._unstored or self._names())
        except OSError as error:
            raise _unreadable({str(self._folder): error.strerror or str(error)}) from error

    def note_fault(self, name: str, trace: Trace, error: Exception) -> None:
        """Keep what another process left, because an error kept it from being undone, or nobody knows where it is."""
        self._told.discard(name)
        reason = str(error) if isinstance(error, Elsewhere) else type(error).__name__
        self._faulty[name] = replace(
            trace, fault=(error.strerror or reason) if isinstance(error, OSError) else reason
        )
        with suppress(OSError):  # then only this process knows, and the next one finds the same
            self._keep(name, self._faulty[name])

    def faulty(self) -> dict[str, Trace]:
        """Return what other processes left, and nobody could undo because of an error, by their names."""
        stored, _ = self._stored()
        found = {name: trace for name, trace in stored.items() if trace.fault}
        return {**found, **{name: trace for name, trace in self._faulty.items() if name in stored}}

    def left_stuck(self) -> list[Trace]:
        """Return what is stored of commands that changed something which could not be put back yet."""
        return [trace for trace in self._stored()[0].values() if trace.stuck and not trace.fault]

    def pending(self) -> dict[str, Trace]:
        """Return what is left to do of commands that have ended, of any process, by their names.

        Raises:
            Refused: it cannot be read.
        """
        stored, _ = self._readable()
        return {
            **self.faulty(),
            **{name: each for name, each in stored.items() if each.stuck},
            **self._unstored,
        }

    def is_running(self, key: str) -> bool:
        """Return whether it began and has not ended."""
        return _name(key) in self._running

    def is_own(self, name: str) -> bool:
        """Return whether it was a command of this process."""
        return name in self._own

    def is_still_here(self, key: str) -> bool:
        """Return whether nobody else has undone a command of this process: another one may have taken over while this
        one was frozen.
        """
        path, fd = self._path(_name(key)), self._held.get(_name(key))
        if path is None or fd is None:
            return True
        try:
            return is_named(fd, path)
        except OSError:  # it is still there, but nobody can look
            return True

    def lose(self, key: str) -> None:
        """It was undone by another process."""
        self._running.pop(_name(key), None)
        self._failed.discard(_name(key))
        self._let_go(_name(key))

    def end(self, key: str, undone: Undone, rest: Trace) -> None:
        """Keep what is left to say and to do. The command has ended."""
        trace = self._running.pop(_name(key))
        self._failed.discard(_name(key))
        self._own.add(_name(key))
        if undone.changed:
            self.say(session_of(key), sentence(undone, trace.writable[0]))
        self.finish(_name(key), rest)

    def finish(self, name: str, rest: Trace) -> None:
        """Keep only what is left of a command that has ended."""
        self._faulty.pop(name, None)
        self._unstored.pop(name, None)
        is_kept = False
        if rest.changed or rest.since:
            with suppress(OSError):  # what cannot be stored is known here, as long as this process lives
                is_kept = self._keep(name, rest)
        if rest.stuck and not is_kept:
            self._unstored[name] = rest  # what is stored is more than what is left to do, so it stays locked
        elif not is_kept:
            self._drop(name)
        self._let_go(name)

    def _let_go(self, name: str) -> None:
        if name not in self._unstored and (fd := self._held.pop(name, None)) is not None:
            os.close(fd)
        if (was := self._table.running.pop(name, None)) is not None:
            self._table.leave(was.writable[0])

    def say(self, session: str, text: str) -> None:
        """Let a session hear something, with what else it hears of commands."""
        untold = self._untold.setdefault(_mark(session), [])
        untold.append(text)
        del untold[:-_MOST_TOLD]

    def taken(self, session: str) -> list[str]:
        """Return sentences about what was put aside of a session's commands, once."""
        if not (self._untold or self._told):  # it is asked after each attempt
            return []
        found = self._untold.pop(_mark(session), [])
        names: Iterable[str] = {*self._told}
        if found:
            with suppress(OSError):  # then it is said again when the session goes on
                names = self._names(session)
        for name in names:
            if name.startswith(_mark(session)) and name not in self._running:
                self._told.discard(name)
                self._drop_told(name)
        return found

    def drop_if_heard(self, session: str, name: str) -> None:
        """Forget a command of this process of which nothing more is to be said, if its session has heard the rest."""
        if _mark(session) not in self._untold:
            self._drop_told(name)

    def _drop_told(self, name: str) -> None:
        """Forget a command of which somebody has heard, unless something is left to do."""
        with suppress(OSError, ValueError):  # `unreadable` says what cannot be read
            trace = self._read(name)
            if trace.changed and not trace.stuck and not trace.fault:
                self.told(name)

    def left(self, session: str) -> dict[str, Trace]:
        """Return what other processes left of a session's commands, which have all ended, by their names."""
        stored, unreadable = self._stored(session)
        if not unreadable:
            self._drop_drafts(session, stored)
        found = {name: each for name, each in stored.items() if name not in self._own}
        self._told.update(found)
        return found

    def _drop_drafts(self, session: str, stored: Collection[str]) -> None:
        """Remove what was not stored to its end, because its process was killed."""
        with suppress(OSError):  # it is no trace, and does no harm
            for name in self._names(session):
                if name not in stored and name not in self._running:
                    self._drop(name)

    def abandoned(self) -> dict[str, Trace]:
        """Return what is left of commands of all sessions, whose processes no longer live, by their names."""
        stored, _ = self._stored()
        return {
            name: trace
            for name, trace in stored.items()
            if name not in self._own and self._is_abandoned(name)
        }

    def told(self, name: str) -> None:
        """Somebody has heard of it."""
        self._own.discard(name)
        self._drop(name)

    def _is_abandoned(self, name: str) -> bool:
        """Return whether the process that stored it no longer lives."""
        try:
            fd = os.open(self._path(name) or "", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # it is gone by now, or can no longer be read
            return False
        try:
            return try_lock(fd) == "ours"
        finally:
            os.close(fd)

    def unreadable(self) -> dict[str, str]:
        """Return what of the stored cannot be read, with the reason. Nobody knows what these commands changed."""
        return self._stored()[1]

    def _readable(self) -> tuple[dict[str, Trace], dict[str, str]]:
        """Return the same as `_stored`.

        Raises:
            Refused: something cannot be read.
        """
        stored, unreadable = self._stored()
        if unreadable:
            raise _unreadable(unreadable)
        return stored, unreadable

    def _stored(self, session: str = "") -> tuple[dict[str, Trace], dict[str, str]]:
        """Return what is stored of a session or of all, and does not run in this process; and the paths of what
        cannot be read, with the reason.
        """
        found, unreadable = dict[str, Trace](), dict[str, str]()
        try:
            names = self._names(session)
        except OSError as error:
            return {}, {str(self._folder): error.strerror or str(error)}
        for name in names:
            if name in self._running:
                continue
            try:
                found[name] = self._read(name)
            except FileNotFoundError:
                continue  # it is gone by now, or was not stored to its end, so its command did not begin
            except OSError as error:
                unreadable[str(self._path(name))] = error.strerror or str(error)
            except ValueError:
                unreadable[str(self._path(name))] = "it is not what was stored"
        return found, unreadable

    def forget(self, session: str) -> list[str]:
        """Remove what is kept of a session, which nobody drives. What its commands changed was put right. Return the
        workspaces that are elsewhere: what was changed there is forgotten.

        Raises:
            Refused: it was not.
        """
        stored, unreadable = self._stored(session)
        for path, why in unreadable.items():
            raise Refused(_NOT_FORGOTTEN.format(workspace="a folder", what=f"{path} cannot be read ({why})"))
        for trace in stored.values():
            if (trace.stuck or trace.fault) and not is_elsewhere(trace):
                workspace = trace.writable[0]
                what = (
                    not_put_back(Undone(stuck=trace.stuck, why=trace.why), workspace)
                    if trace.stuck
                    else trace.fault
                )
                raise Refused(_NOT_FORGOTTEN.format(workspace=workspace, what=what))
        for name in self._names(session):
            self._drop(name)
        return [trace.writable[0] for trace in stored.values() if trace.stuck or trace.fault]

    def _path(self, name: str) -> Path | None:
        return self._folder / f"{name}.json" if self._folder is not None else None

    def _names(self, session: str = "") -> list[str]:
        """Return the names of what is stored of a session or of all, also of what was not stored to its end.

        Raises:
            OSError: nobody can tell.
        """
        if self._folder is None:
            return []
        begin = f"{_mark(session)}-" if session else ""
        try:
            try:
                listed = os.listdir(self._folder)
            except PermissionError:  # a command may change the mode of what the user owns, wherever it lies
                self._folder.chmod(0o700)
                listed = os.listdir(self._folder)
        except (FileNotFoundError, NotADirectoryError):  # no command ever began
            return []
        return sorted({name.rpartition(".")[0] for name in listed if name.startswith(begin)})

    def _read(self, name: str) -> Trace:
        """Read what is stored.

        Raises:
            OSError: there is nothing, or it cannot be read.
            ValueError: it is not what was stored.
        """
        path = self._path(name)
        if path is None:
            raise FileNotFoundError(name)
        try:
            content = path.read_bytes()
        except PermissionError:
            path.parent.chmod(0o700)
            path.chmod(0o600)
            content = path.read_bytes()
        if content == _ENDED:
            raise FileNotFoundError(name)
        return msgspec.convert(json.loads(content), Trace)

    def _keep(self, name: str, trace: Trace, *, is_running: bool = False) -> bool:
        """Store it. Return whether there is a home. Of a command that begins, it outlives also a power cut.

        Raises:
            OSError: it could not be stored.
        """
        path = self._path(name)
        if path is None:
            return False
        path.parent.mkdir(mode=0o700, exist_ok=True)
        draft = path.with_suffix(".tmp")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            try_lock(fd)
            # Names of files need not be text, and only this encoder takes them.
            with open(fd, "w", encoding="ascii", closefd=False) as file:
                file.write(json.dumps(msgspec.to_builtins(trace)))
            if is_running:
                os.fsync(fd)
            draft.replace(path)
            if is_running:
                # Its name, too: it is in the journal of the file system before this one is through.
                os.fsync(fd)
        except OSError:
            os.close(fd)
            # Nobody takes it for a trace, and the next one with this name takes its place.
            with suppress(OSError):
                draft.unlink()
            if is_running:  # the command does not begin
                self._drop(name)
            raise
        if is_running:
            self._held[name] = fd
        else:
            os.close(fd)
        return True

    def _drop(self, name: str) -> None:
        path = self._path(name)
        if path is None:
            return
        try:
            path.unlink(missing_ok=True)
            path.with_suffix(".tmp").unlink(missing_ok=True)
        except OSError:
            # If not even that works, it is put right once more.
            with suppress(OSError), path.open("r+b") as file:
                file.write(_ENDED)
                file.truncate()


def _unreadable(paths: Mapping[str, str]) -> Refused:
    path, why = next(iter(paths.items()))
    return Refused(f"Nothing was run. {UNREADABLE.format(path=path, why=why)}")


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
