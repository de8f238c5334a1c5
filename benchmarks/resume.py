"""Going on with a long session in a fresh process: what it costs to open the home, load the session, take one more
message, and see one tool turn and the answer through.

`python -m benchmarks.resume SYSTEM PORT TURNS FOLDER WORKSPACE`, on a folder that `benchmarks.cell` has left, or a
copy of it. WORKSPACE is the original: in another one, the system prompt would be another too. Prints one JSON object.
CPU time without imports: the same has been done once before, on a short session in another folder.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.cell import COMPACTED, cell, cpu_s, settings
from benchmarks.floor import TOOL, Grouped, result_of

SESSION = "s0-0"
WARM_TURNS = 10


async def resumed_by_holdfast(
    port: int, turns: int, folder: Path, workspace: Path, *, is_compacted: bool = False
) -> int:
    """The engine as it is; returns how many requests were sent."""
    from holdfast.app import open_app
    from holdfast.config.load import load_only
    from holdfast.config.paths import Home
    from holdfast.protocol.commands import Send, owner
    from holdfast.protocol.settings import changed
    from holdfast.tools.function import tool

    @tool(effect="read")
    async def echo(n: int, text: str) -> str:
        """Echo."""
        return result_of(n)

    config = load_only(settings(port, is_compacted=is_compacted))
    home, environ = Home(folder, folder / "config.toml"), {"OPENAI_API_KEY": "x"}
    async with open_app(config, home, extra_tools=[echo], environ=environ) as app:
        chosen = app.settings(workspace, model=f"openai:bench-{turns}-0", allow_tools=("echo",))
        session = await app.controller.open(f"bench:{SESSION}")
        asked = changed(chosen.settings, is_streaming=False)
        await app.controller.submit(session, owner("bench"), Send("one more", asked))
        state = await app.controller.drive(session)
    assert state.run is not None
    assert state.run.status == "done", state.run
    return state.run.totals.model_calls


async def resumed_by_hand(port: int, turns: int, folder: Path, _: Path) -> int:
    """The floor: read the rows, build the body, make the same calls and write them down."""
    import aiohttp

    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    headers = {"content-type": "application/json", "authorization": "Bearer x"}
    path = folder / "floor.db"
    store = Grouped(path)
    database = sqlite3.connect(path)
    rows = database.execute("SELECT body FROM steps WHERE session = ? ORDER BY seq", (SESSION,)).fetchall()
    database.close()
    head = {"model": f"bench-{turns}-0", "tools": [TOOL], "messages": []}
    elements = [encode({"role": "user", "content": "go"}), *(row[0] for row in rows)]
    elements.append(encode({"role": "user", "content": "one more"}))
    body = bytearray(encode(head)[:-2] + b",".join(elements))
    seq, requests = len(rows) + 1, 0
    await store.write(SESSION, seq, elements[-1])
    async with aiohttp.ClientSession() as http:
        while True:
            async with http.post(url, data=bytes(body) + b"]}", headers=headers) as response:
                message = decode(await response.read())["choices"][0]["message"]
            requests, seq = requests + 1, seq + 1
            await store.write(SESSION, seq, encode(message))
            calls = message.get("tool_calls")
            if not calls:
                break
            body += b"," + encode(message)
            for call in calls:
                content = result_of(decode(call["function"]["arguments"])["n"])
                element = encode({"role": "tool", "tool_call_id": call["id"], "content": content})
                body += b"," + element
            seq += 1
            await store.write(SESSION, seq, element)
    store.close()
    return requests


async def measured(system: str, port: int, turns: int, folder: Path, workspace: Path) -> dict[str, float]:
    """Once on a short session of its own, then on the long one."""
    compacted = partial(resumed_by_holdfast, is_compacted=True)
    ways: dict[str, Callable[[int, int, Path, Path], Awaitable[int]]] = {
        "holdfast": resumed_by_holdfast,
        COMPACTED: compacted,
    }
    resumed = ways.get(system, resumed_by_hand)
    with tempfile.TemporaryDirectory() as short:
        await cell(system, port, WARM_TURNS, 1, 0, Path(short))
        assert await resumed(port, WARM_TURNS, Path(short), Path(short)) == 2
    before = cpu_s()
    assert await resumed(port, turns, folder, workspace) == 2
    return {"cpu_ms": 1000 * (cpu_s() - before)}


def main() -> None:
    """Run the measurement that the arguments name."""
    system, port, turns, *folders = sys.argv[1:]
    print(json.dumps(asyncio.run(measured(system, int(port), int(turns), *map(Path, folders)))))


if __name__ == "__main__":
    main()
