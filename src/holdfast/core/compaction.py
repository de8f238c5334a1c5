"""Compaction: which messages stay in the view when the window is full, and what the model reads about the others.

Pure. `runtime.compacting` measures and encodes; the journal keeps every message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from holdfast.protocol.compaction import ContextCompacted, ViewPart
from holdfast.protocol.messages import Finish
from holdfast.protocol.request import Stretch

WORDS_SHARE = 2
"""The words of people may take this part of the view: one half."""
LONG_SHARE = 8
"""A message of a person that would take more than an eighth of the view is clipped, unless it is the last one."""
FEW_TURNS = 5
"""A compaction that gains fewer turns makes the next summary wait."""
MOST_ASKED = 60
"""The most attempts that are remembered: more than an hour may have."""
MOST_SUMMARY_CHARS = 24_000
SHORT_BYTES = 512
"""Clipping a shorter message saves nothing."""


class Item(Protocol):
    """An encoded message of the conversation."""

    @property
    def mark(self) -> str:
        """The kind of the message, as in `request.Fresh`."""
        ...

    @property
    def seq(self) -> int:
        """The record that made the message whole."""
        ...

    @property
    def size(self) -> int:
        """The size of the message in bytes."""
        ...


class Compaction(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The last compaction of a session."""

    seq: int = 0
    """The record of it; 0: the view was never cut."""
    turn: int = 0
    """The turn before it."""
    left_out: tuple[Stretch, ...] = ()
    """The records whose messages the view does not have."""
    is_asked: bool = False
    """Somebody wants one before the next request."""
    words: tuple[ViewPart, ...] = ()
    """Words of people that the view tells in part."""
    summary: str = ""
    """The part of the view with the summary."""
    waiting: str = ""
    """A summary for the next compaction."""
    waiting_key: str = ""
    """The attempt that brought it."""
    waiting_by: str = ""
    """The model that wrote it."""
    asked_ms: tuple[int, ...] = ()
    """When the last attempts to get a summary started."""
    asked_seq: int = 0
    """The record of the last one; 0: its answer no longer counts."""
    spent_microusd: int = 0
    """What they cost since the last compaction."""
    wait_turn: int = 0
    """No summary is asked for before this turn."""

    @property
    def is_late(self) -> bool:
        """Whether the view was compacted while the summary that waits was written."""
        return bool(self.waiting) and self.asked_seq < self.seq


class View(msgspec.Struct, frozen=True):
    """What stays."""

    places: tuple[int, ...]
    """The messages that stay, by their places, in order."""
    clipped: tuple[int, ...]
    """Words of people that are too long to stay whole."""
    tail: int
    """The place where the last turns begin; the number of messages if none stays."""


def after(compaction: Compaction, seq: int, turn: int, event: ContextCompacted) -> Compaction:
    """Return the compaction that the event records."""
    summary = "".join([part.text for part in event.parts if part.kind == "summary"])
    # An example: a compaction in turn 40, and the view is full again in turn 43. That gained 3 turns, so that the
    # next summary is asked for in turn 49 at the earliest.
    gained = turn - compaction.turn if compaction.seq else FEW_TURNS
    return replace(
        compaction,
        seq=seq,
        turn=turn,
        left_out=event.left_out,
        is_asked=False,
        words=tuple([part for part in event.parts if part.kind == "words"]),
        summary=summary,
        waiting="",
        spent_microusd=0,
        wait_turn=turn + 2 * gained if gained < FEW_TURNS else 0,
    )


def after_asking(compaction: Compaction, at_ms: int, seq: int) -> Compaction:
    """Return it after the start of an attempt to get a summary."""
    return replace(compaction, asked_ms=(*compaction.asked_ms, at_ms)[-MOST_ASKED:], asked_seq=seq)


def after_answer(
    compaction: Compaction, text: str, key: str, by: str, cost_microusd: int, turn: int
) -> Compaction:
    """Return it after the end of such an attempt. `text`: what it brought, if anything."""
    spent = compaction.spent_microusd + cost_microusd
    if not text or not compaction.asked_seq:
        return replace(compaction, spent_microusd=spent, wait_turn=turn + FEW_TURNS)
    return replace(compaction, waiting=text, waiting_key=key, waiting_by=by, spent_microusd=spent)


def after_discard(compaction: Compaction, turn: int) -> Compaction:
    """Return it without the summary that waited."""
    return replace(compaction, waiting="", wait_turn=turn + FEW_TURNS)


def after_restoring(compaction: Compaction, turn: int) -> Compaction:
    """Return it when everything is in the view again. What was tried and paid stays known."""
    # An example: somebody brings everything back in turn 250. Without the turn, the next request would count 250
    # turns since the last compaction, and have the view cut again.
    return Compaction(turn=turn, asked_ms=compaction.asked_ms, spent_microusd=compaction.spent_microusd)


