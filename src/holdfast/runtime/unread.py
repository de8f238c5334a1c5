"""Finds what a list of approvals lacks: decisions that nobody has read yet, and questions of whole runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.errors import StorageCorrupt, StorageNewer
from holdfast.protocol.commands import Resolve
from holdfast.protocol.events import RunPaused
from holdfast.protocol.ports import Store
from holdfast.protocol.rows import Approval, Sought
from holdfast.runtime.fold import readable, waiting_command

_RECORDS = 50
"""How far before the end of a session its question is looked for: what follows it is little."""


class Question(NamedTuple):
    """What a run asked before it came to rest. The next words in its session are the answer."""

    session: str
    text: str
    """Empty if its record cannot be read."""


async def questions(store: Store) -> list[Question]:
    """Return what runs have asked that wait for the answer, the oldest first. They are not among the approvals:
    they are no calls, and words answer them."""
    rows = [
        row for row in await store.sessions(Sought(status="waiting"), sys.maxsize) if row.reason == "question"
    ]
    return [Question(row.session, await _question(store, row.session, row.seq)) for row in reversed(rows)]


async def _question(store: Store, session: str, seq: int) -> str:
    try:
        records = [readable(each) for each in await store.read(session, max(seq - _RECORDS, 0))]
    except (StorageCorrupt, StorageNewer):  # the next driver of the session reports it
        return ""
    asked = [each.event.question for each in records if isinstance(each.event, RunPaused)]
    return asked[-1] if asked else ""


async def with_unread(store: Store, rows: Sequence[Approval]) -> list[Approval]:
    """Return open approvals, each with the first decision that waits for it in the inbox: that one will count."""
    decided: dict[str, Approval] = {}
    by_id = {row.id: row for row in rows}
    for session in {row.session for row in rows}:
        try:
            commands = [(waiting_command(each), each.posted_ms) for each in await store.inbox(session)]
        except (StorageCorrupt, StorageNewer):  # the next driver of the session reports it
            continue
        for command, posted_ms in commands:
            body = command.body
            if isinstance(body, Resolve) and body.approval_id in by_id:
                by, note, row = command.principal.label, body.note, by_id[body.approval_id]
                row = replace(row, decision=body.decision, decided_by=by, decided_ms=posted_ms, note=note)
                decided.setdefault(row.id, row)
    return [decided.get(row.id, row) for row in rows]
