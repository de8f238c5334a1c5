"""The request of a session as bytes: every message is encoded once, and a request is an edit of the last one.

The body of a request is `base` + the fragments joined by commas + `tail`. The fragments are in one growing buffer
with a running SHA-256, so a step costs only what is new in it. When the window is full, the core decides what stays
(`core.view`). Text of a record is quoted from there instead of being stored again (see `request.Piece`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.context.attachments import enclosed, parts_of
from holdfast.context.transcript import QUOTABLE, SPOKEN, Said, Transcript, text_in
from holdfast.protocol import events as e
from holdfast.protocol.codec import json_text
from holdfast.protocol.ports import Wire
from holdfast.protocol.request import Again, Enclosed, Fresh, Piece, Quoted, Request

REQUESTED = tuple(sorted(event.__name__ for event in (e.ModelCallStarted, *QUOTABLE)))
"""The types of records that requests are made of: the intents, and the records that they quote."""
FOLDED = SPOKEN | {e.RunStarted, e.RunStopped}
"""The events that change a conversation."""
QUOTE_FROM_CHARS = 64
"""Shorter texts are cheaper to repeat than to quote."""


# A worked example. Each message is encoded once and becomes a fragment with a number:
#     request 1:  base + [0 task] + tail                                 keep 0, rest: fresh 0
#     request 2:  base + [0 task, 1 call, 2 result] + tail               keep 1, rest: fresh 1 and 2
#     request 3:  base + [0, 1, 2, 3 call, 4 result] + tail              keep 3, rest: fresh 3 and 4
# The journal stores only the edit: `keep` fragments of the last request, then `rest`. Then the window is full,
# and the core keeps the task and the last turn. The edit names the earlier fragments by their numbers:
#     request 4:  base + [0, 3, 4, 5 call, 6 result] + tail              keep 1, rest: again 3 to 4, fresh 5 and 6
# Bytes and hash of request 4 are made again, which costs as much as the window. A cut leaves much room, so this
# is rare. All other requests only append to the buffer, so the running hash covers what is new and nothing
# else.


class Fragment(msgspec.Struct, frozen=True, gc=False):
    """An encoded element of the list of messages."""

    number: int
    mark: str
    seq: int
    """As in `request.Fresh`."""
    start: int
    """Its place in the buffer."""
    end: int
    light: int = 0
    """How many of its bytes do not count, because media weigh less."""

    @property
    def size(self) -> int:
        return self.end - self.start - self.light


class Unsent(msgspec.Struct, frozen=True):
    """An encoded element that no request in this wire format has carried yet."""

    mark: str
    seq: int
    element: bytes
    quotes: tuple[tuple[Quoted, str], ...]
    light: int = 0

    @property
    def size(self) -> int:
        return len(self.element) - self.light


class Edit(msgspec.Struct, frozen=True):
    """How the next request differs from the last one, with its bytes."""

    keep: int
    rest: tuple[Again | Fresh, ...]
    left_out: tuple[Again, ...]
    chunks: tuple[bytes | bytearray, ...]
    """Base and fragments. They include the session's own buffer, which the next record changes."""
    size_bytes: int
    """The size of all chunks together. Media count by their weight."""
    fresh_bytes: int
    """The number of bytes that the last request did not have, if it had the same base."""
    hasher: Any
    """The hash of the chunks. Update it with the tail."""

    def body(self, tail: bytes) -> bytes:
        """Return the whole body in one copy."""
        return b"".join((*self.chunks, tail))


class _Rendered(msgspec.Struct, frozen=True):
    """What the last rendering made of messages: where its edit is recorded, nothing is encoded or hashed again."""

    rest: tuple[Again | Fresh, ...]
    unsent: Sequence[Unsent]
    hasher: hashlib._Hash
    """The hash of base, buffer and the unsent elements."""


Cut = Callable[[Sequence[Fragment | Unsent], int], Sequence[int]]
"""Takes the places of the messages, those that may go, and the bytes of everything else; returns what stays
(`core.view.cut`).
"""


