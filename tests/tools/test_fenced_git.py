"""Git inside a sandbox, wherever the repository lies: work is recorded, and nothing that git runs can be changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from holdfast.protocol.fence import Backend, Finding, Launch
from holdfast.protocol.settings import Walls
from holdfast.sandbox import bubblewrap, landlock
from holdfast.sandbox.bubblewrap import Bubblewrap
from holdfast.sandbox.process import Ended, Processes, clean_environment
from holdfast.testing.clock import never_over
from holdfast.tools.fencing import Fences
from holdfast.tools.own import OwnPlaces
from holdfast.tools.traces import Traces

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

WHO = ("-c", "user.email=a@b", "-c", "user.name=n", "-c", "protocol.file.allow=always")
WORK = (
    f"echo x > new.txt && git add new.txt && git {' '.join(WHO)} commit -qm inside && git status && git log"
)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *WHO, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def made(folder: Path) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def plain(folder: Path) -> Path:
    return made(folder / "plain")


def worktree(folder: Path) -> Path:
    git(made(folder / "main"), "worktree", "add", "-q", str(folder / "tree"))
    return folder / "tree"


def worktree_of_linked(folder: Path) -> Path:
    """A worktree whose main repository has a `.git` that links elsewhere."""
    tree = worktree(folder)
    (folder / "main" / ".git").rename(folder / "store")
    (folder / "main" / ".git").symlink_to("../store")
    return tree


def submodule(folder: Path) -> Path:
    made(folder / "library")
    git(made(folder / "main"), "submodule", "--quiet", "add", str(folder / "library"), "library")
    return folder / "main" / "library"


def linked(folder: Path) -> Path:
    made(folder / "linked")
    (folder / "linked" / ".git").rename(folder / "linked" / "real.git")
    (folder / "linked" / ".git").symlink_to("real.git")
    return folder / "linked"


def linked_out(folder: Path) -> Path:
    """A working tree whose `.git` links to a folder beside it, as those of `repo` do."""
    made(folder / "linked")
    (folder / "linked" / ".git").rename(folder / "store")
    (folder / "linked" / ".git").symlink_to("../store")
    return folder / "linked"


async def ran(workspace: Path, command: str) -> Ended:
    sandbox = bubblewrap.make()
    assert isinstance(sandbox, Bubblewrap)
    fence = Fences(OwnPlaces(), "/home/nobody").fence(os.path.realpath(workspace), Walls("bubblewrap"))
    processes = Processes(sandbox)
    argv, environ = ("/bin/bash", "-c", command), clean_environment(os.environ)
    try:
        launch = Launch(argv, str(workspace), "test:git", environ, 60, 60, never_over, fence=fence)
        return await processes.run(launch, lambda _: None)
    finally:
        await processes.aclose()


KINDS = [plain, worktree, worktree_of_linked, submodule, linked, linked_out]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("kind", KINDS)
async def test_work_is_recorded(tmp_path: Path, kind: Callable[[Path], Path]) -> None:
    workspace = kind(tmp_path)
    ended = await ran(workspace, WORK)
    assert ended.exit_code == 0, ended.output
    assert git(workspace, "log", "-1", "--format=%s") == "inside"
    assert "?? new.txt" not in git(workspace, "status", "--short")


CHANGES = {
    "a hook": "echo true > $(git rev-parse --git-common-dir)/hooks/pre-commit",
    "the configuration": "git config core.fsmonitor ./x",
    "other hooks": "cd $(git rev-parse --git-common-dir); "
    "mv hooks away && mkdir hooks && echo true > hooks/pre-commit",
    "another repository": "d=$(git rev-parse --git-common-dir); mv $d $d.away",
    "another common folder": "d=$(git rev-parse --git-dir); test -e $d/commondir && echo /tmp > $d/commondir",
}
"""What a command of a hostile model would change of a repository."""


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("kind", "command"),
    [
        pytest.param(
            kind,
            command,
            id=f"{name}-{kind.__name__}",
            marks=() if (at - number) % 3 == 0 else pytest.mark.long,
        )
        for number, kind in enumerate(KINDS)
        for at, (name, command) in enumerate(CHANGES.items())
    ],
)
async def test_nothing_that_git_runs_can_be_changed(
    tmp_path: Path, kind: Callable[[Path], Path], command: str
) -> None:
    if kind in (linked, linked_out) and "$d.away" in command:
        pytest.skip("A link can be replaced: nothing can be mounted on it. docs/security.md says so.")
    workspace = kind(tmp_path)
    common = Path(workspace, git(workspace, "rev-parse", "--git-common-dir"))
    before = (common / "config").read_bytes()
    ended = await ran(workspace, command)
    assert ended.exit_code != 0
    assert (common / "config").read_bytes() == before
    assert not (common / "hooks" / "pre-commit").exists()


@pytest.mark.requirement("L2")
async def test_a_worktree_sees_no_other_one_and_changes_none(tmp_path: Path) -> None:
    workspace = worktree(tmp_path)
    git(tmp_path / "main", "worktree", "add", "-q", str(tmp_path / "other"))
    (tmp_path / "other" / "bait").write_text("bait")
    assert (await ran(workspace, "cat ../other/bait")).exit_code
    assert (await ran(workspace, "rm ../main/.git/worktrees/other/HEAD")).exit_code
    assert (await ran(workspace, "cat ../main/a.txt")).exit_code


@pytest.mark.requirement("L2")
async def test_a_repository_that_does_not_lead_back_is_not_shown(tmp_path: Path) -> None:
    """A folder from a stranger could say that it belongs to any repository of this machine."""
    other, workspace = made(tmp_path / "other"), tmp_path / "workspace"
    workspace.mkdir()
    (workspace / ".git").write_text(f"gitdir: {other}/.git\n")
    ended = await ran(workspace, f"git log; ls {other}")
    assert ended.exit_code
    assert "first" not in ended.output


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", get_args(Backend)[:2])
async def test_work_is_recorded_where_a_link_leads_out_and_its_hooks_are_kept(
    tmp_path: Path, backend: Backend
) -> None:
    top, store = linked_out(tmp_path), tmp_path / "store"
    before = (store / "config").read_bytes()
    evil = "echo true > .git/hooks/pre-commit; echo '[core] pager = x' >> .git/config; true"
    for ended in await undone(top, backend, evil, WORK):
        assert ended.exit_code == 0, ended.output
    assert git(top, "log", "-1", "--format=%s") == "inside"
    assert (store / "config").read_bytes() == before
    assert not (store / "hooks" / "pre-commit").exists()


OTHERS = {
    "the repository of another project": "mkdir x; mv store x/.git; ln -sfn ../x/.git linked/.git",
    "a part of one": "mkdir .git; mv store .git/; ln -sfn ../.git/store linked/.git",
    "one with another working tree": "git -C linked config core.worktree ../x",
    "one without a working tree": "git -C linked config core.bare true",
    "one that a link of the workspace names": "ln -s ../store linked/in; ln -sfn in linked/.git",
    "a folder that holds the workspace": "mv store/* .; ln -sfn .. linked/.git",
    "one of a worktree": "echo ../x > store/gitdir",
}


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("other", OTHERS)
def test_a_link_shows_no_repository_that_may_belong_to_somebody_else(tmp_path: Path, other: str) -> None:
    top, fences = linked_out(tmp_path), Fences(OwnPlaces(), "/home/nobody")
    assert fences.rules(str(top), Walls()).writable[1:]
    subprocess.run(["bash", "-ec", OTHERS[other]], check=True, cwd=tmp_path)
    assert fences.rules(str(top), Walls()).writable == (str(top),)


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", get_args(Backend)[:2])
async def test_a_command_makes_no_link_to_a_repository_for_others(tmp_path: Path, backend: Backend) -> None:
    """Neither for the next one, nor for one that begins beside it."""
    linked_out(tmp_path)
    top = tmp_path / "workspace"
    top.mkdir()
    launch = Launch(("true",), str(top), "test:link", {}, 60, 60, never_over)
    fences = Fences(OwnPlaces(), "/home/nobody", backend, traces=Traces())
    begun = await fences.around(launch, str(top), Walls(backend))
    begun.check()
    (top / ".git").symlink_to("../store")
    beside = await fences.around(replace(launch, key="test:beside"), str(top), Walls(backend))
    assert beside.fence is not None
    assert beside.fence.writable == (str(top),)
    assert begun.put_right is not None
    assert begun.put_right().changed == (f"{top}/.git",)
    after = await fences.around(replace(launch, key="test:after"), str(top), Walls(backend))
    assert after.fence is not None
    assert after.fence.writable == (str(top),)


@pytest.mark.requirement("L2")
async def test_the_hooks_of_a_bare_repository_of_any_name_cannot_be_changed(tmp_path: Path) -> None:
    made(tmp_path / "workspace")
    git(tmp_path / "workspace", "init", "-q", "--bare", "server")
    assert (await ran(tmp_path / "workspace", "echo true > server/hooks/pre-receive")).exit_code
    assert (await ran(tmp_path / "workspace", "git push -q server HEAD:refs/heads/main")).exit_code == 0
    assert git(tmp_path / "workspace" / "server", "log", "-1", "--format=%s", "main") == "first"


async def undone(workspace: Path, backend: Backend, *commands: str) -> list[Ended]:
    """Run commands one after the other, and put right what each changed."""
    sandbox = (bubblewrap if backend == "bubblewrap" else landlock).make()
    if isinstance(sandbox, Finding) or (await sandbox.probe()).fault:
        pytest.skip(f"no {backend} on this machine")
    fences, processes = Fences(OwnPlaces(), "/home/nobody", backend), Processes(sandbox)
    ended: list[Ended] = []
    try:
        for number, command in enumerate(commands):
            argv, environ = ("/bin/bash", "-c", command), clean_environment(os.environ)
            launch = Launch(argv, str(workspace), f"test:git{number}", environ, 60, 60, never_over)
            around = await fences.around(launch, str(workspace), Walls(backend))
            ended.append(await processes.run(around, lambda _: None))
    finally:
        await processes.aclose()
    return ended


BACKENDS: list[Backend] = ["bubblewrap", "landlock"]
AS = f"git {' '.join(WHO)}"


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_commits_in_submodules_and_worktrees_of_the_workspace_stay(
    tmp_path: Path, backend: Backend
) -> None:
    top = submodule(tmp_path).parent
    git(top, "commit", "-qm", "library")
    git(top, "worktree", "add", "-q", "tree")
    work = f"touch $RANDOM; git add . && {AS} commit -qm inside && git pull -q . HEAD"
    for ended in await undone(top, backend, f"cd library; {work}", f"cd tree; {work}", f"cd tree; {work}"):
        assert (ended.exit_code, ended.put_right.changed) == (0, ()), ended.output
    for folder in ("library", "tree"):
        assert git(top / folder, "log", "-1", "--format=%s") == "inside"
        assert git(top / folder, "status", "--short") == ""


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", ["library", "tree"])
async def test_what_controls_git_in_submodules_and_worktrees_is_kept(
    tmp_path: Path, backend: Backend, place: str
) -> None:
    top = submodule(tmp_path).parent
    git(top, "worktree", "add", "-q", "tree")
    common = Path(top, git(top / place, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    own = Path(top, git(top / place, "rev-parse", "--path-format=absolute", "--git-dir"))
    kept = [path for path in (common / "config", own / "commondir", own / "gitdir") if path.exists()]
    before = [path.read_bytes() for path in kept]
    evil = "; ".join(f"echo '[core] fsmonitor = x' >> {path}" for path in kept)
    more = f"mkdir -p {own}/hooks; echo x > {own}/hooks/pre-commit; echo '[core] pager = x' > {own}/config.worktree"
    await undone(top, backend, f"{evil}; {more}; true")
    assert [path.read_bytes() for path in kept] == before
    assert not (own / "hooks" / "pre-commit").exists()
    assert not (own / "config.worktree").exists()


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_repository_with_working_trees_is_kept_also_without_its_head(
    tmp_path: Path, backend: Backend
) -> None:
    """git needs no HEAD there to run what the configuration names in one of the trees."""
    top = tmp_path / "workspace"
    git(made(tmp_path / "main"), "clone", "-q", "--bare", ".", str(top / "store"))
    git(top / "store", "worktree", "add", "-q", str(top / "tree"))
    before = (top / "store" / "config").read_bytes()
    evil = (
        "echo '[core] fsmonitor = touch ran; false' >> store/config; echo x > store/hooks/post-checkout; true"
    )
    await undone(top, backend, "rm store/HEAD", evil)
    assert not (top / "store" / "HEAD").exists()
    assert (top / "store" / "config").read_bytes() == before
    assert not (top / "store" / "hooks" / "post-checkout").exists()
    git(top / "tree", "status")
    assert not (top / "tree" / "ran").exists()


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_clone_keeps_its_remote_and_can_be_fetched_later(tmp_path: Path, backend: Backend) -> None:
    made(tmp_path / "workspace" / "server")
    commands = (
        "git clone -q server copy; git clone -q --shared server other",
        "cd other; git log -1 && cd ../copy && git remote -v; git fetch -q && git pull -q",
    )
    first, second = await undone(tmp_path / "workspace", backend, *commands)
    assert (first.exit_code, first.put_right.changed) == (0, ())
    assert second.exit_code == 0, second.output
    assert "origin" in second.output


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_rebase_goes_on_in_the_next_command(tmp_path: Path, backend: Backend) -> None:
    top = made(tmp_path / "workspace")
    begin = "git checkout -qb a; echo 1 > f; git add f; C commit -qm a; git checkout -qb b HEAD~1; echo 2 > f"
    begin = f"{begin}; git add f; C commit -qm b; C rebase -q a; test -d .git/rebase-merge".replace(
        "C ", f"{AS} "
    )
    first, second = await undone(
        top, backend, begin, f"echo 3 > f; git add f; GIT_EDITOR=true {AS} rebase --continue"
    )
    assert first.exit_code == 0, first.output
    assert (second.exit_code, second.put_right.changed) == (0, ()), second.output
    assert not (top / ".git" / "rebase-merge").exists()
    assert git(top, "log", "-2", "--format=%s").split() == ["b", "a"]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_the_configuration_of_git_or_a_link_of_a_hook_names_cannot_be_changed(
    tmp_path: Path, backend: Backend
) -> None:
    top = made(tmp_path / "workspace")
    git(top, "config", "core.hooksPath", ".husky")
    git(top, "config", "include.path", "../shared")
    kept = [top / ".husky" / "pre-commit", top / "shared", top / "scripts" / "check"]
    for path in kept:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (top / ".git" / "hooks" / "pre-push").symlink_to("../../scripts/check")
    evil = "for f in .husky/pre-commit shared scripts/check; do echo '[core] fsmonitor = x' > $f; done; true"
    (ended,) = await undone(top, backend, f"{evil}; {WORK}")
    assert [path.read_text() for path in kept] == ["", "", ""]
    assert git(top, "log", "-1", "--format=%s") == "inside"
    assert (backend == "landlock") == bool(ended.put_right.changed)
