"""`run --isolate`, `accept` and `discard`, with real files, a real repository and real commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Cli, calls, says
from tests.cli.test_undo import tree


def git(folder: Path, *arguments: str) -> str:
    """What git prints in a folder, without the settings of this machine."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com", *arguments]
    return subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def work(cli: Cli) -> Path:
    """A repository with staged, unstaged, untracked and ignored changes."""
    (cli.workspace / "a.txt").write_text("one\n")
    (cli.workspace / "gone.txt").write_text("gone\n")
    git(cli.workspace, "init", "--quiet", "--initial-branch=main")
    git(cli.workspace, "config", "remote.origin.url", "https://ann:pass" + "word@example.com/x.git")
    git(cli.workspace, "add", ".")
    git(cli.workspace, "commit", "--quiet", "-m", "first")
    (cli.workspace / "staged.txt").write_text("staged\n")
    git(cli.workspace, "add", "staged.txt")
    (cli.workspace / "a.txt").write_text("one\nunstaged\n")
    (cli.workspace / "untracked.txt").write_text("untracked\n")
    (cli.workspace / ".gitignore").write_text("installed/\n")
    (cli.workspace / "installed").mkdir()
    (cli.workspace / "installed" / "package.js").write_text("package\n")
    (cli.workspace / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (cli.workspace / ".git" / "hooks" / "pre-commit").chmod(0o755)
    return cli.workspace


def run(cli: Cli, *commands: str, session: str = "cli:try", more: tuple[str, ...] = ("--isolate",)) -> Any:
    name = f"m{len(list(cli.folder.glob('*.jsonl')))}"
    model = cli.model(*[calls("shell", command=each) for each in commands], says("Done."), name=name)
    done = cli("run", "try it", "-m", model, "-s", session, "--autonomy", "full", *more)
    assert done.code == 0, done.err
    return done


def copy_of(cli: Cli) -> Path:
    [copy] = [
        path
        for path in (cli.folder / "home.copies").glob("*/*")
        if not path.parent.name.startswith(".") and path.is_dir()
    ]
    return copy


COMMANDS = (
    "git status --short && cat installed/package.js && git commit -qam 'in the copy' && git stash list",
    (
        "echo two >> a.txt && rm gone.txt && mkdir -p new/deep && echo b > new/deep/b.txt && chmod 755 new/deep/b.txt"
        " && printf '\\377\\000' > raw.bin && ln -s a.txt link && mv untracked.txt moved.txt && chmod 600 staged.txt"
        " && echo more > installed/more.js && git branch mine"
    ),
)


def test_an_isolated_run_changes_nothing_until_its_diff_is_accepted_and_undo_takes_all_of_it_back(
    cli: Cli, work: Path
) -> None:
    before = tree(work)
    done = run(cli, *COMMANDS)
    assert tree(work) == before
    copy = copy_of(cli)
    assert "8 files changed in a copy of" in done.err
    shown = cli("show", "cli:try", "--tools", "--json").out
    assert " M a.txt" in shown
    assert "A  staged.txt" in shown
    assert "?? untracked.txt" in shown
    assert "package" in shown
    assert not (copy / ".git" / "hooks").exists()
    assert "example.com/x" not in (copy / ".git" / "config").read_text()
    diff = cli("show", "cli:try", "--diff").out
    assert "+two" in diff
    assert "-unstaged" not in diff  # what was copied is the base, and not a commit
    wanted = {
        name: state for name, state in tree(copy).items() if not name.startswith((".git/", "installed"))
    }
    accepted = cli("accept", "cli:try", "--json")
    assert (accepted.code, accepted.json["refused"]) == (0, []), accepted.out
    now = tree(work)
    assert {name: now.get(name) for name in wanted} == wanted
    assert "gone.txt" not in now
    assert "installed/more.js" not in now
    assert (work / "link").readlink() == Path("a.txt")
    assert git(work, "branch", "--list").split() == ["*", "main"]
    assert [*(cli.folder / "home.copies").iterdir()] == []
    again = cli("accept", "cli:try")
    assert (again.code, "Nothing waits" in again.out) == (0, True)
    assert "+two" in cli("show", "cli:try", "--diff").out
    undone = cli("undo", "cli:try", "--json")
    assert (undone.code, undone.json["kept"]) == (0, [])
    after = tree(work)
    after["staged.txt"] = before["staged.txt"]  # an undo does not take back permissions alone
    assert after == before


def test_a_discarded_copy_is_gone_and_the_session_goes_on_in_a_new_one(cli: Cli, work: Path) -> None:
    before = tree(work)
    run(cli, "echo two >> a.txt")
    first = copy_of(cli)
    assert cli("discard", "cli:try", "--json").json["discarded"] is True
    assert not first.exists()
    assert cli("discard", "cli:try", "--json").json["discarded"] is False
    assert tree(work) == before
    model = cli.model(says("unused"), calls("shell", command="cat a.txt"), says("Done."), name="again")
    elsewhere = cli("run", "go on", "-s", "cli:try", "-m", model, "-w", str(cli.folder))
    assert (elsewhere.code, "works in a copy of" in elsewhere.err) == (2, True)
    resumed = cli("run", "go on", "-s", "cli:try", "-m", model, "--autonomy", "full")
    assert resumed.code == 0, resumed.err
    assert copy_of(cli) != first
    assert cli("delete", "cli:try", "--yes").code == 0
    assert [*(cli.folder / "home.copies").iterdir()] == []


def test_a_copy_that_is_too_deep_to_be_compared_changes_no_outcome_and_can_be_discarded(cli: Cli) -> None:
    done = run(cli, f"mkdir -p {'/'.join('a' * 150)}")
    shown = cli("show", "cli:try")
    for ended in (done, shown):
        assert (ended.code, "has more than 100 folders in each other" in ended.err) == (0, True), ended.err
        assert "holdfast discard" in ended.err
    assert cli("show", "cli:try", "--diff").code == 2
    assert cli("accept", "cli:try").code == 2
    assert cli("discard", "cli:try").code == 0
    assert not list((cli.folder / "home.copies").iterdir())


def test_a_copy_is_not_accepted_while_its_run_is_open(cli: Cli, work: Path) -> None:
    model = cli.model(calls("shell", command="sh any.sh"), says("Done."))
    asked = cli("run", "try it", "-m", model, "-s", "cli:try", "--isolate", "--approve-by", "wait")
    assert asked.code == 5
    refused = cli("accept", "cli:try")
    assert (refused.code, "has not ended" in refused.err) == (1, True)
    assert cli("discard", "cli:try").code == 1


def test_a_run_in_a_workspace_without_a_repository_works_in_a_plain_copy(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("one\n")
    os.mkfifo(cli.workspace / "pipe")
    run(
        cli,
        "rm a.txt; mkdir a.txt; echo x > a.txt/x; mkdir __pycache__; echo y > __pycache__/y; test ! -e pipe",
    )
    accepted = cli("accept", "cli:try", "--json")
    assert (accepted.code, accepted.json["accepted"]) == (0, ["a.txt", "a.txt/x"])
    assert sorted(path.name for path in cli.workspace.rglob("*")) == ["a.txt", "pipe", "x"]
    assert cli("undo", "cli:try").code == 0
    assert (cli.workspace / "a.txt").read_text() == "one\n"


def test_a_session_that_works_in_the_workspace_has_nothing_to_accept(cli: Cli, work: Path) -> None:
    run(cli, "true", more=())
    refused = cli("accept", "cli:try")
    assert (refused.code, "--isolate" in refused.err) == (2, True)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_in_a_sandbox_a_command_sees_the_copy_and_neither_the_workspace_nor_the_home(
    cli: Cli, work: Path
) -> None:
    cli.configure('[sandbox]\nmode = "bubblewrap"\n')
    (work / ".env").write_text("a-bait-that-nobody-may-read")
    (work / "try.sh").write_text(
        f"ls {work} {cli.home} .. ; cat .env; git status --short; echo x > .git/hooks/pre-push; echo y >> a.txt\n"
    )
    run(cli, "bash try.sh")
    [row] = [json.loads(line) for line in cli("show", "cli:try", "--tools", "--json").out.splitlines()]
    assert "a-bait" not in row["text"]
    assert "holdfast.db" not in row["text"]
    assert f"cannot access '{work}'" in row["text"]
    assert " M a.txt" in row["text"]
    accepted = cli("accept", "cli:try", "--json")
    assert (accepted.code, accepted.json["accepted"]) == (0, ["a.txt"])


@pytest.mark.parametrize("flag", ["--skip", "--allow"])
def test_a_flag_that_names_nothing_that_changed_stops_the_accept(cli: Cli, flag: str) -> None:
    (cli.workspace / "a.txt").write_text("one\n")
    run(cli, "echo two >> a.txt; mkdir docs; echo d > docs/d.txt")
    wrong = cli("accept", "cli:try", flag, "doc")
    assert (wrong.code, (cli.workspace / "a.txt").read_text()) == (2, "one\n")
    assert "'doc'" in wrong.err
    done = cli("accept", "cli:try", "--skip", str(cli.workspace / "a.txt"), "--skip", "./docs/../docs/")
    assert (done.code, (cli.workspace / "a.txt").read_text()) == (0, "one\n"), done.err
    assert not (cli.workspace / "docs").exists()


def test_links_that_make_controlling_files_or_lead_out_there_are_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (cli.workspace / ".gitignore").write_text("cache\n")
    (cli.workspace / "cache").symlink_to(tmp_path / "outside")
    git(cli.workspace, "init", "--quiet")
    (cli.workspace / "make.sh").write_text(
        "mkdir c; echo x > c/config.toml; ln -s c .cargo; rm cache; mkdir cache; ln -s cache/file pw"
    )
    run(cli, "sh make.sh")
    refused = cli("accept", "cli:try", "--json")
    assert refused.code == 1
    assert {each["path"] for each in refused.json["refused"]} == {".cargo", "pw"}


def test_what_was_put_aside_is_named_and_stays_in_the_copy_until_somebody_takes_it(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("one\n")
    (cli.workspace / "b.put-aside").write_text("one\n")
    write = "echo two | tee a.txt b.put-aside notes.put-aside.md > .envrc.put-aside"
    run(cli, f"{write}; mkdir d.put-aside-2; echo > d.put-aside-2/f")
    assert "added   .envrc.put-aside" in cli("show", "cli:try").err
    done = cli("accept", "cli:try", "--json").json
    assert done["accepted"] == ["a.txt", "b.put-aside", "notes.put-aside.md"]
    assert done["skipped"] == [".envrc.put-aside", "d.put-aside-2/f"]
    assert not (cli.workspace / ".envrc.put-aside").exists()
    assert (copy_of(cli) / ".envrc.put-aside").read_text() == "two\n"
    assert "d.put-aside-2/f: it may have been put aside" in cli("accept", "cli:try").out
    taken = cli("accept", "cli:try", "--allow", "d.put-aside-2", "--allow", ".envrc.put-aside", "--json")
    assert taken.json["accepted"] == [".envrc.put-aside", "d.put-aside-2/f"]
    assert [*(cli.folder / "home.copies").iterdir()] == []


def test_a_copy_without_changes_stays_when_it_is_accepted(cli: Cli, work: Path) -> None:
    run(cli, "git add -A", "git stash list")
    done = cli("accept", "cli:try")
    session = cli("show", "cli:try", "--json").json["session"]
    said = f"There was nothing to accept. The copy stays until you discard it:  holdfast discard {session}"
    assert (done.code, said in " ".join(done.out.split("\n"))) == (0, True), done.out
    assert copy_of(cli).is_dir()


MADE = (
    "git -c user.name=A -c user.email=a@example.com commit -qam 'in the copy'",
    (
        "git checkout -qb side && echo s > s.txt && git add s.txt"
        " && git -c user.name=A -c user.email=a@example.com commit -qm 'on the side'"
    ),
)


def test_commits_of_the_copy_come_as_branches_and_nothing_else_of_the_repository_changes(
    cli: Cli, work: Path
) -> None:
    trap = f"#!/bin/sh\ntouch {cli.folder}/trap\n"
    for name in ("reference-transaction", "post-checkout", "pre-auto-gc"):
        (work / ".git" / "hooks" / name).write_text(trap)
        (work / ".git" / "hooks" / name).chmod(0o755)
    before, config = git(work, "for-each-ref"), (work / ".git" / "config").read_bytes()
    run(cli, *MADE)
    inside = copy_of(cli) / ".git" / "config"
    touches = f"touch {cli.folder}/trap"
    traps = f'[uploadpack]\n\tpackObjectsHook = "{touches}; false"\n[core]\n\tfsmonitor = {touches}\n'
    inside.write_text(inside.read_text() + traps)
    shown = cli("show", "cli:try").err
    session = json.loads(cli("sessions", "--json").out.splitlines()[0])["session"]
    assert f"2 commits for the new branch holdfast/{session}/side" in shown
    accepted = cli("accept", "cli:try", "--json")
    assert (accepted.code, accepted.json["accepted"]) == (0, ["s.txt"]), accepted.err
    assert accepted.json["branches"] == [f"holdfast/{session}/main", f"holdfast/{session}/side"]
    assert not (cli.folder / "trap").exists()
    names = git(work, "log", "--format=%s", f"holdfast/{session}/side").splitlines()
    assert names == ["on the side", "in the copy", "first"]
    rest = [line for line in git(work, "for-each-ref").splitlines() if "/holdfast/" not in line]
    assert (rest, (work / ".git" / "config").read_bytes()) == (before.splitlines(), config)
    assert not (work / ".git" / "FETCH_HEAD").exists()
    assert git(work, "fsck", "--no-dangling") == ""
    assert [*(cli.folder / "home.copies").iterdir()] == []


def test_commits_can_be_left_out_and_never_replace_a_branch(cli: Cli, work: Path) -> None:
    run(cli, MADE[0])
    session = json.loads(cli("sessions", "--json").out.splitlines()[0])["session"]
    left = cli("accept", "cli:try", "--skip", ".git", "--json")
    assert (left.code, left.json["skipped"], left.json["branches"]) == (0, [".git"], [])
    git(work, "branch", f"holdfast/{session}/main")
    mine = git(work, "rev-parse", f"holdfast/{session}/main")
    done = cli("accept", "cli:try", "--json")
    assert (done.code, done.json["branches"]) == (0, [f"holdfast/{session}/main-2"]), done.err
    assert git(work, "rev-parse", f"holdfast/{session}/main") == mine
    assert cli("accept", "cli:try").code == 0


def test_commits_of_which_a_killed_accept_brought_only_the_objects_are_still_new(
    cli: Cli, work: Path
) -> None:
    run(cli, MADE[0])
    git(work, "fetch", "--quiet", "--no-write-fetch-head", str(copy_of(cli)), "main")
    assert len(cli("accept", "cli:try", "--json").json["branches"]) == 1


def test_commits_that_git_cannot_read_are_refused_and_can_be_left_out(cli: Cli, work: Path) -> None:
    run(cli, MADE[0], "echo two >> a.txt")
    (copy_of(cli) / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (copy_of(cli) / ".git" / "objects" / "info" / "alternates").write_text("/elsewhere\n")
    refused = cli("accept", "cli:try", "--json")
    assert (refused.code, [each["path"] for each in refused.json["refused"]]) == (1, [".git"])
    done = cli("accept", "cli:try", "--skip", ".git", "--json")
    assert (done.code, done.json["accepted"]) == (0, ["a.txt"])


def test_a_name_that_is_not_utf8_is_shown_and_can_be_left_out_as_it_was_shown(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("one\n")
    (cli.workspace / "make.py").write_bytes(
        b"import os\nos.mkdir('d')\n"
        b"for name in (b'a.txt', b'caf\\xe9', b'd/\\xff', b'n\\nn', b'-f'):\n    open(name, 'w').write('two')\n"
    )
    run(cli, "python3 make.py")
    refused = cli("accept", "cli:try", "--json")
    assert (refused.code, [each["path"] for each in refused.json["refused"]]) == (
        1,
        ["caf\\udce9", "d/\\udcff"],
    )
    folder = cli("accept", "cli:try", "--skip", "d", "--json")
    assert (folder.code, folder.json["skipped"]) == (1, ["d/\\udcff"])
    assert "caf\\udce9" in cli("show", "cli:try").err
    assert "caf\\udce9" in cli("show", "cli:try", "--diff").out
    done = cli("accept", "cli:try", "--skip", "caf\\udce9", "--skip", "d/\\udcff", "--json")
    assert (done.code, done.json["accepted"], done.json["skipped"]) == (
        0,
        ["-f", "a.txt", "n\nn"],
        ["caf\\udce9", "d/\\udcff"],
    )
    assert cli("show", "cli:try", "--diff", "--json").code == 0


def test_a_conflict_shows_what_the_workspace_has_now_beside_the_copy(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("one\n")
    (cli.workspace / "b.txt").write_text("one\n")
    run(cli, "echo theirs > a.txt; echo new > c.txt; echo same > b.txt")
    (cli.workspace / "a.txt").write_text("mine\n")
    (cli.workspace / "b.txt").write_text("same\n")
    (cli.workspace / "c.txt").write_text("my own\n")
    shown = cli("show", "cli:try", "--diff").out
    assert (
        "a.txt: it has changed in the workspace since the copy was made. Compared with what it is there"
        in shown
    )
    assert "-mine\n+theirs\n" in shown
    assert "-my own\n+new\n" in shown
    assert "b.txt: changed; the workspace has the same already." in shown
    assert "--- a/b.txt" not in shown


def test_the_command_that_takes_it_back_is_named_where_there_is_something_to_take_back(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("one\n")
    (cli.workspace / "b.txt").write_text("one\n")
    run(cli, "chmod 600 a.txt")
    accepted = cli("accept", "cli:try")
    assert ("holdfast undo" in accepted.out, "permissions stay" in accepted.out) == (False, True), (
        accepted.out
    )
    run(cli, "echo two >> a.txt; echo two >> b.txt", session="cli:other")
    accepted = cli("accept", "cli:other", "--skip", "b.txt")
    assert ("holdfast undo" in accepted.out, "holdfast discard" in accepted.out) == (True, True), accepted.out


@pytest.mark.requirement("L9")
def test_a_run_that_waits_names_no_command_that_would_be_refused(cli: Cli, work: Path) -> None:
    model = cli.model(
        calls("write_file", path="b.txt", content="b\n"), calls("shell", command="./x"), says("Done.")
    )
    waits = cli("run", "try it", "-m", model, "--isolate", "--approve-by", "wait")
    assert waits.code == 5
    for told in (waits.err, cli("show", "last").err):
        assert "added   b.txt" in told
        assert "--diff" in told
        assert "holdfast accept" not in told
        assert "holdfast discard" not in told
    assert cli("stop", "last").code == 0
    assert "holdfast accept" in cli("show", "last").err
    assert cli("accept", "last").code == 0
    assert (work / "b.txt").read_text() == "b\n"
