"""A request body that checks the lease right before its first byte is written.

Headers are sent with the first bytes of the body and never before, so nothing was sent if the check raises. This
loads aiohttp: only `http` may import it, when a request is sent.
"""

from __future__ import annotations

import asyncio

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from holdfast.errors import Fenced
from holdfast.protocol.ports import Check

_PIECE_BYTES = 1 << 18
"""Writing a large body at once would block the loop."""


class CheckedBody(Payload):
    """Exactly these bytes."""

    _autoclose = True

    def __init__(self, content: bytes, check: Check) -> None:
        super().__init__(content)
        self._size = len(content)
        self._content = content
        self._check = check
        self.fenced: Fenced | None = None
        """The exception of the check. aiohttp itself reports it as a broken connection."""

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the bytes."""
        try:
            self._check()
        except Fenced as fenced:
            self.fenced = fenced
            raise
        if len(self._content) <= _PIECE_BYTES:
            await writer.write(self._content)
            return
        rest = memoryview(self._content)
        while rest:
            await writer.write(rest[:_PIECE_BYTES])
            rest = rest[_PIECE_BYTES:]
            if rest:
                await asyncio.sleep(0)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the text."""
        return self._content.decode(encoding, errors)
