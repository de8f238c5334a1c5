"""Exports a session to a file, imports it from one, and deletes it. `protocol.archive` describes the file.

An import proves the whole file before it stores anything, and stores the session in one transaction. A branch comes
with its parent's records, so it needs no parent in the other home.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, get_args

import msgspec
from msgspec.structs import replace

from holdfast.core.draft import Draft
from holdfast.core.evolve import fold
from holdfast.core.opening import change_settings
from holdfast.core.state import State, open_run
from holdfast.core.summary import approval_marks, summary
from holdfast.errors import Conflict, Fenced, NoSuchSession, StorageCorrupt, StorageNewer, UsageError
from holdfast.protocol import archive as a
from holdfast.protocol.blobs import blobs_of
from holdfast.protocol.codec import FIRST_LINK, StoredRecord, UnreadableEvent, decode, encode
from holdfast.protocol.counts import counted
from holdfast.protocol.events import Record, RunPaused, SessionImported, SettingsStored, Trigger
from holdfast.protocol.ids import approval_id, is_command_id
from holdfast.protocol.ports import Store
from holdfast.protocol.rows import Commit
from holdfast.protocol.settings import Autonomy, Posture, changed, name_of
from holdfast.runtime.holder import LEASE_MS, is_free, this_process
from holdfast.storage.chain import checked
from holdfast.storage.derived import own_records
from holdfast.storage.names import check_session

CAUSE = Trigger("import")
RECORDS_BYTES = 256 << 20
"""The most that the records of an imported session may have together: they are checked in memory. Blobs are not
among them."""
_RECORD_BYTES = 512
"""What a record takes in memory beside its body: many small ones are too large together, too."""
_LISTED = 8
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999. No time is later, and no length of time is longer."""
_LAST_EPOCH = 1 << 32
"""No session is taken so often. From here, every later driver still has an epoch of its own."""
_SHOWN = 60
_NUMBER = re.compile("[1-9][0-9]{0,15}")
_LARGEST = 1 << 53
"""The integers up to here are exact in every JSON reader."""


async def export(store: Store, session: str) -> AsyncGenerator[bytes, None]:
    """Yield the lines of the file.

    Raises:
        NoSuchSession: there is no such session.
        UsageError: it has no records yet.
        StorageNewer: a newer version wrote a record, so nobody here knows what belongs to it.
    """
    row = await store.session(session)
    if row is None:
        raise NoSuchSession(f"There is no session {session}.", hint="`holdfast sessions` lists them.")
    stored = await store.read(session)
    if not stored:
        raise UsageError(
            f"Session {session} has no records yet.", hint=f"`holdfast resume {session}` begins it."
        )
    digest = hashlib.sha256()

    def line(each: a.ArchiveLine) -> bytes:
        encoded = a.encode_line(each)
        digest.update(encoded)
        return encoded

    yield line(a.Head(a.VERSION, session, row.key, len(stored)))
    for record in stored:
        yield line(a.line_of(record))
    for sha256 in _blobs(_readable(stored)):
        content = await store.blobs.get(sha256)
        for at in range(0, max(len(content), 1), a.CHUNK_BYTES):
            yield line(a.BlobLine(sha256, content[at : at + a.CHUNK_BYTES]))
    yield a.encode_line(a.End(digest.hexdigest()))


class _Contents(msgspec.Struct, frozen=True):
    head: a.Head
    stored: list[StoredRecord]
    blobs: frozenset[str]


class Adopted(msgspec.Struct, frozen=True):
    """A session that is in this home."""

    session: str
    state: State | None = None
    """What it will go on with; None if it was here already."""
    autonomy: Autonomy | None = None
    """What the file said."""


class Proven(msgspec.Struct, frozen=True):
    """A file that is what was exported, with the commit that makes its session."""

    path: Path
    contents: _Contents
    commit: Commit
    adopted: Adopted


