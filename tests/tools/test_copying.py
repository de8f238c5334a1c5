"""Copies of repositories of all kinds: git says the same in the copy, and the copy has nothing that leads back."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.protocol.settings import Walls
from holdfast.runtime import rewind
from holdfast.storage.images import Images
from holdfast.tools import commits
from holdfast.tools.blocking import Refused
from holdfast.tools.copying import changes, copy
from holdfast.tools.fencing import Fences
from holdfast.tools.ignoring import ignoring
from holdfast.tools.own import OwnPlaces


def git(folder: Path, *arguments: str) -> str:
    """What git prints in a folder, without the settings of this machine."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    command = [
        "git",
        "-c",
        "user.name=Ann",
        "-c",
        "user.email=ann@example.com",
        "-c",
        "protocol.file.allow=always",
    ]
    ended = subprocess.run([*command, *arguments], cwd=folder, env=environ, check=True, capture_output=True)
    return ended.stdout.decode()


def usual(folder: Path) -> Path:
    work = folder / "usual"
    work.mkdir(parents=True)
    git(work, "init", "--quiet", "--initial-branch=main")
    (work / "a").write_text("one\n")
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", "first")
    git(work, "branch", "other")
    return work


def worktree(folder: Path) -> Path:
    git(usual(folder), "worktree", "add", "--quiet", str(folder / "tree"), "other")
    return folder / "tree"


def shallow(folder: Path) -> Path:
    git(usual(folder), "clone", "--quiet", "--depth=1", f"file://{folder}/usual", str(folder / "shallow"))
    return folder / "shallow"


def detached(folder: Path) -> Path:
    work = usual(folder)
    git(work, "checkout", "--quiet", "--detach")
    return work


def unborn(folder: Path) -> Path:
    (folder / "unborn").mkdir()
    git(folder / "unborn", "init", "--quiet", "--initial-branch=main")
    return folder / "unborn"


@pytest.mark.parametrize("make", [usual, worktree, shallow, detached, unborn])
def test_git_says_the_same_in_a_copy_of_any_repository(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    work = make(tmp_path)
    (work / "staged").write_text("staged\n")
    git(work, "add", "staged")
    (work / "staged").write_text("and changed\n")
    (work / "new").write_text("new\n")
    (work / ".gitignore").write_text("/:odd\n*.log\n!keep.log\n")
    for name in (":odd", "x.log", "keep.log"):
        (work / name).write_text("x")
    images = Images(tmp_path / "home", SYSTEM_CLOCK)
    (tmp_path / "home").mkdir()
    (tmp_path / "copy").mkdir()
    copied = copy(str(work), tmp_path / "copy", OwnPlaces(), images)
    assert sorted(copied.ignored) == [":odd", "x.log"]
    asked = [("status", "--porcelain"), ("diff", "--cached"), ("symbolic-ref", "--quiet", "HEAD"), ("fsck",)]
    if make is detached:
        asked[2] = ("rev-parse", "HEAD")
    for words in asked:
        assert git(tmp_path / "copy", *words) == git(work, *words)
    config = (tmp_path / "copy" / ".git" / "config").read_text()
    assert "remote" not in config
    assert str(tmp_path) not in config
    assert not (tmp_path / "copy" / ".git" / "objects" / "info" / "alternates").exists()
    shared = [path for path in (tmp_path / "copy").rglob("*") if path.is_file() and path.stat().st_nlink > 1]
    assert shared == []
    assert changes(str(tmp_path / "copy"), copied, images, OwnPlaces()) == []


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("has_git", [True, False])
def test_no_git_that_a_command_has_put_into_the_workspace_copies_it_or_looks_at_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_git: bool
) -> None:
    work, images = usual(tmp_path), Images(tmp_path / "home", SYSTEM_CLOCK)
    (work / ".gitignore").write_text(".venv/\n")
    for path in ("home", "copy", "usual/.venv/bin"):
        (tmp_path / path).mkdir(parents=True)
    (planted := work / ".venv" / "bin" / "git").write_text(
        f'#!/bin/sh\ntouch {tmp_path}/ran\nexec /usr/bin/git "$@"\n'
    )
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted.parent}:{os.environ['PATH']}" if has_git else str(planted.parent))
    copied = copy(str(work), tmp_path / "copy", OwnPlaces(), images)
    (tmp_path / "copy" / "a").write_text("two\n")
    assert "a" in [change.path for change in changes(str(tmp_path / "copy"), copied, images, OwnPlaces())]
    assert commits.new_tips(str(tmp_path / "copy"), str(work), OwnPlaces()) == ()
    assert not (tmp_path / "ran").exists()
    why = ".git: git is not installed, or only where commands could change it"
    assert copied.left_out == (() if has_git else (why,))


