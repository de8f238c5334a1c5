"""The time limits of a call: its timeout, and its idle timeout, which every output restarts."""

from __future__ import annotations

import asyncio

import msgspec

from holdfast.deadlines import Deadline, Deadlines
from holdfast.protocol.ports import CallContext


def limited(deadlines: Deadlines, context: CallContext, grace_s: float = 0.0) -> tuple[Deadline, CallContext]:
    """Return a limit to enter, and a context whose output restarts the idle timeout.

    Args:
        deadlines: Watches over the limit.
        context: Has the two limits.
        grace_s: Is added to both, as a backstop for a tool that keeps its own time.
    """
    loop = asyncio.get_running_loop()
    now, idle_s = loop.time(), context.idle_s + grace_s
    deadline = now + context.timeout_s + grace_s
    limit = deadlines.at(min(deadline, now + idle_s))

    def on_output(text: str) -> None:
        limit.move(min(deadline, loop.time() + idle_s))
        context.on_output(text)

    return limit, msgspec.structs.replace(context, on_output=on_output)


def over(context: CallContext) -> str:
    """Return a sentence that says which of the two limits ended a call."""
    idle = f"{context.idle_s:g} s without output, or " if context.idle_s < context.timeout_s else ""
    return f"Its limit is {idle}{context.timeout_s:g} s in total."
