"""A model request as a journal stores it: an edit of the last request, in pieces that quote what is stored already.

Nothing here encodes or reads one: `context` does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.protocol.kinds import NO_KINDS, Kinds

SidePurpose = Literal["summary", "reflection"]
"""What a side call is for: a model call beside the conversation, whose answer is not part of it."""

Purpose = Literal["work", SidePurpose]
"""What a model call is for. `work` carries the conversation on."""


class Enclosed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a blob inside a request: a text, or media in base64."""

    blob: str
    """The SHA-256 of the content, which names the blob."""
    weight_bytes: int = 0
    """How many bytes of text media count as; 0 for a text."""


Quoted = int | Enclosed
Piece = tuple[str | Quoted, ...]
"""An encoded message. Strings are literal. An integer is the seq of a record whose text is quoted, as JSON, and
`Enclosed` is the content of a blob.
"""

Stretch = tuple[int, int]
"""Records, from the first to the last."""
MOST_NAMED = 30
"""The most stretches that a text names."""


class Fresh(msgspec.Struct, frozen=True, gc=False):
    """A fragment that the last request did not have."""

    mark: str
    """`u` words of a person, `n` a note of the runtime, `a` a response, `t` the results of its calls, `c` what a
    compaction tells of the messages that it left out, `s` what a side call asks."""
    seq: int
    """The record that made the message whole."""
    piece: Piece


class CachePoint(msgspec.Struct, frozen=True, gc=False):
    """A text in a fragment, because of which a provider keeps everything before it in its cache. The fragment is
    stored without it, so it can move without a second copy of any message.
    """

    place: int
    """The place of the fragment in the request."""
    back: int
    """How many bytes of the fragment come after it."""
    text: str


class Request(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A rendered and affordable request, as an edit of the request before it.

    The body is `base` + the fragments, joined by commas + `tail`, with the text of each of the `points`. The
    fragments are the first `keep` of the last request, then `rest`. A request that keeps none begins anew: no earlier
    request is needed to read it.

    The request of a side call is an edit of the last request for work, and the next request knows nothing of it.
    """

    wire: str
    """The name of the wire that wrote it (`ports.Wire`)."""
    base: str
    """SHA-256 of the blob that has all before the messages: model, system text, tools."""
    keep: int
    tail: str
    sha256: str
    """The hash of the whole body, in hex."""
    size_bytes: int
    """The size of the whole body without points. Media count by their weight (`messages.Attachment`)."""
    expected_tokens: int
    """What the input is likely to be."""
    output_cap_tokens: int
    reserved_tokens: int
    reserved_microusd: int
    fresh_bytes: int = 0
    """How much of it the request before did not have."""
    prefix_bytes: int = 0
    """How many of its first bytes the last request for work to the same model had too: what a provider can read from
    its cache."""
    kinds: Kinds = NO_KINDS
    """What it has of each kind of text, without its tail."""
    rest: tuple[Fresh, ...] = ()
    left_microusd: int = -1
    """What budgets that are wider than the run had left for it, where that was less than the run's own; else -1."""
    points: tuple[CachePoint, ...] = ()
    """At the end of the last answered request, and at the end of this one; none where a provider needs none."""


def quoted_in(request: Request) -> list[Quoted]:
    """Return everything that the fresh fragments of a request quote."""
    return [part for each in request.rest for part in each.piece if not isinstance(part, str)]


def is_within(seq: int, stretches: Sequence[Stretch]) -> bool:
    """Return whether one of the stretches, which are in order, contains the record."""
    before = bisect_right(stretches, seq, key=lambda each: each[0])
    return before > 0 and seq <= stretches[before - 1][1]


def names_of(left_out: Sequence[Stretch]) -> str:
    """Return the stretches in words: `records 3 to 41, record 43`. Of very many, the last ones are counted."""
    named = left_out if len(left_out) <= MOST_NAMED else left_out[: MOST_NAMED - 1]
    told = [f"record {first}" if first == last else f"records {first} to {last}" for first, last in named]
    if rest := left_out[len(named) :]:
        told.append(f"and others in {len(rest):,} more places up to record {rest[-1][1]}")
    return ", ".join(told)
