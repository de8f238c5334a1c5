"""When somebody is notified: the session waits for a person, or its run is over."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.core.draft import Draft
from holdfast.core.state import State, Waiting, phase
from holdfast.protocol import events as e
from holdfast.protocol.notify import Notified, NotifyAbout

MOST_NAMED = 8
"""So many approvals and commands are named at most."""
_ENDED: dict[str, NotifyAbout] = {"done": "done", "failed": "failed", "stuck": "failed", "limit": "limit"}


class Open(msgspec.Struct, frozen=True):
    """Something that waits for a person."""

    approval: str
    name: str
    is_question: bool


def add_due(draft: Draft) -> None:
    """Record what somebody is to be notified of, after everything that follows from a cause."""
    settings = draft.state.settings
    on = settings.posture.notify_on if settings is not None else ()
    if not on or not draft.records:
        return
    # A run that stops is one record, so it is notified of in the commit that has it. A wait is a state: only what
    # was asked since the last notification is new. An example: of two approvals one is decided, and the session
    # still waits. Nobody is notified again.
    for record in [*draft.records]:
        stopped = record.event
        about = _ENDED.get(stopped.status) if isinstance(stopped, e.RunStopped) else None
        if isinstance(stopped, e.RunStopped) and about in on and about is not None:
            does = "show" if about == "done" else "resume"
            ways = (f"holdfast {does} {draft.state.session}",)
            _add(draft, about, stopped.status, stopped.reason, stopped.message, next_=ways)
    if "waiting" in on and _waits_anew(draft):
        asked = [*_open(draft.state)][:MOST_NAMED]
        names = ", ".join(dict.fromkeys(each.name for each in asked))
        question = draft.state.run.question if draft.state.run is not None else ""
        message = question or f"This waits for you: {names}."
        ids = tuple([each.approval for each in asked])
        next_ = tuple(map(_command, asked)) or (f'holdfast resume {draft.state.session} "TEXT"',)
        reason = "approval" if any(not each.is_question for each in asked) else "question"
        _add(draft, "waiting", "waiting", reason, message, ids, next_)


def _add(
    draft: Draft,
    about: NotifyAbout,
    status: str,
    reason: str,
    message: str,
    approvals: tuple[str, ...] = (),
    next_: tuple[str, ...] = (),
) -> None:
    key = f"n{draft.state.notices + 1}"
    draft.add(e.NotificationDue(key, about, status, reason, message, approvals, next_))


def _waits_anew(draft: Draft) -> bool:
    state = draft.state
    if any(isinstance(record.event, e.RunPaused) and record.event.question for record in draft.records):
        return True
    return state.approvals > state.noticed_approvals and phase(state) == "waiting"


def _open(state: State) -> Iterator[Open]:
    for call in state.turn.calls:
        if isinstance(call.stage, Waiting):
            yield Open(call.stage.approval_id, call.name, call.stage.is_question)
    for each in state.deferred:
        if not each.is_approved:
            yield Open(each.id, each.name, each.is_question)


def _command(asked: Open) -> str:
    return f"holdfast approve {asked.approval}" + (' --note "TEXT"' if asked.is_question else "")


def take_outcome(draft: Draft, key: str, notified: Notified) -> None:
    """Record what became of a notification. One that is over already has only one outcome."""
    if any(each.key == key for each in draft.state.notifications):
        draft.add(e.NotificationEnded(key, notified))
