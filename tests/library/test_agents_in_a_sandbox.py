"""Which agents need a sandbox: those whose tools start programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import Agent, tool
from holdfast.errors import SandboxUnavailable
from holdfast.protocol.ports import Tool
from tests.tools import isolated_tools


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.requirement("L2", "S1")
@pytest.mark.parametrize(
    ("tools", "is_needed"),
    [
        ([], False),
        (["read_file", "write_file", add], False),
        (["shell"], True),
        (["grep"], True),
        ([isolated_tools.where], True),
    ],
    ids=["none", "in this process", "shell", "grep", "isolated"],
)
async def test_an_agent_needs_a_sandbox_only_if_one_of_its_tools_starts_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: list[str | Tool], is_needed: bool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no sandbox works here
    (tmp_path / "model").write_text(json.dumps({"text": "Done."}))
    config = {"sandbox": {"mode": "bubblewrap"}}
    agent = Agent(model=f"script:{tmp_path / 'model'}", tools=tools, config=config)
    if is_needed:
        with pytest.raises(SandboxUnavailable):
            await agent.run("go")
    else:
        assert (await agent.run("go")).status == "done"
    await agent.aclose()
