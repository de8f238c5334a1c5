"""A home that cannot be written: it can be looked at, and what would write says so before it does anything."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.storage.home import DATABASE
from holdfast.testing.driving import an_id
from tests.cli.conftest import Filled, Holdfast

STORAGE = 9


@pytest.fixture
def lock_up(home: Filled) -> Iterator[Callable[[], None]]:
    """Makes the home read-only, from then on and for everybody."""
    folder = str(home.folder)
    mounting = subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False)
    if mounting.returncode:
        pytest.skip("needs the right to mount a folder read-only")

    def lock() -> None:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)

    yield lock
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.requirement("L7", "C15")
@pytest.mark.parametrize(
    "arguments",
    [
        ("sessions", "--json"),
        ("sessions", "--grep", "mend"),
        ("approvals",),
        ("show", "cli:demo"),
        ("show", "cli:demo", "--request", "3"),
        ("show", "cli:demo", "--events", "--json"),
        ("replay", "cli:demo", "--json"),
        ("fsck", "--json"),
    ],
    ids=" ".join,
)
def test_looking_answers_the_same_where_nothing_can_be_written(
    holdfast: Holdfast, home: Filled, lock_up: Callable[[], None], arguments: tuple[str, ...]
) -> None:
    command = (*arguments, "--home", str(home.folder))
    before = holdfast(*command)
    assert before.out
    files = set(home.folder.iterdir())
    lock_up()
    assert holdfast(*command) == before
    assert set(home.folder.iterdir()) == files


@pytest.mark.requirement("L7", "C15")
@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "go", "-m", "openai:gpt-5.5"),
        ("run", "go", "-s", "cli:demo", "-m", "openai:gpt-5.5"),
        ("resume", "cli:demo", "more"),
        ("resume", "cli:demo"),
        ("fork", "cli:demo", "--at", "4"),
        ("approve", f"{an_id(2)}-1"),
        ("deny", f"{an_id(2)}-1"),
        ("pause", an_id(2)),
        ("stop", an_id(2)),
    ],
    ids=" ".join,
)
def test_writing_to_a_read_only_home_is_refused_with_what_to_do(
    holdfast: Holdfast, home: Filled, lock_up: Callable[[], None], arguments: tuple[str, ...]
) -> None:
    lock_up()
    answer = holdfast(*arguments, "--home", str(home.folder))
    assert (answer.code, answer.out) == (STORAGE, "")
    told, hint = answer.err.splitlines()
    assert told.startswith(f"holdfast: {home.folder / DATABASE} cannot be written: its disk is read-only")
    assert "owner and permissions" in hint
    assert "--home" in hint


def change(folder: Path, sql: str) -> None:
    """Do to the database what no command would."""
    connection = sqlite3.connect(folder / DATABASE, isolation_level=None)
    connection.execute(sql)
    connection.close()


@pytest.mark.requirement("L7", "C15")
def test_a_home_that_lost_a_table_says_which_and_what_to_do(holdfast: Holdfast, home: Filled) -> None:
    flags = ("--home", str(home.folder))
    change(home.folder, "DROP TABLE records")
    answer = holdfast("show", "cli:demo", *flags)
    assert answer.code == STORAGE
    assert "is damaged: no such table: records" in answer.err
    assert "holdfast fsck" in answer.err
    fsck = holdfast("fsck", "--json", *flags)
    assert fsck.code == 1
    assert [damage["message"] for damage in fsck.rows[0]["damage"]] == [
        "the table records is missing, with all that was in it"
    ]


@pytest.mark.requirement("L7")
def test_a_home_that_lost_its_snapshots_goes_on(holdfast: Holdfast, home: Filled) -> None:
    flags = ("--home", str(home.folder))
    change(home.folder, "DROP TABLE snapshots")
    assert holdfast("fsck", *flags).code == 1
    assert holdfast("pause", an_id(2), *flags).code == 0
    assert holdfast("fsck", *flags).code == 0


@pytest.mark.requirement("L7")
def test_a_read_only_home_without_snapshots_can_be_looked_at(
    holdfast: Holdfast, home: Filled, lock_up: Callable[[], None]
) -> None:
    flags = ("--home", str(home.folder))
    change(home.folder, "DROP TABLE snapshots")
    lock_up()
    for command in (("sessions",), ("show", "cli:demo"), ("approvals",), ("replay", "cli:demo")):
        assert holdfast(*command, *flags).code in (0, 1), command
    assert "snapshots is missing" in holdfast("fsck", *flags).out
