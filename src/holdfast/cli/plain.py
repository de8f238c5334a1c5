"""Events as plain data for scripts: the same shape while they happen and when they are read later.

What stands beside an event on its line (seq, time, trace id) is the business of who prints it.
"""

from __future__ import annotations

from typing import Any

from holdfast.cli.journal import readable_here
from holdfast.cli.terminal import warn
from holdfast.context.requests import fragment, quoted_text
from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import to_builtins
from holdfast.protocol.events import ModelCallStarted, Piece, Record, ToolCallFinished
from holdfast.protocol.ports import Store

_ERASED = "[erased]"
"""In the place of a text that a request quotes and nobody has any more."""


class PlainEvents:
    """The events of one session, in their order, with text that is kept elsewhere filled in.

    `add` of a request holds its new messages whole; a tool's clipped result has the whole output beside it as
    `full_text`, null when the blob is damaged.
    """

    def __init__(self, store: Store, session: str) -> None:
        self._store = store
        self._session = session
        self._texts: dict[int, str] = {}
        """What the next request may quote, by seq; what else one quotes is read again."""

    async def data(self, record: Record) -> dict[str, Any]:
        """The event of the record.

        Raises:
            StorageCorrupt: a request quotes what is not there.
        """
        event = record.event
        text = quoted_text(event)
        if text is not None:
            self._texts[record.seq] = text
        data = to_builtins(event)
        match event:
            case ModelCallStarted(add=pieces) if pieces:
                await self._read_quoted(pieces)
                data["add"] = [fragment(piece, self._texts).decode() for piece in pieces]
                self._texts.clear()
            case ToolCallFinished(result=result) if result.blob:
                data["result"]["full_text"] = await self._whole(result.blob, record.seq)
        return data

    async def _read_quoted(self, pieces: tuple[Piece, ...]) -> None:
        """Read what came before the first record that was seen here, or was sent before in another form."""
        missing = [part for piece in pieces for part in piece if isinstance(part, int)]
        missing = [seq for seq in missing if seq not in self._texts]
        if missing:
            stored = await self._store.read(self._session, min(missing) - 1, max(missing))
            self._texts |= {each.seq: _ERASED for each in stored if each.is_erased}
            records = [record for record in map(readable_here, stored) if record is not None]
            texts = {record.seq: quoted_text(record.event) for record in records}
            self._texts |= {seq: text for seq, text in texts.items() if text is not None}

    async def _whole(self, blob: str, seq: int) -> str | None:
        try:
            return (await self._store.blobs.get(blob)).decode(errors="replace")
        except StorageCorrupt as error:
            warn(f"record {seq}: {error.message}")
            return None
