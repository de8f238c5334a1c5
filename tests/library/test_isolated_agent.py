"""Agents that work in copies of a workspace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent
from holdfast.errors import UsageError


def model(folder: Path, *lines: dict[str, Any]) -> str:
    path = folder / "script.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"script:{path}"


def write(content: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": content}}]}


async def test_an_isolated_agent_changes_nothing_until_its_work_is_accepted(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("one")
    script = model(tmp_path, write("two"), {"text": "Done."}, write("three"), {"text": "Done."})
    options: Any = {"model": script, "tools": ["write_file"], "home": tmp_path / "home"}
    async with Agent(**options, workspace=work, isolate=True) as agent:
        await agent.run("go", "app:a")
        assert (work / "a.txt").read_text() == "one"
        accepted = await agent.accept("app:a")
        assert [each.path for each in accepted.done] == ["a.txt"]
        assert (work / "a.txt").read_text() == "two"
    async with Agent(**options) as other:  # the session goes on in a copy, whatever this agent asks for
        await other.run("go on", "app:a")
        assert (work / "a.txt").read_text() == "two"
        assert await other.discard("app:a") is True
        assert await other.discard("app:a") is False


async def test_a_copy_needs_a_home(tmp_path: Path) -> None:
    agent = Agent(
        model=model(tmp_path, {"text": "Done."}), tools=["write_file"], workspace=tmp_path, isolate=True
    )
    async with agent:
        with pytest.raises(UsageError, match="needs a home"):
            await agent.run("go")
