"""Finds the folders of a command when it has ended: a person may have renamed one, and put another one there.

What the command changed is undone where its folder is now. Where nobody holds it open, as after a kill, it waits
until the folder is back: what lies at its path meanwhile is not its work.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from holdfast.policy.paths import is_inside
from holdfast.tools.aside import place_of
from holdfast.tools.trace import Trace

T = TypeVar("T")
_NOWHERE = "/dev/null/gone"
"""The place of a folder that is gone. Nothing can be there."""


class Elsewhere(Exception):
    """The folder of a command is not at its path, and nobody knows where it is."""

    def __init__(self, folder: str) -> None:
        super().__init__(f"{folder} is not the folder in which it ran")


def inodes(roots: Iterable[str]) -> dict[str, int]:
    """Return the inodes of those of these folders that lie in no other one. What does, the command itself may move.
    The number of a device may be another one after a restart.
    """
    found: dict[str, int] = {}
    roots = {*roots}
    for path in roots:
        if any(path != root and is_inside(root, path) for root in roots):
            continue
        with suppress(OSError):
            facts = os.lstat(path)
            if stat.S_ISDIR(facts.st_mode):
                found[path] = facts.st_ino
    return found


def held_open(trace: Trace) -> dict[str, int]:
    """Open what a command may change, to find it wherever it is moved."""
    held: dict[str, int] = {}
    for path, inode in trace.inodes.items():
        with suppress(OSError):
            fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            held[path] = fd
            if os.fstat(fd).st_ino != inode:
                os.close(held.pop(path))
    return held


def where_it_is(
    trace: Trace, tops: Mapping[str, int], held: Mapping[str, int]
) -> tuple[Trace, Mapping[str, int]]:
    """Return what is known of a command, and what is held open for it, with each path as it is now. What is gone is
    left out.

    Args:
        trace: What is known of the command.
        tops: What it could change, as `held_open` returned it; empty for one of a killed process.
        held: Other open folders by their paths.

    Raises:
        Elsewhere: a folder that is not held open is not at its path.
    """
    away = _away(trace, tops)
    if lost := next((path for path in away if path not in tops), ""):
        raise Elsewhere(lost)
    return _renamed(trace, {path: place_of(tops[path]) for path in away}, held) if away else (trace, held)


def is_elsewhere(trace: Trace) -> bool:
    """Return whether a folder of a command that nobody holds open is not at its path."""
    return bool(_away(trace, {}))


def still_there(traces: Iterable[Trace]) -> list[Trace]:
    """Return what is known of commands that may still run, without what is elsewhere by now. What lies in a folder
    that another one of them may change was not moved by a person.
    """
    traces = [*traces]
    movers = {root for each in traces for root in each.writable}
    found: list[Trace] = []
    for trace in traces:
        away = {
            path: ""
            for path in _away(trace, {})
            if not any(path != root and is_inside(root, path) for root in movers)
        }
        found.append(_renamed(trace, away, {})[0] if away else trace)
    return found


def _away(trace: Trace, tops: Mapping[str, int]) -> list[str]:
    return [path for path, inode in trace.inodes.items() if not _is_in_place(path, inode, tops)]


def _renamed(
    trace: Trace, moved: Mapping[str, str], held: Mapping[str, int]
) -> tuple[Trace, Mapping[str, int]]:
    """Return the same with folders at other paths. An empty path: it is gone."""
    roots = sorted(trace.inodes, key=len, reverse=True)

    def now(path: str) -> str:
        root = next((each for each in roots if is_inside(each, path)), "")
        new = moved.get(root, root)
        return f"{new}{path.removeprefix(root)}" if new or not root else ""

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
        inodes=keyed(trace.inodes),
        kept=kept,
    )
    return found, keyed(held)


def _is_in_place(path: str, inode: int, tops: Mapping[str, int]) -> bool:
    """Return whether the same thing lies at a path as before."""
    with suppress(OSError):
        found = os.lstat(path)
        if path not in tops:
            return found.st_ino == inode
        held = os.fstat(tops[path])
        return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)
    return False
