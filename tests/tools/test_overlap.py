"""Commands that overlap have one baseline: what lay in the workspace before all of them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.doctor import check_commands
from holdfast.config.paths import Home
from holdfast.policy.protected import Own
from holdfast.protocol.fence import Fence, Launch, Undone
from holdfast.protocol.settings import Walls
from holdfast.testing.clock import never_over
from holdfast.tools.blocking import Refused
from holdfast.tools.fencing import Fences
from holdfast.tools.own import OwnPlaces
from holdfast.tools.traces import Traces
from holdfast.tools.working_off import worked_off
from tests.depths import nested

pytestmark = pytest.mark.requirement("L2")

BOTH = pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
RATHER_BUBBLEWRAP = pytest.mark.parametrize(
    "backend", ["bubblewrap", pytest.param("landlock", marks=pytest.mark.long)]
)
RATHER_LANDLOCK = pytest.mark.parametrize(
    "backend", ["landlock", pytest.param("bubblewrap", marks=pytest.mark.long)]
)
"""What is the same with both is shown every day with one of them."""
HOOK = "#!/bin/sh\nexit 0\n"

OTHER = """
    import asyncio, sys
    from tests.tools.test_overlap import Command, fences_of, plant
    backend, home, top, workspace = sys.argv[1:]
    command = Command(fences_of(backend, home), top, backend, "other:1")
    command.begin()
    plant(workspace, backend)
    print("planted", flush=True)
    sys.stdin.readline()
    command.end()
    print("ended", flush=True)
    sys.stdin.readline()
"""
"""Another Holdfast: a command begins, plants something, and ends on a word from here."""


def fences_of(backend: str, home: str) -> Fences:
    Path(home).mkdir(exist_ok=True)
    return Fences(OwnPlaces(), "/nowhere", backend, traces=Traces(Path(home)))  # type: ignore[arg-type]


def plant(workspace: str, backend: str) -> None:
    """Do what a command can do in a sandbox: landlock puts back only afterwards what others prevent."""
    top = Path(workspace)
    (top / ".envrc").write_text("evil")
    (top / "a").mkdir(exist_ok=True)
    (top / "a" / ".envrc").symlink_to("../evil.sh")
    (top / ".git" / "config.worktree").write_text("[core]\n\tfsmonitor = evil\n")
    (top / "coming").write_text("evil")
    if backend == "landlock":
        for name in (".git/hooks/pre-commit", ".git/config", "scripts/push", ".husky/pre-commit"):
            with (top / name).open("a") as file:
                file.write("#evil\n")
        (top / ".vscode/tasks.json").unlink()
        (top / ".bashrc").rename(top / "elsewhere")
        (top / ".bashrc").write_text("evil")
    else:
        (top / "sub/.vscode").unlink()
        (top / "sub/.vscode").symlink_to("../evil")


class Command:
    """A command that does nothing by itself, from its look to its end."""

    def __init__(
        self,
        fences: Fences,
        workspace: str | Path,
        backend: str,
        key: str,
        write: tuple[str, ...] = (),
    ) -> None:
        launch = Launch(("true",), str(workspace), key, {}, 1, 1, never_over)
        walls = Walls(backend, write=write)  # type: ignore[arg-type]
        self._launch = asyncio.run(fences.around(launch, str(workspace), walls))

    @property
    def protected(self) -> tuple[str, ...]:
        assert self._launch.fence is not None
        return self._launch.fence.protected

    def begin(self) -> None:
        self._launch.check()

    def end(self) -> Undone:
        assert self._launch.put_right is not None
        return self._launch.put_right()


def state(workspace: Path) -> dict[str, str]:
    """What is there, without what was put aside."""
    found = {}
    for path in sorted(workspace.rglob("*")):
        name = str(path.relative_to(workspace))
        if ".put-aside" not in name and name not in ("a", "elsewhere"):
            found[name] = (
                f"-> {path.readlink()}" if path.is_symlink() else path.read_text() if path.is_file() else ""
            )
    return found


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    top = tmp_path / "ws"
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    (top / ".git/hooks/pre-commit").write_text(HOOK)
    (top / ".vscode").mkdir()
    (top / ".vscode/tasks.json").write_text("{}")
    (top / ".bashrc").write_text("mine")
    (top / "real").mkdir()
    (top / "sub").mkdir()
    (top / "sub/.vscode").symlink_to("../real")
    (top / "sub/.envrc").symlink_to("../coming")
    (top / "scripts").mkdir()
    (top / "scripts/push").write_text(HOOK)
    (top / ".git/hooks/pre-push").symlink_to("../../scripts/push")
    (top / ".husky").mkdir()
    (top / ".husky/pre-commit").write_text(HOOK)
    subprocess.run(["git", "-C", str(top), "config", "core.hooksPath", ".husky"], check=True)
    return top


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


@contextmanager
def another(backend: str, home: str, top: Path, workspace: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, in which a command runs and has planted something."""
    argv = [sys.executable, "-c", textwrap.dedent(OTHER), backend, home, str(top), str(workspace)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, cwd=Path(__file__).parents[2]) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "planted\n"
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ended\n"


