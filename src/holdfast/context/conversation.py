"""The request of a session as bytes: every message is encoded once, and a request is an edit of the last one.

The body of a request is `base` + the fragments joined by commas + `tail`. The fragments are in one growing buffer
with a running SHA-256, so a step costs only what is new in it. When the window is full, the core decides what stays
(`core.compaction`). Text of a record is quoted from there instead of being stored again (see `request.Piece`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.context.attachments import enclosed, parts_of
from holdfast.context.kinds import kinds_in
from holdfast.context.pieces import (
    Fragment,
    Item,
    Quote,
    Unsent,
    as_fresh,
    found_in,
    light_of,
    texts_in,
    unescaped,
)
from holdfast.context.points import Inserts, new_points, spliced
from holdfast.context.transcript import QUOTABLE, SPOKEN, Said, Transcript, text_in
from holdfast.protocol import events as e
from holdfast.protocol.codec import json_text
from holdfast.protocol.kinds import NO_KINDS, Kinds
from holdfast.protocol.messages import Message, Text
from holdfast.protocol.ports import Wire
from holdfast.protocol.request import CachePoint, Enclosed, Fresh, Piece, Quoted, Request, is_within

REQUESTED = tuple(sorted(event.__name__ for event in (e.ModelCallStarted, *QUOTABLE)))
"""The types of records that requests are made of: the intents, and the records that they quote."""
FOLDED = SPOKEN | {e.RunStarted, e.RunStopped, e.ContextCompacted, e.ContextRestored}
"""The events that change a conversation."""

# A worked example. Each message is encoded once and becomes a fragment:
#     request 1:  base + [task] + tail                                 keep 0, rest: task
#     request 2:  base + [task, call 1, result 1] + tail               keep 1, rest: call 1 and result 1
#     request 3:  base + [task, call 1, result 1, call 2, result 2]    keep 3, rest: call 2 and result 2
# The journal stores only the edit: `keep` fragments of the last request, then `rest`. Then the window is full, and
# the core compacts the view (`ContextCompacted`): the task and the last turn stay, and a frame tells the rest. The
# next request begins anew:
#     request 4:  base + [task, frame, call 2, result 2, call 3, result 3]      keep 0, rest: all of them
# Bytes and hash of request 4 are made again, which costs as much as the view. It is self-contained, so a resume
# reads the journal from there on. A compaction leaves much room, so this is rare. All other requests only append
# to the buffer, so the running hash covers what is new and nothing else.


class _Hollow(msgspec.Struct, frozen=True):
    """A recorded fragment whose blobs were not read yet."""

    piece: Piece
    texts: dict[Quoted, str]
    """The texts of the records that it quotes: they are at hand only when it is read."""


class Edit(msgspec.Struct, frozen=True):
    """How the next request differs from the last one, with its bytes."""

    keep: int
    rest: tuple[Fresh, ...]
    chunks: tuple[bytes | bytearray, ...]
    """Base and fragments. They include the session's own buffer, which the next record changes."""
    size_bytes: int
    """The size of all chunks together. Media count by their weight, and points not at all: no model reads them."""
    fresh_bytes: int
    """The number of bytes that the last request did not have, if it had the same base."""
    kinds: Kinds
    """What it has of each kind of text."""
    hasher: Any
    """The hash of the chunks. Update it with the tail."""
    kept_bytes: int = 0
    """How many of its first bytes the last request had too, if that had the same base."""
    points: tuple[CachePoint, ...] = ()
    inserts: Inserts = ()
    """The texts of the points, and where they are in the chunks."""

    def body(self, tail: bytes) -> bytes:
        """Return the whole body in one copy."""
        if not self.inserts:
            return b"".join((*self.chunks, tail))
        return b"".join((*spliced(self.chunks, self.inserts), tail))


class _Rendered(msgspec.Struct, frozen=True):
    """What the last rendering made of messages: where its edit is recorded, nothing is encoded or hashed again."""

    rest: tuple[Fresh, ...]
    unsent: Sequence[Unsent]
    hasher: hashlib._Hash | None
    """The hash of base, buffer and the unsent elements. None: the request has more than those."""


