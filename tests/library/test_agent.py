"""The library: agents with a scripted model, on the real loop, in memory and in a home."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Agent, Delta, Event, HoldfastError, Limits, Result, Runtime, tool
from holdfast.config.load import UNSAFE
from holdfast.errors import ConfigError, NoSuchSession, StorageError, UsageError
from holdfast.library import runtime as library_runtime
from holdfast.protocol.commands import owner
from holdfast.protocol.events import MessageReceived, Record, ToolCallStarted
from holdfast.protocol.messages import Attachment
from holdfast.protocol.ports import Tool
from holdfast.runtime import runner
from holdfast.storage.seals import sealed
from holdfast.testing.scenarios import records_of


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="exec")
def deploy(version: str) -> str:
    """Put a version into service."""
    return f"{version} is in service"


ADDING: list[dict[str, Any]] = [
    {"text": "I add.", "tool_calls": [{"name": "add", "arguments": {"a": 17, "b": 25}}]},
    {"text": "It is 42.", "when": "^42$"},
]


def script(folder: Path, lines: list[dict[str, Any]], name: str = "model.jsonl") -> str:
    """A model that says these lines."""
    path = folder / name
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return f"script:{path}"


def hanging(started: asyncio.Event, ended: asyncio.Event | None = None) -> Tool:
    """A tool that tells when it begins and when it is cancelled, and never comes back."""

    @tool(effect="read")
    async def hang() -> None:
        """Never come back."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            if ended is not None:
                ended.set()

    return hang


@pytest.mark.requirement("S1", "B1")
async def test_an_agent_uses_a_function_and_tells_what_its_run_came_to(tmp_path: Path) -> None:
    agent = Agent(model=script(tmp_path, ADDING), tools=[add], instructions="Be brief.", home=None)
    result = await agent.run("What is 17 + 25?", session="cli:demo")
    await agent.aclose()
    assert isinstance(result, Result)
    assert (result.status, result.reason, result.text) == ("done", "answer", "It is 42.")
    assert (result.turns, result.model_calls, result.tool_calls) == (2, 2, 1)
    assert result.usage.input_tokens > 0
    assert result.cost_usd == "0.00"
    assert len(result.session_id) == 26
    assert len(result.trace_id) == 32
    assert add.function is not None
    assert await add(1, 2) == 3


@pytest.mark.requirement("S1", "L9")
async def test_closing_an_agent_ends_the_run_that_it_is_in(tmp_path: Path) -> None:
    started = asyncio.Event()
    hang = hanging(started)
    model = script(tmp_path, [{"tool_calls": [{"name": "hang", "arguments": {}}]}, {"text": "Done."}])
    agent = Agent(model=model, tools=[hang], home=tmp_path / "home")
    running = asyncio.create_task(agent.run("go", session="cli:demo"))
    await started.wait()
    await agent.aclose()
    assert (await running).status == "interrupted"
    again = Agent(model=model, tools=[hang], home=tmp_path / "home")
    assert (await again.result("cli:demo")).status == "interrupted"
    await again.aclose()


@pytest.mark.requirement("S1", "L7")
async def test_a_database_that_fails_while_an_agent_closes_hides_nothing_and_keeps_nothing_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started, ended = asyncio.Event(), asyncio.Event()
    model = script(tmp_path, [{"tool_calls": [{"name": "hang", "arguments": {}}]}])
    running: list[asyncio.Task[Result]] = []

    async def work() -> None:
        async with Agent(model=model, tools=[hanging(started, ended)], home=tmp_path / "home") as agent:
            running.append(asyncio.create_task(agent.run("go", session="cli:demo")))
            await started.wait()
            with closing(sqlite3.connect(tmp_path / "home" / "holdfast.db")) as database:
                database.execute("DROP TABLE inbox")
            raise KeyError("what really happened")

    with pytest.raises(KeyError, match="what really happened"):
        await work()
    assert ended.is_set(), "nothing runs on when the agent is closed"
    with pytest.raises(StorageError):
        await running[0]
    assert "What still ran could not be cleared up" in caplog.text
    assert list((tmp_path / "home" / "run").iterdir()) == []


