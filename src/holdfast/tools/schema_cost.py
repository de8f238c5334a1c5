"""Counts in advance what it costs to check a value against a schema, because a validator cannot be interrupted.

A schema of one page can ask for more checks than there are atoms: references double, in one place or at every level
of the value; `unevaluatedProperties` checks everything beside it again; a pattern tries every way to match. This
counts the subschemas that a validator without memory would check, and never too few. If a reference may mean
several places, the most expensive one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

MAX_STEPS = 5_000_000
"""About half a second of a validator's time."""
QUICK_STEPS = 200_000
"""Up to this rough bound, checking does not block other sessions for long."""
BACKTRACKS = 10_000
"""How often a pattern may backtrack. Then it does not match."""

_MAX_NODES = 5_000
"""The most objects and lists in a schema: the cost of compiling grows faster than they do."""
_MAX_PATTERNS = 200
_MAX_IN_PLACE = 10_000
"""The most subschemas that check one place of a value."""
_MAX_DEPTH = 400
"""The most nested subschemas, on one path from the root of schema and value to a leaf."""
_MAX_PAIRS = 100_000
"""The most pairs of a subschema and a part of a value that are examined to count."""
_ENDLESS = 1 << 62
_AGAIN = 4
"""How often an `unevaluated...` checks what is beside it."""
_BACKTRACKING = re.compile(r"\(\?[^:]|\\[1-9kKGg]|[*+?}]\+")
"""Occurs in every pattern that needs backtracking (and in some others)."""
_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_IN_PLACE_MAPS = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_OF_MEMBERS = ("additionalProperties", "unevaluatedProperties")
_OF_ITEMS = ("contains", "additionalItems", "unevaluatedItems", "items")
_ELSEWHERE: dict[str, Any] = {"enum": [None] * 200}
"""The schema that describes schemas. Every validator knows it."""
_ELSEWHERE |= {"items": _ELSEWHERE, "additionalProperties": _ELSEWHERE}


class TooCostly(ValueError):
    """The schema is too costly. The message says why."""


