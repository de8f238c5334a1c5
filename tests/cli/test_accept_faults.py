"""What becomes of an accept, an undo and a discard on a disk that fails, and of what is asked for after that."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.cli.isolate import accepted_lines
from holdfast.errors import StorageError, Unfinished
from holdfast.protocol.tools import FileRestore, KeptFile
from holdfast.runtime import copies
from holdfast.runtime.isolate import Accepted
from holdfast.runtime.undo import PutBack, planned
from holdfast.views.edits import Todo, undo_of
from holdfast.views.lines import Line
from tests.cli.desks import Desk, Tree, change, desk_in, tree
from tests.faults import WAYS, Died, Way, failing


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power fails here, and the real one is slow
    return desk_in(tmp_path)


def into_a_folder(desk: Desk) -> Path:
    """Begin a session in whose copy a file became a folder."""
    copy = Path(desk.copied().folder)
    (copy / "gone").unlink()
    (copy / "gone").mkdir()
    (copy / "gone" / "x").write_text("in\n")
    (copy / "n" / "m").mkdir(parents=True)
    (copy / "n" / "m" / "y").write_text("y\n")
    return copy


def folders(desk: Desk) -> set[str]:
    return {path.name for path in desk.work.rglob("*") if path.is_dir()}


def calls_of(desk: Desk, way: Way) -> int:
    """How many calls of an accept there are at which it can fail. It is undone."""
    with failing(desk.work, 0, way._replace(error=errno.EIO, stays=False)) as count:
        assert desk.accepted().problems == ()
    desk.undone()
    return count.calls


def some(total: int, most: int) -> Sequence[int]:
    return range(2, total + 1, max(1, total // most))


MOST = pytest.mark.parametrize("most", [2, pytest.param(10_000, marks=pytest.mark.long)])


@MOST
def test_a_file_that_becomes_a_folder_is_not_lost_when_the_accept_is_killed(desk: Desk, most: int) -> None:
    before = tree(desk.work)
    into_a_folder(desk)
    for k in some(calls_of(desk, WAYS["kill"]), most):
        after = tree(into_a_folder(desk))
        with failing(desk.work, k, WAYS["kill"]), suppress(Died):
            desk.accepted()
        assert desk.accepted().problems == ()
        assert tree(desk.work) == after, k
        desk.undone()
        assert (tree(desk.work), folders(desk)) == (before, {"d"}), k


@MOST
@pytest.mark.parametrize("way", ["late", "enospc"])
def test_nothing_was_changed_is_said_only_where_nothing_was(desk: Desk, way: str, most: int) -> None:
    before = tree(desk.work)
    change(Path(desk.copied().folder))
    for k in some(calls_of(desk, WAYS[way]), most):
        copy = Path(desk.copied().folder)
        change(copy)
        after = tree(copy)
        with failing(desk.work, k, WAYS[way]):
            problems = desk.accepted().problems
        assert tree(desk.work) == (before if problems else after), k
        if problems:
            assert folders(desk) == {"d"}
            assert desk.accepted().problems == ()
            assert tree(desk.work) == after
        desk.undone()
        assert (tree(desk.work), folders(desk)) == (before, {"d"}), k


def test_a_full_disk_leaves_the_file_and_no_folder_that_was_to_take_its_place(desk: Desk) -> None:
    before = tree(desk.work)
    into_a_folder(desk)
    with failing(desk.work, 1, Way(errno.ENOSPC, ("write",))):
        refused = desk.accepted().problems
    assert [(each.path, each.reason) for each in refused] == [("gone/x", os.strerror(errno.ENOSPC))]
    assert (tree(desk.work), folders(desk)) == (before, {"d"})


@pytest.mark.parametrize("is_completed", [True, False])
def test_what_can_neither_be_accepted_nor_taken_back_is_named_and_stays_open(
    desk: Desk, is_completed: bool
) -> None:
    before = tree(desk.work)
    copy = into_a_folder(desk)
    after = tree(copy)
    full = Way(errno.ENOSPC, ("write",), stays=True)
    with failing(desk.work, 1, full):
        for _ in range(2):
            found = desk.accepted()
            assert (found.done, found.changed) == ((), ("gone",))
            assert {"gone", "gone/x"} <= {each.path for each in found.problems}
        with pytest.raises(Unfinished, match="gone: No space left") as raised:
            desk.undone()
        with pytest.raises(Unfinished, match="gone: No space left"):
            desk.redone()
    assert (raised.value.exit_code, f"holdfast accept {desk.session}" in raised.value.hint) == (1, True)
    if is_completed:
        assert desk.accepted().problems == ()
        assert tree(desk.work) == after
        desk.undone()
    else:
        desk.undone()
        assert isinstance(desk.found, PutBack)
        assert ([each.path for each in desk.found.done], desk.found.kept) == (["gone"], ())
        assert copies.find(desk.home.folder, str(copy)) is not None
    assert (tree(desk.work), folders(desk)) == (before, {"d"})


def dry(desk: Desk) -> list[str]:
    desk.doing(
        lambda workshop: planned(workshop, desk.session, "undo", lambda edits, look: undo_of(edits, 1, look))
    )
    assert isinstance(desk.found, Todo)
    return sorted(each.path for each in desk.found.files)


def test_an_undo_takes_back_an_accept_that_was_cut_off_and_no_step_before_it(desk: Desk) -> None:
    copy = Path(desk.copied().folder)
    before = tree(desk.work)
    change(copy)
    assert desk.accepted("a.txt").problems == ()
    between = tree(desk.work)
    (copy / "a.txt").chmod(0o755)
    (copy / "late").write_text("late\n")
    after = tree(copy)
    with failing(desk.work, 3, Way(0, ("rename", "fsync"))), suppress(Died):
        desk.accepted()
    half = tree(desk.work)
    assert half not in (between, after)
    changed = sorted(path for path in {*half, *between} if half.get(path) != between.get(path))
    assert changed
    assert (dry(desk), tree(desk.work)) == (changed, half)
    desk.undone()
    assert isinstance(desk.found, PutBack)
    assert (sorted(each.path for each in desk.found.done), desk.found.kept) == (changed, ())
    assert tree(desk.work) == between
    assert desk.accepted().problems == ()
    assert tree(desk.work) == after
    for left in (between, before):
        desk.undone()
        assert contents(desk.work) == {path: what for path, (what, _) in left.items()}


def contents(folder: Path) -> dict[str, object]:
    return {path: what for path, (what, _) in tree(folder).items()}


@pytest.mark.parametrize("most", [1, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("way", ["late", "full", "kill"])
def test_an_undo_on_a_disk_that_fails_is_completed_by_the_next_one(desk: Desk, way: str, most: int) -> None:
    before = tree(desk.work)
    copy = into_a_folder(desk)
    after = tree(copy)
    assert desk.accepted().problems == ()
    with failing(desk.work, 0, WAYS[way]._replace(error=errno.EIO, stays=False)) as count:
        desk.undone()
    for k in some(count.calls, most):
        desk.redone()
        assert tree(desk.work) == after, k
        with failing(desk.work, k, WAYS[way]), suppress(Died, Unfinished):
            desk.undone()
        check_each(tree(desk.work), before, after)
        desk.undone()
        assert tree(desk.work) == before, k
        assert folders(desk) == {"d"} or way == "full", "a full disk may keep an empty folder"


def check_each(now: Tree, before: Tree, after: Tree) -> None:
    known = {*before.items(), *after.items()}
    assert [
        path for path, what in now.items() if (path, what) not in known and ".holdfast-" not in path
    ] == []


@pytest.mark.parametrize("most", [3, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_discard_on_a_disk_that_fails_is_completed_by_the_next_one(desk: Desk, most: int) -> None:
    before = tree(desk.work)
    change(Path(desk.copied().folder))
    beside = copies.beside(desk.home.folder)
    with failing(beside, 0, WAYS["eio"]) as count:
        desk.discarded()
    for k in some(count.calls, most):
        copy = Path(desk.copied().folder)
        change(copy)
        after = tree(copy)
        with failing(beside, k, WAYS["eio"]), suppress(StorageError):
            desk.discarded()
        assert not copy.exists() or tree(copy) == after
        desk.discarded()
        assert [*beside.iterdir()] == [], k
        assert [*(desk.home.folder / copies.FOLDER).iterdir()] == [], k
        assert tree(desk.work) == before


def plain(line: Line | str) -> str:
    return (
        line
        if isinstance(line, str)
        else "".join(each if isinstance(each, str) else each.text for each in line)
    )


def test_an_accept_that_is_completed_before_another_is_refused_does_not_say_that_nothing_was_changed() -> (
    None
):
    done = FileRestore("/w", "a.txt", "1", "2")
    refused = KeptFile("b.txt", "it has changed")
    text = [plain(line) for line in accepted_lines(Accepted("S", (done,), (refused,)))]
    assert text[:2] == ["changed  a.txt", "refused  b.txt: it has changed"]
    assert text[2].startswith("Nothing else was changed.")
    assert plain([*accepted_lines(Accepted("S", (), (refused,)))][1]).startswith("Nothing was changed.")
    *_, last = accepted_lines(Accepted("S", (), (refused,), ("b",)))
    assert plain(last).endswith("or take it back with `holdfast undo S`.")


def test_what_an_accept_completes_of_one_that_was_cut_off_is_named_also_if_the_rest_is_refused(
    desk: Desk,
) -> None:
    copy = Path(desk.copied().folder)
    for name in ("a.txt", "gone"):
        (copy / name).write_text("new\n")
    with failing(desk.work, 1, Way(0, ("rename",))), suppress(Died):
        desk.accepted("gone")
    (desk.work / "gone").write_text("mine\n")
    found = desk.accepted()
    assert [each.path for each in found.done] == ["a.txt"]
    assert [each.path for each in found.problems] == ["gone"]
