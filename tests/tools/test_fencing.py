"""The fence of a command: built from what the workspace has in it at that moment."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.policy.protected import Own
from holdfast.protocol.fence import Backend, Fence, Finding, Launch, Undone, Walled
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import ToolCall
from holdfast.protocol.ports import Proposal
from holdfast.protocol.settings import Policy, Walls, changed, settings_with
from holdfast.protocol.tools import Allowed, Asked
from holdfast.protocol.trust import Mark, Taint
from holdfast.sandbox import bubblewrap, landlock
from holdfast.sandbox.bubblewrap import Bubblewrap
from holdfast.sandbox.process import Processes
from holdfast.sandbox.system import SYSTEM
from holdfast.testing.clock import never_over
from holdfast.tools import fencing, folders
from holdfast.tools.background import Background
from holdfast.tools.blocking import Refused
from holdfast.tools.builtin import Rooms, built_in, make_tools
from holdfast.tools.fencing import STARTING, Fences
from holdfast.tools.files import ReadFile
from holdfast.tools.own import OwnPlaces, own_places
from holdfast.tools.page import Pages
from holdfast.tools.shell import Shell
from holdfast.tools.traces import Traces
from tests.tools.ordinary import as_an_ordinary_user

WALLS = Walls("bubblewrap")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def fences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fences:
    monkeypatch.setattr(fencing, "git_identity", str)
    return Fences(OwnPlaces((str(tmp_path / "home" / ".holdfast"),)), str(tmp_path / "home"))


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("way", ["files", "links that lead nowhere", "none"])
def test_what_controls_git_is_protected_beside_every_head(fences: Fences, workspace: Path, way: str) -> None:
    touch(workspace / "sub" / "HEAD", workspace / "sub" / "config", workspace / "sub" / "hooks" / "x")
    for name in ("objects", "refs") if way != "none" else ():
        place = workspace / "sub" / name
        place.touch() if way == "files" else place.symlink_to(f"../{name}")
    assert within(workspace, fences.fence(str(workspace), WALLS).protected) == ["sub/config", "sub/hooks"]


def test_a_chain_of_links_longer_than_a_stack_stops_no_command(fences: Fences, workspace: Path) -> None:
    (workspace / ".env").symlink_to("l0")
    for number in range(1_100):
        (workspace / f"l{number}").symlink_to(f"l{number + 1}")
    assert fences.fence(str(workspace), WALLS).masked == ()


@pytest.mark.requirement("L2")
def test_git_folders_of_submodules_and_worktrees_have_places_of_their_own(
    fences: Fences, workspace: Path
) -> None:
    git = workspace / ".git"
    folders = [
        git / "modules" / "libs" / "a",
        git / "worktrees" / "w",
        git / "modules" / "b" / "modules" / "c",
    ]
    for folder in folders:
        touch(folder / "HEAD", folder / "config", folder / "index", folder / "objects" / "HEAD")
    assert within(workspace, fences.fence(str(workspace), WALLS).protected) == [
        ".git/modules/b/modules/c/config", ".git/modules/libs/a/config", ".git/worktrees/w/config"
    ]  # fmt: skip


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def within(workspace: Path, paths: tuple[str, ...]) -> list[str]:
    return sorted(os.path.relpath(path, workspace) for path in paths)


@pytest.mark.requirement("L2", "S14")
def test_secret_files_are_masked_and_controlling_ones_protected_at_any_depth(
    fences: Fences, workspace: Path
) -> None:
    secret = [".env", "a/b/.env.local", "conf/server.key", "a/.ssh/config", "x/.docker/config.json"]
    fixed = [".git/hooks/pre-push", ".git/config", ".vscode/tasks.json", "a/.envrc", "a/b/c/.git/config"]
    touch(*(workspace / path for path in (*secret, *fixed, ".env.example", "src/main.py", ".git/index")))
    fence = fences.fence(str(workspace), WALLS)
    assert within(workspace, fence.masked) == [
        ".env", "a/.ssh", "a/b/.env.local", "conf/server.key", "x/.docker/config.json"
    ]  # fmt: skip
    assert within(workspace, fence.protected) == [
        ".git/config", ".git/hooks", ".vscode", "a/.envrc", "a/b/c/.git/config"
    ]  # fmt: skip
    assert fence.writable == (str(workspace),)


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("setting", ["", "read", "write"])
def test_the_sockets_of_programs_outside_are_masked_and_pipes_are_not(
    fences: Fences, workspace: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """Also in what the settings name."""
    top = workspace.parent / "more" if setting else workspace
    (top / "a").mkdir(parents=True)
    monkeypatch.chdir(top)  # the path of a socket may have a hundred bytes
    walls = replace(WALLS, **{setting: (str(top),)}) if setting else WALLS
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("a/agent")
        os.mkfifo("a/pipe")
        Path("link").symlink_to("a/agent")
        assert within(top, fences.fence(str(workspace), walls).masked) == ["a/agent"]


@pytest.mark.requirement("L2")
def test_a_link_to_a_secret_file_masks_what_it_leads_to(fences: Fences, workspace: Path) -> None:
    touch(workspace / "settings.txt")
    (workspace / ".env").symlink_to("settings.txt")
    assert within(workspace, fences.fence(str(workspace), WALLS).masked) == ["settings.txt"]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("change", "masked", "protected"),
    [
        (lambda top: touch(top / "deep" / "er" / ".env"), ["deep/er/.env"], []),
        (lambda top: (top / "deep" / "er").rename(top / "moved"), [], []),
        (lambda top: touch(top / ".git" / "hooks" / "pre-push"), [], [".git/hooks"]),
        (lambda top: touch(top / "deep" / "er" / "id_rsa"), ["deep/er/id_rsa"], []),
        (lambda top: (top / "deep" / "er" / "plain").rename(top / "deep" / "er" / ".env"), ["deep/er/.env"], []),
    ],
    ids=["a new file", "a folder that moved", "new hooks", "a new key", "a file with a new name"],
)  # fmt: skip
def test_each_command_gets_a_fence_of_what_is_there_now(
    fences: Fences,
    workspace: Path,
    change: Callable[[Path], object],
    masked: list[str],
    protected: list[str],
) -> None:
    touch(workspace / "deep" / "er" / "plain", workspace / ".git" / "index")
    before = fences.fence(str(workspace), WALLS)
    assert (before.masked, before.protected) == ((), ())
    change(workspace)
    after = fences.fence(str(workspace), WALLS)
    assert (within(workspace, after.masked), within(workspace, after.protected)) == (masked, protected)


def test_folders_that_did_not_change_are_not_read_again(
    fences: Fences, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(*(workspace / f"f{number % 100}" / f"{number}.py" for number in range(1000)))
    read = reads(monkeypatch)
    monkeypatch.setattr(folders, "is_fresh", lambda *_: False)  # as long after all these changes
    fences.fence(str(workspace), WALLS)
    assert len(read) == 101
    read.clear()
    touch(workspace / "f7" / "new.py")
    fences.fence(str(workspace), WALLS)
    assert within(workspace, tuple(read)) == ["f7"]


def test_folders_of_other_peoples_files_are_not_read(fences: Fences, workspace: Path) -> None:
    touch(workspace / "node_modules" / "x" / ".env", workspace / ".venv" / "lib" / "cacert.pem")
    assert fences.fence(str(workspace), WALLS) == Fence(
        writable=(str(workspace),), private=(str(workspace.parent / "home"),)
    )


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("place", [".", "home", "home/.holdfast/..", "/"])
def test_no_command_runs_where_holdfasts_own_files_or_a_home_are(
    fences: Fences, tmp_path: Path, place: str
) -> None:
    (tmp_path / "home" / ".holdfast").mkdir(parents=True)
    with pytest.raises(Refused, match="No command runs in a sandbox in this workspace"):
        fences.fence(str((tmp_path / place).resolve()), WALLS)


def test_a_workspace_with_more_files_than_can_be_looked_at_is_refused(
    fences: Fences, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(*(workspace / str(number) for number in range(20)))
    monkeypatch.setattr(folders, "MAX_ENTRIES", 19)
    with pytest.raises(Refused, match="more than 19 files"):
        fences.fence(str(workspace), WALLS)


def test_what_the_configuration_names_is_shown_with_its_links_followed(
    fences: Fences, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "real").mkdir()
    (tmp_path / "tools").symlink_to("real")
    fence = fences.fence(str(workspace), Walls("bubblewrap", ("~/tools",), ("/srv/data",)))
    assert fence.readable == (str(tmp_path / "real"),)
    assert fence.writable == (str(workspace), "/srv/data")


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    "link",
    [".envrc", ".vscode", "x/.git/hooks", "x/.git/objects", "x/.config/fish", "x/.git", ".m2/settings.xml"],
)
@pytest.mark.parametrize("is_relative", [False, True])
def test_a_link_with_a_controlling_name_shows_no_command_where_it_leads(
    fences: Fences, workspace: Path, tmp_path: Path, link: str, *, is_relative: bool
) -> None:
    touch(*(tmp_path / "home" / name for name in ("notes", "config", "hooks", "info")))
    place = workspace / link
    place.parent.mkdir(parents=True, exist_ok=True)
    home = tmp_path / "home"
    place.symlink_to(os.path.relpath(home, place.parent) if is_relative else home)
    fence = fences.fence(str(workspace), WALLS)
    assert fence.protected == ()
    assert fence.readable == ()
    assert fence.writable == (str(workspace),)


@pytest.mark.requirement("L2")
def test_what_a_link_with_a_controlling_name_leads_to_is_protected_in_the_workspace(
    fences: Fences, workspace: Path
) -> None:
    touch(workspace / "tools" / "hooks" / "pre-push", workspace / ".git" / "index")
    (workspace / ".git" / "hooks").symlink_to("../tools/hooks")
    (workspace / "tools" / ".vscode").symlink_to("..")
    assert within(workspace, fences.fence(str(workspace), WALLS).protected) == ["tools/hooks"]


def test_a_link_masks_where_it_leads_now(
    fences: Fences, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "is_fresh", lambda *_: False)  # as long after all these changes
    touch(workspace / "deep" / "v1" / "settings", workspace / "deep" / "v2" / "settings")
    now = workspace / "deep" / "now"
    now.symlink_to("v1")
    (workspace / ".env").symlink_to("deep/now/settings")
    assert within(workspace, fences.fence(str(workspace), WALLS).masked) == ["deep/v1/settings"]
    now.unlink()
    now.symlink_to("v2")
    assert within(workspace, fences.fence(str(workspace), WALLS).masked) == ["deep/v2/settings"]
    (workspace / "deep" / "v2" / "settings").unlink()
    assert fences.fence(str(workspace), WALLS).masked == ()


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("target", ["missing", "no/folder", "/etc/missing", "/usr", "/", ".", "..", ".env"])
def test_a_link_masks_nothing_that_is_not_there_or_that_holds_the_workspace(
    fences: Fences, workspace: Path, target: str
) -> None:
    (workspace / ".env").symlink_to(target)
    assert fences.fence(str(workspace), WALLS).masked == ()


@pytest.mark.requirement("L2")
def test_what_controls_programs_is_protected_in_each_folder_that_may_be_written(
    fences: Fences, workspace: Path, tmp_path: Path
) -> None:
    touch(*(tmp_path / "main" / ".git" / name for name in ("hooks/pre-push", "config", "index")))
    touch(tmp_path / "other" / "deep" / ".envrc")
    fence = fences.fence(
        str(workspace), Walls("bubblewrap", (), (f"{tmp_path}/main/.git", f"{tmp_path}/other"))
    )
    assert within(tmp_path, fence.protected) == ["main/.git/config", "main/.git/hooks", "other/deep/.envrc"]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("is_named", [False, True], ids=["the workspace", "write"])
def test_a_folder_that_cannot_be_read_is_masked(fences: Fences, workspace: Path, *, is_named: bool) -> None:
    """Also in what the settings let commands change."""
    top = workspace.parent / "more" if is_named else workspace
    walls = replace(WALLS, write=(str(top),)) if is_named else WALLS
    touch(top / "shut" / ".env", workspace / "x")
    with as_an_ordinary_user(workspace.parent):
        (top / "shut").chmod(0o111)
        masked = fences.fence(str(workspace), walls).masked
        (top / "shut").chmod(0o755)
    assert within(top, masked) == ["shut"]


@pytest.mark.requirement("L2")
def test_a_workspace_with_a_folder_that_is_too_deep_to_be_read_is_refused(
    fences: Fences, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    for _ in range(25):
        Path("d" * 200).mkdir()
        os.chdir("d" * 200)
    Path(".env").write_text("x")
    with pytest.raises(Refused, match="cannot be read"):
        fences.fence(str(workspace), WALLS)


def test_folders_that_are_gone_are_not_remembered_for_ever(
    fences: Fences, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "is_fresh", lambda *_: False)
    for number in range(50):
        folder = workspace / str(number)
        touch(folder / "x")
        fences.fence(str(workspace), WALLS)
        (folder / "x").unlink()
        folder.rmdir()
    assert sum(map(len, fences._folders._known.values())) <= 10


def test_what_is_remembered_has_a_bound_and_is_not_forgotten_when_it_is_reached(
    fences: Fences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "is_fresh", lambda *_: False)
    monkeypatch.setattr(folders, "_MOST_FOLDERS", 10)
    monkeypatch.setattr(folders, "_MOST_TOPS", 2)
    tops = [tmp_path / f"w{number}" for number in range(4)]
    touch(*(top / str(number) / "x" for top in tops for number in range(19)))
    for top in tops:
        fences.fence(str(top), WALLS)
    assert [len(known) for known in fences._folders._known.values()] == [10, 10]
    read = reads(monkeypatch)
    fences.fence(str(tops[-1]), WALLS)
    assert len(read) == 10


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read: list[str] = []
    real = folders._read
    monkeypatch.setattr(folders, "_read", lambda path, *more: read.append(path) or real(path, *more))
    return read


def test_a_look_takes_each_folder_once_from_a_queue(
    fences: Fences, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counted(deque[tuple[str, int | None]]):
        taken = 0

        def popleft(self) -> tuple[str, int | None]:
            Counted.taken += 1
            return super().popleft()

    touch(*(workspace / f"f{number}" / "x" for number in range(50)))
    monkeypatch.setattr(
        folders, "deque", Counted
    )  # from the begin of a list, it would take the square of the time
    fences.fence(str(workspace), WALLS)
    fences._look((str(workspace),), 0, closed=())
    assert Counted.taken == 2 * 51


async def test_a_command_looks_at_each_folder_once_before_it_starts_and_once_afterwards(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(*(workspace / f"f{number}" / "x" for number in range(20)))
    fences = Fences(OwnPlaces(), str(tmp_path / "home"), "bubblewrap")
    looked: list[str] = []
    real = folders._looked_at
    monkeypatch.setattr(folders, "_looked_at", lambda path, *more: looked.append(path) or real(path, *more))
    launch = await fences.around(LAUNCH, str(workspace), WALLS)
    assert len(looked) == 21
    assert launch.put_right is not None
    launch.check()
    launch.put_right()
    assert len(looked) == 42


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("mode", [0o311, 0o644, 0o000])
async def test_a_folder_that_a_command_closes_is_opened_again_and_looked_into(
    fences: Fences, tmp_path: Path, workspace: Path, mode: int
) -> None:
    """A shell runs what it finds there by its name, whether or not anybody can list the folder."""
    touch(workspace / "old" / "x")
    with as_an_ordinary_user(tmp_path):
        (workspace / "old").chmod(mode)
        launch = await fences.around(LAUNCH, str(workspace), WALLS)
        launch.check()
        touch(workspace / "new" / "deep" / ".envrc")
        (workspace / "new" / "deep").chmod(mode)
        (workspace / "new").chmod(mode)
        assert launch.put_right is not None
        assert within(workspace, launch.put_right().changed) == ["new", "new/deep", "new/deep/.envrc"]
        assert stat.S_IMODE((workspace / "new").stat().st_mode) == mode | 0o700
        assert stat.S_IMODE((workspace / "old").stat().st_mode) == mode
        assert [path.name for path in (workspace / "new" / "deep").iterdir()] == [".envrc.put-aside"]


@pytest.mark.requirement("L2", "S14")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("closed", [".git", ".git/objects", "sub", "more/.git", ".hg"])
async def test_closing_a_folder_takes_no_protection_from_what_is_in_it(
    backend: Backend, tmp_path: Path, workspace: Path, closed: str
) -> None:
    """What nobody can look at is not gone."""
    parts = (".git/config", ".git/objects/info/x", "sub/.envrc", "more/.git/config", ".hg/hgrc")
    touch(*(workspace / part for part in parts))
    fences = Fences(OwnPlaces(), str(tmp_path / "home"), backend)
    walls = Walls(backend, (), (f"{workspace}/more",))
    with as_an_ordinary_user(tmp_path):
        launch = await fences.around(LAUNCH, str(workspace), walls)
        assert launch.fence is not None
        protected = launch.fence.protected
        launch.check()
        (workspace / closed).chmod(0)
        shut = fences.fence(str(workspace), walls)  # of another command that begins now
        assert f"{workspace}/{closed}" in (*shut.masked, *shut.protected)
        assert launch.put_right is not None
        assert f"{workspace}/{closed}" in launch.put_right().changed
        assert fences.fence(str(workspace), walls).protected == protected


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("closed", [".git", "more/.git"])
async def test_what_comes_into_a_closed_git_folder_is_put_aside(
    fences: Fences, tmp_path: Path, workspace: Path, closed: str
) -> None:
    touch(*(workspace / path / "config" for path in (".git", "more/.git")))
    walls = replace(WALLS, write=(f"{workspace}/more",))
    with as_an_ordinary_user(tmp_path):
        launch = await fences.around(LAUNCH, str(workspace), walls)
        launch.check()
        touch(workspace / closed / "config.worktree")
        (workspace / closed).chmod(0)
        assert launch.put_right is not None
        assert within(workspace, launch.put_right().changed) == [closed, f"{closed}/config.worktree"]
        assert sorted(path.name for path in (workspace / closed).iterdir()) == [
            "config", "config.worktree.put-aside"
        ]  # fmt: skip


@pytest.mark.requirement("L2")
async def test_a_folder_that_was_closed_and_that_a_command_opened_for_a_while_is_put_aside_as_a_whole(
    fences: Fences, tmp_path: Path, workspace: Path
) -> None:
    """Landlock cannot keep a command from opening it."""
    touch(workspace / "shut" / "x", workspace / "other" / "x")
    with as_an_ordinary_user(tmp_path):
        for each in ("shut", "other"):
            (workspace / each).chmod(0)
        launch = await fences.around(LAUNCH, str(workspace), WALLS)
        launch.check()
        await asyncio.sleep(0.02)  # the clock of the file system is coarse
        (workspace / "shut").chmod(0o755)
        touch(workspace / "shut" / ".envrc")
        (workspace / "shut").chmod(0)
        assert launch.put_right is not None
        assert within(workspace, launch.put_right().changed) == ["shut"]
        assert sorted(path.name for path in workspace.iterdir()) == ["other", "shut.put-aside"]


@pytest.mark.requirement("L2")
async def test_a_folder_with_a_path_that_is_too_long_does_not_keep_what_a_command_made(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fences = Fences(OwnPlaces(), str(tmp_path / "home"), "bubblewrap")
    launch = await fences.around(LAUNCH, str(workspace), WALLS)
    launch.check()
    monkeypatch.chdir(workspace)
    for _ in range(25):
        Path("d" * 200).mkdir()
        os.chdir("d" * 200)
    touch(workspace / ".envrc", workspace / "e" / ".vscode" / "tasks.json")
    assert launch.put_right is not None
    envrc, deep, vscode = within(workspace, launch.put_right().changed)
    assert (envrc, vscode) == (".envrc", "e/.vscode")
    assert deep.startswith("ddd")  # nobody can look into what is below it


@pytest.mark.requirement("C8", "L2")
async def test_a_command_that_never_began_leaves_no_open_file_and_touches_nothing(
    tmp_path: Path, workspace: Path
) -> None:
    """Its lease has lapsed, or its trace cannot be stored."""
    home = tmp_path / "own"
    home.mkdir()
    (home / "aside").touch()
    touch(workspace / ".git" / "config", workspace / "a" / ".envrc")
    fences = Fences(OwnPlaces(), str(tmp_path / "home"), "landlock", traces=Traces(home))
    opened = len(list(Path("/proc/self/fd").iterdir()))
    walls = Walls("landlock")
    for _ in range(5):
        launch = await fences.around(LAUNCH, str(workspace), walls)
        touch(workspace / "b" / ".envrc")
        with pytest.raises(OSError, match="aside"):
            launch.check()
        assert launch.put_right is not None
        assert launch.put_right() == Undone()
    assert (workspace / "b" / ".envrc").exists()
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_a_folder_whose_name_is_no_text_keeps_no_command_from_running(
    backend: Backend, tmp_path: Path, workspace: Path
) -> None:
    touch(workspace / os.fsdecode(b"\xff") / ".envrc")
    fences = Fences(OwnPlaces(), str(tmp_path / "home"), backend, traces=Traces(tmp_path))
    launch = await fences.around(LAUNCH, str(workspace), Walls(backend))
    launch.check()
    assert launch.put_right is not None
    assert launch.put_right() == Undone()
    assert not list((tmp_path / "aside").iterdir())


@pytest.mark.requirement("L2", "S7")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_a_key_in_the_workspace_is_masked_and_keeps_no_command_from_running(
    backend: Backend, tmp_path: Path, workspace: Path
) -> None:
    touch(workspace / "mykey", tmp_path / "beside" / "mykey")
    os.link(workspace / "mykey", workspace / "hard")
    own = own_places(Own(keys=(str(workspace / "mykey"), str(tmp_path / "beside" / "mykey"))))
    fences = Fences(own, str(tmp_path / "home"), backend, traces=Traces())
    launch = await fences.around(LAUNCH, str(workspace), Walls(backend))
    assert launch.fence is not None
    assert within(workspace, launch.fence.masked) == ["hard", "mykey"]
    launch.check()
    (workspace / "mykey").unlink()
    assert launch.put_right is not None
    assert launch.put_right().changed == ((str(workspace / "mykey"),) if backend == "landlock" else ())
    read = Walls(backend, read=(str(tmp_path / "beside"),))
    assert within(tmp_path, fences.fence(str(workspace), read).masked)[0] == "beside/mykey"


@pytest.mark.requirement("C12", "L2", "S7")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_what_is_ours_or_the_users_is_hidden_also_in_a_folder_of_the_system(
    backend: Backend, tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may have its homes in `/opt`."""
    opt = tmp_path / "opt"
    hidden = [opt / "own" / "holdfast.db", opt / "keys" / "mykey", opt / "user" / "notes"]
    touch(*hidden, opt / "tool", opt / "user" / "python" / "x")
    for module in ("system", "bubblewrap", "landlock"):
        monkeypatch.setattr(f"holdfast.sandbox.{module}.SYSTEM", (*SYSTEM, str(opt)))
    made = landlock.make() if backend == "landlock" else bubblewrap.make()
    if isinstance(made, Finding):
        pytest.skip(f"no {backend} on this machine")
    sandbox = type(made)(7 if backend == "landlock" else "/usr/bin/bwrap")  # type: ignore[arg-type]
    own = own_places(Own((str(opt / "own"),), keys=(str(opt / "keys" / "mykey"),)))
    fences, processes = Fences(own, str(opt / "user"), backend), Processes(sandbox)
    command = (
        "cat opt/tool 2> /dev/null; cat opt/user/python/x; cat opt/own/* opt/keys/mykey; cat opt/user/notes"
    )
    argv = ("/bin/bash", "-c", command.replace("opt/", f"{opt}/"))
    fence = fences.fence(str(workspace), Walls(backend), readable=(str(opt / "user" / "python"),))
    launch = replace(LAUNCH, argv=argv, cwd=str(workspace), key="test:opt", fence=fence)
    try:
        ended = await processes.run(launch, lambda _: None)
    finally:
        await processes.aclose()
    # Bubblewrap has a folder of its own in the place of the one for temporary files, in which this `opt` lies.
    shown, _, rest = ended.output.partition("cat: ")
    assert (shown, rest.count("cat: ")) == ("xx" if backend == "landlock" else "x", 2), ended.output
    assert ended.output.count("Permission denied") == (3 if backend == "landlock" else 2), ended.output


