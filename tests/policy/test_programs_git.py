"""git in the table of programs."""

from __future__ import annotations

import pytest

from holdfast.policy.programs import uses_of
from tests.policy.simply import command, files, is_known, uses


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "text",
    ["git status", "git status --short", "git --no-pager log --oneline -5", "git log -p -- src",
     "git diff HEAD~1 HEAD -- a.txt", "git diff --stat --cached", "git show HEAD", "git blame -L 1,20 a.txt",
     "git branch", "git branch -a -vv", "git branch --list 'x*'", "git rev-parse --show-toplevel",
     "git ls-files '*.py'", "git grep -n x", "git describe --tags", "git tag", "git tag -l 'v*'",
     "git stash list", "git stash show -p", "git remote -v", "git remote get-url origin", "git reflog -5",
     "git shortlog -sn HEAD", "git ls-tree HEAD", "git config user.name", "git worktree list", "git --version"],
)  # fmt: skip
def test_looking_at_the_repository_is_known(text: str) -> None:
    assert is_known(text), uses(text)


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "text",
    ["git -c core.fsmonitor=./x status", "git -ccore.fsmonitor=./x status",
     "git --config-env=core.fsmonitor=X status", "git -C sub status", "git --git-dir=x status",
     "git --git-dir x status", "git --exec-path=. status", "git -p log", "git grep --open=./x TODO",
     "git grep -O./x TODO", "git log --ext-diff", "git show --textconv x", "git diff --ext",
     "git log --show-sig", "git ls-remote --upload-pa=./x .", "git archive --remote=. --exec=./x HEAD",
     "git checkout status", "git commit -m x", "git add .", "git push", "git pull", "git branch new",
     "git branch -d old", "git tag v1", "git stash", "git stash pop", "git remote add x y",
     "git reflog expire --all", "git submodule update", "git bisect run ./x", "git unknown", "git $X",
     "git cat-file --filters HEAD:a", "git config --list", "git config http.extraheader"],
)  # fmt: skip
def test_what_changes_the_repository_or_runs_something_needs_a_person(text: str) -> None:
    assert uses(text).asks, uses(text)


@pytest.mark.parametrize(
    "text",
    ["git config core.hooksPath ./h", "git config --global user.name x", "git config --add a.b c",
     "git config -e", "git config --unset a.b", "git config set a.b c", "git config -f x a.b c",
     "git config --file=x --add a.b c"],
)  # fmt: skip
def test_no_command_writes_a_configuration_of_git(text: str) -> None:
    assert uses(text).denies
    assert any(file.startswith("write ") for file in files(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git log --output=out", {"write out", "read ."}),
        ("git diff --output out", {"write out", "read ."}),
        ("git show HEAD:.env", {"read HEAD:.env", "read .env"}),
        ("git diff -- a", {"read a"}),
        ("git archive -o out HEAD", {"write out", "read HEAD"}),
        ("git worktree add ../there", {"write ../there"}),
        ("git worktree add -b feature --lock ../there main", {"write ../there"}),
        ("git -C sub log a", {"read sub", "read sub/a"}),
        ("git blame --contents=b a", {"read b", "read a"}),
    ],
)
def test_its_options_read_and_write_the_files_that_they_name(text: str, expected: set[str]) -> None:
    assert files(text) == expected


def test_git_asks_in_a_folder_that_may_have_a_repository_of_its_own() -> None:
    there = command("git status")._replace(folders=("sub",))
    assert uses_of(there).asks
    assert not uses_of(there._replace(folders=("./",))).asks
    assert uses_of(there._replace(folders=("",), is_folder_known=False)).asks
