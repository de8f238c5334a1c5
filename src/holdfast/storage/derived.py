"""Compares the rows that a store keeps beside a journal with the journal's records. It works for every store.

Everything here can be made again from the records. Each store decides where it keeps the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

import msgspec

from holdfast.core.state import State
from holdfast.core.summary import approval_marks, summary
from holdfast.protocol.blobs import blobs_of
from holdfast.protocol.events import Record, SessionForked
from holdfast.protocol.rows import Damage, SessionRow
from holdfast.storage.chain import Examined

_LARGEST_EPOCH = 1 << 53
"""No session is ever taken so often."""


class Derived(msgspec.Struct, frozen=True):
    """The rows of one session. A field is None if its rows cannot be read; the reader has reported the damage."""

    row: SessionRow | None
    blobs: frozenset[str] | None
    """The blobs that are listed as used."""
    approvals: Mapping[str, tuple[int, ...]] | None
    """The records that ask for and decide each approval, by its id."""


def compare(
    session: str, head_seq: int, examined: Examined, state: State | None, kept: Derived
) -> Iterator[Damage]:
    """Yield the damage where the rows do not say what the records say.

    Args:
        session: Its id.
        head_seq: The end of its journal.
        examined: Its own records.
        state: The fold of all its records; None when they are not whole.
        kept: Its rows.
    """
    if kept.row is not None:
        yield from _row_damages(session, head_seq, state, kept.row)
    if kept.blobs is not None:
        yield from _blob_damages(session, examined, kept.blobs)
    if kept.approvals is not None:
        yield from _approval_damages(session, examined, kept.approvals)


def approvals_of(records: Iterable[Record]) -> dict[str, tuple[int, ...]]:
    """The approvals by id: where the records ask for one, and where they decide it first."""
    found: dict[str, tuple[int, ...]] = {}
    for mark in approval_marks(records):
        known = found.get(mark.id, ())
        if len(known) == int(mark.is_decision):
            found[mark.id] = (*known, mark.seq)
    return found


def own_records(records: Sequence[Record]) -> Sequence[Record]:
    """Return the records after the last branching. A parent wrote the others: its approvals and epochs do not count.

    A store usually has only a session's own records under its id. An imported branch also has its parent's.
    """
    forks = (at for at in range(len(records) - 1, -1, -1) if isinstance(records[at].event, SessionForked))
    return records[next(forks, 0) :]


def is_epoch(epoch: object, last_epoch: int) -> TypeGuard[int]:
    """Whether a lease may have that epoch in a session whose records were written in epochs up to `last_epoch`."""
    return isinstance(epoch, int) and max(last_epoch, 1) <= epoch <= _LARGEST_EPOCH


def new_row(session: str, key: str, now_ms: int) -> SessionRow:
    """The row of a session without records, made then."""
    return SessionRow(session=session, key=key, created_ms=now_ms, updated_ms=now_ms)


def _row_damages(session: str, head_seq: int, state: State | None, row: SessionRow) -> Iterator[Damage]:
    if row.seq != head_seq:
        yield Damage("row", f"its row was made at record {row.seq}, not at {head_seq}", session, row.seq)
    elif not head_seq and row != new_row(session, row.key, row.updated_ms):
        yield Damage("row", "its row tells of a run, and it has no records", session)
    elif head_seq and state is not None:
        old, new = msgspec.structs.asdict(row), msgspec.structs.asdict(summary(state))
        fields = ", ".join(name for name, value in old.items() if new[name] != value)
        if fields:
            yield Damage("row", f"its row tells something else than its journal: {fields}", session)


def _blob_damages(session: str, examined: Examined, named: frozenset[str]) -> Iterator[Damage]:
    needed: set[str] = set()
    for record in examined.records:
        for blob in blobs_of(record.event):
            if blob not in needed and blob not in named:
                what = f"the blob {blob} is not listed as used, and could be deleted"
                yield Damage("row", what, session, record.seq)
            needed.add(blob)
    for blob in sorted(named - needed):
        if examined.is_whole:  # else what else is referred to cannot be told
            yield Damage("row", f"the blob {blob} is listed as used, and no record refers to it", session)


def _approval_damages(
    session: str, examined: Examined, listed: Mapping[str, tuple[int, ...]]
) -> Iterator[Damage]:
    told = approvals_of(own_records(examined.records))
    for name, seqs in told.items():
        kept = listed.get(name, ())
        if kept != seqs and (examined.is_whole or kept[: len(seqs)] != seqs):
            yield Damage("row", f"the approval {name} is not listed as its records tell", session, seqs[0])
    for name in listed.keys() - told.keys():
        if examined.is_whole:
            yield Damage("row", f"the approval {name} is listed, and no record asks for it", session)