def proven(path: Path, now_ms: int, posture: Posture) -> Proven:
    """Prove the whole file. This needs no home.

    The imported session has no more rights than its new home gives: its autonomy is the lesser of the two, its
    permissions are void, and its open run is paused.

    Args:
        posture: What a new run would have in the home.

    Raises:
        StorageCorrupt: the file is not what was exported.
        StorageNewer: a newer version wrote it.
        UsageError: its records are too large to be held in memory.
    """
    found = _read(path)
    return Proven(path, found, *_commit(found, path, now_ms, posture))


async def adopt(store: Store, file: Proven) -> Adopted:
    """Import the session of the file. If it is here already, do nothing.

    Raises:
        StorageCorrupt: the file was changed in this moment.
        Conflict: other records are here under its id, or another session has its name.
    """
    found, commit = file.contents, file.commit
    head = found.head
    row = await store.session(head.session)
    if row is not None:
        await _check_same(store, found)
        return Adopted(head.session)
    if head.key and (namesakes := await store.find(head.key)):
        raise Conflict(
            f"Session {namesakes[0]} in this home has the name {head.key}. Nothing was imported.",
            hint="Import it into another home with --home DIR.",
        )
    for line in _lines(file.path):
        if isinstance(line, tuple) and line[0] in commit.blobs:
            await store.blobs.put(line[1])
    try:
        await store.begin(commit, this_process(), LEASE_MS)
    except Fenced:  # another process was faster
        await _check_same(store, found)
    return file.adopted


async def _check_same(store: Store, found: _Contents) -> None:
    """Check that the session is here, maybe with later records. The link of a record proves all before it."""
    session, last = found.head.session, len(found.stored)
    here = await store.read(session, last - 1, last) if last else []
    if [each.link for each in here] != [each.link for each in found.stored[-1:]]:
        raise Conflict(
            f"Session {session} is in this home with other records. Nothing was imported.",
            hint=f"`holdfast show {session}` shows it.",
        )


async def delete(
    store: Store, session: str, forget: Callable[[Sequence[Record]], None] = lambda _: None
) -> None:
    """Delete a session for good.

    Args:
        forget: Removes what is kept of the session's own records elsewhere, right before they are deleted.

    Raises:
        NoSuchSession: there is no such session.
        Conflict: somebody drives it, or another session shares its records.
    """
    situation = await store.situation(session)
    if situation is None:
        raise NoSuchSession(f"There is no session {session}.", hint="`holdfast sessions` lists them.")
    driven = Conflict(
        f"A process drives session {session}. Nothing was deleted.",
        hint=f"End its run first: `holdfast stop {session}`.",
    )
    if not is_free(situation.lease):
        raise driven
    if branches := await store.branches(session):
        listed = ", ".join(branches[:_LISTED]) + (" ..." if len(branches) > _LISTED else "")
        raise Conflict(
            f"Session {session} shares its records with its branches: {listed}. Nothing was deleted.",
            hint=f"Delete the branches first: `holdfast delete {branches[0]}`.",
        )
    holder = this_process()
    lease = await store.lease(session, holder, LEASE_MS, situation.lease)
    if lease.holder.nonce != holder.nonce:
        raise driven
    try:
        forget(await _own(store, session))
        await store.delete(lease)
    except Fenced:
        raise driven from None


async def _own(store: Store, session: str) -> Sequence[Record]:
    """Return the session's own records, as far as they can be read: a damaged session can be deleted too."""
    records: list[Record] = []
    with suppress(StorageCorrupt):
        for each in await store.read(session):
            with suppress(UnreadableEvent):
                records.append(decode(each))
    return own_records(records)


# --- reading a file -----------------------------------------------------------------------------


def _read(path: Path) -> _Contents:
    """Return what is in the file, proven, without the content of its blobs."""
    head: a.Head | None = None
    stored: list[StoredRecord] = []
    blobs: set[str] = set()
    size = 0
    for line in _lines(path):
        match line:
            case a.Head():
                head = line
            case StoredRecord():
                stored.append(line)
                size += _RECORD_BYTES + len(line.body)
                if size > RECORDS_BYTES:
                    raise UsageError(
                        f"{path} has more than {RECORDS_BYTES >> 20} MiB of records (outputs apart), which is more "
                        "than an import can hold. Nothing was imported."
                    )
            case sha256, content:
                if hashlib.sha256(content).hexdigest() != sha256:
                    raise _changed(path, f"the blob {sha256} was changed")
                blobs.add(sha256)
    if head is None:
        raise _changed(path, "it is empty")
    try:
        check_session(head.session, head.key)
        checked(head.session, stored, 0, FIRST_LINK, head.records)
    except StorageCorrupt as error:
        raise _changed(path, error.message) from None
    if len(stored) != head.records:
        raise _changed(
            path, f"it has {counted(len(stored), 'record')}, and its first line counts {head.records:,}"
        )
    return _Contents(head, stored, frozenset(blobs))


