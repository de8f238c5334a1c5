"""Sessions of thousands of turns: disk and memory grow with what was said, and with nothing else."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.context.requests import body_of, requests
from holdfast.protocol import events as e
from holdfast.protocol.limits import Limits, ModelFacts
from holdfast.protocol.ports import Store, Tool
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults
from holdfast.testing.invariants import check_journal, ended
from holdfast.testing.scenarios import Scenario, World, play, play_with_crash
from holdfast.tools.function import tool
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage, sqlite_of

RESULT_BYTES = 2_000
LONG = [(1_000, 1), (5_000, 50)]
"""How many turns the long suite plays, and of how many the request is looked at."""
WIDE = ModelFacts("script", "model", context_tokens=1_000_000_000, price="free")


def pages(world: World) -> Iterable[Tool]:
    """A tool with a long answer, another one each time."""

    @tool(effect="read")
    async def page(number: int) -> str:
        """A page."""
        return "".join(f"{number * 7919 + line:019d}\n" for line in range(RESULT_BYTES // 20))

    return (page,)


def long_scenario(turns: int) -> Scenario:
    """So many turns, each with a call of its own."""
    work = [calls(call("page", number=n), text=f"Reading page {n}.") for n in range(turns - 1)]
    return Scenario(
        "long",
        [*work, words("All is read.")],
        pages,
        settings={"facts": WIDE, "is_streaming": False},
        limits=Limits(turns=turns, tokens=10**15, wall_s=1e9),
    )


def payload_bytes(records: tuple[e.Record, ...]) -> int:
    """Every answer and every result: what was really said. After a compaction, no request has all of it."""
    said = [r.event.parts for r in records if isinstance(r.event, e.Responded)]
    results = [r.event.result for r in records if isinstance(r.event, e.ToolCallFinished)]
    return sum(len(str(part)) for parts in said for part in parts) + sum(len(str(each)) for each in results)


async def play_long(
    clock: JumpingClock, store: Store, workspace: Path, turns: int, every: int
) -> tuple[int, int]:
    """Payload and disk in bytes, after all that must hold was checked."""
    played = await play(long_scenario(turns), clock, store, workspace)
    assert ended(played.records) == [("done", "answer")]
    assert played.state.run is not None
    assert played.state.run.totals.turns == turns
    check_journal(played.records)
    for sent in requests(played.records, {}):
        if sent.number % every == 0 or sent.number == turns:
            body = body_of(sent, await store.blobs.get(sent.started.request.base))
            assert len(body) == sent.started.request.size_bytes
    home = sqlite_of(store).path.parent
    await store.aclose()
    return payload_bytes(played.records), sum(f.stat().st_size for f in home.rglob("*") if f.is_file())


@pytest.mark.requirement("H6", "C21")
@pytest.mark.parametrize(
    ("turns", "every"), [(200, 5), *(pytest.param(*long, marks=pytest.mark.long) for long in LONG)]
)
def test_a_long_session_takes_less_than_three_times_its_payload_on_disk(
    durable: Stage, turns: int, every: int
) -> None:
    payload, disk = durable.run(lambda c, s, w: play_long(c, s, w, turns, every))
    assert payload > turns * RESULT_BYTES
    assert disk < 3 * payload


@pytest.mark.requirement("H6", "C21")
@pytest.mark.parametrize(("short", "long"), [(30, 90), pytest.param(100, 400, marks=pytest.mark.long)])
def test_memory_grows_with_what_was_said_and_not_with_its_square(
    durable: Stage, short: int, long: int
) -> None:
    """What a turn keeps in memory is the same in a short session and in a long one."""
    kept = {turns: peak_bytes(durable, turns) for turns in (short, long)}
    per_turn = (kept[long] - kept[short]) / (long - short)
    assert per_turn < 12 * RESULT_BYTES, kept


class Counter:
    """Counts the function calls of twenty turns from some on: the cost of a step, on any machine the same."""

    TURNS = 20

    def __init__(self, *starts: int) -> None:
        self.calls = dict.fromkeys(starts, 0)
        self._counted = 0

    def tools(self, world: World) -> Iterable[Tool]:
        """The tool of `pages`, which also begins and ends the counting."""
        plain = next(iter(pages(world)))

        @tool(effect="read", name="page")
        async def page(number: int) -> str:
            """A page."""
            if number in self.calls:
                self._counted = number
                sys.setprofile(self._count)
            elif number == self._counted + self.TURNS:
                sys.setprofile(None)
            return str(await plain(number))  # type: ignore[operator]

        return (page,)

    def _count(self, frame: object, event: str, _: object) -> None:
        self.calls[self._counted] += event in ("call", "c_call")


@pytest.mark.requirement("H6", "C21")
@pytest.mark.parametrize("turns", [260, *(pytest.param(turns, marks=pytest.mark.long) for turns, _ in LONG)])
def test_the_last_step_of_a_long_session_takes_no_more_than_the_hundredth(
    volatile: Stage, turns: int
) -> None:
    counter = Counter(100, turns - 50)
    scenario = replace(long_scenario(turns), make=counter.tools)
    volatile.run(lambda clock, store, workspace: play(scenario, clock, store, workspace))
    early, late = counter.calls.values()
    assert early > 100 * Counter.TURNS
    assert late < 1.2 * early, counter.calls


def peak_bytes(stage: Stage, turns: int) -> int:
    """The most that Python held while a session of so many turns was driven."""

    async def main(clock: JumpingClock, store: Store, workspace: Path) -> int:
        gc.collect()
        tracemalloc.start()
        try:
            await play(long_scenario(turns), clock, store, workspace)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return stage.run(main)


@pytest.mark.requirement("C21", "H1")
@pytest.mark.parametrize("turns", [150, pytest.param(300, marks=pytest.mark.long)])
def test_hundreds_of_turns_with_a_crash_every_fifty_commits_lose_nothing(volatile: Stage, turns: int) -> None:
    crashes = turns // 43
    scenario = long_scenario(turns)

    async def main(clock: JumpingClock, store: Store, workspace: Path) -> None:
        played = await play_with_crash(
            scenario,
            clock,
            store,
            workspace,
            *(Faults(crash_before_commit=50 + number) for number in range(crashes)),
        )
        check_journal(played.records)
        assert sum(isinstance(r.event, e.Attached) for r in played.records) == crashes + 1
        assert played.state.run is not None
        assert played.state.run.totals.turns == turns
        results = [r.event.result.text for r in played.records if isinstance(r.event, e.ToolCallFinished)]
        assert len(set(results)) == len(results) == turns - 1
        for sent in requests(played.records, {}):
            body_of(sent, await store.blobs.get(sent.started.request.base))

    volatile.run(main)
