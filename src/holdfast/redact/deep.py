"""Changes every text in a value: in a frozen struct, and in its tuples, lists and dicts.

The caller decides which texts must not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


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