def test_git_is_asked_about_thousands_of_names_of_any_kind(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.o\n!a7.o\n")
    names = [f"a{n}.o" for n in range(4_000)] + [":(glob)x", "-n", "new\nline", " ", "!b", "\udce9.o"]
    with ignoring(str(tmp_path), "-n\n") as asked:
        assert asked is not None
        found = asked.of(names)
    assert found == {*names[:4_000], "-n", "\udce9.o"} - {"a7.o"}


def test_a_repository_with_objects_elsewhere_is_refused(tmp_path: Path) -> None:
    git(usual(tmp_path), "clone", "--quiet", "--shared", str(tmp_path / "usual"), str(tmp_path / "borrowing"))
    (tmp_path / "copy").mkdir()
    with pytest.raises(Refused, match="borrows objects"):
        copy(str(tmp_path / "borrowing"), tmp_path / "copy", OwnPlaces(), Images(tmp_path, SYSTEM_CLOCK))


@pytest.mark.requirement("L2")
def test_the_home_of_holdfast_and_what_its_links_lead_to_are_in_no_copy(tmp_path: Path) -> None:
    work = tmp_path / "work"
    for name in ("home/secrets.key", "dotfiles/config.toml", "dotfiles/other"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x")
    (tmp_path / "copy").mkdir()
    own = OwnPlaces((str(work / "home"), str(work / "dotfiles" / "config.toml")))
    copied = copy(str(work), tmp_path / "copy", own, Images(tmp_path, SYSTEM_CLOCK))
    assert [*copied.items] == ["dotfiles/other"]
    found = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert found == {"dotfiles", "dotfiles/other"}


@pytest.mark.requirement("L2", "S14")
@pytest.mark.parametrize("make", [usual, Path])
def test_the_other_name_of_a_secret_file_is_masked_in_a_copy_too(
    tmp_path: Path, make: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, to = make(tmp_path / "work"), tmp_path / "copy"
    images = Images(tmp_path / "home", SYSTEM_CLOCK)
    for path in (tmp_path / "home", to, work / "sub"):
        path.mkdir(parents=True)
    (work / ".gitignore").write_text(".env\n")
    (work / ".env").write_text("the secret\n")
    for name in ("sub/notes", "z"):
        os.link(work / ".env", work / name)
    os.link(work / "z", tmp_path / "outside")
    copied = copy(str(work), to, OwnPlaces(), images)
    assert copied.left_out == ()
    assert changes(str(to), copied, images, OwnPlaces()) == []
    masked = Fences(OwnPlaces(), "/home/nobody").fence(str(to), Walls("bubblewrap")).masked
    assert sorted(masked) == [f"{to}/.env", f"{to}/sub/notes", f"{to}/z"]

    def linked(source: object, target: object) -> None:
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))

    monkeypatch.setattr(os, "link", linked)
    (tmp_path / "full").mkdir()
    copied = copy(str(work), tmp_path / "full", OwnPlaces(), images)
    assert [each.partition(": it cannot become another name of ")[0] for each in copied.left_out] == [
        "z",
        ".env",
    ]
    assert changes(str(tmp_path / "full"), copied, images, OwnPlaces()) == []


@pytest.mark.requirement("L2")
def test_a_folder_that_becomes_a_link_while_it_is_copied_gives_no_file_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a command may do it that runs in the workspace meanwhile."""
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for folder in (work / "sub", elsewhere, tmp_path / "copy"):
        folder.mkdir(parents=True)
    (work / "sub" / "a").write_text("mine")
    (elsewhere / "a").write_text("of somebody else")

    def swapped(folder: str, names: list[str]) -> list[str]:
        if folder == str(work / "sub"):
            (work / "sub").rename(work / "away")
            (work / "sub").symlink_to(elsewhere)
        return []

    monkeypatch.setattr(rewind, "_ignored", lambda own, workspace: swapped)
    with pytest.raises(shutil.Error, match="Not a directory"):
        rewind.copy_folder(OwnPlaces(), work, tmp_path / "copy")
    assert not (tmp_path / "copy" / "sub" / "a").exists()
