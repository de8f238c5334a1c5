"""A failing k-th disk call, for every k, in every stage of a short run, in every way.

The same from the command line, with a table at the end: `python -m tests.torture.disk`. A round is played again with
the command that its fault names.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.torture.disk import RESUME, STAGES, WAYS, Bench, bench, table, told
from tests.torture.disk_judge import DONE, Ran, Room, judge

PARTS = 6
"""The parts into which the rounds of a stage and a way are split: a part takes less than ten minutes, even on a busy
machine."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler for the shim"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench(tmp_path_factory.mktemp("disk")) as made:
        yield made


@pytest.mark.requirement("L7", "H1", "H3")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stage", STAGES)
def test_nothing_is_lost_doubled_or_unreported_when_a_disk_call_fails(
    made: Bench, stage: str, way: str, part: int
) -> None:
    count = made.count(stage, way)
    assert count > PARTS, "the shim sees the calls"
    played = [made.play(stage, way, k) for k in range(1 + part, count + 1, PARTS)]
    assert any(result.met and result.code == 9 for result in played), "the faults are felt"
    bad = [result for result in played if result.faults]
    assert not bad, "\n".join([table(played), *map(told, bad)])


TAMPERED: dict[str, Callable[[Room], object]] = {
    "doubled: the command ran 2 times": lambda room: (room.workspace / "effects.log").write_text(
        "once\nonce\n"
    ),
    "lost: the command never ran": lambda room: (room.workspace / "effects.log").unlink(),
    "lost: the file is not": lambda room: (room.workspace / "part.txt").write_text("a part\n"),
    "lost: the blob": lambda room: shutil.rmtree(room.home / "blobs"),
    "damaged: record 9": lambda room: change(room, "UPDATE records SET body = x'7b7d' WHERE seq = 9"),
    "lost: there are 0 records RunStopped": lambda room: change(
        room, "DELETE FROM records WHERE seq = (SELECT max(seq) FROM records)"
    ),
    "a lease is still held": lambda room: change(room, "UPDATE leases SET holder = x'00'"),
    "doubled: there is more than one session": lambda room: change(
        room,
        "INSERT INTO sessions SELECT 2, 'x', '', status, title, 0, 0, seq, 0, NULL, 0, row FROM sessions",
    ),
}


def change(room: Room, sql: str) -> None:
    with closing(sqlite3.connect(room.home / "holdfast.db", isolation_level=None)) as connection:
        connection.execute(sql)


@pytest.mark.parametrize("fault", TAMPERED)
def test_the_judge_notices_what_must_not_be(made: Bench, fault: str) -> None:
    room = Room(made.play("resume", "eio", 1_000_000, keeps=True).folder)
    ran = [Ran(RESUME, DONE, "", "", 0.0)]
    assert list(judge(room, ran, [])) == []
    TAMPERED[fault](room)
    assert any(each.startswith(fault) for each in judge(room, ran, []))


def test_the_judge_notices_requests_and_records_that_are_nowhere(made: Bench) -> None:
    room = Room(made.play("resume", "eio", 1_000_000, keeps=True).folder)
    told = '{"seq": 99, "type": "Responded"}'
    assert list(judge(room, [Ran(RESUME, DONE, told, "", 0.0)], [b"a request"])) == [
        "lost: resume told record 99 (Responded), which is not there",
        "unreported: a request was sent 1 times",
    ]
