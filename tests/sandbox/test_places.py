"""What a command in bubblewrap leaves in its workspace, where files come and go while it starts."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.errors import SandboxUnavailable
from holdfast.protocol.fence import Launch
from holdfast.protocol.settings import Walls
from holdfast.sandbox import bubblewrap, guard, mounted
from holdfast.sandbox.bubblewrap import Bubblewrap
from holdfast.sandbox.process import Ended, Processes, clean_environment
from holdfast.testing.clock import never_over
from holdfast.tools.fencing import Fences
from holdfast.tools.own import OwnPlaces
from tests.tools.ordinary import as_an_ordinary_user

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

KEY = f"test-{os.getpid()}:places"
LIMIT_S = 60.0


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    for path in (".env", "conf/id_rsa", ".ssh/config", ".git/config"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x")
    return folder


@pytest.fixture
async def backends() -> AsyncIterator[Callable[[str], Processes]]:
    """Makes a backend that does something right before it mounts."""
    made: list[Processes] = []

    def make(folder: Path, first: str) -> Processes:
        program = folder / "bwrap"
        program.write_text(f'#!/bin/bash\n{first}\nexec {shutil.which("bwrap")} "$@"\n')
        program.chmod(0o755)
        made.append(Processes(Bubblewrap(str(program))))
        return made[-1]

    yield make
    for each in made:
        await each.aclose()


def launched(workspace: Path, command: str, between: Callable[[], object] = bool) -> Launch:
    """How to run a command in a fence that was built before something happened."""
    fences = Fences(
        OwnPlaces((str(workspace.parent / "home" / ".holdfast"),)), str(workspace.parent / "home")
    )
    fence = fences.fence(str(workspace), Walls("bubblewrap"))
    between()
    environ = clean_environment(os.environ)
    argv = ("/bin/bash", "-c", command)
    return Launch(argv, str(workspace), KEY, environ, LIMIT_S, LIMIT_S, never_over, fence=fence)


async def ran(processes: Processes, launch: Launch) -> Ended:
    return await processes.run(launch, lambda _: None)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("gone", [".env", "conf/id_rsa", "conf", ".ssh", ".git/config", ".git"])
async def test_where_something_vanishes_after_the_fence_was_built_nothing_runs_and_nothing_is_made(
    backends: Callable[..., Processes], workspace: Path, gone: str
) -> None:
    """It may come back before the program begins, and would be open to it."""

    def vanish() -> None:
        shutil.rmtree(workspace / gone) if (workspace / gone).is_dir() else (workspace / gone).unlink()

    with pytest.raises(SandboxUnavailable, match="moved, removed, or closed"):
        await ran(backends(workspace.parent, ":"), launched(workspace, "touch made", vanish))
    assert not [name for name in names(workspace) if name.startswith((gone, "made"))]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("closed", ["conf", ".git"])
def test_where_a_folder_is_closed_after_the_fence_was_built_nothing_runs(
    workspace: Path, closed: str
) -> None:
    """A program in the background may open it again before the program begins."""
    launch = launched(workspace, "true")
    assert launch.fence is not None
    with as_an_ordinary_user(workspace.parent):
        (workspace / closed).chmod(0)
        with pytest.raises(SandboxUnavailable, match="moved, removed, or closed"):
            Bubblewrap("bwrap").launch(launch, launch.fence)
        (workspace / closed).chmod(0o755)


@pytest.mark.requirement("L2")
def test_what_is_masked_protected_or_only_shown_must_be_mounted_so_that_nobody_can_write(
    workspace: Path,
) -> None:
    launch = launched(workspace, "true")
    assert launch.fence is not None
    held = Bubblewrap("bwrap").launch(launch, replace(launch.fence, readable=("/srv",))).held
    assert held is not None
    closed = {f"{workspace}/{name}" for name in (".env", ".ssh", "conf/id_rsa", ".git/config")} | {"/srv"}
    assert {place for place, (must_be, _) in held.mounts.items() if must_be} == {
        f"/newroot{path}" for path in closed
    }


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("gone", [".env", "conf/id_rsa", "conf", ".ssh", ".git/config", ".git"])
async def test_what_vanishes_while_the_sandbox_starts_is_not_left_in_the_workspace(
    backends: Callable[..., Processes], workspace: Path, gone: str
) -> None:
    """The command may not run: a folder whose secrets could not be masked is not shown."""
    processes = backends(workspace.parent, f"rm -r {workspace / gone}")
    await ran(processes, launched(workspace, "ls -A"))
    assert not [name for name in names(workspace) if name.startswith(gone)]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("path", [".env", ".git/config"])
async def test_an_empty_file_that_bwrap_makes_to_mount_something_on_it_goes_with_the_sandbox(
    backends: Callable[..., Processes], workspace: Path, path: str
) -> None:
    """It makes one where the file vanishes between its look at the file and the mount."""
    made = f"cd {workspace}; rm {path}; : > {path}; chmod 444 {path}"
    await ran(backends(workspace.parent, made), launched(workspace, "true"))
    assert path not in names(workspace)


@pytest.mark.requirement("L2")
async def test_an_empty_secret_file_that_all_may_read_stays(
    backends: Callable[..., Processes], workspace: Path
) -> None:
    """It looks as one that bwrap makes, and was there before."""
    (workspace / ".env").write_text("")
    (workspace / ".env").chmod(0o444)
    await ran(backends(workspace.parent, ":"), launched(workspace, "true"))
    assert (workspace / ".env").exists()


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("target", ["missing", "sub/missing", "/usr/share/missing", ".env"])
async def test_a_secret_link_that_leads_nowhere_makes_nothing_and_stops_no_command(
    backends: Callable[..., Processes], workspace: Path, target: str
) -> None:
    (workspace / ".env").unlink()
    (workspace / ".env").symlink_to(target)
    before = names(workspace)
    ended = await ran(backends(workspace.parent, ":"), launched(workspace, "echo ran"))
    assert (ended.exit_code, ended.output) == (0, "ran\n")
    assert names(workspace) == before


@pytest.mark.requirement("L2")
async def test_secret_names_that_are_not_text_or_have_several_lines_are_masked(
    backends: Callable[..., Processes], workspace: Path
) -> None:
    for name in (b"\xff.pem", b"two\nlines.pem"):
        (workspace / os.fsdecode(name)).write_text("bait")
    ended = await ran(backends(workspace.parent, ":"), launched(workspace, "cat *.pem; echo ran"))
    assert ended.output.endswith("ran\n")
    assert "bait" not in ended.output


@pytest.mark.requirement("L2")
async def test_with_more_secret_files_than_can_be_masked_no_command_runs_and_says_why(
    backends: Callable[..., Processes], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "MAX_PLACES", 10)
    for number in range(10):
        (workspace / f"{number}.pem").write_text("x")
    with pytest.raises(SandboxUnavailable) as told:
        await ran(backends(workspace.parent, ":"), launched(workspace, "touch made"))
    assert "at most 10" in str(told.value)
    assert not (workspace / "made").exists()


@pytest.mark.requirement("L11")
async def test_no_place_inside_can_be_filled_without_limit(
    backends: Callable[..., Processes], workspace: Path
) -> None:
    """What is not in the workspace is memory of the machine."""
    command = f"""
    for place in $(mount | grep ' type tmpfs (rw' | cut -d' ' -f3 | grep -v {workspace}); do
        touch $place/x 2> /dev/null && echo $place $(df --output=size $place | tail -1)
    done; touch /dev/shm/works && echo works"""
    ended = await ran(backends(workspace.parent, ":"), launched(workspace, command))
    *places, works = ended.output.splitlines()
    assert works == "works"
    assert places
    assert {place.split()[1] for place in places} == {str(1 << 20)}, places


@pytest.mark.requirement("L2")
async def test_where_a_folder_vanishes_right_before_the_start_nothing_runs_and_the_reason_is_told(
    backends: Callable[..., Processes], workspace: Path
) -> None:
    def vanish() -> int:
        shutil.rmtree(workspace / "conf")
        return never_over()

    call = replace(launched(workspace, "touch made"), check=vanish)
    with pytest.raises(SandboxUnavailable) as told:
        await ran(backends(workspace.parent, ":"), call)
    assert "changed while its sandbox was made" in str(told.value)
    assert not (workspace / "made").exists()


ELSEWHERE = """
import os, sys
words = os.read(int(sys.argv[2]), 1 << 20).split(b"\\0")
at = words.index(b"{place}")
words[at] = b"{other}"
given = os.memfd_create("given")
os.write(given, b"\\0".join(words))
os.lseek(given, 0, os.SEEK_SET)
os.dup2(given, int(sys.argv[2]))
os.execv("{bwrap}", ["bwrap", *sys.argv[1:]])
"""
"""Mounts what belongs at one place at another one, as if a folder on its way had been a link at that moment."""


@pytest.mark.requirement("L2", "S14")
@pytest.mark.parametrize("place", [".env", "conf", "conf/id_rsa", ".git/config"])
async def test_where_something_is_mounted_elsewhere_nothing_runs(workspace: Path, place: str) -> None:
    (workspace / "other").mkdir()
    other = workspace / "other" if place == "conf" else workspace / "plain"
    (workspace / "plain").write_text("x")
    program = workspace.parent / "bwrap"
    names = {"place": workspace / place, "other": other, "bwrap": shutil.which("bwrap")}
    program.write_text(f"#!{sys.executable} -IS\n{ELSEWHERE.format(**names)}")
    program.chmod(0o755)
    processes = Processes(Bubblewrap(str(program)))
    with pytest.raises(SandboxUnavailable, match="changed while its sandbox was made"):
        await ran(processes, launched(workspace, "cat .env conf/id_rsa; touch made"))
    await processes.aclose()
    assert not (workspace / "made").exists()


@pytest.mark.requirement("L2")
def test_a_folder_that_became_a_link_masks_nothing_elsewhere(workspace: Path) -> None:
    launch = launched(workspace, "true")
    (workspace / "conf").rename(workspace / "other")
    (workspace / "conf").symlink_to("other")
    assert launch.fence is not None
    with pytest.raises(SandboxUnavailable, match="became a link"):
        Bubblewrap("bwrap").launch(launch, launch.fence)


MOUNTED = {
    "/newroot": b"1 0 8:1 / /newroot rw - tmpfs x rw",
    "/newroot/w": b"2 1 8:1 /w /newroot/w rw - ext4 x rw",
    "/newroot/w/a": b"3 2 8:1 /w/a /newroot/w/a rw - ext4 x rw",
    "/newroot/w/a/.env": b"4 3 0:5 /null /newroot/w/a/.env ro,nosuid - devtmpfs x rw",
}
"""The kernel's list of mounts, by their places."""


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("place", "line", "is_right"),
    [
        ("/newroot/w", MOUNTED["/newroot/w"], True),
        ("/newroot/w/a/.env", b"4 3 0:5 /null /newroot/w/a/.env rw - devtmpfs x rw", False),
        ("/newroot/w/a/.env", b"4 2 0:5 /null /newroot/w/a/.env ro - devtmpfs x rw", False),
        ("/newroot/w/a/.env", b"4 3 0:5 /null /newroot/w/b/.env ro - devtmpfs x rw", False),
        ("/newroot/w/a", b"3 1 8:1 /w/a /newroot/w/a rw - ext4 x rw", False),
        ("", b"5 4 0:5 / /newroot/w/a/.env ro - tmpfs x rw", True),
        ("", b"5 4 0:5 / /newroot/w/a/.env rw - tmpfs x rw", False),
    ],
    ids=["as it was", "writable", "upon another", "elsewhere", "another below", "twice", "covered"],
)
def test_a_program_begins_only_upon_the_mounts_that_its_fence_needs(
    place: str, line: bytes, is_right: bool
) -> None:
    needed = {
        "/newroot/w": (False, ""),
        "/newroot/w/a": (False, "/newroot/w"),
        "/newroot/w/a/.env": (True, "/newroot/w/a"),
    }
    assert mounted.are_in_place({**MOUNTED, place: line}.values(), needed) == is_right


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("path", ["conf", "conf/id_rsa", "link", "way/id_rsa"])
def test_nothing_is_opened_through_a_link_to_be_shown(workspace: Path, path: str) -> None:
    (workspace / "link").symlink_to(".env")
    (workspace / "way").symlink_to("conf")
    before = len([*Path("/proc/self/fd").iterdir()])
    if path in ("link", "way/id_rsa"):
        with pytest.raises(OSError, match=r"link|Not a directory"):
            mounted.opened(str(workspace / path))
        assert len([*Path("/proc/self/fd").iterdir()]) == before
    else:
        fd = mounted.opened(str(workspace / path))
        found = os.fstat(fd)
        os.close(fd)
        assert (found.st_dev, found.st_ino) == (
            (workspace / path).stat().st_dev,
            (workspace / path).stat().st_ino,
        )


