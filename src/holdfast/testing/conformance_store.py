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
from collections.abc import Iterator

import msgspec

from holdfast.errors import Fenced, StorageCorrupt, StorageError
from holdfast.protocol.codec import Selected, encode_json
from holdfast.protocol.events import (
    ApprovalResolved,
    MessageReceived,
    SessionOpened,
    SessionRenamed,
    ToolCallFinished,
)
from holdfast.protocol.ports import Store
from holdfast.protocol.rows import (
    Approval,
    ApprovalMark,
    Commit,
    GrantRow,
    Recovered,
    SessionRow,
    SessionStatus,
    Sought,
    Stretch,
    Verified,
)
from holdfast.protocol.tools import CallResult
from holdfast.testing.clock import JumpingClock
from holdfast.testing.conformance_budgets import BudgetConformance
from holdfast.testing.conformance_leases import LeaseConformance
from holdfast.testing.conformance_ledger import LedgerConformance
from holdfast.testing.conformance_services import ServiceConformance
from holdfast.testing.driving import (
    NOW_MS,
    TERM_MS,
    Driving,
    a_holder,
    an_entry,
    an_id,
    asked,
    attaching,
    branch,
    drive,
    names,
    new,
    refused,
    said,
    texts,
)


def _disappointed(records: Iterator[Selected]) -> None:
    next(records)
    raise StorageCorrupt("not what was looked for")


