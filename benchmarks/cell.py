"""One measurement in a process of its own: prints what it cost as one JSON object.

`python -m benchmarks.cell SYSTEM PORT TURNS SESSIONS LATENCY_MS FOLDER`, where SYSTEM is holdfast, holdfast-compacted
(in a window of 64,000 tokens), floor-direct or floor-grouped.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from benchmarks.floor import Direct, Grouped, result_of, session

WINDOW_TOKENS = 100_000_000
"""Wide enough for every session here: a request that was cut would be compared with a whole one."""
NARROW_TOKENS = 64_000
"""The window of `holdfast-compacted`, whose view is compacted again and again."""
COMPACTED = "holdfast-compacted"

LEAST_TURNS = 1_000
"""A cell of fewer is measured again and again, one round after another: one short session alone says little."""

Work = Callable[[int, str], Awaitable[int]]

Tool = Literal["echo", "shell"]
"""What each turn of a session calls: a function that answers at once, or a command."""


def model_of(turns: int, latency_ms: int, tool: Tool) -> str:
    """The name of the model that makes such a session (`benchmarks.server`)."""
    return f"bench-{turns}-{latency_ms}{'-shell' if tool == 'shell' else ''}"


def cpu_s() -> float:
    """User and system time of all threads, and of the processes that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def cpu_of_living_s(pid: int | str = "self") -> float:
    """User and system time of the processes that this one has started and that still run, with all of theirs that
    have ended. The kernel tells it in ticks of 10 ms."""
    listed = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    total_s = 0.0
    for child in [each for some in listed for each in some]:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        total_s += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + cpu_of_living_s(child)
    return total_s


def disk_bytes(folder: Path) -> int:
    """All files below the folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def rss_kib() -> int:
    """The memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


async def measure(work: Work, turns: int, sessions: int, folder: Path) -> dict[str, float]:
    """Warm up, so that what a process does only once is done (compiling patterns, say, or encoding a request's
    beginning). Then run the sessions. The figures are of one round."""
    await work(40, "warm")
    rounds = max(LEAST_TURNS // (turns * sessions), 1)
    disk, rss, cpu, wall = disk_bytes(folder), rss_kib(), cpu_s(), time.perf_counter()
    for number in range(rounds):
        done = await asyncio.gather(*(work(turns, f"s{number}-{n}") for n in range(sessions)))
        assert done == [turns] * sessions, done
    cpu, wall = cpu_s() - cpu, (time.perf_counter() - wall) / rounds
    total = turns * sessions * rounds
    return {
        "cpu_ms_per_turn": 1000 * cpu / total,
        "wall_s": wall,
        "sessions_per_s": sessions / wall,
        "disk_bytes_per_turn": (disk_bytes(folder) - disk) / total,
        "rss_kib_per_session": (rss_kib() - rss) / (sessions * rounds),
    }


@asynccontextmanager
async def floor(
    kind: str, port: int, latency_ms: int, folder: Path, tool: Tool = "echo"
) -> AsyncIterator[Work]:
    """The loop written by hand."""
    import aiohttp

    store = Grouped(folder / "floor.db") if kind == "floor-grouped" else Direct(folder / "floor.db")
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:

        async def work(turns: int, name: str) -> int:
            return await session(http, url, model_of(turns, latency_ms, tool), store, name)

        yield work
    store.close()


def settings(port: int, *, is_compacted: bool) -> dict[str, Any]:
    """The configuration of Holdfast: in a wide window nothing is summed up, and no message is left out."""
    wide = {"compaction": {"max_per_hour": 0}, "context": {"max_messages": 100_000}}
    return {
        "providers": {"openai": {"base_url": f"http://127.0.0.1:{port}/v1"}},
        "limits": {"turns": 10_000, "tokens": 10**9, "wall": "10h"},
        "policy": {"actions_per_hour": 1_000_000},  # counted, and never reached
        "catalog": {"openai:bench-*": {"context_tokens": NARROW_TOKENS if is_compacted else WINDOW_TOKENS}},
        **({"compaction": {"max_per_hour": 60}} if is_compacted else wide),
    }


@asynccontextmanager
async def holdfast(
    port: int, latency_ms: int, folder: Path, tool: Tool = "echo", *, is_compacted: bool = False
) -> AsyncIterator[Work]:
    """The whole engine, durable, with its gates, over the same HTTP."""
    from holdfast.app import open_app
    from holdfast.config.load import load_only
    from holdfast.config.paths import Home
    from holdfast.protocol.commands import Send, owner
    from holdfast.protocol.settings import changed
    from holdfast.tools.function import tool as made_tool

    @made_tool(effect="read")
    async def echo(n: int, text: str) -> str:
        """Echo."""
        return result_of(n)

    config = load_only(settings(port, is_compacted=is_compacted))
    home = Home(folder, folder / "config.toml")
    environ = {"OPENAI_API_KEY": "x"}
    async with open_app(config, home, extra_tools=[echo], environ=environ) as app:
        controller = app.controller

        async def work(turns: int, name: str) -> int:
            model = f"openai:{model_of(turns, latency_ms, tool)}"
            chosen = app.settings(folder, model=model, allow_tools=(tool,))
            settings = changed(chosen.settings, is_streaming=False)
            state = await controller.run(f"bench:{name}", owner("bench"), Send("go", settings))
            assert state.run is not None
            assert state.run.status == "done", state.run
            return state.run.totals.turns - 1

        yield work


def worker(
    system: str, port: int, latency_ms: int, folder: Path, tool: Tool = "echo"
) -> AbstractAsyncContextManager[Work]:
    """What sees a session through, by the name of the system."""
    if system in ("holdfast", COMPACTED):
        return holdfast(port, latency_ms, folder, tool, is_compacted=system == COMPACTED)
    return floor(system, port, latency_ms, folder, tool)


async def cell(
    system: str, port: int, turns: int, sessions: int, latency_ms: int, folder: Path
) -> dict[str, float]:
    """One measurement."""
    async with worker(system, port, latency_ms, folder) as work:
        return await measure(work, turns, sessions, folder)


def main() -> None:
    """Run the cell that the arguments name."""
    system, port, turns, sessions, latency_ms, folder = sys.argv[1:]
    numbers = (int(port), int(turns), int(sessions), int(latency_ms))
    print(json.dumps(asyncio.run(cell(system, *numbers, Path(folder)))))


if __name__ == "__main__":
    main()
