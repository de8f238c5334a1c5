"""Arguments pass as canonical JSON, or come back with what is wrong and how to mend it."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.failures import Failure
from holdfast.protocol.tools import ToolSpec
from holdfast.tools.schema import (
    MAX_COMPILED,
    Arguments,
    BadSchema,
    CheckedSchema,
    SchemaGate,
    arguments_object,
    closed,
)

SPEC = ToolSpec(
    "search",
    "",
    {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1},
            "limit": {"type": "integer", "minimum": 1},
            "mode": {"enum": ["fast", "slow"]},
            "where": {"type": "array", "items": {"type": "object", "required": ["path"]}},
        },
        "required": ["pattern"],
    },
)


def message(text: str, spec: ToolSpec = SPEC, code: str = "tool_validation") -> str:
    checked = SchemaGate().check(spec, text)
    assert isinstance(checked, Failure)
    assert checked.code == code
    return checked.message


@pytest.mark.requirement("C3")
def test_arguments_pass_as_canonical_json() -> None:
    gate = SchemaGate()
    one = gate.check(SPEC, ' {"pattern": "é\\u0031", "limit": 2,\n"mode":"fast"} ')
    assert one == gate.check(SPEC, '{"mode": "fast", "limit": 2, "pattern": "é1"}')
    assert isinstance(one, Arguments)
    assert one.canonical == '{"limit":2,"mode":"fast","pattern":"é1"}'
    assert one.values == json.loads(one.canonical)


@pytest.mark.requirement("C3", "L1")
@pytest.mark.parametrize(
    "text",
    [
        '{"pattern": "a"',
        "search for it",
        '{"pattern": NaN}',
        '{"pattern": "\\ud800"}',
        "[" * 100_000,
        '{"limit": 1e999}',
    ],
)
def test_text_that_is_no_json_is_refused_with_what_to_send(text: str) -> None:
    told = message(text, code="invalid_json")
    assert "not valid JSON" in told
    assert len(told) < 500


@pytest.mark.requirement("C3")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["the call needs 'pattern'"]),
        ({"pattern": "a", "limit": "ten"}, ['`limit` must be integer, not the string "ten"']),
        ({"pattern": "a", "limit": 0}, ["`limit` breaks the rule `minimum 1`: it is the integer 0"]),
        ({"pattern": "a", "mode": "quick"}, ['`mode` must be one of "fast", "slow", not the string "quick"']),
        ({"patern": "a"}, ["does not take 'patern' (did you mean 'pattern'?)", "needs 'pattern'"]),
        ({"pattern": "a", "zzz": 1}, ["does not take 'zzz' (it takes pattern, limit, mode, where)"]),
        ({"pattern": "a", "where": [{"path": "x"}, {}]}, ["`where[1]` needs 'path'"]),
        ({"pattern": None}, ["`pattern` must be string, not null"]),
        ({"pattern": "a", "p" * 500_000: 1}, ["does not take a name of 500,000 characters"]),
        ({"pattern": "a"} | {f"n{at}": 1 for at in range(4_000)}, ["does not take 'n0', ", ", 3,995 more"]),
        ({"pattern": ["x" * 1_000]}, ["`pattern` must be string, not the array of 1 item"]),
        ({"pattern": {"x": "x" * 1_000}}, ["`pattern` must be string, not the object of 1 member"]),
    ],
)
def test_a_violation_names_the_path_the_value_and_what_was_expected(
    arguments: dict[str, Any], words: list[str]
) -> None:
    told = message(json.dumps(arguments))
    for word in words:
        assert word in told
    assert told.startswith("search: ")
    assert len(told) < 600


@pytest.mark.requirement("C3")
@pytest.mark.parametrize("text", ["[]", "null", '"a"', "3"])
def test_arguments_that_are_no_object_are_refused(text: str) -> None:
    assert "must be a JSON object" in message(text)


@pytest.mark.requirement("C3")
def test_unknown_arguments_are_refused_unless_the_schema_speaks_of_them() -> None:
    gate = SchemaGate()
    plain = ToolSpec("plain", "", {"properties": {"a": {}}})
    composed = ToolSpec("composed", "", {"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {}}}}})
    willing = ToolSpec("willing", "", {"properties": {"a": {}}, "additionalProperties": True})
    for spec in (plain, composed):
        assert isinstance(gate.check(spec, '{"a": 1}'), Arguments)
        assert isinstance(gate.check(spec, '{"b": 1}'), Failure)
    assert isinstance(gate.check(willing, '{"b": 1}'), Arguments)
    assert "additionalProperties" not in plain.parameters


def test_an_empty_text_is_an_empty_object() -> None:
    assert SchemaGate().check(ToolSpec("none", "", {}), "") == Arguments({}, "{}")


@pytest.mark.requirement("C3", "S14")
def test_a_tool_that_is_added_again_is_checked_with_its_new_schema() -> None:
    gate = SchemaGate()
    before = ToolSpec("t", "", arguments_object(["a"], a={"type": "integer"}))
    after = ToolSpec("t", "", arguments_object(["b"], b={"type": "string"}))
    assert isinstance(gate.check(before, '{"a": 1}'), Arguments)
    assert isinstance(gate.check(after, '{"b": "x"}'), Arguments)
    assert isinstance(gate.check(after, '{"a": 1}'), Failure)
    assert isinstance(gate.check(before, '{"a": 1}'), Arguments)


@pytest.mark.requirement("C3")
def test_only_so_many_compiled_schemas_are_kept() -> None:
    gate = SchemaGate()
    for number in range(MAX_COMPILED + 2):
        spec = ToolSpec("t", "", arguments_object([], a={"const": number}))
        assert isinstance(gate.check(spec, f'{{"a": {number}}}'), Arguments)
    assert gate.compiled == 2


@pytest.mark.requirement("C3")
def test_a_reference_to_elsewhere_is_never_fetched() -> None:
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        port = server.getsockname()[1]
        for reference in (f"http://127.0.0.1:{port}/schema.json", "file:///etc/hosts"):
            with pytest.raises(BadSchema):
                CheckedSchema({"$ref": reference})
        try:
            server.accept()[0].close()
            asked.set()
        except TimeoutError:
            pass
    assert not asked.is_set()


def test_a_broken_schema_says_what_is_wrong() -> None:
    with pytest.raises(BadSchema, match="regex"):
        CheckedSchema({"pattern": "("})


GATE, ANYTHING = SchemaGate(), ToolSpec("any", "", {"additionalProperties": True})
"""One for all examples: to compile a schema takes longer than to check by it."""


@given(
    st.dictionaries(
        st.text(max_size=5), st.recursive(st.integers(-9, 9) | st.text(max_size=3), st.lists, max_leaves=5)
    )
)
def test_canonical_json_is_the_same_for_every_order_of_keys(values: dict[str, Any]) -> None:
    forward = GATE.check(ANYTHING, json.dumps(values))
    backward = GATE.check(ANYTHING, json.dumps(dict(reversed(values.items())), indent=3))
    assert forward == backward
    assert isinstance(forward, Arguments)
    assert json.loads(forward.canonical) == values


def test_closing_a_schema_keeps_what_it_says() -> None:
    assert closed({"properties": {}}) == {"type": "object", "properties": {}, "additionalProperties": False}
    assert closed({"unevaluatedProperties": True}) == {"unevaluatedProperties": True}
