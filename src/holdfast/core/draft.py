"""The records decided so far for one cause, and the state after them.

The only mutable object of the core; it lives for one decision.
"""

from __future__ import annotations

from holdfast.core.evolve import evolve
from holdfast.core.state import State, open_run
from holdfast.protocol.events import Event, Record, RunLanding, Trigger


class Draft:
    """The decision so far: its records, and the state after them."""

    def __init__(self, state: State, now_ms: int, awake_ms: int, epoch: int, trigger: Trigger) -> None:
        self.state = state
        self.now_ms = now_ms
        self.awake_ms = awake_ms
        """The time by the driver's clock (`Record.awake_ms`)."""
        self.epoch = epoch
        self.trigger = trigger
        self.records: list[Record] = []

    @property
    def is_visit(self) -> bool:
        """Whether a visitor will commit this, who may state facts but start nothing. Compares epochs: in an attach it
        is true until `Attached` is added."""
        return self.epoch != self.state.epoch

    def add(self, event: Event) -> None:
        """Decide an event."""
        state = self.state
        record = Record(
            state.session, state.seq + 1, self.now_ms, self.epoch, self.trigger, event, self.awake_ms
        )
        # The state moves with each event, so whatever is decided next sees it, as it will after a restart.
        self.state = evolve(self.state, record)
        self.records.append(record)

    def land(self, reason: str, message: str) -> None:
        """Record that a limit is reached. A last pass without tools follows."""
        run = open_run(self.state)
        if run is not None and not run.landing:
            self.add(RunLanding(reason, message))
