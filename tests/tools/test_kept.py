"""What a command changes although it is protected is put back when it has ended."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from holdfast.protocol.fence import Fence
from holdfast.tools import kept
from holdfast.tools.aside import ASIDE, seen
from holdfast.tools.blocking import Refused
from holdfast.tools.kept import keep, opened, put_back, righted
from tests.tools.ordinary import as_an_ordinary_user

HOOK = "#!/bin/sh\ntrue\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """With a hook, a configuration, a folder of an editor, and a file for the environment."""
    for name in (".git/hooks/pre-commit", ".git/config", "sub/.vscode/deep/tasks.json", ".envrc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{HOOK}# {name}\n")
    (tmp_path / ".git/hooks/pre-commit").chmod(0o755)
    (tmp_path / "sub/.vscode/link").symlink_to("deep")
    return tmp_path


def fence(workspace: Path) -> Fence:
    names = (".git/hooks", ".git/config", "sub/.vscode", ".envrc")
    return Fence((str(workspace),), protected=tuple(str(workspace / name) for name in names))


def state(workspace: Path) -> dict[str, tuple[int, str]]:
    """Every file, link and folder, with its mode and content, without what was put aside."""
    found = {}
    for path in sorted(workspace.rglob("*")):
        if ASIDE in str(path):
            continue
        content = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else ""
        found[str(path.relative_to(workspace))] = (path.lstat().st_mode, content)
    return found


CHANGES = {
    "written": "echo x >> .git/hooks/pre-commit",
    "written with the old times": "touch -r .envrc t; echo 'x' > .envrc; touch -r t .envrc; rm t",
    "written to the same length": "printf '%016d' 0 > .envrc",
    "replaced": "echo x > n; mv n .git/config",
    "renamed": "mv .envrc other; rm other",
    "removed": "rm -r sub/.vscode",
    "removed with its folder": "rm -r sub",
    "made a link": "rm -r .git/hooks; ln -s /tmp .git/hooks",
    "made a folder": "rm .envrc; mkdir .envrc; touch .envrc/x",
    "another mode": "chmod 4777 .git/hooks/pre-commit",
    "a folder without rights": "chmod 0 .git/hooks",
    "another link": "ln -sfn /etc sub/.vscode/link",
    "a new file": "echo x > .git/hooks/post-commit",
    "a new file deep inside": "mkdir -p sub/.vscode/deep/new; echo x > sub/.vscode/deep/new/x",
    "its folder moved": "mv .git away; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit",
    "a folder above moved away": "mv sub other",
    "a folder above moved deeper": "mkdir -p a/b; mv sub a/b/c; ln -s /tmp sub",
    "exchanged": "mv .envrc t; mv .git/config .envrc; mv t .git/config",
    "linked and written": "ln .envrc second; echo x >> second; rm second",
}


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("command", CHANGES.values(), ids=CHANGES)
def test_what_a_command_changed_is_as_it_was(workspace: Path, command: str) -> None:
    before, copies = state(workspace), keep(fence(workspace), ())
    held = opened(copies)
    subprocess.run(["bash", "-ec", command], cwd=workspace, check=True)
    assert put_back(copies, held)
    after = state(workspace)
    assert {name: after.get(name) for name in before} == before


@pytest.mark.requirement("L2")
def test_what_did_not_change_is_neither_touched_nor_told(workspace: Path) -> None:
    copies = keep(fence(workspace), ())
    hook = workspace / ".git/hooks/pre-commit"
    was = hook.stat()
    subprocess.run(
        ["bash", "-ec", "echo x > a; mkdir b; chmod 700 .envrc; chmod 644 .envrc"], cwd=workspace, check=True
    )
    assert put_back(copies, opened(copies)) == []
    assert hook.stat() == was


def test_what_came_instead_is_kept_under_another_name(workspace: Path) -> None:
    copies = keep(fence(workspace), ())
    (workspace / ".envrc").write_text("of a person")
    (workspace / ".git/hooks/post-commit").write_text("new")
    changed = put_back(copies, {})
    assert changed == [str(workspace / ".git/hooks/post-commit"), str(workspace / ".envrc")]
    assert (workspace / f".envrc{ASIDE}").read_text() == "of a person"
    assert (workspace / f".git/hooks.post-commit{ASIDE}").read_text() == "new"
    assert [path.name for path in (workspace / ".git/hooks").iterdir()] == ["pre-commit"]


def test_a_protected_file_that_moved_to_another_protected_name_does_not_stay_there(workspace: Path) -> None:
    copies, place = keep(fence(workspace), ()), str(workspace / "sub" / ".envrc")
    before = seen([str(workspace / ".envrc")])
    (workspace / ".envrc").rename(place)

    def others(known: object) -> tuple[str, ...]:
        assert seen([place])[place] not in dict(known).values()  # type: ignore[call-overload]
        return (place,)

    assert righted(copies, {}, before, others) == (str(workspace / ".envrc"), place)


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("mode", [0o555, 0o111, 0o000])
def test_a_protected_file_is_put_back_also_in_a_folder_that_a_command_closed(
    workspace: Path, mode: int
) -> None:
    held = keep(fence(workspace), ())
    folder = workspace / "sub"
    file = folder / ".vscode/deep/tasks.json"
    was = file.read_text()
    with as_an_ordinary_user(workspace):
        file.write_text("evil")
        for closed in (file.parent, folder / ".vscode", folder):
            closed.chmod(mode)
        put_back(held, {})
        assert stat.S_IMODE(folder.stat().st_mode) == mode
    assert file.read_text() == was


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_a_command_that_never_starts_holds_no_folder_open(workspace: Path) -> None:
    before = descriptors()
    copies = keep(fence(workspace), ())
    assert descriptors() == before
    held = opened(copies)
    assert len(held) == 2
    righted(copies, held, {}, lambda _: ())
    assert descriptors() == before


@pytest.mark.requirement("L2")
def test_where_too_much_is_protected_no_command_runs(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MAX_BYTES", 100)
    (workspace / ".envrc").write_text("x" * 101)
    with pytest.raises(Refused, match="too much in it that must not be changed"):
        keep(fence(workspace), ())
    monkeypatch.setattr(kept, "MAX_FILES", 3)
    with pytest.raises(Refused, match="too much"):
        keep(fence(workspace), ())


@pytest.mark.requirement("L2", "S14")
def test_where_holdfasts_own_files_could_be_read_no_command_runs(workspace: Path) -> None:
    with pytest.raises(Refused, match="Holdfast's own files"):
        keep(fence(workspace), [str(workspace / "home")])


@pytest.mark.requirement("L2")
def test_a_file_that_changed_a_moment_ago_is_read_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two changes within a tick of the clock of the file system have the same time."""
    facts = lambda _: (1, 2, 0o100644, 3)  # noqa: E731
    monkeypatch.setattr(kept, "_facts", facts)
    copies = keep(fence(workspace), ())
    (workspace / ".envrc").write_text("evil")
    assert str(workspace / ".envrc") in put_back(copies, {})


@pytest.mark.requirement("L2")
def test_what_is_made_again_has_the_times_that_it_had(workspace: Path) -> None:
    copies, was = keep(fence(workspace), ()), (workspace / ".envrc").stat()
    (workspace / ".envrc").unlink()
    put_back(copies, {})
    assert (workspace / ".envrc").stat().st_mtime_ns == was.st_mtime_ns
