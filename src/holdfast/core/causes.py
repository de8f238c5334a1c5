"""The inputs of the core: `decide` takes nothing else."""

from __future__ import annotations

import msgspec

from holdfast.core.state import State
from holdfast.core.wanted import Prepare
from holdfast.protocol.commands import Command
from holdfast.protocol.events import ContextCompacted, SummaryDiscarded
from holdfast.protocol.outcomes import (
    AttemptResult,
    BudgetNear,
    Built,
    CircuitMet,
    Lost,
    Probed,
    Unaffordable,
    Unready,
)
from holdfast.protocol.request import Request
from holdfast.protocol.tools import Admission
from holdfast.protocol.zone import UTC, Zone


class Attach(msgspec.Struct, frozen=True):
    """A driver took the lease."""

    epoch: int
    holder: str = ""
    is_contested: bool = False
    """Whether the previous driver, whose lease lapsed, may still be running."""
    background: tuple[str, ...] = ()
    """The session's processes in the background that still run."""
    aside: str = ""
    """What was put aside of commands in a sandbox, as a sentence."""


class Commanded(msgspec.Struct, frozen=True):
    """A command arrived, through the driver or a visitor, under the epoch that will commit it."""

    command: Command
    epoch: int
    is_contested: bool = False
    """For a visitor: the same as in `Attach`."""
    zone: Zone = UTC
    """The time zone of the time before a person's words."""
    aside: str = ""
    """What was put aside of commands in a sandbox that this command ended, as a sentence."""


class Outcome(msgspec.Struct, frozen=True):
    """The attempt with this key has ended."""

    key: str
    result: AttemptResult
    duration_ms: int = 0
    first_delta_ms: int = 0
    aside: str = ""
    """What was put aside meanwhile of commands in a sandbox, as a sentence."""


Found = (
    Built
    | Request
    | ContextCompacted
    | SummaryDiscarded
    | Unaffordable
    | Unready
    | BudgetNear
    | CircuitMet
    | Admission
    | Probed
    | Lost
)


class Finding(msgspec.Struct, frozen=True):
    """What a prepare step found. It counts only while exactly this step is still wanted."""

    step: Prepare
    result: Found
    at: State | None = None
    """The state that wanted the step. As long as nothing has happened since, the step is still wanted."""
    aside: str = ""
    """What was put aside of commands in a sandbox that ended with it, as a sentence."""


class Due(msgspec.Struct, frozen=True):
    """The timer with this key has come due."""

    key: str
    aside: str = ""
    """What was put aside of commands in a sandbox that ended with it, as a sentence."""


# Five causes are all that can happen to a session: a driver takes over, a sender commands, a prepare step or an
# attempt ends, a timer fires. A new feature is almost never a new cause; it is a new event, and a rule that
# adds it.
Cause = Attach | Commanded | Outcome | Finding | Due
