"""What a command changed is undone where its folder is now. A person may rename it while the command runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.tools.test_overlap import BOTH, Command, fences_of, state

pytestmark = pytest.mark.requirement("L2")


def made(top: Path, content: str) -> Path:
    """Make a workspace."""
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    (top / ".envrc").write_text(content)
    (top / "sub").mkdir()
    (top / "sub" / ".envrc").write_text(content)
    return top


def changed(top: Path, backend: str) -> None:
    """Do what a command can do there."""
    (top / ".bashrc").write_text("evil")
    (top / "work").write_text("done")
    if backend == "landlock":
        (top / ".envrc").write_text("evil")
        (top / "sub").rename(top / "gone")


@BOTH
@pytest.mark.parametrize("comes", ["nothing", "another workspace"])
def test_what_was_changed_is_undone_where_the_workspace_is_now(
    tmp_path: Path, backend: str, comes: str
) -> None:
    top, new = made(tmp_path / "ws", "mine"), tmp_path / "renamed"
    before = {**state(top), "work": "done"}
    command = Command(fences_of(backend, str(tmp_path / "home")), top, backend, "s:1")
    command.begin()
    changed(top, backend)
    top.rename(new)
    if comes != "nothing":
        other = state(made(top, "of another"))
    undone = command.end()
    assert state(new) == before
    assert str(new / ".bashrc") in undone.changed
    assert not undone.stuck
    assert not top.exists() if comes == "nothing" else state(top) == other
    assert not [*top.rglob("*.put-aside*")]


@BOTH
def test_a_workspace_that_is_gone_is_not_made_again(tmp_path: Path, backend: str) -> None:
    top = made(tmp_path / "ws", "mine")
    command = Command(fences_of(backend, str(tmp_path / "home")), top, backend, "s:1")
    command.begin()
    subprocess.run(["rm", "-rf", str(top)], check=True)
    undone = command.end()
    assert (undone.changed, undone.stuck, top.exists()) == ((), (), False)


@BOTH
def test_nothing_of_a_killed_command_is_undone_in_another_workspace_at_its_path(
    tmp_path: Path, backend: str
) -> None:
    top, home = made(tmp_path / "ws", "mine"), str(tmp_path / "home")
    Command(fences_of(backend, home), top, backend, "s:1").begin()
    changed(top, backend)
    top.rename(tmp_path / "renamed")
    other = state(made(top, "of another"))
    again = Command(fences_of(backend, home), top, backend, "s:2")
    again.begin()
    (top / ".bashrc").write_text("evil")
    assert again.end().changed == (str(top / ".bashrc"),)
    assert state(top) == other


@BOTH
def test_what_a_command_holds_open_is_closed_when_it_ends(tmp_path: Path, backend: str) -> None:
    top = made(tmp_path / "ws", "mine")
    fences = fences_of(backend, str(tmp_path / "home"))

    def descriptors() -> int:
        return len([*Path("/proc/self/fd").iterdir()])

    before = descriptors()
    command = Command(fences, top, backend, "s:1")
    assert descriptors() == before
    command.begin()
    assert descriptors() > before
    command.end()
    assert descriptors() == before
