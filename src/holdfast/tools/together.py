"""Puts many files back: all or none of them, or each for itself.

A step that fails may have had its effect, and a kill leaves no error at all. So what is there decides, and not what
the steps returned. `restoring` has the steps for one file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.errors import StorageError
from holdfast.policy.paths import above
from holdfast.protocol.ports import Check
from holdfast.protocol.tools import FileRestore
from holdfast.tools import restoring
from holdfast.tools.own import OwnPlaces
from holdfast.views import edits


class Work(NamedTuple):
    """What putting files back needs."""

    own: OwnPlaces
    shelf: restoring.Shelf
    check: Check


Reasons = dict[str, str]
"""Why files are not what they are to be, by path."""


def one_by_one(work: Work, goals: Sequence[FileRestore]) -> tuple[Reasons, Reasons]:
    """Put each file back, and return those that stay as they are, and those that are halfway: a folder that was to
    go is where the file was to be, and nobody else has put anything into it.
    """
    reasons = _in_order(work, goals)
    going = {goal.path for goal in goals if not goal.after}
    folders = {folder for path in going for folder in above(path)}
    halfway = {
        goal.path: reasons[goal.path]
        for goal in goals
        if goal.path in reasons and goal.path in folders and restoring.is_blocked(goal, going)
    }
    return reasons, halfway


def all_or_none(work: Work, goals: Sequence[FileRestore]) -> tuple[Reasons, Reasons]:
    """Change all files, or take all of it back. Return why it was taken back, and what could not be."""
    try:
        reasons = _in_order(work, goals)
    except StorageError:
        with suppress(StorageError):  # the intent stays open, and the first error says more
            _in_order(work, backwards(goals))
        raise
    if not reasons:
        return {}, {}
    _, halfway = taken_back(work, backwards(goals))
    return reasons, {path: reasons.get(path, reason) for path, reason in halfway.items()}


def taken_back(work: Work, goals: Sequence[FileRestore]) -> tuple[Reasons, Reasons]:
    """Take files back. Return those that something else has changed: they stay. And those that are still changed."""
    reasons = _in_order(work, goals)
    stays: Reasons = {}
    halfway: Reasons = {}
    # A step may have failed for one file and changed another: a folder may be where a file was.
    for goal in goals:
        match restoring.how_far(work.own, goal, work.shelf.images):
            case "done":
                continue
            case "other":
                stays[goal.path] = reasons.get(goal.path, edits.CHANGED)
            case "before" | "unknown":
                halfway[goal.path] = reasons.get(goal.path, restoring.UNREADABLE)
    return stays, halfway


def _in_order(work: Work, goals: Sequence[FileRestore]) -> Reasons:
    """Put files back, and return those that are not what they are to be then. A file that goes may be where a folder
    is to be, or above one.
    """
    own, shelf, check = work
    removed = [goal for goal in goals if not goal.after]
    reasons: Reasons = {}
    swept: set[tuple[int, int]] = set()
    for goal in removed:
        reasons[goal.path] = restoring.put_back(own, goal, shelf, check, swept)
    restoring.remove_folders(own, removed, check)
    for goal in goals:
        if goal.after:
            reasons[goal.path] = restoring.put_back(own, goal, shelf, check, swept)
    return {
        goal.path: reasons[goal.path] for goal in goals if reasons[goal.path] and not _is_done(work, goal)
    }


def _is_done(work: Work, goal: FileRestore) -> bool:
    """Return whether a step that failed has had its effect all the same. Then ask the disk once more to keep it."""
    own, shelf, check = work
    if restoring.how_far(own, goal, shelf.images) != "done":
        return False
    restoring.put_back(own, goal, shelf, check, set())
    return True


def backwards(goals: Sequence[FileRestore]) -> list[FileRestore]:
    """Return what takes files back: the last one first, and the removed ones at the end. So no step needs more space
    than the one that it takes back.
    """
    last_first = [goal for goal in goals if goal.after][::-1]
    removed = [goal for goal in goals if not goal.after][::-1]
    return [_reversed(goal) for goal in (*last_first, *removed)]


def _reversed(goal: FileRestore) -> FileRestore:
    return replace(goal, before=goal.after, after=goal.before, before_mode=goal.mode, mode=goal.before_mode)