def _lines(path: Path) -> Iterator[a.Head | StoredRecord | tuple[str, bytes]]:
    """Yield the lines of the file between its first and its last one, with the chunks of each blob put together."""
    with path.open("rb") as file:
        head = _head(file, path)
        yield head
        digest, number = hashlib.sha256(a.encode_line(head)), 1
        blob, chunks = "", bytearray()
        while True:
            number += 1
            text, line = _line(file, path, number)
            if blob and not (isinstance(line, a.BlobLine) and line.sha256 == blob):
                yield blob, bytes(chunks)
                blob, chunks = "", bytearray()
            match line:
                case a.Head():
                    raise _changed(path, f"line {number} begins another session")
                case a.RecordLine():
                    yield _record(path, head.session, line, number)
                case a.BlobLine():
                    blob = line.sha256
                    chunks += line.chunk
                    if len(chunks) > a.BLOB_BYTES:
                        raise _changed(path, f"the blob {blob} is larger than {a.BLOB_BYTES >> 20} MiB")
                case a.End(sha256=sha256):
                    if sha256 != digest.hexdigest() or file.read(1):
                        raise _changed(path, "its last line does not prove the lines before it")
                    return
            digest.update(text)


def _head(file: BinaryIO, path: Path) -> a.Head:
    text, line = _line(file, path, 1)
    if not isinstance(line, a.Head) or text != a.encode_line(line) or line.v < 1:
        raise _changed(path, "it does not begin as a session does")
    if line.v > a.VERSION:
        raise StorageNewer(
            f"{path} was written by a newer version of Holdfast.", hint="Upgrade Holdfast to import it."
        )
    return line


def _line(file: BinaryIO, path: Path, number: int) -> tuple[bytes, a.ArchiveLine]:
    text = file.readline(a.LINE_BYTES + 1)
    if not text:
        raise _changed(
            path, f"it ends after {counted(number - 1, 'line')}, before the line that proves it whole"
        )
    try:
        return text, a.decode_line(text)
    except (ValueError, UnicodeDecodeError):
        raise _changed(path, f"line {number} is not one of an exported session") from None


def _record(path: Path, session: str, line: a.RecordLine, number: int) -> StoredRecord:
    try:
        return a.record_of(session, line)
    except ValueError:
        raise _changed(path, f"line {number} contains an invalid hash") from None


def _changed(path: Path, why: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"{path} is not what was exported: {why}. Nothing was imported.", hint="Export the session again."
    )


# --- what is stored -----------------------------------------------------------------------------


def _commit(found: _Contents, path: Path, now_ms: int, posture: Posture) -> tuple[Commit, Adopted]:
    """Return the commit that makes the session, with the rows that derive from its records."""
    head, stored = found.head, found.stored
    if not stored:
        raise _changed(path, "it contains no record")
    records = _readable(stored)
    _check_values(path, stored, records)
    state = fold(records, State(session=head.session, key=head.key))
    is_whole = len(records) == len(stored)
    if is_whole and (state.session, state.key) != (head.session, head.key):
        raise _changed(path, "its records tell of another session")
    needed = _blobs(records)
    if missing := [blob for blob in needed if blob not in found.blobs]:
        raise _changed(path, f"the blob {missing[0]} is missing")
    marks = tuple(approval_marks(own_records(records)))
    if foreign := [mark.id for mark in marks if not _is_own(mark.id, head.session)]:
        raise _changed(path, f"it names {foreign[0][:_SHOWN]!r}, which is no approval of this session")
    asked = {each.cause.removeprefix("command ") for each in stored if each.cause.startswith("command ")}
    epoch = max(max(each.epoch for each in stored), 1)
    state = replace(state, session=head.session, key=head.key, seq=stored[-1].seq)
    draft = _taken_over(Draft(state, now_ms, 0, epoch, CAUSE), posture)
    stored = [*stored]
    for record in draft.records:
        stored.append(encode(record, stored[-1].link))
    commit = Commit(
        session=head.session,
        epoch=epoch,
        expected_seq=0,
        records=tuple(stored),
        row=summary(draft.state),
        now_ms=now_ms,
        acknowledged=tuple(sorted(asked)),
        approvals=marks,
        blobs=tuple(needed),
        releases_lease=True,
    )
    said = state.settings.posture.autonomy if state.settings is not None else None
    return commit, Adopted(head.session, draft.state, said)


