"""What every `protocol.ports.Store` must do, as a class of tests to inherit from.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def clock(self):
            return JumpingClock()

        @pytest.fixture
        async def store(self, tmp_path, clock):
            store = MyStore(tmp_path, clock)
            yield store
            await store.aclose()

The test runner must run coroutines (pytest-asyncio or anyio). What only one store does (files, processes,
disks) is tested with that store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec

from holdfast.core.evolve import fold
from holdfast.core.state import State
from holdfast.core.summary import approval_marks, summary
from holdfast.errors import Fenced, HoldfastError, StorageCorrupt, UsageError
from holdfast.protocol.codec import FIRST_LINK, StoredRecord, decode, encode, encode_json
from holdfast.protocol.events import (
    ApprovalRequested,
    ApprovalResolved,
    Event,
    MessageReceived,
    Record,
    Responded,
    SessionForked,
    SessionOpened,
    ToolCallFinished,
    Trigger,
    blobs_of,
)
from holdfast.protocol.ids import session_id
from holdfast.protocol.messages import Text, Usage
from holdfast.protocol.ports import Store
from holdfast.protocol.rows import (
    ApprovalMark,
    ApprovalRow,
    Commit,
    Erased,
    Holder,
    InboxEntry,
    Lease,
    News,
    Posted,
    Recovered,
    SessionRow,
    SessionStatus,
    Standing,
    Verified,
)
from holdfast.protocol.tools import CallResult
from holdfast.testing.clock import JumpingClock

NOW_MS = 1_750_000_000_000
TERM_MS = 10_000


def an_id(number: int) -> str:
    """A session id; the larger the number, the later it sorts."""
    return session_id(NOW_MS + number, number.to_bytes(10, "big"))


def a_holder(nonce: str) -> Holder:
    """Somebody who may hold a lease."""
    return Holder("host", "boot", "pidns", 1, "0", nonce)


def said(text: str) -> Responded:
    """A response of a model."""
    return Responded("t1", (Text(text),), Usage(), 0, "stop")


class Driving:
    """One driver's hold on one session: what it needs for its next commit."""

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
        """A commit of these events as the next records, with changed fields of `Commit`."""
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


async def branch(parent: Driving, at_seq: int, number: int, *events: Event) -> Driving:
    """A session that shares the first records of another."""
    child = await drive(parent.store, number)
    shared = await parent.store.read(parent.session, 0, at_seq)
    child.seq, child.link = at_seq, shared[-1].link
    child.state = fold([decode(record) for record in shared], child.state)
    forked = SessionForked(child.session, parent.session, at_seq)
    await child.commit(forked, *events, forked_from=parent.session)
    return child


async def refused(kind: type[HoldfastError], awaitable: Any) -> HoldfastError:
    """The error that the awaitable ends with; an assertion fails when it ends otherwise."""
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}")


async def lease_of(store: Store, session: str) -> Lease | None:
    """The lease as it stands."""
    standing = await store.standing(session)
    return standing.lease if standing is not None else None


def texts(records: list[StoredRecord]) -> list[str]:
    """The words of the messages among the records."""
    events = [decode(record).event for record in records]
    return [event.text for event in events if isinstance(event, MessageReceived)]


def an_entry(session: str, command_id: str, body: bytes = b"{}") -> InboxEntry:
    """A command as it lies in an inbox."""
    return InboxEntry(command_id, session, NOW_MS, body)


def asked(driving: Driving, number: int = 1) -> ApprovalRequested:
    """A request for an approval."""
    return ApprovalRequested(f"{driving.session}-{number}", f"t1.c{number}", "shell", "{}", "0" * 64, 0)


def names(rows: list[ApprovalRow]) -> list[str]:
    """The ids of approvals."""
    return [row.id for row in rows]


