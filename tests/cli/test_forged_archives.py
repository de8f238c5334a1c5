"""`holdfast import` of files whose chain and last line are right, and whose records no driver wrote."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.protocol import archive as a
from holdfast.protocol.events import (
    ApprovalRequested,
    ApprovalResolved,
    Attached,
    Event,
    RunStarted,
    SettingsStored,
)
from holdfast.protocol.ids import approval_id
from holdfast.protocol.rows import InboxEntry
from holdfast.protocol.settings import Posture, name_of
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.driving import an_id
from tests.cli.conftest import Filled, Finished, Holdfast
from tests.cli.forging import Parts, forge, parts_of, with_events, with_fields


@pytest.fixture
def exported(holdfast: Holdfast, home: Filled, tmp_path: Path) -> Callable[[str], Parts]:
    """Exports a session of the home."""

    def export(session: str) -> Parts:
        file = tmp_path / "exported.jsonl"
        assert holdfast("export", session, str(file), "--home", str(home.folder)).code == 0
        return parts_of(file)

    return export


@pytest.fixture
def imported(holdfast: Holdfast, tmp_path: Path) -> Callable[[Parts], Finished]:
    """Imports what was forged into a new home."""

    def adopt(parts: Parts) -> Finished:
        file = forge(tmp_path / "forged.jsonl", parts)
        return holdfast("import", str(file), "--home", str(tmp_path / "other"))

    return adopt


Exported = Callable[[str], Parts]
Imported = Callable[[Parts], Finished]


def test_a_file_that_nobody_changed_is_forged_as_it_was(
    home: Filled, exported: Exported, imported: Imported
) -> None:
    for session in (home.finished, home.waiting):
        assert imported(exported(session)).code == 0


@pytest.mark.requirement("H2")
@pytest.mark.parametrize("kind", [ApprovalRequested, ApprovalResolved])
@pytest.mark.parametrize("suffix", ["", "-0x1", "-01", "-\u0661", "-", "-" + "1" * 5_000], ids=range(6))
def test_an_imported_record_names_only_approvals_of_its_own_session(
    home: Filled, exported: Exported, imported: Imported, kind: type[Event], suffix: str
) -> None:
    parts = exported(home.waiting)
    foreign = f"{home.waiting}{suffix}" if suffix else approval_id(an_id(9), 1)
    resolved = ApprovalResolved(foreign, "approve", "cli:ann")

    def change(event: Event) -> Event:
        if isinstance(event, ApprovalRequested):
            return replace(event, approval_id=foreign) if kind is ApprovalRequested else resolved
        return event

    answer = imported(with_events(parts, change))
    assert answer.code == 9
    assert "no approval of this session" in answer.err


@pytest.mark.requirement("H2")
@pytest.mark.parametrize(
    "fields",
    [
        {"at_ms": 1 << 62}, {"at_ms": -1}, {"awake_ms": 1 << 62}, {"awake_ms": -1}, {"epoch": 1 << 60},
        {"epoch": 1 << 53}, {"epoch": -1}, {"cause": "command \x1b[31m"}, {"cause": "command "},
    ],
    ids=str,
)  # fmt: skip
def test_times_epochs_and_causes_that_no_driver_writes_are_not_imported(
    home: Filled, exported: Exported, imported: Imported, fields: Mapping[str, Any]
) -> None:
    answer = imported(with_fields(exported(home.finished), fields))
    assert answer.code == 9
    assert "cannot be" in answer.err


@pytest.mark.requirement("H2")
@pytest.mark.parametrize("deadline_ms", [1 << 62, -1])
def test_a_deadline_that_no_clock_reaches_is_not_imported(
    home: Filled, exported: Exported, imported: Imported, deadline_ms: int
) -> None:
    def change(event: Event) -> Event:
        return replace(event, deadline_ms=deadline_ms) if isinstance(event, ApprovalRequested) else event

    assert imported(with_events(exported(home.waiting), change)).code == 9


@pytest.mark.parametrize("number", [1 << 62, -(1 << 62)])
def test_a_number_that_no_reader_has_exactly_is_not_imported(
    home: Filled, exported: Exported, imported: Imported, number: int
) -> None:
    def change(event: Event) -> Event:
        return replace(event, run=number) if isinstance(event, RunStarted) else event

    assert imported(with_events(exported(home.finished), change)).code == 9


@pytest.mark.requirement("H2")
def test_deep_json_is_not_imported(
    holdfast: Holdfast, home: Filled, exported: Exported, imported: Imported, tmp_path: Path
) -> None:
    parts = exported(home.finished)
    deep = b',"zz":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    first, *rest = parts.stored
    assert imported(parts._replace(stored=[replace(first, body=first.body[:-1] + deep), *rest])).code == 9
    file = tmp_path / "deep.jsonl"
    file.write_bytes(a.encode_line(parts.head) + b'{"kind":"record"' + deep + b"\n")
    assert holdfast("import", str(file), "--home", str(tmp_path / "other")).code == 9


@pytest.mark.requirement("H2")
def test_a_blob_that_is_not_what_its_name_says_is_not_imported(
    home: Filled, exported: Exported, imported: Imported
) -> None:
    parts = exported(home.finished)
    assert parts.blobs
    answer = imported(
        parts._replace(blobs={sha256: content + b"!" for sha256, content in parts.blobs.items()})
    )
    assert answer.code == 9
    assert "was changed" in answer.err


def test_a_blob_beyond_the_bound_is_not_imported(
    home: Filled, exported: Exported, imported: Imported, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = exported(home.finished)
    monkeypatch.setattr(a, "BLOB_BYTES", max(map(len, parts.blobs.values())) - 1)
    answer = imported(parts)
    assert answer.code == 9
    assert "larger than" in answer.err


def test_a_blob_that_no_record_needs_is_not_stored(
    home: Filled, exported: Exported, imported: Imported, tmp_path: Path
) -> None:
    parts = exported(home.finished)
    extra = b"nobody refers to this"
    assert imported(parts._replace(blobs={**parts.blobs, hashlib.sha256(extra).hexdigest(): extra})).code == 0
    other = tmp_path / "other"
    assert not [path for path in other.rglob("*") if path.is_file() and extra in path.read_bytes()]


@pytest.mark.requirement("H2")
@pytest.mark.parametrize(
    "forged", [{"records": 0}, {"records": -1}, {"records": 1}, {"v": 0}, {"v": -1}], ids=str
)
def test_a_first_line_that_counts_wrongly_is_not_imported(
    home: Filled, exported: Exported, imported: Imported, forged: dict[str, int]
) -> None:
    parts = exported(home.finished)
    answer = imported(parts._replace(head=replace(parts.head, **forged)))
    assert answer.code == 9, answer.err


@pytest.mark.requirement("H2")
def test_records_of_one_session_are_not_imported_as_another(
    home: Filled, exported: Exported, imported: Imported
) -> None:
    parts = exported(home.finished)
    answer = imported(parts._replace(head=replace(parts.head, session=an_id(9))))
    assert answer.code == 9
    assert "another session" in answer.err


@pytest.mark.requirement("H2")
def test_an_imported_session_is_free_and_knows_the_commands_that_it_took(
    home: Filled, exported: Exported, imported: Imported, tmp_path: Path
) -> None:
    parts = exported(home.finished)
    stored = [
        replace(each, cause="command abc") if each.type == Attached.__name__ else each
        for each in parts.stored
    ]
    assert "command abc" in [each.cause for each in stored]
    assert imported(parts._replace(stored=stored)).code == 0

    async def look() -> None:
        store = SqliteStore.open(tmp_path / "other")
        situation = await store.situation(home.finished)
        assert situation is not None
        assert situation.lease is None
        posted = await store.post(InboxEntry("abc", home.finished, 1, b"{}"), 10)
        assert posted.outcome == "duplicate"
        await store.aclose()

    asyncio.run(look())


@pytest.mark.requirement("H2")
def test_settings_under_the_name_of_other_settings_are_not_imported(
    home: Filled, exported: Exported, imported: Imported
) -> None:
    supervised = name_of(Posture(approve_by="wait"))

    def change(event: Event) -> Event:
        if isinstance(event, SettingsStored):
            return SettingsStored({**event.groups, supervised: Posture(autonomy="full")})
        return event

    answer = imported(with_events(exported(home.finished), change))
    assert answer.code == 9
    assert "under a name" in answer.err
