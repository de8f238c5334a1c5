"""Forks a session: a new one shares its parent's records up to a point, and continues from there.

Nothing is copied, and the parent does not change. Files in the workspace are not part of a session: a branch finds
them as they are now.
"""

from __future__ import annotations

import secrets

from msgspec.structs import replace

from holdfast.core.draft import Draft
from holdfast.core.opening import change_settings
from holdfast.errors import NoSuchSession, UsageError
from holdfast.protocol.events import SessionForked, Trigger
from holdfast.protocol.ids import session_id
from holdfast.protocol.ports import Clock, Store
from holdfast.protocol.settings import changed
from holdfast.runtime.fold import Fold
from holdfast.runtime.holder import LEASE_MS, this_process

CAUSE = Trigger("fork")
_EPOCH = 1
"""Nobody had the branch before."""


async def fork(
    store: Store,
    clock: Clock,
    parent: str,
    at_seq: int,
    *,
    is_rewind: bool = False,
    workspace: str = "",
) -> str:
    """Branch off after the parent's record `at_seq`, and return the new session's id. Nobody drives it yet.

    Args:
        at_seq: The last shared record.
        is_rewind: The branch is to take over from its parent (`rewind`).
        workspace: Another folder for the branch; empty: the parent's.

    Raises:
        NoSuchSession: there is no such parent.
        UsageError: the parent has no record of that number.
        UnreadableEvent: a newer version wrote a shared record.
    """
    await check_place(store, parent, at_seq)
    now_ms = clock.now_ms()
    branch = session_id(now_ms, secrets.token_bytes(10))
    fold = Fold(branch)
    fold.load(await store.read(parent, upto_seq=at_seq))
    draft = Draft(fold.state, now_ms, 0, _EPOCH, CAUSE)
    draft.add(SessionForked(branch, parent, at_seq, is_rewind))
    if workspace and draft.state.settings is not None:
        change_settings(draft, changed(draft.state.settings, workspace=workspace, copy_of=""))
    commit = fold.commit(fold.take(draft), _EPOCH, now_ms, releases_lease=True)
    # One transaction makes the branch: if this is killed, there is no empty session.
    await store.begin(replace(commit, forked_from=parent), this_process(), LEASE_MS)
    return branch


async def check_place(store: Store, parent: str, at_seq: int, first_seq: int = 1) -> None:
    """Check that the parent has that record. Raises what `fork` raises.

    Args:
        first_seq: The first one that the caller takes.
    """
    last_seq = await store.last_seq(parent)
    if not last_seq and await store.session(parent) is None:
        raise NoSuchSession(f"There is no session {parent}.", hint="`holdfast sessions` lists them.")
    if not 1 <= at_seq <= last_seq:
        hint = f"`holdfast show {parent} --events` lists its records."
        way_out = f"Choose one from {first_seq} to {last_seq}." if last_seq else "It has none yet."
        raise UsageError(f"Session {parent} has no record {at_seq}. {way_out}", hint=hint)
