"""A person's yes is good for what they saw, and for nothing else: where anything differs they are asked again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.policy.protected import Own
from holdfast.protocol.codec import decode
from holdfast.protocol.commands import Continue, Resolve, Send, owner
from holdfast.protocol.events import ToolCallFinished
from holdfast.protocol.ports import Provider, Store
from holdfast.protocol.rows import Approval
from holdfast.protocol.settings import Settings, changed
from holdfast.providers.script import script_from_lines
from holdfast.redact import make_redactor
from holdfast.runtime.controller import SessionController
from holdfast.runtime.ports import Ports
from holdfast.runtime.runner import CHANGED
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.scenarios import Scenario, World, settings_of
from holdfast.tools.builtin import make_tools
from holdfast.tools.function import FunctionTool, tool
from holdfast.tools.pool import PLACES

ANN = owner("ann")
ANSWER = {"text": "Done.", "repeat": True}


def asking_for(name: str, **arguments: str) -> Scenario:
    """One call that a person has to allow."""
    call = {"tool_calls": [{"name": name, "arguments": arguments}]}
    return Scenario(f"asks for {name}", [call, ANSWER], _tools, settings={"autonomy": "supervised"})


def _tools(world: World) -> list[FunctionTool[[], None]]:
    @tool(effect="network")
    def send() -> None:
        """Send it."""
        (world.workspace / "ran.txt").write_text("sent\n")

    return [send]


def _tools_of_somebody_else(world: World) -> list[FunctionTool[[], None]]:
    (send,) = _tools(world)
    send.spec = msgspec.structs.replace(send.spec, source="foreign")
    return [send]


@dataclass
class Scene:
    """What an approval is about, and what may become of that after the yes."""

    scenario: Scenario
    workspace: Path
    settings: Settings

    @property
    def other(self) -> Path:
        return self.workspace.parent / "other"

    def make(self) -> None:
        """Two workspaces with a program of the same name in them."""
        self.other.mkdir()
        for folder in (self.workspace, self.other):
            (folder / "greet").symlink_to(self.program("first"))

    def program(self, name: str) -> Path:
        path = self.workspace.parent / f"{name}.sh"
        path.write_text(f"#!/bin/sh\necho {name} >> ran.txt\n")
        path.chmod(0o755)
        return path

    def ran(self) -> list[str]:
        """What ran, in either workspace."""
        paths = [folder / "ran.txt" for folder in (self.workspace, self.other)]
        return [line for path in paths if path.exists() for line in path.read_text().split()]


def nothing(scene: Scene) -> None:
    """All is as it was."""


def another_program(scene: Scene) -> None:
    """The name of the program now leads to another file."""
    (scene.workspace / "greet").unlink()
    (scene.workspace / "greet").symlink_to(scene.program("second"))


def another_content(scene: Scene) -> None:
    """The file of the program has another content."""
    (scene.workspace.parent / "first.sh").write_text("#!/bin/sh\necho other >> ran.txt\n")


def another_workspace(scene: Scene) -> None:
    """The work goes on in another folder."""
    scene.settings = changed(scene.settings, workspace=str(scene.other))


def another_tool(scene: Scene) -> None:
    """The tool of that name is somebody else's."""
    scene.scenario = replace(scene.scenario, make=_tools_of_somebody_else)


SHELL, SEND = asking_for("shell", command="./greet"), asking_for("send")
SCRIPT = asking_for("shell", command="sh -e ./greet")


@pytest.mark.requirement("H5", "C12")
@pytest.mark.parametrize(
    ("scenario", "change", "is_asked_again"),
    [
        (SHELL, nothing, False),
        (SHELL, another_program, True),
        (SHELL, another_content, True),
        (SHELL, another_workspace, True),
        (SCRIPT, nothing, False),
        (SCRIPT, another_content, True),
        (SEND, nothing, False),
        (SEND, another_workspace, True),
        (SEND, another_tool, True),
    ],
    ids=lambda value: getattr(value, "__name__", getattr(value, "name", str(value))),
)
async def test_a_yes_is_used_only_for_what_was_shown(
    tmp_path: Path, scenario: Scenario, change: Callable[[Scene], None], is_asked_again: bool
) -> None:
    workspace, store = tmp_path / "workspace", VolatileStore()
    workspace.mkdir()
    scene, world = Scene(scenario, workspace, settings_of(scenario, workspace)), World(workspace)
    scene.make()
    async with runtime(scene.scenario, store, world) as controller:
        session = await controller.begin("a:b", ANN, Send("Go.", scene.settings))
        await controller.drive(session)
        (first,) = await store.approvals(session)
        await controller.submit(session, ANN, Resolve(first.id, "approve"))
        change(scene)
        await controller.submit(session, ANN, Continue(scene.settings))
    async with runtime(scene.scenario, store, world) as controller:
        await controller.drive(session)
        asked = await store.approvals(session)
        assert len(asked) == is_asked_again
        for again in asked:
            assert scene.ran() == []
            assert shown(again) != shown(first), "what differs is seen"
            await controller.submit(session, ANN, Resolve(again.id, "approve"))
            await controller.drive(session)
    assert len(scene.ran()) == 1


