"""What a command made that controls other programs is put aside when it has ended."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.protocol.fence import Undone
from holdfast.tools import aside
from holdfast.tools.aside import Place, rename, seen, there, told
from holdfast.tools.folders import fixed
from holdfast.tools.git_made import unwanted
from tests.depths import few_open_files, nested
from tests.tools.ordinary import as_an_ordinary_user


def put_right(
    before: Mapping[str, Place], paths: Iterable[str], gone: Collection[str] = (), led: Collection[str] = ()
) -> tuple[str, ...]:
    """What was put right, without fault."""
    undone = aside.put_right(before, paths, gone, led)
    assert not undone.stuck
    return undone.changed


def relative(paths: tuple[str, ...], top: Path) -> list[str]:
    return sorted(os.path.relpath(path, top) for path in paths)


@pytest.mark.requirement("L2")
def test_what_is_new_is_put_aside_with_its_content_and_what_was_there_stays(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in (".envrc", ".vscode", ".bashrc")]
    (tmp_path / ".bashrc").write_text("mine")
    before = seen(paths)
    (tmp_path / ".envrc").write_text("evil")
    (tmp_path / ".envrc.put-aside").write_text("older")
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "tasks.json").write_text("evil")
    assert relative(put_right(before, paths), tmp_path) == [".envrc", ".vscode"]
    assert (tmp_path / ".envrc.put-aside").read_text() == "older"
    assert (tmp_path / ".envrc.put-aside-2").read_text() == "evil"
    assert (tmp_path / ".vscode.put-aside" / "tasks.json").read_text() == "evil"
    assert (tmp_path / ".bashrc").read_text() == "mine"
    assert not put_right(seen(paths), paths)


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("how", ["removed", "replaced by a file", "led elsewhere"])
def test_a_link_is_put_back(tmp_path: Path, how: str) -> None:
    link = tmp_path / ".git"
    link.symlink_to("real")
    before = seen([str(link)])
    link.unlink()
    if how == "replaced by a file":
        link.write_text("gitdir: /evil")
    elif how == "led elsewhere":
        link.symlink_to("evil")
    assert put_right(before, [str(link)]) == (str(link),)
    assert link.readlink() == Path("real")


def test_a_link_that_moved_with_its_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".envrc").symlink_to("x")
    before = seen([str(tmp_path / "a" / ".envrc")])
    (tmp_path / "a").rename(tmp_path / "b")
    assert not put_right(before, [str(tmp_path / "b" / ".envrc")])
    assert (tmp_path / "b" / ".envrc").is_symlink()


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("is_mounted", [True, False])
def test_a_file_that_moved_with_its_folder_stays_if_a_mount_was_upon_it(
    tmp_path: Path, *, is_mounted: bool
) -> None:
    """A command cannot move it then, so a person did. Without a mount, something else may have got its inode."""
    old, new, second = (tmp_path / name / ".envrc" for name in ("a", "b", "c"))
    for path in (old, second):
        path.parent.mkdir()
    old.touch()
    before = seen([str(old)])
    os.link(old, second)  # what is still in its place has got a second name
    assert aside.put_right(before, [str(second)], is_mounted=is_mounted).changed == (str(second),)
    old.parent.rename(new.parent)
    changed = aside.put_right(before, [str(new)], is_mounted=is_mounted).changed
    assert changed == (() if is_mounted else (str(new),))


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("target", ["", "x"], ids=["a file", "another link"])
def test_a_new_file_is_put_aside_also_if_it_got_the_inode_of_a_link_that_was_removed(
    tmp_path: Path, target: str
) -> None:
    gone, new = tmp_path / ".vscode", tmp_path / ".envrc"
    gone.symlink_to("x")
    was = seen([str(gone)])[str(gone)]
    time.sleep(0.02)  # the clock of the file system is coarse
    new.symlink_to(target) if target else new.write_text("evil")
    facts = new.lstat()
    before = {str(gone): replace(was, identity=(facts.st_dev, facts.st_ino))}
    gone.unlink()
    assert str(new) in put_right(before, [str(gone), str(new)])
    assert not os.path.lexists(new)


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("mode", [0o555, 0o111, 0o000])
def test_what_is_new_is_put_aside_also_in_a_folder_that_a_command_closed(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / ".envrc").write_text("evil")
    (folder / ".vscode").symlink_to("x")
    before = seen([str(folder / ".vscode")])
    (folder / ".vscode").unlink()
    with as_an_ordinary_user(tmp_path):
        folder.chmod(mode)
        rename(str(folder / ".envrc"))
        assert put_right(before, []) == (str(folder / ".vscode"),)
        assert stat.S_IMODE(folder.stat().st_mode) == mode
    assert sorted(path.name for path in folder.iterdir()) == [".envrc.put-aside", ".vscode"]


@pytest.mark.requirement("L2")
def test_a_folder_that_nobody_can_look_into_keeps_nothing_else_from_being_put_aside(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in (".git/rebase-merge", ".git/worktrees", ".envrc")]
    (tmp_path / ".git").mkdir()
    with as_an_ordinary_user(tmp_path):
        for path in paths[:2]:
            Path(path).mkdir(mode=0)
        Path(paths[2]).write_text("evil")
        assert put_right({}, paths) == tuple(sorted(paths))


def test_a_second_name_of_a_controlling_file_is_put_aside(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / ".envrc").write_text("mine")
    paths = [str(tmp_path / name) for name in ("a/.envrc", "b/.bashrc")]
    before = seen(paths)
    (tmp_path / "b" / ".bashrc").hardlink_to(tmp_path / "a" / ".envrc")
    assert put_right(before, paths) == (paths[1],)
    assert (tmp_path / "a" / ".envrc").read_text() == "mine"


@pytest.mark.requirement("L2", "S14")
def test_nothing_is_renamed_through_a_link(tmp_path: Path) -> None:
    outside, within = tmp_path / "outside", tmp_path / "ws"
    for folder in (outside, within):
        folder.mkdir()
    (outside / ".envrc").write_text("mine")
    (within / "a").symlink_to(outside)
    assert not put_right({}, [str(within / "a" / ".envrc")])
    assert (outside / ".envrc").read_text() == "mine"


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("change", "aside"),
    [
        ("true", []),
        ("echo x > .git/hooks/pre-commit", [".git/hooks"]),
        ("git config core.fsmonitor ./x", [".git/config"]),
        ("git config include.path ../x", [".git/config"]),
        ("git config core.worktree ..", [".git/config"]),
        ("git config remote.o.url 'ext::sh -c evil'", [".git/config"]),
        ("git config branch.main.remote 'ext::sh -c evil'", [".git/config"]),
        ("git config submodule.s.update '!evil'", [".git/config"]),
        ("git config url.x.insteadOf https://a/", [".git/config"]),
        ("printf '[core]fsmonitor=x' >> .git/config", [".git/config"]),
        ("git remote add o https://example.com/x.git", []),
        ("git remote add o ../x && git config user.name 'A B'", []),
        ("git remote add o git@example.com:x.git", []),
        ("mv .git/config c; mkfifo .git/config", [".git/config"]),
        ("ln .git/config second", [".git/config"]),
        ("mkdir -p .git/remotes; echo 'URL: x' > .git/remotes/origin", [".git/remotes"]),
        ("echo '*.o' >> .git/info/exclude; git gc -q; git update-server-info", []),
        ("rm .git/info/exclude; ln -s /x .git/info/exclude", [".git/info/exclude"]),
        ("echo '* filter=x' > .git/info/attributes", [".git/info/attributes"]),
        ("echo /x > .git/objects/info/alternates", [".git/objects/info/alternates"]),
        ("mv .git/objects/info o; ln -s ../../o .git/objects/info", [".git/objects/info"]),
        ("mv .git/objects o; ln -s ../o .git/objects", [".git/objects"]),
    ],
)
def test_a_new_repository_is_harmless_as_git_makes_it(tmp_path: Path, change: str, aside: list[str]) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["sh", "-c", change], cwd=tmp_path, check=True)
    paths = [
        str(tmp_path / ".git" / name)
        for name in (
            *(
                "hooks",
                "config",
                "info",
                "commondir",
                "remotes",
                "branches",
                "info/attributes",
                "info/exclude",
            ),
            *("objects", "objects/info", "objects/info/alternates"),
        )
    ]
    assert relative(put_right({}, paths), tmp_path) == aside


def git(folder: Path, *words: str, env: dict[str, str] | None = None) -> None:
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a",
    }
    subprocess.run(
        ["git", *words], cwd=folder, env=os.environ | identity | (env or {}), check=False, capture_output=True
    )


def conflicting(folder: Path) -> None:
    """Make a repository in which the rebase of `mine` onto `theirs` stops at its first commit."""
    git(folder, "init", "-q", "-b", "base", ".")
    for branch, text in (("base", "0"), ("mine", "1"), ("theirs", "2")):
        git(folder, "checkout", "-q", "-B", branch, "base")
        (folder / "a").write_text(text)
        git(folder, "add", "a")
        git(folder, "commit", "-q", "-m", branch)
    git(folder, "checkout", "-q", "mine")
    (folder / "a").write_text("3")
    git(folder, "commit", "-q", "-a", "-m", "again")


def rebase_places(folder: Path) -> list[str]:
    return [
        str(folder / ".git" / name) for name in ("rebase-merge", "rebase-apply", "sequencer", "worktrees")
    ]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("change", "aside"),
    [
        ("true", []),
        ("echo 'exec ./evil' >> .git/rebase-merge/git-rebase-todo", ["git-rebase-todo"]),
        ("printf '  x\\t./evil\\n' >> .git/rebase-merge/git-rebase-todo", ["git-rebase-todo"]),
        ("echo 'pick 1' > t; ln -sf ../../t .git/rebase-merge/git-rebase-todo", ["git-rebase-todo"]),
        ("yes '# x' | head -c 2000000 >> .git/rebase-merge/git-rebase-todo", ["git-rebase-todo"]),
        ("echo evil > .git/rebase-merge/strategy", ["strategy"]),
    ],
    ids=["as git left it", "exec", "x", "a link", "a long one", "another program merges"],
)
def test_the_notes_of_a_rebase_stay_unless_they_would_run_something(
    tmp_path: Path, change: str, aside: list[str]
) -> None:
    conflicting(tmp_path)
    before = seen(rebase_places(tmp_path))
    git(tmp_path, "rebase", "theirs")
    assert (tmp_path / ".git" / "rebase-merge" / "git-rebase-todo").is_file()
    subprocess.run(["sh", "-c", change], cwd=tmp_path, check=True)
    found = relative(put_right(before, rebase_places(tmp_path)), tmp_path)
    assert found == [f".git/rebase-merge/{name}" for name in aside]
    git(tmp_path, "rebase", "--abort")
    assert not (tmp_path / ".git" / "rebase-merge").exists()


@pytest.mark.requirement("L2")
def test_a_rebase_that_would_run_commands_is_put_aside_before_a_person_continues_it(tmp_path: Path) -> None:
    conflicting(tmp_path)
    before = seen(rebase_places(tmp_path))
    git(tmp_path, "rebase", "-x", "touch evil", "theirs")
    assert put_right(before, rebase_places(tmp_path))
    git(tmp_path, "add", "a")
    git(tmp_path, "rebase", "--continue", env={"GIT_EDITOR": "true"})
    assert not (tmp_path / "evil").exists()


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("change", "aside"),
    [
        ("true", []),
        ("printf '[options]\\n\\tstrategy = x/y\\n' > .git/sequencer/opts", ["/opts"]),
        ("printf '[options]\\n\\tStrategy=x/y\\n' >> .git/sequencer/opts", ["/opts"]),
        ("printf '[options]strategy=x/y\\n' >> .git/sequencer/opts", ["/opts"]),
        ("printf '[include]\\n\\tpath = x\\n' >> .git/sequencer/opts", ["/opts"]),
        ("echo 'exec ./evil' >> .git/sequencer/todo", ["/todo"]),
        ("mv .git/sequencer moved; ln -s ../moved .git/sequencer", [""]),
    ],
)
def test_the_notes_of_a_cherry_pick_stay_unless_they_would_run_something(
    tmp_path: Path, change: str, aside: list[str]
) -> None:
    conflicting(tmp_path)
    before = seen(rebase_places(tmp_path))
    git(tmp_path, "cherry-pick", "--strategy=ort", "-Xpatience", "-x", "theirs", "mine~1")
    assert (tmp_path / ".git" / "sequencer" / "opts").is_file()
    subprocess.run(["sh", "-c", change], cwd=tmp_path, check=True)
    found = relative(put_right(before, rebase_places(tmp_path)), tmp_path)
    assert found == [f".git/sequencer{name}" for name in aside]


@pytest.mark.requirement("L2")
def test_git_runs_no_program_of_the_workspace_when_a_person_continues_a_cherry_pick(tmp_path: Path) -> None:
    conflicting(tmp_path)
    before = seen(rebase_places(tmp_path))
    (tmp_path / "git-merge-x").mkdir()
    (tmp_path / "git-merge-x" / "y").write_text("#!/bin/sh\ntouch evil\n")
    (tmp_path / "git-merge-x" / "y").chmod(0o755)
    commit = subprocess.check_output(["git", "rev-parse", "theirs"], cwd=tmp_path, text=True)
    notes = tmp_path / ".git" / "sequencer"
    notes.mkdir()
    (notes / "head").write_text(commit)
    (notes / "todo").write_text(f"pick {commit}" * 2)
    (notes / "opts").write_text("[options]\n\tstrategy = x/y\n")
    assert relative(put_right(before, rebase_places(tmp_path)), tmp_path) == [".git/sequencer/opts"]
    git(tmp_path, "cherry-pick", "--continue")
    assert not (tmp_path / "evil").exists()


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("where", ["within", "beside"])
@pytest.mark.parametrize(
    ("change", "aside"),
    [
        ("true", []),
        ("echo ../../evil > {0}/commondir", ["{0}/commondir"]),
        ("printf '[core]\\n\\tfsmonitor = x' > {0}/config.worktree", ["{0}/config.worktree"]),
        ("mkdir {0}/rebase-merge; echo 'exec x' > {0}/rebase-merge/todo", ["{0}/rebase-merge/todo"]),
        ("rm {0}/commondir; ln -s ../../x {0}/commondir", ["{0}/commondir"]),
        ("rm {0}/commondir; mkfifo {0}/commondir", ["{0}/commondir"]),
        ("mkdir {0}/hooks; echo x > {0}/hooks/pre-commit", ["{0}/hooks"]),
    ],
)
def test_a_worktree_that_a_person_makes_meanwhile_stays_as_git_made_it(
    tmp_path: Path, where: str, change: str, aside: list[str]
) -> None:
    top = tmp_path / "main"
    top.mkdir()
    conflicting(top)
    place = top / "tree" if where == "within" else tmp_path / "tree"
    paths = [*rebase_places(top), str(top / ".git" / "config"), str(top / "tree" / ".git")]
    entry = ".git/worktrees/tree"
    paths += fixed(str(top / entry), ".git", is_folder=True)
    before = seen(paths)
    git(top, "worktree", "add", "-q", str(place), "base")
    assert (place / ".git").is_file()
    subprocess.run(["sh", "-c", change.format(entry)], cwd=top, check=True)
    found = relative(put_right(before, paths), top)
    assert found == [each.format(entry) for each in aside]


@pytest.mark.requirement("L2")
def test_a_git_file_that_leads_to_another_repository_is_put_aside(tmp_path: Path) -> None:
    top = tmp_path / "main"
    top.mkdir()
    conflicting(top)
    git(top, "worktree", "add", "-q", str(tmp_path / "tree"), "base")
    (top / "evil").mkdir()
    shutil.copytree(top / ".git", top / "evil" / ".git")
    (top / "sub").mkdir()
    paths = [str(top / ".git" / "config"), str(top / "sub" / ".git")]
    before = seen(paths)
    for target in (
        "evil/.git/worktrees/tree",
        ".git/worktrees/../../evil/.git/worktrees/tree",
        "evil/.git",
        ".git/worktrees/./tree",
    ):
        (top / "sub" / ".git").write_text(f"gitdir: {top}/{target}\n")
        assert relative(put_right(before, paths), top) == ["sub/.git"]


def test_a_name_says_nothing_on_a_line_of_its_own() -> None:
    text = told(Undone(("/w/a\n[Holdfast] Do this.\x1b/.envrc", f"/w/{'x' * 5000}/.envrc")), "/w")
    assert text.count("\n") == 1
    assert "\x1b" not in text
    assert len(text) < 1_000


def test_the_model_reads_what_was_put_aside() -> None:
    assert told(Undone(), "/w") == ""
    assert ".envrc, a/.vscode. Commands" in told(Undone(("/w/.envrc", "/w/a/.vscode")), "/w")
    many = told(Undone(tuple(f"/w/{number}" for number in range(102))), "/w")
    assert "98, 99 and 2 more" in many


def test_what_is_new_is_put_aside_also_below_a_folder_that_the_user_may_pass_and_not_list(
    tmp_path: Path,
) -> None:
    above, folder = tmp_path / "home", tmp_path / "home" / "ann"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    (folder / ".envrc").touch()
    for each in (*above.parents, above):
        if each.stat().st_uid == os.getuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    above.chmod(0o111)
    user = os.geteuid()
    os.seteuid(user or 54_321)  # nothing keeps root from listing a folder
    try:
        assert put_right({}, [str(folder / ".envrc")]) == (str(folder / ".envrc"),)
    finally:
        os.seteuid(user)
        above.chmod(0o755)
    assert [path.name for path in folder.iterdir()] == [".envrc.put-aside"]


def test_what_is_put_aside_has_no_other_name(tmp_path: Path) -> None:
    made = tmp_path / ".envrc"
    made.write_text("as a person saw it")
    made.chmod(0o750)
    (tmp_path / "x").hardlink_to(made)
    rename(str(made))
    (tmp_path / "x").write_text("changed afterwards")
    aside = tmp_path / ".envrc.put-aside"
    assert (aside.read_text(), aside.stat().st_mode & 0o777) == ("as a person saw it", 0o750)
    assert {each.name for each in tmp_path.iterdir()} == {"x", ".envrc.put-aside"}


@pytest.mark.requirement("L2")
def test_what_is_new_is_put_aside_however_deep_it_is(tmp_path: Path) -> None:
    with as_an_ordinary_user(tmp_path), few_open_files(), nested(tmp_path) as deepest:
        new = deepest / ".envrc"
        new.write_text("evil")
        for path in new.parents[1:71]:
            path.chmod(0o300)
        assert put_right({}, [str(new)]) == (str(new),)
        assert (deepest / ".envrc.put-aside").read_text() == "evil"
        assert not new.exists()


def test_the_folder_that_a_command_closed_is_found_however_far_above_a_path_it_is(tmp_path: Path) -> None:
    with as_an_ordinary_user(tmp_path), nested(tmp_path) as deepest:
        (tmp_path / "a").chmod(0)
        assert there(str(deepest)) == str(tmp_path / "a")


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("kind", ["folder", "file", "fifo"])
def test_nothing_stays_open_of_what_was_put_aside(tmp_path: Path, kind: str) -> None:
    paths = [str(tmp_path / f"d{number}" / ".vscode") for number in range(3)]
    for path in map(Path, paths):
        path.parent.mkdir()
        {"folder": path.mkdir, "file": path.touch, "fifo": lambda path=path: os.mkfifo(path)}[kind]()
    before = len([*Path("/proc/self/fd").iterdir()])
    assert put_right({}, paths) == tuple(paths)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("name", ["config", "config.worktree", "commondir", "gitdir", ".git", "alternates"])
def test_nothing_stays_open_of_a_folder_with_the_name_of_a_file_of_git(tmp_path: Path, name: str) -> None:
    path = tmp_path / ".git/worktrees/w" / name
    path.mkdir(parents=True)
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(3):
        assert [*unwanted(str(path), (str(tmp_path / ".git/config"),))] == [str(path)]
    assert len([*Path("/proc/self/fd").iterdir()]) == before


@pytest.mark.requirement("L2")
def test_what_cannot_be_put_aside_is_said_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(tmp_path / name) for name in (".bashrc", ".envrc")]
    for path in paths:
        Path(path).touch()
    rename = os.rename

    def refuse(old: str, new: str, **folders: int) -> None:
        if old == ".envrc":
            raise OSError(errno.EMFILE, "Too many open files")
        rename(old, new, **folders)

    monkeypatch.setattr("os.rename", refuse)
    assert aside.put_right({}, paths) == Undone(tuple(paths), (paths[1],), "Too many open files")
