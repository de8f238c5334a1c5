"""Compacts the view of a session that rests, and brings it back: what `holdfast compact` and `/compact` do.

While a run is open, its driver compacts before its next request (`prepare`). At rest nobody prepares one, so this
visits the session and makes the view at once. No model is called.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from holdfast.context.conversation import Conversation, rewritten
from holdfast.core import budget
from holdfast.core.measure import expected_tokens
from holdfast.core.state import State, open_run
from holdfast.protocol.commands import Compact, Principal
from holdfast.protocol.compaction import ContextCompacted
from holdfast.protocol.ports import Clock, Store
from holdfast.runtime.compacting import compacted
from holdfast.runtime.enclosing import fill
from holdfast.runtime.fold import readable
from holdfast.runtime.prompting import recorded_tools
from holdfast.runtime.visit import Visit, visiting

BUSY = "It compacts the view itself, before its next request."
IN_USE = "The view is brought back only while nobody drives the session."
HALF = 2
"""A person who asks for a compaction gets at most half of the view, however small that is."""

Done = Literal["compacted", "asked", "restored", "nothing", "too_large"]


class Outcome(NamedTuple):
    """What became of the view."""

    done: Done
    """`asked`: the open run compacts before its next request. `nothing`: there is nothing to leave out, or to bring
    back. `too_large`: the whole conversation does not fit into the window."""
    tokens_before: int = 0
    tokens_after: int = 0
    view: ContextCompacted | None = None


async def compact(store: Store, clock: Clock, session: str, principal: Principal) -> Outcome:
    """Compact the view of a session that nobody drives.

    Raises:
        NoSuchSession: there is no such session.
        Conflict: a process drives it.
        StorageError: it cannot be recorded.
    """
    async with visiting(store, clock, session, principal, BUSY) as visit:
        state = visit.fold.state
        if open_run(state) is not None:
            await visit.tell(Compact())
            return Outcome("asked")
        if visit.fold.conversation.is_stale:  # no request has carried what an undo brought back
            await visit.fold.rewrite(store, ())
        base_bytes = await _base_bytes(store, state)
        view = await _halved(store, visit, base_bytes)
        if view is None:
            return Outcome("nothing")
        before = _tokens(state, visit.fold.conversation, base_bytes)
        await visit.tell(Compact(view=view, at_seq=state.seq))
        await fill(visit.fold.conversation, store.blobs)
        return Outcome("compacted", before, _tokens(state, visit.fold.conversation, base_bytes), view)


async def restore(store: Store, clock: Clock, session: str, principal: Principal) -> Outcome:
    """Bring back what compactions left out, if it fits into the window. One that was only asked for does not happen.

    Raises:
        NoSuchSession: there is no such session.
        Conflict: a process drives it.
        StorageError: it cannot be recorded.
    """
    async with visiting(store, clock, session, principal, IN_USE) as visit:
        state = visit.fold.state
        if not (state.compaction.seq or state.compaction.is_asked) or state.settings is None:
            return Outcome("nothing")
        whole = rewritten([readable(each) for each in await store.read(session)], state.seq + 1)
        await fill(whole, store.blobs)
        await fill(visit.fold.conversation, store.blobs)
        base_bytes = await _base_bytes(store, state)
        before = _tokens(state, visit.fold.conversation, base_bytes)
        after = _tokens(state, whole, base_bytes)
        is_too_large = after > budget.window_of(state, state.settings).room_tokens
        if is_too_large or whole.count(None) > state.settings.context.max_messages:
            return Outcome("too_large", before, after)
        await visit.tell(Compact(is_undo=True))
        return Outcome("restored", before, after)


async def _halved(store: Store, visit: Visit, base_bytes: int) -> ContextCompacted | None:
    state, conversation = visit.fold.state, visit.fold.conversation
    if state.settings is None or not state.models.started:
        return None
    await fill(conversation, store.blobs)
    size_bytes = conversation.size_bytes(None)
    per_byte = _tokens(state, conversation, base_bytes) / (base_bytes + size_bytes)
    window = budget.window_of(state, state.settings)
    target = int(window.tokens * state.settings.context.compact_to)
    most_bytes = min(size_bytes // HALF, int(target / per_byte) - base_bytes)
    room_bytes = int(window.room_tokens / per_byte) - base_bytes
    offered = [spec.name for spec in await recorded_tools(store.blobs, state.prompt)]
    view = compacted("asked", state, conversation, None, most_bytes, room_bytes, offered)
    return view if isinstance(view, ContextCompacted) else None


def _tokens(state: State, conversation: Conversation, base_bytes: int) -> int:
    return expected_tokens(state.models.measure, conversation.kinds(None, base_bytes))


async def _base_bytes(store: Store, state: State) -> int:
    """Return the size of a request without its messages."""
    return len(await store.blobs.get(state.models.base)) if state.models.base else 0
