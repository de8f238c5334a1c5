"""Finds and changes every text in a value: in a frozen struct, and in its tuples, lists and dicts.

The caller decides which texts must not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from holdfast.redact.redactor import Redactor

T = TypeVar("T")


def without_secrets(redact: Redactor, value: T) -> T:
    """Return the value with every secret in its texts masked. One look at all of them together is enough for most."""
    return value if redact.finds_none(texts_in(value)) else in_every_text(redact, value)


def texts_in(value: object) -> list[str]:
    """Return every text in the value, in no particular order. Of a struct also its names, but no omitted defaults."""
    texts: list[str] = []
    values = [msgspec.to_builtins(value)]
    for each in values:  # it grows meanwhile
        kind = type(each)  # of exactly these types, and faster to ask than `isinstance`
        if kind is str:
            texts.append(each)
        elif kind is dict:
            values += [*each, *each.values()]
        elif kind is list or kind is tuple:
            values += each
    return texts


def in_every_text(change: Callable[[str], str], value: T) -> T:
    """Return the value with each of its texts changed; the same object if nothing changed."""
    return _changed(change, value)  # type: ignore[no-any-return]


def _changed(change: Callable[[str], str], value: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        after = {name: _changed(change, each) for name, each in fields.items()}
        different = {name: after[name] for name in fields if after[name] is not fields[name]}
        return msgspec.structs.replace(value, **different) if different else value
    if isinstance(value, dict):
        return {_changed(change, key): _changed(change, each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        items = [_changed(change, each) for each in value]
        is_same = all(one is other for one, other in zip(items, value, strict=True))
        return value if is_same else tuple(items) if isinstance(value, tuple) else items
    return value
