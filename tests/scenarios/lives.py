"""Whole runs with a scripted model, the real tools and a real workspace, for tests of the guard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.clock import SYSTEM_CLOCK
from holdfast.policy.protected import Own
from holdfast.protocol import events as e
from holdfast.protocol.commands import Send, owner
from holdfast.protocol.limits import Limits
from holdfast.protocol.ports import Provider, Tool
from holdfast.protocol.settings import changed, settings_with
from holdfast.providers.script import script_from_lines
from holdfast.redact import make_redactor
from holdfast.runtime.controller import SessionController
from holdfast.runtime.ports import Ports
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.scenarios import MODEL, records_of
from holdfast.tools.builtin import make_tools

Line = Mapping[str, Any]
MOST_TURNS = 60


class Lived(NamedTuple):
    """How a run ended."""

    status: str
    reason: str
    turns: int
    events: tuple[e.Event, ...]

    @property
    def notes(self) -> list[str]:
        """What the guard told the model."""
        noted = [event.about for event in self.events if isinstance(event, e.NoteAdded)]
        return [about for about in noted if about in ("repeat", "stall")]

    @property
    def results(self) -> list[str]:
        """What the model read of its calls, in order."""
        return [
            event.result.text if isinstance(event, e.ToolCallFinished) else event.failure.message
            for event in self.events
            if isinstance(event, e.ToolCallFinished | e.ToolCallRefused)
        ]


def asks(*calls: tuple[str, dict[str, Any]]) -> Line:
    """A response with calls, as (tool, arguments)."""
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}


def reads(path: str, **page: int) -> Line:
    return asks(("read_file", {"path": path, **page}))


def writes(path: str, content: str) -> Line:
    return asks(("write_file", {"path": path, "content": content}))


def runs(command: str) -> Line:
    return asks(("shell", {"command": command}))


def lived(
    workspace: Path,
    lines: Sequence[Line],
    *,
    tools: Iterable[Tool] = (),
    **settings: Any,
) -> Lived:
    """Run the lines, and then an answer, with at most 60 turns. Return how it ended."""
    return asyncio.run(live(workspace, lines, tools=tools, **settings))


async def live(
    workspace: Path,
    lines: Sequence[Line],
    *,
    tools: Iterable[Tool] = (),
    clock: Any = SYSTEM_CLOCK,
    **settings: Any,
) -> Lived:
    """The same, in an event loop."""
    script = script_from_lines([*map(_plain, lines), {"text": "Done.", "repeat": True}], "lives")

    async def resolve(name: str) -> Provider:
        return script

    store = VolatileStore(clock)
    made = make_tools(tools, secret_in=lambda _: "", own=Own())
    chosen = settings_with(MODEL, str(workspace), limits=Limits(turns=MOST_TURNS), autonomy="full")
    async with SessionController(Ports(store, clock, resolve, made, make_redactor())) as controller:
        state = await controller.run(
            "test:life", owner("tester"), Send("Do it.", changed(chosen, **settings))
        )
        records = await records_of(store, state.session)
    await made.aclose()
    await store.aclose()
    assert state.run is not None
    return Lived(
        state.run.status, state.run.reason, state.run.totals.turns, tuple(record.event for record in records)
    )


def _plain(line: Line) -> Line:
    return json.loads(json.dumps(line))  # type: ignore[no-any-return]