class _Rough:
    """Stands for a wire format where only sizes matter."""

    name = "rough"

    def message(self, message: Message) -> Sequence[bytes]:
        return [msgspec.json.encode(message)]


_ROUGH = _Rough()


class Conversation:
    """The fragments of the last request, and the messages that it did not have."""

    def __init__(self) -> None:
        self._transcript = Transcript()
        self._unsent: list[Said | Unsent] = []
        self._encoded: list[Unsent] = []
        """The first of the unsent messages, in a wire format."""
        self._encoded_for = ("", 0)
        """Which wire format that is, and how many messages they are."""
        self._has_attachments = False
        """Whether an unsent message may have some."""
        self._texts: dict[Quoted, str] = {}
        """What the next request may quote."""
        self._hollow: dict[int, _Hollow] = {}
        """By place, the fragments whose blobs were not read yet. They are empty in the buffer."""
        self._light = 0
        """How many bytes of the buffer do not count."""
        self._buffer = bytearray()
        self._fragments: list[Fragment] = []
        self._kinds = NO_KINDS
        """What the last request had of each kind of text."""
        self._next_kinds = NO_KINDS
        """What the last request and the encoded messages have."""
        self._has_asked = True
        """Whether the last run made a request."""
        self._stopped_seq = 0
        """Where somebody stopped the last run before it made one; 0: nobody did, or another run has begun."""
        self._sent_seq = 0
        """The last record whose words a request has carried."""
        self.is_stale = False
        """Whether a compaction was undone: the next request needs the conversation that `rewritten` makes."""
        self._last_sent = b""
        """The messages of the last request, where the view was taken apart since then."""
        self._base = b""
        self._hasher = hashlib.sha256()
        self._hashed_bytes = 0
        """How much of the buffer the running hash covers, after the base. Nothing comes between those bytes."""
        self._points: tuple[CachePoint, ...] = ()
        """Those of the last request."""
        self._answered = 0
        """How many messages the last answered request had."""
        self._rendered: _Rendered | None = None

    @classmethod
    def restored(cls, requested: Iterable[tuple[int, e.Event]]) -> tuple[Conversation, Request | None]:
        """Return the conversation right after a request, and that request, from the (seq, event) of everything that
        requests up to it are made of (`REQUESTED`), from one on that begins anew. None if they do not end with a
        request. `is_last_request` proves its bytes.
        """
        conversation, last = cls(), None
        conversation._transcript = Transcript(is_asking=True)
        texts = conversation._texts
        for seq, event in requested:
            if type(event) is e.ModelCallStarted and event.purpose != "work":
                continue
            if type(event) is e.ModelCallStarted:
                last = event.request
                conversation._edit(last)
                conversation._sent_seq = seq
                texts.clear()  # no later request may quote them
            else:
                last, texts[seq] = None, text_in(event)
        if last is not None:
            conversation._kinds = last.kinds
            conversation._points = last.points
            conversation._answered = last.points[0].place + 1 if len(last.points) > 1 else 0
        return conversation, last

    def add(self, record: e.Record) -> None:
        """Fold a record: words become unsent messages, and an intent makes them part of the request."""
        self._say(record)
        if type(record.event) is e.ModelCallStarted and record.event.purpose == "work":
            self._has_asked = True
            self._apply(record.event)
            self._sent_seq = record.seq
        elif type(record.event) is e.Responded:
            self._answered = len(self._fragments)
        elif type(record.event) is e.ContextRestored:
            self.is_stale = True

    def carry(self, record: e.Record) -> None:
        """Fold a record from the time of another wire format: what its requests carried is unsent in this one."""
        self._say(record)
        if isinstance(record.event, e.ModelCallStarted) and record.event.purpose == "work":
            self._has_asked = True
            self._texts, self._sent_seq = {}, record.seq

    def missing(self) -> set[Enclosed]:
        """Return the blobs that the next request needs and that `fill` has not brought yet."""
        if not (self._hollow or self._has_attachments):
            return set()
        pieces = [each.piece for each in self._hollow.values()]
        pieces += [each.hollow for each in self._unsent if isinstance(each, Unsent)]
        needed = {part for piece in pieces for part in piece if isinstance(part, Enclosed)}
        said = [each for each in self._unsent if isinstance(each, Said)]
        needed |= {enclosed(each) for one in said for each in one.attachments}
        return {each for each in needed if each not in self._texts}

    def fill(self, contents: Mapping[Enclosed, str]) -> None:
        """Take the content of blobs."""
        self._texts |= dict(contents.items())
        if not self._hollow:
            return
        hollow, known, old = self._hollow, self._fragments, self._buffer
        self._forget_view()
        for place, each in enumerate(known):
            if place in hollow:
                self._texts |= hollow[place].texts
                self._enclose(each.mark, each.seq, hollow[place].piece)
            else:
                self._append(each.mark, each.seq, old[each.start : each.end], each.quotes, each.light)

    def _say(self, record: e.Record) -> None:
        kind = type(record.event)
        if kind in SPOKEN:
            for said in self._transcript.add(record):
                self._unsent.append(said)
                self._texts.update(said.quotes)
                self._has_attachments = self._has_attachments or bool(said.attachments)
        elif kind in (e.RunStopped, e.RunStarted):
            self._bound(record)
        elif isinstance(record.event, e.ContextCompacted):
            self._compact(record.seq, record.event)

    def _bound(self, record: e.Record) -> None:
        """A run ends, or another one begins."""
        match record.event:
            case e.RunStopped(status="interrupted") if not self._has_asked:
                self._stopped_seq = record.seq
            case e.RunStarted(is_continuation=is_continuation):
                if self._stopped_seq and not is_continuation:
                    self._drop_stopped()
                self._stopped_seq, self._has_asked = 0, False

    def _drop_stopped(self) -> None:
        """Another task begins: drop the words of a task that was stopped before it began."""
        self._unsent = [
            said
            for said in self._unsent
            if said.mark != "u" or said.seq > self._stopped_seq or said.seq < self._sent_seq
        ]
        self._encoded_for = ("", 0)

    def _compact(self, seq: int, event: e.ContextCompacted) -> None:
        """Make the view that a compaction leaves: what stays of the conversation, with the frame in its place. No
        request has carried this view, so all of it is unsent."""
        lifted = [self._lifted(place, each) for place, each in enumerate(self._fragments)]
        kept = [
            each
            for each in (*lifted, *self._unsent)
            if each.mark != "c" and not is_within(each.seq, event.left_out)
        ]
        # Words may stand after the results of calls that were recorded later, so that only the place counts.
        tail = next((place for place, each in enumerate(kept) if each.seq == event.tail_seq), len(kept))
        text = text_in(event)
        frame = Said(Message("user", (Text(text),), event.trust), "c", seq, ((seq, text),))
        self._unsent = [*kept[:tail], frame, *kept[tail:]]
        self._texts[seq] = text
        self._encoded_for, self._rendered = ("", 0), None
        self._kinds, self._last_sent = NO_KINDS, self.last_sent()
        self._points, self._answered = (), 0
        self._forget_view()

    def _lifted(self, place: int, fragment: Fragment) -> Unsent:
        """Return the fragment apart from the last request. The next request may quote what it quotes."""
        mark, seq, light = fragment.mark, fragment.seq, fragment.light
        if place in self._hollow:
            hollow, self._has_attachments = self._hollow[place], True
            self._texts |= hollow.texts
            return Unsent(mark, seq, b"", is_sent=True, hollow=hollow.piece)
        element = bytes(self._buffer[fragment.start : fragment.end])
        self._texts.update((quoted, unescaped(element[a:b])) for quoted, a, b in fragment.quotes)
        return Unsent(mark, seq, element, fragment.quotes, light, is_sent=True)

    def last_sent(self) -> bytes:
        """Return the messages of the last request, joined."""
        return bytes(self._buffer) or self._last_sent

    def sent(self) -> list[bytes]:
        """Return the messages of the last request, without the content of media."""
        return [b"[a picture or a PDF]" if each.light else self.element_of(each) for each in self._fragments]

    @property
    def has_request(self) -> bool:
        """Whether the fragments are those of the last request. A compaction and another wire format end that."""
        return bool(self._fragments) and not self.is_stale

    def is_last_request(self, base: bytes, sent: Request) -> bool:
        """Return whether base, fragments and tail are exactly the bytes that were sent."""
        inserts = self._inserts(sent.points, ())
        hasher = self._hash(base, inserts, b"")
        hasher.update(sent.tail.encode())
        return hasher.hexdigest() == sent.sha256

    def items(self, wire: Wire | None) -> list[Item]:
        """Return all messages of the next request. Without a wire format, new ones have about their size."""
        return [*self._fragments, *self._written(wire)]

    def size_bytes(self, wire: Wire | None) -> int:
        """Return the size of all messages of the next request together."""
        new = self._written(wire)
        return len(self._buffer) - self._light + sum([each.size for each in new]) + len(new)

    def count(self, wire: Wire | None) -> int:
        """Return the number of messages of the next request."""
        return len(self._fragments) + len(self._written(wire))

    def kinds(self, wire: Wire | None, base_bytes: int) -> Kinds:
        """Return what the next request has of each kind of text."""
        self._written(wire)
        return replace(self._next_kinds, base=base_bytes)

    def element_of(self, item: Item) -> bytes:
        """Return the encoded message."""
        return item.element if isinstance(item, Unsent) else bytes(self._buffer[item.start : item.end])

    def words_of(self, item: Item) -> str:
        """Return the texts in the message, without contents of attachments, whatever the wire format calls them."""
        element, own, at = self.element_of(item), bytearray(), 0
        for quoted, start, end in item.quotes:
            if isinstance(quoted, Enclosed):
                own, at = own + element[at:start], end
        return "\n".join(texts_in(msgspec.json.decode(own + element[at:])))

    def render(self, wire: Wire, base: bytes) -> Edit:
        """Return the next request. Changes nothing except the running hash. The intent that records the edit changes
        the conversation, through `add`.
        """
        new = self._written(wire)
        fresh = b",".join([each.element for each in new])
        rest = tuple([as_fresh(each) for each in new])
        added = b"," + fresh if self._fragments and new else fresh
        known = len(self._fragments)

        def element_at(place: int) -> bytes:
            return self.element_of(new[place - known] if place >= known else self._fragments[place])

        points = new_points(wire, self._answered, known + len(new), element_at)
        inserts = self._inserts(points, new)
        hasher = self._hash(base, inserts, added)
        self._rendered = _Rendered(rest, new, None if inserts else hasher.copy())
        chunks = (base, self._buffer, added)
        light = self._light + sum([each.light for each in new])
        kept_bytes = len(base) + len(self._buffer) - self._light
        if self._last_sent:
            kept_bytes += common_prefix(self._last_sent, fresh)
        return Edit(
            keep=len(self._fragments),
            rest=rest,
            chunks=chunks,
            size_bytes=sum(map(len, chunks)) - light,
            fresh_bytes=sum([each.size + 1 for each in new if not each.is_sent]),
            kept_bytes=kept_bytes,
            kinds=self.kinds(wire, len(base)),
            hasher=hasher,
            points=points,
            inserts=[(len(base) + at, text) for at, text in inserts],
        )

    def aside(self, wire: Wire, base: bytes, text: str) -> Edit:
        """Return the request of a side call: the last request, and these words.

        Changes nothing except the running hash, and recording it changes nothing either.
        """
        element = b",".join(map(bytes, wire.message(Message("user", (Text(text),), "data"))))
        added = b"," + element if self._fragments else element
        inserts = self._inserts(self._points, ())
        hasher = self._hash(base, inserts, added)
        chunks = (base, self._buffer, added)
        return Edit(
            keep=len(self._fragments),
            rest=(Fresh("s", 0, (element.decode(),)),),
            chunks=chunks,
            size_bytes=sum(map(len, chunks)) - self._light,
            fresh_bytes=len(element),
            kept_bytes=len(base) + len(self._buffer) - self._light,
            kinds=kinds_in([(element, 0)], replace(self._kinds, base=len(base))),
            hasher=hasher,
            points=self._points,
            inserts=[(len(base) + at, text) for at, text in inserts],
        )

    def _inserts(self, points: Sequence[CachePoint], new: Sequence[Unsent]) -> list[tuple[int, bytes]]:
        """Return the texts of the points, and where in the buffer and what follows it they are."""
        inserts: list[tuple[int, bytes]] = []
        for point in points:
            if point.place < len(self._fragments):
                end = self._fragments[point.place].end
            else:
                more = new[: point.place - len(self._fragments) + 1]
                end = len(self._buffer) + sum([len(each.element) + 1 for each in more])
                end -= not self._fragments
            inserts.append((end - point.back, point.text.encode()))
        return inserts

    def _hash(self, base: bytes, inserts: Inserts, added: bytes) -> hashlib._Hash:
        """Return the hash over base, buffer and what follows it, with the texts in between. What comes before the
        first of them is hashed once."""
        if not inserts:
            hasher = self._running_hash(base, len(self._buffer))
            hasher.update(added)
            return hasher
        first = min(inserts[0][0], len(self._buffer))
        hasher = self._running_hash(base, first)
        rest = (memoryview(self._buffer)[first:], added)
        for piece in spliced(rest, [(at - first, text) for at, text in inserts]):
            hasher.update(piece)
        return hasher

    def _written(self, wire: Wire | None) -> list[Unsent]:
        """Return the unsent messages in this wire format. Each is encoded once."""
        form = wire or _ROUGH
        name, count = self._encoded_for
        if name == form.name and count == len(self._unsent):
            return self._encoded
        if name != form.name or count > len(self._unsent):
            count, self._encoded, self._next_kinds = 0, [], self._kinds
        if count < len(self._unsent):
            more = list(self._encode(form, self._unsent[count:]))
            self._encoded = [*self._encoded, *more]
            self._next_kinds = kinds_in([(each.element, each.light) for each in more], self._next_kinds)
        self._encoded_for = (form.name, len(self._unsent))
        return self._encoded

    def _encode(self, wire: Wire | _Rough, unsent: Sequence[Said | Unsent]) -> Iterator[Unsent]:
        # Only what was said since the last request is quoted, and what the view before a compaction quoted: a
        # reader of the journal has nothing else at hand.
        for each in unsent:
            if isinstance(each, Unsent):
                yield self._filled(each) if each.hollow else each
                continue
            quotes = tuple([quote for quote in each.quotes if quote[0] in self._texts])
            if each.attachments:
                yield from self._with_attachments(wire, each, quotes)
            else:
                for element in wire.message(each.message):
                    yield Unsent(each.mark, each.seq, bytes(element), found_in(bytes(element), quotes))

    def _with_attachments(
        self, wire: Wire | _Rough, said: Said, quotes: tuple[tuple[Quoted, str], ...]
    ) -> Iterator[Unsent]:
        """Encode a message with the contents of its attachments, which `fill` has brought."""
        contents = [(enclosed(each), self._texts[enclosed(each)]) for each in said.attachments]
        told = zip(said.attachments, contents, strict=True)
        parts = [part for each, (_, content) in told for part in parts_of(each, content)]
        message = replace(said.message, parts=(*said.message.parts, *parts))
        media = [(quoted, content) for quoted, content in contents if quoted.weight_bytes]
        for each in wire.message(message):
            element = bytes(each)
            light = sum(
                [light_of(quoted, content) for quoted, content in media if content.encode() in element]
            )
            yield Unsent(said.mark, said.seq, element, found_in(element, (*quotes, *contents)), light)

    def _filled(self, unsent: Unsent) -> Unsent:
        element, quotes, light = self._told(unsent.hollow)
        return Unsent(unsent.mark, unsent.seq, element, quotes, light, unsent.is_sent)

    def _running_hash(self, base: bytes, end: int) -> hashlib._Hash:
        """Return a copy of the hash over base and the buffer up to that byte. This costs only what is new there."""
        if base != self._base or end < self._hashed_bytes:
            self._base, self._hasher, self._hashed_bytes = base, hashlib.sha256(base), 0
        self._hasher.update(memoryview(self._buffer)[self._hashed_bytes : end])
        self._hashed_bytes = end
        return self._hasher.copy()

    def _apply(self, event: e.ModelCallStarted) -> None:
        """Apply a recorded intent, which is the truth about what was sent, also after an upgrade."""
        request, rendered = event.request, self._rendered
        self._rendered = None
        # The recorded edit is the one that was rendered last: take its bytes and its hash. After a restart, or
        # if another process rendered it, the record is decoded instead, with the same result.
        if request.rest and rendered is not None and request.rest is rendered.rest:
            for each in rendered.unsent:
                self._append(each.mark, each.seq, each.element, each.quotes, each.light)
            if rendered.hasher is not None:
                self._hasher, self._hashed_bytes = rendered.hasher, len(self._buffer)
        else:
            self._edit(request)
        self._points = request.points
        self._unsent, self._encoded, self._encoded_for, self._texts = [], [], ("", 0), {}
        self._has_attachments, self.is_stale, self._last_sent = False, False, b""
        self._kinds = request.kinds

    def _edit(self, request: Request) -> None:
        """Make the view that a recorded request tells."""
        if (keep := request.keep) != len(self._fragments):
            known, old, hollow = self._fragments, self._buffer, self._hollow
            self._forget_view()
            self._answered = min(self._answered, keep)
            self._hollow = {place: piece for place, piece in hollow.items() if place < keep}
            for each in known[:keep]:
                self._append(each.mark, each.seq, old[each.start : each.end], each.quotes, each.light)
        for fresh in request.rest:
            self._enclose(fresh.mark, fresh.seq, fresh.piece)

    def _forget_view(self) -> None:
        """Drop the fragments of the last request. The running hash does not cover what comes in their place."""
        self._fragments, self._buffer, self._hollow, self._light = [], bytearray(), {}, 0
        self._base = b""

    def _enclose(self, mark: str, seq: int, piece: Piece) -> None:
        """Append a recorded fragment. If a blob of it was not read yet, it stays empty until `fill`."""
        try:
            element, quotes, light = self._told(piece)
        except KeyError as missing:
            if not isinstance(missing.args[0], Enclosed):
                raise
            texts: dict[Quoted, str] = {part: self._texts[part] for part in piece if isinstance(part, int)}
            self._hollow[len(self._fragments)], element, quotes, light = _Hollow(piece, texts), b"", (), 0
        self._append(mark, seq, element, quotes, light)

    def _told(self, piece: Piece) -> tuple[bytes, tuple[Quote, ...], int]:
        """Return the bytes of a piece, where they quote something, and how many of them do not count."""
        told, quotes, light = bytearray(), [], 0
        for part in piece:
            if isinstance(part, str):
                told += part.encode()
                continue
            start, text = len(told), self._texts[part]
            told += json_text(text)
            quotes.append((part, start, len(told)))
            light += light_of(part, text) if type(part) is Enclosed else 0
        return bytes(told), tuple(quotes), light

    def _append(
        self,
        mark: str,
        seq: int,
        element: bytes | bytearray,
        quotes: tuple[Quote, ...] = (),
        light: int = 0,
    ) -> None:
        buffer, fragments, self._light = self._buffer, self._fragments, self._light + light
        if fragments:
            buffer += b","
        start = len(buffer)
        buffer += element
        fragments.append(Fragment(mark, seq, start, len(buffer), quotes, light))


def common_prefix(one: bytes, other: bytes) -> int:
    """Return how many of their first bytes are the same."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def rewritten(records: Sequence[e.Record], undone_seq: int = 0, last_sent: bytes = b"") -> Conversation:
    """Return the conversation with every message unsent, to be encoded in another wire format. A compaction that was
    undone does not count, and none before `undone_seq`."""
    restored = [each.seq for each in records if isinstance(each.event, e.ContextRestored)]
    undone_seq = max([*restored, undone_seq])
    conversation = Conversation()
    conversation._last_sent = last_sent
    for record in records:
        if not (isinstance(record.event, e.ContextCompacted) and record.seq < undone_seq):
            conversation.carry(record)
    return conversation