@pytest.mark.requirement("L2")
def test_no_empty_file_is_removed_where_a_link_of_a_command_leads(tmp_path: Path) -> None:
    for folder in ("elsewhere", "workspace"):
        (tmp_path / folder).mkdir()
    blank = tmp_path / "elsewhere" / ".env"
    blank.touch()
    blank.chmod(0o444)
    (tmp_path / "workspace" / "conf").symlink_to("../elsewhere")
    mounted.remove_blank(str(tmp_path / "workspace" / "conf" / ".env"))
    assert blank.exists()
    mounted.remove_blank(str(blank))
    assert not blank.exists()


@pytest.mark.parametrize(("number", "expected"), [(errno.EMFILE, errno.EMFILE), (errno.ENOENT, errno.ESTALE)])
def test_too_few_files_that_may_be_open_are_no_change_of_the_workspace(
    monkeypatch: pytest.MonkeyPatch, number: int, expected: int
) -> None:
    def fails(path: str) -> int:
        raise OSError(number, path)

    monkeypatch.setattr(guard, "opened", fails)
    request = {
        "rights": None, "limits": {}, "has_stdin": False, "has_stderr": False, "given": {}, "opened": {"9": "/x"},
    }  # fmt: skip
    with pytest.raises(OSError, match=r"\[Errno") as raised:
        guard._started(request, [], [])
    assert raised.value.errno == expected
