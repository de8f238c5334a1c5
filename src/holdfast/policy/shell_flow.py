"""What a shell text changes for the commands after it: the folder, and its variables."""

from __future__ import annotations

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
_SETS = frozenset({
    "read", "printf", "mapfile", "readarray", "getopts", "let", "declare", "typeset", "local", "readonly", "export",
    "unset", "wait", "coproc", "[", "[[", "test",
})  # fmt: skip
_PREFIXES = frozenset({"builtin", "command", "time"})
_CD_OPTION = re.compile(r"-[LPe@]+")


class Flow(NamedTuple):
    """Where the next command may run."""

    folders: tuple[str, ...]
    is_known: bool = True

    def merged(self, other: Flow) -> Flow:
        """Return where a command may run that follows either."""
        if self == other:
            return self
        folders = tuple(dict.fromkeys((*self.folders, *other.folders)))
        is_known = self.is_known and other.is_known and len(folders) <= MAX_FOLDERS
        return Flow(folders[:MAX_FOLDERS], is_known)

    def lost(self) -> Flow:
        """Return the flow after something that may have gone anywhere."""
        return self._replace(is_known=False)


class Ways(NamedTuple):
    """Where the next command may run if a command succeeds, and if it fails."""

    succeeded: Flow
    failed: Flow

    @property
    def either(self) -> Flow:
        """Return where it may run after both."""
        return self.succeeded.merged(self.failed)


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
        if value is None or not value.is_known or value.is_glob or len(self._values) >= MAX_VARIABLES:
            self._values.pop(name, None)
        else:
            self._values[name] = value

    def loop(self, name: str, values: Sequence[Word]) -> None:
        """Give the variable of a loop its values."""
        self._values.pop(name, None)
        self._many.pop(name, None)
        if (
            0 < len(values) <= MAX_VALUES
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
    folders = tuple(dict.fromkeys(_joined(folder, target.text) for folder in flow.folders))
    return Ways(Flow(folders, flow.is_known), flow)


def _plain(words: Sequence[Word]) -> Sequence[Word]:
    """Return the words without `builtin` and `command`; empty if it cannot be said where the program is."""
    at = 0
    while at < len(words) and words[at].text in _PREFIXES and words[at].is_known:
        at += 1
        if at < len(words) and words[at].text.startswith("-"):
            return ()
    return words[at:]


def _joined(folder: str, path: str) -> str:
    return path if path.startswith("/") or not folder else f"{folder}/{path}"