class Conversation:
    """The fragments of the last request, and the messages that no request has carried yet."""

    def __init__(self, numbers: int = 0) -> None:
        """`numbers`: how many fragments the session's journal already has."""
        self._transcript = Transcript()
        self._unsent: list[Said] = []
        self._has_attachments = False
        """Whether one of them may have some."""
        self._carried = 0
        """How many of the unsent messages were in requests of another wire format. A cut may leave them out."""
        self._of_earlier_runs = 0
        """How many of the unsent messages were there when the open run began. A cut may leave them out, except its
        task: one call that is larger than the window must not keep every later run from sending anything."""
        self._texts: dict[Quoted, str] = {}
        """What the next request may quote."""
        self._hollow: dict[int, Piece] = {}
        """By number, the fragments whose blobs were not read yet. They are empty in the buffer."""
        self._light = 0
        """How many bytes of the buffer do not count."""
        self._buffer = bytearray()
        self._fragments: list[Fragment] = []
        self._left_out: tuple[Again, ...] = ()
        self._has_asked = True
        """Whether the last run made a request."""
        self._stopped_seq = 0
        """Where somebody stopped the last run before it made one; 0: nobody did, or another run has begun."""
        self._numbers = numbers
        self._base = b""
        self._hasher = hashlib.sha256()
        self._hashed_bytes = 0
        """How much of the buffer the running hash covers, after the base."""
        self._rendered: _Rendered | None = None

    @classmethod
    def restored(cls, requested: Iterable[tuple[int, e.Event]]) -> tuple[Conversation, Request | None]:
        """Return the conversation right after a request, and that request, from the (seq, event) of everything that
        requests up to it are made of (`REQUESTED`). None if they do not end with a request. `is_last_request` proves
        its bytes.
        """
        conversation, last = cls(), None
        conversation._transcript = Transcript(is_asking=True)
        texts = conversation._texts
        for seq, event in requested:
            if type(event) is e.ModelCallStarted:
                last = event.request
                conversation._edit(last)
                texts.clear()  # no later request may quote them
            else:
                last, texts[seq] = None, text_in(event)
        if last is not None:
            conversation._left_out = last.left_out
        return conversation, last

    def add(self, record: e.Record) -> None:
        """Fold a record: words become unsent messages, and an intent makes them part of the request."""
        self._say(record)
        if type(record.event) is e.ModelCallStarted:
            self._has_asked = True
            self._apply(record.event)

    def carry(self, record: e.Record) -> None:
        """Fold a record from the time of another wire format: what its requests carried is unsent in this one."""
        self._say(record)
        if isinstance(record.event, e.ModelCallStarted):
            self._has_asked = True
            self._carried, self._texts = len(self._unsent), {}

    def missing(self) -> set[Enclosed]:
        """Return the blobs that the next request needs and that `fill` has not brought yet."""
        if not (self._hollow or self._has_attachments):
            return set()
        shown = {fragment.number for fragment in self._fragments}
        pieces = [piece for number, piece in self._hollow.items() if number in shown]
        needed = {part for piece in pieces for part in piece if isinstance(part, Enclosed)}
        needed |= {enclosed(each) for said in self._unsent for each in said.attachments}
        return {each for each in needed if each not in self._texts}

    def fill(self, contents: Mapping[Enclosed, str]) -> None:
        """Take the content of blobs."""
        self._texts |= dict(contents.items())
        if not self._hollow:
            return
        hollow, known, old = self._hollow, self._fragments, self._buffer
        self._hollow, self._fragments, self._buffer, self._light = {}, [], bytearray(), 0
        self._base = b""  # the running hash does not cover this buffer
        for each in known:
            if each.number in hollow:
                self._enclose(each.number, each.mark, each.seq, hollow[each.number])
            else:
                self._repeat([each], old)

    def _say(self, record: e.Record) -> None:
        kind = type(record.event)
        if kind in SPOKEN:
            for said in self._transcript.add(record):
                self._unsent.append(said)
                self._texts.update(said.quotes)
                self._has_attachments = self._has_attachments or bool(said.attachments)
        elif kind in (e.RunStopped, e.RunStarted):
            self._bound(record)

    def _bound(self, record: e.Record) -> None:
        """A run ends, or another one begins."""
        match record.event:
            case e.RunStopped(status="interrupted") if not self._has_asked:
                self._stopped_seq = record.seq
            case e.RunStarted(is_continuation=is_continuation):
                if self._stopped_seq and not is_continuation:
                    self._drop_stopped()
                self._stopped_seq, self._has_asked = 0, False
                self._of_earlier_runs = len(self._unsent)

    def _drop_stopped(self) -> None:
        """Another task begins: drop the words of a task that was stopped before it began."""
        self._unsent[self._carried :] = [
            said for said in self._unsent[self._carried :] if said.mark != "u" or said.seq > self._stopped_seq
        ]

    def is_last_request(self, base: bytes, sent: Request) -> bool:
        """Return whether base, fragments and tail are exactly the bytes that were sent."""
        hasher = self._running_hash(base)
        hasher.update(sent.tail.encode())
        return hasher.hexdigest() == sent.sha256

    def render(self, wire: Wire, base: bytes, fits: Callable[[int], bool], cut: Cut) -> Edit:
        """Return the next request. `fits` says whether a body of a size is within the window, and `cut` says what
        stays of its messages if it is not.

        Changes nothing except the running hash. The intent that records the edit changes the conversation, through
        `add`.
        """
        # Unsent messages that may be left out: those that another wire format has sent, and those from earlier
        # runs. The words of the open run always stay.
        count = max(self._carried, self._of_earlier_runs)
        movable = self._written(wire, self._unsent[:count]) if count else []
        new = self._written(wire, self._unsent[count:])
        view, left_out = self._fragments, self._left_out
        new_bytes, movable_bytes = _size(new), _size(movable) if movable else 0
        # A cut changes the beginning of the request, so the provider's cache of it is lost. That is why the
        # core cuts rarely and deep instead of dropping one message at a time.
        if not fits(len(base) + len(self._buffer) - self._light + movable_bytes + new_bytes):
            before: list[Fragment | Unsent] = [*view, *movable]
            places = set(cut(before, len(base) + new_bytes))
            kept = [message for place, message in enumerate(before) if place in places]
            dropped = [message.seq for place, message in enumerate(before) if place not in places]
            left_out = _spans(left_out, dropped, [message.seq for message in kept])
            view = [message for message in kept if isinstance(message, Fragment)]
            movable = [message for message in kept if isinstance(message, Unsent)]
            movable_bytes = _size(movable)
        new = movable + new
        fresh = b",".join([each.element for each in new])
        keep = _common(self._fragments, view)
        rest: tuple[Again | Fresh, ...] = (*_ranges(view[keep:]), *[_fresh(each) for each in new])
        self._rendered = None
        # The usual case: everything of the last request stays, and only the end is new.
        if keep == len(self._fragments):
            hasher = self._running_hash(base)
            added = b"," + fresh if view and new else fresh
            hasher.update(added)
            self._rendered = _Rendered(rest, new, hasher.copy())
            chunks: tuple[bytes | bytearray, ...] = (base, self._buffer, added)
        else:
            again = [bytes(self._buffer[fragment.start : fragment.end]) for fragment in view]
            chunks = (base, b",".join([*again, fresh] if new else again))
            hasher = hashlib.sha256(b"".join(chunks))
        light = self._light if view is self._fragments else sum([each.light for each in view])
        light += sum([each.light for each in new])
        return Edit(
            keep=keep,
            rest=rest,
            left_out=left_out,
            chunks=chunks,
            size_bytes=sum(map(len, chunks)) - light,
            fresh_bytes=movable_bytes + new_bytes,
            hasher=hasher,
        )

    def _written(self, wire: Wire, said: Sequence[Said]) -> list[Unsent]:
        """Encode the messages in this wire format. Only what was said since the last request is quoted, because a
        reader of the journal has nothing else at hand.
        """
        written: list[Unsent] = []
        for each in said:
            quotes = tuple([quote for quote in each.quotes if quote[0] in self._texts])
            if each.attachments:
                written += self._with_attachments(wire, each, quotes)
            else:
                elements = wire.message(each.message)
                written += [Unsent(each.mark, each.seq, bytes(element), quotes) for element in elements]
        return written

    def _with_attachments(
        self, wire: Wire, said: Said, quotes: tuple[tuple[Quoted, str], ...]
    ) -> Iterator[Unsent]:
        """Encode a message with the contents of its attachments, which `fill` has brought."""
        contents = [(enclosed(each), self._texts[enclosed(each)]) for each in said.attachments]
        told = zip(said.attachments, contents, strict=True)
        parts = [part for each, (_, content) in told for part in parts_of(each, content)]
        message = msgspec.structs.replace(said.message, parts=(*said.message.parts, *parts))
        media = [(quoted, content) for quoted, content in contents if quoted.weight_bytes]
        for element in wire.message(message):
            light = sum([_light(quoted, content) for quoted, content in media if content.encode() in element])
            yield Unsent(said.mark, said.seq, bytes(element), (*quotes, *contents), light)

    def _running_hash(self, base: bytes) -> hashlib._Hash:
        """Return a copy of the hash over base and the whole buffer. This costs only what is new in the buffer."""
        if base != self._base:
            self._base, self._hasher, self._hashed_bytes = base, hashlib.sha256(base), 0
        self._hasher.update(memoryview(self._buffer)[self._hashed_bytes :])
        self._hashed_bytes = len(self._buffer)
        return self._hasher.copy()

    def _apply(self, event: e.ModelCallStarted) -> None:
        """Apply a recorded intent, which is the truth about what was sent, also after an upgrade."""
        request, rendered = event.request, self._rendered
        self._rendered = None
        # The recorded edit is the one that was rendered last: take its bytes and its hash. After a restart, or
        # if another process rendered it, the record is decoded instead, with the same result.
        if request.rest and rendered is not None and request.rest is rendered.rest:
            for each in rendered.unsent:
                self._append(self._numbers, each.mark, each.seq, each.element, each.light)
                self._numbers += 1
            self._hasher, self._hashed_bytes = rendered.hasher, len(self._buffer)
        else:
            self._edit(request)
        self._unsent, self._texts, self._carried, self._of_earlier_runs = [], {}, 0, 0
        self._has_attachments = False
        self._left_out = request.left_out

    def _edit(self, request: Request) -> None:
        """Make the view that a recorded request tells."""
        known, old = self._fragments, self._buffer
        if request.keep != len(known):
            self._fragments, self._buffer, self._light = [], bytearray(), 0
            self._base = b""  # the running hash does not cover this view
            self._repeat(known[: request.keep], old)
        by_number: dict[int, Fragment] = {}
        for each in request.rest:
            if isinstance(each, tuple):
                by_number = by_number or {fragment.number: fragment for fragment in known}
                self._repeat([by_number[n] for n in range(each[0], each[1] + 1)], old)
            else:
                self._enclose(self._numbers, each.mark, each.seq, each.piece)
                self._numbers += 1

    def _enclose(self, number: int, mark: str, seq: int, piece: Piece) -> None:
        """Append a recorded fragment. If a blob of it was not read yet, it stays empty until `fill`."""
        told: list[bytes | Enclosed] = []
        light = 0
        for part in piece:
            if isinstance(part, str):
                told.append(part.encode())
            elif isinstance(part, int):
                told.append(json_text(self._texts[part]))
            elif part in self._texts:
                told.append(json_text(self._texts[part]))
                light += _light(part, self._texts[part])
            else:
                told.append(part)
        whole = [part for part in told if isinstance(part, bytes)]
        if len(whole) < len(told):
            self._hollow[number] = tuple(
                [part.decode() if isinstance(part, bytes) else part for part in told]
            )
            whole, light = [], 0
        self._append(number, mark, seq, b"".join(whole), light)

    def _append(self, number: int, mark: str, seq: int, element: bytes | bytearray, light: int = 0) -> None:
        buffer, fragments = self._buffer, self._fragments
        self._light += light
        if fragments:
            buffer += b","
        start = len(buffer)
        buffer += element
        fragments.append(Fragment(number, mark, seq, start, len(buffer), light))

    def _repeat(self, fragments: Sequence[Fragment], old: bytearray) -> None:
        for each in fragments:
            self._append(each.number, each.mark, each.seq, old[each.start : each.end], each.light)


