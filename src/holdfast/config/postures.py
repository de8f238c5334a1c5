"""The postures that Holdfast has: named bundles of settings to start with."""

from __future__ import annotations

from typing import Any

POSTURES: dict[str, dict[str, Any]] = {
    "interactive": {"autonomy": "supervised", "approve_by": "prompt"},
    "headless": {"autonomy": "supervised", "approve_by": "wait"},
    "overnight": {
        "autonomy": "supervised",
        "approve_by": "wait",
        "limits.turns": 500,
        "limits.tokens": 50_000_000,
        "limits.cost_usd": 10_000_000,
        "limits.wall": 36_000.0,
        "policy.sandboxed": "allow",
    },
}
"""The built-in postures, in the units of the program."""
