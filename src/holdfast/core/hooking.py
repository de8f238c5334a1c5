"""Which hooks are to be asked or told: what `evolve` remembers of it, and what follows from an answer.

Before a model call, a compaction and the first request of a run, hooks are asked, one after the other, and nothing
goes on until they have answered. They hear of everything else beside the work. What they have not heard yet is
in the state, so that the next driver tells them. (The hooks before a tool call are a gate: `tools.hooked`.)
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from holdfast.core.hooked import NOTHING, Hooking, Occurred
from holdfast.core.state import Done, State, Waiting, is_complete
from holdfast.protocol import events as e
from holdfast.protocol.hooks import DECIDED, Hook, HookEvent, hooks_on

MOST_DUE = 64
"""With so much left to tell, the next request waits."""


# --- the fold -----------------------------------------------------------------------------------


def after(before: State, state: State, event: e.Event) -> State:
    """Return the state with what hooks have to hear of an event. `before`: the state before it."""
    # An example: `log` hears of after_tool and run_end. ToolCallFinished brings ("after_tool", "t1.c1"), and the
    # driver runs the hook. If the process dies before its HookEnded, the next fold has the same entry, and the
    # next driver runs it again. So a hook needs no intent of its own.
    hooking = state.hooking
    match event:
        case e.SessionForked() | e.SessionImported():
            # The parent tells its own hooks. But nothing goes on here before what it waits for.
            hooking = Hooking(asked=hooking.asked)
        case e.HookEnded():
            hooking = _ended(hooking, state, event)
        case e.HooksDue():
            hooking = _asking(hooking, Occurred(event.event, event.subject, state.seq))
        case e.RunStarted(run=run):
            hooking = _asking(hooking, Occurred("run_start", str(run), state.seq))
        case e.RunStopped():
            # A stop must not wait for a long list of what hooks have not heard.
            told = () if event.status == "interrupted" else hooking.told
            hooking = Hooking(told=(*told, Occurred("run_end", str(event.run), state.seq)))
        case e.ModelCallStarted(purpose="work"):
            hooking = replace(hooking, passed=())
        case e.ContextCompacted():  # another one is asked about again
            kept = tuple([each for each in hooking.passed if each[0] != "before_compaction"])
            hooking = replace(hooking, passed=kept)
        case _:
            hooking = replace(hooking, told=(*hooking.told, *_happened(before, state, event)))
    hooking = _with_hooks(hooking, state)
    hooking = NOTHING if hooking == NOTHING else hooking
    return state if hooking is state.hooking else replace(state, hooking=hooking)


def _asking(hooking: Hooking, occurred: Occurred) -> Hooking:
    return replace(hooking, asked=(*hooking.asked, occurred))


def _happened(before: State, state: State, event: e.Event) -> Iterator[Occurred]:
    """Yield what hooks hear of an event, and of the turn that it ends."""
    seq = state.seq
    match event:
        case e.Responded(key=key):
            yield Occurred("after_model", key, seq)
            if is_complete(state.turn):
                yield Occurred("turn_end", str(state.turn.number), seq)
        case e.ApprovalRequested(approval_id=approval_id, name=name, arguments=arguments):
            yield Occurred("approval", approval_id, seq, name, arguments)
        case (
            e.ToolCallFinished(call_id=call_id)
            | e.ToolCallRefused(call_id=call_id)
            | e.ToolCallAbandoned(call_id=call_id)
        ):
            for call in before.turn.calls:
                if call.call_id == call_id and type(call.stage) is not Done:
                    # A call that has a result and still waits was put aside, and hooks have heard that a person is
                    # asked. A program that keeps a list of what was done would list what never ran.
                    if not (type(event) is e.ToolCallFinished and type(call.stage) is Waiting):
                        yield Occurred("after_tool", call_id, seq, call.name, call.arguments)
                    if is_complete(state.turn):
                        yield Occurred("turn_end", str(state.turn.number), seq)
        case _:
            return


def _ended(hooking: Hooking, state: State, ended: e.HookEnded) -> Hooking:
    """Note the answer of one hook. What all have answered may go on."""
    # No record says that the next request is due, so the first answer about it makes the entry.
    place = (ended.event, ended.subject)
    asked = hooking.asked
    if ended.event == "before_model" and not any(_place(each) == place for each in asked):
        asked = (*asked, Occurred(ended.event, ended.subject))
    told = tuple([_noted(each, place, ended.hook) for each in hooking.told])
    asked = tuple([_noted(each, place, ended.hook) for each in asked])
    done = tuple([_place(each) for each in asked if not hooks_for(each, state)])
    return Hooking(asked, told, (*hooking.passed, *done))


def _place(occurred: Occurred) -> tuple[HookEvent, str]:
    return occurred.event, occurred.subject


def _noted(occurred: Occurred, place: tuple[HookEvent, str], hook: str) -> Occurred:
    return replace(occurred, answered=(*occurred.answered, hook)) if _place(occurred) == place else occurred


def _with_hooks(hooking: Hooking, state: State) -> Hooking:
    """Drop what no hook has to hear."""
    return replace(
        hooking,
        asked=tuple([each for each in hooking.asked if hooks_for(each, state)]),
        told=tuple([each for each in hooking.told if hooks_for(each, state)]),
    )


# --- what is wanted -----------------------------------------------------------------------------


def hooks_for(occurred: Occurred, state: State) -> list[Hook]:
    """Return the hooks that have not answered yet, in order."""
    hooks = state.settings.policy.hooks if state.settings is not None else ()
    named = hooks_on(occurred.event, hooks, occurred.tool)
    return [each for each in named if each.name not in occurred.answered]


def telling(state: State) -> Iterator[tuple[Hook, Occurred]]:
    """Yield what hooks hear now: one thing after the other, but different hooks side by side."""
    # One hook never runs twice at a time: it hears things in their order, and a slow one does not fill the machine
    # with its processes.
    busy: set[str] = set()
    for occurred in state.hooking.told:
        for hook in hooks_for(occurred, state):
            if hook.name not in busy:
                busy.add(hook.name)
                yield hook, occurred


def asking(state: State, next_key: str) -> tuple[Hook, Occurred] | None:
    """Return which hook is asked now, before the request with this key is made; None if it may be made."""
    for occurred in state.hooking.asked:
        return hooks_for(occurred, state)[0], occurred
    occurred = Occurred("before_model", next_key)
    if _place(occurred) in state.hooking.passed:
        return None
    named = hooks_for(occurred, state)
    return (named[0], occurred) if named else None


def delays(state: State, next_key: str) -> bool:
    """Return whether the next request waits: a hook is asked before it, or hooks have too much to hear."""
    return asking(state, next_key) is not None or len(state.hooking.told) >= MOST_DUE


def may_compact(state: State, key: str) -> bool:
    """Return whether no hook has to be asked before the view is compacted for the request with this key."""
    occurred = Occurred("before_compaction", key)
    return _place(occurred) in state.hooking.passed or not hooks_for(occurred, state)


def is_asked(event: HookEvent) -> bool:
    """Return whether a hook decides about this event. Of all others it is only told."""
    return event in DECIDED
