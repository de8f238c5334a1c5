"""What every `protocol.ports.Store` must do with leases, news and inboxes. A part of `conformance_store`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import msgspec

from holdfast.errors import Fenced, UsageError
from holdfast.protocol.events import (
    MessageReceived,
    SessionOpened,
)
from holdfast.protocol.ports import Store
from holdfast.protocol.rows import (
    Lease,
    News,
    Posted,
    SessionRow,
    Situation,
    Sought,
)
from holdfast.testing.clock import JumpingClock
from holdfast.testing.driving import (
    NOW_MS,
    TERM_MS,
    a_holder,
    an_entry,
    an_id,
    drive,
    lease_of,
    new,
    refused,
    texts,
)


class LeaseConformance:
    """Tests to inherit from, with the fixtures of `conformance_store`."""

    # --- leases

    async def test_a_free_lease_is_taken_and_a_taken_one_is_shown(
        self, store: Store, clock: JumpingClock
    ) -> None:
        driving = await drive(store)
        assert driving.lease.holder == a_holder("a")
        assert driving.lease.left_ms == TERM_MS
        clock.advance(1)
        current = msgspec.structs.replace(driving.lease, left_ms=TERM_MS - 1000)
        assert await store.lease(driving.session, a_holder("b"), TERM_MS) == current
        assert await lease_of(store, driving.session) == current

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

    async def test_who_posts_is_told_how_long_a_lease_still_lasts(
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
        leases = [(await drive(store, number)).lease for number in range(3)]
        clock.advance(TERM_MS / 1000)
        await store.lease(leases[1].session, a_holder("b"), TERM_MS)
        assert await store.renew(leases, TERM_MS) == [leases[1]]
        for lease in (leases[0], leases[2]):
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

    async def test_news_tell_that_a_command_was_handled_without_a_record(self, store: Store) -> None:
        driving = await drive(store)
        await store.post(an_entry(driving.session, "c1"), 10)
        before = await store.news()
        await store.commit(driving.make(acknowledged=("c1",)))
        after = await store.news(before.mark)
        assert after == News(after.mark, is_handled=True)
        await store.post(an_entry(driving.session, "c2"), 10)
        asked = await store.news(after.mark)
        assert asked == News(asked.mark, asked=(driving.session,))

    async def test_a_released_lease_is_free_and_its_epoch_is_never_used_again(self, store: Store) -> None:
        old = (await drive(store)).lease
        await store.release(old)
        assert await lease_of(store, old.session) is None
        new = await store.lease(old.session, a_holder("b"), TERM_MS)
        assert new.epoch > old.epoch

    async def test_one_question_tells_which_sessions_are_leased(self, store: Store) -> None:
        one, other, released = [await drive(store, number) for number in (1, 2, 3)]
        await store.release(released.lease)
        assert set(await store.leased()) == {one.session, other.session}

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

    async def test_who_posts_is_told_who_has_the_session(self, store: Store) -> None:
        driving = await drive(store)
        assert await store.post(an_entry(driving.session, "c1"), 1) == Posted("accepted", driving.lease)
        assert await store.post(an_entry(driving.session, "c2"), 1) == Posted("full", driving.lease)
        await store.release(driving.lease)
        assert await store.post(an_entry(driving.session, "c1"), 1) == Posted("duplicate", None)

    async def test_one_question_tells_the_situation_of_a_session(self, store: Store) -> None:
        driving = await drive(store)
        commit = await driving.commit(MessageReceived("one"))
        for name in ("c1", "c2"):
            await store.post(an_entry(driving.session, name), 10)
        assert await store.situation(driving.session) == Situation(commit.row, driving.lease, waiting=2)
        done = ("c1", "c2")
        commit = await driving.commit(MessageReceived("two"), acknowledged=done, releases_lease=True)
        assert await store.situation(driving.session) == Situation(commit.row, None, waiting=0)

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

    async def test_a_session_begins_with_its_lease_and_its_first_commit(
        self, store: Store, clock: JumpingClock
    ) -> None:
        driving = new(store, key="cli:demo")
        first = driving.make(SessionOpened(driving.session, "cli:demo"), acknowledged=("c1",))
        assert not await store.begin(first, a_holder("a"), TERM_MS)
        assert await lease_of(store, driving.session) == driving.lease
        assert await store.find("cli:demo") == [driving.session]
        assert await store.session(driving.session) == first.row
        assert await store.read(driving.session) == list(first.records)
        assert (await store.recover(driving.session)).waiting == ()
        assert (await store.post(an_entry(driving.session, "c1"), 1)).outcome == "duplicate"
        clock.advance(TERM_MS / 1000)
        assert (await store.lease(driving.session, a_holder("b"), TERM_MS)).epoch == 2
        assert (await store.verify()).damages == ()

    async def test_a_session_may_rest_after_the_commit_that_begins_it(self, store: Store) -> None:
        driving = new(store)
        assert await store.begin(driving.make(MessageReceived("one"), releases_lease=True), a_holder("a"), 1)
        assert await lease_of(store, driving.session) is None

    async def test_a_session_that_exists_is_not_begun_again_and_nothing_of_it_changes(
        self, store: Store
    ) -> None:
        known = await drive(store, 1, "cli:demo")
        for text in ("one", "two"):
            for other in (new(store, 1), new(store, 2, "cli:demo")):
                first = other.make(MessageReceived("another"))
                await refused(Fenced, store.begin(first, a_holder("b"), TERM_MS))
            assert await store.session(an_id(2)) is None
            assert await lease_of(store, known.session) == known.lease
            await known.commit(MessageReceived(text))
        assert texts(await store.read(known.session)) == ["one", "two"]

    async def test_of_those_who_begin_a_session_of_one_key_only_one_does(self, store: Store) -> None:
        firsts = [new(store, number, "cli:demo").make(MessageReceived("one")) for number in range(1, 6)]
        begun = await asyncio.gather(
            *(store.begin(first, a_holder("a"), TERM_MS) for first in firsts), return_exceptions=True
        )
        assert [type(each) for each in begun].count(Fenced) == 4
        assert len(await store.sessions()) == len(await store.leased()) == 1

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
            await refused(UsageError, store.begin(new(store, 2, key).make(), a_holder("a"), TERM_MS))
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
                store.situation(name),
                store.approval(name),
                store.approvals(name),
                store.inbox(name),
                store.last_seq(name),
                store.read(name),
                store.select(name, ("MessageReceived",), 9, list),
                store.sessions(Sought(grep=name)),
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
