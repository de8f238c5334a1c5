"""What folders that commands may change have in them: how deep Holdfast looks, how often, and for what."""

from __future__ import annotations

import errno
import os
import socket
from importlib.machinery import all_suffixes
from pathlib import Path

import pytest

from holdfast.tools import folders
from holdfast.tools.aside import put_right
from holdfast.tools.blocking import Refused
from holdfast.tools.folders import Folders


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("place", ["node_modules", "node_modules/a", "venv", ".venv/src/a", "__pycache__"])
def test_what_controls_programs_is_found_in_folders_of_other_peoples_files_and_secrets_are_not(
    tmp_path: Path, place: str
) -> None:
    touch(tmp_path / place / ".envrc", tmp_path / place / ".env", tmp_path / place / ".git" / "config")
    found = [*Folders().below(str(tmp_path))]
    fixed = {path for folder in found for path in folder.fixed}
    assert {str(tmp_path / place / name) for name in (".envrc", ".git/config", ".git/hooks")} <= fixed
    assert not [path for folder in found for path in folder.masked]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("place", [".git", "node_modules", ".venv", "venv/bin"])
def test_sockets_are_found_in_git_folders_and_in_folders_of_other_peoples_files(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / place).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)  # the path of a socket may have a hundred bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{place}/agent")
        for found in (Folders().below(str(tmp_path)), Folders().with_sockets(str(tmp_path))):
            assert [path for folder in found for path in folder.sockets] == [f"{tmp_path}/{place}/agent"]


def test_folders_of_other_peoples_files_are_not_read_deep_down(tmp_path: Path) -> None:
    (tmp_path / "node_modules" / "a" / "b" / "c").mkdir(parents=True)
    assert len([*Folders().below(str(tmp_path))]) == 3


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(("time_ns", "is_at_rest"), [(0, False), (1, True)])
def test_a_folder_on_a_file_system_of_whole_seconds_is_read_again_for_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time_ns: int, *, is_at_rest: bool
) -> None:
    monkeypatch.setattr(folders.SYSTEM_CLOCK.__class__, "now_ms", lambda _: 1_001_500)
    assert folders._read(str(tmp_path), 1_000_000_000_000 + time_ns, None).is_at_rest == is_at_rest


@pytest.mark.requirement("L2")
def test_a_folder_that_changed_a_moment_ago_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders.SYSTEM_CLOCK.__class__, "now_ms", lambda _: 1_000_040)
    assert not folders._read(str(tmp_path), 1_000_000_000_001, None).is_at_rest


@pytest.mark.requirement("L2")
def test_a_command_that_makes_too_many_names_does_not_keep_the_others_from_being_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_ENTRIES", 19)
    touch(*(tmp_path / "a" / str(number) for number in range(20)), tmp_path / "b" / "c" / ".envrc")
    with pytest.raises(Refused, match="more than 19 files"):
        list(Folders().below(str(tmp_path)))
    found = [path for folder in Folders().controlling(str(tmp_path), ()) for path in folder.fixed]
    assert found == [str(tmp_path / "b" / "c" / ".envrc")]


@pytest.mark.requirement("L2")
def test_a_folder_is_not_listed_for_each_name_that_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(tmp_path / f".envrc:{number}") for number in range(50)]
    touch(*map(Path, paths))
    monkeypatch.setattr(os, "listdir", None)
    assert put_right({}, paths).changed == tuple(sorted(paths))
    assert all(os.path.lexists(f"{path}.put-aside") for path in paths)


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    "end", ["/__init__.py", *all_suffixes(), ".abi3.so", ".cpython-399-x86_64-linux-gnu.so", ".pyd"]
)
@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_what_python_runs_whenever_it_starts_is_put_aside_whatever_its_end_and_only_once(
    tmp_path: Path, name: str, end: str
) -> None:
    place = tmp_path / "src" / "a" / (name + end)
    touch(place)
    top = tmp_path / "src" / "a" / (name + end).partition("/")[0]
    found = [path for folder in Folders().controlling(str(tmp_path), ()) for path in folder.fixed]
    assert found == [str(top)]
    assert put_right({}, found).changed == (str(top),)
    assert not list(Folders().controlling(str(tmp_path), ()))


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize("name", [".vscode", ".husky", "head", ".npmrc"])
@pytest.mark.parametrize("target", ["file/y", "SELF", "x" * 300, "gone"])
def test_a_link_that_leads_nowhere_hides_nothing_of_its_folder(
    tmp_path: Path, name: str, target: str
) -> None:
    """A repository may bring one. To ask whether it is a folder fails, in several ways."""
    touch(tmp_path / ".env", tmp_path / ".envrc", tmp_path / "sub" / ".envrc", tmp_path / "file")
    before = {path for folder in Folders().below(str(tmp_path)) for path in (*folder.fixed, *folder.masked)}
    (tmp_path / name).symlink_to(name if target == "SELF" else target)
    folders = Folders()
    for found in (folders.below(str(tmp_path)), folders.controlling(str(tmp_path), ())):
        looked = [*found]
        assert before <= {path for folder in looked for path in (*folder.fixed, *folder.masked)}
        assert not [folder for folder in looked if folder.fault or folder.is_shut]
    changed = put_right(
        {}, [path for folder in looked for path in (*folder.fixed, *folder.fixed_links)]
    ).changed
    assert str(tmp_path) not in changed


@pytest.mark.requirement("C12", "L2")
def test_a_folder_that_cannot_be_read_for_a_moment_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What commands left is put right later. Only a path that is too long can never be read."""
    touch(tmp_path / "src" / ".envrc")
    scan = os.scandir

    def fail(path: str) -> object:
        if path == str(tmp_path / "src"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(OSError, match=r"src cannot be read \(Input/output error\)"):
        [*Folders().controlling(str(tmp_path), ())]
    with pytest.raises(Refused, match="src cannot be read"):
        [*Folders().below(str(tmp_path))]
