"""A table whose keys are all words of a list is complete, so that looking one up never fails."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import holdfast


def tables() -> Iterator[tuple[str, Mapping[str, Any], set[str]]]:
    """Every table of a module by its name, with the words that its annotation names."""
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        for name, hint in get_type_hints(module).items():
            if get_origin(hint) in (dict, Mapping) and get_origin(get_args(hint)[0]) is Literal:
                yield f"{found.name}.{name}", getattr(module, name), set(get_args(get_args(hint)[0]))


def test_each_table_has_a_row_for_each_word() -> None:
    found = {name: (set(table), words) for name, table, words in tables()}
    assert len(found) > 10
    assert {name: each for name, each in found.items() if each[0] != each[1]} == {}
