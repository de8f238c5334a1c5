"""`output=T`: an answer is a value of the type, or the run ends without one."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field, field_validator

from holdfast import Agent, Limits, NoOutput, Result
from holdfast.errors import UsageError
from holdfast.protocol.events import SettingsStored
from holdfast.protocol.settings import Output
from holdfast.testing.model_replies import Reply
from holdfast.testing.model_server import ModelServer


class Line(msgspec.Struct):
    """A line of an invoice."""

    item: str
    price: Annotated[float, msgspec.Meta(ge=0, description="In euros.")]


class Invoice(msgspec.Struct):
    """An invoice."""

    lines: list[Line]
    note: str = ""


@dataclass
class Point:
    """A point."""

    x: int
    y: int = 0


class Named(TypedDict):
    """Something with a name."""

    name: str


class Order(BaseModel):
    """An order."""

    count: int = Field(ge=1, description="How many.")
    kind: str = "book"

    @field_validator("kind")
    @classmethod
    def check(cls, kind: str) -> str:
        if kind == "forbidden":
            raise ValueError("there is no such kind")
        return kind


VALUES = [
    (Invoice, '{"lines": [{"item": "tea", "price": 2.5}]}', Invoice([Line("tea", 2.5)])),
    (Point, '{"x": 1}', Point(1)),
    (Named, '{"name": "ann"}', {"name": "ann"}),
    (Order, '{"count": 2}', Order(count=2)),
    (list[Line], '[{"item": "tea", "price": 1}]', [Line("tea", 1.0)]),
    (list[Point], '[{"x": 1, "y": 2}]', [Point(1, 2)]),
    (Point, '{"x": 1.0}', Point(1)),
    (list[Point], '[{"x": 1}, {"x": 2e2}]', [Point(1), Point(200)]),
    (dict[int, float], '{"1": 1.0}', {1: 1.0}),
    (list[Named], '[{"name": "a"}]', [{"name": "a"}]),
    (list[Order], '```json\n[{"count": 1}]\n```', [Order(count=1)]),
    ({"type": "object", "required": ["a"]}, '{"a": 1}', {"a": 1}),
]
WRONG = [
    (Invoice, '{"lines": [{"item": "tea", "price": -1}]}', r"lines\[0\]\.price"),
    (Point, '{"x": "1"}', "x"),
    (Named, "{}", "name"),
    (Order, '{"count": 0}', "count"),
    (list[Order], '[{"count": 1}, {"count": 0}]', r"\[1\]\.count"),
    ({"type": "object", "required": ["a"]}, "{}", "'a'"),
]


async def ran(output: Any, *replies: Reply, **options: Any) -> Result[Any]:
    """What an agent with this output comes to against a real server."""
    async with ModelServer(list(replies)) as server:
        config = {"providers": {"openai": {"base_url": server.openai_url}}}
        async with Agent(model="openai:m", config=config, output=output, **options) as agent:
            return await agent.run("task")


@pytest.mark.requirement("S1", "L9")
@pytest.mark.parametrize(("output", "text", "value"), VALUES, ids=lambda each: str(each)[:40])
async def test_an_answer_is_a_value_of_the_type(output: Any, text: str, value: object) -> None:
    result = await ran(output, Reply(text=text))
    assert (result.status, result.output, type(result.output)) == ("done", value, type(value))


@pytest.mark.requirement("S1", "L9")
@pytest.mark.parametrize(("output", "text", "path"), WRONG, ids=lambda each: str(each)[:40])
async def test_a_wrong_answer_goes_back_and_then_there_is_no_output(
    output: Any, text: str, path: str
) -> None:
    result = await ran(output, Reply(text=text, repeat=True))
    assert (result.status, result.reason, result.turns) == ("failed", "output_schema", 3)
    with pytest.raises(NoOutput, match=path):
        _ = result.output


@pytest.mark.requirement("S1")
async def test_the_model_is_told_the_descriptions_of_the_type() -> None:
    async with ModelServer([Reply(text='{"count": 1}')]) as server:
        config = {"providers": {"openai": {"base_url": server.openai_url}}}
        async with Agent(model="openai:m", config=config, output=Order) as agent:
            await agent.run("task")
        assert b"How many." in server.requests[0].body


@pytest.mark.requirement("S1", "L9")
async def test_without_a_type_the_output_is_the_text() -> None:
    assert (await ran(None, Reply(text="In words."))).output == "In words."
    refused = await ran(None, Reply(text="No.", finish="refusal"))
    with pytest.raises(NoOutput, match="refused"):
        _ = refused.output


@pytest.mark.requirement("S1", "B2")
async def test_a_run_at_its_limit_has_an_output_only_if_it_is_valid() -> None:
    for text, has_output in (('{"x": 1}', True), ("nothing", False)):
        result = await ran(Point, Reply(text="first"), Reply(text=text), limits=Limits(turns=1))
        assert result.status == "limit"
        assert (result.answer is not msgspec.UNSET) == has_output


@pytest.mark.requirement("S1", "L9")
async def test_a_run_may_have_a_type_of_its_own() -> None:
    replies = [Reply(text=text) for text in ('{"x": 1}', '{"name": "ann"}', "In words.", '[{"x": 2}]')]
    async with ModelServer(replies) as server:
        config = {"providers": {"openai": {"base_url": server.openai_url}}}
        async with Agent(model="openai:m", config=config, output=Point) as agent:
            assert (await agent.run("task", "cli:a")).output == Point(1)
            assert (await agent.run("task", "cli:a", output=Named)).output == {"name": "ann"}
            assert (await agent.run("task", "cli:a", output=str)).output == "In words."
            assert (await agent.run("task", "cli:a", output=list[Point])).output == [Point(2)]


@pytest.mark.requirement("S1", "L9")
async def test_a_failed_run_is_resumed_with_its_type() -> None:
    replies = [*[Reply(text="nothing")] * 3, Reply(text='{"x": 3}')]
    async with ModelServer(replies) as server:
        config = {"providers": {"openai": {"base_url": server.openai_url}}}
        async with Agent(model="openai:m", config=config, output=Point) as agent:
            failed = await agent.run("task")
            assert failed.reason == "output_schema"
            assert (await agent.resume(failed.session_id)).output == Point(3)
            assert (await agent.resume(failed.session_id)).output == Point(3)
            assert (await agent.result(failed.session_id)).output == Point(3)


@pytest.mark.requirement("S1")
async def test_what_a_type_refuses_beyond_its_schema_is_no_output() -> None:
    result = await ran(Order, Reply(text='{"count": 1, "kind": "forbidden"}'))
    assert result.status == "done"
    with pytest.raises(NoOutput, match="there is no such kind"):
        _ = result.output


@pytest.mark.requirement("S1")
async def test_a_run_that_is_done_in_words_is_not_said_to_match_a_schema() -> None:
    async with ModelServer([Reply(text="In words.")]) as server:
        config = {"providers": {"openai": {"base_url": server.openai_url}}}
        async with Agent(model="openai:m", config=config) as agent:
            done = await agent.run("task")
            again = await agent.resume(done.session_id, output=Point)
    with pytest.raises(NoOutput, match="The answer cannot be read as Point: Expected `object`, got `str`"):
        _ = again.output


def test_a_type_without_a_schema_is_refused_in_words_of_python() -> None:
    with pytest.raises(
        UsageError, match="list\\[object\\] has no JSON Schema: JSON has nothing like the type object\nUse a"
    ):
        Agent(model="openai:m", output=list[object])


@pytest.mark.requirement("S1")
async def test_the_schema_is_recorded_in_the_order_of_the_fields() -> None:
    async with ModelServer([Reply(text='{"lines": []}')]) as server:
        config = {"providers": {"openai": {"base_url": server.openai_url}}}
        async with Agent(model="openai:m", config=config, output=Invoice) as agent:
            events = [each async for each in agent.stream("task")]
    stored = [each.body for each in events if getattr(each, "type", "") == "SettingsStored"]
    assert len(stored) == 1
    assert isinstance(stored[0], SettingsStored)
    (output,) = [group for group in stored[0].groups.values() if isinstance(group, Output)]
    assert output.schema.index('"lines"') < output.schema.index('"note"')


class Opaque:
    """Nothing that JSON has."""


@pytest.mark.requirement("S1", "L9")
@pytest.mark.parametrize(
    "wrong", [Opaque, list[Opaque], {"type": "strin"}, {"$ref": "https://example.com"}, 7]
)
def test_what_has_no_schema_is_refused_when_the_agent_is_made(wrong: Any) -> None:
    with pytest.raises(UsageError, match="output = "):
        Agent(output=wrong)


@pytest.mark.requirement("L9", "S14")
def test_an_output_without_pydantic_does_not_load_it() -> None:
    program = (
        "import sys; from dataclasses import make_dataclass; from holdfast import Agent;"
        "Agent(output=make_dataclass('P', [('x', int)])); print('pydantic' in sys.modules)"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "False"


@pytest.mark.requirement("L2-03", "S1")
async def test_a_calibrated_result_has_its_confidence_beside_the_value(tmp_path: Path) -> None:
    def answers(text: str, confidence: float) -> str:
        given = {"text": text, "confidence": confidence, "reasons": ["a"], "caveats": ["b"]}
        return json.dumps({"tool_calls": [{"name": "answer", "arguments": given}]})

    script = tmp_path / "script.jsonl"
    script.write_text("\n".join([answers('{"x": 4}', 0.2), answers('{"x": 5}', 0.75), answers("Words.", 1)]))
    config = {"answers": {"calibrated": True}}
    async with Agent(model=f"script:{script}", config=config, output=Point) as agent:
        result = await agent.run("Where?", "cli:a")
        assert (result.output, result.confidence) == (Point(5), 0.75)
        assert (result.reasons, result.caveats, result.turns) == (("a",), ("b",), 2)
        words = await agent.run("And now?", "cli:a", output=str)
        assert (words.output, words.confidence, words.is_calibrated) == ("Words.", 1.0, True)
