"""The body of a request that is checked right before its first byte is written.

Headers go out with the first bytes of the body and never before, so that a check that raises leaves nothing sent.
Loads aiohttp: only `http` may import it, when a request is to be sent.
"""

from __future__ import annotations

import asyncio

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from holdfast.errors import Fenced
from holdfast.protocol.ports import Check

_PIECE_BYTES = 1 << 18
"""One write of a large body would hold the loop up."""


class CheckedBody(Payload):
    """Exactly these bytes."""

    _autoclose = True

    def __init__(self, content: bytes, check: Check) -> None:
        super().__init__(content)
        self._size = len(content)
        self._content = content
        self._check = check
        self.fenced: Fenced | None = None
        """What the check raised: aiohttp tells of it as a broken connection."""

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send them."""
        try:
            self._check()
        except Fenced as fenced:
            self.fenced = fenced
            raise
        rest = memoryview(self._content)
        while rest:
            await writer.write(rest[:_PIECE_BYTES])
            rest = rest[_PIECE_BYTES:]
            if rest:
                await asyncio.sleep(0)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The text."""
        return self._content.decode(encoding, errors)
