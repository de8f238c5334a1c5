"""Side calls and reflections as a user sees them: exit codes, views, exact bytes, the settings."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.cli.processes import Cli, calls, says

LOOK = calls("list_dir")
EVERY_TURN = "[reflection]\nevery_turns = 1\nmax = 1\n"


def judges(decision: str, **more: Any) -> dict[str, Any]:
    """A line of a script that answers how the task is going."""
    answer = {"progress": "slow", "decision": decision, "reason": "It takes long.", "next": "Which file?"}
    return {"text": json.dumps(answer), "purpose": "reflection", **more}


def rows(cli: Cli, view: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli("show", "last", view, "--json").out.splitlines()]


def late(line: dict[str, Any]) -> dict[str, Any]:
    """The line, after the reflection has had its time."""
    return {**line, "delay_s": 0.5}


@pytest.mark.requirement("L2-01")
@pytest.mark.parametrize("decision", ["continue", "adjust", "pivot"])
def test_the_model_is_told_what_it_decided_and_the_run_goes_on(cli: Cli, decision: str) -> None:
    cli.configure(EVERY_TURN)
    ended = cli("run", "look", "-m", cli.model(LOOK, late(LOOK), says("Done."), judges(decision)))
    assert ended.code == 0
    assert f"asked how the task is going, the model said: slow, {decision}. It takes long." in ended.err
    notes = [e["body"]["text"] for e in rows(cli, "--events") if e["type"] == "NoteAdded"]
    assert [decision in text for text in notes] == [True]
    last = cli("show", "last", "--request", "4").out
    assert f"You said: slow, {decision}." in last


@pytest.mark.requirement("L2-01")
def test_a_run_whose_model_asks_rests_with_the_question_and_goes_on_with_the_answer(cli: Cli) -> None:
    cli.configure(EVERY_TURN)
    ended = cli("run", "look", "-m", cli.model(LOOK, late(LOOK), says("Done."), judges("ask")))
    assert ended.code == 5
    assert "The agent asks: Which file?" in ended.err
    assert "answer:" in ended.err
    listed = json.loads(cli("sessions", "--json").out)
    assert (listed["status"], listed["reason"]) == ("waiting", "question")
    shown = json.loads(cli("show", "last", "--json").out)
    assert shown["next"] == f'holdfast resume {shown["session"]} "ANSWER"'
    waits = cli("approvals").out
    assert (
        waits
        == f"{shown['session']}\n  Which file?\n  answer      {shown['next'].replace('ANSWER', 'TEXT')}\n\n"
    )
    assert cli("resume", "last", "the second one").code == 0
    assert cli("approvals").out == "Nothing waits for you.\n"
    assert "the second one" in cli("show", "last", "--request", "4").out


@pytest.mark.requirement("L2-01")
def test_a_question_of_the_model_is_answered_in_chat(cli: Cli) -> None:
    cli.configure(EVERY_TURN)
    model = cli.model(LOOK, late(LOOK), says("It is done."), judges("ask"))
    with cli.emulator("chat", "-m", model, columns=100, rows=30) as screen:
        screen.until(">")
        screen.type("look at it\r")
        screen.until("the agent asks: Which file?")
        screen.until("  The agent asks: Which file?")
        screen.type("the second one\r")
        screen.until("It is done.")
        screen.type("\x04")
        assert screen.end() == 0


@pytest.mark.requirement("L2-01")
def test_a_run_whose_model_sees_no_way_on_ends_stuck(cli: Cli) -> None:
    cli.configure(EVERY_TURN)
    ended = cli("run", "look", "-m", cli.model(LOOK, {**LOOK, "delay_s": 30}, judges("stop")), "--json")
    assert ended.code == 6
    found = json.loads(ended.out)
    assert (found["status"], found["reason"]) == ("stuck", "reflection")
    assert "It takes long." in found["message"]


@pytest.mark.requirement("L2-01")
@pytest.mark.parametrize(
    "text", ["All is well.", "{}", '{"progress":"good","decision":"fly","reason":""}', "[" * 200]
)
def test_any_other_answer_becomes_a_note_and_changes_nothing(cli: Cli, text: str) -> None:
    cli.configure(EVERY_TURN)
    line = {"text": text, "purpose": "reflection"}
    assert cli("run", "look", "-m", cli.model(LOOK, late(LOOK), says("Done."), line)).code == 0
    types = [e["type"] for e in rows(cli, "--events")]
    assert types.count("NoteAdded") == 1
    assert "Reflected" not in types


def test_views_list_side_calls_apart_and_show_their_exact_bytes(cli: Cli) -> None:
    cli.configure(EVERY_TURN + "after_failures = 9\n")
    assert cli("run", "look", "-m", cli.model(LOOK, late(LOOK), says("Done."), judges("continue"))).code == 0
    found = rows(cli, "--requests")
    assert [row["purpose"] for row in found] == ["work", "reflection", "work", "work"]
    for row in found:
        body = cli("show", "last", "--request", str(row["number"])).out.encode()
        assert hashlib.sha256(body).hexdigest() == row["sha256"]
    side = cli("show", "last", "--request", "2").out
    work = cli("show", "last", "--request", "1").out
    assert side.startswith(work.rpartition("\n]")[0])
    assert "Judge how the task is going" in side
    assert "Judge how" not in cli("show", "last", "--request", "4").out
    cost = rows(cli, "--cost")
    assert [(row["purpose"], row["turn"]) for row in cost] == [
        ("work", 1), ("work", 2), ("work", 3), ("reflection", None),
    ]  # fmt: skip
    assert "reflection: answered (stop)" in cli("show", "last", "--requests").out
    assert "reflection" in cli("show", "last", "--cost").out
    assert "reflection" in cli("show", "last", "--timeline").out
    assert "Judge" not in cli("show", "last").out


def test_a_script_without_lines_for_reflections_goes_on_without_them(cli: Cli) -> None:
    cli.configure("[reflection]\nevery_turns = 1\n")
    ended = cli("run", "look", "-m", cli.model(LOOK, LOOK, LOOK, says("Done.")), "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert (found["turns"], found["model_calls"]) == (4, 4)


def test_another_model_reads_a_record_of_the_work(cli: Cli) -> None:
    other = cli.model(judges("adjust"))
    work = cli.workspace / "work.jsonl"
    work.write_text("\n".join(json.dumps(line) for line in (LOOK, late(LOOK), says("Done."))))
    cli.configure(f'{EVERY_TURN}model = "{other}"\n')
    assert cli("run", "look around", "-m", f"script:{work}").code == 0
    found = rows(cli, "--requests")
    assert [row["model"] == found[0]["model"] for row in found] == [True, False, True, True]
    side = cli("show", "last", "--request", "2").out
    assert "a record of it" in side
    assert "look around" in side
    assert "Judge how" in side
    assert "look around" in cli("show", "last", "--request", "3").out
    assert cli("fsck").code == 0
