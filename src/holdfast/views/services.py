"""Shows circuits to people and scripts: which services fail, or want no calls for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.circuits import state_of
from holdfast.protocol.circuits import Circuit
from holdfast.views.lines import Line, Span, iso, moment, table

_STYLES = {"closed": "green", "open": "red", "half_open": "yellow"}


def circuit_row(circuit: Circuit) -> dict[str, Any]:
    """Return a circuit as it is at its moment, for scripts."""
    now_ms = circuit.at.now_ms
    waits = circuit.is_open and circuit.cooldown_ms
    return {
        "name": circuit.name,
        "state": state_of(circuit, circuit.at),
        "failures": circuit.failures,
        "retry_at": iso(now_ms + circuit.cooldown_ms) if waits else None,
        "held_until": iso(now_ms + circuit.asked_ms) if circuit.asked_ms else None,
        "reason": circuit.reason,
    }


def circuit_lines(circuits: Sequence[Circuit], width: int) -> list[Line]:
    """Return one line per circuit."""
    cells: list[list[Span | str]] = [
        [Span(name, "bold") for name in ("name", "state", "failures", "calls", "reason")]
    ]
    for each in circuits:
        state = state_of(each, each.at)
        shown = Span(state.replace("_", " "), _STYLES[state])
        cells.append([each.name, shown, str(each.failures), when_called(each), each.reason])
    return table(cells, width, right=(2,), drop=(4, 2))


def when_called(circuit: Circuit) -> str:
    """Return when its service is called, in a few words."""
    now_ms = circuit.at.now_ms
    if circuit.asked_ms:
        return f"none before {moment(now_ms + circuit.asked_ms, now_ms)}"
    if not circuit.is_open:
        return "yes"
    if circuit.cooldown_ms:
        return f"one at {moment(now_ms + circuit.cooldown_ms, now_ms)}"
    return "one is under way" if circuit.probe is not None else "the next one"
