"""read_output: pages and searches what a session stored whole, by its handle.

A handle is the hash of a stored content that a record of this session names (or the beginning of one), or `rN`, the
words of record N. Nothing of another session can be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.context.handles import READ_OUTPUT, handle_of
from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import Selected, UnreadableEvent, decode, decode_event
from holdfast.protocol.counts import counted
from holdfast.protocol.events import MessageReceived, ToolCallFinished
from holdfast.protocol.ports import CallContext, Journals, RawResult
from holdfast.protocol.trust import Trust, least
from holdfast.sandbox.process import Processes
from holdfast.tools.blocking import in_thread
from holdfast.tools.matching import broken, matched
from holdfast.tools.readers import reader
from holdfast.tools.schema import arguments_object
from holdfast.tools.unplanned import Unplanned
from holdfast.views.quotes import Words, words_of

PAGE_LINES = 2_000
PAGE_CHARS = 20_000
"""Less than the limit of a result, so that a page is never clipped."""
FOLD_CHARS = 4_000
"""A longer line counts as several: a text on one line can be paged too."""
MOST_MATCHES = 200
MATCH_S = 20.0

_LEAST_DIGITS = 8
_HASH = re.compile(rf"[0-9a-f]{{{_LEAST_DIGITS},64}}")
_RECORD = re.compile(r"r([0-9]{1,12})")
_NAMING = (MessageReceived.__name__, ToolCallFinished.__name__)
"""The types of records that name contents for the model."""


class ReadOutput(Unplanned):
    """read_output: a page of a stored output, or its lines that match a pattern."""

    def __init__(self, processes: Processes, journals: Journals | None) -> None:
        self._processes = processes
        self._journals = journals
        self.spec = reader(
            name=READ_OUTPUT,
            description="Read the whole of a tool's output that was clipped, or of any record of this session: one "
            "page of lines at a time, or only the lines that match a pattern. A very long line counts as several.",
            parameters=arguments_object(
                required=["handle"],
                handle={
                    "type": "string",
                    "minLength": 2,
                    "maxLength": 64,
                    "description": "As the clipped output names it; or rN for record N.",
                },
                offset={"type": "integer", "minimum": 1, "description": "First line, from 1."},
                limit={"type": "integer", "minimum": 1, "description": f"Lines, at most {PAGE_LINES}."},
                pattern={
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1_000,
                    "description": "A regular expression (Python's), line by line.",
                },
            ),
            is_private=False,  # what it shows set its flags when it came
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Return the lines under a head that says where they come from."""
        if self._journals is None:
            return RawResult("error", "There is no journal to read here.")
        pattern, first = arguments.get("pattern", ""), arguments.get("offset", 1)
        if pattern and (refusal := broken(pattern)) is not None:
            return refusal
        try:
            found = await _content(self._journals, context.session, arguments["handle"])
        except StorageCorrupt as error:
            return RawResult("error", f"{arguments['handle']} cannot be read: {error}.")
        if isinstance(found, str):
            return RawResult("error", found)
        if pattern:
            limit = min(arguments.get("limit", MOST_MATCHES), MOST_MATCHES)
            told = await self._matches(found.text, pattern, first, limit, context)
        else:
            limit = min(arguments.get("limit", PAGE_LINES), PAGE_LINES)
            told = await in_thread(lambda: _page(found.text, first, limit))
        if told.status == "error":
            return told
        return RawResult(told.status, f"{found.head}\n{told.text}", told.detail, found.trust)

    async def _matches(
        self, text: str, pattern: str, first: int, limit: int, context: CallContext
    ) -> RawResult:
        request = {"pattern": pattern, "text": text, "first": first, "limit": limit, "fold_chars": FOLD_CHARS}
        result = await matched(self._processes, "output_child", request, context, MATCH_S)
        return RawResult("ok", "[no lines match]\n") if result.status == "ok" and not result.text else result


class _Content(NamedTuple):
    """What a handle names."""

    text: str
    trust: Trust
    head: str
    """Says where it comes from."""


async def _content(journals: Journals, session: str, handle: str) -> _Content | str:
    """Return what a handle names in this session; or why it names nothing.

    Raises:
        StorageCorrupt: the record or the content is damaged.
    """
    if record := _RECORD.fullmatch(handle):
        return await _of_record(journals, session, int(record[1]))
    if not _HASH.fullmatch(handle):
        return f"{handle!r} is not a handle: it has {_LEAST_DIGITS} to 64 hex digits, or is rN for record N."
    upto_seq = await journals.last_seq(session)
    named = await journals.select(session, _NAMING, upto_seq, lambda rows: list(_named(rows, handle)))
    blobs = sorted({blob for blob, _, _ in named})
    if not blobs:
        return f"No record of this session names an output {handle}."
    if len(blobs) > 1:
        return f"{handle} is the beginning of several handles: {', '.join(each[:24] for each in blobs[:5])}."
    if not any(is_text for _, _, is_text in named):
        return f"{handle} is an image or a PDF. Only text can be read."
    trust = least(*[trust for _, trust, _ in named])
    content = await journals.blobs.get(blobs[0])
    return _Content(
        content.decode("utf-8", "replace"), trust, f"[output {handle_of(blobs[0])}; trust: {trust}]"
    )


def _named(rows: Iterator[Selected], handle: str) -> Iterator[tuple[str, Trust, bool]]:
    needle = f'"{handle}'.encode()
    for _, type_, v, body in rows:
        if needle not in body:
            continue
        try:
            words = words_of(decode_event(type_, v, body))
        except UnreadableEvent:
            continue
        for each in words.enclosures if words is not None else ():
            if each.blob.startswith(handle):
                yield each.blob, each.trust, each.is_text


async def _of_record(journals: Journals, session: str, seq: int) -> _Content | str:
    words = await read_words(journals, session, seq)
    if words is None:
        return f"Record {seq} of this session does not exist, or has no words."
    text = words.text
    for each in words.enclosures:
        if each.name == "output":
            text = (await journals.blobs.get(each.blob)).decode("utf-8", "replace")
        else:
            text += f"\n[{each.name}: read_output handle {handle_of(each.blob)}]"
    return _Content(text, words.trust, f"[record {seq}, {words.origin}; trust: {words.trust}]")


async def read_words(journals: Journals, session: str, seq: int) -> Words | None:
    """Return what a record says; None if it does not exist, was erased or has no words.

    Raises:
        StorageCorrupt: it was changed.
    """
    stored = await journals.read(session, seq - 1, seq) if seq > 0 else []
    try:
        return words_of(decode(stored[0]).event) if stored else None
    except UnreadableEvent:
        return None


def _page(text: str, first: int, limit: int) -> RawResult:
    """Return some lines, and where to continue."""
    lines = list(_folded(text))
    shown, size = [], 0
    for line in lines[first - 1 : first - 1 + limit]:
        size += len(line) + 1
        if size > PAGE_CHARS:
            break
        shown.append(line)
    if not shown:
        return RawResult("error", f"There is no line {first}. The last one is {len(lines)}.")
    last = first + len(shown) - 1
    more = f"; continue with offset={last + 1}" if last < len(lines) else ""
    return RawResult(
        "ok", "\n".join([*shown, f"[lines {first}-{last} of {counted(len(lines), 'line')}{more}]"])
    )


def _folded(text: str) -> Iterator[str]:
    for line in text.removesuffix("\n").split("\n"):
        for begin in range(0, len(line) or 1, FOLD_CHARS):
            yield line[begin : begin + FOLD_CHARS]
