"""`holdfast prompt`: what the model gets, and why, without a key or a call."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.cli.processes import Cli

ASKING = ({"tool_calls": [{"name": "ask_user", "arguments": {"question": "Which?"}}]}, {"text": "Done."})


def rows(cli: Cli, *flags: str) -> list[dict[str, Any]]:
    ended = cli("prompt", *flags, "--json")
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def sent(cli: Cli, number: int) -> str:
    """The system prompt of a request of the last session."""
    system: str = json.loads(cli("show", "last", "--request", str(number)).out)["system"]
    return system


@pytest.mark.requirement("S9")
def test_the_prompt_is_printed_without_a_model_a_key_or_a_home(cli: Cli) -> None:
    ended = cli("prompt")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("You are an agent run by Holdfast.")
    assert not cli.home.exists() or not (cli.home / "holdfast.db").exists()


@pytest.mark.requirement("S9", "C5")
def test_each_section_has_its_row_and_the_rows_are_the_prompt(cli: Cli) -> None:
    (cli.workspace / "AGENTS.md").write_text("Use tabs. Grüße.")
    (cli.folder / "rules.txt").write_text("Never push.")
    flags = ("--system", str(cli.folder / "rules.txt"), "--autonomy", "read-only", "--deny-tool", "shell")
    text, found = cli("prompt", *flags).out, rows(cli, *flags)
    assert {"section", "source", "sha256", "chars", "tokens", "reason"} <= set(found[0])
    assert [row["section"] for row in found] == [
        "identity",
        "platform",
        "workspace",
        "workspace",
        "rules",
        "tools",
        "safety",
        "honesty",
        "answer",
    ]
    start = 0
    for row in found:
        part = text[start : start + row["chars"]]
        assert hashlib.sha256(part.encode()).hexdigest() == row["sha256"]
        assert row["tokens"] > 0
        start += row["chars"] + 2
    assert start - 2 == len(text) - 1
    by_source = {row["source"]: row for row in found}
    assert by_source["AGENTS.md"]["trust"] == "data"
    assert found[6]["reason"] == "the autonomy is read-only"
    assert "shell" not in text.partition("You are offered these tools: ")[2].partition(".")[0]


@pytest.mark.requirement("S9")
def test_what_is_printed_is_what_a_run_sends(cli: Cli) -> None:
    (cli.workspace / "CLAUDE.md").write_text("Use tabs.")
    model = cli.model({"text": "Done."})
    printed = cli("prompt", "--autonomy", "full").out
    assert cli("run", "Go.", "-m", model, "--autonomy", "full").code == 0
    assert sent(cli, 1) == printed.removesuffix("\n")


@pytest.mark.requirement("C5")
def test_the_prompt_of_an_open_run_is_the_recorded_one(cli: Cli) -> None:
    file = cli.workspace / "AGENTS.md"
    file.write_text("Use tabs.")
    assert cli("run", "Go.", "-m", cli.model(*ASKING), "-s", "cli:it").code == 5
    file.write_text("Use spaces.")
    assert "Use tabs." in cli("prompt", "-s", "cli:it").out
    assert "Use spaces." in cli("prompt").out
    assert "Use spaces." in cli("prompt", "-s", "cli:it", "--autonomy", "full").out
    assert cli("resume", "cli:it", "This.").code == 0
    assert "Use tabs." in sent(cli, 2)
    assert "Use spaces." in cli("prompt", "-s", "cli:it").out
