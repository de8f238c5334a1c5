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
    run = state.run
    seqs = dict.fromkeys((*run.cut, run.answer_seq)) if run is not None and run.answer_seq else {}
    said = [record for seq in seqs for record in await store.read(state.session, seq - 1, seq)]
    is_parked = status(state) == "parked"
    recent = await store.read(state.session, max(state.seq - _RECENT_RECORDS, 0)) if is_parked else []
    answer = [readable(each).event for each in said]
    return report_of(state, answer, [readable(each) for each in recent])
