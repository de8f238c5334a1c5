"""Replay: would today's code, or other settings, decide the same as was recorded?

Replay folds the journal, reads the cause of each batch back from it (`recorded`), decides the cause again and
compares the events. It calls no provider, tool or gate, and writes nothing. So it cannot show what a gate, a model
or a tool would say today, or whether a request would have the same bytes (`show --request` proves the recorded
bytes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from holdfast.core.causes import Cause, Outcome
from holdfast.core.decide import decide
from holdfast.core.evolve import evolve
from holdfast.core.state import State
from holdfast.core.wanted import Prepare, Wait, wanted
from holdfast.protocol import events as e
from holdfast.protocol.budgets import REACHED
from holdfast.protocol.settings import SettingsRef, group_with, name_of
from holdfast.views.recorded import cause_of, finding

_OF_REQUESTS = (
    e.PromptBuilt,
    e.ModelCallStarted,
    e.ModelCallUnaffordable,
    e.ModelCallUnready,
    e.CircuitChanged,
    e.ContextCompacted,
    e.SummaryDiscarded,
)


class Difference(msgspec.Struct, frozen=True):
    """The first event of a batch that would be decided differently."""

    seq: int
    """The seq of the recorded event; one past the batch if an event is missing."""
    what: str
    """The difference as a sentence."""
    recorded: e.Event | None = None
    decided: e.Event | None = None


class Replay(msgspec.Struct, frozen=True):
    """The result of a replay."""

    records: int
    decisions: int
    """The number of causes that were decided again."""
    differences: tuple[Difference, ...] = ()


class _Batch(msgspec.Struct, frozen=True):
    """The records of one cause."""

    records: tuple[e.Record, ...]
    following: e.Record | None
    """The next record of the journal."""

    @property
    def is_cut(self) -> bool:
        """Whether a branch begins inside the batch. The parent has the rest of it."""
        return self.following is not None and isinstance(self.following.event, e.SessionForked)

    @property
    def next_in_commit(self) -> e.Event | None:
        """The next event of the same commit."""
        last, following = self.records[-1], self.following
        is_same = following is not None and (following.epoch, following.at_ms) == (last.epoch, last.at_ms)
        return following.event if following is not None and is_same else None


def replay(
    session: str, key: str, records: Sequence[e.Record], change: Mapping[str, Any] | None = None
) -> Replay:
    """Decide a recorded session again.

    Args:
        session: The id of the session.
        key: Its CHANNEL:CHAT, if any.
        records: The whole journal, in order.
        change: Other settings in place of the recorded ones, by their single names. The replay then ends at the
            first difference, because everything after it would have been different too. A request that is still
            affordable counts as the same, even with a smaller output cap.
    """
    state, count = State(session=session, key=key), len(records)
    if change is not None:
        records = list(_changed(records, change))
    differences: list[Difference] = []
    decisions = 0
    for batch in _batches(records):
        if batch.records[0].cause.kind not in ("fork", "import"):
            decisions += 1
            found = _compare(state, batch, is_changed=change is not None)
            differences += [found] if found is not None else []
        if differences and change is not None:
            break
        for record in batch.records:
            state = evolve(state, record)
    return Replay(count, decisions, tuple(differences))


def _changed(records: Sequence[e.Record], change: Mapping[str, Any]) -> Iterator[e.Record]:
    """Return the records with the changed settings, without changes of settings that change nothing then."""
    names: dict[str, str] = {}
    """The name of each recorded group, with the name of the group that replaces it."""
    in_force: SettingsRef | None = None
    for record in records:
        event = record.event
        match event:
            case e.SettingsStored(groups=groups):
                others = {name: group_with(group, change) for name, group in groups.items()}
                fresh = {name_of(group): group for group in others.values()}
                fresh = {name: group for name, group in fresh.items() if name not in names.values()}
                names |= {name: name_of(group) for name, group in others.items()}
                if not fresh:
                    continue
                event = e.SettingsStored(fresh)
            case e.RunStarted(settings=ref) | e.SettingsChanged(settings=ref):
                other = {group: names.get(name, name) for group, name in msgspec.structs.asdict(ref).items()}
                before, in_force = in_force, SettingsRef(**other)
                if isinstance(event, e.SettingsChanged) and in_force == before:
                    continue
                event = msgspec.structs.replace(event, settings=in_force)
        yield msgspec.structs.replace(record, event=event)


def _batches(records: Sequence[e.Record]) -> Iterator[_Batch]:
    """Group records by epoch, cause and time.

    Each finding about a request begins a new batch: the same step may be repeated at once, because a last pass may
    be affordable where an ordinary model call is not.
    """
    groups: list[list[e.Record]] = []
    for record in records:
        last = groups[-1][-1] if groups else None
        is_same = last is not None and _mark(last) == _mark(record)
        if is_same and not (record.cause.kind == "finding" and _is_of_request(record.event)):
            groups[-1].append(record)
        else:
            groups.append([record])
    for group, following in zip_longest(groups, groups[1:]):
        yield _Batch(tuple(group), following[0] if following is not None else None)


def _is_of_request(event: e.Event) -> bool:
    """Return whether the event says what a prepare step found about a request."""
    return isinstance(event, _OF_REQUESTS) or (
        isinstance(event, e.NoteAdded) and event.about in REACHED.values()
    )


def _mark(record: e.Record) -> tuple[int, e.Trigger, int]:
    return record.epoch, record.cause, record.at_ms


# --- one batch ----------------------------------------------------------------------------------


def _compare(state: State, batch: _Batch, *, is_changed: bool) -> Difference | None:
    """Return the first event of the batch that is decided differently, or None."""
    records = batch.records
    if isinstance(records[0].event, e.SessionOpened):  # the driver writes it with its first cause
        state = evolve(state, records[0])
        records = records[1:]
    if not records:
        return None
    first, events = records[0], tuple(record.event for record in records)
    cause = _cause(state, first, events, is_costed_anew=not is_changed)
    if cause is None:
        what = f"{_name(events[0])} would not have been decided here."
        return None if batch.is_cut else Difference(first.seq, what, events[0])
    if is_changed and _is_too_late(state, cause, first):
        return Difference(first.seq, "The time limit would have been reached before this event.", first.event)
    decided = decide(state, cause, first.at_ms, first.awake_ms)
    if is_changed:
        decided = [_as_long(now, then) for now, then in zip_longest(decided, events[: len(decided)])]
    if batch.is_cut:  # the branch has only the beginning of the batch
        decided = decided[: len(events)]
    return _first_difference(records, decided, batch.next_in_commit)


def _cause(state: State, first: e.Record, events: Sequence[e.Event], *, is_costed_anew: bool) -> Cause | None:
    """Return the recorded cause. None: a finding that is not wanted here, or that would be another one."""
    if first.cause.kind != "finding":
        return cause_of(state, first, events)
    steps = [action for action in wanted(state) if isinstance(action, Prepare)]
    step = next((step for step in steps if step.key == first.cause.name), None)
    return finding(step, state, events, is_costed_anew=is_costed_anew) if step is not None else None


def _is_too_late(state: State, cause: Cause, first: e.Record) -> bool:
    """Return whether the changed time limit would have been reached before this outcome."""
    waits = [action for action in wanted(state) if isinstance(action, Wait)]
    is_driven = isinstance(cause, Outcome) and first.epoch == state.epoch
    return is_driven and any(wait.key == "wall" and wait.at_ms < first.awake_ms for wait in waits)


def _as_long(now: e.Event, then: e.Event | None) -> e.Event:
    """Give a call its recorded timeout: `_is_too_late` judges the end of the call instead."""
    if isinstance(now, e.ToolCallStarted) and isinstance(then, e.ToolCallStarted):
        return msgspec.structs.replace(now, timeout_s=then.timeout_s)
    return now


def _first_difference(
    recorded: Sequence[e.Record], decided: Sequence[e.Event], following: e.Event | None
) -> Difference | None:
    for then, now in zip(recorded, decided, strict=False):
        if then.event != now:
            return Difference(then.seq, _told(then.event, now), then.event, now)
    if len(decided) < len(recorded):
        missing = recorded[len(decided)]
        what = f"{_name(missing.event)} would not have been decided here."
        return Difference(missing.seq, what, missing.event)
    if len(decided) > len(recorded):
        extra, seq = decided[len(recorded)], recorded[-1].seq + 1
        if following is not None:
            return Difference(seq, _told(following, extra), following, extra)
        return Difference(seq, f"{_name(extra)} would have been decided too.", None, extra)
    return None


def _told(then: e.Event, now: e.Event) -> str:
    if type(then) is not type(now):
        return f"{_name(then)} was decided, and {_name(now)} would be now."
    old, new = msgspec.structs.asdict(then), msgspec.structs.asdict(now)
    fields = ", ".join(name for name, value in old.items() if new[name] != value)
    return f"{_name(then)} would differ in {fields}."


def _name(event: e.Event) -> str:
    return type(event).__name__
