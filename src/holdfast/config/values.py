"""Kinds of values: how a setting is read from a file, a variable or a flag, and which values are allowed.

Each kind reads a value from TOML or a program, and the text of a variable or flag. It describes its allowed range in
one phrase, which error messages and the schema share. `keys` says which key has which kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from holdfast.protocol.allowed import WrongEntry
from holdfast.protocol.limits import microusd, usd
from holdfast.protocol.rules import PolicyRule, WrongRule

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_UNITS_S = (86_400, 3_600, 60, 1)
_WHOLE = re.compile(r"\s*[+-]?\d(?:_?\d){,17}\s*", re.ASCII)
_DECIMAL = re.compile(r"\s*[+-]?\d{1,15}(?:\.\d{1,15})?\s*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


_SIZES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,15}) ?(KiB|MiB|GiB|TiB|)", re.ASCII)
_COMPARED_CHARS = 60
LIST_MAX = 1_000
"""The most items of a list."""
RULE_EXAMPLE = '["shell(terraform *)", "write_file(docs/**)", "mcp__github__*"]'


def _same(value: Any) -> Any:
    return value


class Wrong(ValueError):
    """Several things are wrong with a value: each with its own words, and why."""

    def __init__(self, reasons: Sequence[tuple[object, str]]) -> None:
        super().__init__(reasons)
        self.reasons = reasons


class Kind(NamedTuple):
    """One kind of value."""

    read: Callable[[Any], Any]
    """Return the value as the program uses it. Raises ValueError if it is not allowed."""
    allowed: str
    schema: dict[str, Any]
    """Return the JSON Schema of the value in a file."""
    write: Callable[[Any], Any] = _same
    """Return the value as in a file."""
    from_text: Callable[[Any], Any] = _same
    """Return the text of a variable or flag as a file would have it. Text that it does not understand goes to `read`
    unchanged.
    """


def whole(low: int, high: int) -> Kind:
    """A whole number in a range, with both ends included."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    return Kind(
        read,
        f"a whole number from {low:,} to {high:,}",
        {"type": "integer", "minimum": low, "maximum": high},
        from_text=_counted,
    )


def number(low: float, high: float) -> Kind:
    """A number in a range, with both ends included."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError
        return float(value)

    return Kind(
        read,
        f"a number from {low:g} to {high:g}",
        {"type": "number", "minimum": low, "maximum": high},
        from_text=_measured,
    )


def switch() -> Kind:
    """True or false."""

    def read(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value

    return Kind(read, "true or false", {"type": "boolean"}, from_text=_switched)


def dollars(low_microusd: int, high_microusd: int) -> Kind:
    """An amount of money, as a number or a text; read as micro-dollars."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        amount = microusd(value)
        if not low_microusd <= amount <= high_microusd:
            raise ValueError
        return amount

    low, high = usd(low_microusd), usd(high_microusd)
    return Kind(read, f'dollars from {low} to {high}, like "2.00"', {"type": ["number", "string"]}, usd)


def time_zone() -> Kind:
    """The name of a time zone that this machine knows."""

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError
        if value != "UTC":
            try:
                import_module("zoneinfo").ZoneInfo(value)
            except (KeyError, OSError):
                raise ValueError from None
        return value

    return Kind(read, 'a time zone that this machine knows, like "Europe/Berlin"', {"type": "string"})


def duration(low_s: int, high_s: int) -> Kind:
    """A duration, `"1h30m"` or a number of seconds; read as seconds."""

    def read(value: Any) -> float:
        seconds = value
        if isinstance(value, str):
            seconds = _seconds(value)
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not low_s <= seconds <= high_s
        ):
            raise ValueError
        return float(seconds)

    phrase = f'a duration from {spoken(low_s)} to {spoken(high_s)}, like "2h", "90s" or "1h30m"'
    return Kind(read, phrase, {"type": ["string", "number"]}, spoken)


def size(low_bytes: int, high_bytes: int) -> Kind:
    """An amount of memory or disk, `"2GiB"` or a number of bytes; read as bytes."""

    def read(value: Any) -> int:
        found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        count = int(found[1]) * _SIZES[found[2]] if found else value
        if isinstance(count, bool) or not isinstance(count, int) or not low_bytes <= count <= high_bytes:
            raise ValueError
        return count

    phrase = f'a size from {spoken_size(low_bytes)} to {spoken_size(high_bytes)}, like "512MiB" or "2GiB"'
    return Kind(read, phrase, {"type": ["string", "integer"]}, spoken_size)


def spoken_size(count: int) -> str:
    """Return a number of bytes as people write it: `2GiB`."""
    unit = next(unit for unit, bytes_ in reversed(_SIZES.items()) if not count % bytes_)
    return f"{count // _SIZES[unit]}{unit}"


def choice(*options: str) -> Kind:
    """One of a few words."""

    def read(value: Any) -> str:
        if value not in options:
            raise ValueError
        return str(value)

    return Kind(read, "one of " + ", ".join(options), {"enum": list(options)})


def near_choice(*options: str, never: Mapping[str, str]) -> Kind:
    """One of many names. A wrong one is answered with the nearest, and one that would be wrong with the reason."""

    def read(value: Any) -> str:
        if value not in options:
            why = never.get(value) if isinstance(value, str) else None
            raise Wrong([(value, why or _not_one_of(options, value))])
        return str(value)

    return Kind(read, "one of " + ", ".join(options), {"enum": list(options)})


