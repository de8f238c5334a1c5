"""Resolves names as this machine does, for all that connects. `policy.addresses` judges what they lead to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a name, for a port."""


async def system_lookup(host: str, port: int) -> Sequence[str]:
    """Return what this machine's resolver says."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
