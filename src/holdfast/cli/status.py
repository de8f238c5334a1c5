"""The status line of `chat`: what is running, and what the run used of its limits."""

from __future__ import annotations

from holdfast.core.state import State
from holdfast.protocol.limits import usd
from holdfast.protocol.settings import Settings
from holdfast.views.lines import clipped, counted, neutral, short


def status_line(doing: str, state: State, settings: Settings, width: int) -> str:
    """Return the line. `doing`: what is running; empty if nothing is. What matters less is cut first."""
    model, autonomy = settings.model.facts.name, settings.posture.autonomy
    used = [] if state.run is None else [counted(state.run.totals.turns, "turn"), _tokens(state)]
    parts = [*([doing] if doing else []), _spent(state, settings), *used, autonomy, model]
    return clipped(neutral(" · ".join(parts)), width - 1)


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
