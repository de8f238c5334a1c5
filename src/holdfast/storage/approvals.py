"""Approvals as their records tell of them. What a store keeps beside the journal only says where those lie."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.summary import approval
from holdfast.errors import StorageCorrupt, StorageNewer
from holdfast.protocol.codec import StoredRecord, UnreadableEvent, decode
from holdfast.protocol.rows import Approval


def approval_row(name: str, records: Sequence[StoredRecord]) -> Approval | None:
    """The approval of that name, from the proven record that asks for it and, when it is decided, the one that does;
    None when what was asked was erased.

    Raises:
        StorageCorrupt: the records tell of something else.
        StorageNewer: a newer version wrote one.
    """
    try:
        told = [decode(record) for record in records]
    except UnreadableEvent as error:
        if error.why == "erased":
            return None
        kind = StorageNewer if error.why == "newer" else StorageCorrupt
        raise kind(f"the approval {name} cannot be read: {error}") from None
    row = approval(name, told[0], told[-1] if len(told) > 1 else None) if told else None
    if row is None:
        raise StorageCorrupt(
            f"the approval {name} is not where its row says", hint="`holdfast fsck` lists all damage."
        )
    return row
