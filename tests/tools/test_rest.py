"""What could not be put right when a command ended is put right later: that, and nothing else. People hear of it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.doctor import check_commands
from holdfast.config.paths import Home
from holdfast.policy.protected import Own
from holdfast.tools import aside, identity
from holdfast.tools.blocking import Refused
from holdfast.tools.moved import Elsewhere
from holdfast.tools.traces import Traces
from holdfast.tools.working_off import forgotten
from tests.tools.ordinary import as_an_ordinary_user
from tests.tools.test_overlap import BOTH, Command, fences_of, state

pytestmark = pytest.mark.requirement("L2")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A workspace with files of a person that control programs."""
    top = tmp_path / "ws"
    (top / ".vscode" / "deep").mkdir(parents=True)
    (top / ".vscode" / "tasks.json").write_text("mine")
    (top / ".vscode" / "deep" / "a.json").write_text("mine")
    (top / ".envrc").write_text("mine")
    (top / "real").mkdir()
    (top / ".idea").symlink_to("real")
    (top / "sub").mkdir()
    (top / "sub" / ".envrc").write_text("mine")
    (top / "sub" / "work").write_text("work")
    return top


@contextmanager
def failing(name: str, is_it: Callable[..., bool], number: int = errno.ENOSPC) -> Iterator[None]:
    """Let a call of `os` fail for what this says."""
    real = getattr(os, name)

    def call(*given: Any, **more: Any) -> Any:
        if is_it(*given):
            raise OSError(number, os.strerror(number))
        return real(*given, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, name, call)
        yield


def is_path(end: str) -> Callable[..., bool]:
    """Whether the first argument leads to a path with this end, also as a descriptor."""

    def is_it(path: Any, *_: Any) -> bool:
        given = os.fspath(path) if not isinstance(path, int) else f"/proc/self/fd/{path}"
        return str(Path(given).readlink() if "/self/fd/" in given else given).endswith(end)

    return is_it


def notes(home: str, fences: Any, session: str) -> str:
    return asyncio.run(fences.put_aside(session, is_first=False))


STUCK: dict[str, tuple[str, str, Callable[..., bool]]] = {
    "the mode of a folder": ("chmod 711 .vscode", "chmod", is_path("/.vscode")),
    "the mode of a folder with something new": (
        "chmod 711 .vscode; touch .vscode/new",
        "chmod",
        is_path("/.vscode"),
    ),
    "a folder in it": ("rm -r .vscode/deep", "mkdir", is_path("deep")),
    "all in it": ("rm -r .vscode", "mkdir", is_path("")),
    "what came into it": ("touch .vscode/new", "rename", is_path("new")),
    "its list": ("touch .vscode/new", "listdir", is_path("/ws/.vscode")),
    "a file": ("echo evil > .envrc", "rename", is_path(".envrc.put-aside-draft")),
    "a link": ("ln -sfn /etc .idea", "symlink", is_path("real")),
    "a folder that was moved": (
        "mkdir other; mv sub other; echo evil > other/sub/.envrc",
        "rename",
        is_path("sub"),
    ),
    "what is new": ("touch .bashrc", "rename", is_path(".bashrc")),
}


@pytest.mark.parametrize("what", STUCK)
def test_what_could_not_be_put_right_is_said_and_nothing_else_is_touched_by_the_next_try(
    top: Path, tmp_path: Path, what: str
) -> None:
    command, call, is_it = STUCK[what]
    home, before, modes = str(tmp_path / "home"), state(top), (top / ".vscode").stat().st_mode
    fences = fences_of("landlock", home)
    first = Command(fences, top, "landlock", "s:1")
    first.begin()
    subprocess.run(["sh", "-ec", command], cwd=top, check=True)
    with failing(call, is_it):
        undone = first.end()
        assert undone.stuck
        assert set(undone.stuck) <= set(undone.changed)
        with pytest.raises(Refused, match=r"could not be put back: .*\(No space left on device\)"):
            Command(fences, top, "landlock", "s:2")
    assert "Not put back: " in notes(home, fences, "s")
    mine = [top / "later" / ".envrc", top / "real" / "new"]
    if (top / ".vscode").is_dir() and what != "its list":
        mine.append(top / ".vscode" / "settings.json")
    for path in mine:  # the work of a person, who heard of it
        path.parent.mkdir(exist_ok=True)
        path.write_text("since")
    Command(fences_of("landlock", home), top, "landlock", "s:3")  # also of another process
    after = state(top)
    assert {name: after.get(name) for name in before} == before
    assert [path.read_text() for path in mine] == ["since"] * len(mine)
    assert (top / ".vscode").stat().st_mode == modes
    assert not (top / ".bashrc").exists()
    assert not (top / ".vscode" / "new").exists()


