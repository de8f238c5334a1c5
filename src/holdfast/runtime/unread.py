"""Finds decisions that were accepted but not read yet: the process died before that, or the disk was full."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.errors import StorageCorrupt, StorageNewer
from holdfast.protocol.commands import Resolve
from holdfast.protocol.ports import Store
from holdfast.protocol.rows import Approval
from holdfast.runtime.fold import waiting_command


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