def test_the_limits_of_the_configuration_are_those_of_the_fence(fences: Fences, workspace: Path) -> None:
    walls = Walls("bubblewrap", memory_bytes=1 << 28, file_bytes=1 << 21, processes=9, cpu_s=7)
    fence = fences.fence(str(workspace), walls)
    assert (fence.memory_bytes, fence.file_bytes) == (1 << 28, 1 << 21)
    assert (fence.processes, fence.cpu_s) == (9, 7)


# --- what a call's intent records ---------------------------------------------------------------


LAUNCH = Launch(("true",), "/", "s:t1.c1", {}, 60.0, 60.0, never_over)


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(("walls", "process"), [(WALLS, "unsafe"), (Walls(), "bubblewrap")])
async def test_a_call_runs_in_the_fence_that_its_intent_records_if_the_run_or_the_process_has_a_sandbox(
    tmp_path: Path, workspace: Path, walls: Walls, process: Backend
) -> None:
    fences = Fences(OwnPlaces(), str(tmp_path / "home"), process)
    shell = Shell(Background(), fences)
    walled = await fences.recorded(shell, str(workspace), walls)
    assert walled is not None
    assert walled.backend == "bubblewrap"
    touch(workspace / ".env")  # what is masked is looked up at the start
    launch = await fences.around(LAUNCH, str(workspace), walls, walled)
    assert launch.fence is not None
    assert launch.fence.masked == (str(workspace / ".env"),)
    assert await fences.recorded(ReadFile(OwnPlaces()), str(workspace), walls) is None