class StoreConformance:
    """The tests. `store` and `clock` are fixtures of the class that inherits: an empty store, for one test, and the
    clock by which its leases run."""

    # --- journals

    async def test_what_was_committed_is_read_back_in_order(self, store: Store) -> None:
        driving = await drive(store)
        first = await driving.commit(SessionOpened(driving.session), MessageReceived("one"))
        second = await driving.commit(MessageReceived("two"))
        assert await store.read(driving.session) == [*first.records, *second.records]
        assert await store.last_seq(driving.session) == 3
        assert await store.session(driving.session) == second.row

    async def test_a_part_of_a_journal_can_be_read(self, store: Store) -> None:
        driving = await drive(store)
        await driving.commit(*(MessageReceived(str(number)) for number in range(1, 6)))
        assert texts(await store.read(driving.session, 2)) == ["3", "4", "5"]
        assert texts(await store.read(driving.session, 1, 3)) == ["2", "3"]
        assert await store.read(driving.session, 5) == []
        assert texts(await store.read(driving.session, 0, 99)) == ["1", "2", "3", "4", "5"]

    async def test_an_unknown_session_is_empty(self, store: Store) -> None:
        assert await store.read(an_id(1)) == []
        assert await store.last_seq(an_id(1)) == 0
        assert await store.session(an_id(1)) is None
        assert await store.standing(an_id(1)) is None
        assert list(await store.inbox(an_id(1))) == []

    async def test_a_record_that_was_changed_is_told_when_it_is_read(self, store: Store) -> None:
        driving = await drive(store)
        good = driving.make(MessageReceived("pay 1"), MessageReceived("thanks"))
        forged = msgspec.structs.replace(good.records[0], body=b'{"text":"pay 9"}')
        await store.commit(msgspec.structs.replace(good, records=(forged, good.records[1])))
        error = await refused(StorageCorrupt, store.read(driving.session))
        assert "record 1 " in error.message
        assert [(damage.kind, damage.seq) for damage in (await store.verify()).damages] == [("changed", 1)]

    async def test_an_erased_record_proves_its_place_and_is_no_damage(self, store: Store) -> None:
        driving = await drive(store)
        told = driving.make(*(MessageReceived(f"words {number}") for number in range(1, 7)))
        kept = list(told.records)
        for seq in (2, 3, 5):
            record = kept[seq - 1]
            kept[seq - 1] = msgspec.structs.replace(record, body=b"", digest=record.body_digest)
        await store.commit(msgspec.structs.replace(told, records=tuple(kept)))
        assert await store.read(driving.session) == kept
        assert await store.sessions(grep="words 2") == []
        erased = (Erased(driving.session, 2, 3), Erased(driving.session, 5, 5))
        assert await store.verify() == Verified((), erased)

    async def test_a_body_that_is_only_gone_is_damage(self, store: Store) -> None:
        driving = await drive(store)
        good = driving.make(MessageReceived("one"), MessageReceived("two"))
        emptied = msgspec.structs.replace(good.records[0], body=b"")
        await store.commit(msgspec.structs.replace(good, records=(emptied, good.records[1])))
        await refused(StorageCorrupt, store.read(driving.session))
        verified = await store.verify()
        assert [(damage.kind, damage.seq) for damage in verified.damages] == [("changed", 1)]
        assert verified.erased == ()

    async def test_records_that_do_not_follow_each_other_are_a_bug(self, store: Store) -> None:
        driving = await drive(store)
        good = driving.make(MessageReceived("one"), MessageReceived("two"))
        try:
            await store.commit(msgspec.structs.replace(good, records=good.records[::-1]))
        except ValueError:
            assert await store.read(driving.session) == []
        else:
            raise AssertionError("the commit was accepted")

    async def test_damage_in_one_session_leaves_the_others_readable(self, store: Store) -> None:
        broken, sound = await drive(store, 1), await drive(store, 2)
        good = broken.make(MessageReceived("one"))
        forged = msgspec.structs.replace(good.records[0], at_ms=1)
        await store.commit(msgspec.structs.replace(good, records=(forged,)))
        await sound.commit(MessageReceived("whole"))
        assert texts(await store.read(sound.session)) == ["whole"]
        assert {damage.session for damage in (await store.verify()).damages} == {broken.session}

    # --- fences

    async def test_a_commit_with_another_seq_than_the_last_is_fenced(self, store: Store) -> None:
        driving = await drive(store)
        await driving.commit(MessageReceived("one"))
        for seq in (0, 2):
            stale = Driving(store, driving.lease, seq, driving.link)
            await refused(Fenced, stale.commit(MessageReceived("no")))
        assert texts(await store.read(driving.session)) == ["one"]

    async def test_a_commit_of_an_old_epoch_writes_nothing(self, store: Store, clock: JumpingClock) -> None:
        old = await drive(store)
        await old.commit(MessageReceived("one"))
        await store.post(an_entry(old.session, "c1"), 10)
        clock.advance(TERM_MS / 1000)
        lease = await store.lease(old.session, a_holder("b"), TERM_MS)
        commit = old.commit(MessageReceived("two"), asked(old), acknowledged=("c1",))
        await refused(Fenced, commit)
        assert texts(await store.read(old.session)) == ["one"]
        assert [entry.command_id for entry in await store.inbox(old.session)] == ["c1"]
        assert await store.approvals() == []
        await Driving(store, lease, old.seq, old.link).commit(MessageReceived("three"))

    async def test_a_commit_without_a_lease_is_fenced(self, store: Store) -> None:
        driving = await drive(store)
        await store.release(driving.lease)
        await refused(Fenced, driving.commit(MessageReceived("one")))

    async def test_of_two_commits_for_one_seq_one_is_written(self, store: Store) -> None:
        driving = await drive(store)
        commits = [driving.make(MessageReceived(text)) for text in ("a", "b")]
        written: list[str] = []

        async def attempt(commit: Commit) -> None:
            try:
                await store.commit(commit)
            except Fenced:
                return
            written.extend(texts(list(commit.records)))

        async with asyncio.TaskGroup() as group:
            for commit in commits:
                group.create_task(attempt(commit))
        assert len(written) == 1
        assert texts(await store.read(driving.session)) == written

    async def test_records_of_some_types_are_selected_up_to_a_seq(self, store: Store) -> None:
        driving = await drive(store)
        await driving.commit(MessageReceived("one"), said("two"), MessageReceived("three"))
        await driving.commit(MessageReceived("four"))
        child = await branch(driving, 3, 2, MessageReceived("five"))
        whole = [(each.seq, each.type, each.v, each.body) for each in await store.read(child.session)]
        chosen = await store.select(child.session, ("MessageReceived",), 5)
        assert chosen == [whole[0], whole[2], whole[4]]
        assert await store.select(child.session, ("MessageReceived", "Responded"), 2) == whole[:2]
        assert await store.select(driving.session, ("SessionForked",), 9) == []
        assert await store.select(an_id(9), ("MessageReceived",), 9) == []

    async def test_what_a_driver_goes_on_from_is_told_by_one_question(self, store: Store) -> None:
        driving = await drive(store)
        assert await store.recover(driving.session) == Recovered(0, b"", (), ())
        await driving.commit(MessageReceived("one"), snapshot=b"first")
        await driving.commit(MessageReceived("two"), MessageReceived("three"), snapshot=b"second")
        await driving.commit(MessageReceived("four"))
        entry = an_entry(driving.session, "c1")
        await store.post(entry, 10)
        last = await store.read(driving.session, 3)
        assert await store.recover(driving.session) == Recovered(3, b"second", tuple(last), (entry,))
        stale = driving.make(MessageReceived("five"), snapshot=b"third", epoch=driving.lease.epoch - 1)
        await refused(Fenced, store.commit(stale))
        assert (await store.recover(driving.session)).snapshot == b"second"

    async def test_a_branch_has_no_snapshot_until_its_own_first(self, store: Store) -> None:
        driving = await drive(store)
        await driving.commit(MessageReceived("one"), MessageReceived("two"), snapshot=b"first")
        child = await branch(driving, 2, 2)
        whole = await store.read(child.session)
        assert await store.recover(child.session) == Recovered(0, b"", tuple(whole), ())
        await child.commit(MessageReceived("three"), snapshot=b"own")
        assert await store.recover(child.session) == Recovered(4, b"own", (), ())
        assert (await store.recover(driving.session)).snapshot == b"first"
        assert await store.recover(an_id(9)) == Recovered(0, b"", (), ())

    # --- leases

    async def test_a_free_lease_is_taken_and_a_held_one_is_shown(
        self, store: Store, clock: JumpingClock
    ) -> None:
        driving = await drive(store)
        assert driving.lease.holder == a_holder("a")
        assert driving.lease.left_ms == TERM_MS
        clock.advance(1)
        standing = msgspec.structs.replace(driving.lease, left_ms=TERM_MS - 1000)
        assert await store.lease(driving.session, a_holder("b"), TERM_MS) == standing
        assert await lease_of(store, driving.session) == standing

    async def test_a_lapsed_lease_goes_to_who_asks_with_a_new_epoch(
        self, store: Store, clock: JumpingClock
    ) -> None:
        driving = await drive(store)
        clock.advance((TERM_MS - 1) / 1000)
        assert (await store.lease(driving.session, a_holder("b"), TERM_MS)).left_ms == 1
        clock.advance(0.001)
        lapsed = await lease_of(store, driving.session)
        assert lapsed == msgspec.structs.replace(driving.lease, left_ms=0)
        taken = await store.lease(driving.session, a_holder("b"), TERM_MS)
        assert taken == Lease(driving.session, driving.lease.epoch + 1, a_holder("b"), TERM_MS)

    async def test_who_sets_the_clock_neither_ends_nor_prolongs_a_lease(
        self, store: Store, clock: JumpingClock
    ) -> None:
        lease = (await drive(store)).lease
        for step_s in (-86_400, 2 * 86_400):
            clock.step(step_s)
            assert await lease_of(store, lease.session) == lease
        clock.advance(TERM_MS / 1000)
        assert (await store.lease(lease.session, a_holder("b"), TERM_MS)).epoch == lease.epoch + 1

    async def test_who_posts_is_told_how_long_a_lease_still_holds(
        self, store: Store, clock: JumpingClock
    ) -> None:
        driving = await drive(store)
        clock.advance(2 * TERM_MS / 1000)
        told = await store.post(an_entry(driving.session, "c1"), 1)
        assert told.lease == msgspec.structs.replace(driving.lease, left_ms=0)

    async def test_a_lease_is_taken_over_from_exactly_the_dead_one(self, store: Store) -> None:
        dead = (await drive(store)).lease
        taken = await store.lease(dead.session, a_holder("b"), TERM_MS, over=dead)
        assert (taken.holder, taken.epoch) == (a_holder("b"), dead.epoch + 1)
        beaten = await store.lease(dead.session, a_holder("c"), TERM_MS, over=dead)
        assert beaten == taken

    async def test_a_lapsed_lease_that_nobody_took_is_renewed_in_place(
        self, store: Store, clock: JumpingClock
    ) -> None:
        lease = (await drive(store)).lease
        clock.advance(2 * TERM_MS / 1000)
        assert not await store.renew([lease], 3 * TERM_MS)
        assert await lease_of(store, lease.session) == msgspec.structs.replace(lease, left_ms=3 * TERM_MS)

    async def test_a_lease_that_was_taken_or_released_is_not_renewed(
        self, store: Store, clock: JumpingClock
    ) -> None:
        old = (await drive(store)).lease
        clock.advance(TERM_MS / 1000)
        new = await store.lease(old.session, a_holder("b"), TERM_MS)
        assert await store.renew([old], TERM_MS) == [old]
        await store.release(old)
        assert await lease_of(store, old.session) == new
        await store.release(new)
        assert await store.renew([new], TERM_MS) == [new]

    async def test_many_leases_are_renewed_at_once_but_for_those_that_were_lost(
        self, store: Store, clock: JumpingClock
    ) -> None:
        held = [(await drive(store, number)).lease for number in range(3)]
        clock.advance(TERM_MS / 1000)
        await store.lease(held[1].session, a_holder("b"), TERM_MS)
        assert await store.renew(held, TERM_MS) == [held[1]]
        for lease in (held[0], held[2]):
            assert await lease_of(store, lease.session) == lease

    # --- news ---

    async def test_news_tell_which_sessions_were_written_and_asked_since_a_mark(self, store: Store) -> None:
        old, new = await drive(store, 1), await drive(store, 2)
        before = await store.news()
        assert (before.written, before.asked) == ((), ())
        assert await store.news(before.mark) == before
        await store.post(an_entry(new.session, "c1"), 10)
        await old.commit(MessageReceived("one"))
        await old.commit(MessageReceived("two"))
        after = await store.news(before.mark)
        assert (after.written, after.asked) == ((old.session,), (new.session,))
        assert await store.news(after.mark) == News(after.mark)

    async def test_a_lease_that_is_renewed_is_no_news(self, store: Store) -> None:
        driving = await drive(store)
        before = await store.news()
        await store.renew([driving.lease], TERM_MS)
        assert await store.news(before.mark) == before

    async def test_news_tell_that_a_command_was_settled_without_a_record(self, store: Store) -> None:
        driving = await drive(store)
        await store.post(an_entry(driving.session, "c1"), 10)
        before = await store.news()
        await store.commit(driving.make(acknowledged=("c1",)))
        after = await store.news(before.mark)
        assert after == News(after.mark, is_settled=True)
        await store.post(an_entry(driving.session, "c2"), 10)
        asked = await store.news(after.mark)
        assert asked == News(asked.mark, asked=(driving.session,))

    async def test_a_released_lease_is_free_and_its_epoch_is_never_used_again(self, store: Store) -> None:
        old = (await drive(store)).lease
        await store.release(old)
        assert await lease_of(store, old.session) is None
        new = await store.lease(old.session, a_holder("b"), TERM_MS)
        assert new.epoch > old.epoch

    async def test_a_commit_gives_the_lease_back_unless_a_command_waits(self, store: Store) -> None:
        driving = await drive(store)
        await store.post(an_entry(driving.session, "c1"), 10)
        first = driving.make(MessageReceived("one"), releases_lease=True)
        assert not await store.commit(first)
        assert await lease_of(store, driving.session) == driving.lease
        driving.seq, driving.link = first.records[-1].seq, first.records[-1].link
        plain = driving.make(MessageReceived("two"), acknowledged=("c1",))
        assert not await store.commit(plain)
        driving.seq, driving.link = plain.records[-1].seq, plain.records[-1].link
        assert await store.commit(driving.make(MessageReceived("three"), releases_lease=True))
        assert await lease_of(store, driving.session) is None

    async def test_who_posts_is_told_who_holds_the_session(self, store: Store) -> None:
        driving = await drive(store)
        assert await store.post(an_entry(driving.session, "c1"), 1) == Posted("accepted", driving.lease)
        assert await store.post(an_entry(driving.session, "c2"), 1) == Posted("full", driving.lease)
        await store.release(driving.lease)
        assert await store.post(an_entry(driving.session, "c1"), 1) == Posted("duplicate", None)

    async def test_how_a_session_stands_is_told_by_one_question(self, store: Store) -> None:
        driving = await drive(store)
        commit = await driving.commit(MessageReceived("one"))
        for name in ("c1", "c2"):
            await store.post(an_entry(driving.session, name), 10)
        assert await store.standing(driving.session) == Standing(commit.row, driving.lease, waiting=2)
        done = ("c1", "c2")
        commit = await driving.commit(MessageReceived("two"), acknowledged=done, releases_lease=True)
        assert await store.standing(driving.session) == Standing(commit.row, None, waiting=0)

    # --- sessions by key, inboxes

    async def test_a_key_has_one_session_whoever_comes_first(self, store: Store) -> None:
        async with asyncio.TaskGroup() as group:
            claims = [group.create_task(store.claim(an_id(n), "cli:demo", NOW_MS)) for n in (1, 2, 3)]
        assert len({claim.result() for claim in claims}) == 1
        assert await store.claim(an_id(4), "cli:demo", NOW_MS) == claims[0].result()
        assert len(await store.sessions()) == 1

    async def test_a_new_session_begins_with_its_first_command_and_one_that_exists_does_not_take_it(
        self, store: Store
    ) -> None:
        first, second = an_entry(an_id(1), "c1", b"first"), an_entry(an_id(2), "c2", b"second")
        assert await store.claim(an_id(1), "cli:demo", NOW_MS, first) == an_id(1)
        assert await store.claim(an_id(2), "cli:demo", NOW_MS, second) == an_id(1)
        assert list(await store.inbox(an_id(1))) == [first]
        assert (await store.post(first, 9)).outcome == "duplicate"
        moved = an_entry(an_id(1), "c2", b"second")
        assert (await store.post(moved, 9)).outcome == "accepted"

    async def test_sessions_without_a_key_are_always_new(self, store: Store) -> None:
        assert await store.claim(an_id(1), "", NOW_MS) != await store.claim(an_id(2), "", NOW_MS)
        row = await store.session(an_id(1))
        assert row == SessionRow(an_id(1), created_ms=NOW_MS, updated_ms=NOW_MS)

    async def test_two_sessions_may_have_commands_of_one_id(self, store: Store) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        for driving in (one, two):
            assert (await store.post(an_entry(driving.session, "c1"), 10)).outcome == "accepted"
        assert await store.claim(an_id(3), "cli:demo", NOW_MS, an_entry(an_id(3), "c1")) == an_id(3)
        await one.commit(MessageReceived("one"), acknowledged=("c1",))
        assert [len(await store.inbox(session)) for session in (one.session, two.session, an_id(3))] == [
            0,
            1,
            1,
        ]
        assert (await store.post(an_entry(two.session, "c1"), 10)).outcome == "duplicate"
        await two.commit(MessageReceived("two"), acknowledged=("c1",))
        assert await store.inbox(two.session) == []

    async def test_names_that_are_none_are_refused_on_entry_and_harm_nobody(self, store: Store) -> None:
        driving = await drive(store)
        for key in ("tg:\ud800", "tg:", "tg", "tg:a b", "tg:" + "x" * 65):
            await refused(UsageError, store.claim(an_id(2), key, NOW_MS))
        for session in ("\ud800", "", "session", an_id(2).lower()):
            await refused(UsageError, store.claim(session, "", NOW_MS))
        for name in ("\ud800", "", " ", "a ", "a\nb", "a\0b", "x" * 201):
            await refused(UsageError, store.post(an_entry(driving.session, name), 10))
            await refused(UsageError, store.claim(an_id(2), "", NOW_MS, an_entry(an_id(2), name)))
        assert await store.session(an_id(2)) is None
        assert (
            await store.post(an_entry(driving.session, "tg-4711: \u00e4 \U0001f600"), 10)
        ).outcome == "accepted"
        await driving.commit(MessageReceived("one"))

    async def test_asking_for_names_that_are_none_finds_nothing_or_is_refused(self, store: Store) -> None:
        await (await drive(store)).commit(MessageReceived("one"))
        for name in ("\ud800", "x\0y", "no such name"):
            questions: list[Awaitable[object]] = [
                store.find(name),
                store.session(name),
                store.standing(name),
                store.approval(name),
                store.approvals(name),
                store.inbox(name),
                store.last_seq(name),
                store.read(name),
                store.select(name, ("MessageReceived",), 9),
                store.sessions(grep=name),
            ]
            for question in questions:
                try:
                    assert not await question
                except UsageError:
                    assert name == "\ud800"

    async def test_an_inbox_keeps_the_order_of_arrival(self, store: Store) -> None:
        session = (await drive(store)).session
        entries = [an_entry(session, name, name.encode()) for name in ("z", "a", "m")]
        for entry in entries:
            assert (await store.post(entry, 10)).outcome == "accepted"
        assert list(await store.inbox(session)) == entries

    async def test_a_full_inbox_accepts_nothing_until_there_is_room(self, store: Store) -> None:
        driving, other = await drive(store, 1), await drive(store, 2)
        for name in ("c1", "c2"):
            assert (await store.post(an_entry(driving.session, name), 2)).outcome == "accepted"
        assert (await store.post(an_entry(driving.session, "c3"), 2)).outcome == "full"
        assert (await store.post(an_entry(other.session, "c4"), 2)).outcome == "accepted"
        await driving.commit(MessageReceived("one"), acknowledged=("c1",))
        assert (await store.post(an_entry(driving.session, "c3"), 2)).outcome == "accepted"

    async def test_an_acknowledged_command_leaves_the_inbox_and_stays_known(self, store: Store) -> None:
        driving = await drive(store)
        await store.post(an_entry(driving.session, "c1"), 10)
        assert (await store.post(an_entry(driving.session, "c1"), 10)).outcome == "duplicate"
        await driving.commit(MessageReceived("one"), acknowledged=("c1",))
        assert list(await store.inbox(driving.session)) == []
        assert (await store.post(an_entry(driving.session, "c1"), 10)).outcome == "duplicate"

    async def test_a_command_that_was_committed_without_an_inbox_is_known_too(self, store: Store) -> None:
        driving = await drive(store)
        await driving.commit(MessageReceived("one"), acknowledged=("c1",))
        assert (await store.post(an_entry(driving.session, "c1"), 10)).outcome == "duplicate"

    # --- branches

    async def test_a_branch_reads_the_shared_records_and_then_its_own(self, store: Store) -> None:
        parent = await drive(store)
        await parent.commit(MessageReceived("one"), MessageReceived("two"), MessageReceived("three"))
        child = await branch(parent, 2, 2, MessageReceived("other"))
        await parent.commit(MessageReceived("four"))
        records = await store.read(child.session)
        assert texts(records) == ["one", "two", "other"]
        assert [record.seq for record in records] == [1, 2, 3, 4]
        assert {record.session for record in records} == {child.session}
        assert texts(await store.read(parent.session)) == ["one", "two", "three", "four"]
        assert texts(await store.read(child.session, 1, 2)) == ["two"]
        assert texts(await store.read(child.session, 2)) == ["other"]
        assert await store.last_seq(child.session) == 4

    async def test_a_branch_of_a_branch_reads_all_three(self, store: Store) -> None:
        first = await drive(store)
        await first.commit(MessageReceived("one"), MessageReceived("two"), MessageReceived("three"))
        second = await branch(first, 2, 2, MessageReceived("b"))
        third = await branch(second, 4, 3, MessageReceived("c"))
        early = await branch(second, 1, 4, MessageReceived("d"))
        assert texts(await store.read(third.session)) == ["one", "two", "b", "c"]
        assert texts(await store.read(early.session)) == ["one", "d"]
        assert await store.verify() == Verified()

    async def test_nothing_branches_off_behind_the_end(self, store: Store) -> None:
        parent, child = await drive(store, 1), await drive(store, 2)
        await parent.commit(MessageReceived("one"))
        child.seq = 2
        await refused(Fenced, child.commit(MessageReceived("no"), forked_from=parent.session))
        assert await store.last_seq(child.session) == 0

    # --- approvals

    async def test_of_two_decisions_the_first_one_wins(self, store: Store) -> None:
        driving = await drive(store)
        name = f"{driving.session}-1"
        await driving.commit(MessageReceived("one"), asked(driving))
        row = ApprovalRow(name, driving.session, "t1.c1", "shell", "{}", NOW_MS + 2, 0)
        assert await store.approvals() == [row]
        await driving.commit(ApprovalResolved(name, "approve", "ann", "go on"))
        await driving.commit(ApprovalResolved(name, "deny", "bob"))
        decided = {"decision": "approve", "decided_by": "ann", "decided_ms": NOW_MS + 3, "note": "go on"}
        assert await store.approval(name) == msgspec.structs.replace(row, **decided)
        assert await store.approvals() == []
        assert names(await store.approvals(is_open=False)) == [name]

    async def test_an_approval_is_told_as_its_records_tell_it_or_not_at_all(self, store: Store) -> None:
        driving = await drive(store)
        name = f"{driving.session}-1"
        good = driving.make(asked(driving), MessageReceived("two"))
        forged = msgspec.structs.replace(asked(driving), arguments='{"command":"rm -rf /"}')
        record = msgspec.structs.replace(good.records[0], body=encode_json(forged))
        await store.commit(msgspec.structs.replace(good, records=(record, good.records[1])))
        await refused(StorageCorrupt, store.approval(name))
        await refused(StorageCorrupt, store.approvals())

    async def test_an_approval_that_lies_elsewhere_than_its_mark_says_is_damage(self, store: Store) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        name = f"{two.session}-1"
        await one.commit(asked(one), asked(one, 2))
        await two.commit(MessageReceived("one"), asked(two), approvals=(ApprovalMark(name, 1),))
        await refused(StorageCorrupt, store.approval(name))
        assert names(await store.approvals(one.session)) == [f"{one.session}-1", f"{one.session}-2"]
        damages = (await store.verify()).damages
        assert [(each.kind, each.session) for each in damages] == [("row", two.session)]
        assert name in damages[0].message

    async def test_what_was_erased_of_an_approval_is_not_listed(self, store: Store) -> None:
        driving = await drive(store)
        made = driving.make(asked(driving), asked(driving, 2))
        record = msgspec.structs.replace(made.records[0], body=b"", digest=made.records[0].body_digest)
        await store.commit(msgspec.structs.replace(made, records=(record, made.records[1])))
        assert names(await store.approvals()) == [f"{driving.session}-2"]
        assert await store.approval(f"{driving.session}-1") is None
        assert (await store.verify()).damages == ()

    async def test_approvals_are_listed_by_age_for_one_session_or_all(self, store: Store) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        await one.commit(asked(one, 1))
        await two.commit(MessageReceived("two"), asked(two, 2))
        await one.commit(MessageReceived("one"), MessageReceived("one"), asked(one, 3))
        first, other, last = f"{one.session}-1", f"{two.session}-2", f"{one.session}-3"
        assert names(await store.approvals()) == [first, other, last]
        assert names(await store.approvals(one.session)) == [first, last]
        assert await store.approval("nobody-1") is None

    # --- lists

    async def test_the_newest_sessions_come_first_and_can_be_chosen_by_status(self, store: Store) -> None:
        statuses: tuple[SessionStatus, ...] = ("done", "running", "done")
        for number, status in enumerate(statuses, 1):
            driving = await drive(store, number)
            row = SessionRow(driving.session, status=status, updated_ms=NOW_MS - number, seq=1)
            await driving.commit(MessageReceived("x"), row=row)
        assert [row.session for row in await store.sessions()] == [an_id(3), an_id(2), an_id(1)]
        assert [row.session for row in await store.sessions(status="done")] == [an_id(3), an_id(1)]
        assert [row.session for row in await store.sessions(limit=1)] == [an_id(3)]
        assert await store.find("last") == [an_id(3)]

    async def test_the_last_session_is_the_one_that_wrote_last_whatever_the_clock_says(
        self, store: Store
    ) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        assert await store.find("last") == [two.session]
        await one.commit(MessageReceived("one"))
        assert await store.find("last") == [one.session]
        await two.commit(MessageReceived("two"))
        early = msgspec.structs.replace(two.make(MessageReceived("three")).row, updated_ms=1)
        await two.commit(MessageReceived("three"), row=early)
        await one.commit(acknowledged=("c1",))
        assert await store.find("last") == [two.session], "a commit without records is no news"
        claimed = await store.claim(an_id(3), "", 1)
        assert await store.find("last") == [claimed]
        await one.commit(MessageReceived("four"))
        assert [row.session for row in await store.sessions()] == [one.session, claimed, two.session]

    async def test_sessions_that_are_due_are_told_those_first_that_waited_longest(self, store: Store) -> None:
        due_ms = {1: 0, 2: NOW_MS + 30, 3: NOW_MS + 10, 4: NOW_MS + 20}
        rows: dict[int, SessionRow] = {}
        for number, at_ms in due_ms.items():
            driving = await drive(store, number)
            rows[number] = SessionRow(driving.session, status="parked", due_ms=at_ms, seq=1)
            await driving.commit(MessageReceived("x"), row=rows[number])
        assert await store.due(NOW_MS) == []
        assert await store.due(NOW_MS + 20) == [rows[3], rows[4]]
        assert await store.due(NOW_MS + 99) == [rows[3], rows[4], rows[2]]
        assert await store.due(NOW_MS + 99, limit=1) == [rows[3]]
        await driving.commit(MessageReceived("y"))
        assert await store.due(NOW_MS + 99) == [rows[3], rows[2]]

    async def test_sessions_are_found_by_what_was_said(self, store: Store) -> None:
        user, model, titled = [await drive(store, number) for number in (1, 2, 3)]
        await user.commit(MessageReceived('100% "Überlauf"'))
        await model.commit(said("an overflow_ of 100 litres"))
        row = SessionRow(titled.session, title="Overflow pipes", seq=1)
        await titled.commit(MessageReceived("x"), row=row)

        async def found(text: str) -> set[str]:
            return {row.session for row in await store.sessions(grep=text)}

        assert await found("OVERFLOW") == {model.session, titled.session}
        assert await found("100%") == {user.session}
        assert await found('"überlauf"') == {user.session}
        assert await found("overflow_") == {model.session}
        assert await found("usage") == set()
        assert await store.sessions(grep="overflow", limit=1) != []

    async def test_a_session_is_found_by_id_prefix_key_and_last(self, store: Store) -> None:
        assert await store.find("last") == []
        one = await store.claim(an_id(1), "cli:demo", NOW_MS)
        two = await store.claim(an_id(2), "", NOW_MS + 1)
        assert await store.find(one) == [one]
        assert await store.find(one.lower()) == [one]
        assert await store.find(one[:4]) == [one, two]
        assert await store.find("cli:demo") == [one]
        assert await store.find("cli:other") == []
        assert await store.find("last") == [two]
        assert await store.find("no such name") == []

    # --- blobs

    async def test_a_blob_is_given_back_by_its_hash(self, store: Store) -> None:
        sha256 = await store.blobs.put(b"content")
        assert await store.blobs.put(b"content") == sha256
        assert await store.blobs.get(sha256) == b"content"
        await refused(StorageCorrupt, store.blobs.get("0" * 64))

    async def test_a_missing_blob_is_found_when_a_record_needs_it(self, store: Store) -> None:
        driving = await drive(store)
        kept, lost = await store.blobs.put(b"whole output"), "f" * 64
        await driving.commit(ToolCallFinished("t1.c1", CallResult("ok", "head", blob=kept)))
        assert await store.verify() == Verified()
        await driving.commit(ToolCallFinished("t1.c2", CallResult("ok", "head", blob=lost)))
        assert [(damage.kind, damage.seq) for damage in (await store.verify()).damages] == [("blob", 2)]

    async def test_which_blobs_a_session_refers_to_is_kept_with_its_records(self, store: Store) -> None:
        driving, other = await drive(store, 1), await drive(store, 2)
        one, two = await store.blobs.put(b"one"), await store.blobs.put(b"two")
        results = [ToolCallFinished("t1.c1", CallResult("ok", "head", blob=blob)) for blob in (one, two)]
        await driving.commit(*results, results[0])
        await driving.commit(results[1], blobs=())
        await other.commit(results[0])
        assert await store.verify() == Verified()
        await driving.commit(MessageReceived("none"), blobs=("e" * 64,))
        await other.commit(results[1], blobs=())
        damages = [(each.kind, each.session, each.seq) for each in (await store.verify()).damages]
        assert damages == [("row", driving.session, 0), ("row", other.session, 2)]
