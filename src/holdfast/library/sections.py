"""Reads the sections that a program adds to the system prompt."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import UsageError
from holdfast.prompt import check_name
from holdfast.protocol.counts import counted
from holdfast.protocol.prompt import CustomSection

MAX_CHARS = 100_000
"""The most characters of a section."""


def custom_sections(sections: Mapping[str, str]) -> tuple[CustomSection, ...]:
    """Return the sections as settings store them.

    Raises:
        UsageError: a name is not valid, or something is not text.
    """
    if not isinstance(sections, Mapping):
        raise UsageError(f"sections = {sections!r:.80}: must be a dict of texts by name.")
    found: list[CustomSection] = []
    for name, text in sections.items():
        if not isinstance(name, str):
            raise UsageError(f"sections: the name {name!r:.80} must be text.")
        check_name(name, "agent")
        if not isinstance(text, str):
            raise UsageError(f"sections[{name!r}] = {text!r:.80}: must be text.")
        if len(text) > MAX_CHARS:
            raise UsageError(
                f"sections[{name!r}] has {counted(len(text), 'character')}, more than the {MAX_CHARS:,} allowed.",
                hint="Put it into a file in the workspace, and name the file in the section.",
            )
        found.append(CustomSection(name, text))
    return tuple(found)
