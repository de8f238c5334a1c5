"""A process of its own that drives one session of a home: `python -m tests.scenarios.worker HOME SESSION LOG`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.policy.protected import Own
from holdfast.protocol.ports import Provider
from holdfast.providers.script import script_from_lines
from holdfast.redact import make_redactor
from holdfast.runtime.controller import SessionController
from holdfast.runtime.ports import Ports
from holdfast.storage.sqlite import SqliteStore
from holdfast.tools.builtin import make_tools
from holdfast.tools.context import Context
from holdfast.tools.function import tool

LINES = [
    {"tool_calls": [{"name": "work", "arguments": {"name": "first"}}]},
    {"tool_calls": [{"name": "work", "arguments": {"name": "second"}}]},
    {"text": "Done."},
]
GO_ON = "go-on"
"""The work goes on when a file of this name lies beside the log."""


def ports_of(home: Path, log: Path) -> Ports:
    """A runtime over the home, whose tool tells the log what it does, and by which process."""

    @tool(effect="write", on_interrupt="rerun")
    async def work(name: str, context: Context) -> str:
        """Work until told to go on."""
        tell(log, f"begin {name}")
        try:
            while not (log.parent / GO_ON).exists():  # noqa: ASYNC110 - another process tells
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            tell(log, f"cancelled {name}")
            raise
        tell(log, f"end {name}")
        return f"{name} is done"

    script = script_from_lines(LINES, "worker")

    async def resolve(name: str) -> Provider:
        return script

    tools = make_tools([work], secret_in=lambda _: "", own=Own())
    return Ports(
        SqliteStore.open(home), SystemClock(), resolve, tools, make_redactor(), run_folder=home / "run"
    )


def tell(log: Path, what: str) -> None:
    """A line of the log, written at once."""
    with log.open("a") as file:
        file.write(f"{os.getpid()} {what}\n")


async def drive(home: Path, session: str, log: Path) -> str:
    """Drive or follow the session until it rests; returns its status."""
    ports = ports_of(home, log)
    try:
        async with SessionController(ports) as controller:
            state = await controller.drive(session)
            return state.run.status if state.run is not None else ""
    finally:
        await ports.tools.aclose()
        await ports.store.aclose()


if __name__ == "__main__":
    print(asyncio.run(drive(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))))