@BOTH
def test_what_one_command_makes_is_not_protected_from_another_one(
    workspace: Path, home: str, backend: str
) -> None:
    """It is put aside when the first one ends. The sandbox of the other would take that for a change, and end it."""
    fences = fences_of(backend, home)
    before = Command(fences, workspace, backend, "s:0").protected
    one = Command(fences, workspace, backend, "s:1")
    one.begin()
    (workspace / ".envrc").write_text("evil")
    (workspace / "a").mkdir()
    (workspace / "a" / ".claude").mkdir()
    for name, target in ((".vscode", "../.vscode"), (".git", "../.git"), (".bashrc", "../.bashrc")):
        (workspace / "a" / name).symlink_to(target)  # what these lead to stays protected
    (workspace / "k").symlink_to(".git")
    assert {*Command(fences, workspace, backend, "s:2").protected} == {*before}
    one.end()
    (workspace / ".envrc").write_text("of a person")
    assert {*Command(fences, workspace, backend, "s:3").protected} == {*before, str(workspace / ".envrc")}


@BOTH
@pytest.mark.parametrize("is_first_to_end", [True, False])
def test_of_two_commands_neither_puts_back_what_the_other_planted(
    workspace: Path, home: str, backend: str, *, is_first_to_end: bool
) -> None:
    before, fences = state(workspace), fences_of(backend, home)
    one, two = Command(fences, workspace, backend, "s:1"), None
    one.begin()
    plant(str(workspace), backend)
    two = Command(fences, workspace, backend, "s:2")
    two.begin()
    first, last = (one, two) if is_first_to_end else (two, one)
    assert first.end().changed
    assert state(workspace) == before
    (workspace / ".envrc").write_text("evil again")
    (workspace / "coming").write_text("evil again")
    if backend == "landlock":
        (workspace / ".git/hooks/pre-commit").write_text("evil again")
        (workspace / ".husky/pre-commit").write_text("evil again")
    assert str(workspace / ".envrc") in last.end().changed
    assert state(workspace) == before
    asyncio.run(fences.put_aside("s", is_first=False))
    assert not list(Path(home, "aside").iterdir())
    assert Command(fences, workspace, backend, "s:3").end() == Undone()


@RATHER_LANDLOCK
def test_commands_of_two_processes_have_one_baseline(workspace: Path, home: str, backend: str) -> None:
    before = state(workspace)
    with another(backend, home, workspace, workspace) as process:
        fences = fences_of(backend, home)
        command = Command(fences, workspace, backend, "s:1")
        command.begin()
        ended(process)
        (workspace / ".envrc").write_text("evil again")
        assert str(workspace / ".envrc") in command.end().changed
    assert state(workspace) == before
    assert not list(Path(home, "aside").glob("*.tmp"))


@RATHER_LANDLOCK
@pytest.mark.requirement("C8")
def test_a_command_beside_one_that_is_killed_leaves_what_was_there_before_both(
    workspace: Path, home: str, backend: str
) -> None:
    before, fences = state(workspace), fences_of(backend, home)
    with another(backend, home, workspace, workspace) as process:
        command = Command(fences, workspace, backend, "s:1")
        command.begin()
        process.kill()
        process.wait()
        late = Command(fences, workspace, backend, "s:2")
        late.begin()
        assert command.end().changed
        assert state(workspace) == before
        (workspace / ".envrc").write_text("evil again")
        assert late.end().changed
    assert state(workspace) == before
    asyncio.run(fences.put_aside("s", is_first=False))
    for session in ("new", "other"):
        asyncio.run(fences.put_aside(session, is_first=True))
    asyncio.run(fences.put_aside("other", is_first=False))
    assert not list(Path(home, "aside").iterdir())


