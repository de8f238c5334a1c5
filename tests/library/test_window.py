"""`[context]`: how many messages and tokens a request has at most, and windows that are too small for anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, tool
from holdfast.errors import UsageError
from holdfast.protocol.events import ContextCompacted, ModelCallStarted, Record
from holdfast.testing.model_replies import Reply, ReplyCall
from holdfast.testing.model_server import ModelServer
from tests.library.test_masked_calls import recorded

pytestmark = pytest.mark.requirement("C6")


@tool(effect="read")
def look(number: int) -> str:
    """Look at something."""
    return f"{number}: " + "It is as it was before, and nothing else is to be seen here. " * 20


def calls(count: int) -> list[Reply]:
    """As many turns, each with one call; the fifth one has three."""
    one = [(ReplyCall("look", {"number": turn}),) for turn in range(count)]
    one[4] = tuple(ReplyCall("look", {"number": 100 + each}) for each in range(3))
    return [*[Reply(text="I look.", tool_calls=each) for each in one], Reply(text="Done.")]


async def ran(folder: Path, replies: list[Reply], **config: Any) -> tuple[list[dict[str, Any]], list[Record]]:
    """The bodies that a server received, and the records."""
    async with ModelServer(replies) as server:
        provider = {"openai": {"base_url": server.openai_url}}
        settings = {"providers": provider, "reflection": {"max": 0}, **config}
        async with Agent(model="openai:m", home=folder / "home", config=settings, tools=[look]) as agent:
            result = await agent.run("Look at all of it.", session="cli:it")
            assert result.status == "done", result
            return [json.loads(each.body) for each in server.requests], await recorded(agent)


def check_pairs(messages: list[dict[str, Any]]) -> None:
    """Check that each call has its result, and each result its call."""
    asked = [call["id"] for each in messages for call in each.get("tool_calls", ())]
    told = [each["tool_call_id"] for each in messages if each["role"] == "tool"]
    assert asked == told
    assert "Look at all of it." in str(messages[1]["content"])


async def test_a_request_has_at_most_so_many_messages_and_no_pair_is_split(tmp_path: Path) -> None:
    bodies, records = await ran(tmp_path, calls(20), context={"max_messages": 12})
    assert len(bodies) == 21
    for body in bodies:
        system = sum(each["role"] == "system" for each in body["messages"])
        assert len(body["messages"]) - system <= 12
        check_pairs(body["messages"])
    assert sum(isinstance(each.event, ContextCompacted) for each in records) >= 2


async def test_a_request_has_at_most_so_many_tokens(tmp_path: Path) -> None:
    first, _ = await ran(tmp_path / "first", calls(2 + 3))
    base = len(json.dumps(first[0])) // 4
    bodies, records = await ran(tmp_path / "second", calls(20), context={"max_tokens": base + 5_000})
    for body in bodies:
        check_pairs(body["messages"])
    asked = [each.event.request for each in records if isinstance(each.event, ModelCallStarted)]
    assert max(each.expected_tokens for each in asked) <= base + 5_000
    assert any(isinstance(each.event, ContextCompacted) for each in records)


@pytest.mark.parametrize(
    ("config", "told", "hint"),
    [
        (
            {"context": {"max_tokens": 1_000}},
            r"\[context\] max_tokens = 1,000 has room for 900",
            "raise [context] max_tokens",
        ),
        (
            {"catalog": {"openai:m": {"context_tokens": 1_400}}},
            r"the window of 1,400 has room for 910",
            "use a model with a larger window",
        ),
    ],
)
async def test_a_window_too_small_for_the_prompt_and_the_rules_is_refused_before_anything_is_stored(
    tmp_path: Path, config: dict[str, Any], told: str, hint: str
) -> None:
    config["providers"] = {"openai": {"base_url": "http://127.0.0.1:9"}}
    async with Agent(model="openai:m", home=tmp_path / "home", config=config, tools=[look]) as agent:
        with pytest.raises(UsageError, match=told) as refused:
            await agent.run("Hi.", session="cli:it")
        app = await agent._open()
        assert await app.store.find("cli:it") == []
    assert "The prompt, the rules and the tools have about" in refused.value.message
    assert hint in refused.value.hint
    assert refused.value.exit_code == 2
