"""Side calls: model calls beside the conversation, each for a purpose of its own.

Nothing waits for one, and none ever fails a run: if it brings nothing, it is given up until its purpose is due again.
To add a purpose, add a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from holdfast.core import reflection, summarizing
from holdfast.core.draft import Draft
from holdfast.core.state import NO_TALLY, Phase, Run, State, facts, facts_for, has_begun, shares_request
from holdfast.protocol import events as e
from holdfast.protocol.failures import LONGEST_WAIT_S
from holdfast.protocol.request import SidePurpose
from holdfast.protocol.settings import Settings

_STARTS: frozenset[Phase] = frozenset({"preparing", "calling"})
"""The phases in which a side call may start: beside a model call, since what it is about changes with each. One that
is open goes on in every phase but `stopping`."""


class Kind(msgspec.Struct, frozen=True):
    """What is particular to the side calls for one purpose."""

    is_due: Callable[[State, Run, Settings], bool]
    words: str
    """The message that the request ends with."""
    system: str
    """The system text for another model, which reads a record of the work."""
    output_tokens: int
    """The most that the answer may have."""
    cost_share: Callable[[Settings], float]
    """The share of a run's cost limit that all of them together may take."""
    take: Callable[[Draft, e.SideCallEnded], None]
    """Adds what follows from a response."""


KINDS: Mapping[SidePurpose, Kind] = {
    "summary": Kind(
        summarizing.is_due,
        summarizing.WORDS,
        summarizing.SYSTEM,
        summarizing.OUTPUT_TOKENS,
        lambda settings: settings.context.compact_cost_share,
        summarizing.take,
    ),
    "reflection": Kind(
        reflection.is_due,
        reflection.WORDS,
        reflection.SYSTEM,
        reflection.OUTPUT_TOKENS,
        lambda _: reflection.COST_SHARE,
        reflection.take,
    ),
}
"""The first one that is due starts."""


def due(state: State, now: Phase) -> SidePurpose | None:
    """Return what the next side call is for; None if none may start now."""
    run, settings, side = state.run, state.settings, state.side
    if now not in _STARTS or run is None or settings is None or side.open is not None:
        return None
    # A side call is made of the last request of the work, so the run must have sent one. After its limit is reached,
    # only the last pass may spend what is left.
    if run.is_paused or run.landing or not has_begun(state):
        return None
    tallies = side.tallies
    for purpose, kind in KINDS.items():
        tally = tallies.get(purpose, NO_TALLY)
        # At most one in a turn: whatever an attempt came to, the work has to bring something new before the next one.
        # The time of the last record stands for now. So no timer is needed: an attempt that has to wait starts with
        # the next step of the work after its time, and where the work rests, nobody needs it.
        left_ms = tally.retry_at_ms - state.at_ms
        # No wait is longer than LONGEST_WAIT_S. If one seems to be, the clock was ahead when it began.
        if tally.turns >= run.totals.turns or 0 < left_ms <= LONGEST_WAIT_S * 1000:
            continue
        if kind.is_due(state, run, settings) and _has_request(state, purpose):
            return purpose
    return None


def _has_request(state: State, purpose: SidePurpose) -> bool:
    """Whether the request of the side call can be made now."""
    # With the model of the run it is the last request for work, and one message more. The provider has the prefix of
    # that request in its cache, so the side call costs little more than its answer. After a change of the model it
    # waits until the work has sent one. Another model reads a record of the work, which can always be made.
    return shares_request(state, purpose) or facts_for(state, purpose).name != facts(state).name
