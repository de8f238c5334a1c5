"""A session as a command read it from a store: its row, its journal, and how many commands wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import StoredRecord, UnreadableEvent, decode
from holdfast.protocol.events import Record
from holdfast.protocol.rows import SessionRow


class StoredSession(NamedTuple):
    """A session with its journal."""

    row: SessionRow
    stored: Sequence[StoredRecord]
    """All records, including those that this version cannot decode."""
    records: Sequence[Record]
    """The records that this version can decode."""
    waiting: int = 0
    """How many commands no driver has read yet."""

    @property
    def erased(self) -> int:
        """Count the records whose body was erased."""
        return sum(stored.is_erased for stored in self.stored)

    @property
    def newer(self) -> int:
        """Count the records that a newer version wrote."""
        return len(self.stored) - len(self.records) - self.erased


def readable_here(stored: StoredRecord) -> Record | None:
    """Decode a record. Return None if it was erased or a newer version wrote it.

    Raises:
        StorageCorrupt: The record is damaged.
    """
    try:
        return decode(stored)
    except UnreadableEvent as error:
        if error.why != "damaged":
            return None
        hint = "`holdfast fsck` lists all damage."
        raise StorageCorrupt(f"record {stored.seq} of {stored.session}: {error}", hint=hint) from None
