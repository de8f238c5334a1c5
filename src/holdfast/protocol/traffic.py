"""What a process asked of the network through the proxy: what a driver and its proxy say to each other, and what the
journal keeps of it.

Which requests are allowed is decided in `policy`. The proxy itself is in `sandbox`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.protocol.counts import counted

Verdict = Literal["allowed", "refused", "cut off", "failed"]
"""`refused`: by the policy, or because it has more than one reading; the server got nothing of it. `cut off`: for the
same reasons, but the server had its beginning, and may have done what it asks for. `failed`: it was allowed, and has
no end.
"""

MAX_EXCHANGES = 2_000
"""So many requests of a call are kept. The others are counted."""
SHOWN_LINES = 20
"""So many lines are in the record itself."""
_BEGIN_CHARS, _END_CHARS = 500, 300
"""So much of a long line is kept. Its end says what became of the request."""
TUNNEL = "CONNECT"
"""The method of a request for a connection whose content the proxy does not see."""


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request, and what became of it."""

    method: str
    where: str
    """The address of a request; host and port of a connection; empty if it could not be read."""
    verdict: Verdict
    why: str = ""
    """Why it was refused, cut off or failed, as a sentence."""
    status: int = 0
    """The status of the response; 0 without one."""
    sent_bytes: int = 0
    """What went to the server, with the head."""
    received_bytes: int = 0

    @property
    def what(self) -> str:
        """What was asked for."""
        return f"{self.method} {self.where}".strip() or "a request"

    @property
    def line(self) -> str:
        """The exchange as a line of text."""
        how = f"{self.status}" if self.verdict == "allowed" and self.status else self.verdict
        moved = f"{counted(self.sent_bytes, 'byte')} sent, {counted(self.received_bytes, 'byte')} received"
        return f"{self.what}: {how}, {moved}{f'. {self.why}' if self.why else ''}"


class StandIn(msgspec.Struct, frozen=True):
    """What stands for a secret in one command, and where the secret may go."""

    name: str
    mark: str
    """What the command has."""
    value: str
    """What the server gets in its place."""
    header: str
    hosts: tuple[str, ...]
    format: str = "{}"
    """What the header says, as the settings write it."""

    @property
    def said(self) -> str:
        """What the header says before the secret is in it."""
        return self.format.replace("{}", self.mark)

    def __repr__(self) -> str:
        return f"StandIn({self.name!r})"


class Authority(msgspec.Struct, frozen=True):
    """Makes the certificates of the proxy, for the sandboxes of one runtime. Both are PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Authority()"


class Told(msgspec.Struct, frozen=True):
    """What the driver says about a call."""

    hosts: tuple[str, ...]
    """As `[network] allow` names them."""
    secrets: tuple[StandIn, ...] = ()
    authority: Authority | None = None
    """With it, the proxy looks into the TLS of connections to the hosts of secrets."""


class Word(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the driver hears of a call."""

    exchange: Exchange | None = None
    """A request that has ended; None: the call is over."""
    more: int = 0
    """How many requests there were beside those that were told."""


class Requests(msgspec.Struct, frozen=True, omit_defaults=True):
    """The requests of a call, as a tool returns them."""

    exchanges: tuple[Exchange, ...] = ()
    more: int = 0
    """How many there were beside these."""

    def text(self) -> str:
        """Return a line for each exchange."""
        rest = [f"[{counted(self.more, 'request')} more]"] if self.more else []
        return "\n".join([*(each.line for each in self.exchanges), *rest])


NO_REQUESTS = Requests()


class Traffic(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The requests of a call, as they are recorded: redacted."""

    exchanged: tuple[str, ...]
    """A line for each request, or for the first ones. A search of the session looks for no word that is the name of
    a field, so this is not called `lines`.
    """
    requests: int
    refused: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    blob: str = ""
    """The SHA-256 of a text with all lines, if `exchanged` has only the first ones."""

    @property
    def told(self) -> str:
        """What happened, as a part of a sentence."""
        refused = f", {self.refused:,} refused" if self.refused else ""
        return (
            f"{counted(self.requests, 'request')}{refused}, {counted(self.sent_bytes, 'byte')} sent, "
            f"{counted(self.received_bytes, 'byte')} received"
        )


def shortened(line: str) -> str:
    """Return a line that was masked, without its middle if it is long. Cut before, it may show a part of a secret."""
    if len(line) <= _BEGIN_CHARS + _END_CHARS:
        return line
    return f"{line[:_BEGIN_CHARS]}...{line[-_END_CHARS:]}"


def traffic_of(requests: Requests, lines: Sequence[str], blob: str) -> Traffic:
    """Return the record of requests, whose text was redacted and is in a blob if it is long."""
    each = requests.exchanges
    return Traffic(
        tuple(lines[:SHOWN_LINES]),
        len(each) + requests.more,
        sum(one.verdict == "refused" for one in each),
        sum(one.sent_bytes for one in each),
        sum(one.received_bytes for one in each),
        blob,
    )
