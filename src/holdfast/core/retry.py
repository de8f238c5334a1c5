"""When a failed model call is tried again. The wait is a timer of the state, so it survives a restart."""

from __future__ import annotations

import hashlib

from holdfast.protocol.failures import LONGEST_WAIT_S, RETRYABLE, Failure

FIRST_DELAY_MS = 500
LONGEST_DELAY_MS = 60_000
MAX_OVERFLOWS = 3
"""How often a request that was too long for the model is made shorter before the run gives up."""


def retry_at_ms(failure: Failure, attempts: int, most: int, seed: str, now_ms: int) -> int:
    """When to try again after that many failed attempts; 0: not again.

    Exponential, with a jitter that derives from the seed, and never before the other side allows it.
    """
    if failure.code not in RETRYABLE or attempts >= most:
        return 0
    backoff_ms = min(FIRST_DELAY_MS << min(attempts - 1, 20), LONGEST_DELAY_MS)
    wait_ms = backoff_ms * (512 + _jitter(seed) % 512) // 1024
    asked_s = min(max(0.0, failure.retry_after_s or 0.0), LONGEST_WAIT_S)
    return now_ms + max(wait_ms, int(asked_s * 1000), 1)


def _jitter(seed: str) -> int:
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big")
