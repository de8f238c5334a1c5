"""Any event at all, built from the types of its fields."""

from __future__ import annotations

import types
import typing
from typing import Any, Literal, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from holdfast.protocol import events as e

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type of the vocabulary."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([of(each) for each in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(of(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(of(each) for each in arguments))
    if origin is dict:
        return st.dictionaries(of(arguments[0]), of(arguments[1]), max_size=2)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{name: of(hints[name]) for name in kind.__struct_fields__})
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXTS,
        int: st.integers(-(2**53), 2**53),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        type(None): st.none(),
    }
    return plain[kind]


EVENTS = {kind: of(kind) for kind in e.EVENT_TYPES}