@pytest.mark.requirement("S1", "L7")
async def test_a_session_that_cannot_be_stopped_keeps_no_other_from_being_stopped(tmp_path: Path) -> None:
    model = script(tmp_path, [{"tool_calls": [{"name": "hang", "arguments": {}}]}])
    running: list[asyncio.Task[Result]] = []
    async with Agent(model=model, tools=[hanging(asyncio.Event())], home=tmp_path / "home") as agent:
        for name in ("cli:one", "cli:other"):
            running.append(asyncio.create_task(agent.run("go", session=name)))
            await _has_started(agent, name)
        refuse = "WHEN NEW.session = 1 BEGIN SELECT RAISE(FAIL, 'no more'); END"
        with closing(sqlite3.connect(tmp_path / "home" / "holdfast.db")) as database:
            database.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON inbox {refuse}")
    with pytest.raises(StorageError):
        await running[0]
    assert (await running[1]).status == "interrupted"


async def _has_started(agent: Agent, name: str) -> None:
    """Wait until a call runs in the session."""
    app = await agent._open()
    while not (found := await app.store.find(name)):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    async for item in app.controller.follow(found[0]):
        if isinstance(item, Record) and isinstance(item.event, ToolCallStarted):
            return


@pytest.mark.requirement("S1", "H1")
@pytest.mark.parametrize("set_back_ms", [0, 3_600_000], ids=["", "the-clock-was-set-back"])
async def test_a_task_that_an_earlier_process_left_unread_is_given_once(
    tmp_path: Path, set_back_ms: int
) -> None:
    model = script(tmp_path, [{"text": "Done.", "repeat": True}])
    async with Agent(model=model, home=tmp_path / "home") as agent:
        app = await agent._open()
        words = await agent._words(app, "", "go", agent._output)
        # And it is killed before they are read.
        session = await app.controller.begin("cli:demo", owner("agent", "library"), words)
        (left,) = await app.store.inbox(session)
    posted_ms = left.posted_ms + set_back_ms
    body = sealed(left.body, "command", session, 1, left.command_id, posted_ms)
    with closing(sqlite3.connect(tmp_path / "home" / "holdfast.db")) as database, database:
        database.execute("UPDATE inbox SET posted_ms = ?, body = ?", (posted_ms, body))
    async with Agent(model=model, home=tmp_path / "home") as agent:
        await agent.run("go", session="cli:demo")
        await asyncio.gather(*(agent.run("again", session="cli:demo") for _ in range(2)))
        app = await agent._open()
        (row,) = await app.store.sessions()
        records = await records_of(app.store, row.session)
    said = [record.event.text for record in records if isinstance(record.event, MessageReceived)]
    assert said == ["go", "again", "again"]


@pytest.mark.requirement("S1", "H1")
async def test_the_same_words_with_another_file_are_another_task(tmp_path: Path) -> None:
    model = script(tmp_path, [{"text": "Done.", "repeat": True}])
    async with Agent(model=model, home=tmp_path / "home") as agent:
        app = await agent._open()
        words, me = await agent._words(app, "", "go", agent._output), owner("agent", "library")
        files = [await app.store.blobs.put(text) for text in (b"one", b"two")]
        first, other = (
            replace(words, attachments=(Attachment("file", "a", "text/plain", 3, file),)) for file in files
        )
        session = await app.controller.begin("cli:demo", me, first)
        (left,) = await app.store.inbox(session)
    async with Agent(model=model, home=tmp_path / "home") as agent:
        app = await agent._open()
        assert await app.controller.give(session, me, other) != left.command_id
        assert await app.controller.give(session, me, first) == left.command_id


