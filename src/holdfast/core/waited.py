"""What a run has waited for its model: how often it was to try again, and how long it was parked."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace


class Waited(msgspec.Struct, frozen=True, gc=False):
    """What counts against the limits of `[retry]`."""

    retries: int = 0
    """How often a model call was to be tried again."""
    parked_ms: int = 0
    """How long the run was parked, but for budgets. The wait that is under way counts in full until it ends."""
    parking_ms: int = 0
    """How long that one is to be; 0: the run is not parked."""


def begun(waited: Waited, wait_ms: int, patience_s: float, *, is_attempt: bool) -> Waited:
    """Count a wait for the next attempt of a model call.

    Args:
        waited: What counts so far.
        wait_ms: How long it is to be.
        patience_s: A longer wait parks the run.
        is_attempt: An attempt has failed, and not only a service was not ready.
    """
    parking_ms = wait_ms if wait_ms > patience_s * 1000 else 0
    return Waited(waited.retries + is_attempt, waited.parked_ms + parking_ms, parking_ms)


def ended(waited: Waited, left_ms: int) -> Waited:
    """Take back what was left of a wait that has ended."""
    if not waited.parking_ms:
        return waited
    parked_ms = waited.parked_ms - min(left_ms, waited.parking_ms)
    return replace(waited, parked_ms=parked_ms, parking_ms=0)
