"""Approvals that last: made with --always or `a`, listed, revoked, and told when they have ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.processes import Cli, calls, says

MAKE = "truncate -s 0 made.txt"
RULE = f"shell({MAKE})"


def waiting(cli: Cli, *commands: str) -> dict[str, Any]:
    """A run whose first command waits for a person; the open approval."""
    lines = [calls("shell", command=command) for command in commands]
    assert cli("run", "x", "-m", cli.model(*lines, says("Made.", repeat=True))).code == 5
    return open_approval(cli)


def open_approval(cli: Cli) -> dict[str, Any]:
    (line,) = cli("approvals", "--json").out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def listed(cli: Cli) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli("grants", "--json").out.splitlines()]


@pytest.mark.requirement("S6")
def test_always_makes_a_grant_that_covers_the_same_call_until_it_is_revoked(cli: Cli) -> None:
    approval = waiting(cli, MAKE, MAKE, "truncate -s 0 other.txt", MAKE)
    assert f"holdfast approve {approval['id']} --always" in cli("approvals").out
    assert listed(cli) == []
    made = cli("approve", approval["id"], "--always")
    (grant,) = listed(cli)
    assert made.code == 0
    assert f"holdfast grants revoke {grant['id']}" in made.out
    assert grant == {
        "id": f"{approval['session']}-g1",
        "session": approval["session"],
        "tool": "shell",
        "rule": RULE,
        "until": grant["until"],
    }
    for told in (cli("grants").out, cli("show", "last").out, made.out):
        assert RULE in told
    assert cli("resume", "last").code == 5
    assert (cli.workspace / "made.txt").exists()
    assert f"covered by the grant {grant['id']}" in cli("show", "last", "--tools").out
    other = open_approval(cli)
    assert other["arguments"]["command"] == "truncate -s 0 other.txt"
    revoked = cli("grants", "revoke", grant["id"])
    assert (revoked.code, listed(cli)) == (0, [])
    again = cli("grants", "revoke", grant["id"])
    assert (again.code, again.err) == (1, "")
    assert again.out.startswith("Already revoked by cli:")
    cli("approve", other["id"])
    assert cli("resume", "last").code == 5
    assert open_approval(cli)["arguments"]["command"] == MAKE


@pytest.mark.requirement("S6")
def test_where_no_grant_may_be_made_always_decides_nothing_and_says_why(cli: Cli) -> None:
    approval = waiting(cli, "sh -c 'truncate -s 0 made.txt'")
    assert "--always" not in cli("approvals").out
    refused = cli("approve", approval["id"], "--always")
    assert refused.code == 2
    assert "`sh` runs whatever it is given. Nothing was decided." in refused.err
    assert f"holdfast approve {approval['id']}" in refused.err
    assert open_approval(cli) == approval


@pytest.mark.requirement("S6")
def test_a_question_and_an_unknown_grant_end_with_2(cli: Cli) -> None:
    cli("run", "x", "-m", cli.model(calls("ask_user", question="Why?"), says("Thanks.")))
    asked = cli("approve", open_approval(cli)["id"], "--note", "so", "--always")
    assert (asked.code, "is a question" in asked.err) == (2, True)
    for name in ("NONE", "NONE-g1", ""):
        assert cli("grants", "revoke", name).code == 2
    assert cli("grants").out == "No grants. `holdfast approve ID --always` makes one.\n"


@pytest.mark.requirement("S6")
def test_at_a_terminal_a_grants_the_rule_that_is_shown(cli: Cli) -> None:
    model = cli.model(calls("shell", command=MAKE), calls("shell", command=MAKE), says("Made."))
    with cli.terminal("run", "x", "-m", model) as screen:
        screen.until("Approve it? y, n, or n and why, a: always")
        screen.type("a\n")
        screen.until("Made.")
        assert screen.end() == 0
    assert f"always      {RULE}" in screen.screen
    assert screen.screen.count("Approve it?") == 1
    assert [each["rule"] for each in listed(cli)] == [RULE]


@pytest.mark.requirement("S6")
def test_at_a_terminal_a_says_why_there_is_no_grant_and_the_question_stays(cli: Cli) -> None:
    model = cli.model(calls("shell", command="truncate -s 0 a b && ls"), says("Made."))
    with cli.terminal("run", "x", "-m", model) as screen:
        screen.until("Approve it?")
        screen.type("a\n")
        screen.until("Only a single command can be granted")
        screen.until("Approve it?")
        screen.type("y\n")
        screen.until("Made.")
        assert screen.end() == 0
    assert listed(cli) == []


@pytest.mark.requirement("S6", "H5")
def test_a_branch_has_no_grant_of_its_parent(cli: Cli) -> None:
    approval = waiting(cli, MAKE, MAKE)
    cli("approve", approval["id"], "--always")
    cli("resume", "last")
    records = [json.loads(line) for line in cli("show", "last", "--events", "--json").out.splitlines()]
    finished = next(each["seq"] for each in records if each["type"] == "ToolCallFinished")
    cli("fork", approval["session"], "--at", str(finished))
    assert [each["session"] for each in listed(cli)] == [approval["session"]]
    assert cli("resume", "last").code == 5
