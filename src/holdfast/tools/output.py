"""The type that a program wants an answer as: its JSON Schema for the model, and how an answer becomes such a value.

`annotations` reads the types, so pydantic is used only if the program has imported it. `answers` checks answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.errors import UsageError
from holdfast.tools.annotations import described, hoisted, placed, schema_of, typed, unwrapped
from holdfast.tools.answers import schema_text
from holdfast.views.report import Result

_TYPES = (
    "Use a dataclass, a TypedDict, a msgspec Struct, a pydantic model, a list[...] of one of them, or a dict with a"
    " JSON Schema. Define the type at module level."
)


class OutputType(msgspec.Struct, frozen=True):
    """What answers become."""

    schema: str
    """As `settings.Output`; empty for words."""
    name: str = "str"
    shape: Any = Any
    """The type as msgspec reads it."""

    def typed(self, result: Result[Any]) -> Result[Any]:
        """Return the result with its answer as the type, which may refuse it for a reason that its schema lacks."""
        if isinstance(result.answer, msgspec.UnsetType) or not self.schema:
            return result
        try:
            answer = unwrapped(typed(result.answer, self.shape))
        except (ValueError, msgspec.MsgspecError) as error:
            # A run that is done keeps its answer, whatever type is asked for later.
            why = placed(error) if isinstance(error, msgspec.ValidationError) else str(error)
            why = f"The answer cannot be read as {self.name}: {why}"
            return msgspec.structs.replace(result, answer=msgspec.UNSET, message=why)
        return msgspec.structs.replace(result, answer=answer)


WORDS = OutputType("")


def output_type(wanted: Any) -> OutputType:
    """Return the output type of a class, of a `list[...]` of one, or of a JSON Schema. `str` and None mean words.

    Raises:
        UsageError: it has no JSON Schema, or one that cannot be checked.
    """
    if wanted is None or wanted is str:
        return WORDS
    if isinstance(wanted, Mapping):
        return OutputType(_checked(dict(wanted), "the schema"), "the schema")
    name = getattr(wanted, "__name__", "") if isinstance(wanted, type) else ""
    name = name or str(wanted)
    try:
        shape = described(wanted, ())
        (schema,), definitions = msgspec.json.schema_components([shape], schema_hook=schema_of)
    except (TypeError, ValueError, NameError, NotImplementedError) as error:
        raise UsageError(f"output = {name} has no JSON Schema: {error}", hint=_TYPES) from None
    for each in [*definitions]:
        definitions[each] = hoisted(definitions[each], definitions)
    whole = hoisted(schema, definitions)
    return OutputType(_checked(whole | ({"$defs": definitions} if definitions else {}), name), name, shape)


def _checked(schema: dict[str, Any], name: str) -> str:
    try:
        return schema_text(schema)
    except UsageError as error:
        raise UsageError(f"output = {name}: {error.message}", hint=_TYPES) from None
