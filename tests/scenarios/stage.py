"""Stores to play on, and the short way to play."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from holdfast.protocol.ports import Store
from holdfast.storage.sqlite import SqliteStore
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.clock import JumpingClock, run_jumping
from holdfast.testing.faults import FaultyStore

T = TypeVar("T")
Play = Callable[[JumpingClock, Store, Path], Awaitable[T]]


class Stage:
    """Fresh stores of one kind, each with a workspace of its own."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._folder = folder
        self._numbers = itertools.count()

    def run(self, play: Play[T]) -> T:
        """What `play(clock, store, workspace)` returns, on a store and a workspace that nobody used."""

        async def main(clock: JumpingClock) -> T:
            place = self._folder / str(next(self._numbers))
            workspace = place / "workspace"
            workspace.mkdir(parents=True)
            inner: Store = (
                SqliteStore.open(place / "home", clock=clock)
                if self.kind == "sqlite"
                else VolatileStore(clock)
            )
            store = FaultyStore(inner)  # it knows what waits for a thread of the real one
            clock.pause_while(lambda: store.in_flight > 0)
            try:
                return await play(clock, store, workspace)
            finally:
                await store.aclose()
                others = asyncio.all_tasks() - {asyncio.current_task()}
                assert not others, f"tasks were left: {others}"

        return run_jumping(main)


def sqlite_of(store: Store) -> SqliteStore:
    """The real store of a stage, with its files."""
    assert isinstance(store, FaultyStore)
    assert isinstance(store.inner, SqliteStore)
    return store.inner
