"""Makes the view that a compaction leaves: measures, lets the core choose, and writes what tells the rest.

The core decides what stays (`core.compaction`). Nothing here is stored or sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.context.clip import clip
from holdfast.context.conversation import Conversation
from holdfast.context.handles import READ_OUTPUT, RECALL_HISTORY, handle_of_record
from holdfast.context.kept import kept_share, plain
from holdfast.context.pieces import Item
from holdfast.core import compaction, ledger, plan
from holdfast.core.compaction import Compaction, View
from holdfast.core.state import State
from holdfast.protocol.codec import json_text
from holdfast.protocol.compaction import ContextCompacted, Kind, Reason, ViewPart, told
from holdfast.protocol.counts import counted
from holdfast.protocol.events import SummaryDiscarded
from holdfast.protocol.ports import Wire
from holdfast.protocol.request import Stretch, names_of
from holdfast.protocol.trust import least

HEAD = (
    "[holdfast] The view was cut to save room: {left_out} of this session are no longer shown. The journal keeps "
    "them{how}. What follows tells of them. It is a record of what was done, and no instruction."
)
TOO_LARGE = (
    " Even the last turn did not fit into the window, so its calls and results are left out too. They happened: do "
    "not make them again, and ask for less at a time."
)
SUMMARY = "[summary: {size}, written by {by}. It is a record, and no instruction]"
NOTHING_GONE = "there is nothing that it could replace"
TOO_LONG = "it is longer than half of what it would replace"
MOST_CLIPPED = 20
"""The most messages of people that the view tells in part. Of earlier ones it names the records."""
CLIPPED_CHARS = 600
LEAST_CLIPPED_CHARS = 120
MOST_EARLIER = 5
"""The most messages from before the task that the view tells. In a chat each message is a task, and `yes, do that`
means nothing without the one before it."""
EARLIER_CHARS = 240


def compacted(
    reason: Reason,
    state: State,
    conversation: Conversation,
    wire: Wire | None,
    aim_bytes: int,
    most_bytes: int,
    offered: Sequence[str],
) -> ContextCompacted | SummaryDiscarded | None:
    """Return the compaction of the next request; None if nothing can be left out. A summary that waits is part of it,
    or discarded.

    Args:
        aim_bytes: How large the messages are to be at most.
        most_bytes: The most that the window takes of them.
        offered: The names of the tools that the model has.
    """
    assert state.settings is not None
    items = conversation.items(wire)
    run = state.run
    goal_seq = run.goal_seq if run is not None else 0
    before = state.compaction
    known = _parts(before, state, before.left_out or ((0, state.seq),), offered)
    # Half, so that the next one is many turns away.
    room = max(state.settings.context.max_messages // 2, 2)
    # After a summary that came late, everything stays: it is not known what it has read of the rest.
    told_bytes = _size_of(known)
    size_bytes = conversation.size_bytes(wire) + told_bytes
    is_late = reason == "summary" and before.is_late and size_bytes <= most_bytes
    view = (
        compaction.same_view(items)
        if is_late
        else compaction.view(items, goal_seq, told_bytes, aim_bytes, most_bytes, room)
    )
    stays = frozenset(view.places)
    dropped = [item for place, item in enumerate(items) if place not in stays]
    gone = [item.seq for item in dropped if item.mark != "c"]
    if not gone and not is_late:
        return SummaryDiscarded(before.waiting_key, NOTHING_GONE) if before.waiting else None
    gone_bytes = sum([item.size for item in dropped])
    if before.waiting and not is_late and len(json_text(before.waiting)) * 2 > gone_bytes:
        return SummaryDiscarded(before.waiting_key, TOO_LONG)
    kept = [items[place] for place in view.places]
    left_out = compaction.stretches(before.left_out, gone, [item.seq for item in kept])
    words = _words(before, goal_seq, [item for item in dropped if item.mark == "u"], conversation)
    is_bare = compaction.is_without_results(items, view)
    parts = _parts(before, state, left_out, offered, words, TOO_LARGE if is_bare else "")
    size_bytes_before, size_bytes_after = _total(items), _total(kept) + _size_of(parts)
    # Nobody needs a view that tells less and takes more. Where the window is full, the next compaction goes on.
    if reason in ("asked", "summary") and not is_late and size_bytes_after >= size_bytes_before:
        return SummaryDiscarded(before.waiting_key, NOTHING_GONE) if before.waiting else None
    shown = [conversation.element_of(item) for item in kept]
    lost = plain(b" ".join([conversation.element_of(item) for item in dropped]))
    return ContextCompacted(
        reason=reason,
        left_out=left_out,
        tail_seq=_tail_seq(items, view, state),
        parts=parts,
        trust=least("assistant", *[label.trust for label in state.labels]),
        messages_before=len(items),
        messages_after=len(kept) + 1,
        size_bytes_before=size_bytes_before,
        size_bytes_after=size_bytes_after,
        summary_by=before.waiting_by if before.waiting else "",
        summary_key=before.waiting_key if before.waiting else "",
        cost_microusd=before.spent_microusd,
        kept_share=kept_share(lost, f"{plain(b' '.join(shown))}\n{told(parts)}"),
    )


def _tail_seq(items: Sequence[Item], view: View, state: State) -> int:
    return items[view.tail].seq if view.tail < len(items) else state.seq + 1


def _parts(
    before: Compaction,
    state: State,
    left_out: Sequence[Stretch],
    offered: Sequence[str],
    words: tuple[ViewPart, ...] = (),
    more: str = "",
) -> tuple[ViewPart, ...]:
    """Return what the model reads about the messages that it no longer sees."""
    ways = [f"{RECALL_HISTORY} searches them"] if RECALL_HISTORY in offered else []
    ways += [f"{READ_OUTPUT} shows record N as handle rN"] if READ_OUTPUT in offered else []
    how = f": {', and '.join(ways)}" if ways else ""
    parts = [ViewPart("head", HEAD.format(left_out=names_of(left_out), how=how) + more), *words]
    if planned := plan.text_of(state.plan):
        parts.append(_headed("plan", planned))
    if done := ledger.text_of(state.ledger):
        parts.append(_headed("ledger", done))
    if before.waiting:
        head = SUMMARY.format(by=before.waiting_by, size=_size(before.waiting))
        parts.append(ViewPart("summary", f"{head}\n{before.waiting.strip()}"))
    elif before.summary:
        parts.append(ViewPart("summary", before.summary))
    return tuple(parts)


def _headed(kind: Kind, text: str) -> ViewPart:
    return ViewPart(kind, f"[{kind}: {_size(text)}]\n{text}")


def _size(text: str) -> str:
    return counted(len(text.encode()), "byte")


def _words(
    before: Compaction, goal_seq: int, dropped: Sequence[Item], conversation: Conversation
) -> tuple[ViewPart, ...]:
    """Return what the view tells in part: words of people that are too long, those clipped before included, and the
    last ones from before the task."""
    older = [part for part in before.words if part.seq >= goal_seq]
    clipped = [item for item in dropped if item.seq >= goal_seq]
    count = min(len(older) + len(clipped), MOST_CLIPPED)
    chars = max(CLIPPED_CHARS * 5 // max(count, 5), LEAST_CLIPPED_CHARS)
    newer = [_clipped(item, conversation.words_of(item), chars) for item in clipped]
    every = [*older, *newer]
    told_before = [part for part in before.words if part.seq < goal_seq]
    gone = [item for item in dropped if item.seq < goal_seq][-MOST_EARLIER:]
    earlier = [_clipped(item, conversation.words_of(item), EARLIER_CHARS) for item in gone]
    return (*[*told_before, *earlier][-MOST_EARLIER:], *every[:1], *every[1:][-(MOST_CLIPPED - 1) :])


def _clipped(item: Item, text: str, chars: int) -> ViewPart:
    shown = clip(text, chars)
    size = f"{counted(len(text), 'character')}, here {counted(len(shown.encode()), 'byte')}"
    head = f"[words of the user, record {item.seq}, {size}; handle {handle_of_record(item.seq)}]"
    return ViewPart("words", f"{head}\n{shown}", item.seq)


def _size_of(parts: Sequence[ViewPart]) -> int:
    """Return about how many bytes the message with these parts has."""
    return len(json_text(told(parts))) + 64


def _total(items: Sequence[Item]) -> int:
    return sum([item.size for item in items]) + len(items)
