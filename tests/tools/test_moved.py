"""What a command changed is undone where its folder is now. A person may rename it while the command runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.cli.doctor import check_commands
from holdfast.config.paths import Home
from holdfast.policy.protected import Own
from holdfast.tools.blocking import Refused
from holdfast.tools.working_off import forgotten
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


def killed(home: str, top: Path, backend: str) -> None:
    """Let a command change something in a process that dies before the command ends."""
    if not (child := os.fork()):
        Command(fences_of(backend, home), top, backend, "s:1").begin()
        changed(top, backend)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@BOTH
@pytest.mark.parametrize("comes", ["nothing", "another workspace"])
def test_what_a_killed_command_changed_waits_until_its_workspace_is_back(
    tmp_path: Path, backend: str, comes: str
) -> None:
    top, home, away = made(tmp_path / "ws", "mine"), str(tmp_path / "home"), tmp_path / "renamed"
    before = {**state(top), "work": "done"}
    killed(home, top, backend)
    top.rename(away)
    fences = fences_of(backend, home)
    told = asyncio.run(fences.put_aside("other", is_first=True))
    assert f"session s was left behind when its Holdfast was killed, and {top} is not there" in told
    assert "`holdfast resume s`" in told
    assert not asyncio.run(fences.put_aside("another", is_first=True)), "it is said once"
    found = [*check_commands(Home(Path(home), Path(home) / "config.toml"))]
    assert ["When that folder is back" in each.hint for each in found] == [True]
    if comes != "nothing":
        other = state(made(top, "of another"))
        again = Command(fences, top, backend, "s:2")
        again.begin()
        (top / ".bashrc").write_text("evil")
        assert again.end().changed == (str(top / ".bashrc"),)
        assert state(top) == other
        shutil.rmtree(top)
    away.rename(top)
    assert str(top) not in asyncio.run(fences_of(backend, home).put_aside("s", is_first=True))
    assert state(top) == before


def test_what_could_not_be_put_back_waits_too(tmp_path: Path) -> None:
    top, home = made(tmp_path / "ws", "mine"), str(tmp_path / "home")
    before = state(top)
    fences = fences_of("landlock", home)
    command = Command(fences, top, "landlock", "s:1")
    command.begin()
    (top / "sub" / ".envrc").write_text("evil")
    subprocess.run(["chattr", "+i", str(top / "sub")], check=False)
    undone = command.end()
    subprocess.run(["chattr", "-i", str(top / "sub")], check=False)
    if not undone.stuck:
        pytest.skip("needs a file system with immutable folders")
    top.rename(tmp_path / "renamed")
    other = state(made(top, "of another"))
    Command(fences, top, "landlock", "s:2")
    assert state(top) == other
    shutil.rmtree(top)
    (tmp_path / "renamed").rename(top)
    Command(fences, top, "landlock", "s:3")
    assert {name: text for name, text in state(top).items() if name in before} == before


def test_a_deleted_session_changes_nothing_in_another_workspace(tmp_path: Path) -> None:
    top, home = made(tmp_path / "ws", "mine"), tmp_path / "home"
    killed(str(home), top, "landlock")
    top.rename(tmp_path / "renamed")
    other = state(made(top, "of another"))
    forgotten(Own(), home, "s")
    assert state(top) == other
    assert not [*(home / "aside").glob("*.json")]


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


@BOTH
def test_no_command_begins_until_what_stayed_is_put_aside(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, fences = made(tmp_path / "ws", "mine"), fences_of(backend, str(tmp_path / "home"))
    command = Command(fences, top, backend, "s:1")
    command.begin()
    (top / ".bashrc").write_text("evil")
    with monkeypatch.context() as patched:
        patched.setattr(
            "os.rename", lambda *_, **__: (_ for _ in ()).throw(OSError(24, "Too many open files"))
        )
        undone = command.end()
        assert (undone.stuck, undone.why) == ((str(top / ".bashrc"),), "Too many open files")
        with pytest.raises(Refused, match=r"could not be put back: .bashrc \(Too many open files\)"):
            Command(fences, top, backend, "s:2")
    Command(fences, top, backend, "s:3")
    assert not (top / ".bashrc").exists()
