"""What a command made that controls other programs is put aside when it has ended."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.tools.aside import put_right, seen, told


def relative(paths: tuple[str, ...], top: Path) -> list[str]:
    return sorted(os.path.relpath(path, top) for path in paths)


@pytest.mark.requirement("L2")
def test_what_is_new_is_put_aside_with_its_content_and_what_was_there_stays(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in (".envrc", ".vscode", ".bashrc")]
    (tmp_path / ".bashrc").write_text("mine")
    before = seen(paths)
    (tmp_path / ".envrc").write_text("evil")
    (tmp_path / ".envrc.put-aside").write_text("older")
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "tasks.json").write_text("evil")
    assert relative(put_right(before, paths), tmp_path) == [".envrc", ".vscode"]
    assert (tmp_path / ".envrc.put-aside").read_text() == "older"
    assert (tmp_path / ".envrc.put-aside-2").read_text() == "evil"
    assert (tmp_path / ".vscode.put-aside" / "tasks.json").read_text() == "evil"
    assert (tmp_path / ".bashrc").read_text() == "mine"
    assert not put_right(seen(paths), paths)


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("how", ["removed", "replaced by a file", "led elsewhere"])
def test_a_link_is_put_back(tmp_path: Path, how: str) -> None:
    link = tmp_path / ".git"
    link.symlink_to("real")
    before = seen([str(link)])
    link.unlink()
    if how == "replaced by a file":
        link.write_text("gitdir: /evil")
    elif how == "led elsewhere":
        link.symlink_to("evil")
    assert put_right(before, [str(link)]) == (str(link),)
    assert link.readlink() == Path("real")


def test_a_link_that_moved_with_its_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".envrc").symlink_to("x")
    before = seen([str(tmp_path / "a" / ".envrc")])
    (tmp_path / "a").rename(tmp_path / "b")
    assert not put_right(before, [str(tmp_path / "b" / ".envrc")])
    assert (tmp_path / "b" / ".envrc").is_symlink()


@pytest.mark.requirement("L2", "S14")
def test_nothing_is_renamed_through_a_link(tmp_path: Path) -> None:
    outside, within = tmp_path / "outside", tmp_path / "ws"
    for folder in (outside, within):
        folder.mkdir()
    (outside / ".envrc").write_text("mine")
    (within / "a").symlink_to(outside)
    assert not put_right({}, [str(within / "a" / ".envrc")])
    assert (outside / ".envrc").read_text() == "mine"


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("change", "aside"),
    [
        ("true", []),
        ("echo x > .git/hooks/pre-commit", [".git/hooks"]),
        ("git config core.fsmonitor ./x", [".git/config"]),
        ("git config include.path ../x", [".git/config"]),
    ],
)
def test_a_new_repository_is_harmless_as_git_makes_it(tmp_path: Path, change: str, aside: list[str]) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["sh", "-c", change], cwd=tmp_path, check=True)
    paths = [str(tmp_path / ".git" / name) for name in ("hooks", "config", "info", "commondir")]
    assert relative(put_right({}, paths), tmp_path) == aside


def test_the_model_reads_what_was_put_aside() -> None:
    assert told((), "/w") == ""
    assert ".envrc, a/.vscode. Commands" in told(("/w/.envrc", "/w/a/.vscode"), "/w")
    assert "and 2 more" in told([f"/w/{number}" for number in range(12)], "/w")
