"""Copies and what is accepted from them: deaths at any step, any changes, and what changes meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.app import open_store, open_workshop
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import load
from holdfast.config.paths import Home, find_home
from holdfast.core.draft import Draft
from holdfast.core.opening import change_settings
from holdfast.errors import UsageError
from holdfast.protocol.commands import owner
from holdfast.protocol.events import SessionOpened
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.settings import changed, settings_with
from holdfast.protocol.tools import KeptFile
from holdfast.runtime import copies
from holdfast.runtime.copies import Copy
from holdfast.runtime.fold import Fold
from holdfast.runtime.fork import CAUSE
from holdfast.runtime.holder import LEASE_MS, this_process
from holdfast.runtime.isolate import CHANGED, LEADS_OUT, Accepted, accept, copy_for
from holdfast.runtime.undo import Workshop, put_back
from holdfast.tools import copying
from holdfast.views.edits import undo_of
from tests.cli.deaths import dies_in

ANN = owner("ann", "cli")
Tree = dict[str, tuple[bytes | str, int]]


def tree(folder: Path) -> Tree:
    """All files and links, each with its content and permissions."""
    return {
        str(path.relative_to(folder)): (str(path.readlink()), 0)
        if path.is_symlink()
        else (path.read_bytes(), path.stat().st_mode & 0o777)
        for path in folder.rglob("*")
        if (path.is_symlink() or path.is_file()) and ".git" not in path.parts
    }


class Desk:
    """A home, a workspace, and a session that works in a copy of it."""

    def __init__(self, folder: Path) -> None:
        self.home: Home = find_home(str(folder / "home"), {})
        self.work = folder / "work"
        self.work.mkdir()
        self.session = ""

    def doing(self, work: Callable[[Workshop], object]) -> None:
        """Do something with the workshop of the home."""

        async def doing() -> None:
            store = open_store(self.home)
            try:
                config = load(self.home, None, {}, {})
                found = work(open_workshop(self.home, store, config, {}))
                if asyncio.iscoroutine(found):
                    self.found = await found
            finally:
                await store.aclose()

        asyncio.run(doing())

    def copied(self) -> Copy:
        """Begin a session in a new copy."""

        async def copied(workshop: Workshop) -> Copy:
            copy = await copy_for(workshop, self.home.folder, None, str(self.work))
            now_ms = SYSTEM_CLOCK.now_ms()
            self.session = f"01JYA{now_ms % 10**13:013d}{random.randrange(10**8):08d}"
            fold = Fold(self.session)
            draft = Draft(fold.state, now_ms, 0, 1, CAUSE)
            draft.add(SessionOpened(self.session, ""))
            settings = settings_with(ModelFacts("script", "x"), copy.folder)
            change_settings(draft, changed(settings, copy_of=copy.origin))
            commit = fold.commit(fold.take(draft), 1, now_ms, releases_lease=True)
            await workshop.store.begin(commit, this_process(), LEASE_MS)
            return copy

        self.doing(copied)
        assert isinstance(self.found, Copy)
        return self.found

    def accepted(self, *skipped: str, allowed: tuple[str, ...] = ()) -> Accepted:
        self.doing(lambda workshop: accept(workshop, self.home.folder, self.session, ANN, allowed, skipped))
        assert isinstance(self.found, Accepted)
        return self.found

    def undone(self) -> None:
        self.doing(
            lambda workshop: put_back(
                workshop, self.session, ANN, "undo", lambda edits, look: undo_of(edits, 1, look)
            )
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    (desk.work / "a.txt").write_text("one\n")
    (desk.work / "gone").write_text("gone\n")
    (desk.work / "d").mkdir()
    (desk.work / "d" / "x").write_text("x\n")
    return desk


def change(folder: Path) -> None:
    (folder / "a.txt").write_text("two\n")
    (folder / "gone").unlink()
    (folder / "new" / "deep").mkdir(parents=True, exist_ok=True)
    (folder / "new" / "deep" / "b").write_text("b\n")
    (folder / "link").symlink_to("a.txt")
    shutil.rmtree(folder / "d")
    (folder / "d").write_text("now a file\n")


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
        desk.undone()
        assert tree(desk.work) == before
        if is_over:
            assert step > 10, "it has steps at which it can die"
            return
    raise AssertionError("it never ends")


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


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
def test_half_a_copy_is_never_taken_for_a_whole_one(desk: Desk, every: int) -> None:
    before = tree(desk.work)
    beside = copies.beside(desk.home.folder)
    for step in range(every, 400, every):
        is_over = dies_in(step, lambda: len(desk.copied().folder) * 0) is not None
        for found in copies.every(desk.home.folder):
            assert tree(Path(found.folder)) == before
            copies.drop(desk.home.folder, found)
        whole = desk.copied()
        assert tree(Path(whole.folder)) == before
        copies.drop(desk.home.folder, whole)
        assert [path.name for path in beside.iterdir()] == []
        if is_over:
            return
    raise AssertionError("it never ends")


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
    word = ".github/workflows/ci.yml"
    assert [each.path for each in desk.accepted(*skipped).problems] == [word]
    assert [each.path for each in desk.accepted(*skipped, allowed=(word,)).done] == [word, "fine", "here"]
    assert not (desk.work / ".git").exists()


def test_a_folder_that_has_the_name_of_a_copy_is_not_taken_for_it(desk: Desk) -> None:
    copy = desk.copied()
    around = Path(copy.folder).parent
    around.rename(around.with_name("elsewhere"))
    Path(copy.folder).mkdir(parents=True)
    assert copies.find(desk.home.folder, copy.folder) is None


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