def problem_of(text: str, calls: int, finish: Finish, *, is_masked: bool) -> str:
    """Return why a summary cannot be used; empty if it can."""
    if calls:
        return "it calls tools"
    if not text.strip():
        return "it is empty"
    if is_masked:
        return "it contains a secret"
    if finish == "refusal":
        return "the model refused it"
    if finish == "length":
        return "it is cut at its end"
    return "it is too long" if len(text) > MOST_SUMMARY_CHARS else ""


def view(
    items: Sequence[Item], goal_seq: int, told_bytes: int, aim_bytes: int, most_bytes: int, most_messages: int
) -> View:
    """Return what stays: the words of people since the open run began, and as many of the last turns as fit.

    Args:
        items: All messages, in order.
        goal_seq: The message that opened the run.
        told_bytes: The size of the message that tells the rest, without clipped words.
        aim_bytes: How large the view is to be at most.
        most_bytes: The most that the window takes. The last turn may fill the view up to there.
        most_messages: The most messages that stay; but the last turn may have as many whatever people said.
    """
    # An example: ten messages of 1,000 bytes, a view of 4,000 bytes. Message 3 is the task, and the message that
    # tells the rest takes 500. So the task and the last two stay: a third would make 4,500. If the first of them
    # were the result of a call, it would go too, because its call goes.
    words, clipped = _words(items, goal_seq, aim_bytes, most_bytes)
    in_part = frozenset(clipped)
    size = told_bytes + sum(items[place].size + 1 for place in words)
    count, tail, has_turn = len(words) + 1, len(items), False
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if item.mark == "c" or place in in_part:
            continue  # a newer message tells the rest, and has the clipped words
        if place not in words:
            size, count = size + item.size + 1, count + 1
        # One whole turn may stay beyond the aim: without its last result, a model would make the same call again.
        is_many = (count if has_turn else count - len(words)) > most_messages
        if is_many or size > (aim_bytes if has_turn else most_bytes):
            break
        # The results of calls do not stay without the calls, nor half of a response without the other half.
        if item.mark != "t" and not _goes_on(items, place):
            tail = place
            has_turn = has_turn or item.mark == "a"
    stays = [
        place
        for place, item in enumerate(items)
        if place in words or (place >= tail and item.mark != "c" and place not in in_part)
    ]
    return View(tuple(stays), clipped, tail)


def _goes_on(items: Sequence[Item], place: int) -> bool:
    """Return whether the message and the one before it are pieces of one response."""
    before = items[place - 1] if place else None
    return before is not None and items[place].mark == before.mark == "a" and items[place].seq == before.seq


def same_view(items: Sequence[Item]) -> View:
    """Return the view as it is, for another message that tells the rest."""
    frame = next((place for place, item in enumerate(items) if item.mark == "c"), len(items) - 1)
    stays = [place for place, item in enumerate(items) if item.mark != "c"]
    return View(tuple(stays), (), frame + 1)


def is_without_results(items: Sequence[Item], view: View) -> bool:
    """Return whether the model has not read the last results, and the view does not have them."""
    last = next((place for place in range(len(items) - 1, -1, -1) if items[place].mark in ("a", "t")), -1)
    return last >= 0 and items[last].mark == "t" and last not in view.places


def _words(
    items: Sequence[Item], goal_seq: int, aim_bytes: int, most_bytes: int
) -> tuple[frozenset[int], tuple[int, ...]]:
    """Return the words of people that stay whole, and those that are clipped. The last ones always stay whole, and of
    the others the first ones, which are the task, come first."""
    spoken = [place for place, item in enumerate(items) if item.mark == "u" and item.seq >= goal_seq]
    # An example: a view of 4,000 bytes. The task has 300 bytes, a log that a person pasted has 3,000, and the last
    # words have 2,500. The last words and the task stay; the log takes more than an eighth, so it is clipped.
    whole, size = dict.fromkeys(spoken[-1:]), 0
    # However small a view is aimed at, nothing is too long that the window has much room for.
    ample_bytes = max(aim_bytes, most_bytes // 2)
    for place in dict.fromkeys([*spoken[:1], *reversed(spoken[1:-1])]):
        more = items[place].size + 1
        is_tight = max((size + more) * WORDS_SHARE, more * LONG_SHARE) > ample_bytes
        if place not in whole and (not is_tight or (more <= SHORT_BYTES and size + more <= most_bytes)):
            whole[place] = None
            size += more
    return frozenset(whole), tuple([place for place in spoken if place not in whole])


def stretches(before: Sequence[Stretch], dropped: Sequence[int], kept: Sequence[int]) -> tuple[Stretch, ...]:
    """Return the records whose messages are left out, including earlier ones, in stretches without a kept record."""
    # An example: records 3 to 9 are left out, and now the messages of 12, 15 and 20 too, while that of 17 stays.
    # That makes 3 to 15 and 20 to 20: between 9 and 15 no kept message has its record.
    found: list[Stretch] = []
    stay = sorted(kept)
    for first, last in sorted([*before, *((seq, seq) for seq in dropped)]):
        if found and last <= found[-1][1]:
            continue
        next_kept = bisect_right(stay, found[-1][1]) if found else 0
        if found and (next_kept == len(stay) or stay[next_kept] >= first):
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return tuple(found)
