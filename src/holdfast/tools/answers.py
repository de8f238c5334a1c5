"""Checks the answers of a run against the JSON Schema in its settings. What follows from it, the core decides."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from holdfast.errors import UsageError
from holdfast.protocol.answers import value_in
from holdfast.protocol.messages import Verdict
from holdfast.protocol.settings import Output, name_of
from holdfast.tools.blocking import in_thread
from holdfast.tools.schema import BadSchema, CheckedSchema

MAX_PROBLEM_CHARS = 1_000
"""How much of what is wrong is recorded and sent to the model."""
_ANSWER = "the answer"


def schema_text(schema: object) -> str:
    """Return a JSON Schema as settings store it. Its order is kept: models answer in the order of the properties.

    Raises:
        UsageError: it is not a JSON Schema, refers to something outside itself, or costs too much to check.
    """
    if not isinstance(schema, dict | bool):
        raise UsageError("A JSON Schema is an object, or true or false.")
    try:
        CheckedSchema(schema)
        return msgspec.json.encode(schema).decode()
    except (BadSchema, TypeError, ValueError) as error:
        raise UsageError(f"It is not a JSON Schema that can be checked: {error}.") from None


async def verdict(output: Output, text: str) -> Verdict:
    """Return whether an answer matches the schema, and if not, where and why. This is a `ports.Judge`."""
    schema = _checked(output.schema)
    problem = (
        _problem(schema, text) if schema.is_quick(text) else await in_thread(lambda: _problem(schema, text))
    )
    return Verdict(name_of(output), problem[:MAX_PROBLEM_CHARS])


@functools.lru_cache(maxsize=16)
def _checked(schema: str) -> CheckedSchema:
    return CheckedSchema(msgspec.json.decode(schema))


def _problem(schema: CheckedSchema, text: str) -> str:
    try:
        value: Any = value_in(text)
        written = msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, UnicodeError) as error:
        return f"{_ANSWER} is not one JSON value ({error})"
    return schema.problem(value, written, [], _ANSWER)
