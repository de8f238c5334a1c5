"""`holdfast fsck --repair FILE`: what can be read of a damaged home goes on in a new one."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from holdfast.protocol.codec import encode_json
from holdfast.protocol.commands import Command, Send, owner
from holdfast.protocol.rows import InboxEntry
from holdfast.storage.home import BLOBS, DATABASE
from holdfast.storage.sqlite import SqliteStore
from tests.cli.conftest import Filled, Holdfast


def damage(home: Filled, seq: int) -> None:
    """Change a record of the finished session."""
    with sqlite3.connect(home.folder / DATABASE) as connection:
        connection.execute("UPDATE records SET body = x'7b7d' WHERE session = 1 AND seq = ?", (seq,))
    connection.close()


@pytest.fixture
def again(home: Filled, tmp_path: Path) -> Path:
    """A home for what was saved, with the blobs of the damaged one."""
    again = tmp_path / "again"
    again.mkdir()
    shutil.copytree(home.folder / BLOBS, again / BLOBS)
    return again


@pytest.mark.requirement("L7")
def test_what_is_readable_is_saved_and_what_is_lost_is_told(
    holdfast: Holdfast, home: Filled, tmp_path: Path, again: Path
) -> None:
    damage(home, 9)
    before = (home.folder / DATABASE).read_bytes()
    file = tmp_path / "saved.db"
    answer = holdfast("fsck", "--repair", str(file), "--json", "--home", str(home.folder))
    assert (answer.code, [one["kind"] for one in answer.rows[0]["damage"]]) == (1, ["changed"])
    last = len(home.book.events)
    assert answer.rows[0]["repaired"] == {
        "file": str(file),
        "sessions": 2,
        "records": last - 1 + len(holdfast_events(holdfast, home.folder, home.waiting)),
        "lost": [{"session": home.finished, "first_seq": 9, "last_seq": 9}],
        "notes": [],
    }
    assert (home.folder / DATABASE).read_bytes() == before
    shutil.move(file, again / DATABASE)
    checked = holdfast("fsck", "--json", "--home", str(again))
    assert (checked.code, checked.rows[0]["damage"], checked.rows[0]["erased"]) == (0, [], [])
    assert checked.rows[0]["lost"] == answer.rows[0]["repaired"]["lost"]
    assert len(holdfast_events(holdfast, again, home.finished)) == last
    assert holdfast("show", home.finished, "--home", str(again)).code == 0
    assert [row["id"] for row in holdfast("approvals", "--json", "--home", str(again)).rows] == [
        f"{home.waiting}-1"
    ]
    stopped = holdfast("resume", home.finished, "--json", "--home", str(again))
    assert (stopped.code, stopped.rows[0]["error"]["code"]) == (2, "erased")
    assert holdfast("fork", home.finished, "--at", "9", "--home", str(again)).code == 2
    assert holdfast("fork", home.finished, "--at", "8", "--home", str(again)).code == 0


def holdfast_events(holdfast: Holdfast, folder: Path, session: str) -> list[object]:
    """The records of a session, as they are shown."""
    return list(holdfast("show", session, "--events", "--json", "--home", str(folder)).rows)


def test_people_are_told_what_was_saved_and_what_to_do_with_it(
    holdfast: Holdfast, home: Filled, tmp_path: Path
) -> None:
    damage(home, 9)
    answer = holdfast("fsck", "--repair", str(tmp_path / "saved.db"), "--home", str(home.folder))
    assert answer.code == 1
    assert f"lost       {home.finished} record 9" in answer.out
    assert f"of 2 sessions in {tmp_path / 'saved.db'}" in answer.out
    again = holdfast("fsck", "--repair", str(tmp_path / "saved.db"), "--home", str(home.folder))
    assert (again.code, "is there already" in again.err) == (2, True)


def test_the_repair_of_a_sound_home_is_no_bad_news_and_loses_nothing(
    holdfast: Holdfast, home: Filled, tmp_path: Path
) -> None:
    answer = holdfast("fsck", "--repair", str(tmp_path / "s.db"), "--json", "--home", str(home.folder))
    repaired = answer.rows[0]["repaired"]
    assert (answer.code, answer.rows[0]["ok"], repaired["lost"], repaired["notes"]) == (0, True, [], [])


def test_a_repair_begins_where_a_check_cannot(holdfast: Holdfast, home: Filled, tmp_path: Path) -> None:
    with sqlite3.connect(home.folder / DATABASE) as connection:
        connection.execute("PRAGMA user_version = 0")
    connection.close()
    assert holdfast("fsck", "--home", str(home.folder)).code == 9
    answer = holdfast("fsck", "--repair", str(tmp_path / "s.db"), "--json", "--home", str(home.folder))
    assert (answer.code, answer.rows[0]["repaired"]["lost"]) == (1, [])


def test_nothing_is_made_of_what_is_no_database(holdfast: Holdfast, home: Filled, tmp_path: Path) -> None:
    (home.folder / DATABASE).write_bytes(b"milk, bread, butter\n" * 300)
    answer = holdfast("fsck", "--repair", str(tmp_path / "s.db"), "--json", "--home", str(home.folder))
    assert (answer.code, answer.rows[0]["error"]["code"]) == (9, "storage_corrupt")
    assert not (tmp_path / "s.db").exists()


def beside(home: Filled, sql: str) -> None:
    """Change a row that lies beside the records."""
    with sqlite3.connect(home.folder / DATABASE) as connection:
        assert connection.execute(sql).rowcount == 1
    connection.close()


async def post(home: Filled, text: str, old: bytes = b"", new: bytes = b"") -> None:
    """Leave a message for the finished session that nobody has read."""
    store = SqliteStore.open(home.folder)
    command = encode_json(Command("c1", home.finished, owner("ann", "cli"), Send(text)))
    await store.post(InboxEntry("c1", home.finished, 1, command.replace(old, new)), 9)
    await store.aclose()


def test_a_command_of_a_newer_version_is_no_bug_and_no_damage(holdfast: Holdfast, home: Filled) -> None:
    asyncio.run(post(home, "test the disk", b'"type":"send"', b'"type":"sing"'))
    for words in (["resume", home.finished], ["stop", home.finished]):
        answer = holdfast(*words, "--home", str(home.folder))
        assert (answer.code, "newer version" in answer.err) == (9, True), answer
    for words in (["fsck"], ["show", home.finished], ["approvals"]):
        assert holdfast(*words, "--home", str(home.folder)).code == 0, words


@pytest.mark.requirement("L7")
@pytest.mark.parametrize(
    "value", ["replace(CAST(body AS TEXT), 'test', 'rest')", "body || x'00'", "substr(body, 40)"]
)
def test_a_changed_command_is_told_never_followed_and_left_out_of_a_repair(
    holdfast: Holdfast, home: Filled, tmp_path: Path, again: Path, value: str
) -> None:
    asyncio.run(post(home, "test the disk"))
    assert holdfast("fsck", "--home", str(home.folder)).code == 0
    beside(home, f"UPDATE inbox SET body = CAST({value} AS BLOB) WHERE body IS NOT NULL")
    checked = holdfast("fsck", "--json", "--home", str(home.folder))
    assert (checked.code, [(row["kind"], row["session"]) for row in checked.rows[0]["damage"]]) == (
        1,
        [("row", home.finished)],
    )
    for words in (["resume", home.finished], ["stop", home.finished], ["resume", home.finished, "more"]):
        answer = holdfast(*words, "--home", str(home.folder))
        assert (answer.code, "holdfast fsck" in answer.err) == (9, True), (words, answer)
    for words in (["sessions"], ["show", home.finished], ["show", home.waiting], ["approvals"]):
        assert holdfast(*words, "--home", str(home.folder)).code == 0, words
    file = tmp_path / "saved.db"
    answer = holdfast("fsck", "--repair", str(file), "--home", str(home.folder))
    assert (answer.code, "intact" in answer.out) == (1, False)
    assert "the command 'c1': it is not what was accepted, and was left out" in answer.out
    shutil.move(file, again / DATABASE)
    assert holdfast("fsck", "--home", str(again)).code == 0
    assert holdfast("stop", home.finished, "--home", str(again)).code == 0
    assert holdfast("show", home.finished, "--home", str(again)).code == 0


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("change", ["holder = x'7b7d'", "epoch = epoch - 1", "epoch = 9223372036854775807"])
def test_a_damaged_lease_is_told_and_mended_by_a_repair(
    holdfast: Holdfast, home: Filled, tmp_path: Path, again: Path, change: str
) -> None:
    beside(home, f"UPDATE leases SET {change} WHERE session = 2")
    checked = holdfast("fsck", "--json", "--home", str(home.folder))
    assert (checked.code, [row["session"] for row in checked.rows[0]["damage"]]) == (1, [home.waiting])
    for words in (["sessions"], ["show", home.finished], ["show", home.waiting], ["approvals"]):
        assert holdfast(*words, "--home", str(home.folder)).code == 0, words
    file = tmp_path / "saved.db"
    assert holdfast("fsck", "--repair", str(file), "--home", str(home.folder)).code == 1
    shutil.move(file, again / DATABASE)
    assert holdfast("fsck", "--home", str(again)).code == 0
    assert holdfast("stop", home.waiting, "--home", str(again)).code == 0
