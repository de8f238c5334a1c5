"""What readers of text calls share: the blocks that they find, and the values inside them.

A reader gets the whole text and the position after an opener. It returns a `Block`, or raises why it cannot. Each
reader looks at a character a bounded number of times, and says how far it looked, so that nothing is looked at again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
Reader = Callable[[str, int], "Block"]
"""Reads the block whose opener ends at the position. Raises `Cut`, `MayGoOn`, `Broken` or `NoCall`."""

MAX_NAME_CHARS = 128
_MAX_DEPTH = 64
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?")
_SPACE = re.compile(r"\s*")
_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n?")


class RawCall(msgspec.Struct, frozen=True):
    """A call as it was written, before anybody knows whether there is such a tool."""

    name: str
    arguments: dict[str, Any]
    texts: frozenset[str] = frozenset()
    """The arguments that the format writes as plain text. The schema says their types."""
    strings: frozenset[str] = frozenset()
    """Those of which the format says that they are strings."""


class Block(msgspec.Struct, frozen=True):
    """A block of calls, or of something that is not shown."""

    end: int
    """The position after the block."""
    calls: tuple[RawCall, ...] = ()
    hides_until: tuple[str, ...] = ()
    """Not a call but the beginning of the model's thinking, which one of these ends."""


class Cut(Exception):
    """The text ends inside the block."""


class MayGoOn(Exception):
    """The block is whole, if the text ends here."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block


class NoCall(Exception):
    """What follows the opener cannot be a call: the opener is plain text."""


class Broken(Exception):
    """The block is not readable."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at
        """How far the reader looked."""


# --- moving through a text -----------------------------------------------------------------------


def skip_space(text: str, at: int) -> int:
    """Return the position of the next character other than a space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def expect(text: str, at: int, *literals: str) -> int:
    """Return the position after the literal that follows, with any space before it."""
    at = skip_space(text, at)
    for literal in literals:
        if text.startswith(literal, at):
            return at + len(literal)
    rest = text[at : at + max(map(len, literals))]
    if any(literal.startswith(rest) for literal in literals):
        raise Cut
    raise Broken(at, f"{literals[0]} is missing")


def until(text: str, at: int, literal: str) -> int:
    """Return the position where the literal begins."""
    found = text.find(literal, at)
    if found < 0:
        raise Cut
    return found


def name_in(text: str, at: int) -> str:
    """Return a name without the space around it."""
    name = text.strip()
    if (
        not name
        or len(name) > MAX_NAME_CHARS
        or any(char.isspace() or not char.isprintable() for char in name)
    ):
        raise Broken(at, "the call has no name")
    return name


# --- values --------------------------------------------------------------------------------------


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object names a member twice")
    return members


def _number(written: str) -> float:
    value = float(written)
    if not math.isfinite(value):
        raise ValueError(f"the number {written[:20]} is too large")
    return value


_decoder = json.JSONDecoder(
    strict=False, parse_constant=_no_constant, parse_float=_number, object_pairs_hook=_members
)
_DEEP = "a value is nested too deeply"
_WINDOW_CHARS = 2_048
_LONGEST_ATOM = 13
"""An error so near to the end may vanish when more of the text is there: half a literal, number or escape."""
_RECURSION_CHARS = 400
"""The decoder gives up only after as many brackets, each of them a character."""


def json_at(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value at the position, and the position after it. Line breaks in strings are allowed."""
    at = skip_space(text, at)
    window = _WINDOW_CHARS
    while True:
        # A part of the text: the decoder's errors count the lines of everything before them.
        part = text[at : at + window]
        is_rest = at + window >= len(text)
        try:
            value, end = _decode(part)
        except Cut:
            if is_rest:
                raise
        except Broken as broken:
            raise Broken(at + broken.at, str(broken)) from None
        else:
            # A number at the end may go on.
            if end < len(part) or part[0] in '{["':
                return value, at + end
            if is_rest:
                raise Cut
        window *= 2


