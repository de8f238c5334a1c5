"""`holdfast diff`, and names that several sessions have."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Filled, Holdfast
from tests.cli.processes import Cli, calls, says


@pytest.mark.requirement("H2")
def test_a_session_and_its_branch_are_compared_after_their_common_part(cli: Cli) -> None:
    model = cli.model(
        calls("write_file", path="a.txt", content="a"),
        calls("write_file", path="b.txt", content="b"),
        says("Both are written."),
        name="left",
    )
    left = cli("run", "write", "-m", model, "--json").json["session"]
    events = [json.loads(line) for line in cli("show", left, "--events", "--json").out.splitlines()]
    at = next(row["seq"] for row in events if row["type"] == "ToolCallFinished")
    right = cli("fork", left, "--at", str(at), "--json").json["session"]
    other = cli.model(says("unused"), says("I stop here."), name="right")
    assert cli("resume", right, "-m", other, "--json").code == 0
    found = cli("diff", left, right, "--json").json
    started = [row["seq"] for row in events if row["type"] == "ToolCallStarted"]
    assert found["common_seq"] == at
    assert found["left"] == {
        "session": left, "status": "done", "turns": 2, "cost_usd": "0.00",
        "calls": [{"seq": started[1], "tool": "write_file"}], "files": ["b.txt"], "text": "Both are written.",
    }  # fmt: skip
    assert found["right"] == {
        "session": right, "status": "done", "turns": 1, "cost_usd": "0.00", "calls": [], "files": [],
        "text": "I stop here.",
    }  # fmt: skip
    assert cli("diff", right, left, "--json").json["left"] == found["right"]
    plain = cli("diff", left, right).out
    assert f"first {at} records" in plain
    assert "b.txt" in plain


@pytest.mark.requirement("H2")
def test_sessions_that_never_met_share_nothing_and_one_shares_all_with_itself(
    holdfast: Holdfast, home: Filled
) -> None:
    found = holdfast("diff", home.finished, home.waiting, "--json", "--home", str(home.folder)).rows[0]
    assert found["common_seq"] == 0
    assert found["left"]["cost_usd"] == "0.0042"
    same = holdfast("diff", home.finished, home.finished, "--json", "--home", str(home.folder)).rows[0]
    assert (same["common_seq"], same["left"]["turns"]) == (18, 0)
    assert holdfast("diff", home.finished, "nothing", "--home", str(home.folder)).code == 2


@pytest.mark.requirement("L8")
def test_the_candidates_of_an_ambiguous_prefix_are_listed(holdfast: Holdfast, home: Filled) -> None:
    prefix = home.finished[:9]
    assert home.waiting.startswith(prefix)
    answer = holdfast("show", prefix, "--home", str(home.folder))
    assert answer.code == 2
    finished, waiting = [line for line in answer.err.splitlines() if line.strip().startswith(prefix)]
    assert home.finished in finished
    assert "done" in finished
    assert "cli:demo" in finished
    assert 'mend the "failing" test' in finished
    assert home.waiting in waiting
    assert "Use a longer prefix." in answer.err
