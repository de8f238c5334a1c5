"""A long output is clipped with a handle; the model pages and searches the rest, and finds what was said before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, tool
from holdfast.protocol.events import ContextCompacted, ToolCallFinished
from holdfast.protocol.settings import Posture
from holdfast.protocol.tools import CallResult
from holdfast.runtime.archive import adopt, export, proven
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.clock import JumpingClock
from holdfast.testing.model_replies import ReplyCall
from holdfast.testing.model_server import ModelServer, Reply
from tests.library.test_secrets import DONE, FREE, KNOWN
from tests.tools.test_looking_back import LINES, Driving, drive, found, output, reading, recalling, said

LOOKING_BACK = ("read_output", "recall_history")


@tool(effect="read")
def count(first: int = 0) -> str:
    """Return many lines."""
    return LINES[first:]


async def results(
    home: Path, runs: list[list[Reply]], builtin: tuple[str, ...] = LOOKING_BACK
) -> list[CallResult]:
    """The results of all calls of a session with these responses."""
    async with ModelServer([reply for replies in runs for reply in replies]) as server:
        config: dict[str, Any] = {
            "providers": {"openai": {"base_url": server.openai_url}},
            "catalog": {"openai:m": FREE},
        }
        async with Agent(model="openai:m", home=home, config=config, tools=[count, *builtin]) as agent:
            for number, _ in enumerate(runs):
                await agent.run(f"The heron is number {number}.", "cli:a")
            events = [event.body async for event in agent.session("cli:a").events()]
    return [event.result for event in events if isinstance(event, ToolCallFinished)]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KNOWN)


@pytest.mark.requirement("C7")
async def test_a_clipped_output_names_the_handle_by_which_the_model_reads_the_rest(tmp_path: Path) -> None:
    (clipped,) = await results(tmp_path / "one", [[Reply(tool_calls=(ReplyCall("count", {}),)), DONE]])
    named = re.search(r'read_output\(handle="(\w+)"\) reads and searches the full text', clipped.text)
    assert named is not None
    assert len(clipped.text) <= 24_000
    reads = ReplyCall("read_output", {"handle": named[1], "pattern": "line 3333 "})
    finds = ReplyCall("recall_history", {"query": "heron number"})
    _, *told = await results(
        tmp_path / "two",
        [[Reply(tool_calls=(ReplyCall("count", {}),)), DONE], [Reply(tool_calls=(reads, finds)), DONE]],
    )
    read, recalled = sorted(told, key=lambda result: result.text)
    assert read.text == f"[output {named[1]}; trust: data]\n3333: line 3333 of the output\n"
    assert read.trust == "data"
    assert "The heron is number 0." in recalled.text
    assert recalled.text.index("The heron is number 1.") < recalled.text.index("The heron is number 0.")


@pytest.mark.requirement("C7", "C9")
async def test_what_a_compaction_left_out_is_found_and_read_again(tmp_path: Path) -> None:
    def counts(number: int) -> Reply:
        return Reply(tool_calls=(ReplyCall("count", {"first": number}, id=f"c{number}"),))

    finds = Reply(tool_calls=(ReplyCall("recall_history", {"query": "number 0"}),))
    async with ModelServer([*[counts(number) for number in range(8)], finds, DONE]) as server:
        config: dict[str, Any] = {
            "providers": {"openai": {"base_url": server.openai_url}},
            "catalog": {"openai:m": {**FREE, "context_tokens": 40_000}},
        }
        tools = [count, *LOOKING_BACK]
        async with Agent(model="openai:m", home=tmp_path / "home", config=config, tools=tools) as agent:
            result = await agent.run("The heron is number 0.", "cli:a")
            events = [event.body async for event in agent.session("cli:a").events()]
    assert result.status == "done"
    assert any(isinstance(event, ContextCompacted) for event in events)
    *_, recalled = [event.result for event in events if isinstance(event, ToolCallFinished)]
    assert "The heron is number 0." in recalled.text


async def test_a_model_without_the_tool_is_not_told_to_use_it(tmp_path: Path) -> None:
    calls = [[Reply(tool_calls=(ReplyCall("count", {}),)), DONE]]
    (clipped,) = await results(tmp_path / "home", calls, ())
    assert "read_output" not in clipped.text
    assert f"the full text is blob {clipped.blob} ...]" in clipped.text


async def test_an_imported_session_reads_and_finds_what_came_with_it(tmp_path: Path) -> None:
    clock = JumpingClock()
    there = SqliteStore.open(tmp_path / "there", clock=clock)
    driving = await drive(there)
    blob = await output(driving, LINES)
    await driving.commit(said("The heron is grey."))
    file = tmp_path / "session.holdfast"
    with file.open("wb") as written:
        async for chunk in export(there, driving.session):
            written.write(chunk)
    await there.aclose()
    here = SqliteStore.open(tmp_path / "here", clock=clock)
    adopted = await adopt(here, proven(file, clock.now_ms(), Posture()))
    copy = Driving(here, driving.lease, 0, b"")
    assert adopted.session == copy.session
    assert "line 4444 of" in (await reading(copy, handle=blob[:12], offset=4_444, limit=1)).text
    assert found(await recalling(copy, "heron grey")) == [2]
    await here.aclose()