@pytest.mark.requirement("L2")
async def test_a_call_without_a_sandbox_records_that_too(tmp_path: Path, workspace: Path) -> None:
    fences = Fences(OwnPlaces(), str(tmp_path / "home"), "unsafe")
    assert await fences.recorded(Shell(Background(), fences), str(workspace), Walls()) == Walled(
        "unsafe", "", "all"
    )
    assert await fences.recorded(ReadFile(OwnPlaces()), str(workspace), Walls()) is None


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(("asked", "found"), [("bubblewrap", "landlock"), ("landlock", "bubblewrap")])
async def test_no_other_sandbox_takes_the_place_of_the_one_that_a_session_names(
    tmp_path: Path, workspace: Path, asked: Backend, found: Backend
) -> None:
    fences, walls = Fences(OwnPlaces(), str(tmp_path / "home"), found), Walls(backend=asked)
    shell = Shell(Background(), fences)
    with pytest.raises(Refused, match=f"in {asked}, and this process in {found}"):
        await fences.recorded(shell, str(workspace), walls)
    with pytest.raises(Refused, match=f"in {asked}, and this process in {found}"):
        await fences.around(LAUNCH, str(workspace), walls)
    walled = await fences.recorded(shell, str(workspace), Walls(backend="auto"))
    assert walled is not None
    assert walled.backend == found


