"""Computes the rows of a session and of its approvals for lists, from its state and records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from holdfast.core.state import State, facts, phase
from holdfast.core.totals import Totals
from holdfast.core.wanted import Wait, wanted
from holdfast.protocol.events import ApprovalRequested, ApprovalResolved, Record
from holdfast.protocol.rows import Approval, ApprovalMark, GrantRow, SessionRow, SessionStatus

_OPEN: dict[str, SessionStatus] = {"waiting": "waiting", "paused": "paused", "backing_off": "parked"}


def totals(state: State) -> Totals:
    """What the whole session used."""
    return state.before + state.run.totals if state.run is not None else state.before


def status(state: State) -> SessionStatus:
    """Return the status of the session: one word."""
    now, run = phase(state), state.run
    if run is None:
        return "new"
    if now == "idle":
        return run.status  # type: ignore[return-value]
    # With a question of the model, the run waits for the user. Without one, a person has paused it.
    return "waiting" if now == "paused" and run.question else _OPEN.get(now, "open")


def reason(state: State) -> str:
    """Return why the session has this status: one word, or nothing."""
    if state.run is None:
        return ""
    return "question" if state.run.question else state.run.reason


def lasted_ms(state: State) -> int:
    """Return the time from the start of the newest run to its end, or to the last record if it is open.

    Everything counts that a person waited for: calls, retries, approvals, and time in which no process drove it.
    """
    run = state.run
    return max((run.ended_ms or state.at_ms) - run.started_ms, 0) if run is not None else 0


def _due_ms(state: State) -> int:
    """Return when a waiting session goes on by itself: its next attempt or the deadline of an approval; 0: never."""
    # A crash may have come before a notification. Then the session is due at once, also if its run is over.
    if state.notifications:
        return state.at_ms
    # A list of sessions shows this time when no driver runs. It comes from the same timers that a driver would
    # set.
    return min((action.at_ms for action in wanted(state) if isinstance(action, Wait)), default=0)


def summary(state: State) -> SessionRow:
    """The row of the session."""
    used, now, inherited = totals(state), status(state), state.inherited
    run, settings = state.run, state.settings
    return SessionRow(
        session=state.session,
        key=state.key,
        status=now,
        reason=reason(state),
        due_ms=_due_ms(state) if now in ("waiting", "parked") or state.notifications else 0,
        title=state.title,
        model=facts(state).name if settings is not None else "",
        workspace=settings.tools.workspace if settings is not None else "",
        runs=run.number if run is not None else 0,
        turns=used.turns,
        tool_calls=used.tool_calls,
        model_calls=used.model_calls,
        usage=used.usage,
        cost_microusd=None if used.is_unpriced else used.cost_microusd - inherited.cost_microusd,
        held_microusd=used.held_microusd - inherited.held_microusd,
        parent=state.parent,
        parent_microusd=None if inherited.is_unpriced else inherited.cost_microusd,
        created_ms=state.created_ms,
        updated_ms=state.at_ms,
        seq=state.seq,
        grants=_granted(state) if state.grants else (),
    )


def _granted(state: State) -> tuple[GrantRow, ...]:
    return tuple(
        [GrantRow(each.id, each.tool, each.offer.rule, each.until_ms) for each in state.grants if each.uses]
    )


def approval_marks(records: Iterable[Record]) -> Iterator[ApprovalMark]:
    """Which of the records ask for an approval or decide one."""
    for record in records:
        event = record.event
        if type(event) is ApprovalRequested or type(event) is ApprovalResolved:
            yield ApprovalMark(event.approval_id, record.seq, isinstance(event, ApprovalResolved))


def approval(name: str, asked: Record, decided: Record | None) -> Approval | None:
    """The approval of that name, from the record that asks for it and the one that decides it; None where they tell
    of something else."""
    event, decision = asked.event, decided.event if decided is not None else None
    if not isinstance(event, ApprovalRequested) or event.approval_id != name:
        return None
    row = Approval(
        id=name,
        session=asked.session,
        call_id=event.call_id,
        tool=event.name,
        arguments=event.arguments,
        asked_ms=asked.at_ms,
        deadline_ms=event.deadline_ms,
        reason=event.reason,
        question=event.question,
        options=event.options,
        source=event.source,
        workspace=event.workspace,
        cwd=event.cwd,
        binary=event.binary,
        is_masked=bool(event.seal),
        reach=event.reach,
        offer=event.offer,
        no_offer=event.no_offer,
        lapsed=event.lapsed,
    )
    if decided is None:
        return row
    if not isinstance(decision, ApprovalResolved) or decision.approval_id != name:
        return None
    return replace(
        row,
        decision=decision.decision,
        decided_by=decision.by,
        decided_ms=decided.at_ms,
        note=decision.note,
    )
