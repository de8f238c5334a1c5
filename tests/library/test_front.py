"""Sessions to read, decisions in code, and instructions that depend on the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Event, Limits, Result
from holdfast.errors import NoSuchSession, UsageError
from holdfast.protocol.events import SettingsStored, ToolCallFinished, ToolCallRefused
from holdfast.protocol.rows import Approval
from holdfast.protocol.settings import Prompt
from tests.library.test_agent import ADDING, add, deploy, script
from tests.library.test_secrets import stored

LOOKS = "sk-" + "proj-" + "pQ9wTxu4Fg7Lm2Zc8Rb5Hn3K"
SUPERVISED = {"autonomy": "supervised"}
DEPLOYING: list[dict[str, Any]] = [
    {"tool_calls": [{"name": "deploy", "arguments": {"version": "1"}}]},
    {"text": "Done."},
]
ASKING: list[dict[str, Any]] = [
    {"tool_calls": [{"name": "ask_user", "arguments": {"question": "Red or blue?"}}]},
    {"text": "Done."},
]


# --- sessions -------------------------------------------------------------------------------------


@pytest.mark.requirement("S1")
async def test_sessions_are_listed_and_their_events_read(tmp_path: Path) -> None:
    async with Agent(model=script(tmp_path, ADDING), tools=[add], home=tmp_path / "home") as agent:
        assert await agent.sessions() == []
        items = [item async for item in agent.stream("What is 17 + 25?", "cli:one")]
        await agent.run("Again.", "cli:two")
        rows = await agent.sessions()
        assert [(row.key, row.title) for row in rows] == [
            ("cli:two", "Again."),
            ("cli:one", "What is 17 + 25?"),
        ]
        assert rows[1].status == "done"
        assert rows[1].turns == 2
        assert rows[1].created_at <= rows[1].updated_at
        assert [row.key for row in await agent.sessions(status="done", before=rows[0].id)] == ["cli:one"]
        assert len(await agent.sessions(limit=1)) == 1
        one = agent.session(rows[1].id)
        events = [event async for event in one.events()]
        assert events == [item for item in items if isinstance(item, Event)]
        assert [event.seq async for event in agent.session("cli:one").events(after=3)] == [
            event.seq for event in events[3:]
        ]
        assert await agent.result(one.name) == items[-1]
        with pytest.raises(NoSuchSession):
            _ = [event async for event in agent.session("cli:none").events()]


async def test_events_of_a_long_session_are_read_page_by_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.library.following._PAGE", 3)
    async with Agent(model=script(tmp_path, ADDING), tools=[add]) as agent:
        await agent.run("What is 17 + 25?", "cli:one")
        numbers = [event.seq async for event in agent.session("cli:one").events()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) % 3


# --- approvals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_streaming", [True, False])
@pytest.mark.parametrize(
    ("decision", "text", "runs"),
    [
        (True, "1 is in service", True),
        (False, "", False),
        ("Not on a Friday.", "Not on a Friday.", False),
    ],
)
async def test_on_approval_decides_while_the_run_goes_on(
    tmp_path: Path, decision: bool | str, text: str, runs: bool, is_streaming: bool
) -> None:
    asked: list[Approval] = []

    async def decide(approval: Approval) -> bool | str:
        asked.append(approval)
        return decision

    agent = Agent(model=script(tmp_path, DEPLOYING), tools=[deploy], config=SUPERVISED, on_approval=decide)
    async with agent:
        if is_streaming:
            result = [item async for item in agent.stream("Go on.", "cli:it")][-1]
            assert isinstance(result, Result)
        else:
            result = await agent.run("Go on.", "cli:it")
        events = [event.body async for event in agent.session("cli:it").events()]
    assert result.status == "done"
    assert [(row.tool, row.arguments) for row in asked] == [("deploy", '{"version":"1"}')]
    (ended,) = [each for each in events if isinstance(each, ToolCallFinished | ToolCallRefused)]
    assert isinstance(ended, ToolCallFinished) is runs
    told = ended.result.text if isinstance(ended, ToolCallFinished) else ended.failure.message
    assert text in told


@pytest.mark.parametrize(("config", "asks"), [(None, True), ({"autonomy": "full"}, False)])
async def test_on_approval_is_asked_unless_the_configuration_says_that_no_call_needs_it(
    tmp_path: Path, config: dict[str, Any] | None, asks: bool
) -> None:
    asked: list[Approval] = []
    agent = Agent(
        model=script(tmp_path, DEPLOYING), tools=[deploy], config=config,
        on_approval=lambda approval: asked.append(approval) or True,
    )  # fmt: skip
    async with agent:
        assert (await agent.run("Go on.")).status == "done"
    assert bool(asked) is asks


async def test_on_approval_may_be_a_plain_function_and_answers_questions_with_text(tmp_path: Path) -> None:
    def decide(approval: Approval) -> str:
        return f"Blue, for {approval.question}"

    async with Agent(model=script(tmp_path, ASKING), tools=["ask_user"], on_approval=decide) as agent:
        assert (await agent.run("Go on.", "cli:it")).status == "done"
        events = [event.body async for event in agent.session("cli:it").events()]
    (ended,) = [each for each in events if isinstance(each, ToolCallFinished)]
    assert "Blue, for Red or blue?" in ended.result.text


@pytest.mark.parametrize(("lines", "given"), [(DEPLOYING, None), (ASKING, True)])
async def test_a_decision_that_is_none_raises_and_leaves_the_question_open(
    tmp_path: Path, lines: list[dict[str, Any]], given: Any
) -> None:
    agent = Agent(
        model=script(tmp_path, lines),
        tools=[deploy, "ask_user"],
        config=SUPERVISED,
        on_approval=lambda _: given,
    )
    async with agent:
        with pytest.raises(UsageError, match="on_approval returned"):
            await agent.run("Go on.", "cli:it")
        assert (await agent.result("cli:it")).status == "waiting"
        assert len(await agent.approvals("cli:it")) == 1


# --- instructions ---------------------------------------------------------------------------------


async def instructions_of(agent: Agent, session: str) -> list[str]:
    """The instructions that were recorded, in order."""
    return [
        group.instructions
        async for event in agent.session(session).events()
        if isinstance(event.body, SettingsStored)
        for group in event.body.groups.values()
        if isinstance(group, Prompt)
    ]


@pytest.mark.requirement("S14")
async def test_instructions_that_are_a_function_are_made_when_a_run_opens_and_recorded(
    tmp_path: Path,
) -> None:
    called: list[object] = []

    async def instruct(deps: dict[str, str]) -> str:
        called.append(deps)
        return f"You work for {deps['name']} number {len(called)}."

    agent = Agent(
        model=script(tmp_path, [*DEPLOYING, *DEPLOYING]),
        tools=[deploy],
        instructions=instruct,
        config=SUPERVISED,
        limits=Limits(turns=9),
    )
    ann = {"name": "Ann"}
    async with agent:
        assert (await agent.run("Go on.", "cli:it", deps=ann)).status == "waiting"
        (asked,) = await agent.approvals()
        await agent.approve(asked.id)
        assert (await agent.resume("cli:it", deps=ann)).status == "done"
        assert called == [ann]
        assert await instructions_of(agent, "cli:it") == ["You work for Ann number 1."]
        await agent.run("And again.", "cli:it", deps=ann)
        assert called == [ann, ann]
        assert (await instructions_of(agent, "cli:it"))[-1] == "You work for Ann number 2."


@pytest.mark.parametrize("deps", [None, "Ann"])
async def test_instructions_get_deps_of_their_annotation_or_nothing_is_sent(
    tmp_path: Path, deps: object
) -> None:
    def instruct(deps: dict[str, str]) -> str:
        return f"You work for {deps['name']}."

    async with Agent(model=script(tmp_path, ADDING), instructions=instruct) as agent:
        with pytest.raises(
            UsageError, match=r"function for the instructions needs deps of the class dict\[str, str\]"
        ):
            await agent.run("Go on.", deps=deps)
        assert await agent.sessions() == []


async def test_instructions_of_a_function_are_stored_masked(tmp_path: Path) -> None:
    agent = Agent(
        model=script(tmp_path, ADDING), tools=[add], home=tmp_path / "home",
        instructions=lambda deps: f"The key is {LOOKS}.",
    )  # fmt: skip
    async with agent:
        await agent.run("Go on.")
    assert LOOKS not in stored(tmp_path / "home")


@pytest.mark.parametrize("given", [3, ["text"]])
async def test_instructions_are_text_or_a_function_that_returns_text(tmp_path: Path, given: Any) -> None:
    with pytest.raises(UsageError, match="must be text, or a function of the deps"):
        Agent(model=script(tmp_path, ADDING), instructions=given)
    async with Agent(model=script(tmp_path, ADDING), instructions=lambda _: given) as agent:
        with pytest.raises(UsageError, match="it must return text"):
            await agent.run("Go on.")
        assert await agent.sessions() == []


def test_the_library_imports_pydantic_only_where_the_program_did(tmp_path: Path) -> None:
    model = script(tmp_path, ADDING)
    program = (
        "import sys\n"
        "from holdfast import Agent, tool\n"
        "@tool(effect='read')\n"
        "def add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n"
        f"print(Agent(model={model!r}, tools=[add]).run_sync('Go on.').text)\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'pydantic'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("It is 42.\n[]\n", "")
