"""How far a text may be trusted, in one order, and where it came from."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

Trust = Literal["user", "assistant", "data", "untrusted"]
"""From the most trusted to the least. `user`: the person, and the runtime on their behalf. `assistant`: the model.
`data`: files, the shell, memory that comes from those. `untrusted`: the web, tools of strangers, whatever declares
itself so. Only a user may instruct."""

ORDER: tuple[Trust, ...] = get_args(Trust)


class Label(msgspec.Struct, frozen=True, gc=False, order=True):
    """What a session contains something of."""

    origin: str
    """A tool's name, or who spoke."""
    trust: Trust


class Mark(msgspec.Struct, frozen=True, gc=False):
    """What first set a flag."""

    seq: int
    """The record."""
    origin: str


class Taint(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the model may have read in a session. Nothing ever takes a flag back."""

    untrusted: Mark | None = None
    """Text that somebody outside may have written for the model."""
    private: Mark | None = None
    """What is not meant for others: files, memory, output of programs."""


CLEAN = Taint()
Flag = Literal["untrusted", "private"]
FLAGS: tuple[Flag, ...] = get_args(Flag)


def least(*trusts: Trust) -> Trust:
    """The trust of a mixture: that of its least trusted part. Nothing at all is as good as the user's word."""
    return max(trusts, key=ORDER.index, default="user")
