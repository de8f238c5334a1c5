"""Runs the program that `[notify]` names: the event as JSON on its standard input.

It runs once for each event. A mark on the disk is made right before it starts: a process that finds the mark of an
event that is not over does not run it again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import Lapsed
from holdfast.policy.paths import is_within
from holdfast.protocol.fence import Launch
from holdfast.protocol.notify import NotificationDue, Notified, key_of
from holdfast.protocol.ports import Check
from holdfast.redact import Redactor
from holdfast.sandbox.process import Ended, Processes
from holdfast.sandbox.system import search_path
from holdfast.sandbox.unnamed import unnamed_file

LIMIT_S = 10.0
"""How long it may take."""
MOST_BYTES = 64 * 1024
"""The most that it may print. Nobody reads it, unless it fails."""
MARKS = "notices"
_KEPT_MS = 30 * 86_400_000
_SAID_CHARS = 300
_NAMES = ("PATH", "HOME", "LANG", "TZ", "TERM")
_IN_PLACES = "lies where commands can change it, and is run outside of any sandbox"
_NOWHERE = "is in no folder of PATH, but for those where commands can change it"
LOST = "the process that ran it ended before it was over"


class ConfiguredNotifier:
    """Notifies by a program; implements `ports.Notifier`.

    Args:
        command: The program and its arguments.
        folder: The folder of the home; None if it is in memory.
        home_flag: What the next commands need to find the home; empty if they find it by themselves.
        redact: Masks what the program says.
        environ: The environment, of which the program sees little.
        writable: Where commands may write beside the workspace.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path | None,
        home_flag: str,
        redact: Redactor,
        environ: Mapping[str, str],
        writable: Sequence[str] = (),
    ) -> None:
        self._command = tuple(command)
        self._writable = tuple(writable)
        self._folder = folder / MARKS if folder is not None else None
        self._home_flag = home_flag
        self._redact = redact
        self._environ = environ
        self._processes = Processes()
        self._begun: set[str] = set()
        self._is_tidy = False

    async def notify(self, session: str, workspace: str, due: NotificationDue, check: Check) -> Notified:
        """Run the program once.

        Raises:
            Lapsed: the check failed, and it was not started.
        """
        check()
        name = sha256(f"{session}:{due.key}".encode()).hexdigest()[:32]
        if not self._claims(name):
            return Notified("unknown", LOST)
        try:
            return await self._run(session, workspace, due, check)
        except Lapsed:  # it was not started, so the next driver may run it
            self._give_back(name)
            raise

    async def _run(self, session: str, workspace: str, due: NotificationDue, check: Check) -> Notified:
        next_ = [f"{each}{self._home_flag}" for each in due.next]
        said = {"event": due.about, "session": session, "workspace": workspace, "id": f"{session}-{due.key}"}
        said |= {"status": due.status, "reason": due.reason, "message": due.message}
        places = [*map(os.path.realpath, (workspace, *map(os.path.expanduser, self._writable)))]
        searched = search_path(self._environ.get("PATH", os.defpath), places)
        program = (
            self._command[0] if "/" in self._command[0] else shutil.which(self._command[0], path=searched)
        )
        if program is None:
            return Notified("failed", f"{self._command[0]} {_NOWHERE}")
        if within := _in_places((program, *self._command), places):
            return Notified("failed", f"{within} {_IN_PLACES}")
        with unnamed_file() as stdin:
            stdin.write(msgspec.json.encode({**said, "approvals": due.approvals, "next": next_}))
            stdin.seek(0)
            plain = {name: self._environ[name] for name in _NAMES if name in self._environ}
            plain |= {"PATH": searched}
            launch = Launch(
                argv=(program, *self._command[1:]),
                cwd=str(Path.home()),  # what a command leaves in the workspace must not decide what is run
                key=key_of(session, due.key),
                env=plain
                | {"HOLDFAST_EVENT": due.about, "HOLDFAST_SESSION": session, "HOLDFAST_NEXT": next_[0]},
                timeout_s=LIMIT_S,
                idle_s=LIMIT_S,
                check=check,
                stdin_fd=stdin.fileno(),
                flood_bytes=MOST_BYTES,
            )
            try:
                problem = _problem(await self._processes.run(launch, lambda _: None), self._redact)
            except OSError as error:
                problem = f"{self._command[0]} could not be started: {error.strerror}"
        return Notified("failed", self._redact(problem)) if problem else Notified("sent")

    async def aclose(self) -> None:
        """End what still runs."""
        await self._processes.aclose()

    def _claims(self, name: str) -> bool:
        """Make the mark of an event. Return whether nobody had made it."""
        if self._folder is None:
            is_new = name not in self._begun
            self._begun.add(name)
            return is_new
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._is_tidy:
            self._is_tidy = True
            _tidy(self._folder)
        try:
            os.close(os.open(self._folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return False
        return True

    def _give_back(self, name: str) -> None:
        """Remove the mark of an event whose program was not started."""
        self._begun.discard(name)
        if self._folder is not None:
            (self._folder / name).unlink(missing_ok=True)


def _in_places(words: Iterable[str], places: Sequence[str]) -> str:
    """Return the first word that names a file in one of the places; empty if none does."""
    named = ((word, os.path.realpath(Path.home() / word)) for word in words)
    return next((word for word, path in named if is_within(places, path) and os.path.isfile(path)), "")  # noqa: PTH113 - long words


def _tidy(folder: Path) -> None:
    """Remove the marks of a month ago. They have no content, and their names tell nothing."""
    old_s = (SYSTEM_CLOCK.now_ms() - _KEPT_MS) / 1000
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # another process may remove it too
                if entry.stat(follow_symlinks=False).st_mtime < old_s:
                    Path(entry.path).unlink()


def _problem(ended: Ended, redact: Redactor) -> str:
    said = redact(ended.output).strip()[-_SAID_CHARS:]
    if ended.how in ("timeout", "idle"):
        return f"it took longer than {LIMIT_S:g} s, and was killed"
    if ended.how == "flood":
        return f"it printed more than {MOST_BYTES // 1024} KiB"
    return f"its exit code was {ended.exit_code}: {said}".rstrip(": ") if ended.exit_code else ""
