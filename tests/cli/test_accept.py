"""Copies and what is accepted from them: deaths at any step, any changes, and what changes meanwhile."""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.protocol.tools import KeptFile
from holdfast.runtime import copies, isolate
from holdfast.runtime.isolate import CHANGED, LEADS_OUT
from holdfast.tools import copying
from tests.cli.deaths import dies_in
from tests.cli.desks import Desk, change, desk_in, tree


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return desk_in(tmp_path)


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.long)])
def test_an_accept_that_dies_at_any_step_is_completed_by_the_same_command(desk: Desk, every: int) -> None:
    before = tree(desk.work)
    for step in range(every, 400, every):
        copy = desk.copied()
        change(Path(copy.folder))
        after = tree(Path(copy.folder))
        is_over = dies_in(step, lambda: len(desk.accepted().problems)) is not None
        assert desk.accepted().problems == ()
        assert (tree(desk.work), copies.find(desk.home.folder, copy.folder)) == (after, None)
        assert [*copies.beside(desk.home.folder).iterdir()] == []
        desk.undone()
        assert tree(desk.work) == before
        if is_over:
            assert step > 10, "it has steps at which it can die"
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("every", [29, pytest.param(5, marks=pytest.mark.long)])
def test_an_accept_whose_completion_dies_too_is_completed_by_the_next_one(desk: Desk, every: int) -> None:
    before = tree(desk.work)
    ends: set[tuple[bool, bool]] = set()
    for first in range(every, 120, every):
        for second in range(3, 120, every):
            copy = desk.copied()
            change(Path(copy.folder))
            after = tree(Path(copy.folder))
            died = [dies_in(step, lambda: len(desk.accepted().problems)) is None for step in (first, second)]
            ends.add((died[0], died[1]))
            assert desk.accepted().problems == ()
            assert (tree(desk.work), copies.is_lost(desk.home.folder, copy.folder)) == (after, False)
            desk.undone()
            assert tree(desk.work) == before
            if not died[1]:
                break
    assert {(True, True), (True, False)} <= ends


def test_a_file_that_changes_after_an_accept_died_brings_all_others_back(desk: Desk) -> None:
    before = tree(desk.work)
    seen = set()
    for step in range(30, 80, 12):
        change(Path(desk.copied().folder))
        if dies_in(step, lambda: len(desk.accepted().problems)) is not None:
            break
        mine = tree(desk.work) | {"new/deep/b": (b"mine", 0o644)}
        (desk.work / "new" / "deep").mkdir(parents=True, exist_ok=True)
        (desk.work / "new" / "deep" / "b").write_text("mine")
        refused = desk.accepted()
        seen.add(mine == before | {"new/deep/b": (b"mine", 0o644)})
        assert [each.path for each in refused.problems] == ["new/deep/b"]
        assert tree(desk.work) == before | {"new/deep/b": (b"mine", 0o644)}
        (desk.work / "new" / "deep" / "b").unlink()
    assert seen == {True, False}  # some died before they had changed a file, and some after


CALLS = ["fsync", "rename", "unlink", "rmdir", "mkdir", "write", "symlink"]


@pytest.mark.parametrize(
    ("name", "every", "is_once"),
    [
        ("fsync", 13, True),
        ("write", 3, False),
        ("rmdir", 2, False),
        *(
            pytest.param(name, 1, is_once, marks=pytest.mark.long)
            for name in CALLS
            for is_once in (True, False)
        ),
    ],
)
def test_an_accept_in_which_a_call_fails_changes_all_files_or_none_and_says_which_stay_changed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str, every: int, *, is_once: bool
) -> None:
    """As on a full disk. A call may fail after its effect, as a sync of the folder does."""
    before, folders = tree(desk.work), folders_in(desk.work)
    have_failed = False
    for first in range(1, 60, every):
        change(Path(desk.copied().folder))
        with failing(monkeypatch, desk.work, name, first, is_once=is_once) as count:
            found = desk.accepted()
        assert bool(found.problems) != bool(found.done)
        now = tree(desk.work)
        if found.problems:
            have_failed = True
            assert {path for path in {*now, *before} if now.get(path) != before.get(path)} == {*found.changed}
            assert found.changed or folders_in(desk.work) == folders
        if found.changed:
            assert not is_once
            desk.undone()
        assert desk.accepted().problems == ()
        desk.undone()
        assert (tree(desk.work), folders_in(desk.work)) == (before, folders)
        if len(count) < first:
            assert have_failed or (name == "fsync" and is_once), "a sync fails after its effect"
            return
    raise AssertionError("it never ends")


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, first: int, *, is_once: bool
) -> Iterator[list[int]]:
    """The calls of `os` with this name fail in a folder from the first one on, or only that one: a sync after it has
    done its work."""
    plain, count = getattr(os, name), list[int]()

    def call(*arguments: Any, **named: Any) -> Any:
        at = named.get("dir_fd", named.get("dst_dir_fd", arguments[0]))
        done = plain(*arguments, **named) if name == "fsync" else None
        if isinstance(at, int) and Path(f"/proc/self/fd/{at}").readlink().is_relative_to(folder):
            count.append(at)
            if len(count) == first or (len(count) > first and not is_once):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return done if name == "fsync" else plain(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, call)
        yield count


