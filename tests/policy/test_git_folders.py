"""What git keeps in the folder of a repository: a tool or a command that writes it by itself asks."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from holdfast.tools.git_folders import place_in_git
from tests.policy.reference import Reference

pytestmark = pytest.mark.requirement("C12")

KEPT = [
    "index",
    "index.lock",
    "packed-refs",
    "refs/heads/main",
    "objects/pack/x.idx",
    "logs/HEAD",
    "HEAD",
    "new",
]


@pytest.fixture
def repositories(reference: Reference) -> Reference:
    """The workspace with a bare repository, and with what a worktree has of one."""
    for name in ("bare/objects", "bare/refs", "part"):
        (reference.workspace / name).mkdir(parents=True)
    for name in ("bare/HEAD", "part/HEAD", "part/commondir"):
        (reference.workspace / name).write_text("ref: refs/heads/main\n")
    return reference


@pytest.mark.parametrize("folder", [".git", "sub/.git", ".GIT", "bare", "part"])
@pytest.mark.parametrize("name", KEPT)
async def test_what_git_keeps_is_not_written_unasked(repositories: Reference, folder: str, name: str) -> None:
    path = f"{folder}/{name}"
    for autonomy in ("supervised", "full"):
        for text in (f"rm -f {path}", f"echo x > {path}", f"touch {path}", f"cp a.txt {path}", f"tee {path}"):
            assert (await repositories.verdict("command", text, autonomy)).verdict == "ask", text
        assert (await repositories.verdict("write", path, autonomy)).verdict == "ask"


@pytest.mark.parametrize("name", ["config", "hooks/pre-push", "info/attributes", "worktrees/a/gitdir"])
async def test_what_controls_git_is_not_written_in_a_folder_with_another_name(
    repositories: Reference, name: str
) -> None:
    for folder in ("bare", "part"):
        assert (await repositories.verdict("command", f"echo x > {folder}/{name}")).verdict == "deny"
        assert (await repositories.verdict("write", f"{folder}/{name}", "full")).verdict == "deny"


async def test_a_link_into_a_repository_does_not_hide_it(repositories: Reference) -> None:
    (repositories.workspace / "short").symlink_to("bare")
    (repositories.workspace / "kept").symlink_to(".git")
    assert (await repositories.verdict("write", "short/index")).verdict == "ask"
    assert (await repositories.verdict("write", "kept/index")).verdict == "deny"
    assert (await repositories.verdict("command", "cd .git; rm index")).verdict == "deny"


@pytest.mark.parametrize("name", ["COMMIT_EDITMSG", "MERGE_MSG", "SQUASH_MSG", "TAG_EDITMSG"])
async def test_a_message_for_a_commit_is_written_unasked(repositories: Reference, name: str) -> None:
    for folder in (".git", "bare"):
        assert (await repositories.verdict("write", f"{folder}/{name}")).verdict == "allow"
        assert (await repositories.verdict("command", f"echo x > {folder}/{name}")).verdict == "allow"
        assert (await repositories.verdict("write", f"{folder}/{name}/../index")).verdict == "ask"


async def test_reading_what_git_keeps_needs_no_approval(repositories: Reference) -> None:
    for text in ("cat .git/HEAD", "ls .git bare/refs", "wc -c .git/index", "git status", "git log -3"):
        assert (await repositories.verdict("command", text)).verdict == "allow", text


PARTS = ["HEAD", "objects", "refs", "config", "commondir"]


def test_every_folder_that_git_takes_for_a_repository_is_one(tmp_path: Path) -> None:
    """The real git is asked about folders with some of the parts of one."""
    made = tmp_path / "made"
    subprocess.run(["git", "init", "-q", "--bare", made], check=True, timeout=20)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    taken = 0
    for count in range(len(PARTS) + 1):
        for chosen in itertools.combinations(PARTS, count):
            folder = tmp_path / "-".join(("f", *chosen))
            folder.mkdir()
            for part in chosen:
                if part == "commondir":
                    (folder / part).write_text(f"{made}\n")
                elif part == "HEAD":
                    (folder / part).write_text("ref: refs/heads/main\n")
                else:
                    (folder / part).symlink_to(made / part)
            words = ["git", "rev-parse", "--git-dir"]
            done = subprocess.run(
                words, cwd=folder, env=environ, capture_output=True, timeout=20, check=False
            )
            taken += not done.returncode
            if not done.returncode:
                assert place_in_git(f"{folder}/x", str(tmp_path)) == ".git/x", chosen
    assert taken >= 4


def test_a_repository_with_working_trees_is_one_without_its_head(tmp_path: Path) -> None:
    (tmp_path / "bare" / "worktrees" / "w").mkdir(parents=True)
    assert place_in_git(str(tmp_path / "bare" / "config"), str(tmp_path)) == ""
    (tmp_path / "bare" / "worktrees" / "w" / "commondir").touch()
    assert place_in_git(str(tmp_path / "bare" / "config"), str(tmp_path)) == ".git/config"
    assert place_in_git(str(tmp_path / "bare" / "plain"), str(tmp_path)) == ""


def test_an_ordinary_folder_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "refs").mkdir()
    (tmp_path / "objects").mkdir()
    assert place_in_git(str(tmp_path / "refs" / "x"), str(tmp_path)) == ""
    assert place_in_git(str(tmp_path), str(tmp_path)) == ""
