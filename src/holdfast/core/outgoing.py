"""Decides whether a call may go out: its circuit lets it, and all its allowances have enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.core.circuits import after_call, aged, ask
from holdfast.core.rates import corrected, decide_draw
from holdfast.protocol.circuits import CallEnded, Caller, Circuit, CircuitState, Later
from holdfast.protocol.moments import Moment
from holdfast.protocol.rates import Allowance, Drawn, Place
from holdfast.protocol.services import Answer, Outgoing

STORED_MS = 50
"""A session that may be the probe once it is stored asks again after this time. Its wait is what stores it."""


class Decided(NamedTuple):
    """The answer to a call, and what a store has to write."""

    later: Later | None
    circuit: Circuit | None
    """The circuit after the question; None if nothing ever failed."""
    drawn: Drawn | None
    """None: the call was not compared with any rate."""


def decide(
    outgoing: Outgoing,
    circuit: Circuit | None,
    allowances: Mapping[str, Allowance],
    places: Sequence[Place],
    now: Moment,
    is_alive: Callable[[Caller], bool],
) -> Decided:
    """Return whether a call may go out.

    Args:
        outgoing: The call.
        circuit: What is known about its service.
        allowances: What was left in those that it names. One that is not there is full.
        places: All calls that wait or are in progress.
        now: The time.
        is_alive: Whether the process of a call in progress still has its lease.
    """
    draw, asked = outgoing.draw, circuit
    if circuit is not None:
        is_probe_alive = circuit.probe is not None and is_alive(circuit.probe.caller)
        asked, later = ask(
            circuit,
            draw.caller,
            now,
            outgoing.rules,
            draw.limit_ms,
            is_probe_alive=is_probe_alive,
            insists=outgoing.insists,
        )
        if later is None and asked.is_open and not is_alive(draw.caller):
            # Others would take the probe of a session that is not stored yet for that of a dead process.
            later, asked = Later("probing", circuit.name, STORED_MS, circuit.reason), aged(circuit, now)
        if later is not None:
            return Decided(later, asked, None)
    if not draw.rates:
        return Decided(None, asked, None)
    drawn = decide_draw(draw, allowances, places, now, is_alive)
    if drawn.later is not None and circuit is not None:  # it is not the probe as long as it waits
        asked = aged(circuit, now)
    return Decided(drawn.later, asked, drawn)


def answer_of(decided: Decided, circuit: Circuit | None, outgoing: Outgoing) -> Answer:
    """Return the answer for who asked. `circuit`: as it was before."""
    if circuit is None:
        return Answer(decided.later)
    state: CircuitState = "closed"
    if decided.circuit is not None and decided.circuit.is_open:
        probe = decided.circuit.probe
        is_mine = probe is not None and probe.caller == outgoing.draw.caller and decided.later is None
        state = "half_open" if is_mine else "open"
    has_failed = circuit.is_open or circuit.failures > 0 or circuit.asked_ms > 0
    return Answer(decided.later, state, circuit.reason, has_failed)


def circuit_after(circuit: Circuit | None, ended: CallEnded, now: Moment) -> Circuit | None:
    """Return the circuit after a call; None if nothing ever went wrong."""
    if circuit is None and ended.verdict != "fails" and not ended.asked_ms:
        return None
    return after_call(circuit or Circuit(ended.circuit, now), ended, now)


def allowances_after(allowances: Iterable[Allowance], place: Place, ended: CallEnded) -> list[Allowance]:
    """Return what is left in the allowances of a call that was in progress. A call that waited has drawn nothing."""
    if place.is_waiting or ended.used_tokens is None:
        return []
    return [corrected(each, place.tokens, ended.used_tokens) for each in allowances]
