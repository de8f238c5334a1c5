"""`holdfast sessions` and `holdfast approvals`."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from tests.cli.conftest import Filled, Holdfast
from tests.cli.processes import Cli, says


@pytest.mark.requirement("L8", "A5")
def test_sessions_are_found_by_status_and_by_what_was_said(holdfast: Holdfast, home: Filled) -> None:
    def found(*flags: str) -> list[str]:
        answer = holdfast("sessions", "--json", "--home", str(home.folder), *flags)
        return [row["session"] for row in answer.rows]

    assert found() == [home.waiting, home.finished]
    assert found("--status", "waiting") == [home.waiting]
    assert found("--status", "failed") == []
    assert found("--grep", "SIGN was wrong") == [home.finished]
    assert found("--limit", "1") == [home.waiting]


@pytest.mark.requirement("L8")
def test_a_line_of_the_list_says_what_a_script_needs(holdfast: Holdfast, home: Filled) -> None:
    row = holdfast("sessions", "--json", "--home", str(home.folder), "--status", "done").rows[0]
    assert row == {
        "session": home.finished,
        "key": "cli:demo",
        "status": "done",
        "reason": "answered",
        "title": 'mend the "failing" test',
        "model": "openai:gpt-5.5",
        "workspace": "workspace",
        "runs": 1,
        "turns": 3,
        "model_calls": 4,
        "tool_calls": 2,
        "tokens": 3_150,
        "cost_usd": "0.0042",
        "parent": None,
        "parent_cost_usd": "0.00",
        "created_at": "2025-06-15T15:06:40.001Z",
        "updated_at": "2025-06-15T15:06:40.018Z",
        "due_at": None,
        "seq": 18,
        "copy_waits": False,
    }


def test_the_plain_list_is_aligned_and_without_colour(holdfast: Holdfast, home: Filled) -> None:
    head, *lines = holdfast("sessions", "--home", str(home.folder)).out.splitlines()
    assert head.split() == ["session", "key", "status", "last", "turns", "cost", "title"]
    titles = [line.index(title) for line, title in zip(lines, ("clean up", "mend the"), strict=True)]
    assert set(titles) == {head.index("title")}
    assert "\x1b" not in "".join(lines)


@pytest.mark.requirement("L8")
def test_sessions_are_listed_in_pages(cli: Cli) -> None:
    (cli.folder / "elsewhere").mkdir()
    made = []
    for number in range(5):
        where = ("-w", str(cli.folder / "elsewhere")) if number % 2 else ()
        made.append(
            cli("run", f"task {number}", "-m", cli.model(says("Hi.")), "--json", *where).json["session"]
        )

    def listed(*flags: str) -> list[str]:
        return [json.loads(line)["session"] for line in cli("sessions", "--json", *flags).out.splitlines()]

    first = listed("--limit", "2")
    second = listed("--limit", "2", "--before", first[-1])
    third = listed("--limit", "2", "--before", second[-1])
    assert first + second + third == made[::-1]
    assert listed("--before", third[-1]) == []
    assert listed("--workspace", str(cli.folder / "elsewhere")) == [made[3], made[1]]
    assert listed("--workspace", "../elsewhere", "--before", made[3]) == [made[1]]
    assert listed("--since", "12h", "--grep", "task 2") == [made[2]]
    assert listed("--status", "done", "--before", made[1]) == [made[0]]
    page = cli(
        "sessions", "--limit", "1", "--status", "done", "--grep", "task", "--workspace", "../elsewhere"
    ).out
    (more,) = re.findall(r"more:  .*holdfast (sessions .*)", page)
    assert made[1] in cli(*shlex.split(more), "--json").out
    assert "--before" not in cli("sessions").out


def test_sessions_without_a_record_in_that_time_are_not_listed(holdfast: Holdfast, home: Filled) -> None:
    assert holdfast("sessions", "--since", "1h", "--home", str(home.folder)).out == "No session matches.\n"


@pytest.mark.parametrize("flags", [("--since", "soon"), ("--since", "0s"), ("--before", "nothing")])
def test_a_page_that_cannot_be_is_a_usage_error(
    holdfast: Holdfast, home: Filled, flags: tuple[str, str]
) -> None:
    assert holdfast("sessions", *flags, "--home", str(home.folder)).code == 2


def test_nothing_found_is_said(holdfast: Holdfast, home: Filled) -> None:
    answer = holdfast("sessions", "--grep", "elephants", "--home", str(home.folder))
    assert (answer.code, answer.out) == (0, "No session matches.\n")


def test_open_approvals_are_listed_as_pinned(holdfast: Holdfast, home: Filled) -> None:
    (row,) = holdfast("approvals", "--json", "--home", str(home.folder)).rows
    pinned = {
        "id": f"{home.waiting}-1",
        "session": home.waiting,
        "tool": "shell",
        "arguments": {"command": "rm -rf build"},
        "asked_at": "2025-06-15T15:06:40.008Z",
        "deadline": "2033-05-18T03:33:20.000Z",
    }
    assert {name: row[name] for name in pinned} == pinned
    plain = holdfast("approvals", "--home", str(home.folder)).out
    assert "rm -rf build" in plain
    assert f"holdfast approve {home.waiting}-1 " in plain