@pytest.mark.requirement("S1", "L9")
async def test_closing_an_agent_does_not_wait_for_the_reader_of_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [{"text": "Slow words.", "chunks": 4, "delay_s": 600}]
    agent = Agent(model=script(tmp_path, lines), home=tmp_path / "home")
    abandoned = agent.stream("go", session="cli:demo")
    assert (await anext(abandoned)).type == "SessionOpened"
    monkeypatch.setattr(library_runtime, "_STOP_S", 600.0)
    async with asyncio.timeout(60):
        await agent.aclose()
    told = [item.type async for item in abandoned if isinstance(item, Event)]
    assert told[-1] == "RunStopped"


@pytest.mark.requirement("S1", "L9")
async def test_a_stream_that_is_read_while_its_agent_closes_tells_all_to_the_end(tmp_path: Path) -> None:
    started = asyncio.Event()
    hang = hanging(started)
    model = script(tmp_path, [{"tool_calls": [{"name": "hang", "arguments": {}}]}])
    agent = Agent(model=model, tools=[hang], home=tmp_path / "home")

    async def read() -> list[Event]:
        return [item async for item in agent.stream("go", session="cli:demo") if isinstance(item, Event)]

    reading = asyncio.create_task(read())
    await started.wait()
    await agent.aclose()
    told = await reading
    assert [event.seq for event in told] == list(range(1, len(told) + 1))
    assert told[-1].type == "RunStopped"


@pytest.mark.requirement("S15", "S1")
async def test_a_stream_yields_every_record_in_order_and_the_words_as_they_arrive(tmp_path: Path) -> None:
    lines = [ADDING[0], {"text": "It is forty-two.", "chunks": 4, "delay_s": 0.02}]
    async with Agent(model=script(tmp_path, lines), tools=[add]) as agent:
        items = [item async for item in agent.stream("What is 17 + 25?", session="cli:demo")]
    events = [item for item in items if isinstance(item, Event)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events][:2] == ["SessionOpened", "Attached"]
    assert events[-1].type == "RunStopped"
    assert events[-1].at.utcoffset() is not None
    assert "".join(item.text for item in items if isinstance(item, Delta)) == "I add.It is forty-two."


@pytest.mark.requirement("S15")
async def test_what_arrives_is_neither_masked_nor_told_while_nobody_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    class Counted(runner.StreamRedactor):
        def feed(self, text: str) -> str:
            made.append("masked")
            return super().feed(text)

    def counted(*fields: Any) -> Delta:
        made.append("told")
        return Delta(*fields)

    monkeypatch.setattr(runner, "StreamRedactor", Counted)
    monkeypatch.setattr(runner, "Delta", counted)
    lines = [{"text": "word " * 50, "chunks": 50, "repeat": True}]
    async with Agent(model=script(tmp_path, lines)) as agent:
        await agent.run("talk", session="cli:alone")
        assert made == []
        told = [item async for item in agent.stream("talk", session="cli:heard") if isinstance(item, Delta)]
        assert len(told) == made.count("told")
        assert made.count("masked") == 50
        made.clear()
        await agent.run("talk", session="cli:alone")
        await agent.run("talk", session="cli:heard")
        assert made == [], "who listened has left"


@pytest.mark.requirement("S15")
async def test_a_stream_that_is_left_leaves_a_session_that_resumes(tmp_path: Path) -> None:
    lines = [{"text": "Slow words.", "chunks": 4, "delay_s": 30}, {"text": "Done."}]
    async with Agent(model=script(tmp_path, lines)) as agent:
        stream = agent.stream("go", session="cli:left")
        async for item in stream:
            if isinstance(item, Event) and item.type == "ModelCallStarted":
                break
        await stream.aclose()
        (tmp_path / "model.jsonl").write_text(json.dumps({"text": "Done."}))
        assert (await agent.result("cli:left")).status == "interrupted"


