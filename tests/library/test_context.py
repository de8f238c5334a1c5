"""What a tool function is given by its context: the deps of the run, and what it may do beside returning."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from holdfast import Agent, Context, Delta, tool
from holdfast.errors import UsageError
from holdfast.protocol.events import MessageReceived, ToolCallFinished
from holdfast.protocol.ports import Tool
from holdfast.protocol.rows import EVERY
from tests.library.test_masked_calls import recorded, the
from tests.library.test_secrets import stored


class Db(dict[str, float]):
    """The prices."""

    mark = "deps-of-" + "this-run"


class Named(Protocol):
    name: str


@tool(effect="read")
async def price(ctx: Context[Db], item: str) -> float:
    """Look up a price."""
    return ctx.deps[item]


@tool(effect="read")
def price_in_thread(ctx: Context[Db], item: str) -> float:
    """Look up a price."""
    return ctx.deps[item]


@tool(effect="read")
def about(ctx: Context[None]) -> dict[str, Any]:
    """Tell what there is."""
    ctx.progress("half way")
    told = {name: str(getattr(ctx, name)) for name in ("session", "call_id", "key", "workspace", "cancelled")}
    return {**told, "deps": ctx.deps, "is_path": isinstance(ctx.workspace, Path)}


def agent_of(folder: Path, name: str, tools: Sequence[Tool], arguments: Any = None, **said: Any) -> Agent:
    """An agent whose model makes one call in each run."""
    call = {"tool_calls": [{"name": name, "arguments": arguments or {}}]}
    model = folder / "model.jsonl"
    model.write_text("\n".join(map(json.dumps, [call, {"text": "Done."}] * 3)))
    return Agent(model=f"script:{model}", tools=tools, home=folder / "home", workspace=folder, **said)


@pytest.mark.requirement("S14")
@pytest.mark.parametrize("function", [price, price_in_thread])
async def test_a_function_gets_the_deps_of_the_run_and_nothing_of_them_is_told(
    tmp_path: Path, function: Tool
) -> None:
    async with agent_of(tmp_path, function.spec.name, [function], {"item": "tea"}) as agent:
        db = Db(tea=2.5)
        assert (await agent.run("Go on.", "cli:it", deps=db)).status == "done"
        assert the(ToolCallFinished, await recorded(agent)).result.text == "2.5"
        assert list(function.spec.parameters["properties"]) == ["item"]
        async for _ in agent.stream("Again.", "cli:it", deps=Db(tea=3.5)):
            pass
        last = [each.event for each in await recorded(agent) if isinstance(each.event, ToolCallFinished)][-1]
        assert last.result.text == "3.5"
        assert (await agent._open()).deps == {}
    assert db.mark not in stored(tmp_path / "home")


@pytest.mark.requirement("S14")
@pytest.mark.parametrize(
    ("deps", "words"),
    [(None, "there are none"), ({"tea": 1.0}, "they are a dict"), ("db", "they are a str")],
)
async def test_missing_or_wrong_deps_are_refused_before_the_first_call(
    tmp_path: Path, deps: object, words: str
) -> None:
    async with agent_of(tmp_path, "price", [price]) as agent:
        for call in (agent.run("Go on.", deps=deps), agent.resume("cli:it", deps=deps)):
            with pytest.raises(UsageError, match=f"'price' needs deps of the class Db, but {words}"):
                await call
        with pytest.raises(UsageError, match=words):
            async for _ in agent.stream("Go on.", deps=deps):
                pass
        assert await (await agent._open()).store.sessions(EVERY, 9) == []


@pytest.mark.parametrize(
    ("annotation", "deps", "fits"),
    [
        (Context, None, True),
        (Context[Any], 1, True),
        (Context[None], None, True),
        (Context[None], 1, True),
        (Context[Db | None], None, True),
        (Context[Db | None], Db(), True),
        (Context[Db | None], {}, False),
        (Context[dict[str, float]], {}, True),
        (Context[dict[str, float]], [], False),
        (Context[Named], object(), True),
        (Context[Named], None, False),
    ],
)
async def test_deps_are_compared_with_what_the_annotation_names(
    tmp_path: Path, annotation: Any, deps: object, fits: bool
) -> None:
    def look(ctx: Any) -> str:
        """Look."""
        return "seen"

    look.__annotations__["ctx"] = annotation
    async with agent_of(tmp_path, "look", [tool(effect="read")(look)]) as agent:
        if fits:
            assert (await agent.run("Go on.", deps=deps)).status == "done"
        else:
            with pytest.raises(UsageError, match="needs deps"):
                await agent.run("Go on.", deps=deps)


@pytest.mark.requirement("S14")
async def test_a_message_joins_a_run_only_with_the_same_deps(tmp_path: Path) -> None:
    seen: list[object] = []
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def look(ctx: Context[Db]) -> None:
        """Look."""
        seen.append(ctx.deps)
        entered.set()
        await go_on.wait()

    async with agent_of(tmp_path, "look", [look]) as agent:
        one, equal = Db(tea=1.0), Db(tea=1.0)
        running = asyncio.create_task(agent.run("One.", "cli:it", deps=one))
        await entered.wait()
        (known,) = await agent.sessions()
        for session in ("cli:it", known.id):
            for joining in (
                agent.run("Two.", session, deps=equal),
                agent.resume(session, "Two.", deps=equal),
                anext(agent.stream("Two.", session, deps=equal)),
            ):
                with pytest.raises(UsageError, match="A run with other deps works in session"):
                    await asyncio.wait_for(joining, 10)
        joined = asyncio.create_task(agent.run("Three.", "cli:it", deps=one))
        go_on.set()
        await asyncio.gather(running, joined)
        sent = [each.event for each in await recorded(agent) if isinstance(each.event, MessageReceived)]
        assert len(sent) == 2
        assert all(each is one for each in seen)
        assert (await agent._open()).deps == {}
        assert (await agent.run("Four.", "cli:it", deps=equal)).status == "done"
        assert seen[-1] is equal


async def test_two_runs_that_begin_one_session_at_once_do_not_share_deps(tmp_path: Path) -> None:
    async with agent_of(tmp_path, "price", [price], {"item": "tea"}) as agent:
        runs = [agent.run("Go on.", "cli:it", deps=Db(tea=each)) for each in (1.0, 2.0)]
        results = await asyncio.gather(*runs, return_exceptions=True)
        assert sorted(type(each).__name__ for each in results) == ["Result", "UsageError"]


@pytest.mark.requirement("S14")
async def test_the_context_tells_where_the_call_belongs_and_shows_progress(tmp_path: Path) -> None:
    async with agent_of(tmp_path, "about", [about]) as agent:
        deltas = [each async for each in agent.stream("Go on.", "cli:it") if isinstance(each, Delta)]
        told = json.loads(the(ToolCallFinished, await recorded(agent)).result.text)
        session = (await agent.result("cli:it")).session_id
    assert "".join(each.text for each in deltas if each.kind == "tool_output") == "half way"
    assert told == {
        "session": session,
        "call_id": "t1.c1",
        "key": f"{session}:t1.c1",
        "workspace": str(tmp_path.resolve()),
        "cancelled": "False",
        "deps": None,
        "is_path": True,
    }


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_sees_that_it_was_cancelled(tmp_path: Path, is_async: bool) -> None:
    started, seen, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()
    before: list[bool] = []

    @tool(effect="read")
    async def work(ctx: Context[None]) -> None:
        """Work."""
        before.append(ctx.cancelled)
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            if ctx.cancelled:
                seen.set()

    @tool(effect="read", name="work")
    def work_in_thread(ctx: Context[None]) -> None:
        """Work."""
        before.append(ctx.cancelled)
        loop.call_soon_threadsafe(started.set)
        turn = threading.Event()
        while not ctx.cancelled:
            turn.wait(0.001)
        loop.call_soon_threadsafe(seen.set)

    async with agent_of(tmp_path, "work", [work if is_async else work_in_thread]) as agent:
        running = asyncio.create_task(agent.run("Go on."))
        await started.wait()
        running.cancel()
        async with asyncio.timeout(20):
            await seen.wait()
        await asyncio.wait({running})
    assert before == [False]


def test_what_cannot_be_handed_over_is_refused_at_once() -> None:
    def twice(one: Context[Db], other: Context[Db]) -> None:
        """Twice."""

    with pytest.raises(TypeError, match="both a Context"):
        tool(twice)
    with pytest.raises(TypeError, match="cannot hand over deps"):
        tool(isolation="process")(price_in_thread.function)


async def test_a_context_as_a_result_is_no_json(tmp_path: Path) -> None:
    @tool(effect="read")
    def leak(ctx: Context[Db]) -> object:
        """Leak."""
        return ctx

    async with agent_of(tmp_path, "leak", [leak]) as agent:
        await agent.run("Go on.", "cli:it", deps=Db(tea=1.0))
        result = the(ToolCallFinished, await recorded(agent)).result
    assert result.status == "error"
    assert "tea" not in result.text