def folders_in(work: Path) -> set[str]:
    return {
        str(path.relative_to(work)) for path in work.rglob("*") if path.is_dir() and not path.is_symlink()
    }


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
def test_half_a_copy_is_never_taken_for_a_whole_one(desk: Desk, every: int) -> None:
    before = tree(desk.work)
    beside = copies.beside(desk.home.folder)
    for step in range(every, 400, every):
        is_over = dies_in(step, lambda: len(desk.copied().folder) * 0) is not None
        for found in copies.every(desk.home.folder):
            assert tree(Path(found.folder)) == before
            copies.drop(desk.home.folder, found.folder)
        whole = desk.copied()
        assert tree(Path(whole.folder)) == before
        copies.drop(desk.home.folder, whole.folder)
        assert [path.name for path in beside.iterdir()] == []
        if is_over:
            return
    raise AssertionError("it never ends")


def test_a_folder_is_not_listed_for_each_of_its_files(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        (desk.work / f"f{number}").write_text("one\n")
    copy = desk.copied()
    for number in range(60):
        (Path(copy.folder) / f"f{number}").write_text("two\n")
    listed: list[object] = []
    lists = os.listdir

    def counting(folder: int) -> list[str]:
        listed.append(folder)
        return lists(folder)

    monkeypatch.setattr(os, "listdir", counting)
    assert len(desk.accepted().done) == 60
    desk.undone()
    assert len(listed) < 60


def test_nothing_is_accepted_if_a_file_changed_meanwhile_unless_it_is_left_out(desk: Desk) -> None:
    copy = desk.copied()
    change(Path(copy.folder))
    after = tree(Path(copy.folder))
    (desk.work / "a.txt").write_text("mine\n")
    before = tree(desk.work)
    assert desk.accepted().problems == (KeptFile("a.txt", CHANGED),)
    assert tree(desk.work) == before
    found = desk.accepted("a.txt")
    assert (found.problems, found.skipped) == ((), ("a.txt",))
    assert tree(desk.work) == after | {"a.txt": (b"mine\n", 0o644)}
    assert copies.find(desk.home.folder, copy.folder) is not None
    assert desk.accepted("a.txt").done == ()
    (desk.work / "a.txt").write_text("one\n")
    assert [each.path for each in desk.accepted().done] == ["a.txt"]
    assert copies.find(desk.home.folder, copy.folder) is None


def test_a_change_that_both_made_is_no_conflict(desk: Desk) -> None:
    change(Path(desk.copied().folder))
    (desk.work / "a.txt").write_text("two\n")
    (desk.work / "gone").unlink()
    found = desk.accepted()
    assert (found.problems, "a.txt" in [each.path for each in found.done]) == ((), False)


def test_what_no_tool_may_write_is_never_accepted_and_the_rest_needs_a_word(desk: Desk) -> None:
    folder = Path(desk.copied().folder)
    before = tree(desk.work)
    ours = (".vscode/tasks.json", ".github/workflows/ci.yml", ".env", "bare/hooks/x", os.fsdecode(b"caf\xe9"))
    for name in (*ours, "bare/HEAD", "fine"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    for name in ("bare/objects", "bare/refs", ".git/hooks"):
        (folder / name).mkdir(parents=True)
    (folder / ".git" / "hooks" / "post-checkout").write_text("x")
    for name, target in (("out", "/etc"), ("up", "../x"), ("around", "here/../.."), ("here", ".")):
        (folder / name).symlink_to(target)
    refused = {each.path: each.reason for each in desk.accepted().problems}
    assert sorted(refused) == [
        ".env", ".github/workflows/ci.yml", ".vscode/tasks.json", "around", "bare/HEAD", "bare/hooks/x",
        "caf\\udce9", "out", "up",
    ]  # fmt: skip
    assert (refused["up"], refused["around"]) == (LEADS_OUT, LEADS_OUT)
    assert tree(desk.work) == before
    skipped = (".env", ".vscode", "around", "bare", os.fsdecode(b"caf\xe9"), "out", "up")
    word, hook = ".github/workflows/ci.yml", "bare/hooks/x"
    told = desk.accepted(*(each for each in skipped if each != "bare"), "bare/HEAD", allowed=(word, hook))
    assert [each.path for each in told.problems] == [hook], "no word of a person lets this in"
    assert [each.path for each in desk.accepted(*skipped).problems] == [word]
    assert [each.path for each in desk.accepted(*skipped, allowed=(word,)).done] == [word, "fine", "here"]
    assert not (desk.work / ".git").exists()


def test_a_folder_that_has_the_name_of_a_copy_is_not_taken_for_it(desk: Desk) -> None:
    copy = desk.copied()
    around = Path(copy.folder).parent
    around.rename(around.with_name("elsewhere"))
    Path(copy.folder).mkdir(parents=True)
    assert copies.find(desk.home.folder, copy.folder) is None


def test_only_the_copy_itself_is_taken_for_it_and_no_folder_beside_it(desk: Desk) -> None:
    copy = desk.copied()
    assert copies.find(desk.home.folder, copy.folder) == copy
    assert copies.find(desk.home.folder, str(Path(copy.folder).with_name("other"))) is None
    assert stat.S_IMODE(copies.beside(desk.home.folder).stat().st_mode) == 0o700


def test_copies_are_for_nobody_else_also_if_their_folder_was_open(desk: Desk) -> None:
    copies.beside(desk.home.folder).mkdir(mode=0o777)
    copies.beside(desk.home.folder).chmod(0o777)
    desk.copied()
    assert stat.S_IMODE(copies.beside(desk.home.folder).stat().st_mode) == 0o700


def test_what_still_changes_in_the_copy_is_not_accepted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(desk.copied().folder) / "new"
    file.write_text("looked at")

    def changes(*words: Any) -> list[copying.Change]:
        found = copying.changes(*words)
        file.write_text("changed since")
        return found

    monkeypatch.setattr(isolate, "changes", changes)
    assert [each.reason for each in desk.accepted().problems] == [isolate.MOVING]
    assert not (desk.work / "new").exists()


def test_a_workspace_that_is_too_large_is_refused_and_what_is_ignored_is_left_out(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk.work / ".gitignore").write_text("big/\nsmall/\n")
    for name, size in (("big", 3_000), ("small", 10)):
        (desk.work / name).mkdir()
        (desk.work / name / "f").write_bytes(bytes(size))
    monkeypatch.setattr(copying, "MAX_BYTES", 2_000)
    copy = desk.copied()
    assert sorted(path.name for path in Path(copy.folder).iterdir()) == [
        ".gitignore",
        "a.txt",
        "d",
        "gone",
        "small",
        "turned",
    ]
    assert [each.partition(":")[0] for each in copy.copied.left_out] == ["big"]
    monkeypatch.setattr(copying, "MAX_ENTRIES", 3)
    with pytest.raises(UsageError, match="too large"):
        desk.copied()
    assert [path for path in copies.beside(desk.home.folder).iterdir() if path.name.startswith(".")] == []


NAMES = (
    "a.txt",
    "gone",
    "d/x",
    "d/y",
    "d",
    "new/deep/b",
    "new/c",
    "new",
    ".gitignore",
    "out/o",
    "z z",
    "\u00e9/f",
)


def shuffle(pick: random.Random, folder: Path) -> None:
    """Change a folder at random."""
    for _ in range(pick.randint(1, 12)):
        path = folder / pick.choice(NAMES)
        blocking = next((each for each in path.parents if each.is_symlink() or each.is_file()), None)
        match pick.randrange(5):
            case 0:
                remove(path)
            case 1 if path.is_file() and not path.is_symlink():
                path.chmod(pick.choice([0o600, 0o644, 0o755]))
            case 2:
                remove(blocking or path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(pick.choice(["a.txt", "nowhere", "d"]))
            case _:
                remove(blocking or path)
                remove(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(pick.choice([b"", b"one\n", b"\xff\x00", b"out/\n"]))


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(OSError):  # a link or file may be where its folder was
            path.unlink()


@pytest.mark.parametrize(
    "seed", [*range(12), *[pytest.param(n, marks=pytest.mark.long) for n in range(12, 300)]]
)
def test_after_any_changes_an_accepted_workspace_is_the_copy(desk: Desk, seed: int) -> None:
    pick = random.Random(seed)
    before = tree(desk.work)
    copy = desk.copied()
    folder = Path(copy.folder)
    shuffle(pick, folder)
    wanted = {path: what for path, what in tree(folder).items() if path != "out/o" or not ignores(folder)}
    found = desk.accepted()
    assert found.problems == ()
    assert tree(desk.work) == wanted
    desk.undone()
    undone = tree(desk.work)
    assert {path: what for path, (what, _) in undone.items()} == {
        path: what for path, (what, _) in before.items()
    }


def ignores(folder: Path) -> bool:
    path = folder / ".gitignore"
    return path.is_file() and not path.is_symlink() and path.read_bytes() == b"out/\n"
