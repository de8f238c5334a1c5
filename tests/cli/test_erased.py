"""Erased records: the rest of their session is shown, nothing can continue it, and it does not count as damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import pytest

from holdfast.protocol.codec import digest_of
from holdfast.protocol.settings import ref_of
from holdfast.storage.home import DATABASE
from tests.cli.conftest import Filled, Holdfast
from tests.views.journals import SETTINGS

VIEWS = [(), ("--events",), ("--requests",), ("--tools",), ("--timeline",), ("--cost",)]


def erase(home: Filled, seqs: Iterable[int]) -> None:
    """Take away the bodies of records of the finished session, and keep their digests."""
    with sqlite3.connect(home.folder / DATABASE) as connection:
        for seq in seqs:
            where = "WHERE session = 1 AND seq = ?"
            (body,) = connection.execute(f"SELECT body FROM records {where}", (seq,)).fetchone()
            connection.execute(f"UPDATE records SET body = x'', digest = ? {where}", (digest_of(body), seq))
    connection.close()


@pytest.mark.requirement("L8")
@pytest.mark.parametrize(
    "seqs",
    [
        *(pytest.param((seq,), marks=[] if seq % 3 == 1 else pytest.mark.long) for seq in range(1, 19)),
        range(1, 19),
    ],
    ids=str,
)
def test_what_is_left_is_shown_in_every_view(holdfast: Holdfast, home: Filled, seqs: Iterable[int]) -> None:
    erase(home, seqs)
    for view in VIEWS:
        for flags in (view, (*view, "--json")):
            answer = holdfast("show", home.finished, *flags, "--home", str(home.folder))
            assert answer.code == 0, (flags, answer.err)
            assert "was erased" in answer.err
    rows = holdfast("show", home.finished, "--events", "--json", "--home", str(home.folder)).rows
    assert [row["seq"] for row in rows if row["body"] is None] == list(seqs)
    assert [row["type"] for row in rows] == [type(event).__name__ for event in home.book.events]
    assert holdfast("sessions", "--grep", "mend", "--home", str(home.folder)).code == 0


def test_a_request_is_shown_where_nothing_of_it_was_erased_and_else_refused(
    holdfast: Holdfast, home: Filled
) -> None:
    erase(home, [11])  # an output that the second turn's request carries
    flags = ("--home", str(home.folder), "--json")
    refused = holdfast("show", home.finished, "--request", "4", *flags)
    assert (refused.code, refused.rows[0]["error"]["code"]) == (2, "erased")


def test_settings_whose_record_was_erased_are_still_named(holdfast: Holdfast, home: Filled) -> None:
    erase(home, [4])
    flags = ("--home", str(home.folder))
    started = holdfast("show", home.finished, "--events", "--json", *flags).rows[4]["body"]
    assert started["settings"]["limits"] == ref_of(SETTINGS).limits
    assert "?:?" in holdfast("show", home.finished, *flags).out


@pytest.mark.requirement("L7")
def test_fsck_tells_an_erased_record_from_a_damaged_one(holdfast: Holdfast, home: Filled) -> None:
    erase(home, [3, 4, 12])
    flags = ("--home", str(home.folder))
    answer = holdfast("fsck", "--json", *flags)
    told = [(one["session"], one["first_seq"], one["last_seq"]) for one in answer.rows[0]["erased"]]
    assert (answer.code, answer.rows[0]["ok"], answer.rows[0]["damage"]) == (0, True, [])
    assert told == [(home.finished, 3, 4), (home.finished, 12, 12)]
    plain = holdfast("fsck", *flags)
    assert "records 3 to 4" in plain.out
    assert "every record, row and blob is intact" in plain.out


@pytest.mark.parametrize("command", ["replay", "resume"])
def test_nobody_goes_on_from_an_erased_record(holdfast: Holdfast, home: Filled, command: str) -> None:
    erase(home, [2])
    answer = holdfast(command, home.finished, "--home", str(home.folder), "--json")
    assert (answer.code, answer.rows[0]["error"]["code"]) == (2, "erased")
    branch = holdfast("fork", home.finished, "--at", "9", "--home", str(home.folder))
    assert (branch.code, "was erased" in branch.err) == (2, True)
    shown = branch.err.partition("`")[2].partition("`")[0]
    arguments = shown.split()[-4:]
    assert arguments == ["show", home.finished, "--home", str(home.folder)]
    assert holdfast(*arguments).code == 0
