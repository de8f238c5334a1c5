"""Files that are secret or control programs, and have another name (hard link) in the workspace."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.protocol.fence import Backend
from holdfast.protocol.settings import Walls
from holdfast.sandbox.process import Ended
from holdfast.tools import other_names
from holdfast.tools.blocking import Refused
from holdfast.tools.fencing import Fences
from holdfast.tools.other_names import Named, OtherNames
from holdfast.tools.own import OwnPlaces
from tests.tools.ordinary import as_an_ordinary_user
from tests.tools.test_fenced_git import BACKENDS, undone

WALLS = Walls("bubblewrap")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


@pytest.fixture
def fences(tmp_path: Path) -> Fences:
    return Fences(OwnPlaces(), str(tmp_path / "home"))


def linked(folder: Path, names: dict[str, str]) -> None:
    """Give files other names."""
    for name, other in names.items():
        for path in (folder / name, folder / other):
            path.parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
        os.link(folder / name, folder / other)


def within(folder: Path, paths: tuple[str, ...]) -> list[str]:
    return sorted(os.path.relpath(path, folder) for path in paths)


@pytest.mark.requirement("L2", "S14")
def test_what_is_masked_or_protected_is_so_under_each_of_its_names(fences: Fences, workspace: Path) -> None:
    linked(workspace, {
        ".env": "notes.txt", "conf/.ssh/deploy": "src/a/deploy", "server.key": "node_modules/a/b/c/readme",
        ".envrc": "run.sh", ".git/hooks/pre-push": "src/push.sh", ".vscode/a/tasks.json": ".git/objects/ab/cd",
        "plain": "as plain", "id_rsa": ".vscode/key", ".profile": ".vscode/run",
    })  # fmt: skip
    fence = fences.fence(str(workspace), WALLS)
    assert within(workspace, fence.masked) == [
        ".env", ".vscode/key", "conf/.ssh", "id_rsa", "node_modules/a/b/c/readme", "notes.txt", "server.key",
        "src/a/deploy",
    ]  # fmt: skip
    assert within(workspace, fence.protected) == [
        ".envrc", ".git/hooks", ".git/objects/ab/cd", ".profile", ".vscode", "id_rsa", "run.sh", "src/push.sh",
    ]  # fmt: skip


@pytest.mark.requirement("L2", "S14")
def test_other_names_are_found_in_all_folders_that_commands_see(
    fences: Fences, workspace: Path, tmp_path: Path
) -> None:
    linked(tmp_path, {
        "workspace/.env": "shown/notes", "workspace/id_rsa": "hidden/x", "workspace/.envrc": "more/run",
        "more/.envrc": "workspace/go", "workspace/.profile": "shown/as it is",
        "workspace/x.key": "a file",
    })  # fmt: skip
    walls = replace(
        WALLS, read=(str(tmp_path / "shown"), str(tmp_path / "a file")), write=(str(tmp_path / "more"),)
    )
    fence = fences.fence(str(workspace), walls)
    assert within(tmp_path, fence.masked) == [
        "a file",
        "shown/notes",
        "workspace/.env",
        "workspace/id_rsa",
        "workspace/x.key",
    ]
    assert within(tmp_path, fence.protected) == [
        "more/.envrc", "more/run", "workspace/.envrc", "workspace/.profile", "workspace/go",
    ]  # fmt: skip


EVIL = "cat notes; echo 'echo evil' > run.sh; echo 'echo evil' >> src/push.sh; true"


@pytest.mark.requirement("L2", "S14")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_no_command_reads_or_changes_it_under_another_name(workspace: Path, backend: Backend) -> None:
    linked(workspace, {".env": "notes", ".envrc": "run.sh", ".git/hooks/pre-push": "src/push.sh"})
    (workspace / ".env").write_text("the secret")
    ended: list[Ended] = await undone(
        workspace, backend, EVIL, "ln .envrc late; ln -f .envrc a; true", "echo evil > late"
    )
    kept = (".envrc", "run.sh", ".git/hooks/pre-push", "src/push.sh")
    assert [(workspace / path).read_text() for path in kept] == [""] * 4
    if backend == "bubblewrap":
        assert "the secret" not in ended[0].output
    else:  # it puts right what it cannot prevent
        assert within(workspace, ended[0].put_right.changed) == sorted(kept)


@pytest.mark.requirement("L2")
def test_without_other_names_and_with_all_of_them_known_nothing_is_searched(workspace: Path) -> None:
    linked(workspace, {".env": ".env.local", ".envrc": ".vscode/x", "plain": "b"})
    (workspace / "id_rsa").touch()
    masked = [str(workspace / name) for name in (".env", ".env.local", "id_rsa")]
    protected = [str(workspace / name) for name in (".envrc", ".vscode")]
    assert OtherNames().found(masked, protected, ("/x" * 3000,)) == Named()


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (bool, ["a/1/notes"]),
        (lambda top: os.link(top / ".env", top / "a" / "2" / "new"), ["a/1/notes", "a/2/new"]),
        (lambda top: (top / "a" / "1" / "notes").rename(top / "a" / "2" / "n"), ["a/2/n"]),
        (lambda top: (top / "a" / "1").rename(top / "b"), ["b/notes"]),
        (lambda top: (top / "a" / "1" / "notes").unlink(), []),
        (lambda top: linked(top, {"id_rsa": "a/1/key"}), ["a/1/key", "a/1/notes"]),
    ],
    ids=["nothing", "a new name", "another name", "a moved folder", "a name less", "another file"],
)
def test_folders_are_read_again_when_they_or_the_files_have_changed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], found: list[str]
) -> None:
    linked(workspace, {".env": "a/1/notes"})
    os.link(workspace / ".env", workspace.parent / "outside")  # so it is searched everywhere
    for number in range(2, 30):
        (workspace / "a" / f"{number}").mkdir()
    monkeypatch.setattr(other_names, "is_fresh", lambda *_: False)  # as long after all these changes
    names, masked = OtherNames(), [str(workspace / ".env"), str(workspace / "id_rsa")]
    assert within(workspace, names.found(masked, (), [str(workspace)]).masked) == ["a/1/notes"]
    change(workspace)
    read: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (read.append(path), scandir(path))[1])
    assert within(workspace, names.found(masked, (), [str(workspace)]).masked) == found
    assert len(read) < 5 or (workspace / "id_rsa").exists()


@pytest.mark.requirement("L2")
def test_where_there_is_too_much_to_look_for_other_names_no_command_runs(
    fences: Fences, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked(workspace, {".env": "../outside"})
    for number in range(20):
        (workspace / f"{number}").touch()
    fences.fence(str(workspace), WALLS)
    monkeypatch.setattr(other_names, "MAX_ENTRIES", 20)
    with pytest.raises(Refused, match=r"\.env has other names \(hard links\).* more than 20 files"):
        fences.fence(str(workspace), WALLS)
    linked(workspace, {f".vscode/{number}": f"x/{number}" for number in range(21)})
    with pytest.raises(Refused, match="more than 20 files that it must keep"):
        fences.fence(str(workspace), WALLS)


@pytest.mark.requirement("L2", "S14")
def test_a_folder_that_nobody_can_look_into_is_masked_if_another_name_may_be_there(
    fences: Fences, workspace: Path
) -> None:
    linked(workspace, {".env": "node_modules/a/b/shut/notes"})
    with as_an_ordinary_user(workspace):
        (workspace / "node_modules/a/b/shut").chmod(0)
        fence = fences.fence(str(workspace), WALLS)
        (workspace / "node_modules/a/b/shut").chmod(0o700)
    assert within(workspace, fence.masked) == [".env", "node_modules/a/b/shut"]


@pytest.mark.requirement("L2")
def test_a_folder_that_cannot_be_searched_is_no_reason_to_leave_a_name_out(workspace: Path) -> None:
    linked(workspace, {".env": "../outside"})
    with pytest.raises(Refused, match="cannot be read"):
        OtherNames().found([str(workspace / ".env")], (), ["/x" * 3000])


@pytest.mark.requirement("L2", "S14")
def test_a_folder_is_searched_again_for_a_file_that_has_become_secret_since(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked(workspace, {".env": "a/notes", "b.key": "a/key"})
    monkeypatch.setattr(other_names, "is_fresh", lambda *_: False)  # as long after all these changes
    names, first, later = OtherNames(), str(workspace / ".env"), str(workspace / "b.key")
    assert within(workspace, names.found([first], (), [str(workspace)]).masked) == ["a/notes"]
    assert within(workspace, names.found([first, later], (), [str(workspace)]).masked) == ["a/key", "a/notes"]


@pytest.mark.requirement("L2", "S14")
def test_a_folder_that_has_just_changed_is_not_remembered(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next change may have the same time."""
    linked(workspace, {".env": "a/notes"})
    monkeypatch.setattr(other_names, "is_fresh", lambda *_: True)
    names, read = OtherNames(), list[str]()
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (read.append(path), scandir(path))[1])
    for _ in range(2):
        names.found([str(workspace / ".env")], (), [str(workspace)])
    assert read.count(str(workspace / "a")) == 2