@pytest.mark.requirement("S1")
async def test_an_agent_is_offered_its_own_tools_and_no_others(tmp_path: Path) -> None:
    lines = [
        {"tool_calls": [{"name": "shell", "arguments": {"command": "id"}}]},
        {"text": "No shell.", "when": "There is no tool|not allowed"},
    ]
    async with Agent(model=script(tmp_path, lines), tools=[add]) as agent:
        assert (await agent.run("id?")).text == "No shell."
    async with Agent(model=script(tmp_path, lines)) as agent:
        assert (await agent.run("id?")).text == "No shell."


@pytest.mark.requirement("S1")
async def test_built_in_tools_are_chosen_by_name(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "note.txt").write_text("tea at five")
    lines = [
        {"tool_calls": [{"name": "read_file", "arguments": {"path": "note.txt"}}]},
        {"text": "Five.", "when": "tea at five"},
    ]
    async with Agent(model=script(tmp_path, lines), tools=["read_*"], workspace=tmp_path / "work") as agent:
        assert (await agent.run("When is tea?")).text == "Five."
    with pytest.raises(UsageError, match=r"<lambda> is not a tool") as told:
        Agent(tools=[lambda: None])
    assert "@tool" in told.value.hint
    with pytest.raises(UsageError, match="no built-in tool 'fly'"):
        Agent(model="script:x", tools=["fly"])
    with pytest.raises(UsageError, match=r"'raed_file'\. Did you mean read_file\?"):
        Agent(model="script:x", tools=["raed_file"])


@pytest.mark.requirement("S1")
async def test_a_tool_that_was_passed_in_runs_unasked_and_waits_when_the_configuration_says_so(
    tmp_path: Path,
) -> None:
    lines = [
        {"tool_calls": [{"name": "deploy", "arguments": {"version": "1.2"}}]},
        {"text": "Deployed.", "when": "in service"},
    ]
    model = script(tmp_path, lines)
    async with Agent(model=model, tools=[deploy]) as agent:
        assert (await agent.run("deploy")).text == "Deployed."
    async with Agent(model=model, tools=[deploy], config={"autonomy": "supervised"}) as agent:
        waiting = await agent.run("deploy", session="cli:careful")
        assert (waiting.status, waiting.reason, waiting.tool_calls) == ("waiting", "approval", 0)
        (asked,) = await agent.approvals("cli:careful")
        await agent.approve(asked.id, "go on")
        with pytest.raises(UsageError, match="already decided: approve, by library:agent"):
            await agent.deny(asked.id)
        assert (await agent.resume("cli:careful")).text == "Deployed."


@pytest.mark.requirement("S1")
async def test_a_session_goes_on_where_it_was_and_tells_its_result_again(tmp_path: Path) -> None:
    lines = [{"text": "Hello."}, {"text": "Again.", "when": "^more$"}]
    async with Agent(model=script(tmp_path, lines), home=tmp_path / "home") as agent:
        first = await agent.run("hi", session="cli:demo")
    async with Agent(model=script(tmp_path, lines), home=tmp_path / "home") as agent:
        assert await agent.resume("cli:demo") == first
        second = await agent.resume("cli:demo", "more")
        assert (second.text, second.session_id) == ("Again.", first.session_id)
        with pytest.raises(NoSuchSession):
            await agent.resume("cli:other")
        with pytest.raises(UsageError, match="not a valid name for a session"):
            await agent.run("hi", session="nonsense")


@pytest.mark.requirement("C2", "L9")
async def test_a_task_that_cannot_begin_leaves_no_session_behind(tmp_path: Path) -> None:
    async with Agent(home=tmp_path / "home", config={}) as agent:
        with pytest.raises(UsageError, match="No model was given"):
            await agent.run("hi", session="cli:demo")
        with pytest.raises(NoSuchSession):
            await agent.result("cli:demo")


