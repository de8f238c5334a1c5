"""What a compaction of the view records. `core.compaction` chooses, `runtime.compacting` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.protocol.request import Stretch
from holdfast.protocol.trust import Trust

Reason = Literal["full", "summary", "asked", "last_pass"]
Kind = Literal["head", "words", "plan", "ledger", "summary"]


class ViewPart(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A part of the message that tells what a compaction left out."""

    kind: Kind
    text: str
    seq: int = 0
    """The record of the words in this part; 0 for other parts."""


class ContextCompacted(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The view was cut: from here on, requests have fewer messages, and one that tells the rest. The journal keeps
    everything."""

    reason: Reason
    left_out: tuple[Stretch, ...]
    """The records whose messages the view does not have, those of earlier compactions included."""
    tail_seq: int
    """The record of the message with which the last turns begin, right after the message that tells the rest."""
    parts: tuple[ViewPart, ...]
    """That message."""
    trust: Trust
    """The trust of the least trusted part."""
    messages_before: int
    messages_after: int
    size_bytes_before: int
    size_bytes_after: int
    """The sizes of all messages, without the beginning and the end of a request."""
    kept_share: float = 1.0
    """The share of the paths, numbers, names and quoted words of the messages left out that the view still has."""
    summary_by: str = ""
    """The model that wrote the summary; empty without one."""
    summary_key: str = ""
    """The attempt that brought it."""
    cost_microusd: int = 0
    """What the attempts to get it cost."""


def told(parts: Sequence[ViewPart]) -> str:
    """Return the text of the message that tells the rest."""
    return "\n\n".join([part.text for part in parts])
