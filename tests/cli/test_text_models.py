"""A model without native tool calls, end to end: configured, called over HTTP, shown on a terminal."""

from __future__ import annotations

import asyncio
import json

import pytest

from holdfast.testing.model_replies import Reply
from holdfast.testing.model_server import ModelServer
from tests.cli.processes import Cli, says

pytestmark = pytest.mark.requirement("S2")

CONFIG = (
    '[catalog."openai:plain-*"]\ntool_calls = "{calls}"\ninput_usd_per_mtok = 0\noutput_usd_per_mtok = 0\n'
)
PROVIDER = '[providers.openai]\nbase_url = "{url}"\n'
QWEN = "<tool_call>\n<function=read_file>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>"
HERMES = '<tool_call>{"name": "read_file", "arguments": {"path": "a.txt"}}</tool_call>'


@pytest.mark.parametrize(("named", "written"), [("qwen3_xml", QWEN), ("text", HERMES), ("text", QWEN)])
async def test_a_model_that_writes_its_calls_reads_a_file(cli: Cli, named: str, written: str) -> None:
    (cli.workspace / "a.txt").write_text("The answer is 42.\n")
    replies = [Reply(text=f"I look.\n{written}\n", pieces=20), Reply(text="It is 42.", pieces=3)]
    async with ModelServer(replies) as server:
        cli.configure(CONFIG.format(calls=named) + PROVIDER.format(url=server.openai_url))
        arguments = ("run", "What is the answer?", "-m", "openai:plain-1", "--stream-json")
        ended = await asyncio.to_thread(cli, *arguments)
        bodies = [json.loads(each.body) for each in server.requests]
    assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in ended.out.splitlines()]
    shown = "".join(row["delta"] for row in rows if "delta" in row and isinstance(row["delta"], str))
    assert "<tool_call" not in shown
    assert "42" in shown
    assert all("tools" not in body and "tool_choice" not in body for body in bodies)
    assert all(set(message) == {"role", "content"} for body in bodies for message in body["messages"])
    assert [message["role"] for message in bodies[1]["messages"]] == ["system", "user", "assistant", "user"]
    assert bodies[0]["messages"] == bodies[1]["messages"][:2]
    assert "The answer is 42." in bodies[1]["messages"][3]["content"]
    assert "read_file" in bodies[0]["messages"][0]["content"]
    calls = await asyncio.to_thread(cli, "show", "last", "--tools", "--json")
    assert '"read_file"' in calls.out


def test_the_raw_block_is_not_shown_while_a_model_writes(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("x\n")
    cli.configure('[catalog."script:*"]\ntool_calls = "hermes"\n')
    model = cli.model(says(f"I look. {HERMES}", chunks=30), says("Fine.", chunks=2))
    ended = cli("run", "Look.", "-m", model)
    assert (ended.code, ended.out) == (0, "Fine.\n")
    assert "I look." in ended.err
    assert "tool_call" not in ended.err
    assert "read_file a.txt" in ended.err


def test_the_prompt_is_printed_as_the_model_gets_it(cli: Cli) -> None:
    cli.configure('[catalog."script:*"]\ntool_calls = "mistral"\n')
    ended = cli("prompt", "-m", cli.model(says("Fine.")))
    assert "[TOOL_CALLS]NAME_OF_THE_TOOL[ARGS]" in ended.out
    assert '"name":"read_file"' in ended.out


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("qwen3-xml", "'qwen3-xml' does not exist; did you mean qwen3_xml?"),
        ("natve", "did you mean native?"),
        ("json", "'json' has no wrapper"),
        ("x", "is not one of native, text, apertus"),
    ],
)
def test_a_wrong_format_is_an_error_that_names_the_nearest(cli: Cli, wrong: str, said: str) -> None:
    cli.configure(f'\n[catalog."openai:plain-*"]\ntool_calls = "{wrong}"\nturns = 3\n')
    ended = cli("config", "check")
    assert ended.code == 2
    assert 'config.toml:3: catalog."openai:plain-*".tool_calls: ' in ended.err
    assert said in ended.err
    assert "config.toml:4:" in ended.err
