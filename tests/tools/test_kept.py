"""What a command changes although it is protected is put back when it has ended."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.protocol.fence import Fence, Undone
from holdfast.tools import kept
from holdfast.tools.aside import ASIDE, Place, seen
from holdfast.tools.blocking import Refused
from holdfast.tools.kept import keep, opened, put_back, righted
from holdfast.tools.trace import Trace
from holdfast.tools.traces import Traces
from holdfast.tools.undoing import Undoing
from tests.tools.ordinary import as_an_ordinary_user

HOOK = "#!/bin/sh\ntrue\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """With a hook, a configuration, a folder of an editor, and a file for the environment."""
    names = (".git/hooks/pre-commit", ".git/config", "sub/.vscode/deep/tasks.json", ".envrc", "sub/in/.envrc")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{HOOK}# {name}\n")
    (tmp_path / ".git/hooks/pre-commit").chmod(0o755)
    (tmp_path / "sub/.vscode/link").symlink_to("deep")
    return tmp_path


def fence(workspace: Path) -> Fence:
    names = (".git/hooks", ".git/config", "sub/.vscode", ".envrc", "sub/in/.envrc")
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
    "a folder above made a file": "rm -r sub; echo x > sub",
    "a folder above made a link": "rm -r sub; mkdir other; ln -s other sub",
    "a folder above made a link to what is the same": "cp -a sub other; rm -r sub; ln -s other sub",
    "a folder above moved, and the one above it removed": "mv sub/in away; rm -r sub",
    "a trap where it is made again": "rm .envrc; mkdir .envrc.put-aside-draft",
}


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("command", CHANGES.values(), ids=CHANGES)
def test_what_a_command_changed_is_as_it_was(workspace: Path, command: str) -> None:
    before, copies = state(workspace), keep(fence(workspace), ())
    held = opened(copies)
    subprocess.run(["bash", "-ec", command], cwd=workspace, check=True)
    undone = righted(copies, {}, lambda _: Undone(), held)
    assert (bool(undone.changed), undone.stuck) == (True, ())
    after = state(workspace)
    assert {name: after.get(name) for name in before} == before
    for fd in held.values():
        os.close(fd)


@pytest.mark.requirement("L2")
def test_what_may_be_changed_in_a_protected_folder_stays_changed(workspace: Path) -> None:
    deep = workspace / "sub/.vscode/deep"
    copies = keep(replace(fence(workspace), writable=(str(workspace), str(deep))), ())
    (deep / "tasks.json").write_text("changed")
    (deep / "new").mkdir()
    assert righted(copies, {}, lambda _: Undone()) == Undone()
    assert sorted(path.name for path in deep.iterdir()) == ["new", "tasks.json"]
    (deep.parent / "new").mkdir()
    assert righted(copies, {}, lambda _: Undone()).changed == (str(deep.parent / "new"),)
    deep.rename(workspace / "away")
    assert righted(copies, {}, lambda _: Undone()).changed == (str(deep),)
    assert (deep / "tasks.json").read_text() == "changed"


@pytest.mark.requirement("L2", "C8")
@pytest.mark.parametrize("command", CHANGES.values(), ids=CHANGES)
def test_what_a_killed_command_changed_is_as_it_was(workspace: Path, tmp_path: Path, command: str) -> None:
    home = tmp_path.with_name(f"{tmp_path.name}-home")
    home.mkdir()
    before, copies = state(workspace), keep(fence(workspace), ())
    Traces(home).begin("s:1", Trace((str(workspace),), 0, {}, (), kept=copies))
    (stored,) = (home / "aside").iterdir()
    assert (stored.stat().st_mode & 0o777, stored.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    subprocess.run(["bash", "-ec", command], cwd=workspace, check=True)
    ((_, trace),) = Traces(home).left("s").items()
    assert trace.kept is not None
    undone = put_back(trace.kept)
    assert (bool(undone.changed), undone.stuck) == (True, ())
    after = state(workspace)
    assert {name: after.get(name) for name in before} == before


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A workspace on a disk of half a MiB."""
    folder = tmp_path.with_name(f"{tmp_path.name}-small")
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.requirement("L2", "C15")
@pytest.mark.parametrize("change", ["rm .envrc", "echo evil > .envrc", "mv .envrc away"])
def test_on_a_full_disk_no_half_of_a_file_is_put_back_and_the_whole_comes_later(
    small: Path, tmp_path: Path, change: str
) -> None:
    home, envrc = tmp_path / "home", small / ".envrc"
    home.mkdir()
    envrc.write_text("mine\n" * 4_000)
    copies = keep(Fence((str(small),), protected=(str(envrc),)), ())
    traces, trace = Traces(home), Trace((str(small),), 0, {}, (), kept=copies, key="s:1")
    undoing = Undoing(traces, lambda _: ((), ()))
    traces.begin("s:1", trace)
    subprocess.run(f"{change}; cat /dev/zero > big 2> /dev/null", shell=True, cwd=small, check=False)
    undone = undoing.end(trace)
    assert undone.stuck == undone.changed == (str(envrc),)
    assert not envrc.exists()
    assert not [path.name for path in small.iterdir() if path.name.endswith(kept._DRAFT)]
    (said,) = traces.taken("s")
    assert said.startswith("Not put back: .envrc (No space left on device). ")
    assert "what was there before was put back, but for these." in said
    assert "tries again before the next command" in said
    with pytest.raises(
        Refused, match=r"could not be put back: \.envrc \(No space left on device\)\. Holdfast"
    ):
        undoing.retry("s", lambda: [str(small)])
    (small / "big").unlink()
    undoing.retry("s", lambda: [str(small)])
    assert envrc.read_text() == "mine\n" * 4_000
    assert [said.partition(". ")[0] for said in traces.taken("s")] == [
        "What could not be put back before is right now: .envrc"
    ]
    assert not list((home / "aside").iterdir())


