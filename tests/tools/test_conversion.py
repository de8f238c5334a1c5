"""Arguments are read leniently where their meaning is unambiguous, and only there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.failures import Failure
from holdfast.protocol.tools import Allowed, Refused, ToolSpec
from holdfast.tools.conversion import converted
from holdfast.tools.function import tool
from holdfast.tools.schema import Arguments, SchemaGate
from tests.tools.conftest import Bench

DEFINITIONS = {
    "Point": {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "number"}},
        "required": ["x"],
    },
    "Tree": {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}},
    "Lists": {"type": "array", "items": {"$ref": "#/$defs/Lists"}},
}
TYPES: dict[str, Any] = {
    "count": {"type": "integer"},
    "share": {"type": "number"},
    "deep": {"type": "boolean"},
    "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "word": {"type": "string"},
    "words": {"type": "array", "items": {"type": "string"}},
    "counts": {"type": "array", "items": {"type": "integer"}},
    "point": {"$ref": "#/$defs/Point"},
    "points": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
    "level": {"enum": [1, 2]},
    "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
    "both": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
    "any": {},
    "tree": {"$ref": "#/$defs/Tree"},
    "lists": {"$ref": "#/$defs/Lists"},
    "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
}
SPEC = ToolSpec("take", "", {"type": "object", "properties": TYPES, "$defs": DEFINITIONS})


def checked(**arguments: Any) -> Arguments | Failure:
    return SchemaGate().check(SPEC, json.dumps(arguments))


@pytest.mark.parametrize(
    ("name", "written", "meant", "note"),
    [
        ("count", "1", 1, "text read as integer"),
        ("count", "-12", -12, "text read as integer"),
        ("share", "0.5", 0.5, "text read as number"),
        ("share", "1e3", 1000.0, "text read as number"),
        ("deep", "true", True, "text read as boolean"),
        ("deep", "False", False, "text read as boolean"),
        ("maybe", "null", None, "text read as null"),
        ("maybe", "3", 3, "text read as integer"),
        ("words", "one", ["one"], "text read as the only item of an array"),
        ("counts", 5, [5], "integer read as the only item of an array"),
        ("counts", "[1, 2]", [1, 2], "text read as JSON of an array"),
        ("point", '{"x": 1}', {"x": 1}, "text read as JSON of an object"),
        ("point", {"x": "1"}, {"x": 1}, "`point.x`: text read as integer"),
        ("points", {"x": 1}, [{"x": 1}], "object read as the only item of an array"),
        ("points", [{"x": 1}, {"x": "2"}], [{"x": 1}, {"x": 2}], "`points[1].x`: text read as integer"),
        ("points", '[{"x": 1}]', [{"x": 1}], "text read as JSON of an array"),
        ("level", "2", 2, "text read as integer"),
        ("either", "true", True, "text read as boolean"),
        ("tree", {"below": [{"below": {}}]}, {"below": [{"below": [{}]}]}, "`tree.below[0].below`: object"),
        ("pair", ["1", "2"], [1, "2"], "`pair[0]`: text read as integer"),
    ],
)
def test_a_value_of_the_wrong_type_with_one_meaning_is_read_as_that(
    name: str, written: object, meant: object, note: str
) -> None:
    found = checked(**{name: written})
    assert isinstance(found, Arguments), found
    assert json.loads(found.canonical) == found.values == {name: meant}
    assert type(found.values[name]) is type(meant)
    assert note in found.conversions[0]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("count", "1.5"),
        ("count", "01"),
        ("count", " 1"),
        ("count", "1_000"),
        ("count", "\u0661"),
        ("count", "9" * 40),
        ("count", True),
        ("count", [1]),
        ("share", "1e999"),
        ("share", "NaN"),
        ("deep", "yes"),
        ("deep", 1),
        ("maybe", ""),
        ("word", 5),
        ("word", ["one"]),
        ("words", ""),
        ("words", '["one"]'),
        ("words", None),
        ("point", '{"x": "one"}'),
        ("point", "{'x': 1}"),
        ("point", '"{}"'),
        ("both", "1"),
        ("level", "3"),
    ],
)
def test_a_value_with_no_meaning_or_with_two_is_refused(name: str, written: object) -> None:
    assert isinstance(checked(**{name: written}), Failure)


def test_a_value_that_fits_stays_as_it_is() -> None:
    fitting = {"word": "1", "words": ["1", '["a"]'], "any": '{"a": "1"}', "share": 1, "either": True}
    assert checked(**fitting) == Arguments(fitting, msgspec.json.encode(fitting, order="sorted").decode())
    assert converted(SPEC.parameters, fitting) is None


def test_all_arguments_may_be_one_json_text() -> None:
    found = SchemaGate().check(SPEC, json.dumps('{"count": 3}'))
    assert isinstance(found, Arguments)
    assert (found.values, found.conversions) == (
        {"count": 3},
        ("the arguments: text read as JSON of an object",),
    )


def test_a_refusal_speaks_of_what_the_model_wrote() -> None:
    refused = checked(count="1", share="many")
    assert isinstance(refused, Failure)
    assert '`share` must be number, not the string "many"' in refused.message


@pytest.mark.parametrize(
    "arguments",
    [
        {"counts": ["1"] * 20_000},
        {"lists": "x"},
        {"tree": json.loads('{"below":' * 60 + "{}" + "}" * 60)},
        {"point": "[" * 200_000},
    ],
)
def test_reading_gives_up_on_what_takes_too_long(arguments: dict[str, Any]) -> None:
    assert isinstance(checked(**arguments), Failure)


def test_many_conversions_leave_a_bounded_note() -> None:
    found = checked(counts=[str(each) for each in range(500)])
    assert isinstance(found, Arguments)
    assert len(found.conversions) == 9
    assert found.conversions[-1] == "492 more in the same way"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.sampled_from(["1", "true", "[1]", '{"x":"1"}', "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "below"]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(TYPES)), JSON, max_size=4))
def test_what_passes_fits_the_schema_and_reading_it_again_changes_nothing(arguments: dict[str, Any]) -> None:
    gate = SchemaGate()
    found = gate.check(SPEC, json.dumps(arguments))
    if isinstance(found, Arguments):
        assert gate.check(SPEC, found.canonical) == Arguments(found.values, found.canonical)
        assert bool(found.conversions) == (json.loads(found.canonical) != arguments)


@pytest.mark.requirement("C3")
async def test_the_gates_judge_the_converted_arguments_and_the_decision_is_recorded(
    bench_of: Callable[..., Bench],
) -> None:
    @tool(effect="read")
    def look(paths: Annotated[list[str], "path"], depth: int, how: Literal["a", "b"] = "a") -> str:
        """Look."""
        return f"{paths} {depth}"

    bench = bench_of(look)
    admitted = await bench.admit("look", paths="notes", depth="2")
    assert isinstance(admitted, Allowed)
    assert admitted.arguments == '{"depth":2,"paths":["notes"]}'
    assert [each.reason for each in admitted.decisions if each.rule == "converted"] == [
        "`paths`: text read as the only item of an array",
        "`depth`: text read as integer",
    ]
    assert (await bench.call("look", paths="notes", depth="2")).text == "['notes'] 2"
    refused = await bench.admit("look", paths="../../etc/shadow", depth="2")
    assert isinstance(refused, Refused)
    assert refused.failure.code == "policy_denied"
    plain = await bench.admit("look", paths=["notes"], depth=2)
    assert isinstance(plain, Allowed)
    assert [each.by for each in plain.decisions] != [each.by for each in admitted.decisions]
