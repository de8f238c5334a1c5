"""A program that uses the types of outputs. `test_types` gives it to type checkers, which say what they see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict, reveal_type

import msgspec
from pydantic import BaseModel

from holdfast import Agent, Context, Result, tool


class Struct(msgspec.Struct):
    """A struct."""

    count: int


@dataclass
class Data:
    """A dataclass."""

    count: int


class Dict(TypedDict):
    """A typed dict."""

    count: int


class Model(BaseModel):
    """A model."""

    count: int


async def main() -> None:
    """Use every kind of output."""
    reveal_type((await Agent(model="m").run("task")).output)
    reveal_type((await Agent(output=Struct, tools=["*"]).run("task")).output)
    reveal_type((await Agent(output=Data).run("task")).output)
    reveal_type((await Agent(output=Dict).run("task")).output)
    reveal_type((await Agent(output=Model).run("task")).output)
    reveal_type((await Agent(output=list[Model]).run("task")).output)
    reveal_type((await Agent(output={"type": "object"}).run("task")).output)
    agent = Agent(output=Struct)
    reveal_type((await agent.run("task", "cli:a", output=Data)).output)
    reveal_type((await agent.run("task", output=list[Dict])).output)
    reveal_type((await agent.run("task", output=str)).output)
    reveal_type((await agent.run("task", output={"type": "object"})).output)
    reveal_type((await agent.resume("cli:a")).output)
    reveal_type((await agent.resume("cli:a", output=Model)).output)
    reveal_type((await agent.result("cli:a")).output)


def without_a_loop() -> None:
    """Use the forms for programs without an event loop."""
    agent = Agent(output=Struct)
    reveal_type(agent.run_sync("task").output)
    reveal_type(agent.run_sync("task", output=Data).output)
    for item in agent.stream_sync("task"):
        if isinstance(item, Result):
            reveal_type(item.output)


@tool(effect="read")
async def price(ctx: Context[Data], item: str) -> int:
    """Look up a price."""
    reveal_type(ctx.deps)
    return ctx.deps.count
