"""The books of a home: what every attempt of a model call cost, line by line, whatever becomes of its session.

What an attempt may cost at the worst does not belong here (`core.budget`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.protocol.budgets import Balance, Bucket, Claim, Claimed

LAST_PASS = "last_pass"
"""The purpose of a run's last answer, after it has reached a limit."""
LOST = "lost"
"""The purpose of an attempt that cost money and brought no response."""


class Amounts(msgspec.Struct, frozen=True, gc=False):
    """Sums of lines, in micro-dollars."""

    spent: int = 0
    estimated: int = 0
    """The part of `spent` that no provider has counted."""
    held: int = 0
    """What attempts had reserved whose process died: the provider may have charged it."""

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.spent + other.spent, self.estimated + other.estimated, self.held + other.held)


class Line(msgspec.Struct, frozen=True, gc=False):
    """How an attempt of a model call changed the books. It counts for the day on which the attempt began."""

    session: str
    key: str
    """The attempt's key, which is unique in its session."""
    begun_ms: int
    user: str
    """The name of who the run was for."""
    model: str
    purpose: str
    """That of the attempt (`request.Purpose`), or one of those above."""
    amounts: Amounts


class Ledger(Protocol):
    """Reads the books, and reserves in the budgets that they are compared with. `ports.Journals.commit` writes them,
    with the records that end attempts, and frees what was reserved. Every method may raise a `StorageError`."""

    async def spent(self, since_ms: int = 0, session: str = "") -> Amounts:
        """Return the sums of all attempts that began since then, of one session if it is named."""
        ...

    async def lines(self, since_ms: int = 0, session: str = "") -> Sequence[Line]:
        """Return these lines, in the order in which they were written."""
        ...

    async def reserve(self, claim: Claim) -> Claimed:
        """Reserve money in all budgets of the claim, or in none, before a commit that starts an attempt."""
        ...

    async def balances(self, buckets: Sequence[Bucket]) -> Sequence[Balance]:
        """Return the state of budgets."""
        ...
