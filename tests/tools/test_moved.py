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


NESTED = {
    "removed": "rm -rf sub",
    "replaced": "rm -rf sub; mkdir sub; echo evil > sub/.envrc",
    "moved": "mv sub other; mkdir sub; echo evil > sub/.envrc",
}


@pytest.mark.parametrize("how", NESTED)
def test_a_folder_within_another_one_was_moved_by_the_command_itself(tmp_path: Path, how: str) -> None:
    """It is named in `write`, too."""
    top = made(tmp_path / "ws", "mine")
    before = state(top)
    fences = fences_of("landlock", str(tmp_path / "home"))
    command = Command(fences, top, "landlock", "s:1", write=(str(top / "sub"),))
    command.begin()
    subprocess.run(["sh", "-c", NESTED[how]], cwd=top, check=True)
    undone = command.end()
    assert undone.changed
    assert {name: text for name, text in state(top).items() if name in before} == before


def test_a_command_cannot_hide_from_the_next_one_by_replacing_a_folder(tmp_path: Path) -> None:
    top = made(tmp_path / "ws", "mine")
    before = state(top)
    fences = fences_of("landlock", str(tmp_path / "home"))
    write = (str(top / "sub"),)
    first = Command(fences, top, "landlock", "s:1", write=write)
    first.begin()
    subprocess.run(
        ["sh", "-c", "cp -a sub copy; rm -rf sub; mv copy sub; echo evil > .envrc"], cwd=top, check=True
    )
    second = Command(fences, top, "landlock", "s:2", write=write)
    second.begin()
    first.end()
    second.end()
    assert state(top) == before


def test_a_workspace_that_another_command_moved_is_the_same_for_the_next_one(tmp_path: Path) -> None:
    """That one may change the folder above. A person has not put another workspace there."""
    top, fences = made(tmp_path / "work" / "ws", "mine"), fences_of("landlock", str(tmp_path / "home"))
    before = state(top)
    mover = Command(fences, tmp_path / "work", "landlock", "s:1")
    mover.begin()
    within = Command(fences, top, "landlock", "s:2")
    within.begin()
    subprocess.run(
        ["sh", "-c", "cp -a ws copy; mv ws away; mv copy ws; echo evil > ws/.envrc"],
        cwd=top.parent,
        check=True,
    )
    second = Command(fences, top, "landlock", "s:3")
    second.begin()
    for each in (within, mover, second):
        each.end()
    assert state(top) == before
