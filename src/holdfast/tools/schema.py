"""The schema gate: turns a model's arguments into canonical JSON, or into a failure that says how to fix them.

`conversion` reads arguments that do not fit, if their meaning is unambiguous. jsonschema-rs validates; it never
fetches a `$ref`. Each schema is compiled once. `schema_cost` limits the cost of a check, and `policy` decides about a
valid call.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.protocol.counts import counted
from holdfast.protocol.failures import Failure
from holdfast.protocol.tools import ToolSpec
from holdfast.protocol.untrusted import decode_exact
from holdfast.tools.conversion import converted
from holdfast.tools.schema_cost import BACKTRACKS, MAX_STEPS, SchemaCost, TooCostly

if TYPE_CHECKING:
    import jsonschema_rs

MAX_ERRORS = 5_000
"""Errors are described only up to this many: a validator puts all of them into words."""
MAX_COMPILED = 512
"""The most compiled schemas that are kept. The next one begins anew."""
_PATTERN_BYTES = 1 << 20
"""The memory limit of a compiled pattern."""
_SHOWN_CHARS = 80
"""A longer value or name is not quoted, not even in part: nobody would mask a part of a secret."""
_SHOWN_OPTIONS_CHARS = 400
_MAX_PROBLEMS = 5
_MAX_NAMES = 5
_MAX_STRIPS = 8
"""How often unknown arguments are looked for: once for each depth at which there are some."""
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
    """The schema of a tool cannot be used. The message says why."""


class Arguments(msgspec.Struct, frozen=True):
    """Arguments that passed the schema."""

    values: dict[str, Any]
    canonical: str
    """The arguments as canonical JSON: sorted keys, no spaces. This is run, hashed and approved."""
    conversions: tuple[str, ...] = ()
    """What the model wrote in another way and meant without doubt; empty if it runs as written."""
    stripped: tuple[str, ...] = ()
    """The paths of arguments that the tool does not take, and that were left out."""


class CheckedSchema:
    """A schema that checks values in bounded time.

    Raises:
        BadSchema: it is not a schema, refers to something outside itself, or costs too much.
    """

    def __init__(self, schema: Mapping[str, Any] | bool, draft: str = "") -> None:
        """Read the schema as draft 2020-12, unless `$schema` or `draft` ("draft7") says otherwise."""
        import jsonschema_rs  # slow to import: loaded with the first call of a tool

        options: dict[str, Any] = {
            "offline": True,
            "pattern_options": jsonschema_rs.FancyRegexOptions(
                backtrack_limit=BACKTRACKS, size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES
            ),
        }
        make = jsonschema_rs.Draft7Validator if draft == "draft7" else jsonschema_rs.validator_for
        plain = schema if isinstance(schema, bool) else dict(schema)
        try:
            self._cost = SchemaCost(plain if isinstance(plain, dict) else {})
            self._validator: jsonschema_rs.Validator = make(plain, **options)
        except (
            TooCostly, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError
        ) as error:  # fmt: skip
            steps = error.instance_path if isinstance(error, jsonschema_rs.ValidationError) else []
            where = f"{_path(steps, '')}: " if steps else ""
            raise BadSchema(f"{where}{str(error).partition(chr(10))[0].rstrip('.')}") from None

    def is_quick(self, text: str) -> bool:
        """Return whether checking a value with this JSON takes a few milliseconds. Otherwise check it in a thread."""
        return self._cost.is_quick(text)

    def problem(self, value: Any, text: str, known: list[str], subject: str = "the call") -> str:
        """Return what is wrong with a value; empty if it is valid.

        Args:
            value: The value to check.
            text: The value as JSON.
            known: The names that the value's members may have.
            subject: What the value is, for the words.
        """
        if self._cost.steps(value, text) > MAX_STEPS:
            return f"{subject} cannot be checked against its schema: it is too large or nested too deeply"
        if self._validator.is_valid(value):
            return ""
        if self._cost.errors(value) > MAX_ERRORS:
            return f"{subject} does not fit its schema, and is too large to say where"
        return _problems(self._validator, value, known, subject)

    def strip(self, value: Any, text: str) -> tuple[str, ...]:
        """Remove the members that their objects do not take, and return their paths; empty if nothing is removed.

        Args:
            value: The value. It is changed in place.
            text: The value as JSON.
        """
        removed: dict[str, None] = {}
        for _ in range(_MAX_STRIPS):
            if self._cost.steps(value, text) > MAX_STEPS or self._cost.errors(value) > MAX_ERRORS:
                break
            found = list(self._unknown(value))
            deepest = max((len(steps) for steps, _ in found), default=0)
            # An object with an unknown member may count as unknown itself, so the innermost go first.
            for steps, names in found:
                if len(steps) == deepest:
                    holder = reduce(getitem, steps, value)
                    for name in sorted(names & holder.keys()):
                        del holder[name]
                        removed[_path([*steps, name], "")] = None
            if not found:
                break
        return tuple(removed)

    def _unknown(self, value: Any) -> Iterator[tuple[list[str | int], set[str]]]:
        """Yield the path of each object with members that it does not take, and their names."""
        for error in self._validator.iter_errors(value):
            if error.kind.name in _OPEN_KEYWORDS:
                yield list(error.instance_path), set(error.kind.as_dict()["unexpected"])


class SchemaGate:
    """The compiled schemas, by the hash of their text: a tool may be removed, and added again with another one."""

    def __init__(self) -> None:
        self._schemas: dict[bytes, CheckedSchema] = {}

    @property
    def compiled(self) -> int:
        """How many schemas are kept."""
        return len(self._schemas)

    def check_at_once(self, spec: ToolSpec, text: str, *, strips: bool = False) -> Arguments | Failure | None:
        """Do what `check` does; return None if that may take longer than a few milliseconds."""
        schema = self._of(spec)
        return self._checked(spec, schema, text, strips=strips) if schema.is_quick(text) else None

    def check(self, spec: ToolSpec, text: str, *, strips: bool = False) -> Arguments | Failure:
        """Return the arguments in a text that a model wrote. An empty text is an empty object.

        Args:
            strips: Leave out the arguments that the tool does not take, instead of refusing them.

        Raises:
            BadSchema: the tool's schema cannot be used.
        """
        return self._checked(spec, self._of(spec), text, strips=strips)

    def _checked(
        self, spec: ToolSpec, schema: CheckedSchema, text: str, *, strips: bool
    ) -> Arguments | Failure:
        try:
            values = decode_exact(text or "{}")
            canonical = msgspec.json.encode(values, order="sorted").decode()
        except (msgspec.MsgspecError, UnicodeError) as error:
            message = (
                f"{spec.name}: the arguments are not valid JSON ({error}). Nothing ran. Send one JSON object."
            )
            return Failure("invalid_json", message)
        known = list(spec.parameters.get("properties", {}))
        if not isinstance(values, dict):
            problem = f"the arguments must be a JSON object, not {_named(values)}"
        else:
            problem = schema.problem(values, canonical, known)
        if not problem:
            return Arguments(values, canonical)
        stripped: tuple[str, ...] = ()
        if strips and isinstance(values, dict) and (stripped := schema.strip(values, canonical)):
            canonical = msgspec.json.encode(values, order="sorted").decode()
            problem = schema.problem(values, canonical, known)
            if not problem:
                return Arguments(values, canonical, stripped=stripped)
        meant = converted(closed(spec.parameters), values)
        if meant is not None and isinstance(meant.value, dict):
            canonical = msgspec.json.encode(meant.value, order="sorted").decode()
            if not schema.problem(meant.value, canonical, known):
                return Arguments(meant.value, canonical, meant.notes, stripped)
        return _invalid(spec, f"{problem}.")

    def _of(self, spec: ToolSpec) -> CheckedSchema:
        try:
            key = hashlib.sha256(msgspec.json.encode(spec.parameters)).digest()
        except RecursionError:
            raise BadSchema("it is nested too deeply") from None
        schema = self._schemas.get(key)
        if schema is None:
            schema = CheckedSchema(closed(spec.parameters))
            if len(self._schemas) >= MAX_COMPILED:
                self._schemas = {}  # a new one: a thread may be reading the old one
            self._schemas[key] = schema
        return schema


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an arguments object. It allows no unknown arguments, unless the schema itself mentions
    them.
    """
    if any(keyword in schema for keyword in _OPEN_KEYWORDS):
        return dict(schema)
    is_composed = any(keyword in schema for keyword in ("$ref", "$dynamicRef", *_IN_PLACE_LISTS, *_IN_PLACE))
    keyword = "unevaluatedProperties" if is_composed else "additionalProperties"
    return {"type": "object", **schema, keyword: False}