def _size(messages: Sequence[Fragment | Unsent]) -> int:
    """Return the bytes of the messages, each with its comma."""
    return sum([message.size for message in messages]) + len(messages)


def _spans(spans: Sequence[Again], dropped: Sequence[int], kept: Sequence[int]) -> tuple[Again, ...]:
    """Return the records whose messages are left out, including earlier ones, as ranges without any kept record."""
    found: list[Again] = []
    for first, last in sorted([*spans, *((seq, seq) for seq in dropped)]):
        if found and not any(found[-1][1] < seq < first for seq in kept):
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return tuple(found)


def _common(old: Sequence[Fragment], new: Sequence[Fragment]) -> int:
    if old is new:
        return len(old)
    count = 0
    while count < min(len(old), len(new)) and old[count].number == new[count].number:
        count += 1
    return count


def _ranges(fragments: Sequence[Fragment]) -> tuple[tuple[int, int], ...]:
    """Return the numbers of the fragments as ranges, with both ends included."""
    ranges: list[tuple[int, int]] = []
    for fragment in fragments:
        if ranges and ranges[-1][1] == fragment.number - 1:
            ranges[-1] = (ranges[-1][0], fragment.number)
        else:
            ranges.append((fragment.number, fragment.number))
    return tuple(ranges)


