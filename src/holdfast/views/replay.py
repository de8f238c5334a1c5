"""Replaying a recorded session: does today's code, or do other settings, decide what was decided then?

The journal is folded record by record; what caused each batch is read back from it (`recorded`), put before
`decide` again, and the events that come out are compared with the recorded ones. No provider, tool, gate or file
is asked, and nothing is written. So it does not show whether the gates would say the same today, whether a
request would be written with the same bytes (`show --request` proves the recorded ones), or what a model or a
tool would answer now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

import msgspec

from holdfast.core.causes import Cause, Outcome
from holdfast.core.decide import decide
from holdfast.core.evolve import evolve
from holdfast.core.state import State
from holdfast.core.wanted import Prepare, Wait, wanted
from holdfast.protocol import events as e
from holdfast.protocol.limits import Settings
from holdfast.views.recorded import cause_of, finding

Change = Callable[[Settings], Settings]
_OF_REQUESTS = (e.ModelCallStarted, e.ModelCallUnaffordable, e.ModelCallUnready)


class Difference(msgspec.Struct, frozen=True):
    """Where today's decision leaves the recorded one."""

    seq: int
    """Of the recorded event; one past the batch when it ends too early."""
    what: str
    """As a sentence."""
    recorded: e.Event | None = None
    decided: e.Event | None = None


class Replay(msgspec.Struct, frozen=True):
    """What a replay came to."""

    records: int
    decisions: int
    """How many causes were decided again."""
    differences: tuple[Difference, ...] = ()


class _Batch(msgspec.Struct, frozen=True):
    """The records of one cause."""

    records: tuple[e.Record, ...]
    following: e.Record | None
    """The next one of the journal."""

    @property
    def is_cut(self) -> bool:
        """Whether a branch begins inside it: the rest belongs to the parent."""
        return self.following is not None and isinstance(self.following.event, e.SessionForked)

    @property
    def next_in_commit(self) -> e.Event | None:
        """What came next in the same commit."""
        last, following = self.records[-1], self.following
        is_same = following is not None and (following.epoch, following.at_ms) == (last.epoch, last.at_ms)
        return following.event if following is not None and is_same else None

    @property
    def events(self) -> tuple[e.Event, ...]:
        return tuple(record.event for record in self.records)


def replay(session: str, key: str, records: Sequence[e.Record], change: Change | None = None) -> Replay:
    """Decide a recorded session again.

    Args:
        session: The id under which its first records were written.
        key: Its CHANNEL:CHAT, if any.
        records: The whole journal, in order.
        change: Other settings in place of the recorded ones. Then only the first difference is told, since
            what follows it would have been another story; and a request that is still affordable counts as the
            same, also when it would have been allowed fewer tokens of output.
    """
    state = State(session=session, key=key)
    if change is not None:
        records = [_changed(record, change) for record in records]
    differences: list[Difference] = []
    decisions = 0
    for batch in _batches(records):
        if not isinstance(batch.records[0].event, e.SessionForked):
            decisions += 1
            found = _compare(state, batch, is_changed=change is not None)
            differences += [found] if found is not None else []
        if differences and change is not None:
            break
        for record in batch.records:
            state = evolve(state, record)
    return Replay(len(records), decisions, tuple(differences))


def _changed(record: e.Record, change: Change) -> e.Record:
    match record.event:
        case (e.RunStarted(settings=settings) | e.SettingsChanged(settings=settings)) as event:
            return msgspec.structs.replace(
                record, event=msgspec.structs.replace(event, settings=change(settings))
            )
    return record


def _batches(records: Sequence[e.Record]) -> Iterator[_Batch]:
    """The causes again: records of one epoch, cause and time. What was found about a request begins a batch of its
    own, since the same step may be taken again at once: what an ordinary call cannot afford, a last pass may."""
    groups: list[list[e.Record]] = []
    for record in records:
        last = groups[-1][-1] if groups else None
        is_same = last is not None and _mark(last) == _mark(record)
        if is_same and not isinstance(record.event, _OF_REQUESTS):
            groups[-1].append(record)
        else:
            groups.append([record])
    for group, following in zip_longest(groups, groups[1:]):
        yield _Batch(tuple(group), following[0] if following is not None else None)


