"""How many examples of a property are tried."""

from __future__ import annotations

import os

IS_LONG = "MANY_EXAMPLES" in os.environ
"""Whether `sh script/test-long` runs."""


def many(count: int) -> int:
    """So many examples in the long suite, and two fifths of them every day. Each day has others."""
    return count if IS_LONG else count * 2 // 5