@pytest.mark.requirement("C8")
def test_what_could_not_be_put_back_outlives_its_process(small: Path, tmp_path: Path) -> None:
    home, envrc = tmp_path / "home", small / ".envrc"
    home.mkdir()
    envrc.write_text("mine\n" * 4_000)
    trace = Trace(
        (str(small),), 0, {}, (), kept=keep(Fence((str(small),), protected=(str(envrc),)), ()), key="s:1"
    )
    traces = Traces(home)
    traces.begin("s:1", trace)
    subprocess.run("rm .envrc; cat /dev/zero > big 2> /dev/null", shell=True, cwd=small, check=False)
    assert Undoing(traces, lambda _: ((), ())).end(trace).stuck
    (small / "big").unlink()
    assert Undoing(Traces(home), lambda _: ((), ())).recovered("s")
    assert envrc.read_text() == "mine\n" * 4_000


@pytest.mark.requirement("C8")
def test_a_deleted_session_leaves_nothing_of_its_commands(workspace: Path, tmp_path: Path) -> None:
    home = tmp_path.with_name(f"{tmp_path.name}-home")
    home.mkdir()
    traces, before = Traces(home), state(workspace)
    for key in ("s:1", "t:1"):
        copies = keep(fence(workspace), ())
        traces.begin(key, Trace((str(workspace),), 0, {}, (), kept=copies, key=key))
    (workspace / ".git/config").write_text("evil")
    Undoing(Traces(home), lambda _: ((), ())).recovered("s")
    Traces(home).forget("s")
    assert len(list((home / "aside").iterdir())) == 1
    assert state(workspace) == before


@pytest.mark.requirement("S14")
def test_names_that_are_no_text_are_kept_and_what_is_not_stored_leaves_no_draft(tmp_path: Path) -> None:
    odd = os.fsdecode(b"/ws/\xff/.envrc")
    traces = Traces(tmp_path)
    traces.begin("s:1", Trace(("/ws",), 0, {odd: Place((1, 2), odd)}, (odd,)))
    assert [each.before for each in Traces(tmp_path).left("s").values()] == [{odd: Place((1, 2), odd)}]
    folder = tmp_path / "aside"
    for path in folder.iterdir():
        path.unlink()
        path.mkdir()  # nothing can be renamed to it
    with pytest.raises(OSError, match="directory"):
        traces.begin("s:1", Trace(("/ws",), 0, {}, ()))
    assert [path.suffix for path in folder.iterdir()] == [".json"]