def _mark(record: e.Record) -> tuple[int, e.Trigger, int]:
    return record.epoch, record.cause, record.at_ms


# --- one batch ----------------------------------------------------------------------------------


def _compare(state: State, batch: _Batch, *, is_changed: bool) -> Difference | None:
    """The first event of the batch that is decided otherwise; None when all are the same."""
    first, events = batch.records[0], batch.events
    if isinstance(events[0], e.SessionOpened):  # written by the driver beside its first cause
        state = evolve(state, first)
        events = events[1:]
        first = batch.records[1] if events else first
    if not events:
        return None
    cause = _cause(state, first, events, is_costed_anew=not is_changed)
    if cause is None:
        what = f"{_name(events[0])} would not have been decided here."
        return None if batch.is_cut else Difference(first.seq, what, events[0])
    if is_changed and _is_too_late(state, cause, first):
        return Difference(first.seq, "The time limit would have been reached before this.", first.event)
    decided = decide(state, cause, first.at_ms)
    if is_changed:
        decided = [_as_long(now, then) for now, then in zip_longest(decided, events[: len(decided)])]
    if batch.is_cut:  # the branch took over only the beginning
        decided = decided[: len(events)]
    return _first_difference(first.seq, events, decided, batch.next_in_commit)


def _cause(state: State, first: e.Record, events: Sequence[e.Event], *, is_costed_anew: bool) -> Cause | None:
    """What came to the core then; None for a finding that nothing wants here, or that would be another one."""
    if first.cause.kind != "finding":
        return cause_of(state, first.cause, first.epoch, events)
    steps = [action for action in wanted(state) if isinstance(action, Prepare)]
    step = next((step for step in steps if step.key == first.cause.name), None)
    return finding(step, state, events, is_costed_anew=is_costed_anew) if step is not None else None


def _is_too_late(state: State, cause: Cause, first: e.Record) -> bool:
    """Whether the time limit, as it is set now, would have been reached before this outcome arrived."""
    waits = [action for action in wanted(state) if isinstance(action, Wait)]
    is_driven = isinstance(cause, Outcome) and first.epoch == state.epoch
    return is_driven and any(wait.key == "wall" and wait.at_ms < first.at_ms for wait in waits)


def _as_long(now: e.Event, then: e.Event | None) -> e.Event:
    """A call that may run as long as it might then: whether it would have been cut short, its end tells."""
    if isinstance(now, e.ToolCallStarted) and isinstance(then, e.ToolCallStarted):
        return msgspec.structs.replace(now, timeout_s=then.timeout_s)
    return now


def _first_difference(
    seq: int, recorded: Sequence[e.Event], decided: Sequence[e.Event], following: e.Event | None
) -> Difference | None:
    for at, (then, now) in enumerate(zip(recorded, decided, strict=False)):
        if then != now:
            return Difference(seq + at, _told(then, now), then, now)
    if len(decided) < len(recorded):
        missing = recorded[len(decided)]
        return Difference(seq + len(decided), f"{_name(missing)} would not have been decided here.", missing)
    if len(decided) > len(recorded):
        extra = decided[len(recorded)]
        if following is not None:
            return Difference(seq + len(recorded), _told(following, extra), following, extra)
        return Difference(seq + len(recorded), f"{_name(extra)} would have been decided too.", None, extra)
    return None


def _told(then: e.Event, now: e.Event) -> str:
    if type(then) is not type(now):
        return f"{_name(then)} was decided, and {_name(now)} would be now."
    old, new = msgspec.structs.asdict(then), msgspec.structs.asdict(now)
    fields = ", ".join(name for name, value in old.items() if new[name] != value)
    return f"{_name(then)} would differ in {fields}."


def _name(event: e.Event) -> str:
    return type(event).__name__
