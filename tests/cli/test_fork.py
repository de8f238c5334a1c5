"""`holdfast fork` on real journals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Filled, Finished, Holdfast

LINES = [
    {"tool_calls": [{"name": "shell", "arguments": {"command": "kill -0 0; echo once >> log.txt"}}]},
    {"text": "Done.", "when": "no output|denied"},
]


@pytest.mark.requirement("H2")
def test_a_branch_shares_its_parents_records_and_leaves_it_as_it_was(
    holdfast: Holdfast, home: Filled
) -> None:
    before = holdfast("show", home.finished, "--events", "--json", "--home", str(home.folder)).out
    answer = holdfast("fork", home.finished, "--at", "7", "--home", str(home.folder))
    assert answer.code == 0
    branch = answer.out.strip()
    assert len(branch) == 26
    rows = holdfast("show", branch, "--events", "--json", "--home", str(home.folder)).rows
    assert [row["type"] for row in rows[7:]] == ["SessionForked"]
    assert rows[7]["body"]["parent"] == home.finished
    assert [row["body"] for row in rows[:7]] == [json.loads(line)["body"] for line in before.splitlines()[:7]]
    assert holdfast("show", home.finished, "--events", "--json", "--home", str(home.folder)).out == before
    assert holdfast("fsck", "--home", str(home.folder)).code == 0


@pytest.mark.requirement("H2")
@pytest.mark.parametrize("at", ["0", "-1", "999", "x"])
def test_a_record_that_is_not_there_is_no_place_to_branch_off(
    holdfast: Holdfast, home: Filled, at: str
) -> None:
    answer = holdfast("fork", home.finished, "--at", at, "--home", str(home.folder), "--json")
    assert answer.code == 2
    assert "error" in answer.rows[0]
    assert len(holdfast("sessions", "--json", "--home", str(home.folder)).rows) == 2


@pytest.mark.requirement("H2", "L8")
def test_a_branch_from_the_middle_of_a_call_is_open_and_not_running(
    holdfast: Holdfast, tmp_path: Path, waiting: str
) -> None:
    (asked,) = run(holdfast, tmp_path, "approvals", "--json").rows
    assert run(holdfast, tmp_path, "approve", str(asked["id"])).code == 0
    assert run(holdfast, tmp_path, "resume", waiting).code == 0
    events = run(holdfast, tmp_path, "show", waiting, "--events", "--json").rows
    (at,) = [event["seq"] for event in events if event["type"] == "ToolCallStarted"]
    branch = run(holdfast, tmp_path, "fork", waiting, "--at", str(at)).out.strip()

    def listed(*flags: str) -> dict[str, str]:
        rows = run(holdfast, tmp_path, "sessions", "--json", *flags).rows
        return {row["session"]: row["status"] for row in rows}

    assert listed() == {branch: "open", waiting: "done"}
    assert (listed("--status", "running"), listed("--status", "open")) == ({}, {branch: "open"})
    assert run(holdfast, tmp_path, "show", branch, "--json").rows[0]["status"] == "open"
    (call,) = run(holdfast, tmp_path, "show", branch, "--tools", "--json").rows
    assert call["status"] == "open"


def run(holdfast: Holdfast, folder: Path, *words: str) -> Finished:
    return holdfast(*words, "--home", str(folder / "home"))


@pytest.fixture
def waiting(holdfast: Holdfast, tmp_path: Path) -> str:
    """A session that waits for a person's yes to a command."""
    (tmp_path / "work").mkdir()
    (tmp_path / "m.jsonl").write_text("\n".join(json.dumps(line) for line in LINES))
    flags = ("-m", f"script:{tmp_path / 'm.jsonl'}", "-w", str(tmp_path / "work"), "--approve-by", "wait")
    answer = run(holdfast, tmp_path, "run", "log it", *flags, "--json")
    assert answer.code == 5, answer.err
    return str(answer.rows[0]["session"])


@pytest.mark.requirement("H2", "H5")
def test_a_branch_asks_its_own_approvals_and_goes_its_own_way(
    holdfast: Holdfast, tmp_path: Path, waiting: str
) -> None:
    (parents,) = run(holdfast, tmp_path, "approvals", "--json").rows
    answer = run(holdfast, tmp_path, "fork", waiting, "--at", last(holdfast, tmp_path, waiting), "--json")
    assert answer.rows[0]["parent"] == waiting
    branch = answer.rows[0]["session"]
    assert run(holdfast, tmp_path, "resume", branch, "--json").code == 5
    asked = [row for row in run(holdfast, tmp_path, "approvals", "--json").rows if row["session"] == branch]
    assert asked[0]["id"].startswith(branch)
    assert run(holdfast, tmp_path, "deny", asked[0]["id"]).code == 0
    assert run(holdfast, tmp_path, "resume", branch, "--json").rows[0]["text"] == "Done."
    assert not (tmp_path / "work" / "log.txt").exists()
    assert run(holdfast, tmp_path, "approve", parents["id"]).code == 0
    assert run(holdfast, tmp_path, "resume", waiting, "--json").code == 0
    assert (tmp_path / "work" / "log.txt").read_text() == "once\n"
    for name in (waiting, branch):
        assert run(holdfast, tmp_path, "replay", name).code == 0


@pytest.mark.requirement("H2", "H5")
def test_a_permission_that_the_parent_was_given_is_not_the_branchs(
    holdfast: Holdfast, tmp_path: Path, waiting: str
) -> None:
    (asked,) = run(holdfast, tmp_path, "approvals", "--json").rows
    assert run(holdfast, tmp_path, "approve", asked["id"]).code == 0
    branch = run(holdfast, tmp_path, "fork", waiting, "--at", last(holdfast, tmp_path, waiting)).out.strip()
    assert run(holdfast, tmp_path, "resume", branch, "--json").code == 5
    assert not (tmp_path / "work" / "log.txt").exists()
    assert run(holdfast, tmp_path, "replay", branch).code == 0


def last(holdfast: Holdfast, folder: Path, session: str) -> str:
    """The number of a session's last record."""
    return str(run(holdfast, folder, "show", session, "--events", "--json").rows[-1]["seq"])
