"""Decides when a failed model call is tried again. The wait is a timer of the state, so it survives a restart."""

from __future__ import annotations

import hashlib

from holdfast.core.state import Run
from holdfast.protocol.counts import lasting
from holdfast.protocol.failures import LONGEST_WAIT_S, RETRYABLE, Failure
from holdfast.protocol.settings import ModelSettings

FIRST_DELAY_MS = 500
LONGEST_DELAY_MS = 60_000
LEAST_WAIT_MS = 20
"""A wait that is over already is asked about again after this time, so that there is no loop."""
SIDE_ATTEMPTS = 3
"""The most attempts of one side call. Then it is given up, until its purpose is due again."""
MAX_OVERFLOWS = 3
"""How often one run shortens a request that was refused as too long. The next such refusal ends the run."""


def retry_at_ms(failure: Failure, attempts: int, most: int, seed: str, now_ms: int) -> int:
    """When to try again after that many failed attempts; 0: not again.

    Exponential, with a jitter that derives from the seed, and never before the other side allows it.
    """
    if attempts >= most:
        return 0
    if failure.has_other_key:
        return now_ms
    if failure.code not in RETRYABLE:
        return 0
    asked_s = min(max(0.0, failure.retry_after_s or 0.0), LONGEST_WAIT_S)
    return now_ms + max(_backoff_ms(attempts, seed), int(asked_s * 1000))


def too_long(failure: Failure, retry_at_ms: int, run: Run, model: ModelSettings, now_ms: int) -> str:
    """Return why a run does not wait for the next attempt of a model call, as a sentence; empty if it does.

    Args:
        failure: Why it has to wait.
        retry_at_ms: When the next attempt is due.
        run: What it has waited so far.
        model: The limits of that.
        now_ms: The time.
    """
    wait_ms = max(retry_at_ms - now_ms, int((failure.retry_after_s or 0.0) * 1000))
    left_ms = max(int(model.park_s * 1000) - run.waited.parked_ms, 0)
    if wait_ms <= max(left_ms, model.patience_s * 1000):
        return ""
    return (
        f"It may be called again in {lasting(wait_ms)}, and [retry] park leaves {lasting(left_ms)} of waiting for "
        "this run."
    )


def ready_at_ms(until_ms: int, attempts: int, most: int, seed: str, now_ms: int) -> int:
    """Return when to prepare the request again, after that many attempts to make it; 0: not again.

    Args:
        until_ms: When it may work, as the prepare step says; 0: waiting does not help. A time that has passed would
            make a loop, so the wait is never shorter than after a failure.
    """
    if not until_ms or attempts >= most:
        return 0
    latest_ms = now_ms + int(LONGEST_WAIT_S * 1000)
    return min(max(until_ms, now_ms + _backoff_ms(attempts, seed)), latest_ms)


def waits_until_ms(until_ms: int, now_ms: int) -> int:
    """Return when a call asks again that waits for a circuit or a rate."""
    return min(max(until_ms, now_ms + LEAST_WAIT_MS), now_ms + int(LONGEST_WAIT_S * 1000))


def parked_until_ms(until_ms: int, now_ms: int) -> int:
    """Return when a run that waits for a budget looks again: when the period ends, and at least once a day."""
    # Somebody may raise the limit meanwhile, and no wait of a session is longer than a day.
    return min(max(until_ms, now_ms + FIRST_DELAY_MS), now_ms + int(LONGEST_WAIT_S * 1000))


def _backoff_ms(attempts: int, seed: str) -> int:
    # 0.5 s, 1 s, 2 s ... up to 60 s; the jitter takes each down by up to a half. It derives from session and
    # key, so replay computes the same time, and a thousand sessions still do not try again at the same moment.
    longest_ms = min(FIRST_DELAY_MS << min(attempts - 1, 20), LONGEST_DELAY_MS)
    return longest_ms * (512 + _jitter(seed) % 512) // 1024


def _jitter(seed: str) -> int:
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big")
