"""What a session is, folded from its journal: open work, windows and counts, never the transcript.

Nothing here decides; `phase` names the situation that the rest follows from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from holdfast.protocol.limits import Settings
from holdfast.protocol.messages import Usage
from holdfast.protocol.tools import Effect, FileChange, OnInterrupt

Phase = Literal[
    "idle", "preparing", "calling", "backing_off", "admitting", "acting", "waiting", "paused", "stopping"
]
"""idle: no run is open. preparing: a request is to be rendered. calling: a model call is open. backing_off: it
failed and waits to be tried again. admitting: a tool call may be put before the gates. acting: tool calls are
open. waiting: only people can go on. paused: somebody said so. stopping: the run ends when nothing is open."""

CallStatus = Literal["proposed", "asked", "answered", "denied", "expired", "started", "done"]


class Totals(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What was used: of a run, or of all before it."""

    turns: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    cost_microusd: int = 0
    held_microusd: int = 0
    """Reserved by attempts whose outcome nobody knows: it may have been charged."""
    held_tokens: int = 0
    is_unpriced: bool = False
    """A model without a known price took part: the cost is not the whole cost."""

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.turns + other.turns,
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
            self.usage + other.usage,
            self.cost_microusd + other.cost_microusd,
            self.held_microusd + other.held_microusd,
            self.held_tokens + other.held_tokens,
            self.is_unpriced or other.is_unpriced,
        )


class Stopping(msgspec.Struct, frozen=True, gc=False):
    """How the run is to end."""

    status: str
    reason: str
    message: str
    grace_until_ms: int


class Run(msgspec.Struct, frozen=True, gc=False):
    """From input to rest: the open run, or the last one."""

    number: int
    started_ms: int
    totals: Totals = Totals()
    driven_ms: int = 0
    """Time in which something was in flight under a driver."""
    reply: Literal["", "answer", "cut_answer", "refusal", "empty", "calls"] = ""
    """What the last response was; empty while none is there since the last request."""
    answer_seq: int = 0
    """The record that holds the last words of the model; 0: there are none."""
    empty_replies: int = 0
    overflows: int = 0
    warned: tuple[str, ...] = ()
    """The limits whose 80 % the model and the user were told of."""
    landing: str = ""
    """The limit that was reached: only a last pass follows."""
    has_landed: bool = False
    """The last pass was answered."""
    is_paused: bool = False
    stopping: Stopping | None = None
    status: str = ""
    """Empty while it is open."""
    reason: str = ""
    message: str = ""


class ModelCall(msgspec.Struct, frozen=True, gc=False):
    """The open attempt of a model call."""

    key: str
    epoch: int
    attempt: int
    size_bytes: int
    reserved_microusd: int
    reserved_tokens: int
    is_final: bool


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call of the turn in progress."""

    call_id: str
    ref: str
    name: str
    arguments: str
    """As the model wrote them, until the gates made them canonical."""
    status: CallStatus = "proposed"
    attempt: int = 0
    epoch: int = 0
    effect: Effect = "exec"
    on_interrupt: OnInterrupt = "unknown"
    timeout_s: float = 0.0
    change: FileChange | None = None
    approval_id: str = ""
    deadline_ms: int = 0
    is_question: bool = False
    is_approved: bool = False
    """A person allowed exactly these arguments, and the permission is not used yet or was used for this call."""
    approved_sha256: str = ""
    note: str = ""
    """What the person said."""
    signature: str = ""
    """Of name, arguments and result, once it is done: what the guard against repeats compares."""


class State(msgspec.Struct, frozen=True, gc=False):
    """The fold of a journal."""

    session: str = ""
    key: str = ""
    seq: int = 0
    at_ms: int = 0
    created_ms: int = 0
    epoch: int = 0
    """Of the last driver: what older epochs started is not running any more."""
    title: str = ""
    settings: Settings | None = None
    run: Run | None = None
    """The open run, else the last one, else None."""
    before: Totals = Totals()
    """Of all runs before `run`."""
    turn: int = 0
    model_calls: int = 0
    """Attempts of the whole session: the next one is named after it."""
    answered: int = 0
    """Attempts with a response or a recorded failure, of the whole session."""
    approvals: int = 0
    model_call: ModelCall | None = None
    failed_attempts: int = 0
    """Of the model call that is to be tried again."""
    retry_at_ms: int = 0
    calls: tuple[Call, ...] = ()
    repeats: tuple[tuple[str, int], ...] = ()
    """Signatures of the last turn's calls, and for how many turns in a row each has come."""
    notes: tuple[str, ...] = ()
    """What the model was told since the last request."""
    is_unanswered: bool = False
    """There are words that no request has carried yet."""
    measured_bytes: int = 0
    measured_tokens: int = 0
    """The last answered request: its size, and what the provider counted."""
    window_tokens: int = 0
    """The model's window as a provider's refusal taught it; 0: as the settings say."""
    reads: frozenset[str] = frozenset()


def open_run(state: State) -> Run | None:
    """The run that has not ended."""
    return state.run if state.run is not None and not state.run.status else None


def phase(state: State) -> Phase:
    """The situation, from the state alone."""
    run = open_run(state)
    if run is None:
        return "idle"
    if run.stopping is not None:
        return "stopping"
    if state.model_call is not None:
        return "calling"
    standing = {call.status for call in state.calls}
    if "started" in standing:
        return "acting"
    if run.is_paused:
        return "paused"
    if "proposed" in standing and any(True for _ in admissible(state)):
        return "admitting"
    if standing - {"done"}:
        return "waiting"
    return "backing_off" if state.retry_at_ms else "preparing"


def admissible(state: State) -> Iterator[Call]:
    """The calls that may be put before the gates now.

    Calls take effect in the order in which the model wrote them; only reads run side by side.
    """
    are_reads = True
    is_first = True
    for call in state.calls:
        if call.status == "done":
            continue
        is_read = call.name in state.reads
        if call.status == "proposed" and (is_first or (are_reads and is_read)):
            yield call
        are_reads = are_reads and is_read
        is_first = False


def started_calls(state: State) -> list[Call]:
    """The calls with an attempt that has no outcome yet."""
    return [call for call in state.calls if call.status == "started"]


def action_key(call: Call) -> str:
    """The key of a call's present attempt."""
    return f"{call.call_id}#{call.attempt}"
