"""What a shell text changes for the commands after it: the folder, and its variables."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.policy.simple import Word

MAX_FOLDERS = 8
"""A command that may run in more of them runs in a folder that is not known."""
MAX_FOLDER_CHARS = 400
"""After a longer path, a `cd` is not followed."""
MAX_VARIABLES = 32
"""How many variables are followed."""
MAX_VALUES = 16
"""How many values of a loop's variable are followed."""

_CHANGES_FOLDER = frozenset({"cd", "pushd", "popd"})
_RUNS_HERE = frozenset({"eval", "source", ".", "trap", "fc", "enable", "alias", "shopt", "set"})
"""Builtins that may do anything to the shell."""
_RUNS_LATER = _RUNS_HERE - {"shopt", "set"}
"""Builtins after which something may run, and set variables, between any two commands."""
_SETS = frozenset({
    "read", "printf", "mapfile", "readarray", "getopts", "let", "declare", "typeset", "local", "readonly", "export",
    "unset", "wait", "coproc", "[", "[[", "test",
})  # fmt: skip
_DECLARES = frozenset({"declare", "typeset", "local", "readonly"})
_PREFIXES = frozenset({"builtin", "command", "time"})
OF_SHELL = _CHANGES_FOLDER | _RUNS_HERE | _SETS | _PREFIXES
"""Every other program changes nothing of the shell that starts it."""
_CD_OPTION = re.compile(r"-[LPe@]+")


class Flow(NamedTuple):
    """Where the next command may run."""

    folders: tuple[str, ...]
    is_known: bool = True
    there: frozenset[str] = frozenset()
    """Folders into which a `cd` leads for certain, without a link on the way."""

    def merged(self, other: Flow) -> Flow:
        """Return where a command may run that follows either."""
        if self == other:
            return self
        folders = tuple(dict.fromkeys((*self.folders, *other.folders)))
        is_known = self.is_known and other.is_known and len(folders) <= MAX_FOLDERS
        return Flow(folders[:MAX_FOLDERS], is_known, self.there & other.there)

    def unsure(self) -> Flow:
        """Return the flow where any `cd` may fail."""
        return self._replace(there=frozenset()) if self.there else self

    def lost(self) -> Flow:
        """Return the flow after something that may have gone anywhere."""
        return self._replace(is_known=False)


START = Flow(("",))
"""Where a text begins."""


class Ways(NamedTuple):
    """Where the next command may run if a command succeeds, and if it fails."""

    succeeded: Flow
    failed: Flow

    @property
    def either(self) -> Flow:
        """Return where it may run after both."""
        return self.succeeded.merged(self.failed)

    def entry(self, operator: str) -> Flow:
        """Return where the next command may run after `&&`, `||` or anything else."""
        return self.succeeded if operator == "&&" else self.failed if operator == "||" else self.either

    def then(self, after: Ways, operator: str) -> Ways:
        """Return where a command may run after this one and the next, with an operator between them."""
        if operator == "&&":
            return Ways(after.succeeded, self.failed.merged(after.failed))
        if operator == "||":
            return Ways(self.succeeded.merged(after.succeeded), after.failed)
        return after


