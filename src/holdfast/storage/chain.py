"""The hash chain of a journal, checked: strictly when a journal is read, thoroughly when it is examined.

Pure functions over stored records, the same for every store. Where records come from does not belong here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import StoredRecord, UnreadableEvent, chain_link, decode, is_linked
from holdfast.protocol.events import Record
from holdfast.protocol.rows import Commit, Damage, Erased

_SUSPECTS = 64
"""Up to so many broken links it is looked whether records were moved; beyond, all count as changed."""


def checked(
    session: str, records: list[StoredRecord], after_seq: int, previous_link: bytes, upto_seq: int
) -> list[StoredRecord]:
    """The records, proven to be all those from `after_seq` + 1 to `upto_seq`, unchanged and in order.

    Raises:
        StorageCorrupt: they are not; names the first seq where it shows.
    """
    seq, link = after_seq, previous_link
    for record in records:
        seq += 1
        if record.seq != seq:
            raise _broken(session, seq, "is missing")
        try:
            is_intact = is_linked(link, record)
        except TypeError:  # a flipped bit in a row's header made another type of a value
            is_intact = False
        if not is_intact:
            raise _broken(session, seq, "was changed, or is not the one that was written there")
        link = record.link
    if seq < upto_seq:
        raise _broken(session, seq + 1, "is missing")
    return records


def _broken(session: str, seq: int, what: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"record {seq} of session {session} {what}", hint="`holdfast fsck` lists all damage."
    )


def check_contiguous(commit: Commit) -> None:
    """Refuse a commit whose records do not follow one another.

    Raises:
        ValueError: they do not, which is a bug of whoever made the commit.
    """
    for seq, record in enumerate(commit.records, commit.expected_seq + 1):
        if record.seq != seq:
            raise ValueError(f"record {record.seq} stands where {seq} must be")


class Examined(msgspec.Struct, frozen=True):
    """What was found in one journal."""

    damages: tuple[Damage, ...]
    erased: tuple[Erased, ...]
    records: tuple[Record, ...]
    """Those that are whole, in order."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing in it."""
        return not self.damages and not self.erased


def examine(
    session: str, records: Sequence[StoredRecord], after_seq: int, previous_link: bytes | None, head_seq: int
) -> Examined:
    """All that is wrong with a session's own records, which follow `after_seq`.

    `previous_link` is the link at `after_seq`, None when it is lost; `head_seq` what the session's row says.
    """
    damages = list(_gaps(session, records, after_seq, head_seq))
    damages += _broken_links(session, records, after_seq, previous_link)
    told = {damage.seq for damage in damages if damage.kind in ("changed", "reordered")}
    whole: list[Record] = []
    erased: list[int] = []
    for record in records:
        if record.seq in told:
            continue
        if record.is_erased:
            erased.append(record.seq)
            continue
        try:
            whole.append(decode(record))
        except UnreadableEvent as error:
            damages.append(Damage("unreadable", str(error), session, record.seq))
    damages.sort(key=lambda damage: damage.seq)
    return Examined(tuple(damages), tuple(_stretches(session, erased)), tuple(whole))


def _stretches(session: str, seqs: Sequence[int]) -> Iterable[Erased]:
    """Ascending seqs as stretches without a gap."""
    first = last = 0
    for seq in seqs:
        if first and seq > last + 1:
            yield Erased(session, first, last)
            first = 0
        first, last = first or seq, seq
    if first:
        yield Erased(session, first, last)


def _gaps(session: str, records: Sequence[StoredRecord], after_seq: int, head_seq: int) -> Iterable[Damage]:
    seq = after_seq
    for record in records:
        if record.seq > seq + 1:
            yield _missing(session, seq + 1, record.seq - 1)
        seq = record.seq
    if seq < head_seq:
        yield _missing(session, seq + 1, head_seq)
    elif seq > head_seq:
        yield Damage("row", f"its row ends at record {head_seq}, its journal at {seq}", session, seq)


def _missing(session: str, first: int, last: int) -> Damage:
    what = f"record {first} is missing" if first == last else f"records {first} to {last} are missing"
    return Damage("missing", what, session, first)


def _broken_links(
    session: str, records: Sequence[StoredRecord], after_seq: int, previous_link: bytes | None
) -> Iterable[Damage]:
    """Tells records that were changed from records that were moved, and spares intact ones behind either."""
    broken: list[tuple[StoredRecord, bytes]] = []
    seq, link = after_seq, previous_link
    for record in records:
        if record.seq == seq + 1 and link is not None and not _follows(link, record.seq, record):
            broken.append((record, link))
        seq, link = record.seq, record.link
    if len(broken) > _SUSPECTS:
        yield from (_changed(session, record) for record, _ in broken)
        return
    # A moved record still follows its old neighbour; one behind a flipped link follows the link as it was.
    links = {link for _, link in broken} | {record.link for record, _ in broken}
    links |= {_link(link, record.seq, record) for record, link in broken}
    for record, _ in broken:
        if any(_follows(link, record.seq, record) for link in links):
            continue
        seqs = (other.seq for other, _ in broken if other is not record)
        old = next((seq for seq in seqs if any(_follows(link, seq, record) for link in links)), 0)
        if old:
            yield Damage("reordered", f"here lies what was record {old}", session, record.seq)
        else:
            yield _changed(session, record)


def _changed(session: str, record: StoredRecord) -> Damage:
    return Damage("changed", "the record is not what was written", session, record.seq)


def _follows(previous_link: bytes, seq: int, record: StoredRecord) -> bool:
    return _link(previous_link, seq, record) == record.link


def _link(previous_link: bytes, seq: int, record: StoredRecord) -> bytes:
    try:
        return chain_link(
            previous_link,
            seq,
            record.at_ms,
            record.awake_ms,
            record.epoch,
            record.cause,
            record.type,
            record.v,
            record.body_digest,
        )
    except TypeError:  # a value of another type than was written
        return b""
