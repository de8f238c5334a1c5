"""The key of the marks: without it, nobody can tell which content belongs to which edit, and commands say so."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.storage.images import FILES, KEY
from tests.cli.processes import Cli, calls, says
from tests.cli.test_undo import run, tree, write


def remove(key: Path) -> None:
    key.unlink()


def cut(key: Path) -> None:
    key.write_bytes(key.read_bytes()[:10])


def make_pipe(key: Path) -> None:
    key.unlink()
    os.mkfifo(key)


def make_folder(key: Path) -> None:
    key.unlink()
    key.mkdir()


def make_endless(key: Path) -> None:
    key.unlink()
    key.symlink_to("/dev/zero")


def take_another(key: Path) -> None:
    key.write_bytes(os.urandom(32))


@pytest.fixture
def edited(cli: Cli) -> Path:
    """A workspace after two edits, with one more file that was kept."""
    (cli.workspace / "a.txt").write_text("first\n")
    run(cli, write("a.txt", "second\n"), write("b.txt", "new\n"), says("Done."))
    return cli.workspace


LOST = [remove, cut, make_pipe, make_folder, make_endless]


@pytest.mark.parametrize("lose", [*LOST, take_another])
def test_without_its_key_no_undo_says_that_files_have_changed(
    cli: Cli, edited: Path, lose: Callable[[Path], None]
) -> None:
    key, after = cli.home / FILES / KEY, tree(edited)
    kept = key.read_bytes()
    lose(key)
    for command in (
        ("undo", "cli:edit"),
        ("fork", "cli:edit", "--at", "5", "--copy", str(cli.folder / "copy")),
    ):
        found = cli(*command)
        assert (found.code, str(key) in found.err, "changed since" in found.out) == (9, True, False)
        assert "Restore it from a backup" in found.err
    assert tree(edited) == after
    assert not (cli.folder / "copy").exists()
    checked = cli("fsck")
    assert checked.code == 1
    if lose is not take_another:
        assert f"{key} is gone or was changed" in checked.out
        assert "1 damage" in checked.out
    if key.is_dir() and not key.is_symlink():
        key.rmdir()
    key.unlink(missing_ok=True)
    key.write_bytes(kept)
    assert cli("undo", "cli:edit").code == 0
    assert (edited / "a.txt").read_text() == "first\n"
    assert cli("fsck").code == 0


@pytest.mark.parametrize("lose", LOST)
def test_without_its_key_a_home_takes_no_edit_that_could_not_be_undone(
    cli: Cli, edited: Path, lose: Callable[[Path], None]
) -> None:
    key, after = cli.home / FILES / KEY, tree(edited)
    lose(key)
    model = cli.model(calls("write_file", path="a.txt", content="third\n"), says("Done."))
    found = cli("run", "edit", "-m", model, "-s", "cli:other")
    assert (found.code, str(key) in found.err) == (9, True)
    assert tree(edited) == after


def test_one_changed_file_does_not_make_the_key_another_one(cli: Cli, edited: Path) -> None:
    run(cli, write("c.txt", "c\n"), says("Done."), session="cli:other")
    (kept,) = [path for path in (cli.home / FILES).glob("*/*") if path.read_bytes() == b"c\n"]
    kept.write_text("changed")
    assert cli("undo", "cli:other").code == 0
    assert not (edited / "c.txt").exists()


def test_what_was_kept_and_cannot_be_listed_is_no_bug_of_an_undo(cli: Cli, edited: Path) -> None:
    after = tree(edited)
    (folder,) = [path for path in (cli.home / FILES).iterdir() if path.is_dir()]
    folder.rename(cli.folder / "elsewhere")
    folder.write_text("no folder")
    found = cli("undo", "cli:edit")
    assert (found.code, str(cli.home / FILES) in found.err) == (9, True)
    assert "bug" not in found.err
    assert tree(edited) == after
