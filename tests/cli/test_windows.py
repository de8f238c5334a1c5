"""A model's window that is too small for what happened."""

from __future__ import annotations

import pytest

from tests.cli.processes import Cli, says

WINDOW = '[catalog."script:*"]\ncontext_tokens = 8000\n'


@pytest.mark.requirement("C5", "H1")
def test_one_call_that_is_larger_than_the_window_does_not_end_its_session_for_good(cli: Cli) -> None:
    cli.configure(WINDOW)
    large = {
        "tool_calls": [{"name": "write_file", "arguments": {"path": "big.txt", "content": "word " * 20_000}}]
    }
    ended = cli("run", "Write.", "-m", cli.model(large, says("Hello."), says("Again.")))
    assert (ended.code, ended.out) == (0, "Hello.\n")
    assert (cli.workspace / "big.txt").stat().st_size == 100_000
    told = cli("resume", "last", "Say hello.", "--json")
    assert (told.code, told.json["text"]) == (0, "Again.")
    assert "no longer sees records 8 to 10" in cli("show", "last").out
    request = cli("show", "last", "--request", "2").out
    assert "Even the last turn did not fit into the window" in request
    assert "Files written:\\n- big.txt (record 10)" in request
    assert cli("fsck").code == 0
