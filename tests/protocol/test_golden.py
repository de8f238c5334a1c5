"""A journal that was written once must always load: one file for each version of each event, never changed.

A new version of an event comes with a new file: `python -m tests.protocol.test_golden` writes those that are missing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.core.evolve import evolve
from holdfast.core.state import State
from holdfast.protocol import events as e
from holdfast.protocol.codec import FIRST_LINK, StoredRecord, decode, encode, is_linked
from tests.core.phases import EXAMPLES
from tests.core.stories import SESSION, START_MS, started

JOURNALS = Path(__file__).resolve().parents[1] / "journals"
VERSIONS = [(kind, version) for kind, current in e.VERSIONS.items() for version in range(1, current + 1)]


def path_of(kind: type[e.Event], version: int) -> Path:
    return JOURNALS / f"{kind.__name__}-v{version}.jsonl"


def load(path: Path) -> list[StoredRecord]:
    return [msgspec.json.decode(line, type=StoredRecord) for line in path.read_bytes().splitlines()]


def journal(kind: type[e.Event]) -> list[e.Event]:
    """A short journal that ends with the event, twice: full, and as bare as it can be."""
    opening: list[e.Event] = [e.SessionOpened(SESSION, "cli:demo"), e.MessageReceived("a task")]
    opening += [e.Attached(1, "host:1"), *started(1)]
    full = EXAMPLES[kind]
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    return [*opening, full, kind(**{name: getattr(full, name) for name in required})]


def write_missing() -> None:
    JOURNALS.mkdir(exist_ok=True)
    for kind, version in e.VERSIONS.items():
        path = path_of(kind, version)
        if path.exists():
            continue
        link, lines = FIRST_LINK, []
        for seq, event in enumerate(journal(kind), 1):
            stored = encode(e.Record(SESSION, seq, START_MS + seq, 1, e.Trigger("attach"), event), link)
            link = stored.link
            lines.append(msgspec.json.encode(stored) + b"\n")
        path.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    ("kind", "version"), VERSIONS, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_a_journal_of_every_version_of_every_event_still_loads(kind: type[e.Event], version: int) -> None:
    stored = load(path_of(kind, version))
    assert (stored[-1].type, stored[-1].v) == (kind.__name__, version)
    state, link, records = State(), FIRST_LINK, []
    for each in stored:
        assert is_linked(link, each)
        link = each.link
        records.append(decode(each))
        state = evolve(state, records[-1])
    assert state.seq == len(stored)
    assert [record.event for record in records] == journal(kind)


def test_there_is_a_journal_for_every_version_of_every_event_and_no_other() -> None:
    assert {path.name for path in JOURNALS.iterdir()} == {path_of(kind, v).name for kind, v in VERSIONS}


if __name__ == "__main__":
    write_missing()
    sys.exit(0)