def test_the_session_hears_what_the_next_try_changed(top: Path, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    fences = fences_of("landlock", home)
    spoiled(fences, top)
    notes(home, fences, "s")
    Command(fences, top, "landlock", "other:1")
    assert "right now: .envrc. " in notes(home, fences, "s")
    assert "Of a command of session s, which had ended: " in notes(home, fences, "other")
    assert not notes(home, fences, "s")
    assert not [*(tmp_path / "home" / "aside").iterdir()]


def spoiled(fences: Any, top: Path) -> None:
    """Let a command change a file that cannot be put back for now."""
    command = Command(fences, top, "landlock", "s:1")
    command.begin()
    (top / ".envrc").write_text("evil")
    with failing("rename", is_path(".envrc.put-aside-draft")):
        assert command.end().stuck == (str(top / ".envrc"),)


def test_what_another_process_has_put_right_is_not_put_back_once_more(top: Path, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    fences = fences_of("landlock", home)
    spoiled(fences, top)
    Command(fences_of("landlock", home), top, "landlock", "other:1")
    assert (top / ".envrc").read_text() == "mine"
    (top / ".envrc").write_text("since")
    Command(fences, top, "landlock", "s:2")
    assert (top / ".envrc").read_text() == "since"


@pytest.mark.parametrize("is_repaired", [True, False])
def test_what_a_person_has_made_there_meanwhile_stays(
    top: Path, tmp_path: Path, *, is_repaired: bool
) -> None:
    home = str(tmp_path / "home")
    fences = fences_of("landlock", home)
    spoiled(fences, top)
    notes(home, fences, "s")
    (top / ".envrc").write_text("mine" if is_repaired else "since")
    (top / ".envrc").chmod(0o644)
    Command(fences, top, "landlock", "s:2")
    assert (top / ".envrc").read_text() == ("mine" if is_repaired else "since")
    assert (top / ".envrc.put-aside").read_text() == "evil"
    kept = top / ".envrc.put-aside-2"
    assert (kept.read_text() if kept.exists() else "") == ("" if is_repaired else "mine")
    told = notes(home, fences, "s")
    assert ("somebody changed .envrc: that stays" in told) != is_repaired
    assert not [*(tmp_path / "home" / "aside").iterdir()]


def test_what_only_another_session_could_put_back_is_told_to_its_own(top: Path, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    killed(home, top, "landlock")
    fences = fences_of("landlock", home)
    with failing("rename", is_path(".envrc.put-aside-draft")):
        assert "session s was left behind" in asyncio.run(fences.put_aside("other", is_first=True))
    Command(fences, top, "landlock", "other:1")
    assert ".envrc" in asyncio.run(fences_of("landlock", home).put_aside("s", is_first=True))


def killed(home: str, top: Path, backend: str, write: tuple[str, ...] = ()) -> None:
    """Let a command change something in a process that dies before the command ends."""
    if not (child := os.fork()):
        Command(fences_of(backend, home), top, backend, "s:1", write).begin()
        (top / ".envrc").write_text("evil")
        (top / ".bashrc").write_text("evil")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@BOTH
def test_a_file_of_a_person_that_is_named_in_no_trace_is_never_touched_by_a_retry(
    top: Path, tmp_path: Path, backend: str
) -> None:
    """What is new and could not be put aside is known by itself: what came later is not looked at."""
    fences = fences_of(backend, str(tmp_path / "home"))
    command = Command(fences, top, backend, "s:1")
    command.begin()
    (top / ".bashrc").write_text("evil")
    with failing("rename", is_path(".bashrc"), errno.EMFILE):
        assert command.end().stuck == (str(top / ".bashrc"),)
    (top / ".zshrc").write_text("mine")
    Command(fences, top, backend, "s:2")
    assert not (top / ".bashrc").exists()
    assert (top / ".zshrc").read_text() == "mine"


# --- what an ordinary user may not move -----------------------------------------------------------


@pytest.mark.parametrize(("is_closed", "later"), [(0o555, 0o555), (0o000, 0o700)])
def test_what_came_into_a_protected_folder_is_put_aside_also_if_nobody_may_write_in_it(
    top: Path, tmp_path: Path, is_closed: int, later: int
) -> None:
    fences = fences_of("landlock", str(tmp_path / "home"))
    with as_an_ordinary_user(tmp_path):
        command = Command(fences, top, "landlock", "s:1")
        command.begin()
        for name in ("new", "deep/new"):
            (top / ".vscode" / name).mkdir()
            (top / ".vscode" / name / "tasks.json").write_text("evil")
            (top / ".vscode" / name).chmod(is_closed)
        assert command.end().stuck == ()
        assert not [*(top / ".vscode").rglob("new")]
        for path in top.glob("*.put-aside*"):
            assert path.stat().st_mode & 0o777 == later
            path.chmod(0o755)


@pytest.mark.parametrize("is_held", [True, False], ids=["held open", "looked for"])
@pytest.mark.parametrize(
    "close",
    [{"other/sub": 0o555}, {"other": 0}, {"other/sub": 0, "other": 0o555}],
    ids=["it", "above", "both"],
)
def test_a_folder_is_moved_back_also_from_where_a_command_closed_it(
    top: Path, tmp_path: Path, close: dict[str, int], monkeypatch: pytest.MonkeyPatch, *, is_held: bool
) -> None:
    if not is_held:
        monkeypatch.setattr("holdfast.tools.kept._MOST_HELD", 0)
    fences = fences_of("landlock", str(tmp_path / "home"))
    with as_an_ordinary_user(tmp_path):
        command = Command(fences, top, "landlock", "s:1")
        command.begin()
        (top / "other").mkdir()
        (top / "sub").rename(top / "other" / "sub")
        (top / "other" / "sub" / ".envrc").write_text("evil")
        for name, mode in close.items():
            (top / name).chmod(mode)
        assert command.end().stuck == ()
        (top / "other").chmod(0o755)
        (top / "sub").chmod(0o755)
    assert [(top / "sub" / name).read_text() for name in (".envrc", "work")] == ["mine", "work"]


# --- which folder it is ---------------------------------------------------------------------------


def renumbered(home: str, top: Path) -> None:
    """Let what is stored name the folder that is at the path now, as it is where inodes are given again at once."""
    (path,) = Path(home, "aside").glob("*.json")
    trace = json.loads(path.read_text())
    found = identity.of_folder(str(top))
    assert found is not None
    trace["folders"][str(top)][:2] = found[:2]
    path.write_text(json.dumps(trace))


@BOTH
@pytest.mark.parametrize("how", ["the next driver", "its own", "deleted"])
def test_a_new_folder_with_the_number_of_the_old_one_is_not_the_workspace_of_a_killed_command(
    top: Path, tmp_path: Path, backend: str, how: str
) -> None:
    home = str(tmp_path / "home")
    killed(home, top, backend)
    shutil.rmtree(top)
    top.mkdir()
    (top / ".envrc").write_text("another project")
    renumbered(home, top)
    if how == "deleted":
        told = "\n".join(forgotten(Own(), Path(home), "s"))
        assert "is forgotten" in told
        assert not [*Path(home, "aside").iterdir()]
    else:
        session = "s" if how == "its own" else "other"
        told = asyncio.run(fences_of(backend, home).put_aside(session, is_first=True))
        Command(fences_of(backend, home), top, backend, "other:1")
    assert "not the folder in which it ran" in told
    assert state(top) == {".envrc": "another project"}


@BOTH
def test_where_nothing_proves_which_folder_it_is_a_person_decides(
    top: Path, tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_mark", lambda _: 0)
    home = str(tmp_path / "home")
    alive = Command(fences := fences_of(backend, home), top, backend, "t:1")
    alive.begin()
    (top / ".zshrc").write_text("evil")
    assert alive.end().changed == (str(top / ".zshrc"),), "what is held open is known"
    killed(home, top, backend)
    asyncio.run(fences.put_aside("other", is_first=True))
    assert (top / ".envrc").read_text() == "evil"
    (found,) = check_commands(Home(Path(home), Path(home) / "config.toml"))
    assert "nothing on its disk proves" in found.message


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_killed_command_does_not_pull_back_what_a_person_renamed(
    top: Path, tmp_path: Path, *, is_moved: bool
) -> None:
    """The workspace lies in a folder of `write`, so the command could have moved it. But it is not known to have."""
    home, renamed = str(tmp_path / "home"), tmp_path / "renamed"
    killed(home, top, "landlock", write=(str(tmp_path),))
    if is_moved:
        top.rename(renamed)
        top.mkdir()
        (top / ".envrc").write_text("another project")
    told = asyncio.run(fences_of("landlock", home).put_aside("s", is_first=True))
    if is_moved:
        assert "not the folder in which it ran" in told
        assert state(top) == {".envrc": "another project"}
        assert renamed.exists()
        shutil.rmtree(top)
        renamed.rename(top)
        asyncio.run(fences_of("landlock", home).put_aside("s", is_first=True))
    assert (top / ".envrc").read_text() == "mine"


@pytest.mark.parametrize("backend", ["landlock"])
def test_what_is_left_in_a_renamed_workspace_is_put_right_there(
    top: Path, tmp_path: Path, backend: str
) -> None:
    home, renamed = str(tmp_path / "home"), tmp_path / "renamed"
    fences = fences_of(backend, home)
    command = Command(fences, top, backend, "s:1")
    command.begin()
    (top / ".envrc").write_text("evil")
    top.rename(renamed)
    with failing("rename", is_path(".envrc.put-aside-draft")):
        assert command.end().stuck == (str(renamed / ".envrc"),)
    Command(fences, renamed, backend, "s:2")
    assert (renamed / ".envrc").read_text() == "mine"


def test_a_folder_that_came_between_the_look_and_the_start_is_not_the_one_of_the_command(
    top: Path, tmp_path: Path
) -> None:
    command = Command(fences_of("landlock", str(tmp_path / "home")), top, "landlock", "s:1")
    top.rename(tmp_path / "renamed")
    top.mkdir()
    (top / ".envrc").write_text("another project")
    command.begin()
    with pytest.raises(Elsewhere):
        command.end()
    Command(fences_of("landlock", str(tmp_path / "home")), top, "landlock", "other:1")
    assert state(top) == {".envrc": "another project"}


def test_a_command_that_could_not_be_undone_does_not_keep_others_from_another_folder_at_its_path(
    top: Path, tmp_path: Path
) -> None:
    fences = fences_of("landlock", str(tmp_path / "home"))
    command = Command(fences, top, "landlock", "s:1")
    command.begin()
    with failing("lstat", is_path("/sub"), errno.EIO), pytest.raises(OSError, match="Input/output"):
        command.end()
    top.rename(tmp_path / "renamed")
    top.mkdir()
    (top / ".envrc").write_text("another project")
    Command(fences, top, "landlock", "s:2")
    assert state(top) == {".envrc": "another project"}


def test_a_stored_folder_of_a_file_that_an_editor_replaced_is_no_folder(top: Path, tmp_path: Path) -> None:
    home, file = str(tmp_path / "home"), tmp_path / "notes"
    file.write_text("one")
    killed(home, top, "landlock", write=(str(file),))
    file.unlink()
    file.write_text("two")
    asyncio.run(fences_of("landlock", home).put_aside("s", is_first=True))
    assert (top / ".envrc").read_text() == "mine"


# --- what is stored -------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("how", ["an error", "a power cut"])
def test_what_cannot_be_read_is_not_forgotten_and_no_command_begins(
    top: Path, tmp_path: Path, backend: str, how: str
) -> None:
    home = str(tmp_path / "home")
    killed(home, top, backend)
    (path,) = Path(home, "aside").glob("*.json")
    if how == "a power cut":
        stored = path.read_bytes()
        path.write_bytes(b"")
    fences = fences_of(backend, home)
    with pytest.MonkeyPatch.context() as patched:
        if how == "an error":
            refused = OSError(errno.EIO, "Input/output error")
            patched.setattr(Path, "read_bytes", lambda _: (_ for _ in ()).throw(refused))
        told = asyncio.run(fences.put_aside("s", is_first=True))
        assert told.startswith(
            f"What an earlier command left cannot be read, so nobody knows what it changed: {path} ("
        )
        with pytest.raises(Refused, match=r"Nothing was run. What an earlier command left cannot be read"):
            Command(fences, top, backend, "s:2")
        with pytest.raises(Refused, match="cannot be read"):
            forgotten(Own(), Path(home), "s")
        (found,) = check_commands(Home(Path(home), Path(home) / "config.toml"))
        assert (found.severity, str(path) in found.message) == ("fault", True)
    if how == "a power cut":
        path.write_bytes(stored)
    assert ".bashrc" in asyncio.run(fences.put_aside("s", is_first=True))
    assert not (top / ".bashrc").exists()


def test_what_a_command_closed_of_the_home_is_opened_again(top: Path, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    Path(home).mkdir()
    with as_an_ordinary_user(tmp_path):
        killed(home, top, "landlock")
        for path in (*Path(home, "aside").iterdir(), Path(home, "aside")):
            path.chmod(0)
        asyncio.run(fences_of("landlock", home).put_aside("s", is_first=True))
        assert (top / ".envrc").read_text() == "mine"


def test_a_trace_that_cannot_be_removed_is_not_undone_once_more(top: Path, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    command = Command(fences_of("landlock", home), top, "landlock", "s:1")
    command.begin()
    with failing("unlink", is_path(".json"), errno.EIO):
        assert command.end().changed == ()
    assert len([*Path(home, "aside").iterdir()]) == 1
    (top / ".envrc").write_text("since")
    asyncio.run(fences_of("landlock", home).put_aside("s", is_first=True))
    assert (top / ".envrc").read_text() == "since"


def test_a_half_of_a_trace_is_removed_when_its_session_goes_on(top: Path, tmp_path: Path) -> None:
    """Its process was killed while it stored it, so the command did not begin, or all of it was undone."""
    home = str(tmp_path / "home")
    killed(home, top, "landlock")
    (path,) = Path(home, "aside").glob("*.json")
    path.rename(path.with_suffix(".tmp"))
    assert not asyncio.run(fences_of("landlock", home).put_aside("s", is_first=True))
    assert not [*Path(home, "aside").iterdir()]


def test_what_a_killed_process_began_to_make_again_is_not_put_aside(top: Path, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    killed(home, top, "landlock")
    (top / ".vscode" / "tasks.json").rename(top / ".vscode" / "tasks.json.put-aside-draft")
    asyncio.run(fences_of("landlock", home).put_aside("s", is_first=True))
    assert sorted(path.name for path in (top / ".vscode").iterdir()) == ["deep", "tasks.json"]
    assert not [*top.glob("*draft*")]


def test_what_is_put_aside_after_a_kill_is_named_once(top: Path, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    killed(home, top, "landlock")
    (top / ".vscode" / "new").write_text("evil")
    told = asyncio.run(fences_of("landlock", home).put_aside("s", is_first=True))
    assert "control other programs: .bashrc, .envrc, .vscode/new. " in told


@BOTH
def test_what_another_process_took_over_and_undid_is_not_undone_once_more(
    top: Path, tmp_path: Path, backend: str
) -> None:
    """This one was frozen meanwhile."""
    home = str(tmp_path / "home")
    command = Command(fences_of(backend, home), top, backend, "s:1")
    command.begin()
    (top / ".bashrc").write_text("evil")
    asyncio.run(fences_of(backend, home).put_aside("s", is_first=True))
    (top / ".bashrc").write_text("since")
    assert command.end().changed == ()
    assert (top / ".bashrc").read_text() == "since"


@BOTH
def test_a_session_is_deleted_when_what_its_killed_command_left_is_put_right(
    top: Path, tmp_path: Path, backend: str
) -> None:
    home = str(tmp_path / "home")
    killed(home, top, backend)
    with (
        failing("rename", is_path(".bashrc"), errno.EPERM),
        pytest.raises(Refused, match=r"\.bashrc \(Operation"),
    ):
        forgotten(Own(), Path(home), "s")
    (found,) = check_commands(Home(Path(home), Path(home) / "config.toml"))
    assert ".bashrc (Operation not permitted)" in found.message
    assert ".bashrc" in "\n".join(forgotten(Own(), Path(home), "s"))
    assert not (top / ".bashrc").exists()
    assert not [*Path(home, "aside").iterdir()]


# --- what nobody can tell -------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["lstat", "scandir"])
def test_a_disk_that_fails_makes_nothing_new(top: Path, tmp_path: Path, call: str) -> None:
    """What cannot be looked at is neither gone, nor has it just come."""
    fences = fences_of("bubblewrap", str(tmp_path / "home"))
    command = Command(fences, top, "bubblewrap", "s:1")
    command.begin()
    (top / ".bashrc").write_text("evil")
    (top / "sub" / "more").mkdir()
    with (
        failing(call, is_path("/sub" if call == "scandir" else "/sub/.envrc"), errno.EIO),
        pytest.raises(OSError, match="Input/output error"),
    ):
        command.end()
    assert (top / "sub" / "work").exists()
    Command(fences, top, "bubblewrap", "s:2")
    assert not (top / ".bashrc").exists()


def test_a_place_that_cannot_be_looked_at_does_not_stand_for_its_folder(top: Path) -> None:
    with failing("lstat", is_path(".envrc"), errno.EIO), pytest.raises(OSError, match="Input/output"):
        aside.seen([str(top / ".envrc")])


def test_the_traces_of_a_home_that_was_never_used_are_none(tmp_path: Path) -> None:
    assert not Traces(tmp_path / "home").are_any()
    assert not Traces(tmp_path / "home").unreadable()
