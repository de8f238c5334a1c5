"""What a process asked of the network through the proxy: what a driver and its proxy say to each other, and what the
journal keeps of it.

Which requests are allowed is decided in `policy`. The proxy itself is in `sandbox`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.protocol.counts import counted

Verdict = Literal["allowed", "refused", "failed"]
"""`refused`: by the policy, or because it has more than one reading. `failed`: it was allowed, and has no end."""

MAX_EXCHANGES = 2_000
"""So many requests of a call are kept. The others are counted."""
TUNNEL = "CONNECT"
"""The method of a request for a connection whose content the proxy does not see."""


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request, and what became of it."""

    method: str
    where: str
    """The address of a request; host and port of a connection; empty if it could not be read."""
    verdict: Verdict
    why: str = ""
    """Why it was refused or failed, as a sentence."""
    status: int = 0
    """The status of the response; 0 without one."""
    sent_bytes: int = 0
    """What went to the server, with the head."""
    received_bytes: int = 0

    @property
    def line(self) -> str:
        """The exchange as a line of text."""
        what = f"{self.method} {self.where}".strip() or "a request"
        how = f"{self.status}" if self.verdict == "allowed" and self.status else self.verdict
        moved = f"{counted(self.sent_bytes, 'byte')} sent, {counted(self.received_bytes, 'byte')} received"
        return f"{what}: {how}, {moved}{f'. {self.why}' if self.why else ''}"


class Told(msgspec.Struct, frozen=True):
    """What the driver says about a call."""

    hosts: tuple[str, ...]
    """As `[network] allow` names them."""


class Word(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the driver hears of a call."""

    exchange: Exchange | None = None
    """A request that has ended; None: the call is over."""
    more: int = 0
    """How many requests there were beside those that were told."""


class Traffic(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The requests of a call, in short."""

    blob: str
    """The SHA-256 of a text with a line for each request."""
    requests: int
    refused: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    @property
    def told(self) -> str:
        """What happened, as a part of a sentence."""
        refused = f", {self.refused:,} refused" if self.refused else ""
        return (
            f"{counted(self.requests, 'request')}{refused}, {counted(self.sent_bytes, 'byte')} sent, "
            f"{counted(self.received_bytes, 'byte')} received"
        )


def text_of(exchanges: Sequence[Exchange], more: int = 0) -> str:
    """Return a text with a line for each exchange. `more`: how many there were beside them."""
    rest = [f"[{counted(more, 'request')} more]"] if more else []
    return "\n".join([*(each.line for each in exchanges), *rest, ""])


def traffic_of(blob: str, exchanges: Sequence[Exchange], more: int = 0) -> Traffic:
    """Return the exchanges in short."""
    return Traffic(
        blob,
        len(exchanges) + more,
        sum(each.verdict == "refused" for each in exchanges),
        sum(each.sent_bytes for each in exchanges),
        sum(each.received_bytes for each in exchanges),
    )
