"""Asks and tells hooks of what is recorded, or about to be: everything beside the calls, which the gates ask about.

They read what the journal has, redacted as it is.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from holdfast.core.model_calls import next_turn
from holdfast.core.state import State, facts, open_run
from holdfast.core.wanted import RunHook
from holdfast.protocol import events as e
from holdfast.protocol.codec import decode
from holdfast.protocol.hooks import ENDING_S, NO_HOOKS, HookAnswer, Occasion, failure_of
from holdfast.protocol.messages import calls_of, text_of
from holdfast.protocol.ports import Check
from holdfast.protocol.untrusted import decode_untrusted
from holdfast.runtime.apart import Apart, Left
from holdfast.runtime.ports import Ports

LAST_S = 5.0
"""The longest that a hook may take after somebody stopped the run: they wait for the end."""
CUT = HookAnswer(is_cut=True)


async def answer_of(ports: Ports, apart: Apart, action: RunHook, state: State, check: Check) -> HookAnswer:
    """Return what a hook answers.

    Raises:
        Fenced: the lease ended before the hook was started.
        StorageError: the record cannot be read.
    """
    assert state.settings is not None
    hook, occurred = action.hook, action.occurred
    if open_run(state) is None and state.run is not None and state.run.status == "interrupted":
        hook = replace(hook, timeout_s=min(hook.timeout_s, LAST_S))
    occasion = Occasion(
        event=occurred.event,
        session=state.session,
        workspace=state.settings.tools.workspace,
        key=key_of(state.session, hook.name),
        facts=await _facts(ports, action, state),
    )
    if ports.hooks is None:
        return failure_of(hook, NO_HOOKS)
    try:
        asking = ports.hooks.ask(hook, occasion, check)
        return await apart.run(asking, hook.timeout_s + ENDING_S)
    except Left:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return CUT
        return failure_of(hook, f"it did not answer within {hook.timeout_s:g} s, and ignores that")
    except asyncio.CancelledError:
        return CUT


def key_of(session: str, hook: str) -> str:
    """Return the key that the processes of a hook have in their environment. A hook hears one thing at a time."""
    return f"{session}:hook:{hook}"


async def _facts(ports: Ports, action: RunHook, state: State) -> dict[str, Any]:
    """Return what the hook reads about what happened."""
    occurred = action.occurred
    if not occurred.seq:
        run = open_run(state)
        turn = next_turn(state, run) if run is not None else 0
        return {"request": occurred.subject, "turn": turn, "model": facts(state).name}
    if occurred.event == "turn_end":
        return {"turn": int(occurred.subject)}
    (stored,) = await ports.store.read(state.session, occurred.seq - 1, occurred.seq)
    return {**_of_call(occurred.tool, occurred.arguments), **_told(decode(stored).event, occurred.event)}


def _of_call(tool: str, arguments: str) -> dict[str, Any]:
    if not tool:
        return {}
    try:
        return {"tool": tool, "arguments": decode_untrusted(arguments or "{}")}
    except ValueError:  # what the model wrote is not JSON
        return {"tool": tool, "arguments": arguments}


def _told(event: e.Event, moment: str) -> dict[str, Any]:
    """Return the facts of a record."""
    match event:
        case e.RunStarted(run=run):
            return {"run": run}
        case e.RunStopped():
            said = {"run": event.run, "status": event.status, "reason": event.reason}
            return {**said, "message": event.message}
        case e.HooksDue():
            return {"request": event.subject, "reason": event.reason}
        case e.Responded() if moment == "after_model":
            return {
                "request": event.key,
                "model": event.model,
                "finish": event.finish,
                "text": text_of(event.parts),
                "calls": [call.name for call in calls_of(event.parts)],
                "cost_microusd": event.cost_microusd,
            }
        case e.ApprovalRequested():
            asked = {"approval": event.approval_id, "call": event.call_id, "reason": event.reason}
            return {**asked, "question": event.question, "deadline_ms": event.deadline_ms}
        case e.ToolCallFinished() if moment == "after_tool":
            result = event.result
            return {"call": event.call_id, "status": result.status, "result": result.text}
        case e.ToolCallRefused() if moment == "after_tool":
            return {"call": event.call_id, "status": "refused", "result": event.failure.message}
        case e.ToolCallAbandoned() if moment == "after_tool":
            return {"call": event.call_id, "status": "unknown", "result": event.text}
        case _:
            return {}