class SchemaCost:
    """The cost of one schema.

    Raises:
        TooCostly: the schema is too large, or checks one place of a value against too many subschemas.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root = schema
        self._resources: list[tuple[str, Mapping[str, Any]]] = []
        self._anchors: dict[str, list[Mapping[str, Any]]] = {}
        self._targets: dict[str, list[Any]] = {}
        nodes = self._indexed()
        in_place: dict[int, int] = {}
        for node in nodes:
            if self._in_place(node, in_place, 0) > _MAX_IN_PLACE:
                raise TooCostly("it checks one place of a value against too many subschemas")
        self._paths = self._ways(schema, {}, 0)

    def is_quick(self, text: str) -> bool:
        """Return whether counting, checking, converting and describing a value with this JSON take milliseconds."""
        return self._paths * (len(text) + 1) <= QUICK_STEPS

    def steps(self, value: Any, text: str) -> int:
        """Return the most steps that a validator takes with the value, whose JSON is `text`. This is a rough bound if
        that is low enough, and just over `MAX_STEPS` if counting takes too long.
        """
        if self._paths * (len(text) + 1) <= MAX_STEPS:
            return self._paths * (len(text) + 1)
        parts = 1 + text.count(",") + text.count(":") + text.count("[") + text.count("{")
        rough = self._paths * parts
        return rough if rough <= MAX_STEPS else self._counted(value, BACKTRACKS)

    def errors(self, value: Any) -> int:
        """Return the most errors that a validator finds in the value."""
        return self._counted(value, 1)

    def _counted(self, value: Any, backtracks: int) -> int:
        try:
            return self._count(self._root, value, _Counting(backtracks, {}), 0)
        except TooCostly:
            return MAX_STEPS + 1

    # --- the schema alone -----------------------------------------------------------------------

    def _indexed(self) -> list[Mapping[str, Any]]:
        """Yield all objects of the schema, and note where references may lead."""
        found: list[Mapping[str, Any]] = []
        rest: list[Any] = [self._root]
        count = patterns = 0
        while rest:
            node = rest.pop()
            count += 1
            if isinstance(node, Mapping):
                found.append(node)
                self._note(node)
                patterns += isinstance(node.get("pattern"), str)
                among = node.get("patternProperties")
                patterns += len(among) if isinstance(among, Mapping) else 0
            inner = node.values() if isinstance(node, Mapping) else node
            rest += [each for each in inner if isinstance(each, (Mapping, list, tuple))]
            if count + len(rest) > _MAX_NODES or patterns > _MAX_PATTERNS:
                raise TooCostly(f"it has more than {_MAX_NODES} parts or {_MAX_PATTERNS} patterns")
        return found

    def _note(self, node: Mapping[str, Any]) -> None:
        for keyword in ("$id", "id"):
            if isinstance(name := node.get(keyword), str):
                self._resources.append((_tail(name), node))
                self._anchors.setdefault(name.removeprefix("#"), []).append(node)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := node.get(keyword), str):
                self._anchors.setdefault(name, []).append(node)

    def _in_place(self, node: object, known: dict[int, int], depth: int) -> int:
        """Yield the subschemas that check a value together with this one."""
        if not isinstance(node, Mapping):
            return 1
        if id(node) not in known:
            if depth > _MAX_DEPTH:
                raise TooCostly("its references are nested too deeply")
            known[id(node)] = 0
            beside = 0
            for inner in self._beside(node):
                beside += self._in_place(inner, known, depth + 1)
                if beside > _MAX_IN_PLACE:
                    break
            known[id(node)] = 1 + _times(node) * beside
        if not known[id(node)]:
            raise TooCostly("it refers to itself in one place")
        return known[id(node)]

    def _ways(self, node: object, known: dict[int, int], depth: int) -> int:
        """Return the number of paths from this subschema to all below it; infinite if it leads back to itself."""
        if not isinstance(node, Mapping):
            return 1
        if id(node) not in known:
            known[id(node)] = _ENDLESS
            if depth > _MAX_DEPTH:
                return _ENDLESS
            ways = _weight(node, BACKTRACKS) + _matching(node, BACKTRACKS)
            for inner in self._beside(node):
                ways += _times(node) * self._ways(inner, known, depth + 1)
            for inner in _below(node):
                ways += self._ways(inner, known, depth + 1)
            known[id(node)] = min(ways, _ENDLESS)
        return known[id(node)]

    def _beside(self, node: Mapping[str, Any]) -> Iterator[Any]:
        """Return the subschemas for the same place of a value."""
        for keyword in _IN_PLACE_LISTS:
            yield from _listed(node.get(keyword))
        for keyword in _IN_PLACE:
            if keyword in node:
                yield node[keyword]
        for keyword in _IN_PLACE_MAPS:
            yield from _mapped(node.get(keyword)).values()
        for keyword in _REFERENCES:
            if isinstance(reference := node.get(keyword), str):
                yield from self._meant(reference)

    def _meant(self, reference: str) -> list[Any]:
        """Return what a reference may mean."""
        if reference not in self._targets:
            name, _, fragment = reference.partition("#")
            fragment, tail = unquote(fragment), _tail(name)
            resources = [
                node for its, node in self._resources if not name or its == tail or tail in (".", "..")
            ]
            resources += [self._root] if not name else []
            if fragment and not fragment.startswith("/"):
                found = self._anchors.get(fragment, [])
            else:
                found = [_at(resource, fragment) for resource in resources]
            unique = {id(each): each for each in found if each is not None}
            self._targets[reference] = list(unique.values()) or [_ELSEWHERE]
        return self._targets[reference]

    # --- the schema and a value -----------------------------------------------------------------

    def _count(self, node: object, value: Any, counting: _Counting, depth: int) -> int:
        if not isinstance(node, Mapping):
            return 1
        is_whole = isinstance(value, (dict, list))
        pair = (id(node), id(value) if is_whole else isinstance(value, str))
        if pair not in counting.known:
            if depth > _MAX_DEPTH or len(counting.known) > _MAX_PAIRS:
                raise TooCostly("there is too much to count")
            steps = _weight(node, counting.backtracks)
            if isinstance(value, dict):
                steps += _matching(node, counting.backtracks) * len(value)
            for inner in self._beside(node):
                steps += _times(node) * self._count(inner, value, counting, depth + 1)
            for inner, part in _parts(node, value):
                steps += self._count(inner, part, counting, depth + 1)
                if steps > MAX_STEPS:
                    break
            if steps > MAX_STEPS:
                raise TooCostly("it takes too many steps")
            counting.known[pair] = steps
        return counting.known[pair]


class _Counting(NamedTuple):
    """A count in progress."""

    backtracks: int
    """Return the steps of a pattern that needs backtracking."""
    known: dict[tuple[int, int], int]
    """Return the steps for each pair of a subschema and a part of the value; for text, or for another scalar."""


def _parts(node: Mapping[str, Any], value: Any) -> Iterator[tuple[Any, Any]]:
    """Return the subschemas for the parts of a value, each with its part."""
    if isinstance(value, dict):
        named, patterns = _mapped(node.get("properties")), _mapped(node.get("patternProperties"))
        for name, part in value.items():
            if name in named:
                yield named[name], part
            for inner in patterns.values():
                yield inner, part
            for keyword in _OF_MEMBERS:
                if keyword in node:
                    yield node[keyword], part
            if "propertyNames" in node:
                yield node["propertyNames"], name
    elif isinstance(value, list):
        placed = [*_listed(node.get("prefixItems")), *_listed(node.get("items"))]
        yield from zip(placed, value, strict=False)
        for keyword in _OF_ITEMS:
            if keyword in node:
                for part in value:
                    yield node[keyword], part


def _below(node: Mapping[str, Any]) -> Iterator[Any]:
    """Return the subschemas for the parts of a value."""
    for keyword in ("properties", "patternProperties"):
        yield from _mapped(node.get(keyword)).values()
    for keyword in ("prefixItems", "items"):
        yield from _listed(node.get(keyword))
    for keyword in (*_OF_MEMBERS, *_OF_ITEMS, "propertyNames"):
        if keyword in node:
            yield node[keyword]


def _weight(node: Mapping[str, Any], backtracks: int) -> int:
    """Return the steps of a subschema itself."""
    pattern = node.get("pattern")
    match = _match(pattern, backtracks) if isinstance(pattern, str) else 0
    return 1 + len(_listed(node.get("enum"))) + match


def _matching(node: Mapping[str, Any], backtracks: int) -> int:
    """Return the steps to check one name against all `patternProperties`."""
    return sum(_match(pattern, backtracks) for pattern in _mapped(node.get("patternProperties")))


def _match(pattern: str, backtracks: int) -> int:
    return backtracks if _BACKTRACKING.search(pattern) else 1


def _times(node: Mapping[str, Any]) -> int:
    """Return how often what is beside it is checked."""
    return _AGAIN if "unevaluatedProperties" in node or "unevaluatedItems" in node else 1


def _at(resource: Any, pointer: str) -> Any:
    """Return the target of a JSON pointer; None if it points nowhere."""
    here = resource
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping):
            here = here.get(name)
        elif isinstance(here, (list, tuple)) and name.isdecimal() and int(name) < len(here):
            here = here[int(name)]
        else:
            return None
    return here


def _tail(name: str) -> str:
    """Return the part of an address that stays when another is resolved against it."""
    return name.partition("#")[0].rpartition("/")[2]


def _listed(value: object) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _mapped(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
