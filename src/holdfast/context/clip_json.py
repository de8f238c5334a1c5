"""What matters in JSON: its keys, the types of its values, and how long they are.

Pure. What has very many parts is skimmed instead of decoded, since a million objects take long to make.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.protocol.counts import counted

_BEFORE_CHARS = 2_000
"""How much other text may come before the JSON: a warning, a line of a log."""
_VALUE_CHARS = 120
"""A value whose JSON is not longer is shown as it is."""
_TEXT_CHARS = 60
_KEY_CHARS = 200
_KEYS = 60
"""The most keys of an object that are shown."""
_ITEMS = 3
"""The most items of a list that are shown, beside its last one."""
_READINGS = 4
"""How often a text may be read: once for each level, until the parts are small."""
_SMALL_BYTES = 1 << 14
_PLACES = 16
"""In how many places is looked how deep the brackets are."""

_list = msgspec.json.Decoder(list[msgspec.Raw])
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any = msgspec.json.Decoder()
_skimmed = msgspec.json.Decoder(msgspec.Raw)


class _Rest(msgspec.Struct, frozen=True):
    """Stands for the keys of an object that are not shown."""

    keys: int


class _Node:
    """A value in its place of the outline."""

    def __init__(self, depth: int, label: str, value: Any) -> None:
        self.depth = depth
        self.value = value
        self.line = f"{'  ' * depth}{label}{_said(value)}"
        self.below: list[_Node] = []


def outline(text: str, room: int) -> str:
    """Return the outline of a JSON text, within so many characters; empty for other texts."""
    found = _json_in(text)
    if found is None:
        return ""
    reading = _Reading(len(found) * _READINGS)
    root = _Node(0, "[JSON] ", reading.opened(found))
    left = room - len(root.line)
    # Level by level: what is above matters more than what is inside.
    waiting = deque([root])
    while waiting:
        node = waiting.popleft()
        for label, value in _inside(node.value):
            child = _Node(node.depth + 1, label, reading.opened(value))
            left -= len(child.line) + 1
            if left < 0:
                return "\n".join(_lines(root)) if root.below else ""
            node.below.append(child)
            waiting.append(child)
    return "\n".join(_lines(root))


def _json_in(text: str) -> bytes | None:
    """Return the JSON of a text that has little else: lines before it, and a last line."""
    lines = (each for sign in ("\n{", "\n[") if (each := text.find(sign, 0, _BEFORE_CHARS)) >= 0)
    ends = (len(text), text.rfind("\n", 0, len(text.rstrip())))
    for begin in (0, *sorted(lines)[:1]):
        first = text[begin : begin + 200].lstrip()[:1]
        if first not in ("{", "["):
            continue
        for end in ends:
            try:
                whole = text[begin:end].encode()
                _skimmed.decode(whole)
            except (msgspec.DecodeError, RecursionError):
                continue
            return whole.strip()
    return None


class _Reading:
    """Decodes values as far as it does not take too long."""

    def __init__(self, left_bytes: int) -> None:
        self._left_bytes = left_bytes

    def opened(self, value: Any) -> Any:
        """Return a value that was only skimmed as what it is; as it is if it is short, or has too many parts."""
        if not isinstance(value, bytes | msgspec.Raw):
            return value
        raw = bytes(value)
        if raw[:1] not in (b"{", b"["):
            return _any.decode(raw)
        if len(raw) <= _VALUE_CHARS or len(raw) > self._left_bytes:
            return raw
        self._left_bytes -= len(raw)
        if len(raw) <= _SMALL_BYTES or _is_deep(raw):
            return (_object if raw[:1] == b"{" else _list).decode(raw)
        return _any.decode(raw) if _is_quick(raw) else raw


def _is_quick(raw: bytes) -> bool:
    """Return whether decoding everything takes about as long as reading it a few times: a text costs as much as 10
    numbers, and an object or a list as 20."""
    left = len(raw) - 5 * raw.count(b'"') - raw.count(b",")
    return left > 0 and 20 * (raw.count(b"[") + raw.count(b"{")) < left


def _is_deep(raw: bytes) -> bool:
    """Return whether most of the bytes are inside of inner brackets: then the outer one has few parts for its size.

    Brackets in texts count too, so this may be wrong, which only costs time.
    """
    step, depth, deep = max(len(raw) // _PLACES, 1), 0, 0
    for begin in range(0, len(raw), step):
        end = begin + step
        depth += raw.count(b"{", begin, end) + raw.count(b"[", begin, end)
        depth -= raw.count(b"}", begin, end) + raw.count(b"]", begin, end)
        deep += depth > 1
    return deep * 4 >= _PLACES * 3


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values inside of another one that are shown, with their labels."""
    match value:
        case dict():
            for key in [*value][:_KEYS]:
                yield f"{_json(key)[:_KEY_CHARS]}: ", value[key]
            if len(value) > _KEYS:
                yield "", _Rest(len(value) - _KEYS)
        case list() if not _is_short(value):
            for number, each in enumerate(value[:_ITEMS]):
                yield f"[{number}] ", each
            if len(value) > _ITEMS:
                yield f"[{len(value) - 1}] ", value[-1]


def _said(value: Any) -> str:
    """Return what the outline says about a value in its own line."""
    match value:
        case bytes() if len(value) <= _VALUE_CHARS:
            return " ".join(value.decode().split())
        case bytes():
            return f"{'object' if value[:1] == b'{' else 'list'} of {counted(len(value), 'byte')}"
        case dict():
            return f"object with {counted(len(value), 'key')}"
        case list():
            return _json(value) if _is_short(value) else f"list of {counted(len(value), 'item')}"
        case str() if len(value) > _VALUE_CHARS:
            return f"text of {counted(len(value), 'character')}: {_json(value[:_TEXT_CHARS])}"
        case _Rest():
            return f"[{counted(value.keys, 'more key')}]"
        case _:
            return _json(value)


def _is_short(values: list[Any]) -> bool:
    """Return whether a list is shown as it is."""
    is_plain = len(values) <= 12 and not any(
        isinstance(each, dict | list | bytes | msgspec.Raw) for each in values
    )
    return is_plain and sum(len(each) if isinstance(each, str) else 8 for each in values) <= _VALUE_CHARS


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _lines(root: _Node) -> Iterator[str]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node.line
        waiting += reversed(node.below)
