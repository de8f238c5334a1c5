"""The hash chain of a journal, checked: strictly when a journal is read, thoroughly when it is examined.

Pure functions over stored records, the same for every store. Where records come from does not belong here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import LOST, StoredRecord, UnreadableEvent, decode, is_linked, link_after
from holdfast.protocol.events import Record
from holdfast.protocol.rows import Commit, Damage, Stretch

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
        ValueError: they do not. The caller that made the commit has a bug.
    """
    for seq, record in enumerate(commit.records, commit.expected_seq + 1):
        if record.seq != seq:
            raise ValueError(f"record {record.seq} is in the place of record {seq}")


class Examined(msgspec.Struct, frozen=True):
    """What was found in one journal."""

    damages: tuple[Damage, ...]
    erased: tuple[Stretch, ...]
    lost: tuple[Stretch, ...]
    """The records that a repair could not read."""
    records: tuple[Record, ...]
    """The whole records, in order."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing in it."""
        return not (self.damages or self.erased or self.lost)


def examine(
    session: str, records: Sequence[StoredRecord], after_seq: int, previous_link: bytes | None, head_seq: int
) -> Examined:
    """All that is wrong with a session's own records, which follow `after_seq`.

    `previous_link` is the link at `after_seq`, None when it is lost; `head_seq` what the session's row says.
    """
    damages = list(_gaps(session, records, after_seq, head_seq))
    for record, old in _misplaced(records, after_seq, previous_link):
        if old:
            damages.append(Damage("reordered", f"here lies what was record {old}", session, record.seq))
        else:
            damages.append(Damage("changed", "the record is not what was written", session, record.seq))
    told = {damage.seq for damage in damages if damage.kind in ("changed", "reordered")}
    whole: list[Record] = []
    erased: list[int] = []
    lost: list[int] = []
    for record in records:
        if record.seq in told:
            continue
        if record.is_erased:
            (lost if record.type == LOST else erased).append(record.seq)
            continue
        try:
            whole.append(decode(record))
        except UnreadableEvent as error:
            damages.append(Damage("unreadable", str(error), session, record.seq))
    damages.sort(key=lambda damage: damage.seq)
    gone = tuple(stretches(session, erased)), tuple(stretches(session, lost))
    return Examined(tuple(damages), *gone, tuple(whole))


def stretches(session: str, seqs: Sequence[int]) -> Iterable[Stretch]:
    """Ascending seqs as stretches without a gap."""
    first = last = 0
    for seq in seqs:
        if first and seq > last + 1:
            yield Stretch(session, first, last)
            first = 0
        first, last = first or seq, seq
    if first:
        yield Stretch(session, first, last)


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


def proven(
    records: Sequence[StoredRecord], after_seq: int, previous_link: bytes | None
) -> dict[int, StoredRecord]:
    """The records that are what was written, each where it belongs: also one that was moved, and one of which
    nothing but its own link was changed, as the next one shows. What follows a gap is believed."""
    here = {record.seq: record for record in records}
    told = {record.seq: old for record, old in _misplaced(records, after_seq, previous_link)}
    kept = {seq: record for seq, record in here.items() if seq not in told}
    for seq, old in told.items():
        record, before, following = here[seq], here.get(seq - 1), here.get(seq + 1)
        link = before.link if before is not None else previous_link if seq == after_seq + 1 else None
        if old:
            kept.setdefault(old, msgspec.structs.replace(record, seq=old))
        elif link is not None and following is not None:
            own = _link(link, seq, record)
            if follows(own, following.seq, following):
                kept[seq] = record
    return kept


def _misplaced(
    records: Sequence[StoredRecord], after_seq: int, previous_link: bytes | None
) -> Iterator[tuple[StoredRecord, int]]:
    """Records that are not what was written there, each with the seq where it was written, or 0 where it was
    changed. Intact ones behind such a record are spared."""
    broken: list[tuple[StoredRecord, bytes]] = []
    seq, link = after_seq, previous_link
    for record in records:
        if record.seq == seq + 1 and link is not None and not follows(link, record.seq, record):
            broken.append((record, link))
        seq, link = record.seq, record.link
    if len(broken) > _SUSPECTS:
        yield from ((record, 0) for record, _ in broken)
        return
    # A moved record still follows its old neighbour; one behind a flipped link follows the link as it was.
    links = {link for _, link in broken} | {record.link for record, _ in broken}
    links |= {_link(link, record.seq, record) for record, link in broken}
    for record, _ in broken:
        if any(follows(link, record.seq, record) for link in links):
            continue
        seqs = (other.seq for other, _ in broken if other is not record)
        yield record, next((seq for seq in seqs if any(follows(link, seq, record) for link in links)), 0)


def follows(previous_link: bytes, seq: int, record: StoredRecord) -> bool:
    """Whether the record is what was written as the one with that seq behind `previous_link`."""
    return _link(previous_link, seq, record) == record.link


def _link(previous_link: bytes, seq: int, record: StoredRecord) -> bytes:
    try:
        return link_after(previous_link, seq, record)
    except TypeError:  # a value of another type than was written
        return b""