@pytest.mark.requirement("L2")
async def test_a_call_does_not_run_in_another_fence_than_its_intent_records(
    fences: Fences, workspace: Path, tmp_path: Path
) -> None:
    shown, other = tmp_path / "shown", tmp_path / "other"
    other.mkdir()
    (tmp_path / "link").symlink_to(shown)
    walls = replace(WALLS, write=(str(tmp_path / "link"),))
    walled = await fences.recorded(Shell(Background(), fences), str(workspace), walls)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(other)
    with pytest.raises(Refused, match="have changed since the call was allowed"):
        await fences.around(LAUNCH, str(workspace), walls, walled)


@pytest.mark.requirement("L2")
async def test_a_call_reaches_hosts_only_if_its_intent_records_a_network(
    fences: Fences, workspace: Path
) -> None:
    shell, hosts = Shell(Background(), fences), ("a.example",)
    cut = await fences.recorded(shell, str(workspace), WALLS)
    led = await fences.recorded(shell, str(workspace), WALLS, hosts)
    assert cut is not None
    assert led is not None
    assert (cut.network, led.network, cut.digest == led.digest) == ("none", "proxy", False)
    for walled, reached in ((cut, ()), (led, hosts)):
        launch = await fences.around(LAUNCH, str(workspace), WALLS, walled, hosts=hosts)
        assert launch.fence is not None
        assert launch.fence.hosts == reached


