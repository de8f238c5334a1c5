"""What each chunk of a streamed response costs: with somebody who watches the session, and with nobody.

`python -m benchmarks.streaming SYSTEM PORT FOLDER`, where SYSTEM is floor, holdfast or holdfast-heard; prints one
JSON object. CPU time, less that of as many responses that came whole, shared among the chunks.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path

import msgspec

from benchmarks.cell import cpu_s
from benchmarks.server import CHUNKS

ROUNDS, RESPONSES = 8, 10
MODEL = "bench-0-0"

Respond = Callable[[bool], Awaitable[int]]
"""One response, streamed or whole; returns the characters of its text."""


async def per_chunk(respond: Respond) -> dict[str, float]:
    """Streamed responses against whole ones, in turns; of each the round that was disturbed least."""
    cpu = {False: float("inf"), True: float("inf")}
    for _ in range(ROUNDS):
        for is_streaming in cpu:
            before = cpu_s()
            for _ in range(RESPONSES):
                assert (await respond(is_streaming) == CHUNKS * len("word ")) is is_streaming
            cpu[is_streaming] = min(cpu[is_streaming], 1000 * (cpu_s() - before) / RESPONSES)
    return {
        "cpu_us_per_chunk": 1000 * (cpu[True] - cpu[False]) / CHUNKS,
        "cpu_ms_streamed": cpu[True],
        "cpu_ms_whole": cpu[False],
    }


async def floor(port: int) -> dict[str, float]:
    """aiohttp, events split by hand, JSON read by msgspec."""
    import aiohttp

    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    async with aiohttp.ClientSession() as http:

        async def respond(is_streaming: bool) -> int:
            request = {
                "model": MODEL,
                "messages": [{"role": "user", "content": "go"}],
                "stream": is_streaming,
            }
            async with http.post(url, data=encode(request)) as response:
                if not is_streaming:
                    return len(decode(await response.read())["choices"][0]["message"]["content"])
                words: list[str] = []
                rest = b""
                async for piece in response.content.iter_any():
                    *events, rest = (rest + piece).split(b"\n\n")
                    for event in events:
                        if event != b"data: [DONE]":
                            words.append(decode(event[6:])["choices"][0]["delta"].get("content", ""))
                return len("".join(words))

        return await per_chunk(respond)


async def holdfast(port: int, folder: Path, *, is_heard: bool) -> dict[str, float]:
    """Each response is a run of a new session, with all that is recorded of it."""
    from holdfast.app import open_app
    from holdfast.config.load import load_only
    from holdfast.config.paths import Home
    from holdfast.core.evolve import fold
    from holdfast.protocol.commands import Send, owner
    from holdfast.protocol.events import Record, Responded
    from holdfast.protocol.messages import text_of
    from holdfast.protocol.settings import changed
    from holdfast.runtime.fold import readable

    config = load_only({"providers": {"openai": {"base_url": f"http://127.0.0.1:{port}/v1"}}})
    home, environ = Home(folder, folder / "config.toml"), {"OPENAI_API_KEY": "x"}
    async with open_app(config, home, environ=environ) as app:
        chosen = app.settings(folder, model=f"openai:{MODEL}")
        heard = 0

        async def listen(session: str) -> None:
            nonlocal heard
            async with aclosing(app.controller.follow(session)) as items:
                async for item in items:
                    heard += not isinstance(item, Record)

        async def respond(is_streaming: bool) -> int:
            session = await app.controller.open()
            listening = asyncio.create_task(listen(session)) if is_heard else None
            await asyncio.sleep(0)
            settings = changed(chosen.settings, is_streaming=is_streaming)
            await app.controller.submit(session, owner("bench"), Send("go", settings))
            await app.controller.drive(session)
            if listening is not None:
                listening.cancel()
                with suppress(asyncio.CancelledError):
                    await listening
            records = [readable(each) for each in await app.store.read(session)]
            assert fold(records).run is not None
            return sum(
                len(text_of(each.event.parts)) for each in records if isinstance(each.event, Responded)
            )

        result = await per_chunk(respond)
        assert bool(heard) is is_heard
        return result


def main() -> None:
    """Run the measurement that the arguments name."""
    system, port, folder = sys.argv[1:]
    if system == "floor":
        work = floor(int(port))
    else:
        work = holdfast(int(port), Path(folder), is_heard=system == "holdfast-heard")
    print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
