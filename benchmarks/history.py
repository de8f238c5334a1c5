"""What a search of a session's history costs: 5,000 turns of 2 KB, over the store of a home and the one in memory.

`python -m benchmarks.history [TURNS]`: CPU time of all threads in milliseconds, the best of several searches.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from holdfast.protocol.events import (
    Event,
    ModelCallStarted,
    Responded,
    ToolCallFinished,
    ToolCallStarted,
)
from holdfast.protocol.messages import Text, ToolCall, Usage
from holdfast.protocol.ports import CallContext, Store
from holdfast.protocol.request import Request
from holdfast.protocol.tools import CallResult
from holdfast.storage.sqlite import SqliteStore
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.clock import JumpingClock, never_over
from holdfast.testing.driving import Driving, drive
from holdfast.tools.recall import RecallHistory

ROUNDS = 5
BATCH = 100
"""How many turns one commit has."""
QUERIES = {
    "rare": "quokka",
    "two words": "the quokka",
    "common": "module",
    "missing": "wombat",
    "a field's name": "text",
    "a number": "17",
    "not ASCII": "größe",
    "a sentence": "Which module reads the settings of the quokka, and where is it tested?",
}

UNSAID = ("missing", "a field's name")
"""What nobody said."""


def turn(number: int) -> list[Event]:
    """The records of a turn, with 2 KB of words."""
    lines = [
        f"src/app/module_{(number * 7 + line) % 997}.py:{line}: reads the settings, line {line}"
        for line in range(30)
    ]
    rare = "It mentions a quokka. " if number % 1_000 == 3 else ""
    words = "Größe und Farbe. " if number % 50 == 0 else "Size and colour. "
    key, call = f"m{number}", f"t{number}.c1"
    return [
        ModelCallStarted(
            key,
            1,
            number,
            1,
            "openai:m",
            Request("wire", "", number, "]}", "0" * 64, 4_000, 900, 100, 1_000, 0),
        ),
        Responded(
            key,
            (Text(f"{rare}{words}I read on."), ToolCall("r", "read_file", '{"path":"a.py"}', call)),
            Usage(1, 1),
            0,
            "tool_calls",
        ),
        ToolCallStarted(call, "read_file", 1, 1, "read", "rerun", 60.0),
        ToolCallFinished(call, CallResult("ok", "\n".join(lines)[:1_900], output_chars=1_900, trust="data")),
    ]


async def filled(store: Store, turns: int) -> Driving:
    """A session of so many turns."""
    driving = await drive(store)
    for first in range(0, turns, BATCH):
        events = [event for number in range(first, min(first + BATCH, turns)) for event in turn(number)]
        await driving.commit(*events)
    return driving


async def measured(store: Store, turns: int) -> dict[str, float]:
    """The CPU time of a search, in milliseconds, by the kind of its query."""
    driving = await filled(store, turns)
    recall = RecallHistory(store)
    context = CallContext(driving.session, "t1.c1", "k", "/", 60.0, 60.0, lambda _: None, never_over)
    costs: dict[str, float] = {}
    for kind, query in QUERIES.items():
        best = float("inf")
        for _ in range(ROUNDS):
            began = time.process_time()
            result = await recall.run({"query": query}, context)
            best = min(best, time.process_time() - began)
        assert ("nothing" in result.text) == (kind in UNSAID), (kind, result.text[:200])
        costs[kind] = round(best * 1e3, 2)
    return costs


async def both(turns: int) -> dict[str, float]:
    """The costs in both stores."""
    clock = JumpingClock()
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore.open(Path(folder), clock=clock)
        try:
            durable = await measured(store, turns)
        finally:
            await store.aclose()
    memory: Store = VolatileStore(clock)  # type: ignore[assignment]  # mypy asks for exact types of attributes
    volatile = await measured(memory, turns)
    stores = {"home": durable, "memory": volatile}
    return {f"{name}, {kind}": cost for name, costs in stores.items() for kind, cost in costs.items()}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(both(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000))))
