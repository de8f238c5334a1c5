"""Tools come and go while a run works: the next request lists what is there, and the record says why it differs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from holdfast.context.requests import attached, body_of, requests
from holdfast.protocol import events as e
from holdfast.protocol.ports import Store, Tool
from holdfast.runtime.enclosing import contents_of
from holdfast.testing.clock import JumpingClock
from holdfast.testing.invariants import check_session
from holdfast.testing.scenarios import Scenario, World, play, say
from holdfast.tools.context import Context
from holdfast.tools.function import tool
from holdfast.tools.registry import Registry
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage
from tests.tools.test_registry import Foreign


def tools_of(world: World) -> Iterable[Tool]:
    """One tool that brings a guest, and one that sends it away."""

    @tool(effect="read")
    async def bring(context: Context) -> str:
        """Bring a guest."""
        context.get(Registry).add_all("guest", [Foreign("guest", effect="read")])
        return "came"

    @tool(effect="read")
    async def send_away(context: Context) -> str:
        """Send the guest away."""
        return str(context.get(Registry).remove("guest"))

    return (bring, send_away)


@pytest.mark.requirement("S5", "C5")
def test_the_next_request_lists_the_tools_that_are_there(volatile: Stage) -> None:
    replies = [
        calls(call("bring")), calls(call("guest", a="x")), calls(call("send_away")), calls(call("guest")),
        words("Done."),
    ]  # fmt: skip
    scenario = Scenario("guests", replies, tools_of, lambda settings: (say("Go.", settings),))

    async def run(clock: JumpingClock, store: Store, workspace: Path) -> None:
        played = await play(scenario, clock, store, workspace)
        await check_session(store, played.session, played.records)
        events = [record.event for record in played.records]
        reasons = [each.reason for each in events if isinstance(each, e.PromptBuilt)]
        assert reasons[0] == "the first prompt"
        assert [each.partition(":")[0] for each in reasons[1:]] == ["tools came or went"] * 2
        sent = [*requests(played.records, await contents_of(store.blobs, attached(played.records)))]
        bodies = [body_of(each, await store.blobs.get(each.started.request.base)) for each in sent]
        assert [b'"guest"' in body.partition(b'"messages"')[0] for body in bodies] == [
            False,
            True,
            True,
            False,
            False,
        ]
        results = [each.result.text for each in events if isinstance(each, e.ToolCallFinished)]
        assert "guest ran" in results[1]
        (refused,) = [each for each in events if isinstance(each, e.ToolCallRefused)]
        assert refused.failure.code == "unknown_tool"

    volatile.run(run)


@pytest.mark.requirement("C3")
def test_the_model_reads_which_of_its_arguments_were_left_out(volatile: Stage) -> None:
    replies = [calls(call("write_file", path="a.txt", content="x", colour="red")), words("Done.")]
    scenario = Scenario(
        "stripped",
        replies,
        lambda _: (),
        lambda settings: (say("Go.", settings),),
        {"unknown_arguments": "strip"},
    )

    async def run(clock: JumpingClock, store: Store, workspace: Path) -> None:
        played = await play(scenario, clock, store, workspace)
        assert (workspace / "a.txt").read_text() == "x"
        sent = [*requests(played.records, await contents_of(store.blobs, attached(played.records)))]
        last = body_of(sent[-1], await store.blobs.get(sent[-1].started.request.base))
        assert "its call ran without them: `colour`" in str(msgspec.json.decode(last)["messages"])
        (started,) = [r.event for r in played.records if isinstance(r.event, e.ToolCallStarted)]
        assert msgspec.json.decode(started.arguments) == {"path": "a.txt", "content": "x"}

    volatile.run(run)
