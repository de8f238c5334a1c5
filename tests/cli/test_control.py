"""`holdfast pause` and `holdfast stop`, from another process than the one that works, and where nobody does."""

from __future__ import annotations

import json

import pytest

from tests.cli.processes import Cli, calls, is_running, says


@pytest.mark.requirement("B4")
def test_a_paused_session_finishes_what_runs_and_starts_nothing_until_it_is_resumed(cli: Cli) -> None:
    model = cli.model(
        calls("shell", command="until test -e go; do sleep 0.05; done"), says("Went on.", repeat=True)
    )
    with cli.working("run", "x", "-m", model, "--autonomy", "full") as work:
        work.until_type("ToolCallStarted")
        assert cli("pause", "last").code == 0
        work.until_type("RunPaused")
        (cli.workspace / "go").touch()
        assert work.end().code == 5
    assert work.rows[-1]["type"] == "ToolCallFinished"
    (row,) = [json.loads(line) for line in cli("sessions", "--json").out.splitlines()]
    assert row["status"] == "paused"
    assert cli("resume", "last").out == "Went on.\n"


@pytest.mark.requirement("B4", "L2-06")
def test_stop_from_another_process_ends_the_run_and_its_tool(cli: Cli) -> None:
    model = cli.model(calls("shell", command="sleep 65.75"), says("Went on.", repeat=True))
    with cli.working("run", "x", "-m", model, "--autonomy", "full") as work:
        work.until_type("ToolCallStarted")
        assert cli("stop", "last").code == 0
        assert work.end().code == 130
    assert not is_running("65.75")
    assert cli("resume", "last").out == "Went on.\n"


@pytest.mark.requirement("B4", "H5")
def test_stop_where_nobody_drives_withdraws_what_was_asked(cli: Cli) -> None:
    cli(
        "run",
        "x",
        "-m",
        cli.model(calls("shell", command="kill -0 0; echo hi"), says("Went on.", repeat=True)),
    )
    stopped = cli("stop", "last")
    assert stopped.code == 0
    assert "interrupted" in stopped.out
    assert cli("approvals", "--json").out == ""
    assert cli("resume", "last").out == "Went on.\n"


def test_where_no_run_is_open_there_is_nothing_to_pause_or_stop(cli: Cli) -> None:
    cli("run", "x", "-m", cli.model(says("Hi.")))
    before = cli("show", "last", "--events", "--json").out
    for command in ("pause", "stop"):
        ended = cli(command, "last")
        assert ended.code == 0
        assert "has no open run" in ended.out
    assert cli("show", "last", "--events", "--json").out == before


@pytest.mark.requirement("L9")
def test_a_broken_configuration_does_not_keep_a_session_from_being_stopped(cli: Cli) -> None:
    cli("run", "x", "-m", cli.model(calls("shell", command="kill -0 0; echo hi")))
    cli.configure("this is not toml")
    assert cli("stop", "last").code == 0


def test_a_session_that_is_not_there_ends_with_2(cli: Cli) -> None:
    assert cli("pause", "last").code == 2
    assert cli("stop", "cli:nothing").code == 2
