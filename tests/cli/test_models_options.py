"""What a user sets about a model reaches its server and is recorded, and a notice names what is left out."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.cli.flags import RunFlags, facts_to_go_on
from holdfast.protocol.limits import ModelFacts, ModelOptions
from holdfast.testing.model_replies import Reply, ReplyCall
from holdfast.testing.model_server import ModelServer
from tests.cli.processes import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path, {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"})


async def test_an_effort_is_sent_and_recorded_and_counts_until_another_one_is_said(cli: Cli) -> None:
    async with ModelServer([Reply(text="One."), Reply(text="Two.")]) as server:
        cli.configure(f'[providers.openai]\nbase_url = "{server.openai_url}"\nheaders.X-Team = "a"\n')
        flags = (
            ("run", "x", "-m", "openai:gpt-5.5", "-s", "cli:e", "--effort", "high"),
            ("resume", "cli:e", "More."),
        )
        for each in flags:
            ended = await asyncio.to_thread(cli, *each)
            assert (ended.code, "left out" in ended.err) == (0, False), ended.err
        sent = [json.loads(request.body)["reasoning_effort"] for request in server.requests]
        assert {request.headers["x-team"] for request in server.requests} == {"a"}
    assert sent == ["high", "high"]


@pytest.mark.parametrize(("given", "effort"), [(None, "high"), ("low", "low")])
def test_a_resume_keeps_what_was_recorded_until_another_effort_is_said(
    given: str | None, effort: Any
) -> None:
    past = ModelFacts("openai", "gpt-5.5", price_source="old", options=ModelOptions("high", 0.5))
    fresh = replace(past, price_source="new", options=ModelOptions("low", 1.0))
    assert facts_to_go_on(past, fresh, RunFlags(effort=given)) == replace(
        past, options=ModelOptions(effort, 0.5)
    )
    other = replace(fresh, model="gpt-5.4")
    assert facts_to_go_on(past, other, RunFlags(effort=given)) == other


async def test_what_a_model_does_not_take_is_left_out_and_told_once(cli: Cli) -> None:
    async with ModelServer([Reply(text="One.")]) as server:
        cli.configure(
            f'[providers.openai]\nbase_url = "{server.openai_url}"\n'
            '[model_options."openai:*"]\neffort = "high"\ntemperature = 0.25\n'
        )
        ended = await asyncio.to_thread(cli, "run", "x", "-m", "openai:gpt-4.1")
        body = json.loads(server.requests[0].body)
    assert ended.code == 0
    assert ended.err.count("does not take effort = high, so it is left out.") == 1
    assert ("reasoning_effort" in body, body["temperature"]) == (False, 0.25)


async def test_a_session_goes_on_over_responses_with_its_sealed_reasoning(cli: Cli) -> None:
    async with ModelServer([Reply(text="One.", reasoning="Hm."), Reply(text="Two.")]) as server:
        cli.configure(f'[providers.openai-responses]\nbase_url = "{server.openai_url}"\n')
        started = await asyncio.to_thread(cli, "run", "x", "-m", "openai-responses:gpt-5.5", "-s", "cli:e")
        resumed = await asyncio.to_thread(cli, "resume", "cli:e", "More.")
        items = json.loads(server.requests[1].body)["input"]
    assert (started.out, resumed.out) == ("One.\n", "Two.\n")
    assert [item.get("type", item.get("role")) for item in items] == [
        "user",
        "reasoning",
        "assistant",
        "user",
    ]
    assert items[1]["encrypted_content"]


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)


@pytest.mark.requirement("C2")
@pytest.mark.parametrize(
    ("model", "reads"), [("anthropic:claude-sonnet-5", True), ("anthropic:other", False)]
)
async def test_an_image_goes_to_a_model_that_reads_images(cli: Cli, model: str, reads: bool) -> None:
    (cli.workspace / "a.png").write_bytes(PIXEL)
    look = Reply(tool_calls=(ReplyCall("read_file", {"path": "a.png"}),))
    async with ModelServer([look, Reply(text="A pixel.")]) as server:
        cli.configure(f'[providers.anthropic]\nbase_url = "{server.url}"\n')
        ended = await asyncio.to_thread(cli, "run", "x", "-m", model)
        blocks = json.loads(server.requests[1].body)["messages"][-1]["content"]
    assert ended.out == "A pixel.\n"
    images = [block["source"] for block in blocks if block["type"] == "image"]
    data = base64.b64encode(PIXEL).decode()
    assert images == ([{"type": "base64", "media_type": "image/png", "data": data}] if reads else [])
    said = "[image/png, 68 bytes: attached]" if reads else "Only text can be read."
    assert said in blocks[0]["content"]
