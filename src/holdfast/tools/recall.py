"""recall_history: searches the whole journal of its own session, also what requests have left out."""

from __future__ import annotations

import bisect
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from holdfast.context.clip import clean
from holdfast.context.handles import RECALL_HISTORY, handle_of, handle_of_record
from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import UnreadableEvent, decode
from holdfast.protocol.counts import counted
from holdfast.protocol.events import Record, Responded
from holdfast.protocol.ports import CallContext, Journals, RawResult
from holdfast.protocol.trust import Trust, least
from holdfast.tools.blocking import in_thread
from holdfast.tools.readers import reader
from holdfast.tools.schema import arguments_object
from holdfast.tools.unplanned import Unplanned
from holdfast.views.history import Found, found_in, mask_in, mask_of, terms_of
from holdfast.views.quotes import WORDED, Words, tool_of, words_of

RESULTS = 10
MOST_RESULTS = 50
MOST_CHARS = 20_000
"""Less than the limit of a result, so that it is never clipped."""
ENCLOSED_BYTES = 8 << 20
"""How much is read of contents that are stored apart. They are searched last, the newest first."""
MOST_ENCLOSED = 200
_EXCERPT_CHARS = 300
_BEFORE_CHARS = 100


class _Hit(msgspec.Struct, frozen=True):
    """A place where the words are."""

    seq: int
    at_ms: int
    origin: str
    trust: Trust
    excerpt: str
    handle: str
    """How to read all of it."""


class RecallHistory(Unplanned):
    """recall_history: finds what was said and done earlier in this session."""

    def __init__(self, journals: Journals | None) -> None:
        self._journals = journals
        self.spec = reader(
            name=RECALL_HISTORY,
            description="Search everything that was said and done in this session, from its beginning: the user's "
            "words, yours, and results of tools. Give a few words that it contains. The best and newest come first; "
            "read_output reads all of one.",
            parameters=arguments_object(
                required=["query"],
                query={"type": "string", "minLength": 1, "maxLength": 500},
                limit={"type": "integer", "minimum": 1, "description": f"Results, at most {MOST_RESULTS}."},
            ),
            is_private=False,  # what it shows set its flags when it came
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Return the places where the words are, each with its record, its origin and its trust."""
        terms = terms_of(clean(arguments["query"]))
        if self._journals is None or not terms:
            return RawResult("error", "There is nothing to search: give words that the history contains.")
        limit = min(arguments.get("limit", RESULTS), MOST_RESULTS)
        search = _Search(self._journals, context.session, terms)
        hits: list[_Hit] = []
        async for hit in search.hits():
            hits.append(hit)
            if len(hits) == limit:
                break
        if not hits:
            return RawResult("ok", f"[nothing in this session has these words]\n{search.note}")
        shown = "\n".join([f"{_head(hit)}\n  {hit.excerpt}" for hit in hits])[:MOST_CHARS]
        return RawResult("ok", f"{shown}\n{search.note}", trust=least(*[hit.trust for hit in hits]))


class _Search:
    """One search in one session."""

    def __init__(self, journals: Journals, session: str, terms: tuple[str, ...]) -> None:
        self._journals = journals
        self._session = session
        self._terms = terms
        # All bits, except that of the whole query, which is the last one of several.
        self._words = (1 << len(terms)) - 1 >> (len(terms) > 1)
        self.note = ""
        """What was not searched."""

    async def hits(self) -> AsyncIterator[_Hit]:
        """Yield what is found: first in records, then in the contents that they name."""
        upto_seq = await self._journals.last_seq(self._session)
        found = await self._journals.select(
            self._session, WORDED, upto_seq, lambda rows: found_in(rows, self._terms)
        )
        told: set[int] = set()
        """Those that have all the words themselves."""
        for seq in found.best:
            record = await self._record(seq)
            words = words_of(record.event) if record is not None else None
            if record is None or words is None or words.call_id in found.own_calls:
                continue
            if mask := mask_of(words.text, self._terms):
                if mask & self._words == self._words:
                    told.add(seq)
                yield await self._hit(record, words, words.text, handle_of_record(seq), found)
        async for hit in self._enclosed(found, told):
            yield hit

    async def _enclosed(self, found: Found, told: set[int]) -> AsyncIterator[_Hit]:
        """Yield the contents that have all the words."""
        left_bytes = ENCLOSED_BYTES
        for number, (seq, blob) in enumerate(found.enclosed):
            if left_bytes <= 0 or number == MOST_ENCLOSED:
                rest = len(found.enclosed) - number
                self.note = (
                    f"[not searched: {counted(rest, 'older output')}. read_output searches one of them.]\n"
                )
                return
            if seq in told:
                continue
            record = await self._record(seq)
            words = words_of(record.event) if record is not None else None
            if record is None or words is None or words.call_id in found.own_calls:
                continue
            is_text = any(each.blob == blob and each.is_text for each in words.enclosures)
            content = await self._content(blob) if is_text else b""
            left_bytes -= len(content)
            if await in_thread(partial(self._has_all, content)):
                text = content.decode("utf-8", "replace")
                yield await self._hit(record, words, text, handle_of(blob), found)

    async def _hit(self, record: Record, words: Words, text: str, handle: str, found: Found) -> _Hit:
        origin = words.origin
        if words.call_id:
            origin = f"tool {await self._tool(record.seq, words.call_id, found)}".rstrip()
        trust = least(
            words.trust, *[each.trust for each in words.enclosures if handle_of(each.blob) == handle]
        )
        return _Hit(record.seq, record.at_ms, origin, trust, _excerpt(text, self._terms), handle)

    async def _tool(self, seq: int, call_id: str, found: Found) -> str:
        """Return the tool of a call: the last response before its result asked for it."""
        before = bisect.bisect(found.responses, seq)
        record = await self._record(found.responses[before - 1]) if before else None
        return tool_of(record.event, call_id) if record and isinstance(record.event, Responded) else ""

    async def _record(self, seq: int) -> Record | None:
        """Return a record; None if it was erased or is damaged."""
        try:
            stored = await self._journals.read(self._session, seq - 1, seq)
            return decode(stored[0]) if stored else None
        except (StorageCorrupt, UnreadableEvent):
            return None

    def _has_all(self, content: bytes) -> bool:
        return mask_in(content, self._terms) & self._words == self._words

    async def _content(self, blob: str) -> bytes:
        try:
            return await self._journals.blobs.get(blob)
        except StorageCorrupt:
            return b""


def _head(hit: _Hit) -> str:
    at = datetime.fromtimestamp(hit.at_ms / 1000, UTC)
    return f"r{hit.seq}, {hit.origin}, trust: {hit.trust}, {at:%Y-%m-%d %H:%M} UTC, handle {hit.handle}:"


def _excerpt(text: str, terms: tuple[str, ...]) -> str:
    """Return the text around the longest of the terms in it, on one line."""
    folded = text.casefold()
    place = next((at for term in sorted(terms, key=len, reverse=True) if (at := folded.find(term)) >= 0), 0)
    begin = max(min(place - _BEFORE_CHARS, len(text) - _EXCERPT_CHARS), 0)
    piece = " ".join(text[begin : begin + _EXCERPT_CHARS].split())
    head = "... " if begin else ""
    return f"{head}{piece}{' ...' if begin + _EXCERPT_CHARS < len(text) else ''}"
