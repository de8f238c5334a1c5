"""Going on from a snapshot: it saves reading, is never believed without proof, and can always be done without."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.errors import StorageCorrupt
from holdfast.protocol import events as e
from holdfast.protocol.codec import StoredRecord
from holdfast.protocol.commands import Send, owner
from holdfast.protocol.ports import Store
from holdfast.protocol.rows import Verified
from holdfast.runtime import snapshot
from holdfast.runtime.fold import Fold, state_of
from holdfast.storage.fsck import verify_home
from holdfast.storage.home import DATABASE
from holdfast.storage.seals import sealed
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scenarios import Played, Scenario, World, controller_of, play, settings_of
from tests.scenarios.scenes import call, calls, tools_of, words
from tests.scenarios.stage import Stage, sqlite_of

T = TypeVar("T")
TURNS = 20
LINES = [*(calls(call("look", name=f"thing {turn} " + "x" * 80)) for turn in range(TURNS)), words("Done.")]


class Reading(FaultyStore):
    """A store that notes when a whole journal is read."""

    is_read_whole = False

    async def read(self, session: str, after_seq: int = 0, upto_seq: int | None = None) -> list[StoredRecord]:
        self.is_read_whole = True
        return await super().read(session, after_seq, upto_seq)


async def opened(store: Store, session: str) -> tuple[Fold, bool]:
    """The fold, and whether it was read from its beginning."""
    reading = Reading(store)
    fold = Fold(session)
    await fold.open(reading)
    return fold, reading.is_read_whole


@pytest.fixture
def long(durable: Stage) -> Callable[[Callable[[SqliteStore, Played], Awaitable[T]]], T]:
    """Do something with a long session that has ended, in its home."""

    def run(then: Callable[[SqliteStore, Played], Awaitable[T]]) -> T:
        async def main(clock: JumpingClock, store: Store, workspace: Path) -> T:
            played = await play(Scenario("long", LINES, tools_of), clock, store, workspace)
            return await then(sqlite_of(store), played)

        return durable.run(main)

    return run


Long = Callable[[Callable[[SqliteStore, Played], Awaitable[None]]], None]


def edit(store: SqliteStore, statement: str, *values: object) -> None:
    """Change the database behind the store's back."""
    database = sqlite3.connect(store.path.parent / DATABASE, isolation_level=None)
    assert database.execute(statement, values).rowcount == 1
    database.close()


def put(store: SqliteStore, body: bytes) -> None:
    """Put this in place of the only snapshot, as the store would."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as database:
        ((session, seq),) = database.execute(
            "SELECT id, s.seq FROM snapshots AS s JOIN sessions ON number = s.session"
        )
        database.execute("UPDATE snapshots SET body = ?", (sealed(body, "snapshot", session, seq),))


def flip(store: SqliteStore, record: e.Record) -> None:
    """Change one letter of a record's words."""
    edit(
        store,
        "UPDATE records SET body = CAST(replace(body, 'thing', 'think') AS BLOB) WHERE seq = ?",
        record.seq,
    )


@pytest.mark.requirement("L2-05", "H1")
def test_what_follows_the_last_snapshot_is_all_that_is_read(long: Long) -> None:
    async def look(store: SqliteStore, played: Played) -> None:
        fold, is_read_whole = await opened(store, played.session)
        assert not is_read_whole
        assert fold.state == played.state
        starts = [r for r in played.records if isinstance(r.event, e.ModelCallStarted)]
        works = [r.seq for r in starts if r.event == replace(r.event, purpose="work")]
        found = await store.recover(played.session)
        assert found.records[0].seq == works[-2] + 1, "the last of 21 calls left none, the one before did"

    long(look)


def test_a_damaged_snapshot_costs_time_and_nothing_else(long: Long) -> None:
    async def look(store: SqliteStore, played: Played) -> None:
        found = await store.recover(played.session)
        edit(store, "UPDATE snapshots SET body = CAST(substr(body, 1, length(body) - 1) || x'7f' AS BLOB)")
        assert (found.after_seq > 0, (await store.recover(played.session)).after_seq) == (True, 0)
        fold, _ = await opened(store, played.session)
        assert fold.state == played.state

    long(look)


@pytest.mark.parametrize(
    "damage", ["seq = seq + 1", "seq = seq - 1", "seq = -1", "seq = 9999", "body = x''", "body = x'0102'"]
)
def test_a_snapshot_that_stands_elsewhere_than_it_says_is_not_used(long: Long, damage: str) -> None:
    async def look(store: SqliteStore, played: Played) -> None:
        edit(store, f"UPDATE snapshots SET {damage}")
        fold, is_read_whole = await opened(store, played.session)
        assert is_read_whole or (await store.recover(played.session)).after_seq == 0
        assert fold.state == played.state
        assert await state_of(store, played.session) == played.state

    long(look)


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("seq", [3, 300])
def test_a_row_that_ends_elsewhere_than_its_journal_is_told_and_not_tried_for_ever(
    durable: Stage, seq: int
) -> None:
    async def main(clock: JumpingClock, store: Store, workspace: Path) -> None:
        scenario = Scenario("short", LINES[-3:], tools_of)
        played = await play(scenario, clock, store, workspace)
        edit(sqlite_of(store), "UPDATE sessions SET seq = ?", seq)
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            await controller.submit(
                played.session, owner("tester"), Send("more", settings_of(scenario, workspace))
            )
            with pytest.raises(StorageCorrupt) as told:
                await controller.drive(played.session)
        assert "fsck" in told.value.hint

    durable.run(main)


