"""Reads what the report of a run needs. `views.report` makes the report."""

from __future__ import annotations

from typing import Any

from holdfast.core.state import State
from holdfast.core.summary import status
from holdfast.protocol.ports import Journals
from holdfast.runtime.fold import readable
from holdfast.views.report import Result, report_of

_RECENT_RECORDS = 20
"""The failure that parked a session is among this many last records."""


async def report(store: Journals, state: State) -> Result[Any]:
    """Return the report of the newest run.

    Raises:
        UsageError: the session has no run yet, or the answer was erased.
        StorageError: its records cannot be read.
    """
    seq = state.run.answer_seq if state.run is not None else 0
    answer = await store.read(state.session, seq - 1, seq) if seq else []
    is_parked = status(state) == "parked"
    recent = await store.read(state.session, max(state.seq - _RECENT_RECORDS, 0)) if is_parked else []
    last = readable(answer[0]).event if answer else None
    return report_of(state, last, [readable(each) for each in recent])