class StoreConformance(LeaseConformance, LedgerConformance, BudgetConformance, ServiceConformance):
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
        assert await store.situation(an_id(1)) is None
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
        assert await store.sessions(Sought(grep="words 2")) == []
        erased = (Stretch(driving.session, 2, 3), Stretch(driving.session, 5, 5))
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
        chosen = await store.select(child.session, ("MessageReceived",), 5, list)
        assert chosen == [whole[0], whole[2], whole[4]]
        assert await store.select(child.session, ("MessageReceived", "Responded"), 2, list) == whole[:2]
        assert await store.select(driving.session, ("SessionForked",), 9, list) == []
        assert await store.select(an_id(9), ("MessageReceived",), 9, list) == []

    async def test_a_selection_that_is_not_read_to_its_end_leaves_nothing_open(self, store: Store) -> None:
        driving = await drive(store)
        await driving.commit(MessageReceived("one"), MessageReceived("two"))
        types = ("MessageReceived",)
        assert (await store.select(driving.session, types, 9, next))[0] == 1
        error = await refused(StorageCorrupt, store.select(driving.session, types, 9, _disappointed))
        await driving.commit(MessageReceived("three"))
        chosen = await store.select(driving.session, types, 9, list)
        assert [row[0] for row in chosen] == [1, 2, 3], "a question that is still open does not see the third"
        assert error.__traceback__ is not None  # it still has what was open when it was raised

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
        row = Approval(name, driving.session, "t1.c1", "shell", "{}", NOW_MS + 2, 0)
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

    async def test_sessions_with_grants_are_found(self, store: Store) -> None:
        name = '"grants":[1]'
        plain, granting = await drive(store, 1), await drive(store, 2)
        await plain.commit(MessageReceived("x"), row=SessionRow(plain.session, title=name, seq=1))
        assert await store.granting() == []
        grant = GrantRow(f"{granting.session}-g1", "shell", "shell(make)", NOW_MS)
        row = SessionRow(granting.session, title=name, seq=1, grants=(grant,))
        await granting.commit(MessageReceived("x"), row=row)
        assert await store.granting() == [row]
        await granting.commit(MessageReceived("y"))
        assert await store.granting() == []

    # --- lists

    async def test_the_newest_sessions_come_first_and_can_be_chosen_by_status(self, store: Store) -> None:
        statuses: tuple[SessionStatus, ...] = ("done", "open", "done")
        for number, status in enumerate(statuses, 1):
            driving = await drive(store, number)
            row = SessionRow(driving.session, status=status, updated_ms=NOW_MS - number, seq=1)
            await driving.commit(MessageReceived("x"), row=row)
        assert [row.session for row in await store.sessions()] == [an_id(3), an_id(2), an_id(1)]
        assert [row.session for row in await store.sessions(Sought(status="done"))] == [an_id(3), an_id(1)]
        assert [row.session for row in await store.sessions(limit=1)] == [an_id(3)]
        assert [row.session for row in await store.sessions(Sought(before=an_id(3)))] == [an_id(2), an_id(1)]
        assert await store.sessions(Sought(before=an_id(1))) == []
        late = await store.sessions(Sought(since_ms=NOW_MS - 2))
        assert [row.session for row in late] == [an_id(2), an_id(1)]
        assert await store.find("last") == [an_id(3)]

    async def test_sessions_are_found_by_the_folder_in_which_they_work(self, store: Store) -> None:
        for number, folder in enumerate(("/a", "/b", "/a"), 1):
            driving = await drive(store, number)
            row = SessionRow(driving.session, workspace=folder, updated_ms=NOW_MS, seq=1)
            await driving.commit(MessageReceived("x"), row=row)
        found = await store.sessions(Sought(workspace="/a"))
        assert [row.session for row in found] == [an_id(3), an_id(1)]
        assert [row.session for row in await store.sessions(Sought(workspace="/a"), limit=1)] == [an_id(3)]
        assert await store.sessions(Sought(workspace="/")) == []

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
        assert await store.find("last") == [two.session], "a commit without records brings nothing new"
        await one.commit(MessageReceived("now"))
        await two.commit(acknowledged=("c2",))
        assert await store.find("last") == [one.session], "nor is it in the session that began later"
        await two.commit(MessageReceived("then"))
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
            return {row.session for row in await store.sessions(Sought(grep=text))}

        assert await found("OVERFLOW") == {model.session, titled.session}
        assert await found("100%") == {user.session}
        assert await found('"überlauf"') == {user.session}
        assert await found("overflow_") == {model.session}
        assert await found("usage") == set()
        assert await store.sessions(Sought(grep="overflow"), limit=1) != []

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
        await driving.commit(ToolCallFinished("t1.c2", CallResult("ok", "head", blob=lost)), blobs=())
        found = [(damage.kind, damage.seq) for damage in (await store.verify()).damages]
        assert found == [("row", 2), ("blob", 2)]

    async def test_a_commit_that_names_a_missing_blob_is_refused(self, store: Store) -> None:
        driving = await drive(store)
        lost = driving.make(ToolCallFinished("t1.c1", CallResult("ok", "head", blob="f" * 64)))
        await refused(StorageError, store.commit(lost))
        assert await store.read(driving.session) == []

    # --- names that move

    async def test_a_name_moves_to_another_session_in_one_transaction(self, store: Store) -> None:
        one, two = await drive(store, 1, "cli:demo"), await drive(store, 2)
        given = one.make(SessionOpened(one.session, "cli:demo"), SessionRenamed("", two.session), key="")
        taken = two.make(
            SessionOpened(two.session),
            SessionRenamed("cli:demo", one.session),
            key="cli:demo",
            others=(given,),
        )
        await store.commit(taken)
        assert await store.find("cli:demo") == [two.session]
        keys = {row.session: row.key for row in await store.sessions()}
        assert keys == {one.session: "", two.session: "cli:demo"}
        assert await store.verify() == Verified()

    async def test_a_name_does_not_move_if_one_of_the_sessions_was_taken(self, store: Store) -> None:
        one, two = await drive(store, 1, "cli:demo"), await drive(store, 2)
        given = one.make(SessionRenamed("", two.session), key="")
        await store.release(one.lease)
        taken = two.make(SessionRenamed("cli:demo", one.session), key="cli:demo", others=(given,))
        await refused(Fenced, store.commit(taken))
        assert await store.find("cli:demo") == [one.session]
        assert await store.read(two.session) == []

    # --- deleting

    async def test_a_session_does_not_begin_with_a_blob_that_is_gone(self, store: Store) -> None:
        first = new(store, 1, "cli:demo").make(
            ToolCallFinished("t1.c1", CallResult("ok", "head", blob="f" * 64))
        )
        await refused(StorageError, store.begin(first, a_holder("a"), TERM_MS))
        assert await store.sessions() == []
        assert await store.find("cli:demo") == []

    async def test_a_command_whose_attachment_is_gone_is_not_accepted(self, store: Store) -> None:
        driving = await drive(store, 1)
        mark = (await store.news()).mark
        lost = an_entry(driving.session, "c1", attaching("f" * 64))
        await refused(StorageError, store.post(lost, 10))
        await refused(
            StorageError, store.claim(an_id(2), "cli:demo", NOW_MS, an_entry(an_id(2), "c1", lost.body))
        )
        assert list(await store.inbox(driving.session)) == []
        assert await store.find("cli:demo") == []
        assert await store.session(an_id(2)) is None
        assert (await store.news()).mark == mark
        assert (await store.post(an_entry(driving.session, "c1"), 10)).outcome == "accepted"

    async def test_a_deleted_session_is_gone_with_all_that_only_it_had(self, store: Store) -> None:
        driving, other = await drive(store, 1, "cli:demo"), await drive(store, 2)
        own, shared = await store.blobs.put(b"own"), await store.blobs.put(b"shared")
        results = [ToolCallFinished("t1.c1", CallResult("ok", "head", blob=blob)) for blob in (own, shared)]
        await other.commit(results[1])
        await driving.commit(*results, asked(driving))
        await store.post(an_entry(driving.session, "c1"), 10)
        await store.delete(driving.lease)
        assert await store.session(driving.session) is None
        assert await store.read(driving.session) == []
        assert list(await store.inbox(driving.session)) == []
        assert await store.approvals() == []
        assert await store.find("cli:demo") == []
        assert [row.session for row in await store.sessions()] == [other.session]
        await refused(StorageCorrupt, store.blobs.get(own))
        assert await store.blobs.get(shared) == b"shared"
        assert await store.verify() == Verified()
        assert await store.blobs.get(await store.blobs.put(b"own")) == b"own"

    async def test_a_deletion_minds_the_blobs_of_commands_that_wait(self, store: Store) -> None:
        driving, other = await drive(store, 1), await drive(store, 2)
        used, unread = await store.blobs.put(b"used"), await store.blobs.put(b"unread")
        await driving.commit(ToolCallFinished("t1.c1", CallResult("ok", "head", blob=used)))
        await store.post(an_entry(driving.session, "c1", attaching(unread)), 10)
        await store.post(an_entry(other.session, "c2", attaching(used)), 10)
        await store.delete(driving.lease)
        assert await store.blobs.get(used) == b"used"
        await refused(StorageCorrupt, store.blobs.get(unread))

    async def test_only_who_has_the_lease_of_a_session_deletes_it(self, store: Store) -> None:
        driving = await drive(store)
        await driving.commit(MessageReceived("one"))
        await store.release(driving.lease)
        await refused(Fenced, store.delete(driving.lease))
        taken = await store.lease(driving.session, a_holder("b"), TERM_MS)
        await refused(Fenced, store.delete(driving.lease))
        assert texts(await store.read(driving.session)) == ["one"]
        await store.delete(taken)
        await refused(Fenced, store.commit(driving.make(MessageReceived("two"))))

    async def test_a_session_with_a_branch_is_not_deleted(self, store: Store) -> None:
        parent = await drive(store, 1)
        await parent.commit(MessageReceived("one"), MessageReceived("two"))
        child = await branch(parent, 1, 2)
        assert await store.branches(parent.session) == [child.session]
        await refused(Fenced, store.delete(parent.lease))
        await store.delete(child.lease)
        assert await store.branches(parent.session) == []
        await store.delete(parent.lease)
        assert await store.sessions() == []

    async def test_what_comes_after_a_deletion_is_news(self, store: Store) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        await one.commit(MessageReceived("one"))
        await two.commit(*(MessageReceived(f"{number}") for number in range(9)))
        for number in range(3):
            await store.post(an_entry(two.session, f"c{number}"), 10)
        mark = (await store.news()).mark
        await store.delete(two.lease)
        await one.commit(MessageReceived("two"))
        await store.post(an_entry(one.session, "c1"), 10)
        news = await store.news(mark)
        assert (news.written, news.asked) == ((one.session,), (one.session,))

    async def test_which_blobs_a_session_refers_to_is_kept_with_its_records(self, store: Store) -> None:
        driving, other = await drive(store, 1), await drive(store, 2)
        one, two = await store.blobs.put(b"one"), await store.blobs.put(b"two")
        results = [ToolCallFinished("t1.c1", CallResult("ok", "head", blob=blob)) for blob in (one, two)]
        await driving.commit(*results, results[0])
        await driving.commit(results[1], blobs=())
        await other.commit(results[0])
        assert await store.verify() == Verified()
        await driving.commit(MessageReceived("none"), blobs=(await store.blobs.put(b"three"),))
        await other.commit(results[1], blobs=())
        damages = [(each.kind, each.session, each.seq) for each in (await store.verify()).damages]
        assert damages == [("row", driving.session, 0), ("row", other.session, 2)]
