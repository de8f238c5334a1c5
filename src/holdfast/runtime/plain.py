"""Reads what `views.plain` needs to complete events: quoted records, settings, and whole outputs of tools."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from holdfast.context.transcript import QUOTABLE, text_in
from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import UnreadableEvent, decode_event
from holdfast.protocol.events import ModelCallStarted, Record, SettingsStored
from holdfast.protocol.ports import Journals
from holdfast.protocol.request import Enclosed, Quoted
from holdfast.protocol.settings import Group
from holdfast.views.plain import named, outputs_of, plain, quotes
from holdfast.views.stored import readable_here

_ERASED = "[erased]"
"""Replaces a text that a request quotes and that was erased."""


class PlainEvents:
    """Completes the events of one session, in order."""

    def __init__(self, store: Journals, session: str, on_damage: Callable[[str], None]) -> None:
        """`on_damage`: called for an output that is missing."""
        self._store = store
        self._session = session
        self._on_damage = on_damage
        self._texts: dict[Quoted, str] = {}
        """What the next request may quote. Other quotes are read again."""
        self._groups: dict[str, Group] = {}
        """Settings by name. Those stored before the first event here are read again."""

    async def data(self, record: Record) -> dict[str, Any]:
        """Return the event of the record.

        Raises:
            StorageCorrupt: a request quotes a record that is missing.
        """
        event = record.event
        if type(event) in QUOTABLE:
            self._texts[record.seq] = text_in(event)
        if isinstance(event, SettingsStored):
            self._groups |= event.groups
        await self._read_quoted(quotes(event))
        await self._read_named(named(event), record.seq)
        outputs = {blob: await self._whole(blob, record.seq) for blob in outputs_of(event)}
        data = plain(event, self._texts, outputs, self._groups)
        if isinstance(event, ModelCallStarted) and event.purpose == "work":
            self._texts.clear()
        return data

    async def _read_quoted(self, quoted: list[Quoted]) -> None:
        """Read what was stored before the first event here, or was sent before in another wire format."""
        missing = [each for each in quoted if isinstance(each, int) and each not in self._texts]
        for each in quoted:
            if isinstance(each, Enclosed):  # nobody reads media in a list of events
                text = "" if each.weight_bytes else await self._whole(each.blob, 0)
                self._texts[each] = f"[blob {each.blob}]" if text is None or each.weight_bytes else text
        if missing:
            stored = await self._store.read(self._session, min(missing) - 1, max(missing))
            records = [record for record in map(readable_here, stored) if record is not None]
            self._texts |= {r.seq: text_in(r.event) for r in records if type(r.event) in QUOTABLE}
            self._texts |= {each.seq: _ERASED for each in stored if each.is_erased}

    async def _read_named(self, names: Collection[str], upto_seq: int) -> None:
        if not self._groups.keys() >= set(names):
            stored = await self._store.select(self._session, ("SettingsStored",), upto_seq, list)
            for _, type_, v, body in stored:
                with suppress(UnreadableEvent):  # the settings were erased: their names stay
                    event = decode_event(type_, v, body)
                    self._groups |= event.groups if isinstance(event, SettingsStored) else {}

    async def _whole(self, blob: str, seq: int) -> str | None:
        try:
            return (await self._store.blobs.get(blob)).decode(errors="replace")
        except StorageCorrupt as error:
            self._on_damage(f"record {seq}: {error.message}")
            return None
