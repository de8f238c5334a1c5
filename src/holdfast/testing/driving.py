"""Writes sessions by hand in tests of stores: a holder of a lease that commits the given events."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.evolve import fold
from holdfast.core.state import State
from holdfast.core.summary import approval_marks, summary
from holdfast.errors import HoldfastError
from holdfast.protocol.blobs import blobs_of
from holdfast.protocol.codec import FIRST_LINK, StoredRecord, decode, encode, encode_json
from holdfast.protocol.commands import Send
from holdfast.protocol.events import (
    ApprovalRequested,
    Event,
    MessageReceived,
    Record,
    Responded,
    SessionForked,
    Trigger,
)
from holdfast.protocol.ids import session_id
from holdfast.protocol.messages import Attachment, Text, Usage
from holdfast.protocol.ports import Store
from holdfast.protocol.rows import (
    Approval,
    Commit,
    Holder,
    InboxEntry,
    Lease,
)

NOW_MS = 1_750_000_000_000
TERM_MS = 10_000


def an_id(number: int) -> str:
    """Return a session id. A larger number sorts later."""
    return session_id(NOW_MS + number, number.to_bytes(10, "big"))


def a_holder(nonce: str) -> Holder:
    """Return a process that may have a lease."""
    return Holder("host", "boot", "pidns", 1, "0", nonce)


def said(text: str) -> Responded:
    """Return a response of a model."""
    return Responded("t1", (Text(text),), Usage(), 0, "stop")


class Driving:
    """A driver's lease of one session: everything that its next commit needs."""

    def __init__(self, store: Store, lease: Lease, seq: int, link: bytes, state: State | None = None) -> None:
        self.store = store
        self.lease = lease
        self.seq = seq
        self.link = link
        self.state = state or State(session=lease.session)

    @property
    def session(self) -> str:
        return self.lease.session

    def make(self, *events: Event, **changes: Any) -> Commit:
        """Return a commit of these events as the next records, with changed fields of `Commit`."""
        records = [
            Record(self.session, seq, NOW_MS + seq, self.lease.epoch, Trigger("command", "test"), event)
            for seq, event in enumerate(events, self.seq + 1)
        ]
        stored: list[StoredRecord] = []
        for record in records:
            stored.append(encode(record, stored[-1].link if stored else self.link))
        commit = Commit(
            session=self.session,
            epoch=self.lease.epoch,
            expected_seq=self.seq,
            records=tuple(stored),
            row=summary(fold(records, self.state)),
            now_ms=NOW_MS + self.seq + len(events),
            blobs=tuple(blob for event in events for blob in blobs_of(event)),
            approvals=tuple(approval_marks(records)),
        )
        return msgspec.structs.replace(commit, **changes)

    async def commit(self, *events: Event, **changes: Any) -> Commit:
        """Write these events."""
        commit = self.make(*events, **changes)
        await self.store.commit(commit)
        self.seq += len(commit.records)
        self.link = commit.records[-1].link if commit.records else self.link
        self.state = fold([decode(record) for record in commit.records], self.state)
        return commit


async def drive(store: Store, number: int = 1, key: str = "", nonce: str = "a") -> Driving:
    """Make a session and take its lease."""
    session = await store.claim(an_id(number), key, NOW_MS)
    lease = await store.lease(session, a_holder(nonce), TERM_MS)
    return Driving(store, lease, 0, FIRST_LINK, State(session=session, key=key))


def new(store: Store, number: int = 1, key: str = "") -> Driving:
    """Return what begins a session that the store does not have."""
    lease = Lease(an_id(number), 1, a_holder("a"), TERM_MS)
    return Driving(store, lease, 0, FIRST_LINK, State(session=lease.session, key=key))


async def branch(parent: Driving, at_seq: int, number: int, *events: Event) -> Driving:
    """Make a session that shares the first records of another."""
    child = await drive(parent.store, number)
    shared = await parent.store.read(parent.session, 0, at_seq)
    child.seq, child.link = at_seq, shared[-1].link
    child.state = fold([decode(record) for record in shared], child.state)
    forked = SessionForked(child.session, parent.session, at_seq)
    await child.commit(forked, *events, forked_from=parent.session)
    return child


async def refused(kind: type[HoldfastError], awaitable: Any) -> HoldfastError:
    """Return the error that the awaitable ends with. Fail if it ends otherwise."""
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}")


async def lease_of(store: Store, session: str) -> Lease | None:
    """Return the current lease."""
    situation = await store.situation(session)
    return situation.lease if situation is not None else None


def texts(records: list[StoredRecord]) -> list[str]:
    """Return the words of the messages among the records."""
    events = [decode(record).event for record in records]
    return [event.text for event in events if isinstance(event, MessageReceived)]


def an_entry(session: str, command_id: str, body: bytes = b"{}") -> InboxEntry:
    """Return a command as it is stored in an inbox."""
    return InboxEntry(command_id, session, NOW_MS, body)


def attaching(blob: str) -> bytes:
    """Return a stored command with an attachment."""
    return encode_json(Send("words", attachments=(Attachment("stdin", "", "text/plain", 1, blob),)))


def asked(driving: Driving, number: int = 1) -> ApprovalRequested:
    """Return a request for an approval."""
    return ApprovalRequested(f"{driving.session}-{number}", f"t1.c{number}", "shell", "{}", "0" * 64, 0)


def names(rows: list[Approval]) -> list[str]:
    """Return the ids of approvals."""
    return [row.id for row in rows]
