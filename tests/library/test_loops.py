"""Agents in programs with and without an event loop, in one loop after another, and in two at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Delta, Event, Result, Runtime, tool
from holdfast.errors import UsageError
from holdfast.testing.model_server import ModelServer, Reply
from tests.library.test_agent import ADDING, add, script

TALK: list[dict[str, Any]] = [{"text": f"Answer {number}."} for number in range(1, 5)]


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("has_home", [True, False])
def test_run_sync_goes_on_in_one_session_also_without_a_home(tmp_path: Path, has_home: bool) -> None:
    agent = Agent(model=script(tmp_path, TALK), home=tmp_path / "home" if has_home else None)
    one, other = agent.run_sync("One.", "cli:it"), agent.run_sync("Two.", "cli:it")
    assert (one.text, other.text) == ("Answer 1.", "Answer 2.")
    assert one.session_id == other.session_id
    asyncio.run(agent.aclose())
    with pytest.raises(UsageError, match="This agent is closed"):
        agent.run_sync("Three.", "cli:it")


def test_stream_sync_yields_what_stream_yields_and_the_result_at_the_end(tmp_path: Path) -> None:
    agent = Agent(model=script(tmp_path, ADDING), tools=[add])
    items = list(agent.stream_sync("What is 17 + 25?"))
    events = [item for item in items if isinstance(item, Event)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert "".join(item.text for item in items if isinstance(item, Delta) and item.kind == "text") == (
        "I add.It is 42."
    )
    assert [type(item) for item in items].count(Result) == 1
    assert isinstance(items[-1], Result)
    assert items[-1].text == "It is 42."


def test_a_stream_that_is_left_early_stops_its_work_and_can_be_resumed(tmp_path: Path) -> None:
    agent = Agent(model=script(tmp_path, ADDING), tools=[add], home=tmp_path / "home")
    stream = agent.stream_sync("What is 17 + 25?", "cli:it")
    assert isinstance(next(stream), Event)
    stream.close()
    assert asyncio.run(agent.resume("cli:it")).text == "It is 42."


@pytest.mark.parametrize(
    "leaving",
    [
        (
            "stream = agent.stream_sync('Go on.', 'cli:it')\n"
            "while getattr(next(stream), 'type', '') != 'ToolCallStarted': pass\n"
            "async def drop():\n"
            "    global stream\n"
            "    del stream\n"
            "    gc.collect()\n"
            "asyncio.run(drop())\n"
            "print(asyncio.run(agent.resume('cli:it')).text)\n"
        ),
        (
            "loop = asyncio.new_event_loop()\n"
            "left = loop.create_task(agent.run('Go on.', 'cli:it'))\n"
            "loop.run_until_complete(started.wait())\n"
            "left.cancel()\n"
            "loop.run_until_complete(asyncio.sleep(0))\n"
            "loop.close()\n"
            "print('Done.')\n"
        ),
    ],
    ids=["a stream dropped in a running loop", "a loop closed in the middle"],
)
def test_work_that_is_left_behind_stops_no_later_run(tmp_path: Path, leaving: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, gc, sys\n"
        "from holdfast import Agent, tool\n"
        "started = asyncio.Event()\n"
        "@tool(effect='read')\n"
        "async def hang():\n"
        "    'Come back only the second time.'\n"
        "    if not started.is_set():\n"
        "        started.set()\n"
        "        await asyncio.Event().wait()\n"
        f"agent = Agent(model=sys.argv[1], tools=[hang])\n{leaving}"
        "print(agent.run_sync('Go on.', 'cli:other').text)\n"
    )
    lines = [{"tool_calls": [{"name": "hang"}]}, {"text": "Done."}]
    command = [sys.executable, program, script(tmp_path, lines)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    assert out == "Done.\nDone.\n"


async def test_the_sync_forms_say_what_to_write_in_a_running_loop(tmp_path: Path) -> None:
    agent = Agent(model=script(tmp_path, TALK))
    with pytest.raises(UsageError, match=r"Write there: await agent\.run"):
        agent.run_sync("One.")
    with pytest.raises(UsageError, match=r"Write there: async for item in agent\.stream"):
        agent.stream_sync("One.")


@pytest.mark.requirement("S1")
def test_an_agent_whose_loop_was_closed_works_in_the_next_one(tmp_path: Path) -> None:
    agent = Agent(model=script(tmp_path, TALK))
    texts = [asyncio.run(agent.run("Go on.", "cli:it")).text for _ in range(3)]
    assert texts == ["Answer 1.", "Answer 2.", "Answer 3."]


def test_a_loop_that_ends_in_the_middle_of_a_run_leaves_it_to_the_next_one(tmp_path: Path) -> None:
    calls: list[asyncio.Event] = []

    @tool(effect="read")
    async def hang() -> str:
        """Come back only the second time."""
        if len(calls) == 1:
            calls[0].set()
            await asyncio.Event().wait()
        return "back"

    async def abandon() -> None:
        calls.append(asyncio.Event())
        asyncio.create_task(agent.run("Go on.", "cli:it"))  # noqa: RUF006 - the loop cancels it at its end
        await calls[0].wait()

    lines = [{"tool_calls": [{"name": "hang"}]}, {"text": "Done."}]
    agent = Agent(model=script(tmp_path, lines), tools=[hang])
    asyncio.run(abandon())
    calls.append(asyncio.Event())
    assert asyncio.run(agent.resume("cli:it")).text == "Done."


def test_loops_that_are_closed_without_being_ended_leave_no_more_with_each(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, gc, os, sys\n"
        "from holdfast import Agent\n"
        "agent = Agent(model=sys.argv[1], home=sys.argv[2])\n"
        "for _ in range(4):\n"
        "    loop = asyncio.new_event_loop()\n"
        "    text = loop.run_until_complete(agent.run('Go on.', 'cli:it')).text\n"
        "    loop.close()\n"
        "    gc.collect()\n"
        "    print(text, len(os.listdir('/proc/self/fd')))\n"
    )
    command = [sys.executable, program, script(tmp_path, TALK), tmp_path / "home"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    assert [line.split()[:2] for line in out[:-1]] == [["Answer", f"{number}."] for number in range(1, 5)]
    assert len({line.split()[2] for line in out[1:-1]}) == 1, out


async def test_a_second_live_loop_is_told_what_to_do(tmp_path: Path) -> None:
    problems: list[UsageError] = []

    def elsewhere(work: Any) -> None:
        try:
            asyncio.run(work())
        except UsageError as error:
            problems.append(error)

    async with Runtime() as shared:
        agent = Agent(model=script(tmp_path, TALK), runtime=shared)
        await agent.run("One.", "cli:it")
        for work in (lambda: agent.run("Two.", "cli:it"), shared.aclose):
            thread = threading.Thread(target=elsewhere, args=(work,))
            thread.start()
            await asyncio.to_thread(thread.join)
        assert len(problems) == 2
        for problem in problems:
            assert "works in another event loop, which is not closed. Create one Agent for each" in str(
                problem
            )
            assert problem.__notes__ == [problem.hint]
        assert (await agent.run("Two.", "cli:it")).text == "Answer 2."


@pytest.mark.requirement("C8")
def test_a_program_that_never_closes_its_agent_leaves_nothing_open(tmp_path: Path) -> None:
    """All warnings are errors there, also those of connections to a server that are kept for the next call."""
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, sys\n"
        "from holdfast import Agent\n"
        "url, home = sys.argv[1:]\n"
        "config = {'providers': {'openai': {'base_url': url}}}\n"
        "known = {'input_usd_per_mtok': 0, 'output_usd_per_mtok': 0, 'context_tokens': 9000}\n"
        "config |= {'catalog': {'openai:m': known}}\n"
        "agent = Agent(model='openai:m', home=home, config=config)\n"
        "for _ in range(2):\n"
        "    print(asyncio.run(agent.run('Hi.', 'cli:it')).text)\n"
        "print(agent.run_sync('Hi.', 'cli:it').text)\n"
    )

    async def play() -> tuple[int | None, str, str]:
        async with ModelServer([Reply(text="Hello."), Reply(text="Hello."), Reply(text="Hello.")]) as server:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-W", "error", program, server.openai_url, tmp_path / "home"),
                env={"OPENAI_API_KEY": "none-" + "needed", "PATH": "/usr/bin:/bin"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            out, err = await process.communicate()
            return process.returncode, out.decode(), err.decode()

    code, out, err = asyncio.run(play())
    assert (code, out, err) == (0, "Hello.\n" * 3, "")
    assert list((tmp_path / "home").rglob("*.sock")) == []
