"""Which calls of a text could run, and what is said about the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.protocol.tools import ToolSpec
from holdfast.tools import schema
from holdfast.tools.text_calls import TextChecker

pytestmark = pytest.mark.requirement("S3")

LOOK = ToolSpec(
    "look",
    "Looks.",
    {
        "type": "object",
        "properties": {"at": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer"}}},
        "required": ["at"],
    },
    "read",
)
STOP = ToolSpec("stop", "Stops.", {"type": "object", "properties": {}}, "read")
TOOLS = {"look": LOOK, "stop": STOP}


def call(**arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': 'look', 'arguments': arguments})}</tool_call>"


def test_an_unknown_tool_is_refused_with_the_names_of_those_that_there_are() -> None:
    (told,) = TextChecker().read(call(at="a"), {"stop": STOP, "halt": STOP}).rejected
    assert (told.reason, told.name, told.arguments) == ("unknown_tool", "look", {"at": "a"})
    assert told.why == "there is no such tool; known: stop, halt"
    (told,) = TextChecker().read(call(at="a"), {}).rejected
    assert told.why == "there is no such tool; known: none"


def test_arguments_that_do_not_fit_are_told_with_what_was_wrong() -> None:
    (told,) = TextChecker().read(call(at=5), TOOLS).rejected
    assert (told.reason, told.name, told.arguments) == ("schema", "look", {"at": 5})
    assert "`at` must be string" in told.why


def test_what_could_not_be_read_is_told_with_its_beginning_and_the_reason() -> None:
    text = '<tool_call>{"name": "look", "arguments": {"at"'
    (told,) = TextChecker().read(text, TOOLS).rejected
    assert (told.reason, told.why) == ("truncated", "the text ends inside the call")
    assert told.text.startswith('<tool_call>{"name": "look"')


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({"at": "a", "lines": 1}, {"at": "a", "lines": [1]}),
        ({"at": "a", "lines": "[1, 2]"}, {"at": "a", "lines": [1, 2]}),
        ({"arguments": {"at": "a"}}, {"at": "a"}),
    ],
)
def test_arguments_with_one_meaning_are_read_as_the_schema_wants_them(
    given: dict[str, Any], arguments: dict[str, Any]
) -> None:
    (read,) = TextChecker().read(call(**given), TOOLS).calls
    assert read.arguments == arguments


def test_without_a_format_every_family_is_read() -> None:
    mistral = '[TOOL_CALLS][{"name": "look", "arguments": {"at": "a"}}]'
    for text in (call(at="a"), mistral):
        assert [each.arguments for each in TextChecker().read(text, TOOLS).calls] == [{"at": "a"}]


def test_each_schema_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    begin = schema.CheckedSchema.__init__

    def counted(self: schema.CheckedSchema, *args: Any, **more: Any) -> None:
        made.append(self)
        begin(self, *args, **more)

    monkeypatch.setattr(schema.CheckedSchema, "__init__", counted)
    checker = TextChecker()
    for _ in range(3):
        assert len(checker.read(call(at="a") * 2, TOOLS).calls) == 2
    assert len(made) == 1


@pytest.mark.parametrize(("value", "reason"), [("\ud800", "schema"), ("[" * 200 + "]" * 200, "invalid_json")])
def test_arguments_that_no_json_can_hold_are_refused(value: str, reason: str) -> None:
    """A format that writes its arguments as plain text lets through what JSON would not."""
    text = f"<tool_call>\n<function=look>\n<parameter=more>\n{value}\n</parameter>\n</function>\n</tool_call>"
    read = TextChecker().read(text, TOOLS)
    assert [(each.reason, each.name) for each in read.rejected] == [(reason, "look")]
    assert not read.calls
