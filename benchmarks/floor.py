"""The floor: the same session as a loop written by hand, with nothing but what it cannot do without.

aiohttp, a request body that only grows, and one SQLite transaction a step (two a tool turn), synchronous=FULL, in
the loop's own thread or grouped by a writer thread.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
import subprocess
import threading
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

RESULT_CHARS = 500
TOOL = {
    "type": "function",
    "function": {
        "name": "echo",
        "description": "Echo.",
        "parameters": {
            "type": "object",
            "properties": {"n": {"type": "integer"}, "text": {"type": "string"}},
            "required": ["n", "text"],
        },
    },
}


SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a shell command.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}
"""What the floor offers for sessions with commands."""


def result_of(n: int) -> str:
    """What the tool of the measurements answers: 500 characters that differ from turn to turn."""
    return f"{n:08d} ".ljust(RESULT_CHARS, "x")


async def ran(command: str) -> str:
    """What a command prints: a plain subprocess of asyncio."""
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return output.decode()


class Direct:
    """One transaction a step, in the caller's thread."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS steps (session TEXT, seq INT, body BLOB, PRIMARY KEY (session, seq))"
        )

    async def write(self, session: str, seq: int, body: bytes) -> None:
        self._db.execute("INSERT INTO steps VALUES (?, ?, ?)", (session, seq, body))

    def close(self) -> None:
        self._db.close()


class Grouped:
    """A writer thread that takes all that waits into one transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    async def write(self, session: str, seq: int, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._queue.put((session, seq, body, loop, done))
        await done

    def _work(self) -> None:
        direct = Direct(self._path)
        while (first := self._queue.get()) is not None:
            group = [first]
            while not self._queue.empty() and group[-1] is not None:
                group.append(self._queue.get())
            stops = group[-1] is None
            steps = [step for step in group if step is not None]
            direct._db.execute("BEGIN")
            direct._db.executemany("INSERT INTO steps VALUES (?, ?, ?)", [step[:3] for step in steps])
            direct._db.execute("COMMIT")
            steps[0][3].call_soon_threadsafe(lambda steps=steps: [step[4].set_result(None) for step in steps])
            if stops:
                break
        direct.close()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()


async def session(http: aiohttp.ClientSession, url: str, model: str, store: Any, name: str) -> int:
    """One run; returns its tool turns."""
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
    tools = [SHELL if model.endswith("-shell") else TOOL]
    body = bytearray(
        json.dumps({"model": model, "tools": tools, "messages": []}, separators=(",", ":"))[:-2].encode()
    )
    body += encode({"role": "user", "content": "go"})
    headers = {"content-type": "application/json", "authorization": "Bearer x"}
    turns = 0
    while True:
        async with http.post(url, data=bytes(body) + b"]}", headers=headers) as response:
            message = decode(await response.read())["choices"][0]["message"]
        element = encode(message)
        await store.write(name, 2 * turns, element)
        body += b"," + element
        calls = message.get("tool_calls")
        if not calls:
            return turns
        for call in calls:
            arguments = decode(call["function"]["arguments"])
            is_command = call["function"]["name"] == "shell"
            content = await ran(arguments["command"]) if is_command else result_of(arguments["n"])
            element = encode({"role": "tool", "tool_call_id": call["id"], "content": content})
            body += b"," + element
        turns += 1
        await store.write(name, 2 * turns - 1, element)