def _decode(part: str) -> tuple[Any, int]:
    """Return the JSON value at the beginning of a text, and where it ends."""
    if not part:
        raise Cut
    try:
        value, end = _decoder.raw_decode(part)
        if "\\u" in part:
            msgspec.json.encode(value)
        return value, end
    except UnicodeEncodeError:
        raise Broken(len(part), "an escape is half a character") from None
    except json.JSONDecodeError as error:
        rest = part[error.pos : error.pos + _LONGEST_ATOM]
        if error.pos + _LONGEST_ATOM > len(part) or error.msg.startswith("Unterminated string"):
            raise Cut from None
        raise Broken(error.pos, f"the JSON is not valid: {error.msg} at {rest[:8]!r}") from None
    except RecursionError:
        raise Broken(min(_RECURSION_CHARS, len(part)), _DEEP) from None
    except ValueError as error:
        raise Broken(len(part), f"the JSON is not valid: {error}") from None


def in_whole(read: Callable[[], T], end: int) -> T:
    """Return what is read in a whole part, up to `end` of the text. What is missing in it does not come later."""
    try:
        return read()
    except Cut:
        raise Broken(end, "a value in it is cut off") from None
    except Broken as broken:
        raise Broken(end, str(broken)) from None


def object_at(text: str, at: int) -> tuple[dict[str, Any], int]:
    """Return the JSON object at the position, and the position after it."""
    value, end = json_at(text, at)
    if not isinstance(value, dict):
        raise Broken(end, "the arguments are not a JSON object")
    return value, end


def value_of(text: str) -> Any:
    """Return what a text most plainly is: a number, true, false, null, an object or a list; else the text."""
    plain = text.strip()
    if plain.casefold() in _LITERALS:
        return _LITERALS[plain.casefold()]
    if _NUMBER.fullmatch(plain):
        try:
            return _decoder.decode(plain)
        except ValueError:
            return text
    if plain[:1] in ("{", "["):
        try:
            value, end = json_at(plain, 0)
        except (Cut, Broken):
            return text
        return value if end == len(plain) else text
    return text


# --- calls as JSON -------------------------------------------------------------------------------

_NAMES = ("name", "tool_name", "tool")
_ARGUMENTS = ("arguments", "parameters", "args", "input")


def call_of(value: Any, at: int, *, needs_arguments: bool = False) -> RawCall:
    """Return the call that an object describes: a name, and arguments as an object or as its JSON text."""
    if not isinstance(value, dict):
        raise Broken(at, "a call is not a JSON object")
    function = value.get("function")
    if isinstance(function, dict):
        return call_of(function, at, needs_arguments=needs_arguments)
    name = next((value[key] for key in _NAMES if key in value), function)
    if not isinstance(name, str):
        raise Broken(at, "a call has no name")
    key = next((key for key in _ARGUMENTS if key in value), None)
    if key is None and needs_arguments:
        raise Broken(at, "a call has no arguments")
    arguments = value[key] if key is not None else {}
    if isinstance(arguments, str):
        try:
            arguments = json_at(arguments, 0)[0] if arguments.strip() else {}
        except (Cut, Broken):
            raise Broken(at, "the arguments are not valid JSON") from None
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise Broken(at, "the arguments are not a JSON object")
    return RawCall(name_in(name, at), arguments)


def calls_of(value: Any, at: int, *, needs_arguments: bool = False) -> tuple[RawCall, ...]:
    """Return the calls that a value describes: an object, a list of them, or an object with the list `tool_calls`."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    items: Iterable[Any] = value if isinstance(value, list) else (value,)
    return tuple(call_of(item, at, needs_arguments=needs_arguments) for item in items)


def fenced_json_at(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value at the position, with a fence around it or without."""
    at = skip_space(text, at)
    fence = _FENCE.match(text, at)
    if fence is None:
        return json_at(text, at)
    value, end = json_at(text, fence.end())
    return value, expect(text, end, "```")


def refuse_depth(depth: int, at: int) -> None:
    """Raise if a value is nested deeper than any tool needs."""
    if depth > _MAX_DEPTH:
        raise Broken(at, _DEEP)
