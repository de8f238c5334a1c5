"""A model request as a journal stores it: an edit of the last request, in pieces that quote what is stored already.

Nothing here encodes or reads one: `context` does.
"""

from __future__ import annotations

import msgspec


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

Again = tuple[int, int]
"""Fragments that were sent before, by number: the first and the last of a range."""


class Fresh(msgspec.Struct, frozen=True, gc=False):
    """A fragment that no request has carried yet."""

    mark: str
    """`u` words of a person, `n` a note of the runtime, `a` a response, `t` the results of its calls."""
    seq: int
    """The record that made the message whole."""
    piece: Piece


class Request(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A rendered and affordable request, as an edit of the request before it.

    The body is `base` + the fragments, joined by commas + `tail`. The fragments are the first `keep` of the
    last request, then `rest` in its order: ranges of fragments that were sent before (all fragments of a
    session are numbered from 0 as they first appear) and fresh ones.
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
    """The size of the whole body. Media count by their weight (`messages.Attachment`)."""
    expected_tokens: int
    """What the input is likely to be."""
    output_cap_tokens: int
    reserved_tokens: int
    reserved_microusd: int
    fresh_bytes: int = 0
    """How much of it the request before did not have."""
    rest: tuple[Again | Fresh, ...] = ()
    left_out: tuple[Again, ...] = ()
    """What the window had no room for: the messages of the records in these ranges, both ends included."""
