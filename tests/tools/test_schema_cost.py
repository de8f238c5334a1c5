"""No schema and no arguments keep the gate busy: what a check costs is bounded before it begins."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.failures import Failure
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import ToolCall
from holdfast.protocol.ports import Proposal
from holdfast.protocol.settings import Output, settings_with
from holdfast.protocol.tools import Refused, ToolSpec
from holdfast.tools.answers import schema_text, verdict
from holdfast.tools.gates import Case, _schema
from holdfast.tools.schema import Arguments, SchemaGate
from holdfast.tools.schema_cost import SchemaCost, TooCostly
from tests.tools.schema_bombs import bombs


@pytest.mark.requirement("C3", "L7")
def test_no_bomb_among_schemas_and_arguments_passes_or_keeps_the_gate_busy(repository: Path) -> None:
    """The program that tries them is killed when one of them takes seconds of the processor."""
    command = [sys.executable, "-m", "tests.tools.schema_bombs"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    outcomes = dict(json.loads(line) for line in done.stdout.splitlines())
    assert list(outcomes) == [name for name, _, _ in bombs()], done.stderr
    assert [name for name, outcome in outcomes.items() if outcome == "passed"] == []
    assert all(len(outcome) < 300 for outcome in outcomes.values())


MANY = {"anyOf": [{"properties": {f"p{at}": True}} for at in range(300)], "unevaluatedProperties": False}
BRANCHES = {"a": {"anyOf": [{"type": "object", "required": [f"k{at}"]} for at in range(31)]}}


async def turns_of_others(work: Coroutine[Any, Any, object]) -> int:
    """How often another task gets its turn while the work is done."""
    task, turns = asyncio.create_task(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


async def _judged(schema: dict[str, Any], text: str) -> None:
    assert (await verdict(Output(schema_text(schema)), text)).problem


async def _admitted(properties: dict[str, Any], text: str) -> None:
    spec = ToolSpec("take", "", {"type": "object", "properties": properties})
    call = ToolCall(ref="r", name="take", arguments=text, call_id="t1.c1")
    proposal = Proposal(call, "s", settings_with(ModelFacts("script", "x"), "/"))
    found = await _schema(SchemaGate(), Case(proposal, spec))
    assert isinstance(found, Refused)


@pytest.mark.requirement("L7")
@pytest.mark.parametrize(
    ("work", "schema", "small", "large"),
    [
        (_judged, MANY, None, json.dumps({f"p{at}": 1 for at in range(2_000)})),
        (_judged, {"type": "array"}, "{}", json.dumps({"a": "b" * 200_000})),
        (_admitted, BRANCHES, '{"a": "1"}', json.dumps({"a": json.dumps({"x": ["y"] * 9_000})})),
    ],
)
async def test_a_check_that_takes_long_does_not_block_other_sessions(
    work: Any, schema: dict[str, Any], small: str | None, large: str
) -> None:
    if small is not None:
        assert await turns_of_others(work(schema, small)) == 1
    assert await turns_of_others(work(schema, large)) > 3


JSON_VALUE = {
    "$defs": {
        "value": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/value"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/value"}},
            ]
        }
    },
    "properties": {"value": {"$ref": "#/$defs/value"}},
}
EXPRESSION = {
    "$defs": {
        kind: {
            "type": "object",
            "properties": {
                "kind": {"const": kind},
                "left": {"$ref": "#/$defs/any"},
                "right": {"$ref": "#/$defs/any"},
            },
            "required": ["kind"],
            "additionalProperties": False,
        }
        for kind in ("and", "or", "leaf")
    }
    | {"any": {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in ("and", "or", "leaf")]}},
    "properties": {"where": {"$ref": "#/$defs/any"}},
}
SECTIONS = {
    "properties": {
        name: {
            "type": "object",
            "properties": {key: {"type": "string", "pattern": "^(?!-)[a-z-]{1,40}$"} for key in "abcdef"},
        }
        for name in ("one", "two", "three")
    }
}
TEXT = {"properties": {"text": {"type": "string"}}}
NUMBERS = {"properties": {"all": {"items": {"type": "integer"}}}}


def expression(levels: int) -> dict[str, Any]:
    if not levels:
        return {"kind": "leaf"}
    return {"kind": "and", "left": expression(levels - 1), "right": {"kind": "leaf"}}


@pytest.mark.requirement("C3")
@pytest.mark.parametrize(
    ("schema", "right", "wrong", "words"),
    [
        (
            JSON_VALUE,
            {"value": [[[{"a": [1, "x", None]}] * 50] * 5]},
            {"value": 1, "b": 2},
            "does not take 'b'",
        ),
        (JSON_VALUE, {"value": ["x" * 100] * 20_000}, {"valu": 1}, "did you mean 'value'"),
        (EXPRESSION, {"where": expression(8)}, {"where": {"kind": "xor"}}, "`where` breaks the rule `oneOf`"),
        (
            SECTIONS,
            {"one": {"a": "ok", "f": "ok-ok"}, "three": {}},
            {"two": {"b": "-"}},
            "`two.b` breaks the rule",
        ),
        (TEXT, {"text": "x, y: [z] {\n" * 200_000}, {"text": 1}, "`text` must be string"),
        (NUMBERS, {"all": [7] * 200_000}, {"all": ["seven"]}, "`all[0]` must be integer"),
    ],
)
def test_schemas_as_people_write_them_pass_also_with_large_arguments(
    schema: dict[str, Any], right: dict[str, Any], wrong: dict[str, Any], words: str
) -> None:
    gate, spec = SchemaGate(), ToolSpec("tool", "", {"type": "object", **schema})
    assert isinstance(gate.check(spec, json.dumps(right)), Arguments)
    refused = gate.check(spec, json.dumps(wrong))
    assert isinstance(refused, Failure)
    assert words in refused.message


NAMES = st.sampled_from(["a", "b", "c"])
REFERENCES = NAMES.map(lambda name: {"$ref": f"#/$defs/{name}"})
FALSE = {"not": {}}
SCHEMAS = st.recursive(
    REFERENCES | st.just(FALSE),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"properties": st.dictionaries(NAMES, inner, min_size=1)}),
        st.fixed_dictionaries({"patternProperties": st.dictionaries(NAMES, inner, min_size=1)}),
        st.fixed_dictionaries({"additionalProperties": inner}),
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"prefixItems": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"if": st.just(True), "then": inner}),
        st.fixed_dictionaries({"dependentSchemas": st.dictionaries(NAMES, inner, min_size=1)}),
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.requirement("C3")
@given(st.fixed_dictionaries(dict.fromkeys("abc", SCHEMAS)), SCHEMAS, VALUES)
def test_the_count_is_never_lower_than_the_errors_that_a_validator_finds(
    defs: dict[str, Any], root: dict[str, Any], value: Any
) -> None:
    """Every `not: {}` that a value is held against is an error of its own."""
    schema = {**root, "$defs": defs}
    try:
        cost = SchemaCost(schema)
    except TooCostly:
        return
    counted = cost.errors(value)
    if counted < 20_000:
        errors = list(jsonschema_rs.validator_for(schema).iter_errors(value))
        assert len(errors) <= counted <= cost.steps(value, json.dumps(value))
