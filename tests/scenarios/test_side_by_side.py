"""What calls touch decides whether they run side by side, not what their tools are called."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import pytest

from holdfast.protocol import events as e
from holdfast.protocol.ports import Store, Tool
from holdfast.protocol.tools import Effect
from holdfast.testing.clock import JumpingClock
from holdfast.testing.scenarios import Scenario, World, play
from holdfast.tools.function import tool
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage


def tools_of(world: World) -> Iterable[Tool]:
    """Tools that take a second, and note when they begin and end."""

    async def work(name: str) -> None:
        world.effects.append(f"+{name}")
        await asyncio.sleep(1)
        world.effects.append(f"-{name}")

    def pathed(name: str, effect: Effect) -> Tool:
        async def touch(where: Annotated[str, "path"]) -> None:
            """Take a while."""
            await work(where)

        return tool(effect=effect, name=name)(touch)

    @tool(effect="read")
    async def ponder(about: str) -> None:
        """Read, nobody knows what."""
        await work(about)

    @tool(effect="write")
    async def scribble(about: str) -> None:
        """Write, nobody knows where."""
        await work(about)

    return (pathed("look", "read"), pathed("put", "write"), pathed("fetch", "network"), ponder, scribble)


def look(path: str) -> dict[str, Any]:
    return call("look", where=path)


def put(path: str) -> dict[str, Any]:
    return call("put", where=path)


@pytest.mark.requirement("L1")
@pytest.mark.parametrize(
    ("some", "at_once"),
    [
        ((look("a"), look("a"), look(".")), 3),
        ((put("a"), put("b"), put("c")), 3),
        ((put("a"), look("b")), 2),
        ((call("ponder", about="x"), look("a")), 2),
        ((put("a"), put("a")), 1),
        ((put("a"), put("./sub/../a")), 1),
        ((put("a"), put("link")), 1),
        ((put("a"), look("link")), 1),
        ((look("sub"), put("sub/new/file")), 1),
        ((put("sub/new/file"), look(".")), 1),
        ((call("ponder", about="x"), put("a")), 1),
        ((call("scribble", about="x"), look("a")), 1),
        ((call("scribble", about="x"), call("scribble", about="y")), 1),
        ((call("fetch", where="a"), look("b")), 1),
    ],
)
def test_calls_that_touch_the_same_run_one_after_the_other_and_others_side_by_side(
    volatile: Stage, some: tuple[dict[str, Any], ...], at_once: int
) -> None:
    scenario = Scenario("side by side", [calls(*some), words("Done.")], tools_of)

    async def main(clock: JumpingClock, store: Store, workspace: Path) -> list[str]:
        (workspace / "sub").mkdir()
        (workspace / "a").touch()
        (workspace / "link").symlink_to("a")
        played = await play(scenario, clock, store, workspace)
        assert played.state.run is not None
        assert played.state.run.status == "done"
        queued = [r for r in played.records if isinstance(r.event, e.ToolCallQueued)]
        assert len(queued) <= len(some), "a call that waits is not judged again and again"
        return played.world.effects

    effects = volatile.run(main)
    running = [
        sum(1 if effect[0] == "+" else -1 for effect in effects[: at + 1]) for at in range(len(effects))
    ]
    assert len(effects) == 2 * len(some)
    assert max(running) == at_once
    if at_once == 1:
        names = [effect[1:] for effect in effects if effect[0] == "+"]
        assert names == [next(iter(each["arguments"].values())) for each in some], "in the order of the model"
