"""Many files are put back, and a call fails or the process dies at any step: what is there decides."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StorageFull
from holdfast.policy.paths import above
from holdfast.protocol.tools import FileRestore
from holdfast.storage.images import Images
from holdfast.tools.own import OwnPlaces
from holdfast.tools.restoring import LINK, Shelf, link_content
from holdfast.tools.together import Work, all_or_none, backwards, one_by_one, taken_back
from holdfast.views.edits import CHANGED
from tests.faults import WAYS, Died, failing

Thing = tuple[str, int]
"""What a file contains or where a link leads, and the permission bits."""
BEFORE: dict[str, Thing] = {
    "a.txt": ("one", 0o644),
    "keep": ("keep", 0o600),
    "fil": ("the only copy of the person", 0o640),
    "d/x": ("x", 0o644),
    "d/e/y": ("y", 0o600),
    "dd/x/y": ("yy", 0o644),
    "run": ("run", 0o644),
    "link": ("a.txt", LINK),
    "was a link": ("nowhere", LINK),
    "Name": ("upper", 0o644),
    "e\u0301": ("apart", 0o644),
}
AFTER: dict[str, Thing] = {
    "a.txt": ("two", 0o755),
    "keep": ("keep", 0o600),
    "fil/x": ("in", 0o644),
    "fil/deep/er/z": ("deep", 0o644),
    "d": ("now a file", 0o644),
    "new/deep/b": ("b", 0o644),
    "run": ("run", 0o755),
    "link": ("keep", LINK),
    "was a link": ("a file", 0o644),
    "dd": ("new", LINK),
    "name": ("lower", 0o644),
    "\u00e9": ("together", 0o644),
}
Tree = dict[str, Thing | None]


def tree(folder: Path) -> Tree:
    """All files, links and folders. A folder is None."""
    found: Tree = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = (str(path.readlink()), LINK)
        else:
            found[name] = (path.read_text(), path.stat().st_mode & 0o777) if path.is_file() else None
    return found


def made(folder: Path, things: Mapping[str, Thing]) -> Tree:
    """Make the files and links."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, (content, mode) in things.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if mode == LINK:
            (folder / name).symlink_to(content)
        else:
            (folder / name).write_text(content)
            (folder / name).chmod(mode)
    return tree(folder)


class Room(NamedTuple):
    """A workspace, and what is to be done in it."""

    folder: Path
    work: Work
    goals: Sequence[FileRestore]
    before: Tree
    after: Tree

    def left(self) -> Tree:
        """What is there, but for the drafts of a writer that could not remove them."""
        return {name: what for name, what in tree(self.folder).items() if ".holdfast-" not in name}

    def set_back(self) -> None:
        assert made(self.folder, BEFORE) == self.before


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power fails here, and the real one is slow
    (tmp_path / "home").mkdir()
    images, folder = Images(tmp_path / "home", SYSTEM_CLOCK), tmp_path / "work"

    def mark(things: Mapping[str, Thing], path: str) -> tuple[str, int]:
        if path not in things:
            return "", 0
        content, mode = things[path]
        return images.put("S", link_content(content) if mode == LINK else content.encode()), mode

    def goal(path: str) -> FileRestore:
        (was, was_mode), (new, mode) = mark(BEFORE, path), mark(AFTER, path)
        there = {name for each in (BEFORE if new else AFTER) for name in above(each)}
        folders = len([*takewhile(lambda each: each not in there, above(path))])
        return FileRestore(str(folder), path, was, new, was_mode, mode, 0 if was and new else folders)

    goals = [goal(path) for path in sorted({*BEFORE, *AFTER}) if BEFORE.get(path) != AFTER.get(path)]
    work = Work(OwnPlaces(), Shelf(images, "S", ("S",)), lambda: 9)
    after, before = made(folder, AFTER), made(folder, BEFORE)
    return Room(folder, work, goals, before, after)


def test_all_files_become_what_they_are_to_be_and_again_what_they_were(room: Room) -> None:
    assert all_or_none(room.work, room.goals) == ({}, {})
    assert tree(room.folder) == room.after
    assert all_or_none(room.work, room.goals) == ({}, {}), "it may be done again"
    assert taken_back(room.work, backwards(room.goals)) == ({}, {})
    assert tree(room.folder) == room.before
    assert taken_back(room.work, backwards(room.goals)) == ({}, {})
    assert one_by_one(room.work, room.goals) == ({}, {})
    assert tree(room.folder) == room.after