def rewritten(records: Sequence[e.Record]) -> Conversation:
    """Return the conversation with every message unsent, to be encoded in another wire format."""
    starts = (record.event for record in records if isinstance(record.event, e.ModelCallStarted))
    fresh = sum(isinstance(each, Fresh) for start in starts for each in start.request.rest)
    conversation = Conversation(fresh)
    for record in records:
        conversation.carry(record)
    return conversation


def _fresh(unsent: Unsent) -> Fresh:
    """Return the element as literal texts and quotes of records. It reads back to exactly these bytes."""
    piece: list[str | Quoted] = []
    element, at = unsent.element, 0
    for quoted, text in unsent.quotes:
        # A long result of a tool is in the journal only once, in its own record. The fragment says "the text of
        # record 17", and has the bytes around it.
        if len(text) < QUOTE_FROM_CHARS and isinstance(quoted, int):
            continue
        escaped = json_text(text)
        found = element.find(escaped, at)
        if found >= 0:
            piece += [element[at:found].decode(), quoted]
            at = found + len(escaped)
    return Fresh(unsent.mark, unsent.seq, (*piece, element[at:].decode()))


def _light(quoted: Enclosed, content: str) -> int:
    """Return how many bytes of the content do not count."""
    return len(content) - quoted.weight_bytes if quoted.weight_bytes else 0
