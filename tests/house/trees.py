"""The syntax trees of the program: read once for all tests that look at them, in the worker that runs them."""

from __future__ import annotations

import ast
import functools
import gc
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).resolve().parent
FILES = sorted(SOURCE.rglob("*.py"))


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Every file with its syntax tree."""
    return {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8")) for path in FILES}


@functools.cache
def nodes() -> tuple[tuple[str, ast.AST], ...]:
    """All nodes of all trees, each with its file."""
    gc.disable()  # they stay: no look for garbage need go through a million of them
    found = tuple((file, node) for file, tree in trees().items() for node in ast.walk(tree))
    gc.freeze()
    gc.enable()
    return found
