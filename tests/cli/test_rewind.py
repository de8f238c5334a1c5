"""`holdfast rewind`, and `fork --copy`, with real files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import SLOW, Cli, says
from tests.cli.test_undo import edit, run, tree, work, write  # noqa: F401 - a fixture


def events(cli: Cli, session: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli("show", session, "--events", "--json").out.splitlines()]


def last(cli: Cli, session: str) -> int:
    return int(events(cli, session)[-1]["seq"])


@pytest.mark.requirement("H2")
def test_a_rewind_gives_the_name_to_a_branch_and_puts_files_back(cli: Cli, work: Path) -> None:  # noqa: F811
    trees, ends = [tree(work)], [0]
    for number in range(1, 4):
        session = run(cli, write("a.txt", f"{number}\n"), write(f"d{number}/n.txt", "x"), says("Done."))
        trees.append(tree(work))
        ends.append(last(cli, session))
    planned = cli("rewind", "cli:edit", "--to", str(ends[1]), "--files", "--dry-run", "--json").json
    assert planned == {
        "session": None, "from": session, "restored": ["a.txt", "d2/n.txt", "d3/n.txt"], "kept": [],
    }  # fmt: skip
    assert tree(work) == trees[3]
    found = cli("rewind", "cli:edit", "--to", str(ends[1]), "--files", "--json")
    branch = found.json["session"]
    assert (found.code, found.json["from"], found.json["kept"]) == (0, session, [])
    assert tree(work) == trees[1]
    assert cli("show", "cli:edit", "--json").json["session"] == branch
    assert cli("show", session, "--json").json["key"] is None
    rows = {row["session"]: row for row in map(json.loads, cli("sessions", "--json").out.splitlines())}
    assert rows[branch]["parent"] == session
    assert "took over the name cli:edit" in cli("show", branch).out
    run(cli, write("a.txt", "another way\n"), says("Done."))
    assert cli("show", branch, "--json").json["turns"] == 5
    assert cli("undo", "cli:edit").code == 0
    assert tree(work) == trees[1]
    begin = cli("rewind", "cli:edit", "--to", "0", "--files", "--json")
    assert (begin.code, begin.json["from"]) == (0, branch), begin.out
    assert tree(work) == trees[0]
    for name in (session, branch, "cli:edit"):
        assert cli("replay", name).code == 0
    assert cli("fsck").code == 0
    assert cli("export", "cli:edit", str(cli.folder / "it.jsonl")).code == 0
    assert cli("import", str(cli.folder / "it.jsonl"), "--home", str(cli.folder / "other")).code == 0
    assert cli("fsck", "--repair", str(cli.folder / "saved.db")).code == 0
    (cli.home / "holdfast.db").unlink()
    (cli.folder / "saved.db").rename(cli.home / "holdfast.db")
    assert cli("show", "cli:edit", "--json").json["session"] == begin.json["session"]
    assert cli("fsck").code == 0


@pytest.mark.requirement("H2")
def test_a_rewind_to_before_an_undo_brings_the_edits_again(cli: Cli, work: Path) -> None:  # noqa: F811
    session = run(cli, edit("a.txt", "first", "second"), write("new/b.txt", "b"), says("Done."))
    after, end = tree(work), last(cli, session)
    assert cli("undo", session).code == 0
    assert cli("rewind", session, "--to", str(end), "--files").code == 0
    assert tree(work) == after


@pytest.mark.requirement("H2")
def test_a_rewind_leaves_what_something_else_changed_and_names_it(cli: Cli, work: Path) -> None:  # noqa: F811
    session = run(cli, write("a.txt", "agent\n"), write("b.txt", "b"), says("Done."))
    (work / "a.txt").write_text("mine\n")
    found = cli("rewind", session, "--to", "1", "--files", "--json")
    assert (found.code, found.json["restored"]) == (1, ["b.txt"])
    assert [each["path"] for each in found.json["kept"]] == ["a.txt"]
    assert (work / "a.txt").read_text() == "mine\n"


def test_a_dry_run_of_a_rewind_says_what_the_rewind_does(cli: Cli, work: Path) -> None:  # noqa: F811
    session = run(cli, edit("a.txt", "first", "second"), write("b.txt", "b"), says("Done."))
    shutil.rmtree(cli.home / "files" / session)  # as if it had been kept for too long
    told = cli("rewind", session, "--to", "1", "--files", "--json", "--dry-run")
    done = cli("rewind", session, "--to", "1", "--files", "--json")
    assert done.json["restored"] == ["b.txt"]
    assert "not kept" in done.json["kept"][0]["reason"]
    assert (told.code, told.json["restored"], told.json["kept"]) == (
        done.code, done.json["restored"], done.json["kept"],
    )  # fmt: skip


def test_another_rewind_to_the_same_record_makes_another_branch(cli: Cli, work: Path) -> None:  # noqa: F811
    session = run(cli, write("a.txt", "agent\n"), says("Done."))
    first, second = (cli("rewind", session, "--to", "5", "--json").json["session"] for _ in range(2))
    assert first != second


def test_a_copy_is_not_made_inside_of_the_workspace_behind_a_link(cli: Cli, work: Path) -> None:  # noqa: F811
    session = run(cli, write("a.txt", "agent\n"), says("Done."))
    (cli.folder / "link").symlink_to(work)
    answer = cli(
        "fork", session, "--at", str(last(cli, session)), "--copy", str(cli.folder / "link" / "copy")
    )
    assert (answer.code, "inside the workspace" in answer.err) == (2, True)


@pytest.mark.requirement("H2")
def test_files_stay_in_a_rewind_without_files(cli: Cli, work: Path) -> None:  # noqa: F811
    session = run(cli, write("a.txt", "agent\n"), says("Done."))
    after = tree(work)
    found = cli("rewind", session, "--to", "1", "--json")
    assert (found.code, found.json["restored"], found.json["kept"]) == (0, [], [])
    assert tree(work) == after
    for seq in ("-1", "999", "x"):
        assert cli("rewind", session, "--to", seq, "--json").code == 2
    assert cli("rewind", "nothing", "--to", "1").code == 2


@pytest.mark.requirement("H2")
def test_a_branch_works_in_a_copy_of_the_files_as_they_were(cli: Cli, work: Path) -> None:  # noqa: F811
    (work / "link").symlink_to("a.txt")
    session = run(cli, write("a.txt", "1\n"), says("Done."))
    first, end = tree(work), last(cli, session)
    run(cli, write("a.txt", "2\n"), write("later/b.txt", "b"), says("Done."))
    now = tree(work)
    copy = cli.folder / "copy"
    found = cli("fork", session, "--at", str(end), "--copy", str(copy), "--json")
    assert (found.code, found.json["parent"], found.json["at"]) == (0, session, end)
    assert sorted(found.json["restored"]) == ["a.txt", "later/b.txt"]
    assert tree(copy) == first
    assert (copy / "link").is_symlink()
    assert tree(work) == now
    branch = found.json["session"]
    assert cli("show", branch, "--json").json["workspace"] == str(copy)
    model = cli.model(says("unused"), says("unused"), write("c.txt", "c"), says("Done."), name="branch")
    assert cli("resume", branch, "go on", "-m", model).code == 0
    assert (copy / "c.txt").exists()
    assert tree(work) == now
    assert cli("undo", branch).code == 0
    assert tree(copy) == first
    assert cli("replay", branch).code == 0
    assert cli("fsck").code == 0
    for place in (copy, work / "inside", cli.folder / "no" / "folder"):
        assert cli("fork", session, "--at", str(end), "--copy", str(place), "--json").code == 2
    assert cli("fork", session, "--at", "1", "--copy", str(cli.folder / "none"), "--json").code == 2
    assert sorted(path.name for path in cli.folder.iterdir() if path.is_dir()) == [
        "copy",
        "home",
        "workspace",
    ]


@pytest.mark.requirement("H2")
def test_a_branch_shows_what_its_parent_spent_apart(cli: Cli) -> None:
    cli.configure('[catalog."script:*"]\ninput_usd_per_mtok = 10\noutput_usd_per_mtok = 10\n')
    usage = {"input_tokens": 100, "output_tokens": 100}
    session = run(cli, says("Done.", usage=usage))
    spent = cli("show", session, "--json").json["cost_usd"]
    assert float(spent) > 0
    branch = cli("fork", session, "--at", str(last(cli, session))).out.strip()
    row = cli("show", branch, "--json").json
    assert (float(row["cost_usd"]), row["parent"], row["parent_cost_usd"]) == (0, session, spent)
    model = cli.model(says("unused"), says("More.", usage=usage), name="branch")
    assert cli("resume", branch, "more", "-m", model).code == 0
    row = cli("show", branch, "--json").json
    assert (row["cost_usd"], row["parent_cost_usd"]) == (spent, spent)
    listed = json.loads(cli("sessions", "--json", "--limit", "1").out)
    assert (listed["cost_usd"], listed["parent_cost_usd"]) == (spent, spent)
    head = cli("show", branch).out
    assert f"{session} spent 1 turn" in head
    assert cli("fsck").code == 0


@pytest.mark.requirement("H2")
def test_a_session_that_somebody_drives_is_neither_undone_nor_rewound(cli: Cli) -> None:
    with cli.working("run", "count", "-m", cli.model(SLOW), "-s", "cli:busy") as working:
        working.until(lambda row: "delta" in row)
        for command in (
            ("undo", "cli:busy"), ("rewind", "cli:busy", "--to", "1"),
            ("fork", "cli:busy", "--at", "3", "--copy", str(cli.folder / "copy")),
        ):  # fmt: skip
            answer = cli(*command)
            assert answer.code == 1
            assert "drives" in answer.err
    assert not (cli.folder / "copy").exists()


def test_a_record_that_is_not_there_is_refused_with_those_that_are(cli: Cli) -> None:
    session = cli("run", "edit", "-m", cli.model(says("Done.")), "--json").json["session"]
    last = len(cli("show", session, "--events", "--json").out.splitlines())
    assert f"from 0 to {last}." in cli("rewind", session, "--to", "99").err
    assert f"from 1 to {last}." in cli("fork", session, "--at", "99").err
    refused = cli("fork", session, "--at", "1", "--copy", str(cli.folder / "copy"))
    assert (refused.code, "The first run began with record 5." in refused.err) == (2, True)


@pytest.mark.requirement("H2")
def test_a_branch_in_a_copy_undoes_in_its_copy_and_nowhere_else(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("first\n")
    script = cli.model(edit("a.txt", "first", "second"), says("Done."))
    session = cli("run", "edit", "-m", script, "--json").json["session"]
    last = len(cli("show", session, "--events", "--json").out.splitlines())
    copy = cli.folder / "copy"
    branch = cli("fork", session, "--at", str(last), "--copy", str(copy), "--json").json["session"]
    assert (copy / "a.txt").read_text() == "second\n"
    found = cli("undo", branch, "--json")
    assert (found.code, found.json["restored"]) == (0, ["a.txt"])
    assert ((copy / "a.txt").read_text(), (cli.workspace / "a.txt").read_text()) == ("first\n", "second\n")
    assert cli("undo", branch, "--redo").code == 0
    assert (copy / "a.txt").read_text() == "second\n"
    for command in (("rewind", branch, "--to", "0"), ("fork", branch, "--at", "5", "--copy", f"{copy}2")):
        refused = cli(*command)
        assert (refused.code, f"holdfast fork {session} --at" in refused.err) == (2, True), refused.err
    assert cli("undo", session).code == 0
    assert (cli.workspace / "a.txt").read_text() == "first\n"


@pytest.mark.requirement("H2", "A4")
def test_a_copy_of_the_workspace_has_no_home_whatever_path_leads_to_it(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("first\n")
    (cli.folder / "link").symlink_to(cli.workspace)
    home = ("--home", str(cli.folder / "link" / "kept"))
    script = cli.model(edit("a.txt", "first", "second"), says("Done."))
    session = cli("run", "edit", "-m", script, "--json", *home).json["session"]
    assert cli("fork", session, "--at", "6", "--copy", str(cli.folder / "copy"), *home).code == 0
    assert [path.name for path in (cli.folder / "copy").iterdir()] == ["a.txt"]


def test_a_copy_that_cannot_be_made_says_which_file_stops_it_and_leaves_nothing(cli: Cli) -> None:
    session = run(cli, write("a.txt", "a"), says("Done."))
    deep = cli.workspace
    while len(str(deep)) < 3_850:
        deep /= "d" * 200
    deep /= "e" * (4_080 - len(str(deep)))  # the copy has a longer path, beyond what the system allows
    deep.mkdir(parents=True)
    (deep / "last.txt").write_text("deep")
    before = sorted(path.name for path in cli.folder.iterdir())
    found = cli("fork", session, "--at", "5", "--copy", str(cli.folder / ("c" * 200)))
    assert (found.code, "File name too long" in found.err, "e" * 20 in found.err) == (2, True, True)
    assert "[" not in found.err
    assert sorted(path.name for path in cli.folder.iterdir()) == before