@pytest.mark.requirement("L2")
def test_what_did_not_change_is_neither_touched_nor_told(workspace: Path) -> None:
    copies = keep(fence(workspace), ())
    hook = workspace / ".git/hooks/pre-commit"
    was = hook.stat()
    subprocess.run(
        ["bash", "-ec", "echo x > a; mkdir b; chmod 700 .envrc; chmod 644 .envrc"], cwd=workspace, check=True
    )
    assert put_back(copies) == Undone()
    assert hook.stat() == was


def test_what_came_instead_is_kept_under_another_name(workspace: Path) -> None:
    copies = keep(fence(workspace), ())
    (workspace / ".envrc").write_text("of a person")
    (workspace / ".git/hooks/post-commit").write_text("new")
    changed = put_back(copies).changed
    assert changed == (str(workspace / ".envrc"), str(workspace / ".git/hooks/post-commit"))
    assert (workspace / f".envrc{ASIDE}").read_text() == "of a person"
    assert (workspace / f".git/hooks.post-commit{ASIDE}").read_text() == "new"
    assert [path.name for path in (workspace / ".git/hooks").iterdir()] == ["pre-commit"]


def test_a_protected_file_that_moved_to_another_protected_name_does_not_stay_there(workspace: Path) -> None:
    copies, place = keep(fence(workspace), ()), str(workspace / "sub" / ".envrc")
    before = seen([str(workspace / ".envrc")])
    (workspace / ".envrc").rename(place)

    def others(known: object) -> Undone:
        assert seen([place])[place] not in dict(known).values()  # type: ignore[call-overload]
        return Undone((place,))

    assert righted(copies, before, others).changed == (str(workspace / ".envrc"), place)


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
        assert stat.S_IMODE(folder.stat().st_mode) == (mode if mode == 0o555 else mode | 0o700)
    assert file.read_text() == was


@pytest.mark.requirement("L2")
def test_however_many_folders_are_gone_the_rest_is_looked_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / f"d{number:03}" / "x" for number in range(80)]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / ".envrc").write_text("mine")
    copies = keep(Fence((str(tmp_path),), protected=tuple(str(each / ".envrc") for each in folders)), ())
    held = opened(copies)
    (tmp_path / "away").mkdir()  # before the others go: it could get the inode of one
    for folder in folders[:70]:
        shutil.rmtree(folder.parent)
    folders[-1].rename(tmp_path / "away" / "inner")
    folders[-1].parent.rename(tmp_path / "away" / "outer")
    looked: list[object] = []
    scandir = os.scandir
    monkeypatch.setattr("os.scandir", lambda path: [looked.append(path), scandir(path)][1])
    assert not righted(copies, {}, lambda _: Undone(), held).stuck
    assert [each for each in folders if (each / ".envrc").read_text() != "mine"] == []
    assert not [*(tmp_path / "away").iterdir()]
    assert len(looked) < 4 * len(folders)
    for fd in held.values():
        os.close(fd)


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
@pytest.mark.parametrize("is_later", [False, True], ids=["at once", "when it had failed before"])
def test_no_folder_is_made_where_a_link_of_a_command_leads(
    workspace: Path, tmp_path: Path, *, is_later: bool
) -> None:
    """The command itself may not write there."""
    victim = tmp_path.with_name(f"{tmp_path.name}-victim")
    victim.mkdir()
    before, copies = state(workspace), keep(fence(workspace), ())
    command = f"rm -r sub; ln -s {victim} sub"
    subprocess.run(["bash", "-ec", command], cwd=workspace, check=True)
    if is_later:
        copies = copies.only(path for path in copies.copies if "/sub/" in path)
    assert put_back(copies).stuck == ()
    assert [*victim.iterdir()] == []
    assert state(workspace) == before
    assert (workspace / f"sub{ASIDE}").readlink() == victim


