"""Git inside a sandbox, wherever the repository lies: work is recorded, and nothing that git runs can be changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.protocol.fence import Launch
from holdfast.protocol.settings import Walls
from holdfast.sandbox import bubblewrap
from holdfast.sandbox.bubblewrap import Bubblewrap
from holdfast.sandbox.process import Ended, Processes, clean_environment
from holdfast.testing.clock import never_over
from holdfast.tools.fencing import Fences
from holdfast.tools.own import OwnPlaces

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


def submodule(folder: Path) -> Path:
    made(folder / "library")
    git(made(folder / "main"), "submodule", "--quiet", "add", str(folder / "library"), "library")
    return folder / "main" / "library"


def linked(folder: Path) -> Path:
    made(folder / "linked")
    (folder / "linked" / ".git").rename(folder / "linked" / "real.git")
    (folder / "linked" / ".git").symlink_to("real.git")
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


KINDS = [plain, worktree, submodule, linked]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("kind", KINDS)
async def test_work_is_recorded(tmp_path: Path, kind: Callable[[Path], Path]) -> None:
    workspace = kind(tmp_path)
    ended = await ran(workspace, WORK)
    assert ended.exit_code == 0, ended.output
    assert git(workspace, "log", "-1", "--format=%s") == "inside"
    assert "?? new.txt" not in git(workspace, "status", "--short")


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "command",
    [
        "echo true > $(git rev-parse --git-common-dir)/hooks/pre-commit",
        "git config core.fsmonitor ./x",
        "cd $(git rev-parse --git-common-dir); mv hooks away && mkdir hooks && echo true > hooks/pre-commit",
        "d=$(git rev-parse --git-common-dir); mv $d $d.away",
        "d=$(git rev-parse --git-dir); test -e $d/commondir && echo /tmp > $d/commondir",
    ],
    ids=["a hook", "the configuration", "other hooks", "another repository", "another common folder"],
)
async def test_nothing_that_git_runs_can_be_changed(
    tmp_path: Path, kind: Callable[[Path], Path], command: str
) -> None:
    if kind is linked and "$d.away" in command:
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
async def test_the_hooks_of_a_bare_repository_of_any_name_cannot_be_changed(tmp_path: Path) -> None:
    made(tmp_path / "workspace")
    git(tmp_path / "workspace", "init", "-q", "--bare", "server")
    assert (await ran(tmp_path / "workspace", "echo true > server/hooks/pre-receive")).exit_code
    assert (await ran(tmp_path / "workspace", "git push -q server HEAD:refs/heads/main")).exit_code == 0
    assert git(tmp_path / "workspace" / "server", "log", "-1", "--format=%s", "main") == "first"
