"""Thousands of turns in a small window: what a step, a resume, the memory and the disk cost depends on the view."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.protocol import events as e
from holdfast.protocol.codec import Selected, StoredRecord
from holdfast.protocol.commands import Send, owner
from holdfast.protocol.limits import Limits, ModelFacts
from holdfast.protocol.messages import ModelReply, Text, ToolCall, Usage
from holdfast.protocol.ports import ModelAttempt, Store, Tool
from holdfast.protocol.rows import Recovered
from holdfast.providers.script import ScriptWire
from holdfast.runtime import snapshot
from holdfast.runtime.fold import Fold
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scenarios import MODEL, Scenario, World, controller_of, records_of, settings_of
from holdfast.tools.function import tool
from tests.scenarios.scenes import words
from tests.scenarios.stage import Stage, sqlite_of

pytestmark = pytest.mark.requirement("C9", "L6", "H6")

RESULT_BYTES = 2_000
SMALL = ModelFacts("script", "model", context_tokens=16_000, max_output_tokens=1_000, price="free")
SOON, MARGIN = 30, 10
"""The first stretch that is measured begins after so many turns; the last one ends so many before the end."""


LOOKS = 5
"""How often memory is looked at in a stretch. The view grows and is cut; its middle size counts."""


@pytest.fixture(autouse=True)
def seldom(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots are as far apart as they are for users."""
    monkeypatch.setattr(snapshot, "EVERY_MODEL_CALLS", 25)