def steps(room: Room, way: str, most: int = 10_000) -> Sequence[int]:
    """The calls at which it can fail, at most about so many of them."""
    with failing(room.folder, 0, WAYS[way]._replace(error=5, stays=False)) as count:
        all_or_none(room.work, room.goals)
    room.set_back()
    return range(1 + count.calls % 5, count.calls + 1, max(1, count.calls // most))


def check_each(room: Room) -> None:
    """Check that each file is as it was, or as it is to be."""
    known = {*room.before.items(), *room.after.items()}
    assert [each for each in room.left().items() if each[1] is not None and each not in known] == []


MOST = [3, pytest.param(10_000, marks=pytest.mark.long)]


@pytest.mark.parametrize("way", [*WAYS])
@pytest.mark.parametrize("most", MOST)
def test_a_call_that_fails_anywhere_changes_all_files_or_none(room: Room, way: str, most: int) -> None:
    """A disk that goes on failing may leave them halfway. This is said, and it can be completed or taken back."""
    seen: set[str] = set()
    goes_on = WAYS[way].stays or not WAYS[way].error
    for k in steps(room, way, most):
        for is_completed in (True, False):
            room.set_back()
            said = "halfway"
            with failing(room.folder, k, WAYS[way]) as count, suppress(Died):
                reasons, halfway = all_or_none(room.work, room.goals)
                said = "halfway" if halfway else "before" if reasons else "after"
            check_each(room)
            if not count.hit:  # how often a folder is swept depends on the numbers that the disk gives
                break
            assert goes_on or said != "halfway", (k, count.hit)
            if said != "halfway":
                now = room.left() if goes_on else tree(room.folder)
                assert now == (room.before if said == "before" else room.after), (k, count.hit)
            seen.add(said)
            if is_completed:
                assert all_or_none(room.work, room.goals) == ({}, {}), (k, count.hit)
            else:
                assert taken_back(room.work, backwards(room.goals)) == ({}, {}), (k, count.hit)
            assert tree(room.folder) == (room.after if is_completed else room.before), (k, count.hit)
    assert ("halfway" in seen) == goes_on
    assert goes_on or most < 10 or seen == {"before", "after"}, "a failed call may have had its effect"


@pytest.mark.parametrize("way", [*WAYS])
@pytest.mark.parametrize("most", MOST)
def test_what_is_put_back_one_by_one_is_said_to_be_what_it_is(room: Room, way: str, most: int) -> None:
    for k in steps(room, way, most):
        room.set_back()
        left, reasons, halfway = room.goals, None, None
        with failing(room.folder, k, WAYS[way]) as count, suppress(Died):
            reasons, halfway = one_by_one(room.work, room.goals)
        check_each(room)
        if reasons is not None:
            told = {goal.path for goal in room.goals if goal.path not in reasons}
            reached = {goal.path for goal in room.goals if is_reached(room.left(), goal.path)}
            assert told <= reached if way == "dead" else told == reached, (k, count.hit)
        if reasons is not None and not halfway:  # the next undo looks only at those that stayed
            left = [goal for goal in room.goals if goal.path in reasons]
        assert one_by_one(room.work, left) == ({}, {}), (k, count.hit)
        assert tree(room.folder) == room.after, (k, count.hit)


def is_reached(now: Tree, path: str) -> bool:
    """Only files and links count."""
    return now.get(path) == AFTER.get(path)


def test_two_calls_that_fail_leave_nothing_that_cannot_be_completed_or_taken_back(room: Room) -> None:
    pick = random.Random(7)
    total = steps(room, "eio")
    for _ in range(3):
        room.set_back()
        first, second = pick.choice(total), pick.choice(total)
        with failing(room.folder, first, WAYS["eio"]), failing(room.folder, second, WAYS["eio"]):
            reasons, halfway = all_or_none(room.work, room.goals)
        check_each(room)
        if not halfway:
            assert room.left() == (room.before if reasons else room.after), (first, second)
        assert taken_back(room.work, backwards(room.goals)) == ({}, {}), (first, second)
        assert tree(room.folder) == room.before, (first, second)


def test_what_something_else_wrote_meanwhile_stays_when_all_is_taken_back(room: Room) -> None:
    (room.folder / "a.txt").write_text("mine")
    reasons, halfway = all_or_none(room.work, room.goals)
    assert (list(reasons), halfway) == (["a.txt"], {})
    assert tree(room.folder) == room.before | {"a.txt": ("mine", 0o644)}
    assert all_or_none(room.work, [goal for goal in room.goals if goal.path != "a.txt"]) == ({}, {})
    (room.folder / "fil" / "x").write_text("mine, too")
    stays, halfway = taken_back(room.work, backwards(room.goals))
    assert (sorted(stays), list(halfway)) == (["a.txt", "fil/x"], ["fil"]), "its folder is where the file was"
    (room.folder / "fil" / "x").unlink()
    assert taken_back(room.work, backwards(room.goals)) == ({"a.txt": CHANGED}, {})
    assert tree(room.folder) == room.before | {"a.txt": ("mine", 0o644)}


def test_a_home_that_cannot_keep_what_is_replaced_leaves_the_files_as_they_were(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[object] = []
    keeps = Images.keep

    def fails(images: Images, session: str, fd: int) -> str:
        kept.append(fd)
        if len(kept) == 4:
            raise StorageFull
        return keeps(images, session, fd)

    monkeypatch.setattr(Images, "keep", fails)
    with pytest.raises(StorageFull):
        all_or_none(room.work, room.goals)
    assert tree(room.folder) == room.before


def test_no_step_back_needs_more_space_than_the_step_that_it_takes_back(room: Room) -> None:
    back = backwards(room.goals)
    changed = [goal.path for goal in room.goals if goal.before and goal.after]
    assert [goal.path for goal in back if goal.before and goal.after] == changed[::-1]
    assert [bool(goal.before) for goal in back] == sorted((bool(goal.before) for goal in back), reverse=True)
