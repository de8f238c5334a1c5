"""The session's line in the list, as a pure function of its state, and the same of its approvals."""

from __future__ import annotations

from holdfast.core.state import State, Totals, facts, open_run, phase
from holdfast.core.wanted import Wait, wanted
from holdfast.protocol.rows import SessionRow, SessionStatus

_OPEN: dict[str, SessionStatus] = {"waiting": "waiting", "paused": "paused", "backing_off": "parked"}


def totals(state: State) -> Totals:
    """What the whole session used."""
    return state.before + state.run.totals if state.run is not None else state.before


def status(state: State) -> SessionStatus:
    """One word for how the session stands."""
    if open_run(state) is not None:
        return _OPEN.get(phase(state), "running")
    return state.run.status if state.run is not None else "new"  # type: ignore[return-value]


def _due_ms(state: State) -> int:
    """When a session that waits goes on by itself: another attempt, or a deadline of an approval; 0: never."""
    return min((action.at_ms for action in wanted(state) if isinstance(action, Wait)), default=0)


def summary(state: State) -> SessionRow:
    """The row of the session."""
    used, now = totals(state), status(state)
    run, settings = state.run, state.settings
    return SessionRow(
        session=state.session,
        key=state.key,
        status=now,
        reason=run.reason if run is not None else "",
        due_ms=_due_ms(state) if now in ("waiting", "parked") else 0,
        title=state.title,
        model=facts(state).name if settings is not None else "",
        workspace=settings.tools.workspace if settings is not None else "",
        runs=run.number if run is not None else 0,
        turns=used.turns,
        tool_calls=used.tool_calls,
        model_calls=used.model_calls,
        usage=used.usage,
        cost_microusd=None if used.is_unpriced else used.cost_microusd,
        held_microusd=used.held_microusd,
        created_ms=state.created_ms,
        updated_ms=state.at_ms,
        seq=state.seq,
    )
