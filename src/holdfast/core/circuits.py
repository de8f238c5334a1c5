"""Decides whether a service can be called, and what the end of a call says about it.

Every store asks this inside the transaction that writes the answer, so all processes of a home agree. How fast a
service may be called is in `rates`.
"""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from holdfast.protocol.circuits import (
    CallEnded,
    Caller,
    Circuit,
    CircuitRules,
    CircuitState,
    Later,
    Probe,
    Verdict,
)
from holdfast.protocol.failures import LONGEST_WAIT_S
from holdfast.protocol.messages import ModelReply
from holdfast.protocol.moments import Moment, elapsed_ms
from holdfast.protocol.outcomes import AttemptResult, ModelFailure

SPREAD_SHARE = 0.1
"""The time in which sessions come back after a wait, as a share of it."""
LEAST_SPREAD_MS, MOST_SPREAD_MS = 500, 30_000

# An example with 3 failures and a cooldown of 30 s. Three calls get a 503: the circuit is open. Ten sessions that
# want to call look again 30 s later. The first of them is the probe, and nine look again after that. The probe gets a
# 503 too, so the next 30 s begin. The next probe gets a response: the circuit is closed, and everybody calls.


def verdict_of(result: AttemptResult) -> Verdict:
    """Return what the end of an attempt says about the service that it called."""
    if type(result) is ModelReply:
        return "works"
    if not isinstance(result, ModelFailure):
        return "neither"
    failure = result.failure
    return "fails" if failure.code == "provider_transient" and not failure.is_of_request else "neither"


def state_of(circuit: Circuit, now: Moment) -> CircuitState:
    """Return the state of a circuit at a time."""
    if not circuit.is_open:
        return "closed"
    return "open" if aged(circuit, now).cooldown_ms else "half_open"


def aged(circuit: Circuit, now: Moment) -> Circuit:
    """Return the same circuit as it is now."""
    passed = elapsed_ms(circuit.at, now)
    probe = circuit.probe
    if probe is not None:
        probe = replace(probe, left_ms=max(probe.left_ms - passed, 0))
    return replace(
        circuit,
        at=now,
        cooldown_ms=max(circuit.cooldown_ms - passed, 0),
        asked_ms=max(circuit.asked_ms - passed, 0),
        probe=probe if probe is not None and probe.left_ms else None,
    )


def ask(
    circuit: Circuit,
    caller: Caller,
    now: Moment,
    rules: CircuitRules,
    limit_ms: int,
    *,
    is_probe_alive: bool = True,
    insists: bool = False,
) -> tuple[Circuit, Later | None]:
    """Return whether a call may be made now, and the circuit after this question: the caller may be the probe.

    Args:
        circuit: What is known about the service.
        caller: Who asks. It may ask again under the same key.
        now: The time.
        rules: The configuration.
        limit_ms: The longest time that the call takes.
        is_probe_alive: Whether the process of the probe still has its lease.
        insists: Whether a person wants the call now, although the service asked for a pause.
    """
    circuit = aged(circuit, now)
    if circuit.asked_ms and not insists:
        wait_ms = circuit.asked_ms + spread_ms(circuit.asked_ms, f"{caller.session} {circuit.name}")
        return circuit, Later("asked", circuit.name, wait_ms, circuit.reason)
    if not circuit.is_open:
        return circuit, None
    if circuit.cooldown_ms:
        return circuit, Later("open", circuit.name, circuit.cooldown_ms, circuit.reason)
    probe = circuit.probe
    if probe is not None and is_probe_alive and probe.caller != caller:
        # Nobody knows when the probe ends. After that everybody may call, so not all come back at once.
        wait_ms = min(probe.left_ms, rules.cooldown_ms)
        wait_ms += spread_ms(rules.cooldown_ms, f"{caller.session} {circuit.name}")
        return circuit, Later("probing", circuit.name, wait_ms, circuit.reason)
    return replace(circuit, probe=Probe(caller, limit_ms)), None


def after_call(circuit: Circuit, ended: CallEnded, now: Moment) -> Circuit:
    """Return the circuit after a call has ended."""
    circuit, rules = aged(circuit, now), ended.rules
    is_probe = circuit.probe is not None and circuit.probe.caller == ended.caller
    if is_probe:
        circuit = replace(circuit, probe=None)
    if ended.asked_ms:
        # A later and shorter wish does not end a longer wait.
        asked_ms = max(circuit.asked_ms, min(ended.asked_ms, int(LONGEST_WAIT_S * 1000)))
        circuit = replace(circuit, asked_ms=asked_ms, reason=ended.reason)
    match ended.verdict:
        case "works":
            asked_ms = 0 if ended.insisted and not ended.asked_ms else circuit.asked_ms
            return replace(circuit, failures=0, is_open=False, cooldown_ms=0, asked_ms=asked_ms, probe=None)
        case "neither":
            return circuit
        case "fails" if circuit.is_open and not is_probe:  # it began before the circuit opened
            return circuit
        case "fails":
            failures = circuit.failures + 1
            circuit = replace(circuit, failures=failures, reason=ended.reason)
            if circuit.is_open or failures >= rules.failures:
                return replace(circuit, is_open=True, cooldown_ms=rules.cooldown_ms, probe=None)
            return circuit


def spread_ms(wait_ms: int, seed: str) -> int:
    """Return how much longer one of many waits, so that they do not come back at once."""
    within_ms = min(max(int(wait_ms * SPREAD_SHARE), LEAST_SPREAD_MS), MOST_SPREAD_MS)
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % within_ms