class Pager:
    """A model that reads page after page, and sums up in a few words."""

    wire = ScriptWire()

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._turn = 0

    async def respond(self, attempt: ModelAttempt) -> ModelReply:
        """Read the next page; keep nothing of the request."""
        used = Usage(len(attempt.body) // 4, 50)
        if attempt.purpose == "summary":
            return ModelReply((Text(f"The pages up to {self._turn} were read. No page had an error."),), used)
        await asyncio.sleep(60)
        self._turn += 1
        if self._turn == self._turns:
            return ModelReply((Text("All is read."),), used)
        call = ToolCall("", "page", f'{{"number": {self._turn}}}')
        return ModelReply((Text(f"Reading page {self._turn}."), call), used, "tool_calls")

    async def aclose(self) -> None:
        """Nothing is open."""


def page_text(number: int, size: int) -> str:
    return "".join(f"{number * 7919 + line:019d}\n" for line in range(size // 20))


class Meter:
    """Reads pages, and on the way counts calls of functions, or notes what memory holds."""

    def __init__(
        self, turns: int, stretch: int, *, counts: bool, soon: int = SOON, size: int = RESULT_BYTES
    ) -> None:
        self.starts = (soon, turns - MARGIN - stretch)
        self._size = size
        self.calls = [0, 0]
        self.kept: list[list[int]] = [[], []]
        self._stretch = stretch
        self._counts = counts

    def tools(self, world: World) -> Iterable[Tool]:
        @tool(effect="read")
        async def page(number: int) -> str:
            """A page."""
            self._look(number)
            return page_text(number, self._size)

        return (page,)

    def _look(self, number: int) -> None:
        for place, start in enumerate(self.starts):
            if self._counts and number == start:
                sys.setprofile(lambda frame, event, _, place=place: self._count(place, event))  # type: ignore[misc]
            elif self._counts and number == start + self._stretch:
                sys.setprofile(None)
            elif not self._counts and number in range(
                start, start + self._stretch, max(self._stretch // LOOKS, 1)
            ):
                gc.collect()
                self.kept[place].append(tracemalloc.get_traced_memory()[0])

    def _count(self, place: int, event: str) -> None:
        self.calls[place] += event in ("call", "c_call")


def scenario_of(turns: int, make: Callable[[World], Iterable[Tool]]) -> Scenario:
    pager = Pager(turns)
    return Scenario(
        "long",
        [words("unused")],
        make,
        settings={"facts": SMALL, "is_streaming": False, "max_reflections": 0},
        limits=Limits(turns=turns, tokens=10**12, wall_s=1e9),
        others={MODEL.name: pager, SMALL.name: pager},
    )


async def drive(scenario: Scenario, clock: JumpingClock, store: Store, workspace: Path) -> str:
    """See the session through, and read nothing of it."""
    settings = settings_of(scenario, workspace)
    async with controller_of(scenario, store, clock, World(workspace)) as controller:
        session = await controller.open("test:long")
        await controller.submit(session, owner("tester"), Send("Read the pages.", settings))
        state = await controller.drive(session)
    assert state.run is not None
    assert (state.run.status, state.run.totals.turns) == ("done", scenario.limits.turns)
    return session


def compactions(records: Sequence[e.Record]) -> list[e.ContextCompacted]:
    return [record.event for record in records if isinstance(record.event, e.ContextCompacted)]


@pytest.mark.parametrize(("turns", "stretch"), [(100, 20), pytest.param(5_000, 500, marks=pytest.mark.long)])
def test_a_step_after_many_compactions_takes_what_it_took_after_few(
    volatile: Stage, turns: int, stretch: int
) -> None:
    meter = Meter(turns, stretch, counts=True)

    async def main(clock: JumpingClock, store: Store, workspace: Path) -> list[e.ContextCompacted]:
        return compactions(
            await records_of(store, await drive(scenario_of(turns, meter.tools), clock, store, workspace))
        )

    cuts = volatile.run(main)
    assert len(cuts) > turns / 15
    assert sum(bool(each.summary_by) for each in cuts) > len(cuts) / 2
    early, late = meter.calls
    assert early > 100 * stretch
    assert late < 1.2 * early, (early, late)
    assert early < 1.2 * late, (early, late)


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(
    ("turns", "stretch", "size"),
    [(60, 10, 2 * RESULT_BYTES), pytest.param(5_000, 100, RESULT_BYTES, marks=pytest.mark.long)],
)
def test_memory_is_bounded_by_the_view_and_not_by_what_was_said(
    durable: Stage, turns: int, stretch: int, size: int
) -> None:
    """Larger pages fill the view after fewer turns."""
    meter = Meter(turns, stretch, counts=False, soon=SOON * RESULT_BYTES // size, size=size)

    async def main(clock: JumpingClock, store: Store, workspace: Path) -> None:
        tracemalloc.start()
        try:
            await drive(scenario_of(turns, meter.tools), clock, store, workspace)
        finally:
            tracemalloc.stop()

    durable.run(main)
    early, late = (sorted(kept)[len(kept) // 2] for kept in meter.kept)
    # What was said in between is 100 kB in the short session and 10 MB in the long one. A view has 40 kB.
    assert late - early < 60_000, (early, late)


class Reading(FaultyStore):
    """A store that counts the records that are read."""

    records = 0

    async def read(self, session: str, after_seq: int = 0, upto_seq: int | None = None) -> list[StoredRecord]:
        found = await super().read(session, after_seq, upto_seq)
        self.records += len(found)
        return found

    async def recover(self, session: str) -> Recovered:
        found = await super().recover(session)
        self.records += len(found.records)
        return found

    async def select(self, session: str, types: Sequence[str], upto_seq: int, read: Any, **more: Any) -> Any:
        def counted(selected: Iterator[Selected]) -> Iterator[Selected]:
            for each in selected:
                self.records += 1
                yield each

        return await super().select(
            session, types, upto_seq, lambda selected: read(counted(selected)), **more
        )


@pytest.mark.requirement("C21", "L2-05")
@pytest.mark.parametrize(
    ("turns", "size"), [(70, 2 * RESULT_BYTES), pytest.param(5_000, RESULT_BYTES, marks=pytest.mark.long)]
)
def test_a_resume_reads_what_the_view_holds_and_the_disk_holds_what_was_said(
    durable: Stage, turns: int, size: int
) -> None:
    async def main(clock: JumpingClock, store: Store, workspace: Path) -> None:
        home = sqlite_of(store).path.parent
        scenario = scenario_of(turns, lambda world: Meter(turns, 0, counts=False, size=size).tools(world))
        session = await drive(scenario, clock, store, workspace)
        reading, fold = Reading(store), Fold(session)
        await fold.open(reading)
        records = await records_of(store, session)
        assert fold.state.seq == len(records)
        # Up to 25 turns after the last snapshot, with about five records each, and the words of the view before it.
        assert reading.records < 200
        payload = sum(
            len(each.event.result.text) for each in records if isinstance(each.event, e.ToolCallFinished)
        )
        await store.aclose()
        disk = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
        assert payload > (turns - 2) * size
        assert disk < 3 * payload

    durable.run(main)
