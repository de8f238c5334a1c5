"""`run --calibrated`: the answer with a confidence, for people and for scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.processes import Cli, calls, says

UNCHECKED = {"confidence": None, "reasons": [], "caveats": []}


def answers(confidence: float, text: str = "It is 42.", **more: Any) -> dict[str, Any]:
    given = {"text": text, "confidence": confidence, "reasons": ["I counted."], "caveats": ["Only once."]}
    return calls("answer", **given | more)


@pytest.mark.requirement("L2-03")
def test_stdout_has_the_text_of_the_answer_and_json_its_confidence(cli: Cli) -> None:
    model = cli.model({"text": "I am done.", **answers(0.8)}, answers(0.75))
    ended = cli("run", "count", "-m", model, "--calibrated", "-s", "cli:a")
    assert (ended.code, ended.out) == (0, "It is 42.\n")
    assert "✓ answer confidence 0.8" in ended.err
    assert [line.strip() for line in ended.err.splitlines()[-3:]] == [
        "confidence 0.8", "because: I counted.", "but: Only once.",
    ]  # fmt: skip
    row = json.loads(cli("run", "again", "-s", "cli:a", "--json").out)
    assert (row["text"], row["confidence"], row["reasons"], row["caveats"]) == (
        "It is 42.", 0.75, ["I counted."], ["Only once."],
    )  # fmt: skip
    shown = cli("show", "cli:a").out
    assert "answer  confidence 0.8" in shown
    assert "because: I counted." in shown
    assert cli("sessions", "--grep", "it is 42").out


@pytest.mark.requirement("L2-03")
def test_a_doubtful_answer_is_verified_first(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("x")
    model = cli.model(answers(0.4), calls("list_dir"), answers(0.95, "One file."))
    ended = cli("run", "count", "-m", model, "--calibrated", "-s", "cli:a")
    assert ended.out == "One file.\n"
    assert "the model's confidence is only 0.4" in ended.err
    waiting = cli.model(answers(0.4), calls("ask_user", question="Which?"), name="waiting")
    ended = cli("run", "count", "-m", waiting, "--calibrated")
    assert (ended.code, ended.out) == (5, "")
    assert "because" not in ended.err
    row = json.loads(cli("resume", "cli:a", "--json").out)
    assert (row["text"], row["confidence"], row["turns"]) == ("One file.", 0.95, 3)


@pytest.mark.requirement("L2-03")
def test_plain_words_are_asked_once_for_the_call_and_then_have_no_confidence(cli: Cli) -> None:
    ended = cli("run", "count", "-m", cli.model(says("42"), says("42.")), "--calibrated", "--json")
    row = json.loads(ended.out)
    assert (row["status"], row["text"], row["turns"]) == ("done", "42.", 2)
    assert {name: row[name] for name in UNCHECKED} == UNCHECKED
    assert "is asked for the call of `answer`" in ended.err
    assert "confidence: the model did not say" in ended.err


@pytest.mark.requirement("L2-03", "S1")
def test_with_a_schema_stdout_is_the_value(cli: Cli) -> None:
    schema = cli.folder / "schema.json"
    schema.write_text('{"type": "integer"}')
    flags = ("--calibrated", "--output-schema", str(schema))
    model = cli.model(answers(0.9, "many"), answers(0.9, "42"), answers(0.9, "43"))
    ended = cli("run", "count", "-m", model, *flags)
    assert (ended.code, ended.out) == (0, "42\n")
    row = json.loads(cli("run", "count", "-m", model, *flags, "--json", "-s", "cli:b").out)
    assert (row["output"], row["confidence"]) == (42, 0.9)


@pytest.mark.requirement("L2-03")
def test_other_runs_have_no_answer_tool_and_no_confidence(cli: Cli) -> None:
    ended = cli("run", "count", "-m", cli.model(answers(0.9), says("42")), "--json")
    row = json.loads(ended.out)
    assert (row["status"], row["text"]) == ("done", "42")
    assert not row.keys() & UNCHECKED.keys()
    assert "There is no tool 'answer'" in ended.err


def test_a_session_stays_calibrated_until_a_flag_says_otherwise(cli: Cli) -> None:
    cli.configure("[answers]\ncalibrated = true\nthreshold = 0.95\n")
    assert ["answers.calibrated", "true"] in [
        line.split()[:2] for line in cli("config", "show").out.splitlines()
    ]
    model = cli.model(answers(0.9), answers(0.9), answers(0.99, "Go."), says("Plain."))
    assert cli("run", "count", "-m", model, "-s", "cli:a", "--allow-tool", "read_*").out == "It is 42.\n"
    cli.configure("")
    assert cli("run", "go", "-s", "cli:a").out == "Go.\n"
    assert cli("run", "plain", "-s", "cli:a", "--no-calibrated").out == "Plain.\n"


def test_the_answer_is_shown_once_on_a_terminal(cli: Cli) -> None:
    with cli.emulator("run", "count", "-m", cli.model(answers(0.8)), "--calibrated", columns=100) as screen:
        screen.until("but: Only once.")
        assert screen.end() == 0
        assert screen.text.count("It is 42.") == 1