def _taken_over(draft: Draft, posture: Posture) -> Draft:
    """Record that the session is this home's from here on, with no more rights than it gives."""
    draft.add(SessionImported())
    run, settings = open_run(draft.state), draft.state.settings
    if run is not None and not run.is_paused and run.stopping is None:
        draft.add(RunPaused("import"))
    if settings is not None:
        least = min(settings.posture.autonomy, posture.autonomy, key=get_args(Autonomy).index)
        change_settings(
            draft, changed(settings, autonomy=least, approve_by=posture.approve_by, sandboxed="ask")
        )
    return draft


def _is_own(approval: str, session: str) -> bool:
    """Return whether an approval is one that the session asks for. In a home, nobody else may have its id."""
    number = approval.removeprefix(f"{session}-")
    return _NUMBER.fullmatch(number) is not None and approval == approval_id(session, int(number))


def _check_values(path: Path, stored: Sequence[StoredRecord], records: Sequence[Record]) -> None:
    """Refuse values that no driver writes, and that lists, databases and clocks cannot store.

    Raises:
        StorageCorrupt: says in which record.
    """
    for each in stored:
        if not (0 <= each.at_ms <= _LAST_MS and 0 <= each.awake_ms <= _LAST_MS):
            raise _changed(path, f"the time of record {each.seq} cannot be")
        if not 0 <= each.epoch <= _LAST_EPOCH:
            raise _changed(path, f"the epoch of record {each.seq} cannot be")
        kind, _, name = each.cause.partition(" ")
        if kind == "command" and not is_command_id(name):
            raise _changed(path, f"the cause of record {each.seq} cannot be")
    for record in records:
        if not _is_possible("", msgspec.to_builtins(record.event)):
            raise _changed(path, f"record {record.seq} contains a number that cannot be")
        groups = record.event.groups if isinstance(record.event, SettingsStored) else {}
        if any(name_of(group) != name for name, group in groups.items()):
            raise _changed(path, f"record {record.seq} contains settings under a name that is not theirs")


def _is_possible(name: str, value: Any) -> bool:
    """Return whether a field and all in it have numbers that the runtime might have written."""
    match value:
        case bool() | None:
            return True
        case int() | float() if name.endswith("_ms"):
            return 0 <= value <= _LAST_MS
        case int() | float() if name.endswith("_s"):
            return 0 <= value <= _LAST_MS / 1000
        case int() | float():
            return abs(value) <= _LARGEST
        case dict():
            return all(_is_possible(key, each) for key, each in value.items())
        case list() | tuple():
            return all(_is_possible(name, each) for each in value)
    return True


def _readable(stored: Sequence[StoredRecord]) -> list[Record]:
    """Return the records that were not erased.

    Raises:
        StorageNewer, StorageCorrupt: one cannot be read.
    """
    records: list[Record] = []
    for each in stored:
        try:
            records.append(decode(each))
        except UnreadableEvent as error:
            if error.why != "erased":
                kind = StorageNewer if error.why == "newer" else StorageCorrupt
                raise kind(f"Record {each.seq} of session {each.session}: {error}.") from None
    return records


def _blobs(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(blob for record in records for blob in blobs_of(record.event)))
