"""What the state remembers of hooks: what they have not answered yet (`core.hooking`)."""

from __future__ import annotations

import msgspec

from holdfast.protocol.hooks import HookEvent


class Occurred(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Something that hooks are asked about or told."""

    event: HookEvent
    subject: str
    """What it is about: a call, a model call, a turn, a run, an approval."""
    seq: int = 0
    """The record that says it; 0: the next one will."""
    tool: str = ""
    """The tool of a call, and its arguments as they are stored."""
    arguments: str = ""
    answered: tuple[str, ...] = ()
    """The hooks that have answered."""


class Hooking(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What hooks have not answered yet."""

    asked: tuple[Occurred, ...] = ()
    """What waits for hooks, in order: nothing goes on before it."""
    told: tuple[Occurred, ...] = ()
    """What hooks hear beside the work, oldest first."""
    passed: tuple[tuple[HookEvent, str], ...] = ()
    """What was asked about and may go on."""


NOTHING = Hooking()
"""Hooks have nothing to answer."""
