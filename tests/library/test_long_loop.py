"""Long loops through the library: hundreds of turns with a failing provider and a runtime that goes away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Event, Limits, Result, tool

LIMITS = Limits(turns=5_000, tokens=1_000_000_000, wall="10h")
RETRIED = {"error": {"status": 503, "retry_after": 0}}


def script(folder: Path, turns: int, every: int) -> str:
    """So many turns of one call each, a provider's error before every so many of them, then an answer."""
    lines: list[dict[str, Any]] = []
    for number in range(turns):
        if number % every == every - 1:
            lines.append(RETRIED)
        call = {"name": "put", "arguments": {"number": number}}
        lines.append({"tool_calls": [call], "usage": {"input_tokens": 100, "output_tokens": 10}})
    lines.append({"text": f"{turns} are down."})
    path = folder / "model.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return f"script:{path}"


async def work_through(folder: Path, turns: int, every: int, life: int) -> tuple[Result, list[int]]:
    """The run, in four runtimes: the first three are left after `life` results of tools each."""
    put_down: list[int] = []

    @tool(effect="write", on_interrupt="rerun")
    async def put(number: int) -> str:
        """Put a number down; the same one again changes nothing."""
        if number not in put_down[-1:]:
            put_down.append(number)
        return f"{number} is down"

    model = script(folder, turns, every)
    settings = {"model": model, "tools": [put], "home": folder / "home", "limits": LIMITS}
    async with Agent(**settings) as first:
        await leave(first, life, "Put the numbers down.")
    for _ in range(2):
        async with Agent(**settings) as another:
            await leave(another, life, "Go on.")
    async with Agent(**settings) as last:
        return await last.resume("cli:long"), put_down


async def leave(agent: Agent, life: int, text: str) -> None:
    """Begin, and go away after so many results."""
    stream = agent.stream(text, session="cli:long")
    seen = 0
    async for item in stream:
        seen += isinstance(item, Event) and item.type == "ToolCallFinished"
        if seen == life:
            break
    await stream.aclose()


@pytest.mark.requirement("C21", "S1")
@pytest.mark.parametrize(
    ("turns", "every", "life"), [(200, 50, 40), pytest.param(3_000, 300, 500, marks=pytest.mark.long)]
)
async def test_a_long_loop_with_failing_calls_and_departing_runtimes_loses_and_repeats_nothing(
    tmp_path: Path, turns: int, every: int, life: int
) -> None:
    result, put_down = await work_through(tmp_path, turns, every, life)
    assert (result.status, result.text) == ("done", f"{turns} are down.")
    assert result.turns == turns + 1
    assert result.model_calls >= turns + 1 + turns // every
    assert put_down == list(range(turns))