class Variables:
    """The variables whose values are known."""

    def __init__(self, home: str, here: str) -> None:
        self._values: dict[str, Word] = {}
        self._many: dict[str, tuple[Word, ...]] = {}
        if home:
            self._values["HOME"] = Word(home)
        if here:
            self._values["PWD"] = Word(here)
        self.pick: int | None = None
        """Which value of a loop's variable counts; None: its value is not known."""
        self.asked: set[str] = set()
        """The variables of loops whose value was asked for."""
        self._lost: set[str] = {"_"}
        """Variables whose next value is not the one that they are given. The shell itself sets `_`."""
        self._is_lost = False

    def value(self, name: str) -> Word | None:
        """Return the value of a variable; None if it is not known."""
        if name in self._many:
            self.asked.add(name)
            values = self._many[name]
            return None if self.pick is None else values[min(self.pick, len(values) - 1)]
        return self._values.get(name)

    def count(self, name: str) -> int:
        """Return how many values the variable of a loop has."""
        return len(self._many[name])

    @property
    def has_loops(self) -> bool:
        """Return whether a loop's variable has known values."""
        return bool(self._many)

    def set(self, name: str, value: Word | None) -> None:
        """Set a variable; None: to a value that is not known."""
        self._many.pop(name, None)
        is_lost = self._is_lost or name in self._lost or len(self._values) >= MAX_VARIABLES
        if value is None or not value.is_known or value.is_glob or is_lost:
            self._values.pop(name, None)
        else:
            self._values[name] = value

    def fix(self, name: str) -> None:
        """Let a variable have its last value: another one may be refused, or not."""
        self._lost.add(name)

    def lose(self) -> None:
        """Forget everything, for good: something may set any of them at any time."""
        self._is_lost = True
        self.clear()

    def loop(self, name: str, values: Sequence[Word]) -> None:
        """Give the variable of a loop its values."""
        self._values.pop(name, None)
        self._many.pop(name, None)
        if (
            not (self._is_lost or name in self._lost)
            and 0 < len(values) <= MAX_VALUES
            and len(self._many) < MAX_VARIABLES
            and all(word.is_known for word in values)
        ):
            self._many[name] = tuple(values)

    def clear(self) -> None:
        """Forget everything: something may have set any of them."""
        self._values.clear()
        self._many.clear()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Give back the values from before: a subshell has variables of its own."""
        before = self._values.copy(), self._many.copy()
        try:
            yield
        finally:
            self._values, self._many = before

    @contextmanager
    def perhaps(self) -> Iterator[None]:
        """Forget afterwards what was changed: nobody knows whether this part runs."""
        values, many = self._values.copy(), self._many.copy()
        try:
            yield
        finally:
            self._values = {name: word for name, word in values.items() if self._values.get(name) is word}
            self._many = {name: words for name, words in many.items() if self._many.get(name) is words}

    @contextmanager
    def forgotten(self) -> Iterator[None]:
        """Forget everything before and after: this part may run several times, or at another time."""
        self.clear()
        try:
            yield
        finally:
            self.clear()


def sets_variables(words: Sequence[Word]) -> bool:
    """Return whether a command may set variables of the shell that it does not show as assignments."""
    program = _plain(words)
    if not program:
        return bool(words)
    name = program[0].text
    if name == "printf":
        return any(not word.is_known or word.text.startswith("-v") for word in program[1:2])
    if name in ("[", "[[", "test", "wait"):
        return False
    return not program[0].is_known or program[0].is_glob or name in _RUNS_HERE or name in _SETS


def runs_later(words: Sequence[Word]) -> bool:
    """Return whether something may run between any two commands after this one."""
    program = _plain(words)
    if not program:
        return bool(words)
    if program[0].text in _DECLARES and any(not word.is_known or "n" in _flags(word) for word in program):
        return True  # `declare -n` gives a variable another name
    return not program[0].is_known or program[0].is_glob or program[0].text in _RUNS_LATER


def _flags(word: Word) -> str:
    return word.text if word.text[:1] in ("-", "+") else ""


def declared_by(words: Sequence[Word]) -> Iterator[str]:
    """Return the variables that get attributes: they may refuse their next value, or change it."""
    program = _plain(words)
    if program and program[0].text in _DECLARES:
        yield from (word.text.partition("=")[0].removesuffix("+") for word in program[1:])


def ways_of(words: Sequence[Word], flow: Flow, home: str) -> Ways:
    """Return where the next command may run after a command."""
    program = _plain(words)
    if not program:
        return Ways(flow.lost(), flow.lost()) if words else Ways(flow, flow)
    first = program[0]
    if not first.is_known or first.is_glob or first.text in _RUNS_HERE:
        return Ways(flow.lost(), flow.lost())
    if first.text not in _CHANGES_FOLDER:
        return Ways(flow, flow)
    if len(flow.folders) >= MAX_FOLDERS or any(len(folder) > MAX_FOLDER_CHARS for folder in flow.folders):
        return Ways(flow.lost(), flow.lost())
    operands = [
        word
        for word in program[1:]
        if not (word.is_known and (_CD_OPTION.fullmatch(word.text) or word.text == "--"))
    ]
    target = operands[0] if operands else Word(home, bool(home))
    is_plain = first.text == "cd" or (
        first.text == "pushd" and bool(operands) and target.text[:1] not in ("+", "-")
    )
    if len(operands) > 1 or not is_plain or not target.is_known or target.is_glob or target.text in ("", "-"):
        after = flow.merged(Flow((_joined(flow.folders[0], target.text),)) if target.text else flow).lost()
        return Ways(after, after)
    joined = [_joined(folder, target.text) for folder in flow.folders]
    reached = tuple(dict.fromkeys(map(plain_folder, joined)))
    if flow.is_known and flow.there.issuperset(reached):
        sure = flow._replace(folders=reached)
        return Ways(sure, sure)
    # The shell takes `link/..` for the folder of the link, and programs for the one above what it leads to.
    plain = [posixpath.normpath(folder) for folder in joined if ".." in folder]
    folders = tuple(dict.fromkeys([*joined, *plain]))
    is_known = flow.is_known and len(folders) <= MAX_FOLDERS
    inside = flow._replace(folders=folders[:MAX_FOLDERS], is_known=is_known)
    return Ways(inside, flow)


def _plain(words: Sequence[Word]) -> Sequence[Word]:
    """Return the words without `builtin` and `command`; empty if it cannot be said where the program is."""
    at = 0
    while at < len(words) and words[at].text in _PREFIXES and words[at].is_known:
        at += 1
        if at < len(words) and words[at].text.startswith("-"):
            return ()
    return words[at:]


def plain_folder(path: str) -> str:
    """Return the path of a folder without `.` and `..`; empty for the first folder."""
    plain = posixpath.normpath(path)
    return "" if plain == "." else plain


def _joined(folder: str, path: str) -> str:
    return path if path.startswith("/") or not folder else f"{folder}/{path}"
