"""The two systems in one process, a session of one after a session of the other: what the machine does meanwhile
meets both, so that their ratio says more than two cells that were measured one after the other.

`python -m benchmarks.paired PORT TURNS FOLDER TOOL` prints one JSON object: medians, and the quartiles of the ratio.
TOOL is what each turn calls (`benchmarks.cell.Tool`). The processes of commands count.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cell import Tool, Work, cpu_of_living_s, cpu_s, worker

TURNS = 3_000
"""The turns that each system plays, in sessions of the given length."""
COMMAND_TURNS = 600
"""The same where each turn runs a command, which takes ten times as long."""
LEAST_PAIRS = 8
WARM_TURNS = 60


def compared(pairs: Sequence[tuple[float, float]], unit: str) -> dict[str, float]:
    """The medians of (floor, Holdfast), in that unit, and the quartiles of their ratio."""
    floors, ours = zip(*pairs, strict=True)
    low, middle, high = statistics.quantiles([one / least for least, one in pairs], n=4)
    return {
        "pairs": len(pairs),
        f"floor_{unit}": statistics.median(floors),
        f"holdfast_{unit}": statistics.median(ours),
        "x_floor": middle,
        "lower_quartile": low,
        "upper_quartile": high,
    }


async def cost_us(work: Work, turns: int, name: str) -> float:
    """CPU time of a turn."""
    before = cpu_s() + cpu_of_living_s()
    assert await work(turns, name) == turns
    return (cpu_s() + cpu_of_living_s() - before) / turns * 1e6


async def measured(port: int, turns: int, folder: Path, tool: Tool) -> dict[str, float]:
    """All pairs."""
    homes = {name: folder / name for name in ("floor-grouped", "holdfast")}
    for home in homes.values():
        home.mkdir()
    async with (
        worker("floor-grouped", port, 0, homes["floor-grouped"], tool) as floor,
        worker("holdfast", port, 0, homes["holdfast"], tool) as holdfast,
    ):
        for work in (floor, holdfast):
            await work(WARM_TURNS, "warm")
            await work(turns, "as-long")
        pairs = [
            (await cost_us(floor, turns, f"s{number}"), await cost_us(holdfast, turns, f"s{number}"))
            for number in range(max((COMMAND_TURNS if tool == "shell" else TURNS) // turns, LEAST_PAIRS))
        ]
    return compared(pairs, "us_per_turn")


def main() -> None:
    """Run the measurement that the arguments name."""
    port, turns, folder, tool = sys.argv[1:]
    assert tool in ("echo", "shell"), tool
    print(
        json.dumps(
            asyncio.run(measured(int(port), int(turns), Path(folder), "shell" if tool == "shell" else "echo"))
        )
    )


if __name__ == "__main__":
    main()