def choices(*options: str) -> Kind:
    """A list of a few words."""

    def read(value: Any) -> tuple[str, ...]:
        wrong = [(each, _not_one_of(options, each)) for each in _listed(value) if each not in options]
        if wrong:
            raise Wrong(wrong)
        if not value:
            raise ValueError
        return tuple(dict.fromkeys(value))

    schema = {"type": "array", "items": {"enum": list(options)}, "minItems": 1}
    return Kind(read, "a list of some of " + ", ".join(options), schema, list, _list_said)


def _not_one_of(options: Sequence[str], value: object) -> str:
    near = get_close_matches(str(value)[:_COMPARED_CHARS], options, n=1)
    return f"does not exist; did you mean {near[0]}?" if near else f"is not one of {', '.join(options)}"


def program() -> Kind:
    """A program and its arguments."""

    def read(value: Any) -> tuple[str, ...]:
        words = _listed(value)
        if not words or not words[0] or not all(isinstance(word, str) and "\0" not in word for word in words):
            raise ValueError
        return tuple(str(word) for word in words)

    schema = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": LIST_MAX}
    return Kind(read, 'a program and its arguments, like ["python3", "guard.py"]', schema, list, _list_said)


def text(pattern: str, allowed: str) -> Kind:
    """Text of a given form."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError
        return value

    return Kind(read, allowed, {"type": "string", "pattern": f"^(?:{pattern})$"})


def rules(read_one: Callable[[str], object]) -> Kind:
    """A list of rules, each of which `read_one` accepts."""

    def read(value: Any) -> tuple[PolicyRule, ...]:
        wrong = [(each, why) for each in _listed(value) if (why := _why_wrong(read_one, each))]
        if wrong:
            raise Wrong(wrong)
        return tuple(PolicyRule(text) for text in dict.fromkeys(value))

    return Kind(
        read,
        f"a list of at most {LIST_MAX:,} rules, like {RULE_EXAMPLE}",
        {"type": "array", "items": {"type": "string"}, "maxItems": LIST_MAX},
        lambda found: [rule.text for rule in found],
        _list_said,
    )


def entries(read_one: Callable[[str], object], allowed: str, fewest: int = 0) -> Kind:
    """A list of texts, each of which `read_one` accepts."""

    def read(value: Any) -> tuple[str, ...]:
        if len(_listed(value)) < fewest:
            raise ValueError
        wrong = [(each, why) for each in _listed(value) if (why := _why_wrong(read_one, each))]
        if wrong:
            raise Wrong(wrong)
        return tuple(dict.fromkeys(value))

    schema = {"type": "array", "items": {"type": "string"}, "maxItems": LIST_MAX}
    schema |= {"minItems": fewest} if fewest else {}
    return Kind(read, f"a list of at most {LIST_MAX:,} {allowed}", schema, list, _list_said)


def _why_wrong(read_one: Callable[[str], object], text: object) -> str:
    if not isinstance(text, str):
        return "is not a text"
    try:
        read_one(text)
    except (WrongRule, WrongEntry) as error:
        return str(error)
    return ""


def _listed(value: object) -> list[object]:
    if not isinstance(value, list | tuple) or len(value) > LIST_MAX:
        raise ValueError
    return list(value)


def _list_said(said: Any) -> Any:
    """Return the list in the text of a variable: JSON, or a single item."""
    if not isinstance(said, str) or not said.lstrip().startswith("["):
        return [said] if isinstance(said, str) else said
    try:
        return msgspec.json.decode(said)
    except msgspec.DecodeError:
        return said


def variable() -> Kind:
    """The name of an environment variable."""
    return text(_VARIABLE.pattern, "the name of an environment variable, like OPENAI_API_KEY")


def variables() -> Kind:
    """The name of an environment variable, or several names."""

    def read(value: Any) -> tuple[str, ...]:
        names = [value] if isinstance(value, str) else _listed(value)
        if not names or not all(isinstance(each, str) and _VARIABLE.fullmatch(each) for each in names):
            raise ValueError
        return tuple(dict.fromkeys([str(each) for each in names]))

    one = {"type": "string", "pattern": f"^(?:{_VARIABLE.pattern})$"}
    several = {"type": "array", "items": one, "minItems": 1, "maxItems": LIST_MAX}
    allowed = 'the name of an environment variable, like OPENAI_API_KEY, or a list, like ["KEY_A", "KEY_B"]'
    return Kind(read, allowed, {"anyOf": [one, several]}, _one_or_several)


def _one_or_several(names: tuple[str, ...]) -> Any:
    return names[0] if len(names) == 1 else list(names)


def spoken(seconds: float) -> str:
    """Return a duration as people write it: `1h30m`."""
    left, words = int(seconds), ""
    for unit, letter in zip(_UNITS_S, "dhms", strict=True):
        count, left = divmod(left, unit)
        words += f"{count}{letter}" if count else ""
    return words or "0s"


def _switched(said: Any) -> Any:
    return {"true": True, "false": False}.get(said, said) if isinstance(said, str) else said


def _measured(said: Any) -> Any:
    return float(said) if isinstance(said, str) and _DECIMAL.fullmatch(said) else said


def _counted(said: Any) -> Any:
    return int(said) if isinstance(said, str) and _WHOLE.fullmatch(said) else said


def _seconds(written: str) -> float:
    match = _DURATION.fullmatch(written.strip())
    if match and any(match.groups()):
        return sum(int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS_S, strict=True))
    if re.fullmatch(r"\d{1,9}(?:\.\d{1,3})?", written.strip(), re.ASCII):
        return float(written)
    raise ValueError