@RATHER_BUBBLEWRAP
@pytest.mark.requirement("C8")
def test_the_next_driver_of_a_home_works_off_what_was_killed_and_leaves_what_lives(
    workspace: Path, home: str, backend: str
) -> None:
    before, fences = state(workspace), fences_of(backend, home)
    with another(backend, home, workspace, workspace) as process:
        assert not asyncio.run(fences.put_aside("new", is_first=True))
        assert (workspace / ".envrc").exists()
        process.kill()
        process.wait()
        said = asyncio.run(fences.put_aside("new", is_first=True))
    assert "of session other was left behind" in said
    assert state(workspace) == before
    assert not asyncio.run(fences.put_aside("newer", is_first=True))
    told = asyncio.run(fences_of(backend, home).put_aside("other", is_first=True))
    assert ".envrc" in told


@RATHER_BUBBLEWRAP
@pytest.mark.requirement("C8")
def test_what_a_process_put_aside_before_it_was_killed_is_told(
    workspace: Path, home: str, backend: str
) -> None:
    (workspace / "earlier.put-aside").write_text("of another day")
    time.sleep(0.1)
    with another(backend, home, workspace, workspace) as process:
        process.kill()
        process.wait()
        (workspace / ".envrc").rename(workspace / ".envrc.put-aside")
        told = asyncio.run(fences_of(backend, home).put_aside("other", is_first=True))
    assert " .envrc, " in told
    assert "earlier" not in told


@RATHER_LANDLOCK
@pytest.mark.requirement("C8")
def test_what_a_killed_command_changed_is_put_right_however_deep_its_folders_are(
    workspace: Path, home: str, backend: str
) -> None:
    (workspace / "deep").mkdir()
    before = state(workspace)
    with another(backend, home, workspace, workspace) as process, nested(workspace / "deep"):
        process.kill()
        process.wait()
        said = asyncio.run(fences_of(backend, home).put_aside("new", is_first=True))
        told = asyncio.run(fences_of(backend, home).put_aside("other", is_first=True))
    assert "of session other was left behind" in said
    assert ".envrc" in told
    assert state(workspace) == before


@RATHER_BUBBLEWRAP
def test_no_command_begins_beside_one_of_another_home(workspace: Path, home: str, backend: str) -> None:
    fences = fences_of(backend, home)
    with another(backend, f"{home}-2", workspace, workspace) as process:
        with pytest.raises(Refused, match="another home"):
            Command(fences, workspace, backend, "s:1")
        ended(process)
        Command(fences, workspace, backend, "s:2").begin()


