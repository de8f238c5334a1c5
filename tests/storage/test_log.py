"""A flipped bit in the log beside a database takes nothing away without a word."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from holdfast.errors import StorageCorrupt
from holdfast.protocol.events import MessageReceived
from holdfast.protocol.rows import Verified
from holdfast.storage.fsck import verify_home
from holdfast.storage.home import DATABASE, MARKER
from holdfast.storage.log import mended, read_log
from holdfast.storage.salvage import salvage
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.conformance_store import drive

LOG = f"{DATABASE}-wal"
TURNS = 12


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """What a process leaves that was killed: nothing of its log is folded into its database."""
    store = SqliteStore.open(tmp_path / "living")
    driving = await drive(store)
    for turn in range(TURNS):
        await driving.commit(MessageReceived(f"turn {turn} " + "~" * 1500))
    home = tmp_path / "home"
    home.mkdir()
    for name in (DATABASE, LOG, MARKER):
        shutil.copyfile(tmp_path / "living" / name, home / name)
    await store.aclose()
    return home


async def seqs(home: Path) -> int:
    store = SqliteStore.open_to_read(home)
    [row] = await store.sessions()
    await store.aclose()
    return row.seq


def test_of_a_sound_log_all_is_read(home: Path) -> None:
    log = read_log(home / DATABASE)
    assert log is not None
    assert (log.sound, log.lost_commits) == (len(log.frames), 0)
    assert mended(log)[32:] == (home / LOG).read_bytes()[32 : len(mended(log))]
    assert verify_home(home) == Verified()


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 9))])
async def test_wherever_a_bit_of_a_log_is_flipped_it_is_told_and_what_is_sound_is_saved(
    home: Path, tmp_path: Path, seed: int
) -> None:
    sound, draw = (home / LOG).read_bytes(), random.Random(seed)
    frame = 24 + 4096
    # Of the last commit nobody can tell whether it was ever on the disk.
    end = len(sound) - 8 * frame
    places = [
        draw.randrange(32),
        32 + frame + draw.randrange(24),
        *(draw.randrange(32, end) for _ in range(10)),
    ]
    for place in places:
        content = bytearray(sound)
        content[place] ^= 1 << draw.randrange(8)
        (home / LOG).write_bytes(content)
        file = tmp_path / "saved.db"
        [damage, *_] = verify_home(home).damages
        assert "the log beside it is damaged" in damage.message, place
        saved = salvage(home, file)
        assert (home / LOG).read_bytes() == content
        assert any("the log beside it was damaged" in note for note in saved.notes)
        lost = sum(stretch.last_seq - stretch.first_seq + 1 for stretch in saved.lost)
        assert saved.records + lost == TURNS
        assert lost <= 3, "no more than what a page held"
        file.unlink()


async def test_a_write_that_was_broken_off_is_no_damage(home: Path) -> None:
    content = (home / LOG).read_bytes()
    for size in (len(content) - 1, len(content) - 3000, len(content) - 5000):
        (home / LOG).write_bytes(content[:size])
        assert verify_home(home) == Verified()
    assert await seqs(home) >= TURNS - 1


async def test_what_lies_behind_a_log_that_began_anew_is_no_damage(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    driving = await drive(store)
    for turn in range(TURNS):
        await driving.commit(MessageReceived(f"turn {turn} " + "~" * 1500))
    await store._writer.do(lambda connection: None)
    other = SqliteStore.open(tmp_path)
    await other._writer.do(lambda connection: None)
    assert verify_home(tmp_path) == Verified()
    await other.aclose()
    await driving.commit(MessageReceived("one more"))
    log = read_log(store.path)
    assert log is not None
    assert log.lost_commits == 0
    await store.aclose()


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("index", [True, False])
async def test_a_log_that_is_lost_is_told(home: Path, tmp_path: Path, index: bool) -> None:
    """With it all of a young home is lost: that is not taken for a new one."""
    (home / LOG).unlink()
    if index:
        (home / f"{DATABASE}-shm").write_bytes(bytes(32 << 10))
    before = (home / DATABASE).read_bytes()
    if index:
        assert "the log beside it is missing" in verify_home(home).damages[0].message
    else:
        with pytest.raises(StorageCorrupt, match="lost all its content"):
            verify_home(home)
    for looking in (SqliteStore.open, SqliteStore.open_to_read):
        with pytest.raises(StorageCorrupt, match="lost all its content, and this home had sessions"):
            looking(home)
    with pytest.raises(StorageCorrupt, match="can be read"):
        salvage(home, tmp_path / "saved.db")
    assert (home / DATABASE).read_bytes() == before


@pytest.mark.requirement("L7")
async def test_a_log_that_is_lost_later_is_told_where_its_index_is_left(home: Path) -> None:
    await SqliteStore.open(home).aclose()
    assert verify_home(home) == Verified()
    store = SqliteStore.open(home)
    await store.sessions()
    (home / LOG).rename(home / "elsewhere")
    [damage] = verify_home(home).damages
    assert "the log beside it is missing" in damage.message
    await store.aclose()
