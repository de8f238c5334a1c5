"""Commits of a copy that are accepted: the names of their branches, what is in the way, and what stays."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.isolate import accepted_lines
from holdfast.runtime import isolate
from holdfast.tools import commits
from holdfast.tools.commits import free_branch
from holdfast.tools.repository import View, view_of
from tests.cli.desks import Desk, desk_in
from tests.tools.test_copying import git


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk whose workspace is a repository."""
    desk = desk_in(tmp_path)
    git(desk.work, "init", "--quiet", "--initial-branch=main")
    git(desk.work, "add", ".")
    git(desk.work, "commit", "--quiet", "-m", "first")
    return desk


def copied(desk: Desk) -> Path:
    """A copy with a commit."""
    folder = Path(desk.copied().folder)
    commit(folder, "second")
    return folder


def commit(folder: Path, name: str) -> str:
    git(folder, "commit", "--quiet", "--allow-empty", "-m", name)
    return git(folder, "rev-parse", "HEAD")


def branches(desk: Desk) -> dict[str, str]:
    lines = git(desk.work, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads")
    return dict(line.split(" ") for line in lines.splitlines())


@pytest.mark.requirement("L2", "C12")
def test_commits_are_taken_in_folders_of_the_home_and_no_hook_runs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that may write in TMPDIR could make hooks in a folder that git gets there."""
    copied(desk)
    (temporary := desk.work / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    views = list[Path]()

    @contextmanager
    def hooked(*words: Any) -> Iterator[View]:
        with view_of(*words) as view:
            views.append(Path(view.folder))
            for name in ("hooks/reference-transaction", "hooks/post-checkout"):
                (hook := views[-1] / name).parent.mkdir(exist_ok=True)
                hook.write_text(f"#!/bin/sh\ntouch {desk.work}/hooked\n")
                hook.chmod(0o755)
            yield view

    monkeypatch.setattr(commits, "view_of", hooked)
    assert len(desk.accepted().branches) == 1
    assert {view.parent for view in views} == {desk.home.folder / "run"}
    assert not (desk.work / "hooked").exists()
    assert not list(temporary.iterdir())


def test_branches_with_the_names_that_others_would_get_all_come(desk: Desk) -> None:
    folder = copied(desk)
    (folder / "a.txt").write_text("two\n")
    assert desk.accepted("a.txt").branches == (f"holdfast/{desk.session}/main",)
    first = commit(folder, "third").strip()
    git(folder, "checkout", "--quiet", "-b", "main-2")
    second = commit(folder, "fourth").strip()
    before = branches(desk)
    made = desk.accepted("a.txt").branches
    assert made == (f"holdfast/{desk.session}/main-2", f"holdfast/{desk.session}/main-2-2")
    assert branches(desk) == before | dict(zip(made, (first, second), strict=True))


@pytest.mark.parametrize("theirs", ["holdfast", "holdfast/{}", "holdfast/{}/main", "holdfast/{}/main/below"])
def test_no_branch_of_the_user_is_in_the_way_of_the_commits(desk: Desk, theirs: str) -> None:
    copied(desk)
    git(desk.work, "branch", theirs.format(desk.session))
    before = branches(desk)
    accepted = desk.accepted()
    assert (accepted.problems, len(accepted.branches)) == ((), 1)
    assert branches(desk).items() > before.items()


def test_a_branch_below_one_that_was_accepted_comes_too(desk: Desk) -> None:
    folder = copied(desk)
    (folder / "a.txt").write_text("two\n")
    assert desk.accepted("a.txt").problems == ()
    git(folder, "branch", "-m", "main", "main/x")
    commit(folder, "third")
    accepted = desk.accepted()
    assert (accepted.problems, accepted.branches) == ((), (f"holdfast/{desk.session}/main-2/x",))


def test_the_name_of_a_branch_is_free_and_has_room() -> None:
    assert free_branch("h/s/main", {"main"}) == "h/s/main"
    assert free_branch("h/s/main", {"h"}) == "h-2/s/main"
    assert free_branch("h/s/main", {"h/s/main", "h/s/main-2/x"}) == "h/s/main-3"
    assert free_branch("h/s/a/b", {"h/s/a", "h/s/a-2"}) == "h/s/a-3/b"


def test_if_git_makes_one_branch_not_it_makes_none(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied(desk)
    git(folder, "checkout", "--quiet", "-b", "side")
    commit(folder, "third")
    before = branches(desk)

    def named(name: str, taken: set[str]) -> str:
        if name.endswith("/side"):  # somebody makes it in this moment
            git(desk.work, "branch", name)
        return free_branch(name, taken)

    monkeypatch.setattr(commits, "free_branch", named)
    accepted = desk.accepted()
    assert ([each.path for each in accepted.problems], accepted.branches) == ([".git"], ())
    assert "Nothing was changed." in said(accepted)
    assert branches(desk) == before | {f"holdfast/{desk.session}/side": before["main"]}


def test_only_branches_come_and_no_commit_with_a_tree_that_git_would_not_make(desk: Desk) -> None:
    folder = copied(desk)
    (folder / "a.txt").write_text("two\n")
    git(folder, "tag", "mine")
    before = git(desk.work, "for-each-ref").splitlines()
    assert len(desk.accepted("a.txt").branches) == 1
    assert len(git(desk.work, "for-each-ref").splitlines()) == len(before) + 1
    blob = git(folder, "hash-object", "-w", "a.txt").strip()
    (folder / "tree").write_bytes(b"100644 .git\0" + bytes.fromhex(blob))
    tree = git(folder, "hash-object", "-w", "-t", "tree", "--literally", "tree").strip()
    git(folder, "update-ref", "refs/heads/odd", git(folder, "commit-tree", "-m", "odd", tree).strip())
    (problem,) = desk.accepted("a.txt", "tree").problems
    assert (problem.path, "hasDotgit" in problem.reason) == (".git", True)


def test_branches_that_stay_though_a_file_was_refused_are_named(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(desk)
    (folder / "a.txt").write_text("two\n")

    def taken(*words: Any) -> tuple[str, ...]:
        made = commits.take_tips(*words)
        (desk.work / "a.txt").write_text("changed in this moment\n")
        return made

    monkeypatch.setattr(isolate, "take_tips", taken)
    accepted = desk.accepted()
    name = f"holdfast/{desk.session}/main"
    assert ([each.path for each in accepted.problems], accepted.branches) == (["a.txt"], (name,))
    assert name in branches(desk)
    words = said(accepted)
    assert "No file was changed. The new branches stay." in words
    assert "Nothing was changed" not in words


def said(accepted: isolate.Accepted) -> str:
    """What the terminal shows of it."""
    return "\n".join(
        "".join(span if isinstance(span, str) else span.text for span in line)
        for line in accepted_lines(accepted)
    )