@pytest.mark.requirement("H5", "C12")
@pytest.mark.parametrize("change", [nothing, another_program, another_content])
async def test_what_changes_while_an_approved_call_waits_for_a_place_does_not_run(
    tmp_path: Path, change: Callable[[Scene], None]
) -> None:
    workspace, store = tmp_path / "workspace", VolatileStore()
    workspace.mkdir()
    scene, world = Scene(SHELL, workspace, settings_of(SHELL, workspace)), World(workspace)
    scene.make()
    async with runtime(SHELL, store, world) as controller:
        session = await controller.begin("a:b", ANN, Send("Go.", scene.settings))
        await controller.drive(session)
        (asked,) = await store.approvals(session)
        await controller.submit(session, ANN, Resolve(asked.id, "approve"))
        async with AsyncExitStack() as places:
            for number in range(PLACES):
                place = controller._ports.tools.place(f"session {number}", ())
                await places.enter_async_context(place)
            driving = asyncio.create_task(controller.drive(session))
            while (await store.read(session))[-1].type != "ToolCallStarted":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            change(scene)
        await driving
    events = [decode(record).event for record in await store.read(session)]
    (result,) = [event.result for event in events if isinstance(event, ToolCallFinished)]
    if change is nothing:
        assert (result.status, scene.ran()) == ("ok", ["first"])
    else:
        assert (result.text, scene.ran()) == (CHANGED, [])


@asynccontextmanager
async def runtime(scenario: Scenario, store: Store, world: World) -> AsyncIterator[SessionController]:
    """A process of its own, with real tools and the time of this machine: real programs run in it."""
    tools = make_tools(scenario.make(world), secret_in=lambda _: "", own=Own())
    model = script_from_lines(scenario.lines)

    async def resolve(name: str) -> Provider:
        return model

    async with (
        aclosing(tools),
        SessionController(Ports(store, SYSTEM_CLOCK, resolve, tools, make_redactor())) as door,
    ):
        yield door


def shown(row: Approval) -> tuple[str, ...]:
    return (row.tool, row.source, row.arguments, row.workspace, row.cwd, row.binary, row.reach, row.reason)


@pytest.mark.requirement("H5", "C12")
async def test_an_approval_of_a_deferred_call_is_good_for_no_other_call(tmp_path: Path) -> None:
    first, other = (
        {"name": "shell", "arguments": {"command": f"echo {name} >> ran.txt && chmod 600 ran.txt"}}
        for name in "ab"
    )
    lines = [
        {"tool_calls": [first]},
        {"text": "I wait."},
        {"tool_calls": [other]},
        {"tool_calls": [first]},
        {"tool_calls": [first]},
        {"text": "I wait again."},
    ]
    scenario = Scenario("deferred", lines, _tools, settings={"autonomy": "supervised", "approve_by": "defer"})
    workspace, store = tmp_path / "workspace", VolatileStore()
    workspace.mkdir()
    async with runtime(scenario, store, World(workspace)) as controller:
        session = await controller.begin("a:b", ANN, Send("Go.", settings_of(scenario, workspace)))
        await controller.drive(session)
        (asked,) = await store.approvals(session)
        await controller.submit(session, ANN, Resolve(asked.id, "approve"))
        await controller.drive(session)
        waiting = [each.arguments for each in await store.approvals(session)]
    assert (workspace / "ran.txt").read_text() == "a\n"
    assert [arguments.count("echo b") for arguments in waiting] == [1, 0]


@pytest.mark.requirement("H5", "C12")
async def test_a_deferred_call_that_is_made_again_before_the_decision_does_not_run(tmp_path: Path) -> None:
    run = {"name": "shell", "arguments": {"command": "echo a >> ran.txt && chmod 600 ran.txt"}}
    lines = [{"tool_calls": [run]}, {"tool_calls": [run]}, {"text": "I wait."}]
    scenario = Scenario("deferred", lines, _tools, settings={"autonomy": "supervised", "approve_by": "defer"})
    workspace, store = tmp_path / "workspace", VolatileStore()
    workspace.mkdir()
    async with runtime(scenario, store, World(workspace)) as controller:
        session = await controller.begin("a:b", ANN, Send("Go.", settings_of(scenario, workspace)))
        await controller.drive(session)
        assert len(await store.approvals(session)) == 1
    assert not (workspace / "ran.txt").exists()
