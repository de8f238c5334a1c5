"""Asks git what .gitignore leaves out of a folder. Git sees no repository there: only the files called .gitignore.

A repository that a command could change may name programs in its config, so git gets a folder of its own instead.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.sandbox.system import program_outside
from holdfast.sandbox.work_folder import work_folder
from holdfast.tools.blocking import Refused

NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false")
"""The options with which git starts no program, whatever lies in the folder that it gets."""
_BATCH_BYTES = 8 << 10
"""Git reads so much before anybody reads its answers, whatever these are."""
_HERE = b"./"
_FIELDS = 4
"""Git answers each path with the file, line and text of a rule, and the path."""


def bare_environment(home: str) -> dict[str, str]:
    """Return an environment in which git finds no settings but those in a file `.gitconfig` of that folder."""
    return {
        "PATH": os.defpath,
        "HOME": home,
        "XDG_CONFIG_HOME": home,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }


class Ignoring:
    """Says which names .gitignore leaves out."""

    def __init__(self, git: subprocess.Popen[bytes]) -> None:
        self._git = git

    def of(self, paths: Sequence[str]) -> set[str]:
        """Return the ignored ones. Paths are relative to the folder; what is above them is not ignored.

        Raises:
            Refused: git ended.
        """
        found: set[str] = set()
        batch: list[bytes] = []
        size = 0
        for path in map(os.fsencode, paths):
            batch.append(_HERE + path)  # otherwise git would take a colon at the beginning for an option
            size += len(path)
            if size > _BATCH_BYTES:
                found |= self._answers(batch)
                batch, size = [], 0
        return found | self._answers(batch)

    def _answers(self, paths: Sequence[bytes]) -> set[str]:
        if not paths:
            return set()
        asked, answers = self._git.stdin, self._git.stdout
        assert asked is not None
        assert answers is not None
        try:
            asked.write(b"\0".join(paths) + b"\0")
            asked.flush()
        except BrokenPipeError:
            raise _ended() from None
        # Each answer comes as git has it, so a read may end within one.
        text = b""
        while text.count(b"\0") < len(paths) * _FIELDS:
            piece = os.read(answers.fileno(), 1 << 16)
            if not piece:
                raise _ended()
            text += piece
        fields = text.split(b"\0")
        rows = [fields[at : at + _FIELDS] for at in range(0, len(paths) * _FIELDS, _FIELDS)]
        return {
            os.fsdecode(row[3].removeprefix(_HERE)) for row in rows if row[0] and not row[2].startswith(b"!")
        }


def _ended() -> Refused:
    return Refused("git ended before it said what .gitignore leaves out.")


@contextmanager
def ignoring(folder: str, more: str, homes: Sequence[str] = ()) -> Iterator[Ignoring | None]:
    """Ask git about a folder; None without a git that no command could change.

    Args:
        folder: Absolute.
        more: Further lines, as in .gitignore.
        homes: Holdfast's homes, where no command can change what git gets.
    """
    git = program_outside("git")
    if not git:
        yield None
        return
    with work_folder("holdfast-ignored-", homes, [folder]) as own:
        for name in ("objects", "refs", "info"):
            Path(own, name).mkdir()
        Path(own, "HEAD").write_text("ref: refs/heads/main\n")
        Path(own, "config").write_text("[core]\n\tbare = false\n")
        Path(own, "info", "exclude").write_text(more, errors="surrogateescape")
        environment: Mapping[str, str] = {**bare_environment(own), "GIT_DIR": own, "GIT_WORK_TREE": folder}
        with subprocess.Popen(
            [git, *NO_HOOKS, "check-ignore", "--stdin", "-z", "--verbose", "--non-matching", "--no-index"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as running:
            try:
                yield Ignoring(running)
            finally:
                running.kill()
