"""What an imported session may do in a home that did not make it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cli.forging import Parts, forge, parts_of
from tests.cli.processes import Cli, Ended, calls, says


def events(cli: Cli, *words: str) -> list[str]:
    return [json.loads(line)["type"] for line in cli("show", *words, "--events", "--json").out.splitlines()]


def exported(cli: Cli, session: str) -> Parts:
    file = cli.folder / "session.jsonl"
    assert cli("export", session, str(file)).code == 0
    return parts_of(file)


def imported(cli: Cli, parts: Parts) -> tuple[Ended, tuple[str, str]]:
    """Import into another home; the answer, and the flag that names this home."""
    there = ("--home", str(cli.folder / "there"))
    parts = parts._replace(head=replace(parts.head, records=len(parts.stored)))
    return cli("import", str(forge(cli.folder / "forged.jsonl", parts)), *there), there


@pytest.mark.requirement("H2")
def test_an_imported_open_run_has_the_rights_of_this_home(cli: Cli) -> None:
    model = cli.model(calls("shell", command="kill -0 0; echo x >> log.txt"), says("Done."))
    rights = ("--autonomy", "full", "--approve-by", "deny")
    session = cli("run", "log it", "-m", model, *rights, "--json").json["session"]
    (cli.workspace / "log.txt").unlink()
    parts = exported(cli, session)
    proposed = next(at for at, each in enumerate(parts.stored, 1) if each.type == "Responded")
    answer, there = imported(cli, parts._replace(stored=parts.stored[:proposed]))
    assert answer.code == 0
    for told in (
        str(cli.workspace),
        model,
        "supervised (the file said full)",
        "paused",
        "shell",
        "kill -0 0; echo x",
    ):
        assert told in answer.err, answer.err
    assert cli("show", session, "--json", *there).json["status"] == "paused"
    assert cli("resume", session, "--json", *there).code == 5
    assert not (cli.workspace / "log.txt").exists()
    assert cli("fsck", *there).code == 0
    assert cli("replay", session, *there).code == 0
    (row,) = [json.loads(line) for line in cli("approvals", "--json", *there).out.splitlines()]
    assert cli("approve", row["id"], *there).code == 0
    assert cli("resume", session, "--json", *there).json["text"] == "Done."
    assert (cli.workspace / "log.txt").read_text() == "x\n"


@pytest.mark.requirement("H2")
def test_a_flag_gives_an_imported_run_more_rights(cli: Cli) -> None:
    model = cli.model(calls("shell", command="kill -0 0; echo x >> log.txt"), says("Done."))
    session = cli("run", "log it", "-m", model, "--approve-by", "wait", "--json").json["session"]
    answer, there = imported(cli, exported(cli, session))
    assert answer.code == 0
    (row,) = [json.loads(line) for line in cli("approvals", "--json", *there).out.splitlines()]
    assert cli("deny", row["id"], *there).code == 0
    assert cli("resume", session, "--autonomy", "full", "--json", *there).json["status"] == "done"
    assert not (cli.workspace / "log.txt").exists()


@pytest.mark.requirement("H2")
def test_an_approval_in_a_file_is_not_one_of_this_home(cli: Cli) -> None:
    model = cli.model(calls("shell", command="kill -0 0; echo x >> log.txt"), says("Done."))
    session = cli("run", "log it", "-m", model, "--approve-by", "wait", "--json").json["session"]
    assert cli("approve", f"{session}-1").code == 0
    parts = exported(cli, session)
    assert parts.stored[-1].type == "ApprovalResolved"
    answer, there = imported(cli, parts)
    assert answer.code == 0
    assert cli("resume", session, "--json", *there).code == 5
    assert not (cli.workspace / "log.txt").exists()
    assert cli("approve", f"{session}-2", *there).code == 0
    assert cli("resume", session, "--json", *there).json["text"] == "Done."
    assert cli("fsck", *there).code == 0


@pytest.mark.requirement("H2")
def test_an_autonomy_below_that_of_this_home_stays(cli: Cli) -> None:
    session = cli("run", "hi", "-m", cli.model(says("Hi.")), "--autonomy", "read-only", "--json").json[
        "session"
    ]
    answer, _ = imported(cli, exported(cli, session))
    assert "autonomy read-only" in answer.err
    assert "the file said" not in answer.err


def test_what_was_put_back_before_an_import_is_not_taken_back(cli: Cli) -> None:
    note: Path = cli.workspace / "note.txt"
    model = cli.model(calls("write_file", path="note.txt", content="mine\n"), says("Done."))
    session = cli("run", "note it", "-m", model, "--json").json["session"]
    assert cli("undo", session).code == cli("undo", session, "--redo").code == 0
    exported_to = str(cli.folder / "session.jsonl")
    redone = events(cli, session).index("FilesRestored", events(cli, session).index("FilesRestored") + 1)
    for command in (("export", session, exported_to), ("delete", session, "--yes"), ("import", exported_to)):
        assert cli(*command).code == 0
    found = cli("rewind", session, "--to", str(redone), "--files", "--json")
    assert (found.code, found.json["restored"]) == (1, [])
    assert "before the session was imported" in found.json["kept"][0]["reason"]
    assert note.read_text() == "mine\n"


@pytest.mark.requirement("H2")
@pytest.mark.parametrize("is_open", [False, True])
def test_edits_from_before_an_import_are_not_undone(cli: Cli, is_open: bool) -> None:
    """is_open: the file ends within an undo, which the next one would complete."""
    note: Path = cli.workspace / "note.txt"
    model = cli.model(calls("write_file", path="note.txt", content="mine\n"), says("Done."))
    session = cli("run", "note it", "-m", model, "--json").json["session"]
    if is_open:
        assert cli("undo", session).code == 0
        note.write_text("mine\n")
    parts = exported(cli, session)
    if is_open:
        types = [each.type for each in parts.stored]
        parts = parts._replace(stored=parts.stored[: types.index("FilesRestoring") + 1])
    answer, there = imported(cli, parts)
    assert answer.code == 0
    undone = cli("undo", session, "--json", *there)
    assert (undone.code, undone.json["restored"]) == (1, [])
    assert [each["path"] for each in undone.json["kept"]] == ["note.txt"]
    assert "before the session was imported" in undone.json["kept"][0]["reason"]
    assert note.read_text() == "mine\n"
    assert "FilesRestoring" not in events(cli, session, *there)[len(parts.stored) :]


@pytest.mark.requirement("H2")
def test_an_imported_run_lets_no_unknown_program_run_because_its_file_says_so(cli: Cli) -> None:
    cli.configure('[sandbox]\nmode = "bubblewrap"\n')
    model = cli.model(
        calls("shell", command="rm -r gone"), calls("shell", command="bash try.sh"), says("Done.")
    )
    (cli.workspace / "gone").mkdir()
    (cli.workspace / "try.sh").write_text("echo tried > a.txt")
    posture = ("--posture", "overnight", "--approve-by", "wait")
    session = cli("run", "go", "-m", model, *posture, "--json").json["session"]
    answer, there = imported(cli, exported(cli, session))
    assert answer.code == 0
    (row,) = [json.loads(line) for line in cli("approvals", "--json", *there).out.splitlines()]
    assert cli("approve", row["id"], *there).code == 0
    assert cli("resume", session, *there).code == 5
    assert not (cli.workspace / "a.txt").exists()
