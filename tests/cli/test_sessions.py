"""`holdfast sessions` and `holdfast approvals`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Filled, Holdfast


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
        "created_at": "2025-06-15T15:06:40.001Z",
        "updated_at": "2025-06-15T15:06:40.020Z",
        "due_at": None,
        "seq": 20,
    }


def test_the_plain_list_is_aligned_and_without_colour(holdfast: Holdfast, home: Filled) -> None:
    head, *lines = holdfast("sessions", "--home", str(home.folder)).out.splitlines()
    assert head.split() == ["session", "key", "status", "last", "turns", "cost", "title"]
    titles = [line.index(title) for line, title in zip(lines, ("clean up", "mend the"), strict=True)]
    assert set(titles) == {head.index("title")}
    assert "\x1b" not in "".join(lines)


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