def test_a_snapshot_of_other_code_is_not_used(long: Long, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(store: SqliteStore, played: Played) -> None:
        monkeypatch.setattr(snapshot, "_folded_by", lambda: b"another version")
        fold, is_read_whole = await opened(store, played.session)
        assert is_read_whole
        assert fold.state == played.state

    long(look)


@pytest.mark.requirement("L7")
def test_changed_words_before_a_snapshot_are_told_and_never_sent(long: Long) -> None:
    async def look(store: SqliteStore, played: Played) -> None:
        said = next(r for r in played.records if isinstance(r.event, e.ToolCallFinished))
        flip(store, said)
        with pytest.raises(StorageCorrupt, match=f"record {said.seq} "):
            await opened(store, played.session)

    long(look)


@pytest.mark.requirement("L7")
def test_a_changed_intent_before_a_snapshot_is_told(long: Long) -> None:
    async def look(store: SqliteStore, played: Played) -> None:
        starts = [r for r in played.records if isinstance(r.event, e.ModelCallStarted)]
        edit(store, "DELETE FROM records WHERE seq = ?", starts[3].seq)
        with pytest.raises(StorageCorrupt, match=f"record {starts[3].seq} "):
            await opened(store, played.session)

    long(look)


def changed_request(**fields: object) -> Callable[[bytes], bytes]:
    """Change fields of the request in the body of an intent."""

    def change(body: bytes) -> bytes:
        intent = msgspec.json.decode(body)
        return msgspec.json.encode(intent | {"request": intent["request"] | fields})

    return change


WRONG: dict[str, tuple[type[e.Event], str, Callable[[bytes], bytes]]] = {
    "erased": (e.ToolCallFinished, "body = ?", lambda _: b""),
    "not JSON": (e.ToolCallFinished, "body = ?", lambda _: b"{"),
    "not text": (e.ToolCallFinished, "body = ?", lambda _: b'"\xff"'),
    "another shape": (e.ToolCallFinished, "body = ?", lambda _: b"{}"),
    "of a newer version": (e.ToolCallFinished, "v = 99 + length(?)", lambda _: b""),
    "of no version": (e.ToolCallFinished, "v = 0 * length(?)", lambda _: b""),
    "of no known type": (e.ToolCallFinished, "type = CAST(? AS TEXT)", lambda _: b"Nope"),
    "of a type that is not text": (e.ToolCallFinished, "type = CAST(? AS TEXT)", lambda _: b"\xff"),
    "an intent that was erased": (e.ModelCallStarted, "body = ?", lambda _: b""),
    "fragments that there are not": (e.ModelCallStarted, "body = ?", changed_request(rest=[[900, 901]])),
    "another tail": (e.ModelCallStarted, "body = ?", changed_request(tail="}")),
    "a base that was never stored": (e.ModelCallStarted, "body = ?", changed_request(base="0" * 64)),
    "a base that no file can have": (e.ModelCallStarted, "body = ?", changed_request(base="\0")),
}


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("wrong", WRONG)
def test_whatever_is_wrong_before_a_snapshot_a_complete_read_tells_it(long: Long, wrong: str) -> None:
    kind, column, change = WRONG[wrong]

    async def look(store: SqliteStore, played: Played) -> None:
        upto_seq = (await store.recover(played.session)).after_seq
        record = [r for r in played.records if type(r.event) is kind and r.seq <= upto_seq][-1]
        (stored,) = await store.read(played.session, record.seq - 1, record.seq)
        edit(store, f"UPDATE records SET {column} WHERE seq = ?", change(stored.body), record.seq)
        with pytest.raises(StorageCorrupt):
            await opened(store, played.session)

    long(look)


@pytest.mark.requirement("L7")
def test_damage_that_no_request_quotes_does_not_keep_a_session_from_going_on(long: Long) -> None:
    async def look(store: SqliteStore, played: Played) -> None:
        answer = next(r for r in played.records if isinstance(r.event, e.Responded))
        flip(store, answer)
        fold, _ = await opened(store, played.session)
        assert fold.state == played.state
        assert [(damage.kind, damage.seq) for damage in (await store.verify()).damages] == [
            ("changed", answer.seq)
        ]

    long(look)


@pytest.mark.requirement("L7")
def test_fsck_tells_a_snapshot_that_is_not_what_the_journal_comes_to(long: Long) -> None:
    async def look(store: SqliteStore, played: Played) -> None:
        home = store.path.parent
        assert verify_home(home, snapshot.is_sound) == Verified()
        found = await store.recover(played.session)
        kept = snapshot.unpacked(found, played.session)
        assert kept is not None
        richer = replace(kept, state=replace(kept.state, title="Another title"))
        for body in (richer, replace(kept, link=bytes(32))):
            put(store, snapshot.packed(body))
            (damage,) = verify_home(home, snapshot.is_sound).damages
            assert (damage.kind, damage.session, damage.seq) == ("row", played.session, found.after_seq)
        put(store, b"of another version")
        assert verify_home(home, snapshot.is_sound) == Verified(), "void, and no damage"
        edit(store, "UPDATE snapshots SET body = CAST(body || x'00' AS BLOB)")
        (damage,) = verify_home(home, snapshot.is_sound).damages
        assert "its snapshot is not what was written" in damage.message

    long(look)
