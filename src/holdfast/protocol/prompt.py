"""What a system prompt is made of, as journals store it.

`prompt` writes the sections; `runtime.prompting` reads what they are made from.
"""

from __future__ import annotations

import msgspec

from holdfast.protocol.trust import Trust


class Section(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A piece of a system prompt. The prompt has the texts of all pieces in order, with an empty line between."""

    section: str
    """The name of the section. Pieces from different sources can have the same one."""
    source: str
    """Where the text comes from: `holdfast`, `settings`, a file relative to the workspace, a package."""
    sha256: str
    """The hash of the text."""
    chars: int
    reason: str
    """Why the prompt has it."""
    trust: Trust = "user"


class Guidance(msgspec.Struct, frozen=True, gc=False):
    """A file in which people say how to work in a folder: AGENTS.md, CLAUDE.md."""

    path: str
    """Relative to the workspace."""
    text: str
    """Its beginning, or all of it."""
    is_cut: bool = False


class CustomSection(msgspec.Struct, frozen=True, gc=False):
    """A section that a program or a package adds."""

    name: str
    text: str
    source: str = "agent"


class PromptBuilt(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The system prompt and the tools of all further requests, until the next record of this type."""

    reason: str
    """Why it was built: what opened, and what has changed."""
    sections: tuple[Section, ...]
    blob: str
    """The SHA-256 of the blob with the text."""
    tools: str = ""
    """The SHA-256 of the blob with the specs of the tools, as JSON; empty without tools."""
