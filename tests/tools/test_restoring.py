"""Putting single files back: what changes between the plan and the effect stays as it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import Lapsed
from holdfast.protocol.tools import FileRestore
from holdfast.storage.images import FILES, Images
from holdfast.tools.own import OwnPlaces
from holdfast.tools.restoring import GONE, LINK, Shelf, link_content, look_at, put_back, remove_folders
from holdfast.views.edits import MODE, Place
from tests.faults import Way, failing
from tests.syncs import record_syncs

OWN = OwnPlaces()


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """A shelf that has the content `old`."""
    (tmp_path / "home").mkdir()
    images = Images(tmp_path / "home", SYSTEM_CLOCK)
    images.put("S", b"old")
    return Shelf(images, "S", ("S",))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def goal(shelf: Shelf, work: Path, path: str = "f") -> FileRestore:
    new, old = shelf.images.mark(b"new"), shelf.images.mark(b"old")
    return FileRestore(str(work), path, new, old, 0o644, 0o600)


def test_a_file_gets_its_content_and_mode_and_what_it_replaces_is_kept(shelf: Shelf, work: Path) -> None:
    (work / "f").write_text("new")
    assert put_back(OWN, goal(shelf, work), shelf, lambda: 9, set()) == ""
    assert ((work / "f").read_text(), (work / "f").stat().st_mode & 0o777) == ("old", 0o600)
    assert shelf.content(shelf.images.mark(b"new")) == b"new"
    assert put_back(OWN, goal(shelf, work), shelf, lambda: 9, set()) == ""


def test_a_file_that_changed_after_the_plan_stays(shelf: Shelf, work: Path) -> None:
    (work / "f").write_text("mine")
    assert put_back(OWN, goal(shelf, work), shelf, lambda: 9, set()) != ""
    assert (work / "f").read_text() == "mine"


def test_a_file_that_changes_right_before_it_is_replaced_stays(shelf: Shelf, work: Path) -> None:
    (work / "f").write_text("new")

    def check() -> int:
        (work / "f").write_text("mine")
        return 9

    assert put_back(OWN, goal(shelf, work), shelf, check, set()) != ""
    assert (work / "f").read_text() == "mine"
    assert [path.name for path in work.iterdir()] == ["f"]


def test_nothing_is_put_back_under_a_lease_that_is_over(shelf: Shelf, work: Path) -> None:
    (work / "f").write_text("new")

    def check() -> int:
        raise Lapsed

    with pytest.raises(Lapsed):
        put_back(OWN, goal(shelf, work), shelf, check, set())
    assert (work / "f").read_text() == "new"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "linked folder"])
def test_nothing_but_the_file_itself_is_replaced(shelf: Shelf, work: Path, kind: str) -> None:
    path = "d/f" if kind == "linked folder" else "f"
    (work / "elsewhere").mkdir()
    (work / "elsewhere" / "f").write_text("new")
    match kind:
        case "link":
            (work / "f").symlink_to("elsewhere/f")
        case "pipe":
            os.mkfifo(work / "f")
        case "folder":
            (work / "f").mkdir()
        case "linked folder":
            (work / "d").symlink_to("elsewhere")
    found = look_at(OWN, shelf.images, Place(str(work), path))
    assert found.problem or found.odd
    assert put_back(OWN, goal(shelf, work, path), shelf, lambda: 9, set()) != ""
    assert (work / "elsewhere" / "f").read_text() == "new"


def test_only_empty_folders_that_were_made_are_removed(work: Path) -> None:
    (work / "a" / "b" / "c").mkdir(parents=True)
    removed = FileRestore(str(work), "a/b/c/f", "0" * 64, "", new_folders=2)
    remove_folders(OWN, [removed], lambda: 9)
    assert [path.name for path in work.rglob("*")] == ["a"]


def test_what_was_changed_of_a_kept_file_is_not_put_back(shelf: Shelf, work: Path, tmp_path: Path) -> None:
    (work / "f").write_text("new")
    (tmp_path / "home" / FILES / "S" / shelf.images.mark(b"old")).write_bytes(b"bad")
    assert shelf.content(shelf.images.mark(b"old")) is None
    assert put_back(OWN, goal(shelf, work), shelf, lambda: 9, set()) == GONE
    assert (work / "f").read_text() == "new"


def test_a_file_that_changes_right_before_it_is_removed_stays(shelf: Shelf, work: Path) -> None:
    (work / "f").write_text("new")

    def check() -> int:
        (work / "f").write_text("mine")
        return 9

    removed = FileRestore(str(work), "f", shelf.images.mark(b"new"), "", 0o644)
    assert put_back(OWN, removed, shelf, check, set()) != ""
    assert (work / "f").read_text() == "mine"


def test_what_is_kept_again_is_young_and_its_name_durable(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one to keep it may have died before its name was on the disk."""
    path = tmp_path / "home" / FILES / "S" / shelf.images.mark(b"old")
    os.utime(path, (1, 1))
    syncs = record_syncs(monkeypatch)
    shelf.images.put("S", b"old")
    assert path.stat().st_mtime > 1
    assert [sync.path for sync in syncs if path.name in sync.names] == [path.parent]


def test_a_link_is_put_back_as_a_link_and_what_it_replaces_is_kept(shelf: Shelf, work: Path) -> None:
    (work / "f").write_text("new")
    mark = shelf.images.put("S", link_content("elsewhere"))
    new = shelf.images.mark(b"new")
    assert put_back(OWN, FileRestore(str(work), "f", new, mark, 0o644, LINK), shelf, lambda: 9, set()) == ""
    assert (work / "f").readlink() == Path("elsewhere")
    assert put_back(OWN, FileRestore(str(work), "f", mark, new, LINK, 0o644), shelf, lambda: 9, set()) == ""
    assert (work / "f").read_text() == "new"
    assert [path.name for path in work.iterdir()] == ["f"]


def test_only_the_permissions_change_if_the_content_stays(shelf: Shelf, work: Path) -> None:
    (work / "f").write_text("old")
    old = shelf.images.mark(b"old")
    assert put_back(OWN, FileRestore(str(work), "f", old, old, 0o644, 0o755), shelf, lambda: 9, set()) == ""
    assert ((work / "f").read_text(), (work / "f").stat().st_mode & 0o777) == ("old", 0o755)
    assert put_back(OWN, FileRestore(str(work), "f", old, old, 0o640, 0o600), shelf, lambda: 9, set()) == MODE


def test_a_file_that_cannot_be_written_leaves_no_folder_that_was_made_for_it(
    shelf: Shelf, work: Path
) -> None:
    new = FileRestore(str(work), "a/b/f", "", shelf.images.mark(b"old"), 0, 0o644)
    with failing(work, 1, Way(errno.ENOSPC, ("write",))):
        assert put_back(OWN, new, shelf, lambda: 9, set()) == os.strerror(errno.ENOSPC)
    assert [*work.iterdir()] == []


def test_an_empty_folder_is_removed_also_if_the_disk_fails_once(work: Path) -> None:
    (work / "a" / "b").mkdir(parents=True)
    removed = FileRestore(str(work), "a/b/f", "0" * 64, "", new_folders=2)
    with failing(work, 1, Way(errno.EIO, ("rmdir",))):
        remove_folders(OWN, [removed], lambda: 9)
    assert [*work.iterdir()] == []
