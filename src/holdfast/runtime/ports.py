"""The ports of a runtime, filled by the composition root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.protocol.budgets import Budgets
from holdfast.protocol.circuits import CircuitRules
from holdfast.protocol.ports import Clock, Hooks, Judge, Notifier, Provider, Resolver, Store, Tools, Wire
from holdfast.protocol.prompt import CustomSection, Guidance
from holdfast.protocol.rates import Rate
from holdfast.protocol.settings import Settings
from holdfast.protocol.zone import UTC, Zone
from holdfast.redact import Redactor


def _nothing(workspace: str) -> None:
    """Know nothing of a workspace."""


@dataclass(frozen=True)
class Ports:
    """What all sessions of a runtime share: the store, the clock, the tools and the way to the models."""

    store: Store
    clock: Clock
    resolve: Resolver
    """Finds the provider of a PROVIDER:MODEL."""
    tools: Tools
    redact: Redactor
    hooks: Hooks | None = None
    """Asks and tells the hooks of settings. Without it, they count as failed."""
    notifier: Notifier | None = None
    """Notifies people. Without it, every notification fails."""
    run_folder: Path | None = None
    """The folder of the doorbells; None if no other process shares the store."""
    deps: dict[str, list[object]] = field(default_factory=dict)
    """What the program gave to the runs that it drives, by session, for its own functions. The last one counts."""
    wires: dict[str, Wire] = field(default_factory=dict)
    """The wires of providers that are ready, by PROVIDER:MODEL. Nothing waits for them again."""
    guidance: Callable[[str], Sequence[Guidance]] = lambda _: ()
    """Reads the files that say how to work in a workspace, nearest last."""
    sections: Callable[[Settings], Sequence[CustomSection]] = lambda _: ()
    """Returns the sections of system prompts that other packages add."""
    budgets: Budgets = field(default_factory=Budgets)
    """What sessions, users and the home may spend."""
    zone: Callable[[str, int], Zone] = lambda _, __: UTC
    """Returns the time zone with a name at a time."""
    routes: Callable[[str], Sequence[str]] = lambda _: ()
    """Returns the circuits of a PROVIDER:MODEL, one for each key of the provider; none: it has no circuit."""
    resolve_key: Callable[[str, int], Awaitable[Provider]] | None = None
    """Finds the provider of a PROVIDER:MODEL with another key than the first one: that at this place."""
    circuits: CircuitRules = field(default_factory=CircuitRules)
    rate: Callable[[str], Rate | None] | None = None
    """Returns the rate of a model, user, session, tool or home, by its name. None: there are no rates."""
    refused: dict[str, int] = field(default_factory=dict)
    """By circuit, until when a key is not used that was refused, as `Clock.uptime_ms` counts."""
    secret_files: Callable[[str], Coroutine[Any, Any, None] | None] = _nothing
    """Returns what reads the secret files of a workspace, so that `redact` knows their values; None if it does."""
    judge: Judge | None = None
    """Checks answers to runs with a schema. Without it, no answer is good enough."""
