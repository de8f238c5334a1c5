"""Circuits, allowances and the line of calls in memory, for `volatile.VolatileStore`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from holdfast.core.circuits import aged
from holdfast.core.outgoing import allowances_after, answer_of, circuit_after, decide
from holdfast.protocol.circuits import CallEnded, Caller, Circuit
from holdfast.protocol.moments import Moment
from holdfast.protocol.ports import Clock
from holdfast.protocol.rates import Allowance, Place
from holdfast.protocol.services import Answer, Outgoing


class VolatileServices:
    """What one process knows about the services that it calls."""

    def __init__(self, clock: Clock, is_alive: Callable[[Caller], bool]) -> None:
        """`is_alive`: returns whether a caller still has its lease."""
        self._clock = clock
        self._is_alive = is_alive
        self._circuits: dict[str, Circuit] = {}
        self._allowances: dict[str, Allowance] = {}
        self._places: dict[tuple[str, str], Place] = {}
        """By session and key."""

    def may_call(self, outgoing: Outgoing) -> Answer:
        """Do what `Services.may_call` says."""
        circuit, places = self._circuits.get(outgoing.circuit), [*self._places.values()]
        decided = decide(outgoing, circuit, self._allowances, places, self._now(), self._is_alive)
        if decided.circuit is not None:
            self._circuits[decided.circuit.name] = decided.circuit
        if decided.drawn is not None:
            for caller in decided.drawn.gone:
                del self._places[caller.session, caller.key]
            self._allowances |= {each.name: each for each in decided.drawn.allowances}
            self._places |= {(each.caller.session, each.caller.key): each for each in decided.drawn.places}
        return answer_of(decided, circuit, outgoing)

    def ended(self, calls: Iterable[CallEnded]) -> None:
        """Do what `Services.ended` says."""
        for each in calls:
            after = circuit_after(self._circuits.get(each.circuit), each, self._now())
            if after is not None:
                self._circuits[each.circuit] = after
            place = self._places.pop((each.caller.session, each.caller.key), None)
            if place is not None:
                drawn = [self._allowances[name] for name in place.names if name in self._allowances]
                self._allowances |= {every.name: every for every in allowances_after(drawn, place, each)}

    def circuits(self) -> Sequence[Circuit]:
        """Do what `Services.circuits` says."""
        now = self._now()
        return [aged(circuit, now) for _, circuit in sorted(self._circuits.items())]

    def reset_circuit(self, name: str) -> bool:
        """Do what `Services.reset_circuit` says."""
        if name not in self._circuits:
            return False
        self._circuits[name] = Circuit(name, self._now())
        return True

    def forget(self, session: str) -> None:
        """Forget the calls of a session that is deleted."""
        for name in [name for name in self._places if name[0] == session]:
            del self._places[name]

    def _now(self) -> Moment:
        return Moment(self._clock.now_ms(), self._clock.uptime_ms())