@pytest.mark.requirement("L9")
@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("openai:gpt-5.5", "There is no API key for openai"),
        ("nobody:m", "There is no provider 'nobody'"),
        ("script:none.jsonl", r"The script .*none\.jsonl"),
        ("script:{folder}/wrong.jsonl", "line 1 is not JSON"),
    ],
)
async def test_a_model_that_cannot_be_called_is_refused_before_anything_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, words: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "wrong.jsonl").write_text("{")
    runtime = Runtime(home=tmp_path / "home")
    able = Agent(model=script(tmp_path, [{"text": "x"}]), runtime=runtime)
    unable = Agent(model=model.format(folder=tmp_path), runtime=runtime)
    done = await able.run("hi", "cli:it")
    before = [each async for each in able.session("cli:it").events()]
    for call in (
        unable.run("hi"),
        unable.run("hi", "cli:it"),
        anext(unable.stream("hi")),
        unable.resume("cli:it", "more"),
    ):
        with pytest.raises(UsageError, match=words):
            await call
    assert [each.id for each in await able.sessions()] == [done.session_id]
    assert [each async for each in able.session("cli:it").events()] == before
    await runtime.aclose()


@pytest.mark.requirement("L9")
async def test_what_is_no_text_is_no_task_and_no_name(tmp_path: Path) -> None:
    async with Agent(model=script(tmp_path, [{"text": "x"}])) as agent:
        for wrong in (None, 5, b"x"):
            with pytest.raises(UsageError, match="must be text"):
                await agent.run(wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="must be text"):
            await agent.run("hi", session=5)  # type: ignore[arg-type]
        await agent.run("hi", "cli:it")
        for nothing in ("", " \n"):
            for call in (agent.run(nothing), anext(agent.stream(nothing)), agent.resume("cli:it", nothing)):
                with pytest.raises(UsageError, match="The task is empty"):
                    await call
        assert len(await agent.sessions()) == 1


@pytest.mark.requirement("C2", "C8")
async def test_words_that_come_at_once_for_a_new_name_meet_in_one_session(tmp_path: Path) -> None:
    lines = [{"text": "One."}, {"text": "Two."}, {"text": "Three."}]
    async with Agent(model=script(tmp_path, lines), home=tmp_path / "home") as agent:
        results = await asyncio.gather(*(agent.run(f"word {n}", session="cli:demo") for n in range(3)))
        assert len({result.session_id for result in results}) == 1
        items = [item async for item in agent.stream("last", session="cli:demo")]
    events = [item for item in items if isinstance(item, Event)]
    assert all(event.type != "SessionOpened" for event in events)
    with sqlite3.connect(tmp_path / "home" / "holdfast.db") as database:
        types = [row[0] for row in database.execute("SELECT type FROM records")]
    database.close()
    assert (types.count("SessionOpened"), types.count("MessageReceived")) == (1, 4)


