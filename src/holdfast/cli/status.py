"""The status line of `chat`: what is running, and what the run used of its limits."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.plan import done_of
from holdfast.core.state import State
from holdfast.protocol.counts import counted
from holdfast.protocol.limits import usd
from holdfast.protocol.settings import Settings
from holdfast.views.lines import cells, clipped, neutral, short

_LEAST_CELLS = 12
"""A fact is left out before it is shortened to less."""


def status_line(doing: str, state: State, settings: Settings, width: int) -> str:
    """Return the line. `doing`: what is running; empty if nothing is. What matters less is left out first."""
    model, autonomy = settings.model.facts.name, settings.posture.autonomy
    used = [] if state.run is None else [counted(state.run.totals.turns, "turn"), _tokens(state)]
    plan = state.plan.plan if state.plan.is_made else None
    planned = [f"plan {'/'.join(map(str, done_of(plan)))}"] if plan is not None else []
    facts = [*([doing] if doing else []), _spent(state, settings), *planned, *used, autonomy, model]
    return fitting(map(neutral, facts), width - 1)


def fitting(facts: Iterable[str], width: int) -> str:
    """Return the first facts that fit in a line, with dots between them. The last one may be shortened."""
    line = ""
    for fact in facts:
        before = f"{line} · " if line else ""
        room = width - cells(before)
        if cells(fact) > room:
            return before + clipped(fact, room) if room >= _LEAST_CELLS or not line else line
        line = before + fact
    return line


def _tokens(state: State) -> str:
    assert state.run is not None
    return f"{short(state.run.totals.usage.total_tokens)} tokens"


def _spent(state: State, settings: Settings) -> str:
    """Return the money that the last run used of its budget."""
    limit = f"of ${usd(settings.limits.cost_microusd)}"
    if settings.model.facts.price == "unknown" or (state.run is not None and state.run.totals.is_unpriced):
        return "cost unknown"
    spent = state.run.totals.cost_microusd if state.run is not None else 0
    return f"${spent / 1_000_000:.4f} {limit}"
