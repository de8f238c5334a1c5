"""Circuits, allowances and the line of calls in the database.

There are few rows: a circuit for each service that ever failed, an allowance for each name with a rate, and a place
for each call that waits for one or has drawn from one. A row that cannot be read counts as one that is not there:
what it says is found out again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from holdfast.core.circuits import aged
from holdfast.core.outgoing import allowances_after, answer_of, circuit_after, decide
from holdfast.protocol.budgets import Claim, Claimed
from holdfast.protocol.circuits import CallEnded, Caller, Circuit
from holdfast.protocol.moments import Moment
from holdfast.protocol.rates import Allowance, Place
from holdfast.protocol.services import FREE, Answer, Outgoing
from holdfast.storage import budgets
from holdfast.storage.reads import Term

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_circuit_decoder = msgspec.json.Decoder(Circuit)
_allowance_decoder = msgspec.json.Decoder(Allowance)
_place_decoder = msgspec.json.Decoder(Place)

_ONE = "SELECT body FROM services WHERE name = ?"
_ALL = "SELECT body FROM services WHERE name >= ? AND name < ? ORDER BY name"
_PUT = "INSERT OR REPLACE INTO services (name, body) VALUES (?, ?)"
_DROP = "DELETE FROM services WHERE name = ?"
_CIRCUITS = ("circuit:", "circuit;")
"""The names of all circuits are between these two."""
_PLACES = ("place:", "place;")
_TERM = (
    "SELECT from_ms, until_ms FROM leases JOIN sessions ON number = session"
    " WHERE id = ? AND epoch = ? AND holder IS NOT NULL"
)


def free_call(connection: sqlite3.Connection, name: str) -> Answer | None:
    """Return the answer to a call without rates that may go out; None if something has to be written for it."""
    circuit = _circuit(connection, name)
    if circuit is None:
        return FREE
    if circuit.is_open or circuit.asked_ms:
        return None
    return FREE if not circuit.failures else Answer(reason=circuit.reason, has_failed=True)


def may_call(
    connection: sqlite3.Connection, outgoing: Outgoing, now: Moment, claim: Claim | None = None
) -> Answer:
    """Do what `Services.may_call` says."""
    claimed: Claimed | None = None
    if claim is not None:
        # Most claims are granted. If the call has to wait, its money is given back.
        claimed = budgets.reserve(connection, claim)
        if claimed.short is not None:
            return Answer(claimed=claimed)
    answer = _may_call(connection, outgoing, now)
    if claim is None:
        return answer
    if answer.later is not None:
        budgets.give_back(connection, claim)
        return answer
    return msgspec.structs.replace(answer, claimed=claimed)


def _may_call(connection: sqlite3.Connection, outgoing: Outgoing, now: Moment) -> Answer:

    def is_alive(caller: Caller) -> bool:
        found = connection.execute(_TERM, (caller.session, caller.epoch)).fetchone()
        return found is not None and Term(*found).left_ms(now.uptime_ms) > 0

    rates = outgoing.draw.rates
    circuit = _circuit(connection, outgoing.circuit)
    allowances = {each.name: each for each in _allowances(connection, [name for name, _ in rates])}
    places = [*_read(connection, _ALL, _PLACES, _place_decoder)] if rates else []
    decided = decide(outgoing, circuit, allowances, places, now, is_alive)
    if decided.circuit is not None and decided.circuit != circuit:
        _put(connection, [_of_circuit(decided.circuit)])
    if decided.drawn is not None:
        drawn = decided.drawn
        _put(connection, [*map(_of_allowance, drawn.allowances), *map(_of_place, drawn.places)])
        if drawn.gone:
            connection.executemany(_DROP, [(_place_name(each),) for each in drawn.gone])
    return answer_of(decided, circuit, outgoing)


def ended(connection: sqlite3.Connection, calls: Iterable[CallEnded], now: Moment) -> None:
    """Do what `Services.ended` says."""
    for each in calls:
        circuit = _circuit(connection, each.circuit)
        after = circuit_after(circuit, each, now)
        # Most calls work, as the one before did.
        if after is not None and (circuit is None or after != aged(circuit, now)):
            _put(connection, [_of_circuit(after)])
        name = _place_name(each.caller)
        for place in _read(connection, _ONE, (name,), _place_decoder):
            left = allowances_after(_allowances(connection, place.names), place, each)
            _put(connection, map(_of_allowance, left))
            connection.execute(_DROP, (name,))


def circuits(connection: sqlite3.Connection, now: Moment) -> list[Circuit]:
    """Do what `Services.circuits` says."""
    return [aged(each, now) for each in _read(connection, _ALL, _CIRCUITS, _circuit_decoder)]


def reset_circuit(connection: sqlite3.Connection, name: str, now: Moment) -> bool:
    """Do what `Services.reset_circuit` says."""
    circuit = Circuit(name, now)
    is_known = connection.execute(_ONE, (_circuit_name(name),)).fetchone() is not None
    if is_known:
        _put(connection, [_of_circuit(circuit)])
    return is_known


def forget(connection: sqlite3.Connection, session: str) -> None:
    """Forget the calls of a session that is deleted."""
    connection.execute(
        "DELETE FROM services WHERE name >= ? AND name < ?", (f"place:{session}:", f"place:{session};")
    )
    for each in [*_read(connection, _ALL, _CIRCUITS, _circuit_decoder)]:
        if each.probe is not None and each.probe.caller.session == session:
            _put(connection, [_of_circuit(msgspec.structs.replace(each, probe=None))])


def _circuit(connection: sqlite3.Connection, name: str) -> Circuit | None:
    return next(_read(connection, _ONE, (_circuit_name(name),), _circuit_decoder), None)


def _allowances(connection: sqlite3.Connection, names: Sequence[str]) -> Iterator[Allowance]:
    for name in names:
        yield from _read(connection, _ONE, (f"allowance:{name}",), _allowance_decoder)


def _read(
    connection: sqlite3.Connection, sql: str, values: Sequence[str], decoder: msgspec.json.Decoder[T]
) -> Iterator[T]:
    for (body,) in connection.execute(sql, values).fetchall():
        try:
            yield decoder.decode(body)
        except msgspec.DecodeError:
            continue


def _put(connection: sqlite3.Connection, rows: Iterable[tuple[str, bytearray]]) -> None:
    connection.executemany(_PUT, rows)


def _of_circuit(circuit: Circuit) -> tuple[str, bytearray]:
    return _circuit_name(circuit.name), bytearray(_encoder.encode(circuit))


def _of_allowance(allowance: Allowance) -> tuple[str, bytearray]:
    return f"allowance:{allowance.name}", bytearray(_encoder.encode(allowance))


def _of_place(place: Place) -> tuple[str, bytearray]:
    return _place_name(place.caller), bytearray(_encoder.encode(place))


def _circuit_name(name: str) -> str:
    return f"circuit:{name}"


def _place_name(caller: Caller) -> str:
    return f"place:{caller.session}:{caller.key}"