@pytest.mark.requirement("S1")
async def test_after_a_limit_a_resume_opens_another_run_with_the_limits_of_the_agent(tmp_path: Path) -> None:
    again = {"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 1}}]}
    lines = [again, {"text": "Not done."}, again, {"text": "Done."}]
    model, home = script(tmp_path, lines), tmp_path / "home"
    async with Agent(model=model, tools=[add], home=home, limits=Limits(turns=1)) as agent:
        first = await agent.run("count", session="cli:demo")
        assert (first.status, first.reason, first.text) == ("limit", "turns", "Not done.")
    async with Agent(model=model, tools=[add], home=home, limits=Limits(turns=5, wall="1h")) as agent:
        assert (await agent.resume("cli:demo")).text == "Done."


@pytest.mark.requirement("S1")
def test_limits_take_what_a_configuration_takes_and_refuse_the_rest_all_at_once() -> None:
    Limits(turns=50, cost_usd="0.50", wall="2h", idle=90)
    with pytest.raises(ConfigError) as wrong:
        Limits(turns="3", cost="x", wall=-1)
    assert wrong.value.problems == [
        "in code: limits.turns = '3': must be a whole number from 1 to 10,000",
        "in code: limits.cost: there is no such key; did you mean limits.cost_usd?",
        'in code: limits.wall = -1: must be a duration from 1s to 30d, like "2h", "90s" or "1h30m"',
    ]
    with pytest.raises(ConfigError, match=r"limits = .*: must be Limits, like Limits\(turns=50\)"):
        Agent(limits={"turns": 3})
    with pytest.raises(ConfigError, match="did you mean"):
        Agent(config={"limits": {"turn": 3}})


@pytest.mark.requirement("S1", "L9")
def test_what_is_given_in_code_is_refused_with_the_sentences_of_the_configuration(tmp_path: Path) -> None:
    limits = {"turns": 0, "cost_usd": "a lot", "wall": "soon", "turn": 3}
    with pytest.raises(ConfigError) as in_code:
        Limits(**limits)
    with pytest.raises(ConfigError) as in_a_dict:
        Agent(config={"limits": limits})
    assert [problem.removeprefix("in code: ") for problem in in_code.value.problems] == [
        problem.removeprefix("config: ") for problem in in_a_dict.value.problems
    ]
    with pytest.raises(ConfigError, match="in code: model = 'gpt': must be PROVIDER:MODEL"):
        Agent(model="gpt")


@pytest.mark.requirement("S1", "C18")
async def test_an_agent_is_made_from_a_file_and_reads_no_other(tmp_path: Path, monkeypatch: Any) -> None:
    model = script(tmp_path, [{"text": "Hello."}])
    (tmp_path / "holdfast.toml").write_text('model = "script:nothing"\n[limits]\nturns = 1\n')
    (tmp_path / "mine.toml").write_text(f'model = "{model}"\n[limits]\nturns = 3\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_MODEL", "script:nothing")
    async with Agent.from_config(tmp_path / "mine.toml") as agent:
        assert (await agent.run("hi")).text == "Hello."
    async with Agent() as nobody:
        with pytest.raises(UsageError, match="No model"):
            await nobody.run("hi")


@pytest.mark.requirement("S1")
async def test_a_set_cost_limit_refuses_a_model_of_unknown_price(tmp_path: Path) -> None:
    agent = Agent(
        model="openai:nobody-knows-it", limits=Limits(cost_usd="0.50"), config={},
    )  # fmt: skip
    with pytest.raises(HoldfastError, match="price of openai:nobody-knows-it is not known"):
        await agent.run("hi")
    await agent.aclose()


@pytest.mark.requirement("S1")
async def test_many_agents_share_one_runtime_and_keep_their_own_tools_and_limits(tmp_path: Path) -> None:
    model = script(tmp_path, ADDING)
    denied = [
        {"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 1}}]},
        {"text": "I may not.", "when": "not allowed|no tool"},
    ]
    async with Runtime(home=tmp_path / "home") as shared:
        adder = Agent(model=model, tools=[add], runtime=shared)
        deployer = Agent(model=script(tmp_path, denied, "b.jsonl"), tools=[deploy], runtime=shared)
        first, second = await asyncio.gather(adder.run("17 + 25?", "cli:a"), deployer.run("1 + 1?", "cli:b"))
        assert (first.text, second.text) == ("It is 42.", "I may not.")
        await adder.aclose()
        assert (await deployer.result("cli:a")).text == "It is 42."
        with pytest.raises(UsageError, match="belong to the shared runtime"):
            Agent(runtime=shared, home=tmp_path)


@pytest.mark.requirement("S1")
async def test_a_closed_agent_says_so_and_does_not_open_again(tmp_path: Path) -> None:
    model, home = script(tmp_path, [{"text": "Hello.", "repeat": True}]), tmp_path / "home"
    agent = Agent(model=model, home=home)
    result = await agent.run("hi", session="cli:demo")
    await agent.aclose()
    await agent.aclose()
    never_opened = Agent(model=model)
    await never_opened.aclose()
    async with Runtime(home=home) as shared:
        guest = Agent(model=model, runtime=shared)
        await guest.aclose()
        for closed in (agent, never_opened, guest):
            stream = closed.stream("hi")
            for asked in (
                closed.run("hi"), anext(aiter(stream)), closed.resume("cli:demo"), closed.result("cli:demo"),
                closed.approvals(), closed.approve("x"), closed.__aenter__(),
            ):  # fmt: skip
                with pytest.raises(UsageError, match="agent is closed") as told:
                    await asked
                assert "Create another Agent" in told.value.hint
    late = Agent(model=model, runtime=shared)
    with pytest.raises(UsageError, match="runtime is closed"):
        await late.run("hi")
    async with Agent(model=model, home=home) as another:
        assert await another.result("cli:demo") == result


@pytest.mark.requirement("S1")
async def test_the_same_tool_twice_counts_once_and_two_of_one_name_are_refused_at_once(
    tmp_path: Path,
) -> None:
    @tool(effect="read", name="add")
    def other(a: int) -> int:
        """Something else."""
        return a

    @tool(effect="read", name="grep")
    def built_in(a: int) -> int:
        """Something else."""
        return a

    async with Agent(model=script(tmp_path, ADDING), tools=[add, add]) as agent:
        assert (await agent.run("What is 17 + 25?")).text == "It is 42."
    for make in (Agent, Runtime):
        with pytest.raises(UsageError, match="there are two tools with the name 'add'"):
            make(tools=[add, deploy, other])
        with pytest.raises(
            UsageError, match="there are two tools with the name 'grep': one of them is built in"
        ):
            make(tools=[built_in])


@pytest.mark.requirement("S1")
async def test_two_tools_of_one_name_on_a_shared_runtime_are_refused(tmp_path: Path) -> None:
    @tool(effect="read", name="add")
    def other(a: int) -> int:
        """Something else."""
        return a

    async with Runtime(tools=[add]) as shared:
        agent = Agent(model=script(tmp_path, ADDING), tools=[other], runtime=shared)
        with pytest.raises(UsageError, match="there are two tools with the name 'add'"):
            await agent.run("hi")


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.long)])
async def test_hundreds_of_sessions_run_at_once_in_memory(tmp_path: Path, count: int) -> None:
    async with Agent(model=script(tmp_path, ADDING), tools=[add]) as agent:
        results = await asyncio.gather(*(agent.run("17 + 25?") for _ in range(count)))
    assert {result.text for result in results} == {"It is 42."}
    assert len({result.session_id for result in results}) == count