def arguments_object(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an arguments object with only these arguments."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


# --- words for the model ------------------------------------------------------------------------


def _problems(validator: jsonschema_rs.Validator, values: Any, known: list[str], subject: str) -> str:
    problems: list[str] = []
    for error in validator.iter_errors(values):
        if len(problems) == _MAX_PROBLEMS:
            problems.append("and more")
            break
        problems.append(_problem(error, known, subject))
    return "; ".join(problems)


def _problem(error: jsonschema_rs.ValidationError, known: list[str], subject: str) -> str:
    where, facts = _path(error.instance_path, subject), error.kind.as_dict()
    match error.kind.name:
        case "additionalProperties" | "unevaluatedProperties":
            unexpected = facts["unexpected"]
            names = [_quoted(name) for name in unexpected[:_MAX_NAMES]]
            if len(unexpected) > _MAX_NAMES:
                names.append(f"{len(unexpected) - _MAX_NAMES:,} more")
            is_argument = known and not error.instance_path
            hints = "".join(_nearest(name, known) for name in unexpected[:_MAX_NAMES]) if is_argument else ""
            return f"{where} does not take {', '.join(names)}{hints}"
        case "required":
            return f"{where} needs {facts['property']!r}, which is missing"
        case "type":
            return f"{where} must be {' or '.join(facts['types'])}, not {_named(error.instance)}"
        case "enum":
            return f"{where} must be one of {_listed(facts['options'])}, not {_named(error.instance)}"
        case keyword:
            rule = _json(facts.get("limit", facts.get("pattern", facts.get("expected_value", ""))))
            told = f" {rule}" if rule != '""' else ""
            return f"{where} breaks the rule `{keyword}{told}`: it is {_named(error.instance)}"


def _path(steps: list[str | int], subject: str) -> str:
    text = "".join(
        f"[{step}]" if isinstance(step, int) else f".{step if len(step) <= _SHOWN_CHARS else _quoted(step)}"
        for step in steps
    )
    return f"`{text.lstrip('.')}`" if text else subject


def _quoted(name: str) -> str:
    return repr(name) if len(name) <= _SHOWN_CHARS else f"a name of {counted(len(name), 'character')}"


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name[:_SHOWN_CHARS], known, n=1, cutoff=0.5)
    if near:
        return f" (did you mean {near[0]!r}?)"
    return f" (it takes {', '.join(known)})" if known else " (it takes no arguments)"


def _named(value: object) -> str:
    kind = next((name for type_, name in _JSON_TYPES if isinstance(value, type_)), "null")
    if value is None:
        return kind
    text = _json(value)
    if len(text) <= _SHOWN_CHARS:
        return f"the {kind} {text}"
    match value:
        case str():
            return f"the {kind} of {counted(len(value), 'character')}"
        case list():
            return f"the {kind} of {counted(len(value), 'item')}"
        case dict():
            return f"the {kind} of {counted(len(value), 'member')}"
    return f"the {kind} of {counted(len(text), 'character')}"


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _listed(options: list[object]) -> str:
    """Return the first options, each of them whole."""
    shown: list[str] = []
    for text in map(_json, options):
        if sum(map(len, shown)) + len(text) > _SHOWN_OPTIONS_CHARS:
            return ", ".join([*shown, f"... ({len(options)} options)"])
        shown.append(text)
    return ", ".join(shown)


def _invalid(spec: ToolSpec, problem: str) -> Failure:
    return Failure("tool_validation", f"{spec.name}: {problem} Nothing was run. Fix the call and try again.")
