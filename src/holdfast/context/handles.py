"""How a text names what is stored whole, and how the model reads and finds it.

A handle is the beginning of a blob's hash, or `rN` for the words of record N.
"""

from __future__ import annotations

READ_OUTPUT = "read_output"
"""The tool that pages and searches what a handle names."""
RECALL_HISTORY = "recall_history"
"""The tool that finds records by their words."""
LOOKING_BACK = frozenset({READ_OUTPUT, RECALL_HISTORY})
"""The tools whose results only repeat what other records say."""

_HANDLE_CHARS = 12


def handle_of(blob: str) -> str:
    """Return the handle of a stored content."""
    return blob[:_HANDLE_CHARS]


def handle_of_record(seq: int) -> str:
    """Return the handle of what a record says."""
    return f"r{seq}"


def how_to_read(handle: str) -> str:
    """Return what a text says about the rest of it."""
    return f'{READ_OUTPUT}(handle="{handle}") reads and searches the full text'
