"""Git inside a sandbox works as it does outside of it, wherever the repository of the workspace lies.

Each command is played twice in the same place: without a sandbox, and in one call for each. Nothing may be put aside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.protocol.fence import Backend, Finding, Launch, Sandbox, Undone
from holdfast.protocol.settings import Walls
from holdfast.sandbox import bubblewrap, landlock
from holdfast.sandbox.process import Ended, Processes, clean_environment
from holdfast.testing.clock import never_over
from holdfast.tools.aside import ASIDE
from holdfast.tools.fencing import Fences
from holdfast.tools.own import OwnPlaces
from holdfast.tools.traces import Traces

WHEN = "2025-01-02T03:04:05Z"
WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "n"), ("EMAIL", "a@b"), ("DATE", WHEN))
}
ENVIRONMENT = {
    **clean_environment(os.environ),
    **WHO,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_EDITOR": "true",
}

Place = tuple[str, str]
"""A workspace, and the folder in it where git works, both below the folder of the test."""


def sh(folder: Path, script: str) -> str:
    argv = ("bash", "-ec", script)
    done = subprocess.run(argv, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


FIRST = """
git init -q -b base {0}; cd {0}
echo a > a.txt; git add .; git commit -qm first
git branch side; git checkout -q side; echo s > side.txt; git add .; git commit -qm side; git checkout -q base
cd - > /dev/null
"""
MAIN = FIRST.format("main")
LIBRARY = f"""{MAIN}{FIRST.format("library")}
git -C main -c protocol.file.allow=always submodule --quiet add ../library lib; git -C main commit -qm library
"""
TREE = "git -C main worktree add -q -b tree"
BARE = f"""mkdir w; cd w; {MAIN}git clone -q --bare main .bare
echo 'gitdir: ./.bare' > .git; git worktree add -q -b tree tree
"""
FILLED = "git -c protocol.file.allow=always submodule --quiet update --init"

PLACES: Mapping[str, tuple[str, str, str]] = {
    "a worktree beside its repository": (f"{MAIN}{TREE} ../tree", "tree", ""),
    "a worktree in its repository": (f"{MAIN}{TREE} tree", "main/tree", ""),
    "a worktree in the workspace": (f"{MAIN}{TREE} tree", "main", "tree"),
    "a repository and its worktree in the workspace": (f"mkdir w; cd w; {MAIN}{TREE} ../tree", "w", "tree"),
    "a repository with a worktree elsewhere": (f"{MAIN}{TREE} ../tree", "main", ""),
    "a repository in the workspace": (f"mkdir w; cd w; {MAIN}", "w", "main"),
    "a worktree beside others": (f"{MAIN}{TREE} ../tree; git -C main worktree add -q -b c ../c", "tree", ""),
    "a worktree that was moved": (f"{MAIN}{TREE} ../x; git -C main worktree move ../x ../tree", "tree", ""),
    "a worktree with a relative path": (
        f"{MAIN}{TREE} ../tree; echo 'gitdir: ../main/.git/worktrees/tree' > tree/.git",
        "tree",
        "",
    ),
    "a worktree of a bare repository": (
        f"{MAIN}git clone -q --bare main bare; git -C bare worktree add -q -b tree ../tree",
        "tree",
        "",
    ),
    "a worktree beside a bare repository of no name": (
        BARE,
        "w/tree",
        "",
    ),
    "the folder of a bare repository of no name": (
        BARE,
        "w",
        "tree",
    ),
    "a submodule": (LIBRARY, "main/lib", ""),
    "a submodule in the workspace": (LIBRARY, "main", "lib"),
    "a submodule of a worktree": (f"{LIBRARY}{TREE} ../tree; cd tree; {FILLED}", "tree/lib", ""),
    "a submodule of a worktree in the workspace": (
        f"{LIBRARY}{TREE} ../tree; cd tree; {FILLED}",
        "tree",
        "lib",
    ),
    "a worktree with a submodule": (f"{LIBRARY}{TREE} ../tree; cd tree; {FILLED}", "tree", ""),
    "a worktree of a submodule": (f"{LIBRARY}git -C main/lib worktree add -q -b tree ../../tree", "tree", ""),
}

COMMANDS = {
    "add": "echo 1 > one.txt; git add one.txt",
    "commit": "git commit -qm one",
    "commit again": "echo 2 > two.txt; git add two.txt; git commit -qm two",
    "branch": "git branch b1; git branch -f b2 b1; git branch -D b1",
    "tag": "git tag t1; git tag -a -m t t2; git tag -d t1",
    "stash": "echo 3 >> one.txt; git stash -q; git stash list",
    "stash pop": "git stash pop -q; git checkout -q one.txt",
    "checkout -b": "git checkout -q -b other; echo o > o.txt; git add o.txt; git commit -qm other",
    "merge": "git merge -q -m merged side",
    "begin a merge": "git checkout -q -b left HEAD~1; echo l > x.txt; git add x.txt; git commit -qm left; "
    "git checkout -q -b right HEAD~1; echo r > x.txt; git add x.txt; git commit -qm right; ! git merge -q left",
    "end the merge": "echo lr > x.txt; git add x.txt; git commit -qm both",
    "begin a rebase": "git checkout -q -b up HEAD~2; echo u > x.txt; git add x.txt; git commit -qm up; "
    "! git rebase -q left",
    "end the rebase": "echo lu > x.txt; git add x.txt; git rebase --continue",
    "cherry-pick": "git cherry-pick side; git revert --no-edit HEAD",
    "reset": "git reset -q --soft HEAD~1; git reset -q --hard",
    "pack": "git pack-refs --all; git repack -q -d; git prune; git update-server-info",
    "gc": "git gc -q",
    "delete a branch": "git branch -D b2 left",
    "switch": "git switch -q other",
}
STATE = """
git log --all --format='%H %D %s' | sort; git status --short --branch; git stash list; git for-each-ref
cat $(git rev-parse --git-dir)/HEAD; git diff; git diff --cached; ls
"""


def made(folder: Path, place: str) -> tuple[Path, Path]:
    """Return the workspace, and the folder where git works."""
    script, workspace, within = PLACES[place]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    sh(folder, script)
    top = folder / workspace / within
    sh(top, "git rev-parse -q --verify side || git branch -q side origin/side")
    return folder / workspace, top


def played(folder: Path, place: str, commands: Mapping[str, str]) -> dict[str, str]:
    """Play the commands without a sandbox, and return the state after each."""
    _, top = made(folder, place)
    found = dict[str, str]()
    for name, command in commands.items():
        sh(top, command)
        found[name] = sh(top, STATE)
    return found


async def sandbox_of(backend: Backend) -> Sandbox:
    sandbox = (bubblewrap if backend == "bubblewrap" else landlock).make()
    if isinstance(sandbox, Finding) or (await sandbox.probe()).fault:
        pytest.skip(f"no {backend} on this machine")
    return sandbox


async def ran(
    fences: Fences, processes: Processes, backend: Backend, workspace: Path, top: Path, command: str
) -> Ended:
    argv = ("/bin/bash", "-ec", command)
    launch = Launch(argv, str(top), "test:git", ENVIRONMENT, 60, 60, never_over)
    return await processes.run(await fences.around(launch, str(workspace), Walls(backend)), lambda _: None)


async def check(folder: Path, place: str, backend: Backend, commands: Mapping[str, str]) -> None:
    sandbox = await sandbox_of(backend)
    wanted = played(folder, place, commands)
    workspace, top = made(folder, place)
    fences = Fences(OwnPlaces(), "/home/nobody", backend, traces=Traces())
    processes = Processes(sandbox)
    try:
        for name, command in commands.items():
            ended = await ran(fences, processes, backend, workspace, top, command)
            found = ended.exit_code, ended.put_right.changed
            assert found == (0, ()), f"{name}: {found}\n{ended.output}"
            assert sh(top, STATE) == wanted[name], name
    finally:
        await processes.aclose()
    assert not [*folder.rglob(f"*{ASIDE}*")]


BACKENDS: list[Backend] = ["bubblewrap", "landlock"]
MOST = [pytest.param("bubblewrap", marks=pytest.mark.long), "landlock"]
"""Landlock keeps nothing from a command, so it has most to put back."""
KEEPING = "git -c gc.reflogExpire=never -c gc.reflogExpireUnreachable=never"
NOT_ALL_SHOWN = ("a worktree beside others", "a repository with a worktree elsewhere")
FEW = ("add", "commit", "checkout -b")


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", MOST)
async def test_work_in_a_worktree_stays_as_git_makes_it(tmp_path: Path, backend: Backend) -> None:
    few = {name: COMMANDS[name] for name in FEW}
    await check(tmp_path / "place", "a worktree beside others", backend, few)


@pytest.mark.long
@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", PLACES)
async def test_git_works_everywhere_as_it_does_without_a_sandbox(
    tmp_path: Path, place: str, backend: Backend
) -> None:
    # Nobody may change what bubblewrap does not show, and to let old notes of a branch go is a change.
    is_all_shown = backend == "landlock" or place not in NOT_ALL_SHOWN
    gc = "git gc -q" if is_all_shown else f"{KEEPING} gc -q"
    await check(tmp_path / "place", place, backend, {**COMMANDS, "gc": gc})


MEANWHILE = """
git -C main commit -q --allow-empty -m x; git -C main branch more; git -C main stash list
echo n > c/n.txt; git -C c add n.txt; git -C c commit -qm n; git -C c checkout -q -b d
git -C main worktree add -q ../e; git -C e commit -q --allow-empty -m e
"""
"""What others do in a repository and its other working trees."""


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", MOST)
async def test_what_others_do_in_other_worktrees_meanwhile_stays(tmp_path: Path, backend: Backend) -> None:
    _, top = made(tmp_path / "place", "a worktree beside others")
    fences = Fences(OwnPlaces(), "/home/nobody", backend, traces=Traces())
    launch = Launch(("true",), str(top), "test:others", {}, 60, 60, never_over)
    begun = await fences.around(launch, str(top), Walls(backend))
    begun.check()
    sh(top.parent, MEANWHILE)
    trees = ("main", "c", "e")
    before = [sh(top.parent / tree, STATE) for tree in trees]
    assert begun.put_right is not None
    assert begun.put_right() == Undone()
    assert [sh(top.parent / tree, STATE) for tree in trees] == before


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", ["bubblewrap", pytest.param("landlock", marks=pytest.mark.long)])
async def test_no_worktree_is_pruned_because_it_is_not_shown(tmp_path: Path, backend: Backend) -> None:
    workspace, top = made(tmp_path / "place", "a repository with a worktree elsewhere")
    tree = top.parent / "tree"
    sh(tree, "echo s > s.txt; git add s.txt")
    sh(top, "git worktree add -q --detach within")
    before = sh(tree, STATE), sh(top / "within", STATE)
    fences, processes = (
        Fences(OwnPlaces(), "/home/nobody", backend, traces=Traces()),
        Processes(await sandbox_of(backend)),
    )
    try:
        ended = await ran(fences, processes, backend, workspace, top, "git worktree prune; git worktree list")
    finally:
        await processes.aclose()
    assert (ended.exit_code, ended.put_right.changed) == (0, ()), ended.output
    assert (sh(tree, STATE), sh(top / "within", STATE)) == before


FATAL = {
    "another worktree's repository": "echo ../../../x > $G/worktrees/c/commondir",
    "objects of another repository": "echo /x > $G/objects/info/alternates",
    "a link to such ones": "mv $G/objects/info $G/o; ln -s ../o $G/objects/info; echo /x > $G/o/alternates",
    "attributes of all files": "echo '* filter=x' > $G/info/attributes",
    "another worktree's place": "echo /x/.git > $G/worktrees/c/gitdir",
    "another worktree's settings": "echo '[core] fsmonitor = x' > $G/worktrees/c/config.worktree",
    "another worktree's hooks": "mkdir $G/worktrees/c/hooks; echo x > $G/worktrees/c/hooks/pre-commit",
    "its own settings": "echo '[core] fsmonitor = x' > $(git rev-parse --git-dir)/config.worktree",
    "the settings of a submodule to come": "git init -q --bare $G/modules/m; git -C $G/modules/m config core.pager x",
    "a hook of a submodule to come": "git init -q --bare $G/modules/m; echo x > $G/modules/m/hooks/update",
    "the hooks": "echo x > $G/hooks/pre-commit",
    "the settings": "echo '[core] pager = x' >> $G/config",
    "a rebase that runs something": "d=$(git rev-parse --git-dir)/rebase-merge; mkdir $d; "
    "echo 'exec x' > $d/git-rebase-todo",
    "objects that are elsewhere": "mv $G/objects o; ln -s ../../tree/o $G/objects; echo /x > o/info/alternates; "
    "git log",
}
"""What would make git run something for somebody else."""


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("backend", MOST)
async def test_what_git_runs_in_other_worktrees_is_as_it_was(tmp_path: Path, backend: Backend) -> None:
    place = "a worktree beside others"
    _, top = made(tmp_path / "place", place)
    git = top.parent / "main" / ".git"
    before = controlling(git)
    fences = Fences(OwnPlaces(), "/home/nobody", backend, traces=Traces())
    sandbox = await sandbox_of(backend)
    processes = Processes(sandbox)
    try:
        for name, command in FATAL.items():
            ended = await ran(fences, processes, backend, top, top, f"G={git}; {command}")
            assert ended.exit_code or ended.put_right.changed, name
            assert controlling(git) == before, name
            assert not (git / "objects" / "info" / "alternates").exists(), name
    finally:
        await processes.aclose()


def controlling(git: Path) -> dict[str, str]:
    """Return what git runs, or is led by, in a repository and what belongs to it."""
    names = (
        "config",
        "config.worktree",
        "commondir",
        "gitdir",
        "git-rebase-todo",
        "attributes",
    )
    found = {
        str(path): path.read_text()
        for path in git.rglob("*")
        if path.is_file() and ASIDE not in str(path) and (path.name in names or path.parent.name == "hooks")
    }
    # A new repository may stay with what git itself writes there.
    plain = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
    return {path: text for path, text in found.items() if not path.endswith(".sample") and text != plain}
