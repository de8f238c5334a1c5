"""One response of ten thousand calls: the first 128 are handled, and nobody has to wait for it."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.cli.processes import Cli, says


def ten_thousand(name: str, **arguments: str) -> dict[str, Any]:
    """A response of as many calls."""
    return {"tool_calls": [{"name": name, "arguments": arguments}] * 10_000}


@pytest.mark.requirement("A3")
def test_of_ten_thousand_calls_128_run_and_the_model_is_told_about_the_rest(cli: Cli) -> None:
    told = {**says("I see."), "when": "Your response had 10,000 calls. Only the first 128 were taken"}
    ended = cli("run", "x", "-m", cli.model(ten_thousand("list_dir"), told), "--json")
    assert (ended.code, ended.json["text"], ended.json["tool_calls"]) == (0, "I see.", 128)
    lines = cli("show", "last", "--events", "--json").out.splitlines()
    responded = next(row["body"] for row in map(json.loads, lines) if row["type"] == "Responded")
    assert (len(responded["parts"]), responded["calls_refused"]) == (128, 9_872)


@pytest.mark.requirement("A3", "L2-06")
def test_a_signal_is_obeyed_while_ten_thousand_calls_are_handled(cli: Cli) -> None:
    model = cli.model(ten_thousand("shell", command="sleep 60"), says("Done."))
    with cli.working("run", "x", "-m", model, "--autonomy", "full") as work:
        work.until_type("ToolCallStarted")
        ended = work.end(signal.SIGTERM)
    assert ended.code == 130
    assert sum(row.get("type") == "ToolCallStarted" for row in work.rows) == 1
