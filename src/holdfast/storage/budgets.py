"""Budgets in the database: what is booked in each of them, and what is reserved.

The sum of a budget is kept with the number of the last line of the books that it has, and brought forward when it is
needed. So a commit writes one line, whatever is limited, and nobody adds up all lines at each attempt.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from holdfast.core.budgets import decide_claim
from holdfast.protocol.budgets import (
    LAST_PASS_KEY,
    Balance,
    Bucket,
    Claim,
    Claimed,
    Reservation,
    counts_in,
    reserved_in,
)
from holdfast.protocol.spending import LOST, Amounts

_SUMS = "coalesce(sum(spent), 0), coalesce(sum(estimated), 0), coalesce(sum(held), 0)"
_ALL_LINES = (
    f"SELECT {_SUMS} FROM ledger WHERE line <= :line AND begun_ms >= :begun AND (:ends = 0 OR begun_ms < :ends)"
    " AND (:user = '' OR user = :user) AND (:session = '' OR session = :session)"
)
_SESSION_LINES = (
    f"SELECT {_SUMS} FROM ledger INDEXED BY ledger_of_session WHERE line <= :line AND session = :session"
)
"""Adding up the lines of one session, which have an index."""
_NEW_LINES = (
    "SELECT line, session, begun_ms, user, spent, estimated, held FROM ledger WHERE line > ? ORDER BY line"
)
_KEEP = "INSERT OR REPLACE INTO balances (bucket, line, spent, estimated, held) VALUES (?, ?, ?, ?, ?)"
_RESERVE = (
    "INSERT OR REPLACE INTO reservations (session, key, begun_ms, user, microusd) VALUES (?, ?, ?, ?, ?)"
)


def reserve(connection: sqlite3.Connection, claim: Claim) -> Claimed:
    """Do what `Ledger.reserve` says."""
    amounts = brought_forward(connection, claim.buckets)
    claimed, mine = decide_claim(claim, amounts, reservations(connection))
    session, keys = claim.attempt.session, {each.key for each in mine}
    if claim.attempt.key not in keys:
        connection.execute(
            "DELETE FROM reservations WHERE session = ? AND key = ?", (session, claim.attempt.key)
        )
    if claimed.short is None:
        if claim.kept_microusd == 0:
            connection.execute(
                "DELETE FROM reservations WHERE session = ? AND key = ?", (session, LAST_PASS_KEY)
            )
        connection.executemany(
            _RESERVE, [(each.session, each.key, each.begun_ms, each.user, each.microusd) for each in mine]
        )
    return claimed


def give_back(connection: sqlite3.Connection, claim: Claim) -> None:
    """Free what the attempt of a claim has reserved: it does not begin now. The last pass keeps what it has."""
    connection.execute(
        "DELETE FROM reservations WHERE session = ? AND key = ?", (claim.attempt.session, claim.attempt.key)
    )


def free(connection: sqlite3.Connection, session: str, but: Sequence[str]) -> None:
    """Free what a session has reserved under other keys than these."""
    kept = ", ".join("?" * len(but))
    connection.execute(f"DELETE FROM reservations WHERE session = ? AND key NOT IN ({kept})", (session, *but))


def give_up(connection: sqlite3.Connection, session: str) -> None:
    """Free what a session has reserved that is deleted. What its attempts may have cost stays held in the books."""
    connection.execute(
        "INSERT INTO ledger (session, key, begun_ms, user, model, purpose, spent, estimated, held)"
        " SELECT session, key, begun_ms, user, '', ?, 0, 0, microusd FROM reservations"
        " WHERE session = ? AND key <> ? AND microusd > 0",
        (LOST, session, LAST_PASS_KEY),
    )
    free(connection, session, ())


def reservations(connection: sqlite3.Connection) -> list[Reservation]:
    """Return all that is reserved: as much as there are attempts at work, and runs that keep a last pass."""
    found = connection.execute("SELECT session, key, begun_ms, user, microusd FROM reservations")
    return [Reservation(*row) for row in found]


def balances(connection: sqlite3.Connection, buckets: Sequence[Bucket]) -> list[Balance]:
    """Do what `Ledger.balances` says. Changes nothing."""
    reserved = reservations(connection)
    return [
        Balance(bucket, booked.spent, booked.estimated, booked.held, reserved_in(bucket, reserved))
        for bucket, (booked, _) in zip(buckets, _booked(connection, buckets), strict=True)
    ]


def brought_forward(connection: sqlite3.Connection, buckets: Sequence[Bucket]) -> list[Amounts]:
    """Return what is booked in each budget, and keep it for the next time."""
    found = _booked(connection, buckets)
    changed = [
        (bucket.key, line, booked.spent, booked.estimated, booked.held)
        for bucket, (booked, line) in zip(buckets, found, strict=True)
        if line
    ]
    if changed:
        connection.executemany(_KEEP, changed)
    return [booked for booked, _ in found]


def _booked(connection: sqlite3.Connection, buckets: Sequence[Bucket]) -> list[tuple[Amounts, int]]:
    """Return what is booked in each budget, and the line up to which this has to be kept; 0: that is kept already."""
    keys = [bucket.key for bucket in buckets]
    marks = ", ".join("?" * len(keys))
    kept = {
        bucket: (line, Amounts(*amounts))
        for bucket, line, *amounts in connection.execute(
            f"SELECT bucket, line, spent, estimated, held FROM balances WHERE bucket IN ({marks})", keys
        )
    }
    last = connection.execute("SELECT coalesce(max(line), 0) FROM ledger").fetchone()[0]
    first = min([line for line, _ in kept.values()], default=last)
    fresh = connection.execute(_NEW_LINES, (first,)).fetchall() if first < last else []
    found: list[tuple[Amounts, int]] = []
    for bucket in buckets:
        if bucket.key not in kept:
            found.append((_added_up(connection, bucket, last), last))
            continue
        line, amounts = kept[bucket.key]
        for number, session, begun_ms, user, *booked in fresh:
            if number > line and counts_in(bucket, begun_ms, user, session):
                amounts += Amounts(*booked)
        # A budget that nothing was added to is brought forward too: the lines in between are read only once.
        found.append((amounts, last if line < last else 0))
    return found


def _added_up(connection: sqlite3.Connection, bucket: Bucket, upto_line: int) -> Amounts:
    """Return what all lines come to in a budget. Once for each budget: then its sum is kept."""
    is_of_session = bucket.scope == "session"
    values = {
        "line": upto_line,
        "begun": bucket.begun_ms,
        "ends": bucket.ends_ms,
        "user": bucket.user,
        "session": bucket.session,
    }
    sql = _SESSION_LINES if is_of_session else _ALL_LINES
    return Amounts(*connection.execute(sql, values).fetchone())