@pytest.mark.requirement("L2", "C14")
async def test_a_person_sees_what_a_command_may_reach_and_untrusted_text_cuts_it_off(workspace: Path) -> None:
    tools = make_tools(
        secret_in=lambda text: "", own=Own(), rooms=Rooms(sandbox=Bubblewrap("/usr/bin/bwrap"))
    )
    policy = Policy(walls=WALLS, allowed_hosts=("a.example",))
    settings = settings_with(ModelFacts("script", "x"), str(workspace), autonomy="full", policy=policy)
    call = ToolCall("r", "shell", '{"command": "make"}', "t1.c1")
    clean = Proposal(call, "s", settings)
    asking = replace(clean, settings=changed(settings, autonomy="supervised"))
    untrusted = Taint(untrusted=Mark(4, "web_fetch"))
    tainted, tainted_asking = replace(clean, taint=untrusted), replace(asking, taint=untrusted)
    for proposal in (asking, tainted_asking):
        asked = await tools.admit(proposal)
        assert isinstance(asked, Asked)
        assert asked.reach.hosts == ("a.example",)
    for proposal, network in (
        (clean, "proxy"),
        (replace(asking, is_approved=True), "proxy"),
        (tainted, "none"),
        (replace(tainted_asking, is_approved=True), "proxy"),
    ):
        allowed = await tools.admit(proposal)
        assert isinstance(allowed, Allowed)
        assert allowed.walled is not None
        assert allowed.walled.network == network
    await tools.aclose()


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("name", ["home", ".", "/"], ids=["the home", "what holds the home", "everything"])
async def test_a_command_in_a_workspace_that_holds_the_home_is_refused_before_anybody_is_asked(
    fences: Fences, tmp_path: Path, name: str
) -> None:
    with pytest.raises(Refused, match="No command runs in a sandbox in this workspace"):
        await fences.recorded(Shell(Background(), fences), os.path.realpath(tmp_path / name), WALLS)


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_what_the_settings_name_by_a_link_has_this_name_inside(
    tmp_path: Path, workspace: Path, backend: Backend
) -> None:
    """As a linked ~/.pyenv, or the `current` of many tools: PATH and programs name the link."""
    home = tmp_path / "home"
    touch(home / "tools-1.2" / "bin" / "mytool", tmp_path / "disk" / "notes" / "a", home / "secret")
    (home / "tools-1.2" / "bin" / "mytool").write_text("#!/bin/sh\necho ran\n")
    (home / "tools-1.2" / "bin" / "mytool").chmod(0o755)
    (home / "tools").symlink_to("now")
    (home / "now").symlink_to(home / "tools-1.2")
    (tmp_path / "notes").symlink_to("disk/notes")
    walls = Walls(backend, read=(f"{home}/tools/bin",), write=(f"{tmp_path}/notes",))
    fences = Fences(OwnPlaces(), str(home), backend)
    command = f"PATH=$PATH:{home}/tools/bin; mytool; echo x > {tmp_path}/notes/b; readlink {home}/tools"
    command += f"; cat {home}/secret"
    launch = Launch(("/bin/bash", "-c", command), str(workspace), "s:1", {}, 20.0, 20.0, never_over)
    made = (bubblewrap if backend == "bubblewrap" else landlock).make()
    if isinstance(made, Finding):
        pytest.skip(made.fault)
    processes = Processes(made)
    ended = await processes.run(await fences.around(launch, str(workspace), walls), lambda _: None)
    await processes.aclose()
    assert ended.output.splitlines()[:2] == ["ran", "now"]
    assert ended.exit_code
    assert (tmp_path / "disk" / "notes" / "b").read_text() == "x\n"


