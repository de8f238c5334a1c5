"""Limits of a run beside its money as a whole: tool calls, and the time and the money of one model call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.protocol import events as e
from holdfast.protocol.limits import Limits
from holdfast.protocol.messages import Usage
from holdfast.protocol.outcomes import ModelCut
from holdfast.protocol.ports import ModelAttempt, Provider, Store
from holdfast.providers.script import script_from_lines
from holdfast.testing.clock import JumpingClock
from holdfast.testing.invariants import check_session, ended
from holdfast.testing.scenarios import MODEL, Played, Scenario, play
from holdfast.views.replay import replay
from tests.scenarios.scenes import PRICED, call, calls, tools_of, words
from tests.scenarios.stage import Stage


def run(stage: Stage, scenario: Scenario) -> Played:
    async def main(clock: JumpingClock, store: Store, workspace: Path) -> Played:
        played = await play(scenario, clock, store, workspace)
        await check_session(store, played.session, played.records)
        assert replay(played.session, "test:scenario", played.records).differences == ()
        return played

    return stage.run(main)


def test_without_a_tool_call_left_the_run_answers_and_ends(volatile: Stage) -> None:
    three = calls(*[call("look", name=f"thing {number}") for number in range(3)])
    played = run(
        volatile,
        Scenario("calls", [three, three, words("So far.")], tools_of, limits=Limits(tool_calls=4)),
    )
    assert ended(played.records) == [("limit", "tool_calls")]
    started = [r for r in played.records if isinstance(r.event, e.ToolCallStarted)]
    refused = [r.event.failure for r in played.records if isinstance(r.event, e.ToolCallRefused)]
    assert (len(started), len(refused)) == (4, 2)
    assert "may start 4 tool calls" in refused[0].message
    assert isinstance(played.records[-2].event, e.Responded)
    assert len(played.world.called) == 4


class Dripping:
    """A provider whose responses come a word at a time, without an end, until the last one."""

    def __init__(self, inner: Provider, times: int) -> None:
        self._inner, self._left = inner, times
        self.wire = inner.wire

    async def respond(self, attempt: ModelAttempt) -> Any:
        self._left -= 1
        if self._left < 0:
            return await self._inner.respond(attempt)
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            attempt.on_cut(ModelCut("", Usage(40), ("output",), 700))
            raise

    async def aclose(self) -> None:
        """Do nothing."""


@pytest.mark.requirement("H3", "L2-07")
def test_a_response_that_trickles_in_ends_in_time_is_charged_and_tried_again(volatile: Stage) -> None:
    slow = Dripping(script_from_lines([words("Done.")] * 3, "slow"), 2)
    scenario = Scenario(
        "slow", [words("never")], limits=Limits(request_s=30, idle_s=20), others={MODEL.name: slow}
    )
    played = run(volatile, scenario)
    assert ended(played.records) == [("done", "answer")]
    failed = [r.event for r in played.records if isinstance(r.event, e.ModelCallFailed)]
    assert [(each.usage, each.estimated) for each in failed] == [(Usage(40, 200), ("output",))] * 2
    assert failed[0].failure.message.startswith("The response was not whole after 30 s")
    assert 30_000 <= failed[0].duration_ms < 31_000


class Counting:
    """A provider that counts four bytes of a request as a token."""

    def __init__(self, inner: Provider) -> None:
        self._inner = inner
        self.wire = inner.wire

    async def respond(self, attempt: ModelAttempt) -> Any:
        reply = await self._inner.respond(attempt)
        return msgspec.structs.replace(reply, usage=Usage(len(attempt.body) // 4, 500), estimated=())

    async def aclose(self) -> None:
        """Do nothing."""


@pytest.mark.requirement("B6")
def test_a_call_that_may_cost_little_shortens_view_and_answer_and_the_run_goes_on(volatile: Stage) -> None:
    lines = [calls(call("look", name=f"thing {n}"), text=f"{n} " * 1_000) for n in range(40)]
    counting = Counting(script_from_lines([*lines, words("Done.")], "counting"))
    scenario = Scenario(
        "small",
        [words("never")],
        tools_of,
        settings={"facts": PRICED, "stall_turns": 1_000},
        limits=Limits(turns=60, cost_microusd=10_000_000, call_microusd=60_000),
        others={MODEL.name: counting},
    )
    played = run(volatile, scenario)
    assert ended(played.records) == [("done", "answer")]
    started = [r.event for r in played.records if isinstance(r.event, e.ModelCallStarted)]
    requests = [each.request for each in started if each.purpose == "work"]
    assert all(3 * each.expected_tokens + 15 * each.output_cap_tokens <= 60_000 for each in requests)
    assert len({each.output_cap_tokens for each in requests}) > 10
    assert any(isinstance(r.event, e.ContextCompacted) for r in played.records)
    costs = [r.event.cost_microusd for r in played.records if isinstance(r.event, e.Responded)]
    assert 30_000 < max(costs) <= 66_000, "by estimate"


def test_where_a_call_may_cost_less_than_any_answer_only_a_last_one_comes(volatile: Stage) -> None:
    scenario = Scenario("none", [words("Done.")], settings={"facts": PRICED}, limits=Limits(call_microusd=50))
    played = run(volatile, scenario)
    assert ended(played.records) == [("limit", "cost")]
    (last,) = [r.event for r in played.records if isinstance(r.event, e.ModelCallStarted)]
    assert last.is_last_pass, "a last answer always comes"
    (stopped,) = [r.event for r in played.records if isinstance(r.event, e.RunStopped)]
    assert "[limits] call_usd" in stopped.message
