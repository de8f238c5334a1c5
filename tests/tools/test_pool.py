"""Calls of all sessions run in a bounded number of places, in turn, and no two sessions write one file at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.protocol.tools import EVERYTHING, Resource
from holdfast.tools.pool import Pool

FILE, OTHER, FOLDER = "/ws/a.txt", "/ws/b.txt", "/ws"


class Hall:
    """Calls that run until they are let go, and the order in which they began."""

    def __init__(self, places: int, places_of_one: int = 9) -> None:
        self.pool = Pool(places, places_of_one)
        self.began: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def call(self, name: str, resources: Sequence[Resource] = ()) -> None:
        """Make a call. The first letter of its name is its session."""
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._run(name, resources))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _run(self, name: str, resources: Sequence[Resource]) -> None:
        async with self.pool.place(name[0], resources):
            self.began.append(name)
            await self._ends[name].wait()

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
            await self._tasks[name]
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks[name]])
        await asyncio.sleep(0)

    @property
    def running(self) -> set[str]:
        return {name for name in self.began if not self._tasks[name].done()}


@pytest.mark.requirement("C19")
async def test_a_session_with_many_calls_does_not_keep_another_one_waiting() -> None:
    hall = Hall(2)
    for name in ("a1", "a2", "a3", "a4", "b1", "c1"):
        await hall.call(name)
    assert hall.began == ["a1", "a2"]
    await hall.end("a1")
    await hall.end("a2")
    assert hall.began == ["a1", "a2", "a3", "b1"]
    await hall.end("a3", "b1")
    assert hall.began[4:] == ["c1", "a4"]
    await hall.end("a4", "c1")
    assert hall.pool.waiting == 0


@pytest.mark.requirement("C19")
@pytest.mark.parametrize(
    ("one", "other", "wait"),
    [
        (Resource("write", FILE), Resource("write", FILE), True),
        (Resource("write", FILE), Resource("read", FILE), True),
        (Resource("read", FOLDER), Resource("write", FILE), True),
        (Resource("read", FILE), Resource("read", FILE), False),
        (Resource("write", FILE), Resource("write", OTHER), False),
        (EVERYTHING[0], Resource("write", FILE), False),
    ],
    ids=[
        "two writers",
        "a reader after a writer",
        "a writer in a folder",
        "two readers",
        "two files",
        "a command",
    ],
)
async def test_what_one_session_writes_another_one_touches_only_afterwards(
    one: Resource, other: Resource, wait: bool
) -> None:
    hall = Hall(8)
    await hall.call("a1", [one])
    await hall.call("b1", [other])
    await hall.call("b2", [Resource("read", "/elsewhere")])  # passes whatever waits for something else
    assert hall.running == ({"a1", "b2"} if wait else {"a1", "b1", "b2"})
    await hall.end("a1")
    assert hall.running == {"b1", "b2"}


@pytest.mark.requirement("C19")
async def test_one_session_never_has_all_places() -> None:
    hall = Hall(4, 2)
    for name in ("a1", "a2", "a3", "b1"):
        await hall.call(name)
    assert hall.running == {"a1", "a2", "b1"}
    await hall.end("a2")
    assert hall.running == {"a1", "a3", "b1"}


@pytest.mark.requirement("C19")
async def test_readers_who_come_later_do_not_pass_a_writer_that_waits() -> None:
    hall = Hall(8)
    await hall.call("a1", [Resource("read", FILE)])
    await hall.call("b1", [Resource("write", FILE)])
    await hall.call("c1", [Resource("read", FILE)])
    assert hall.running == {"a1"}
    await hall.end("a1")
    assert hall.running == {"b1"}
    await hall.end("b1")
    assert hall.running == {"c1"}


@pytest.mark.requirement("C19")
async def test_a_call_that_is_stopped_while_it_waits_or_runs_leaves_its_place() -> None:
    hall = Hall(1)
    for name in ("a1", "b1", "c1"):
        await hall.call(name)
    await hall.cancel("b1")
    await hall.cancel("a1")
    assert hall.running == {"c1"}
    await hall.end("c1")
    await hall.call("b2")
    assert hall.running == {"b2"}


@pytest.mark.requirement("C19")
@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["read", "write"]), st.sampled_from([FILE, OTHER])),
        max_size=14,
    ),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_whatever_comes_all_run_within_the_bound_and_no_two_sessions_write_one_file(
    places, calls, random
) -> None:  # type: ignore[no-untyped-def]
    async def main() -> None:
        pool, running, ended = Pool(places), list[tuple[str, str, str]](), 0

        async def one(call: tuple[str, str, str]) -> None:
            nonlocal ended
            async with pool.place(call[0], [Resource(call[1], call[2])]):  # type: ignore[arg-type]
                running.append(call)
                assert len(running) <= places
                others = [each for each in running if each[0] != call[0] and each[2] == call[2]]
                assert not others or {each[1] for each in [*others, call]} == {"read"}
                for _ in range(random.randint(0, 4)):
                    await asyncio.sleep(0)
                running.remove(call)
                ended += 1

        await asyncio.gather(*map(one, calls))
        assert ended == len(calls)
        assert pool.waiting == 0

    asyncio.run(main())