@pytest.mark.requirement("L2")
def test_where_more_of_the_home_is_shown_nothing_is_put_there(
    fences: Fences, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fencing, "git_identity", lambda: "[user]")
    place = str(tmp_path / "home" / ".gitconfig")
    assert fences.rules(str(workspace), WALLS).files == {place: "[user]"}
    assert fences.rules(str(workspace), replace(WALLS, read=(place,))).files == {}


@pytest.mark.requirement("L2")
def test_every_built_in_tool_that_can_start_a_program_is_known(fences: Fences) -> None:
    starting = {
        tool.spec.name
        for tool in built_in(Background(), OwnPlaces(), fences=fences)
        if any(isinstance(each, Processes | Background | Pages) for each in vars(tool).values())
    }
    assert starting - {"process_output", "process_stop"} == STARTING


@pytest.mark.requirement("L2")
def test_a_command_cannot_change_the_holdfast_that_is_installed_in_the_workspace(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = workspace / ".venv"
    installed.mkdir()
    monkeypatch.setattr(fencing, "OURS", (str(installed), "/usr"))
    assert Fences(OwnPlaces((), ()), str(workspace.parent / "me")).fence(str(workspace), WALLS).protected == (
        str(installed),
    )


@pytest.mark.requirement("L2", "S14")
@pytest.mark.parametrize("where", ["workspace", "write"])
def test_the_settings_of_the_user_are_protected_wherever_a_command_may_write(
    workspace: Path, tmp_path: Path, where: str
) -> None:
    top = workspace if where == "workspace" else tmp_path / "more"
    file = top / "holdfast" / "config.toml"
    touch(file, file.with_name("other.toml"))
    own = own_places(Own((str(tmp_path / "home" / ".holdfast"),), (str(file),)))
    fences = Fences(own, str(tmp_path / "home"), "bubblewrap")
    walls = replace(WALLS, write=() if where == "workspace" else (str(top),))
    assert fences.fence(str(workspace), walls).protected == (str(file),)
    file.unlink()
    with pytest.raises(Refused, match="looks for settings"):
        fences.fence(str(workspace), walls)


@pytest.mark.requirement("L2")
def test_a_home_is_refused_because_it_is_one_whatever_lies_in_it(tmp_path: Path) -> None:
    home = str(tmp_path.resolve())
    fences = Fences(OwnPlaces((f"{home}/.local/share/holdfast",)), home)
    with pytest.raises(Refused, match="it is, or holds, the home folder"):
        fences.rules(home, Walls())
