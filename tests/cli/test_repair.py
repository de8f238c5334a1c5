"""`holdfast fsck --repair FILE`: what can be read of a damaged home goes on in a new one."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from holdfast.storage.home import BLOBS, DATABASE
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