def test_what_another_command_moves_in_a_moment_is_not_taken_for_what_can_never_be_read(
    workspace: Path, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fences = fences_of("landlock", home)
    filled, here, there = fences._filled, workspace / ".vscode", workspace / "elsewhere"

    def moved(*given: Any) -> Fence:
        fence = filled(*given)
        here.rename(there)
        return fence

    monkeypatch.setattr(fences, "_filled", moved)
    with pytest.raises(Refused, match=r"\.vscode was moved, removed or replaced .* can be called again"):
        Command(fences, workspace, "landlock", "s:1")
    there.rename(here)
    other = Command(fences_of("landlock", f"{home}-2"), workspace, "landlock", "other:1")
    other.begin()
    with pytest.raises(Refused, match=r"another home.* can be called again"):
        Command(fences, workspace, "landlock", "s:2")
    there.rename(here)
    other.end()


@BOTH
def test_a_workspace_that_no_other_command_looks_into_is_not_taken_for_new(
    workspace: Path, home: str, backend: str
) -> None:
    """It lies in a folder of other people's files of the other one's workspace."""
    inner = workspace / "node_modules" / "package"
    (inner / ".vscode").mkdir(parents=True)
    (inner / ".envrc").write_text("mine")
    fences = fences_of(backend, home)
    outer = Command(fences, workspace, backend, "s:1")
    outer.begin()
    command = Command(fences, inner, backend, "s:2")
    command.begin()
    (inner / ".bashrc").write_text("evil")
    assert command.end().changed == (str(inner / ".bashrc"),)
    assert outer.end() == Undone()
    assert (inner / ".envrc").read_text() == "mine"


@BOTH
def test_a_command_with_wider_borders_takes_over_what_a_narrow_one_knows(
    workspace: Path, home: str, backend: str
) -> None:
    top = workspace.parent
    (top / ".bashrc").write_text("mine")
    fences, before = fences_of(backend, f"{top}-home"), state(workspace)
    narrow = Command(fences, workspace, backend, "s:1")
    narrow.begin()
    plant(str(workspace), backend)
    wide = Command(fences, top, backend, "s:2")
    wide.begin()
    assert str(workspace / ".envrc") in wide.end().changed
    assert state(workspace) == before
    assert (top / ".bashrc").read_text() == "mine"
    narrow.end()


@BOTH
def test_a_folder_that_was_known_gets_no_controlling_name(workspace: Path, home: str, backend: str) -> None:
    """What a repository must have as folders is known, and not protected: a command may make and move them."""
    fences = fences_of(backend, home)
    one = Command(fences, workspace, backend, "s:1")
    one.begin()
    for name in ("p1", "p2", "p3"):
        (workspace / name / "info").mkdir(parents=True)
        (workspace / name / "objects").mkdir()
        (workspace / name / "HEAD").touch()
    (workspace / "sub" / ".git").mkdir()
    one.end()
    two = Command(fences, workspace, backend, "s:2")
    two.begin()
    moved = {
        "p1/objects": "a/.vscode",
        "p2/objects": "a/.claude",
        "p3/info": "sub/.git/info",
        "p1/info": "sub/.git/hooks",
    }
    (workspace / "a").mkdir()
    for old, new in moved.items():
        (workspace / new).rmdir() if (workspace / new).exists() else None
        (workspace / old).rename(workspace / new)
        (workspace / new / "attributes").write_text("evil")
    two.end()
    left = {path for path in workspace.rglob("attributes") if ".put-aside" not in str(path)}
    assert not left


def test_what_another_command_moved_away_is_new_if_something_else_comes_there(
    workspace: Path, home: str
) -> None:
    (workspace / "b").mkdir()
    (workspace / "b/.envrc").write_text("mine")
    fences = fences_of("bubblewrap", home)
    one = Command(fences, workspace, "bubblewrap", "s:1")
    one.begin()
    (workspace / "b").rename(workspace / "c")
    two = Command(fences, workspace, "bubblewrap", "s:2")
    two.begin()
    assert one.end() == Undone()
    (workspace / "b").mkdir()
    (workspace / "b/.envrc").write_text("evil")
    assert two.end().changed == (str(workspace / "b/.envrc"),)
    assert (workspace / "c/.envrc").read_text() == "mine"


@BOTH
def test_no_command_begins_where_another_one_could_not_be_undone(
    workspace: Path, home: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, fences = state(workspace), fences_of(backend, home)
    (elsewhere := workspace.parent / "elsewhere").mkdir()
    one = Command(fences, workspace, backend, "s:1")
    one.begin()
    plant(str(workspace), backend)
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.tools.undoing.put_right", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            one.end()
        with pytest.raises(Refused, match=r"an error in Holdfast \(ZeroDivisionError\)"):
            Command(fences, workspace, backend, "s:2")
        Command(fences, elsewhere, backend, "s:3").begin()
    Command(fences, workspace, backend, "s:2").begin()
    assert state(workspace) == before


@RATHER_BUBBLEWRAP
@pytest.mark.requirement("C8")
def test_what_an_error_keeps_from_being_put_right_stops_no_other_workspace(
    workspace: Path, home: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, fences = state(workspace), fences_of(backend, home)
    (elsewhere := workspace.parent / "elsewhere").mkdir()
    with another(backend, home, workspace, workspace) as process:
        process.kill()
        process.wait()
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.tools.undoing.put_right", lambda *_, **__: 1 / 0)
        for session, is_said in (("new", True), ("new", False), ("other", True), ("other", True)):
            said = asyncio.run(fences.put_aside(session, is_first=True))
            assert bool(said) == is_said
            assert not is_said or f"keeps what it changed in {workspace} from being put right" in said
            asyncio.run(fences.put_aside(session, is_first=False))
        assert worked_off(Own(), Path(home), "newer") == []
        for again in (fences, fences_of(backend, home)):  # the process that found it, and a later one
            Command(again, elsewhere, backend, "s:1").begin()
            with pytest.raises(Refused, match=r"an error in Holdfast \(ZeroDivisionError\)"):
                Command(again, workspace, backend, "s:2")
        (finding,) = check_commands(Home(Path(home), Path(home)))
        assert (finding.severity, "ZeroDivisionError" in finding.message) == ("fault", True)
    Command(fences, workspace, backend, "s:2").begin()
    assert state(workspace) == before
    assert not [*check_commands(Home(Path(home), Path(home)))]
    assert ".envrc" in asyncio.run(fences.put_aside("other", is_first=True))
