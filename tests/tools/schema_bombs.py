"""Schemas and arguments that would keep a validator busy for longer than anyone lives, and a program that holds
them against the gate.

    python -m tests.tools.schema_bombs    prints a JSON list [NAME, what came of it] a line; every bomb may use
                                          a few seconds of the processor, then the program is killed
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.protocol.failures import Failure
from holdfast.protocol.tools import ToolSpec
from holdfast.tools.schema import BadSchema, SchemaGate

CPU_S = 5
"""Each bomb is through in a fraction of that, also on a slow machine."""

Schema = dict[str, Any]


def doubling(link: Callable[[Schema], Schema], leaf: object = None, times: int = 40) -> Schema:
    """Definitions of which each refers to the next in a way that `link` tells."""
    defs: Schema = {f"a{n}": link({"$ref": f"#/$defs/a{n + 1}"}) for n in range(times)}
    defs[f"a{times}"] = {"type": "integer"} if leaf is None else leaf
    return {"properties": {"p": {"$ref": "#/$defs/a0"}}, "$defs": defs}


def recursive(node: Schema) -> Schema:
    """A definition `n` that refers to itself."""
    return {"properties": {"p": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}}


def nested(levels: int, wrap: Callable[[Any], Any], leaf: object = 1) -> object:
    value = leaf
    for _ in range(levels):
        value = wrap(value)
    return value


def _unevaluated(inner: Schema, keyword: str) -> Schema:
    return {"anyOf": [inner], keyword: {"type": "string"}}


N: Schema = {"$ref": "#/$defs/n"}
ANCHORED: Schema = {"$dynamicRef": "#n"}
OBJECT = ["object", "integer"]
DEEP = nested(100, lambda value: {"a": value})
DEEP_WRONG = nested(100, lambda value: {"a": value}, leaf="x")
ANY = {"additionalProperties": True}


def bombs() -> Iterator[tuple[str, Schema, Any]]:
    """Name, schema of the arguments, arguments."""
    for where in ("allOf", "anyOf", "oneOf"):
        yield f"{where} below a property", doubling(lambda ref, where=where: {where: [ref, ref]}), {"p": 1}  # type: ignore[misc]
    yield "if and else", doubling(lambda ref: {"if": ref, "then": ref, "else": ref}), {"p": 1}
    yield "not and allOf", doubling(lambda ref: {"not": {"not": ref}, "allOf": [ref]}), {"p": 1}
    dependent = doubling(lambda ref: {"dependentSchemas": {"x": ref, "y": ref}})
    yield "dependentSchemas", dependent, {"p": {"x": 1, "y": 1}}
    siblings = doubling(lambda ref: {"$ref": ref["$ref"], "allOf": [ref]})
    yield "a reference beside another", siblings, {"p": 1}
    never = {"items": doubling(lambda ref: {"allOf": [ref, ref]})["properties"]["p"]}
    yield "where no value is", {**doubling(lambda ref: {"allOf": [ref, ref]}), **never}, {}
    lists = doubling(lambda ref: {"items": {"allOf": [ref, ref]}})
    yield "with every level of lists", lists, {"p": nested(40, lambda value: [value])}
    contains = doubling(lambda ref: {"contains": {"anyOf": [ref, ref]}, "items": ref})
    yield "contains", contains, {"p": nested(40, lambda value: [value])}
    members = doubling(
        lambda ref: {"properties": {"a": ref}, "additionalProperties": ref, "patternProperties": {"": ref}}
    )
    yield "with every level of objects", members, {"p": nested(40, lambda value: {"a": value})}
    names = {**N, "patternProperties": {"a": N, "^a": N, "b*": N}, "type": OBJECT}
    del names["$ref"]
    yield "a definition in itself, three ways", recursive(names), {"p": DEEP}
    yield "the same, and wrong at the end", recursive(names), {"p": DEEP_WRONG}
    wrong = nested(12, lambda value: {"a": value}, leaf="x")
    yield "the same, few levels but many errors", recursive(names), {"p": wrong}
    twice: Schema = {"type": OBJECT, "anyOf": [{"properties": {"a": N}}, {"properties": {"a": N}}]}
    yield "anyOf in itself", recursive(twice), {"p": DEEP_WRONG}
    dynamic = {"$dynamicAnchor": "n", "allOf": [{"properties": {"a": ANCHORED}}] * 2, "type": OBJECT}
    yield "a dynamic anchor", {"properties": {"p": dynamic}}, {"p": DEEP_WRONG}
    root = {"properties": {"p": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
    yield "the root in itself", {**root, **ANY}, nested(100, lambda value: {"p": value})
    yield "a circle in one place", recursive({"allOf": [N, N]}), {"p": 1}
    pair = {"n": {"allOf": [{"$ref": "#/$defs/m"}] * 2}, "m": {"allOf": [N, N]}}
    yield "a circle of two", {"properties": {"p": N}, "$defs": pair}, {"p": 1}
    for keyword, value in (
        ("unevaluatedProperties", {f"p{n}": "x" for n in range(20)}),
        ("unevaluatedItems", ["x"] * 20),
    ):
        schema: Any = nested(30, lambda inner, keyword=keyword: _unevaluated(inner, keyword), leaf={})  # type: ignore[misc]
        yield keyword, {"properties": {"p": schema}}, {"p": value}
    other = doubling(lambda ref: {"allOf": [{"$ref": "other" + ref["$ref"]}] * 2})
    yield (
        "in a resource of its own",
        {"properties": {"p": {**other["properties"]["p"], "$defs": other["$defs"], "$id": "http://x/other"}}},
        {"p": 1},
    )
    retries = {"type": "array", "items": {"type": "string", "pattern": "(a|a)*(?=b)c"}}
    yield (
        "patterns that try every way",
        {"properties": {"p": retries}},
        {"p": ["a" * 60 + str(n) for n in range(20_000)]},
    )
    among = {"patternProperties": {f"(a|a)*(?=b)c{n}": {} for n in range(50)}}
    yield (
        "names that are tried every way",
        {"properties": {"p": among}},
        {"p": {"a" * 60 + str(n): 1 for n in range(2_000)}},
    )
    yield "a pattern that multiplies", {"properties": {"p": {"pattern": "((a{100}){100}){100}"}}}, {"p": "a"}
    wide = {f"p{n}": {"pattern": r"\p{L}{1000}"} for n in range(2_000)}
    yield "many large patterns", {"properties": wide}, {"p1": "a"}
    yield "many objects", {"properties": {f"p{n}": {"items": {"not": {}}} for n in range(50_000)}}, {}
    yield (
        "many options",
        {"properties": {"p": {"items": {"enum": list(range(4_000))}}}},
        {"p": [-1] * 100_000},
    )
    yield (
        "a schema as deep as it gets",
        nested(5_000, lambda inner: {"properties": {"p": inner}}, leaf={}),
        {},
    )  # type: ignore[misc]
    yield "a chain of references", doubling(lambda ref: ref, times=4_000), {"p": 1}
    yield (
        "many values",
        {"properties": {"p": {"items": N}}, "$defs": {"n": {"items": N}}},
        {"p": [[1, 2]] * 300_000},
    )


def main() -> None:
    """Hold every bomb against the gate."""
    for name, schema, arguments in bombs():
        text = json.dumps(arguments)
        used = resource.getrusage(resource.RUSAGE_SELF)
        until_s = int(used.ru_utime + used.ru_stime) + 1 + CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (until_s, resource.RLIM_INFINITY))
        print(json.dumps([name, _outcome(schema, text)]), flush=True)


def _outcome(schema: Schema, text: str) -> str:
    try:
        checked = SchemaGate().check(ToolSpec("bomb", "", schema), text)
    except BadSchema as error:
        return f"bad schema: {error}"
    return f"refused: {checked.message}" if isinstance(checked, Failure) else "passed"


if __name__ == "__main__":
    sys.exit(main())