@pytest.mark.requirement("L2")
def test_what_a_background_command_links_to_is_not_kept(workspace: Path, tmp_path: Path) -> None:
    """Holdfast may read more than a command, and would put it back where the command can read it."""
    elsewhere = tmp_path.with_name(f"{tmp_path.name}-elsewhere")
    (elsewhere / "in").mkdir(parents=True)
    (elsewhere / "in/.envrc").write_text("a secret of the user")
    (workspace / "sub").rename(workspace / "away")
    (workspace / "sub").symlink_to(elsewhere)
    with pytest.raises(Refused, match=r"sub/in/\.envrc was moved, .* It can be called again"):
        keep(Fence((str(workspace),), protected=(str(workspace / "sub/in/.envrc"),)), ())


@pytest.mark.requirement("L2")
def test_what_cannot_be_put_back_is_named_with_the_reason(workspace: Path) -> None:
    copies = keep(fence(workspace), ())
    (workspace / ".envrc").unlink()
    workspace.rename(workspace.with_name("moved"))
    workspace.symlink_to("moved")
    undone = put_back(copies)
    assert str(workspace / ".envrc") in undone.stuck
    assert undone.why == "Not a directory"


@pytest.mark.requirement("L2")
def test_a_file_that_is_made_again_is_there_whole_or_not_at_all(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, written = keep(fence(workspace), ()), list[bool]()
    (workspace / ".envrc").unlink()
    monkeypatch.setattr(os, "utime", lambda *_, **__: written.append((workspace / ".envrc").exists()))
    put_back(copies)
    assert written == [False]
    assert (workspace / ".envrc").exists()


@pytest.mark.requirement("L2")
def test_what_came_into_a_protected_folder_is_put_aside_however_long_its_name_is(workspace: Path) -> None:
    copies = keep(fence(workspace), ())
    long = "x" * 247 + ".service"
    (workspace / "sub/.vscode" / long).write_text("evil")
    assert put_back(copies).changed == (str(workspace / "sub/.vscode" / long),)
    assert not (workspace / "sub/.vscode" / long).exists()
    assert [path.read_text() for path in (workspace / "sub").glob(f"*{ASIDE}")] == ["evil"]


@pytest.mark.requirement("L2")
def test_a_file_that_changed_a_moment_ago_is_read_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two changes within a tick of the clock of the file system have the same time."""
    facts = lambda _: (1, 2, 0o100644, 3)  # noqa: E731
    monkeypatch.setattr(kept, "_facts", facts)
    copies = keep(fence(workspace), ())
    (workspace / ".envrc").write_text("evil")
    assert str(workspace / ".envrc") in put_back(copies, {}).changed


@pytest.mark.requirement("L2")
def test_a_long_file_is_put_back_whole(workspace: Path) -> None:
    content = b"".join(b"%d\n" % number for number in range(40_000))
    (workspace / ".envrc").write_bytes(content)
    copies = keep(fence(workspace), ())
    (workspace / ".envrc").write_bytes(content[:-2] + b"x\n")
    assert put_back(copies).changed == (str(workspace / ".envrc"),)
    assert (workspace / ".envrc").read_bytes() == content


@pytest.mark.requirement("L2")
def test_what_is_made_again_has_the_times_that_it_had(workspace: Path) -> None:
    copies, was = keep(fence(workspace), ()), (workspace / ".envrc").stat()
    (workspace / ".envrc").unlink()
    put_back(copies, {})
    assert (workspace / ".envrc").stat().st_mtime_ns == was.st_mtime_ns


@pytest.mark.requirement("L2")
def test_a_protected_folder_may_be_deeper_than_a_stack(workspace: Path) -> None:
    deep = workspace / "sub/.vscode" / "/".join("a" * 1_100)
    subprocess.run(["mkdir", "-p", str(deep)], check=True)
    try:
        copies = keep(fence(workspace), ())
        assert str(deep) in copies.copies
        assert put_back(copies) == Undone()
    finally:
        subprocess.run(["rm", "-rf", str(workspace / "sub")], check=True)
