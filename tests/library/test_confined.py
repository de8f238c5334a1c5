"""An agent's commands run in a sandbox by default, and agents that start nothing need none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import Agent, Runtime, tool
from holdfast.errors import SandboxUnavailable
from holdfast.sandbox import bubblewrap, landlock
from holdfast.sandbox.landlock import Landlock

pytestmark = pytest.mark.skipif(not isinstance(landlock.make(), Landlock), reason="needs Landlock")

STEALING = "IFS= read -r line < ../outside && echo $line > stolen; : > done"


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def model(folder: Path, name: str, **arguments: object) -> str:
    """A model that calls this tool and is done."""
    lines = [{"tool_calls": [{"name": name, "arguments": arguments}]}, {"text": "Done."}]
    (folder / name).write_text("\n".join(map(json.dumps, lines)))
    return f"script:{folder / name}"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Beside a file that no command may read. There is no bwrap."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bash").symlink_to("/bin/bash")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "outside").write_text("a bait\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "try.sh").write_text(STEALING)
    return tmp_path / "work"


@pytest.mark.requirement("L2")
async def test_an_agent_with_a_shell_is_confined_also_where_one_without_came_first(
    workspace: Path, tmp_path: Path
) -> None:
    async with Runtime() as runtime:
        app = await runtime.app()
        await Agent(model=model(tmp_path, "add", a=1, b=2), tools=[add], runtime=runtime).run("Go.")
        assert not app.sandboxes
        shell = model(tmp_path, "shell", command="bash try.sh")
        await Agent(model=shell, tools=["shell"], runtime=runtime, workspace=workspace).run("Go.")
        assert [each.backend for each in app.sandboxes] == ["landlock"]
    assert (workspace / "done").exists()
    assert not (workspace / "stolen").exists()


@pytest.mark.requirement("L2")
async def test_where_no_sandbox_works_only_an_agent_that_needs_none_runs(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = bubblewrap.make()
    monkeypatch.setattr("holdfast.sandbox.choice._MAKERS", {"bubblewrap": lambda: none})
    await Agent(model=model(tmp_path, "add", a=1, b=2), tools=[add]).run("Go.")
    agent = Agent(model=model(tmp_path, "shell", command="bash try.sh"), tools=["shell"], workspace=workspace)
    with pytest.raises(SandboxUnavailable, match="No sandbox works here"):
        await agent.run("Go.")
    assert not (workspace / "done").exists()
    unsafe = Agent(
        model=model(tmp_path, "shell", command="bash try.sh"),
        tools=["shell"],
        workspace=workspace,
        config={"sandbox": {"mode": "unsafe"}},
    )
    await unsafe.run("Go.")
    assert (workspace / "stolen").exists()
