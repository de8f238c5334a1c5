"""What an engine is made of: the borders it works through, brought together by whoever composes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.protocol.ports import Clock, Resolver, Store, Tools
from holdfast.redact import Redactor


@dataclass(frozen=True)
class Parts:
    """The shared components of all sessions of one runtime."""

    store: Store
    clock: Clock
    resolve: Resolver
    """From PROVIDER:MODEL."""
    tools: Tools
    redact: Redactor
    run_folder: Path | None = None
    """Where doorbells are; None: no other process shares the store."""
