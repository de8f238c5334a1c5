"""A tool that cannot work names another one; arguments that a tool does not take are refused or left out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.errors import ToolError, ToolUnavailable
from holdfast.protocol.settings import Policy, changed
from holdfast.protocol.tools import Allowed, Decision, Refused
from holdfast.tools.function import tool
from holdfast.tools.schema import CheckedSchema
from tests.tools.conftest import Bench


@tool(effect="read")
async def first(how: str) -> str:
    """Work, or say why not."""
    if how == "down":
        raise ToolUnavailable("The service is down.")
    if how == "wrong":
        raise ToolError("There is no such place.")
    return how


@tool(effect="read")
async def second(how: str) -> str:
    """Do the same in another way."""
    return how


@tool(effect="read")
async def denied() -> str:
    """Never be there."""
    return ""


@pytest.mark.requirement("C16")
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("down", "The service is down. You can try second instead."),
        ("wrong", "There is no such place."),
        ("ok", "ok"),
    ],
)
async def test_only_a_failure_that_no_argument_caused_names_the_first_stand_in_that_the_run_has(
    bench_of: Callable[..., Bench], how: str, said: str
) -> None:
    bench = bench_of(first.or_else("gone", "denied", "second"), second, denied)
    context = bench.context(offers=lambda name: name != "denied")
    result = await bench.tools.run("first", json.dumps({"how": how}), context)
    assert result.text == said


@pytest.mark.requirement("C16")
async def test_a_tool_that_ran_out_of_time_names_its_stand_in(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(hang.or_else("second"), second)
    context = bench.context(timeout_s=0.01, offers=lambda _: True)
    result = await bench.tools.run("hang", "{}", context)
    assert result.status == "timeout"
    assert result.text.endswith("You can try second instead.")


@tool(effect="read")
async def hang() -> None:
    """Never come back."""
    await asyncio.Event().wait()


@pytest.mark.requirement("C3")
async def test_unknown_arguments_are_refused_or_left_out_as_the_configuration_says(bench: Bench) -> None:
    asked: dict[str, Any] = {"path": "a.txt", "content": "x", "mode": "w", "encoding": "utf-8"}
    refused = await bench.admit("write_file", **asked)
    assert isinstance(refused, Refused)
    assert "does not take" in refused.failure.message
    bench.settings = changed(bench.settings, policy=Policy(unknown_arguments="strip"))
    allowed = await bench.admit("write_file", **asked)
    assert isinstance(allowed, Allowed)
    assert json.loads(allowed.arguments) == {"path": "a.txt", "content": "x"}
    (told,) = [each for each in allowed.decisions if each.rule == "stripped"]
    assert msgspec.structs.replace(told, reason="") == Decision("schema", "allow", "stripped")
    assert set(told.reason.split(", ")) == {"`mode`", "`encoding`"}


@pytest.mark.requirement("C3")
def test_only_the_innermost_unknown_argument_is_left_out() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    schema = {"allOf": [{"properties": {"options": inner}}], "unevaluatedProperties": False}
    value = {"options": {"a": 1, "b": 2}, "c": 3}
    assert set(CheckedSchema(schema).strip(value, json.dumps(value))) == {"`options.b`", "`c`"}
    assert value == {"options": {"a": 1}}


@pytest.mark.requirement("C3")
async def test_what_is_wrong_besides_is_still_refused(bench: Bench) -> None:
    bench.settings = changed(bench.settings, policy=Policy(unknown_arguments="strip"))
    refused = await bench.admit("write_file", path=7, colour="red")
    assert isinstance(refused, Refused)
    assert "content" in refused.failure.message


@pytest.mark.requirement("S5", "C3")
async def test_a_tool_that_the_configuration_withholds_is_neither_offered_nor_run(bench: Bench) -> None:
    bench.settings = changed(bench.settings, policy=Policy(offered=("*_file",)))
    assert [spec.name for spec in bench.tools.specs(bench.settings)] == [
        "read_file",
        "write_file",
        "edit_file",
    ]
    refused = await bench.admit("list_dir")
    assert isinstance(refused, Refused)
    assert "tool" in [each.rule for each in refused.decisions]
