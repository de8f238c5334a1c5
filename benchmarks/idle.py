"""What sessions cost in which nothing happens: each waits for a model that is slow, or rests, followed or not.

`python -m benchmarks.idle KIND SESSIONS FOLDER`, where KIND is driven, driven-followed or rest-followed; prints one
JSON object. CPU time of all threads, as a share of one core.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.cell import cpu_s

WATCHED_S = 20.0


@asynccontextmanager
async def idle(kind: str, sessions: int, folder: Path) -> AsyncIterator[None]:
    """So many sessions in which nothing happens any more."""
    from holdfast.app import open_app
    from holdfast.config.load import load_only
    from holdfast.config.paths import Home
    from holdfast.protocol.commands import Send, owner
    from holdfast.protocol.ports import Delta

    is_driven, is_followed = kind.startswith("driven"), kind.endswith("followed")
    script = folder / "script.jsonl"
    script.write_text(json.dumps({"text": "Done.", "delay_s": 3_600 if is_driven else 0}))
    config = load_only({"limits": {"wall": "10h", "idle": "10h"}})
    async with open_app(config, Home(folder, folder / "config.toml"), environ={}) as app:
        settings = app.settings(folder, model=f"script:{script}").settings
        names = [
            await app.controller.begin("", owner("bench"), Send("Go.", settings)) for _ in range(sessions)
        ]
        told: set[str] = set()
        tasks: list[asyncio.Task[object]] = []

        async def follow(name: str) -> None:
            async for item in app.controller.follow(name):
                if not isinstance(item, Delta) and type(item.event).__name__ == "ModelCallStarted":
                    told.add(name)

        if is_followed:
            tasks += [asyncio.create_task(follow(name)) for name in names]
        driving = [asyncio.create_task(app.controller.drive(name)) for name in names]
        if is_driven:
            tasks += driving
            while any([(await app.store.last_seq(name)) < 4 for name in names]):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        else:
            await asyncio.gather(*driving)
        while is_followed and len(told) < sessions:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def measured(kind: str, sessions: int, folder: Path) -> dict[str, float]:
    """The share of a core that they take."""
    async with idle(kind, sessions, folder):
        await asyncio.sleep(1.0)
        cpu, wall = cpu_s(), time.perf_counter()
        await asyncio.sleep(WATCHED_S)
        share = 100 * (cpu_s() - cpu) / (time.perf_counter() - wall)
    return {"percent_of_a_core": share}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))))
