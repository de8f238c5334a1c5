"""What sessions cost in which nothing happens: each waits for a model that is slow, or rests, followed or not.

`python -m benchmarks.idle KIND SESSIONS FOLDER`; prints one JSON object. CPU time of all threads, as a share of one
core. KIND is one of

    driven              all are driven
    driven-followed     the same, and each is followed
    elsewhere-followed  another process drives them, and this one follows each and waits for its end
    rest-followed       all are at rest, and each is followed
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cell import cpu_s

if TYPE_CHECKING:
    from holdfast.app import App

WATCHED_S = 60.0
EVERYTHING = sys.maxsize


@asynccontextmanager
async def idle(kind: str, sessions: int, folder: Path) -> AsyncIterator[None]:
    """Open so many sessions, which are all idle."""
    from holdfast.app import open_app
    from holdfast.config.load import load_only
    from holdfast.config.paths import Home

    config = load_only({"limits": {"wall": "10h", "idle": "10h"}})
    tasks: list[asyncio.Task[object]] = []
    told: set[str] = set()
    async with AsyncExitStack() as stack:
        if kind.startswith("elsewhere"):
            stack.enter_context(another_process(sessions, folder))
        home = Home(folder, folder / "config.toml")
        app = await stack.enter_async_context(open_app(config, home, environ={}))
        if kind.startswith("elsewhere"):
            names = [row.session for row in await app.store.sessions(limit=EVERYTHING)]
        else:
            names = await begun(app, sessions, folder, is_slow=kind.startswith("driven"))
        if kind.endswith("followed"):
            tasks += [asyncio.create_task(follow(app, name, told)) for name in names]
        driving = [asyncio.create_task(app.controller.drive(name)) for name in names]
        if kind.startswith("rest"):
            await asyncio.gather(*driving)
        else:
            tasks += driving
            while any([(await app.store.last_seq(name)) < 4 for name in names]):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        while kind.endswith("followed") and len(told) < sessions:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def begun(app: App, sessions: int, folder: Path, *, is_slow: bool) -> list[str]:
    """New sessions with a task, for a model that takes an hour if it is slow."""
    from holdfast.protocol.commands import Send, owner

    script = folder / "script.jsonl"
    script.write_text(json.dumps({"text": "Done.", "delay_s": 3_600 if is_slow else 0}))
    settings = app.settings(folder, model=f"script:{script}").settings
    task = Send("Go.", settings)
    return [await app.controller.begin("", owner("bench"), task) for _ in range(sessions)]


async def follow(app: App, session: str, told: set[str]) -> None:
    """Follow a session for ever; `told` then holds it, once its request was told."""
    from holdfast.protocol.ports import Delta

    async for item in app.controller.follow(session):
        if not isinstance(item, Delta) and type(item.event).__name__ == "ModelCallStarted":
            told.add(session)


@contextmanager
def another_process(sessions: int, folder: Path) -> Iterator[None]:
    """A process that drives them all."""
    command = [sys.executable, "-m", "benchmarks.idle", "driven", str(sessions), str(folder), "hold"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            process.kill()


async def held(kind: str, sessions: int, folder: Path) -> None:
    """Have them until this process is killed."""
    async with idle(kind, sessions, folder):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def measured(kind: str, sessions: int, folder: Path) -> dict[str, float]:
    """The share of a core that they take."""
    async with idle(kind, sessions, folder):
        await asyncio.sleep(1.0)
        cpu, wall = cpu_s(), time.perf_counter()
        await asyncio.sleep(WATCHED_S)
        share = 100 * (cpu_s() - cpu) / (time.perf_counter() - wall)
    return {"percent_of_a_core": share}


if __name__ == "__main__":
    asked = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if len(sys.argv) > 4:
        asyncio.run(held(*asked))
    else:
        print(json.dumps(asyncio.run(measured(*asked))))