_CHILD = """
import asyncio, os, sys
from holdfast import Agent, tool

@tool(effect="read")
async def add(a: int, b: int) -> int:
    "Add two numbers."
    print("adding", flush=True)
    await asyncio.sleep(60)
    return a + b

async def main():
    async with Agent(model=sys.argv[1], tools=[add], home=sys.argv[2]) as agent:
        await agent.run("What is 17 + 25?", session="cli:demo")

asyncio.run(main())
"""


@pytest.mark.requirement("S1", "H1", "L2-05")
async def test_a_session_of_a_killed_process_is_resumed_by_another_one(tmp_path: Path) -> None:
    model, home = script(tmp_path, ADDING), tmp_path / "home"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILD, model, str(home), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"adding\n"
    child.kill()
    await child.wait()
    async with Agent(model=model, tools=[add], home=home) as agent:
        result = await agent.resume("cli:demo")
    assert (result.status, result.text) == ("done", "It is 42.")
    assert result.tool_calls == 2


@pytest.mark.requirement("L2")
async def test_each_run_without_a_sandbox_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = {"sandbox": {"mode": "unsafe"}}
    model = script(tmp_path, [{"text": "One."}, {"text": "Two."}])
    async with Agent(model=model, tools=["shell"], home=None, workspace=tmp_path, config=config) as agent:
        for count in (1, 2):
            await agent.run("Go.")
            assert caplog.text.count(UNSAFE) == count
