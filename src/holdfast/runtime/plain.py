"""Reading what events as plain data are filled in with: quoted records and whole outputs of tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.context.transcript import QUOTABLE, text_in
from holdfast.errors import StorageCorrupt
from holdfast.protocol.events import ModelCallStarted, Record
from holdfast.protocol.ports import Journals
from holdfast.views.journal import readable_here
from holdfast.views.plain import output_of, plain, quotes

_ERASED = "[erased]"
"""In the place of a text that a request quotes and nobody has any more."""


class PlainEvents:
    """The events of one session, in their order, as `views.plain` has them."""

    def __init__(self, store: Journals, session: str, on_damage: Callable[[str], None]) -> None:
        """`on_damage`: is told of an output that is not there any more."""
        self._store = store
        self._session = session
        self._on_damage = on_damage
        self._texts: dict[int, str] = {}
        """What the next request may quote, by seq; what else one quotes is read again."""

    async def data(self, record: Record) -> dict[str, Any]:
        """The event of the record.

        Raises:
            StorageCorrupt: a request quotes what is not there.
        """
        event = record.event
        if type(event) in QUOTABLE:
            self._texts[record.seq] = text_in(event)
        await self._read_quoted(quotes(event))
        blob = output_of(event)
        data = plain(event, self._texts, await self._whole(blob, record.seq) if blob else None)
        if isinstance(event, ModelCallStarted):
            self._texts.clear()
        return data

    async def _read_quoted(self, seqs: list[int]) -> None:
        """Read what came before the first record that was seen here, or was sent before in another form."""
        missing = [seq for seq in seqs if seq not in self._texts]
        if missing:
            stored = await self._store.read(self._session, min(missing) - 1, max(missing))
            records = [record for record in map(readable_here, stored) if record is not None]
            self._texts |= {r.seq: text_in(r.event) for r in records if type(r.event) in QUOTABLE}
            self._texts |= {each.seq: _ERASED for each in stored if each.is_erased}

    async def _whole(self, blob: str, seq: int) -> str | None:
        try:
            return (await self._store.blobs.get(blob)).decode(errors="replace")
        except StorageCorrupt as error:
            self._on_damage(f"record {seq}: {error.message}")
            return None
