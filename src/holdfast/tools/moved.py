"""Finds the folders of a command when it has ended: a person may have renamed one, and put another one there.

What the command changed is undone where its folder is now. Where nobody holds it open, as after a kill, it waits
until the folder is back: what lies at its path meanwhile is not its work.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from holdfast.policy.paths import is_inside
from holdfast.tools.aside import place_of
from holdfast.tools.identity import Identity, is_proof, is_same, of_fd, of_folder
from holdfast.tools.trace import Trace

T = TypeVar("T")
_NOWHERE = "/dev/null/gone"
"""The place of a folder that is gone. Nothing can be there."""


class Elsewhere(Exception):
    """The folder of a command is not at its path, and nobody knows where it is, or nothing proves that it is."""

    def __init__(self, folder: str, *, is_known: bool = True) -> None:
        is_other = f"{folder} is not the folder in which it ran"
        super().__init__(
            is_other
            if is_known
            else f"nothing on its disk proves that {folder} is the folder in which it ran"
        )


def folders(roots: Iterable[str]) -> dict[str, Identity]:
    """Return which folders these are. What is a file, or is not there, is left out.

    Raises:
        OSError: nobody can tell.
    """
    return {path: found for path in {*roots} if (found := of_folder(path)) is not None}


def held_open(trace: Trace) -> dict[str, int]:
    """Open what a command may change, to find it wherever it is moved. What lies in another one of these folders, the
    command itself may move.
    """
    held: dict[str, int] = {}
    for path in _outer(trace):
        with suppress(OSError):  # what is not held is known by its identity, as long as it is not moved
            fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            held[path] = fd
            if of_fd(fd) != trace.folders[path]:
                os.close(held.pop(path))
    return held


def where_it_is(
    trace: Trace, tops: Mapping[str, int], held: Mapping[str, int]
) -> tuple[Trace, Mapping[str, int]]:
    """Return what is known of a command that has ended, and what is held open for it, with each path as it is now.
    What is gone is left out.

    Args:
        trace: What is known of the command.
        tops: What it could change, as `held_open` returned it.
        held: Other open folders by their paths.

    Raises:
        Elsewhere: a folder that is not held open is not at its path.
        OSError: nobody can tell.
    """
    away = [path for path in _outer(trace) if not _is_in_place(trace, path, tops)]
    if lost := next((path for path in away if path not in tops), ""):
        raise _elsewhere(trace, lost)
    return _renamed(trace, {path: place_of(tops[path]) for path in away}, held) if away else (trace, held)


def check_it_is_there(trace: Trace) -> None:
    """Check that the folders of a command are at their paths, of which nobody holds any open.

    Raises:
        Elsewhere: one is not. Its process was killed, perhaps long ago, so a person may have moved any of them.
        OSError: nobody can tell.
    """
    if lost := next((path for path in _lasting(trace) if not _is_in_place(trace, path, {})), ""):
        raise _elsewhere(trace, lost)


def is_elsewhere(trace: Trace) -> bool:
    """Return whether a folder of a command that nobody holds open is not at its path, where its process was killed or
    all is undone that could be.
    """
    try:
        check_it_is_there(trace)
    except Elsewhere:
        return True
    except OSError:  # who works there hears of it
        return False
    return False


def still_there(traces: Iterable[Trace]) -> list[Trace]:
    """Return what is known of commands that may still run, without what is elsewhere by now. What lies in a folder
    that another one of them may change was not moved by a person.

    Raises:
        OSError: nobody can tell.
    """
    traces = [*traces]
    movers = {root for each in traces for root in each.writable}
    found: list[Trace] = []
    for trace in traces:
        away = {
            path: ""
            for path in _outer(trace)
            if not any(path != root and is_inside(root, path) for root in movers)
            and not (_is_in_place(trace, path, {}) or _has_number(trace, path))
        }
        found.append(_renamed(trace, away, {})[0] if away else trace)
    return found


def _has_number(trace: Trace, path: str) -> bool:
    """Return whether the folder at a path has the inode that the one of the command had. That is enough where nothing
    proves more, and nobody has looked since it was killed: as long as it lives, it holds the folder open.
    """
    there = None if trace.fault or is_proof(trace.folders[path]) else of_folder(path)
    return there is not None and there[:2] == trace.folders[path][:2]


def _outer(trace: Trace) -> list[str]:
    """Return the folders that lie in no other one that the command may change."""
    roots = {*trace.folders}
    return [path for path in roots if not any(path != root and is_inside(root, path) for root in roots)]


def _lasting(trace: Trace) -> Iterable[str]:
    """Return the folders that only a person can have moved. Once the first try has put all in its place that it
    could, an inner one may still be where the command had moved it.
    """
    return _outer(trace) if trace.changed else trace.folders


def _elsewhere(trace: Trace, folder: str) -> Elsewhere:
    return Elsewhere(folder, is_known=is_proof(trace.folders[folder]))


def _renamed(
    trace: Trace, moved: Mapping[str, str], held: Mapping[str, int]
) -> tuple[Trace, Mapping[str, int]]:
    """Return the same with folders at other paths. An empty path: it is gone."""

    def now(path: str) -> str:
        root = next((each for each in moved if is_inside(each, path)), "")
        new = moved.get(root, "")
        return path if not root else f"{new}{path.removeprefix(root)}" if new else ""

    def renamed(paths: Iterable[str]) -> tuple[str, ...]:
        return tuple(filter(None, map(now, paths)))

    def keyed(found: Mapping[str, T]) -> dict[str, T]:
        return {new: each for path, each in found.items() if (new := now(path))}

    kept = trace.kept
    if kept is not None:
        kept = replace(
            kept,
            copies=keyed(kept.copies),
            above=keyed(kept.above),
            tops=renamed(kept.tops),
            roots=renamed(kept.roots),
        )
    found = replace(
        trace,
        writable=tuple(now(path) or _NOWHERE for path in trace.writable),
        before=keyed(trace.before),
        covered=renamed(trace.covered),
        gone=renamed(trace.gone),
        led=renamed(trace.led),
        folders=keyed(trace.folders),
        kept=kept,
    )
    return found, keyed(held)


def _is_in_place(trace: Trace, path: str, tops: Mapping[str, int]) -> bool:
    """Return whether the same folder lies at a path as before.

    Raises:
        OSError: nobody can tell.
    """
    there = of_folder(path)
    if there is None:
        return False
    if path in tops:
        return there[:2] == of_fd(tops[path])[:2]
    return is_same(there, trace.folders[path])
