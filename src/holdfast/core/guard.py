"""Recognises a lack of progress: the same call with the same arguments and result, turn after turn."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from holdfast.core.state import Call, Done
from holdfast.protocol.untrusted import decode_untrusted

_encode = msgspec.json.Encoder(order="sorted").encode
Repeats = tuple[tuple[str, int], ...]


def signature(call: Call, result: str) -> str:
    """Return the signature of a call. Two calls with the same name, arguments and whole result have the same one."""
    told = f"{call.name}\0{_canonical(call.arguments)}\0{result}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(told).hexdigest()[:32]


def _canonical(arguments: str) -> str:
    """Return one text for all spellings of the same arguments."""
    try:
        return _encode(_plain(decode_untrusted(arguments or "{}"))).decode()
    except msgspec.DecodeError:
        return "".join(arguments.split())


def _plain(value: Any) -> Any:
    """The value with whole numbers as such: 1.0 and 1 are the same number."""
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value


def counted(repeats: Repeats, calls: tuple[Call, ...]) -> Repeats:
    """Return the repeats after a turn with these calls. A call that did not come again is forgotten."""
    # An example with three turns: grep and ls; grep; grep, always with the same arguments and result. The
    # counts of grep are 1, 2, 3. The second turn forgets ls. The same call twice in one turn counts once.
    before = dict(repeats)
    signs = [call.stage.signature for call in calls if isinstance(call.stage, Done)]
    return tuple([(sign, before.get(sign, 0) + 1) for sign in dict.fromkeys(signs)])


def longest(repeats: Repeats) -> int:
    """Return the longest row of turns with the same call."""
    return max([count for _, count in repeats], default=0)
