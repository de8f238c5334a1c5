"""The schema gate: a model's arguments as canonical JSON, or a failure that says how to mend them.

Validation is jsonschema-rs; nothing is ever fetched for a `$ref`. Schemas are compiled once. Whether a valid
call may happen is `policy`'s.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.protocol.failures import Failure
from holdfast.protocol.tools import ToolSpec
from holdfast.protocol.untrusted import decode_untrusted

if TYPE_CHECKING:
    import jsonschema_rs

MAX_APPLICATIONS = 10_000
"""Subschemas that one value may be held against: a schema that doubles 40 times could not be interrupted."""
_BACKTRACKS = 100_000
_SHOWN_CHARS = 80
_MAX_PROBLEMS = 5
_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_OPEN_KEYWORDS = ("additionalProperties", "unevaluatedProperties")
_JSON_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (str, "string"),
    (int, "integer"),
    (float, "number"),
    (list, "array"),
    (dict, "object"),
)


class BadSchema(ValueError):
    """A tool's schema cannot be used; the message says why."""


class Arguments(msgspec.Struct, frozen=True):
    """Arguments that passed."""

    values: dict[str, Any]
    canonical: str
    """The same as JSON: keys sorted, no blanks. What is run, hashed and approved."""


class SchemaGate:
    """The compiled schema of each tool, by the tool's name."""

    def __init__(self) -> None:
        self._validators: dict[str, jsonschema_rs.Validator] = {}

    def check(self, spec: ToolSpec, text: str) -> Arguments | Failure:
        """The arguments in a text that a model wrote. An empty text is an empty object.

        Raises:
            BadSchema: the tool's schema cannot be compiled.
        """
        try:
            values = decode_untrusted(text or "{}")
            canonical = msgspec.json.encode(values, order="sorted").decode()
        except (msgspec.MsgspecError, UnicodeError) as error:
            return _invalid(spec, f"the arguments are not valid JSON ({error}). Send one JSON object.")
        if not isinstance(values, dict):
            return _invalid(spec, f"the arguments must be a JSON object, not {_named(values)}.")
        validator = self._validators.get(spec.name)
        if validator is None:
            validator = self._validators[spec.name] = compiled(closed(spec.parameters))
        if validator.is_valid(values):
            return Arguments(values, canonical)
        return _invalid(spec, _problems(validator, values, spec.parameters))


def compiled(schema: Mapping[str, Any] | bool, draft: str = "") -> jsonschema_rs.Validator:
    """A validator of a schema; of draft 2020-12 unless `$schema` or `draft` ("draft7") says otherwise.

    Raises:
        BadSchema: it is no schema, refers to something outside of itself, or multiplies beyond measure.
    """
    import jsonschema_rs  # heavy: loaded with the first call of a tool

    if isinstance(schema, Mapping) and _applications(schema, schema, {}) > MAX_APPLICATIONS:
        raise BadSchema("the schema holds a value against too many subschemas")
    options: dict[str, Any] = {
        "offline": True,
        "pattern_options": jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
    }
    make = jsonschema_rs.Draft7Validator if draft == "draft7" else jsonschema_rs.validator_for
    plain = schema if isinstance(schema, bool) else dict(schema)
    try:
        return make(plain, **options)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise BadSchema(str(error).partition("\n")[0]) from None


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an arguments object that takes no unknown arguments, unless it says itself what it does
    with them."""
    if any(keyword in schema for keyword in _OPEN_KEYWORDS):
        return dict(schema)
    is_composed = any(keyword in schema for keyword in ("$ref", "$dynamicRef", *_IN_PLACE_LISTS, *_IN_PLACE))
    keyword = "unevaluatedProperties" if is_composed else "additionalProperties"
    return {"type": "object", **schema, keyword: False}


def arguments_object(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of an arguments object that takes these and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _applications(schema: object, root: Mapping[str, Any], known: dict[str, int]) -> int:
    """The most subschemas that one value is held against in one place; references inside are followed."""
    if not isinstance(schema, Mapping):
        return 1
    count = 1
    for keyword in _IN_PLACE_LISTS:
        branches = schema.get(keyword)
        count += sum(_applications(branch, root, known) for branch in branches or ()) if branches else 0
    count += sum(_applications(schema[keyword], root, known) for keyword in _IN_PLACE if keyword in schema)
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference not in known:
            known[reference] = 1  # a circle counts once: the validator ends it
            known[reference] = _applications(_target(root, reference), root, known)
        count += known[reference]
    return min(count, MAX_APPLICATIONS + 1)


def _target(root: Mapping[str, Any], reference: str) -> object:
    here: object = root
    for step in reference.removeprefix("#").split("/")[1:] if reference.startswith("#/") else ():
        name = step.replace("~1", "/").replace("~0", "~")
        here = here.get(name) if isinstance(here, Mapping) else None
    return here if reference.startswith("#/") else None


# --- words for the model ------------------------------------------------------------------------


def _problems(validator: jsonschema_rs.Validator, values: dict[str, Any], schema: Mapping[str, Any]) -> str:
    known = list(schema.get("properties", {}))
    problems: list[str] = []
    for error in validator.iter_errors(values):
        if len(problems) == _MAX_PROBLEMS:
            problems.append("and more")
            break
        problems.append(_problem(error, known))
    return "; ".join(problems) + "."


def _problem(error: jsonschema_rs.ValidationError, known: list[str]) -> str:
    where, facts = _path(error.instance_path), error.kind.as_dict()
    match error.kind.name:
        case "additionalProperties" | "unevaluatedProperties":
            unexpected = facts["unexpected"]
            hints = "".join(_nearest(name, known) for name in unexpected) if not error.instance_path else ""
            return f"{where} takes no {', '.join(map(repr, unexpected))}{hints}"
        case "required":
            return f"{where} needs {facts['property']!r}, which is missing"
        case "type":
            return f"{where} must be {' or '.join(facts['types'])}, not {_named(error.instance)}"
        case "enum":
            options = ", ".join(map(_json, facts["options"]))
            return f"{where} must be one of {_clipped(options, 400)}, not {_named(error.instance)}"
        case keyword:
            rule = _json(facts.get("limit", facts.get("pattern", facts.get("expected_value", ""))))
            told = f" {rule}" if rule != '""' else ""
            return f"{where} breaks the rule `{keyword}{told}`: it is {_named(error.instance)}"


def _path(steps: list[str | int]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return f"`{text.lstrip('.')}`" if text else "the call"


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f" (did you mean {near[0]!r}?)"
    return f" (it takes {', '.join(known)})" if known else " (it takes no arguments)"


def _named(value: object) -> str:
    kind = next((name for type_, name in _JSON_TYPES if isinstance(value, type_)), "null")
    return kind if value is None else f"the {kind} {_clipped(_json(value), _SHOWN_CHARS)}"


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _clipped(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}... ({len(text)} characters)"


def _invalid(spec: ToolSpec, problem: str) -> Failure:
    return Failure("tool_validation", f"{spec.name}: {problem} Nothing was run; mend the call and try again.")
