"""Searches the words of a journal: which records have most of what is looked for, the newest of equal ones first.

Pure. It goes through the records as they are stored, and decodes few of them: an index would make each step dearer.
The caller reads the best records again, with their proof.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, islice

import msgspec

from holdfast.context.handles import LOOKING_BACK, READ_OUTPUT, RECALL_HISTORY
from holdfast.protocol.codec import Selected, UnreadableEvent, decode_event, json_text
from holdfast.protocol.events import EVENT_TYPES, MessageReceived, Responded, ToolCallFinished
from holdfast.protocol.messages import calls_of
from holdfast.views.quotes import WORDED, words_of

MAX_TERMS = 8
"""Further words of a query do not count."""
MOST_FOUND = 200
"""How many records are found at most, the best ones."""
_EDGES = ".,;:!?\"'`()[]{}<>"
_OF_NUMBERS = re.compile(rb"[0-9a-ftc.]+")
"""What numbers, ids and hashes consist of, which records have beside their words."""
_RESPONSE = Responded.__name__
_ENCLOSING = frozenset((MessageReceived.__name__, ToolCallFinished.__name__))
_READS, _RECALLS = READ_OUTPUT.encode(), RECALL_HISTORY.encode()
_DESCRIBED = re.compile(rb'"(?:description|title)":"(?:[^"\\]|\\.)*"')
_ENCLOSED = re.compile(rb'"blob":"([0-9a-f]{64})"')


class Found(msgspec.Struct, frozen=True):
    """What a search found."""

    best: tuple[int, ...]
    """The records that probably have the words, the best first. Decoded, a few may turn out not to."""
    enclosed: tuple[tuple[int, str], ...]
    """(seq, blob) of the contents that records name, the newest first."""
    responses: tuple[int, ...]
    """The records with responses, in order."""
    own_calls: frozenset[str]
    """The ids of calls that look back, whose results only repeat others."""


def terms_of(query: str) -> tuple[str, ...]:
    """Return what is looked for: the words of a query, and the whole of it."""
    words = [stripped for word in query.casefold().split() if (stripped := word.strip(_EDGES))]
    whole = " ".join(words)
    return tuple(dict.fromkeys([*words[: MAX_TERMS - 1], *([whole] if len(words) > 1 else [])]))


def mask_of(text: str, terms: Sequence[str]) -> int:
    """Return which of the terms a text has, as bits."""
    folded = text.casefold()
    return sum(1 << bit for bit, term in enumerate(terms) if term in folded)


def mask_in(content: bytes, terms: Sequence[str]) -> int:
    """Return which of the terms a stored text has, as bits. Quicker than to decode a long text."""
    folded = _folded(content, all(term.isascii() for term in terms))
    return sum(1 << bit for bit, term in enumerate(terms) if term.encode() in folded)


def found_in(rows: Iterable[Selected], terms: Sequence[str]) -> Found:
    """Search records of the types `WORDED`."""
    sure, unsure = _needles(terms)
    by_mask: dict[int, list[int]] = {}
    enclosed: list[tuple[int, str]] = []
    responses: list[int] = []
    own: set[str] = set()
    is_ascii = all(term.isascii() for term in terms)
    for seq, type_, v, body in rows:
        if type_ == _RESPONSE:
            responses.append(seq)
            if _READS in body or _RECALLS in body:
                own.update(_own_calls(type_, v, body))
        elif type_ in _ENCLOSING and b'"blob":"' in body:
            enclosed += [(seq, blob.decode()) for blob in _ENCLOSED.findall(body)]
        folded = _folded(body, is_ascii)
        mask = 0
        for bit, needle in sure:
            if needle in folded:
                mask |= bit
        if unsure and (mask or not sure) and any(needle in folded for needle in unsure):
            mask = _words_mask(type_, v, body, terms)
        if mask:
            by_mask.setdefault(mask, []).append(seq)
    return Found(tuple(_best(by_mask, len(terms))), tuple(enclosed[::-1]), tuple(responses), frozenset(own))


def _needles(terms: Sequence[str]) -> tuple[list[tuple[int, bytes]], list[bytes]]:
    """Return the terms as records encode them: with their bits, those that only words have; and others, which records
    also have beside their words. To look for these, records are decoded. That takes long, so the names of fields
    (`text`, `the`, `is`) count only if there is nothing else to look for.
    """
    encoded = [(1 << bit, term, json_text(term)) for bit, term in enumerate(terms)]
    sure = [(bit, needle) for bit, term, needle in encoded if _is_plain(term)]
    unsure = [needle for _, term, needle in encoded if not _is_plain(term)]
    return sure, [needle for needle in unsure if _OF_NUMBERS.fullmatch(needle)] if sure else unsure


def _best(by_mask: dict[int, list[int]], terms: int) -> Iterator[int]:
    """Yield the best records: rare words count more."""
    total = sum(map(len, by_mask.values()))
    weights: list[float] = []
    for bit in range(terms):
        many = sum(len(seqs) for mask, seqs in by_mask.items() if mask >> bit & 1)
        weights.append(math.log((total + 1) / (many + 1)) + 0.01)
    by_score: dict[float, list[int]] = {}
    for mask, seqs in by_mask.items():
        score = sum(weights[bit] for bit in range(terms) if mask >> bit & 1)
        by_score.setdefault(round(score, 6), []).extend(seqs)
    newest = (sorted(by_score[score], reverse=True) for score in sorted(by_score, reverse=True))
    yield from islice(chain.from_iterable(newest), MOST_FOUND)


def _is_plain(term: str) -> bool:
    """Return whether the encoding of records never has the term beside their words."""
    return _OF_NUMBERS.fullmatch(term.encode()) is None and term.encode() not in _scaffold()


@cache
def _scaffold() -> bytes:
    """The names of all fields and kinds of the records with words."""
    schemas, definitions = msgspec.json.schema_components(
        [each for each in EVENT_TYPES if each.__name__ in WORDED]
    )
    return _DESCRIBED.sub(b"", msgspec.json.encode([schemas, definitions])).lower()


def _folded(body: bytes, is_ascii: bool) -> bytes:
    """Return a text in lower case, or just its ASCII letters, if only those are looked for."""
    if is_ascii or body.isascii():
        return body.lower()
    return body.decode(errors="replace").casefold().encode()


def _words_mask(type_: str, v: int, body: bytes, terms: Sequence[str]) -> int:
    try:
        words = words_of(decode_event(type_, v, body))
    except UnreadableEvent:
        return 0
    return mask_of(words.text, terms) if words is not None else 0


def _own_calls(type_: str, v: int, body: bytes) -> Iterator[str]:
    try:
        event = decode_event(type_, v, body)
    except UnreadableEvent:
        return
    if isinstance(event, Responded):
        yield from (call.call_id for call in calls_of(event.parts) if call.name in LOOKING_BACK)
