"""A session's journal as it was read, with what of it this version can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import StoredRecord, UnreadableEvent, decode
from holdfast.protocol.events import Record
from holdfast.protocol.rows import SessionRow


class Journal(NamedTuple):
    """A session as it was read."""

    row: SessionRow
    stored: Sequence[StoredRecord]
    """All records, also those that this version cannot read."""
    records: Sequence[Record]
    """The readable ones."""

    @property
    def erased(self) -> int:
        """How many records have no body any more."""
        return sum(stored.is_erased for stored in self.stored)

    @property
    def newer(self) -> int:
        """How many records a newer version wrote."""
        return len(self.stored) - len(self.records) - self.erased


def readable_here(stored: StoredRecord) -> Record | None:
    """The record; None when a newer version wrote it, or it was erased.

    Raises:
        StorageCorrupt: it cannot be read for any other reason.
    """
    try:
        return decode(stored)
    except UnreadableEvent as error:
        if error.why != "damaged":
            return None
        hint = "`holdfast fsck` tells what is wrong."
        raise StorageCorrupt(f"record {stored.seq} of {stored.session}: {error}", hint=hint) from None
