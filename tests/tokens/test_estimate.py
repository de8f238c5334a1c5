"""The token estimate of real sessions, against a server that counts with a published tokenizer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Agent, tool
from holdfast.core.reflection import WORDS
from holdfast.protocol.messages import Usage
from holdfast.testing.model_replies import Rendered, Reply, ReplyCall, render
from holdfast.testing.model_server import ModelServer, Received
from holdfast.views.estimates import errors
from holdfast.views.story import Story
from holdfast.views.story import story as story_of
from holdfast.views.tables import request_lines, request_rows
from tests.library.test_masked_calls import recorded
from tests.tokens import texts
from tests.tokens.vocabularies import count

pytestmark = pytest.mark.requirement("C6")

TURNS = 30
MESSAGE_TOKENS = 4
"""What a chat template adds around a message."""


class CountingServer(ModelServer):
    """Reports as many tokens as its tokenizer has for what it reads and says."""

    def __init__(self, vocabulary: str, replies: Sequence[Reply]) -> None:
        super().__init__(replies)
        self.vocabulary = vocabulary

    def answer(self, request: Received) -> tuple[Reply, Rendered]:
        """The next reply of the script; a call beside the conversation gets one of its own."""
        is_aside = self.requests and WORDS in json.loads(request.body)["messages"][-1]["content"]
        reply = Reply(text='{"decision": "continue"}') if is_aside else super().answer(request)[0]
        written = reply.text + "".join(each.name + each.text for each in reply.tool_calls)
        usage = Usage(self.counted(json.loads(request.body)), count(self.vocabulary, written))
        reply = replace(reply, usage=usage)
        return reply, render(reply, "openai", len(self.requests), is_streaming=True)

    def counted(self, body: dict[str, Any]) -> int:
        tokens = count(self.vocabulary, json.dumps(body.get("tools", []), ensure_ascii=False))
        for message in body["messages"]:
            said = message.get("content") or ""
            said = said if isinstance(said, str) else "".join(part.get("text", "") for part in said)
            calls = [call["function"] for call in message.get("tool_calls", ())]
            told = said + "".join(call["name"] + call["arguments"] for call in calls)
            tokens += MESSAGE_TOKENS + count(self.vocabulary, told)
        return tokens


def script(random: Random, kinds: Sequence[str]) -> list[Reply]:
    """A conversation that looks at texts of these kinds, of 100 to 12,000 characters."""
    replies = []
    for _ in range(TURNS):
        kind, size = random.choice(kinds), int(10 ** random.uniform(2, 4.1))
        said = texts.KINDS[random.choice(("english", "german", "cjk"))](random, random.randrange(20, 400))
        asked = ReplyCall("look", {"kind": kind, "size": size, "seed": random.randrange(100)})
        replies.append(Reply(text=said, tool_calls=(asked,)))
    return [*replies, Reply(text="I have seen all of it.")]


@tool(effect="read")
def look(kind: str, size: int, seed: int) -> str:
    """Return a text of a kind."""
    return texts.KINDS[kind](Random(seed), size)


async def told(
    folder: Path, vocabulary: str, seed: int, *, kinds: Sequence[str] = tuple(texts.KINDS), **options: Any
) -> Story:
    """A session of three tasks, each driven by another process of the library."""
    random = Random(seed)
    for _ in range(3):
        async with CountingServer(vocabulary, script(random, kinds)[-TURNS // 3 - 1 :]) as server:
            config = {"providers": {"openai": {"base_url": server.openai_url}}, **options}
            async with Agent(model="openai:m", home=folder / "home", config=config, tools=[look]) as agent:
                words = texts.KINDS[random.choice(("english", "german", "cjk"))](random, 300)
                result = await agent.run(words, session="cli:it")
                assert result.status == "done", result
                records = await recorded(agent)
    return story_of(records)


@pytest.mark.parametrize(
    ("vocabulary", "seed"),
    [
        ("cl100k", 1),  # `tekken` is there every day in the next test
        pytest.param("cl100k", 2, marks=pytest.mark.long),
        *(pytest.param("tekken", seed, marks=pytest.mark.long) for seed in (1, 2)),
    ],
)
async def test_after_ten_calls_the_estimate_is_right(tmp_path: Path, vocabulary: str, seed: int) -> None:
    story = await told(tmp_path, vocabulary, seed)
    (found,) = errors(story.attempts)
    assert found.calls >= 20
    assert found.median <= 0.05
    assert found.worst <= 0.15
    shown = "\n".join("".join(map(str, line)) for line in request_lines(story, 200))
    assert f"median error {found.median:.1%}, worst {found.worst:.1%}" in shown
    rows = [row for row in request_rows(story) if row["estimate_error"] is not None]
    assert len(rows) == found.calls + 10
    (asides,) = {each.started.purpose for each in story.attempts} - {"work"}
    assert asides == "reflection", "a call beside the conversation is not estimated here, and teaches nothing"


async def test_the_estimate_is_right_over_compactions_too(tmp_path: Path) -> None:
    window = {"catalog": {"openai:m": {"context_tokens": 14_000, "max_output_tokens": 1_000}}}
    story = await told(tmp_path, "tekken", 3, **window)
    cuts = {each.left_out for each in story.attempts}
    assert len(cuts) > 3, "the view was compacted several times"
    (found,) = errors(story.attempts)
    assert found.median <= 0.05
    assert found.worst <= 0.15
