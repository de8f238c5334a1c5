"""A copy of the tree in which one line at a time is made wrong, to see whether the tests notice.

Which lines, is data: see `table`. The working tree is never written to.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import site
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 420.0
"""The tests of one mutation take seconds. Tests that hang for so long have noticed nothing."""
_COPIED = (
    "src",
    "tests",
    "docs",
    "examples",
    "pyproject.toml",
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
)
_SOURCE = Path("src/holdfast")


class Mutation(NamedTuple):
    """A line that carries a promise, and how it is broken."""

    name: str
    """The promise that the mutation breaks, as a sentence."""
    file: str
    """Under `src/holdfast`."""
    old: str
    """The text to replace. The file contains it exactly once."""
    new: str
    tests: str
    """What must notice, as pytest names it: files, or single tests."""


class Verdict(NamedTuple):
    """What came of the tests."""

    how: Literal["passed", "failed", "hung", "broken"]
    """`broken`: pytest could not run them."""
    output: str


def misfit(mutation: Mutation) -> str:
    """Why the mutation cannot be made, as a sentence; empty when it can."""
    path = REPOSITORY / _SOURCE / mutation.file
    if not path.is_file():
        return f"There is no {mutation.file}."
    count = path.read_text().count(mutation.old)
    if count != 1 or mutation.old == mutation.new:
        return f"The text to replace occurs {count} times in {mutation.file}: {mutation.old!r}"
    for named in mutation.tests.split():
        file, _, test = named.partition("::")
        if not (REPOSITORY / file).is_file() or f"def {test}" not in (REPOSITORY / file).read_text():
            return f"There is no test {named}."
    return ""


class Bench:
    """A copy of the tree with an interpreter of its own, which finds Holdfast there and nowhere else."""

    def __init__(self, folder: Path) -> None:
        self._tree = folder / "tree"
        self._moments = itertools.count(1_000_000_000)
        """Gives each written file a new time. Python tells a stale compiled module by whole seconds."""
        self._tree.mkdir()
        for name in _COPIED:
            source, target = REPOSITORY / name, self._tree / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.is_file():
                shutil.copy(source, target)
        venv.create(folder / "env", symlinks=True)
        self._python = folder / "env" / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        paths = [str(self._tree / "src"), *site.getsitepackages()]
        (folder / "env" / "lib" / version / "site-packages" / "tree.pth").write_text("\n".join(paths))

    def try_out(self, mutation: Mutation) -> Verdict:
        """Run the tests of a mutation where it is made."""
        with self._made(mutation):
            return self.run(mutation.tests.split())

    def run(self, tests: Iterable[str]) -> Verdict:
        """Run these tests until the first one fails."""
        command = [str(self._python), "-m", "pytest", "-x", "-q", "-m", "", *dict.fromkeys(tests)]
        process = subprocess.Popen(
            command,
            cwd=self._tree,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return Verdict("hung", process.communicate()[0])
        match process.returncode:
            case 0:
                return Verdict("passed", output)
            case 1:
                return Verdict("failed", output)
            case _:
                return Verdict("broken", output)

    @contextmanager
    def _made(self, mutation: Mutation) -> Iterator[None]:
        path = self._tree / _SOURCE / mutation.file
        sound = path.read_text()
        self._write(path, sound.replace(mutation.old, mutation.new))
        try:
            yield
        finally:
            self._write(path, sound)

    def _write(self, path: Path, content: str) -> None:
        path.write_text(content)
        moment = next(self._moments)
        os.utime(path, (moment, moment))
