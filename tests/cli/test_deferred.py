"""`--approve-by defer`: the model works on, and a person's answer comes as a message."""

from __future__ import annotations

import json

import pytest

from tests.cli.processes import Cli, calls, says

COMMAND = "kill -0 0; touch made.txt"


@pytest.mark.requirement("H5")
def test_a_deferred_call_runs_when_the_model_makes_it_again_after_the_approval(cli: Cli) -> None:
    model = cli.model(
        calls("shell", command=COMMAND),
        {**calls("write_file", path="other.txt", content="meanwhile"), "when": "work on something else"},
        says("Only that is left."),
        {**calls("shell", command=COMMAND), "when": "Approved: your call of shell"},
        says("Made."),
    )
    asked = cli("run", "x", "-m", model, "--approve-by", "defer", "--json")
    assert (asked.code, asked.json["status"], asked.json["reason"]) == (5, "waiting", "approval")
    assert (cli.workspace / "other.txt").read_text() == "meanwhile"
    assert "✓ shell" not in asked.err
    assert "}  waiting" in cli("show", "last").out
    assert cli("resume", "last").code == 5
    (row,) = [json.loads(line) for line in cli("approvals", "--json").out.splitlines()]
    assert f"holdfast approve {row['id']}" in asked.err
    assert cli("approve", row["id"]).code == 0
    assert not (cli.workspace / "made.txt").exists()
    done = cli("resume", "last")
    assert (done.code, done.out) == (0, "Made.\n")
    assert (cli.workspace / "made.txt").exists()
    assert cli("approvals", "--json").out == ""
    shown = [
        line.split("}")[1].split()[0] for line in cli("show", "last").out.splitlines() if "→ shell" in line
    ]
    assert shown == ["asked", "ok"], "what was put aside never ran"


@pytest.mark.requirement("H5")
def test_defer_may_be_the_default_and_part_of_a_posture(cli: Cli) -> None:
    cli.configure('[postures.quiet]\napprove_by = "defer"\n')
    model = cli.model(
        calls("shell", command=COMMAND), says("I wait."), says("As you wish.", when="does not run")
    )
    assert cli("run", "x", "-m", model, "--posture", "quiet").code == 5
    (row,) = [json.loads(line) for line in cli("approvals", "--json").out.splitlines()]
    assert cli("deny", row["id"], "--note", "no").code == 0
    assert cli("resume", "last").out == "As you wish.\n"
