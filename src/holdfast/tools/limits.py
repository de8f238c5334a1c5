"""How long a call may take: its timeout, and its idle timeout, which every output begins anew."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from holdfast.protocol.ports import CallContext


def limited(context: CallContext, grace_s: float = 0.0) -> tuple[asyncio.Timeout, CallContext]:
    """A timeout to enter, and the context to hand on: its output keeps the idle timeout away.

    Args:
        context: Says how long the call may take and be silent.
        grace_s: Added to both, for a backstop behind a tool that keeps its own time.
    """
    loop = asyncio.get_running_loop()
    deadline, idle_s = loop.time() + context.timeout_s + grace_s, context.idle_s + grace_s
    limit = asyncio.timeout_at(min(deadline, loop.time() + idle_s))

    def on_output(text: str) -> None:
        with suppress(RuntimeError):  # the limit is over: the output comes too late to prolong it
            limit.reschedule(min(deadline, loop.time() + idle_s))
        context.on_output(text)

    return limit, msgspec.structs.replace(context, on_output=on_output)


def over(context: CallContext) -> str:
    """The sentence that tells which of the two limits ended a call."""
    idle = f"{context.idle_s:g} s without output, or " if context.idle_s < context.timeout_s else ""
    return f"Its limit is {idle}{context.timeout_s:g} s in all."
