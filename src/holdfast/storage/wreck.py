"""Reads what can still be read of a damaged database, and reports everything that cannot. It changes nothing.

`salvage` decides what to make of it.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holdfast.errors import StorageError
from holdfast.protocol.codec import FIRST_LINK, StoredRecord
from holdfast.protocol.counts import counted
from holdfast.storage.chain import follows
from holdfast.storage.errors import not_ours, primary_code, storage_errors
from holdfast.storage.home import DATABASE, check_file, check_version, connect, connect_to_read
from holdfast.storage.log import PAGE_SIZES, USUAL_PAGE_SIZE, Log, mended, read_log
from holdfast.storage.migrations import APPLICATION_ID, NEWEST, migrate, version
from holdfast.storage.pages import Pages, leaf_rows

_BUSY_S = 5.0
_LEAST_ROW_BYTES = 40
"""Hardly any row is shorter. This bounds the number of rows in a file."""
_LINK_BYTES = 32
_LARGEST = (1 << 62) - 1
_PAGE_SIZE_AT, _SIZE_AT = 16, 28
"""The places in a database file that contain the size of a page and the number of pages."""
_TABLES = {"sessions", "records", "inbox", "leases"}
"""The tables that cannot be made again from others."""
_ILLEGIBLE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)
_NEW_LIST = "the list of tables was damaged; that of a new database took its place"
_MENDED_LOG = "the log beside it was damaged; all of it that can be read was read"
_RECORD = "seq, at_ms, awake_ms, epoch, cause, type, v, body, link, digest"
_TYPES = (int, int, int, int, str, str, int, bytes, bytes, bytes)

Row = tuple[Any, ...]


@contextmanager
def wreck_of(home: Path, scratch: Path) -> Iterator[Wreck]:
    """Yield the damaged database of a home, or a mended copy in `scratch` if its first page or its log is damaged.

    Raises:
        StorageCorrupt: it is the database of another program.
        StorageError: the home has no database, or `scratch` cannot be written.
    """
    path = home / DATABASE
    with storage_errors(path):
        check_file(home)
        if not path.exists():
            raise StorageError(f"there is no database at {path}")
        connection = connect_to_read(path, _BUSY_S)
    with closing(connection):
        with storage_errors(path):
            is_ours = _is_ours(connection, path)
            log = read_log(path)
        if is_ours and not (log and log.lost_commits):
            yield Wreck(path, connection, log)
            return
    with ExitStack() as stack:
        with storage_errors(scratch):
            copy = Path(stack.enter_context(TemporaryDirectory(dir=scratch)), DATABASE)
            shutil.copyfile(path, copy)
            if log is not None:
                copy.with_name(f"{copy.name}-wal").write_bytes(mended(log))
            if not is_ours:
                _give_first_page(copy)
            connection = connect(copy, _BUSY_S)
            stack.enter_context(closing(connection))
            _look_at(connection)
        notes = [] if is_ours else [_NEW_LIST]
        yield Wreck(path, connection, log, [*notes, _MENDED_LOG] if log and log.lost_commits else notes)


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether it is a database of Holdfast with its list of tables; False if that is unclear."""
    try:
        _look_at(connection)
        found = version(connection)
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if isinstance(error, sqlite3.Error) and primary_code(error) not in _ILLEGIBLE:
            raise
        return False
    if not tables & _TABLES and application != APPLICATION_ID and (application or tables):
        raise not_ours(path)
    if found > NEWEST:
        connection.execute("COMMIT")
        check_version(connection, path)
    return tables >= _TABLES


def _look_at(connection: sqlite3.Connection) -> None:
    connection.text_factory = _decoded
    # This has SQLite read a torn file, and the tables of a schema of which a part is damaged.
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("BEGIN")  # one moment for all that follows, while others go on writing


def _give_first_page(copy: Path) -> None:
    """Give the copy the list of tables of a new database. Tables begin at the same pages in every database."""
    new = copy.with_name("new.db")
    with closing(sqlite3.connect(new, isolation_level=None)) as sound:
        sound.execute("PRAGMA journal_mode = WAL")
        migrate(sound)
        size = sound.execute("PRAGMA page_size").fetchone()[0]
    first = bytearray(new.read_bytes()[:size])
    first[_SIZE_AT : _SIZE_AT + 4] = bytes(4)  # as many pages as there are in the file
    with copy.open("r+b") as file:
        file.write(first)


def _decoded(raw: bytes) -> str:
    return raw.decode(errors="replace")


class Wreck:
    """A damaged database, with notes about what cannot be read."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, log: Log | None, notes: Sequence[str] = ()
    ) -> None:
        self.path = path
        self.is_guessed = _NEW_LIST in notes
        """Whether it is assumed to be a database of Holdfast, and nothing shows yet that it is one."""
        self.notes = list(notes)
        """Sentences about what could not be read so far."""
        self._connection = connection
        self._log = log
        self._loose: dict[int, Row] = {}
        """The rows of records that SQLite cannot reach, by place."""
        self._most_rows = path.stat().st_size // _LEAST_ROW_BYTES

    def rows(self, table: str, number: str, columns: str) -> list[Row]:
        """Return all rows that can be read, each after its number, ordered by it."""
        sql = f"SELECT {number}, {columns} FROM {table} WHERE {number} BETWEEN ? AND ? ORDER BY {number}"
        found: list[Row] = []
        unread: list[tuple[int, int]] = []
        spans = [(1, _LARGEST)]
        while spans:  # around what cannot be read, by ever smaller steps
            first, last = spans.pop()
            try:
                found += self._connection.execute(sql, (first, last)).fetchall()
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_ERROR:
                    self.notes.append(f"the table {table} cannot be read: {error}")
                    return found
                last = min(last, max(self._most_rows, first))
                middle = (first + last) // 2
                if first < last:
                    spans += [(middle + 1, last), (first, middle)]
                elif unread and unread[-1][1] == first - 1:
                    unread[-1] = (unread[-1][0], first)
                else:
                    unread.append((first, first))
        self.notes += [f"the table {table}: {self._unread(*span)} cannot be read" for span in unread]
        if not unread and (count := self._count(table)) > len(found):
            self.notes.append(f"the table {table}: {count - len(found)} of its {count} rows cannot be read")
        return found

    def _count(self, table: str) -> int:
        """Return how many rows the table claims to have. A torn page counts rows that cannot be found."""
        counts = [0]
        for how in ("NOT INDEXED", f"INDEXED BY sqlite_autoindex_{table}_1"):
            with suppress(sqlite3.DatabaseError):
                counts += self._connection.execute(f"SELECT count(*) FROM {table} {how}").fetchone()
        return max(counts)

    def _unread(self, first: int, last: int) -> str:
        if last >= self._most_rows:
            return f"whatever had the number {first} or a higher one"
        return f"whatever had the number {first}" if first == last else f"the numbers {first} to {last}"

    def places(self) -> dict[int, list[int]]:
        """The places of the records, by the number of their session."""
        found: dict[int, list[int]] = defaultdict(list)
        told = len(self.notes)
        rows = self.rows("records", "position", "session")
        if len(self.notes) > told:
            known = {position for position, _ in rows}
            self._loose = {place: row for place, row in self._loose_records() if place not in known}
            if self._loose:
                self.notes.append(f"page by page, {counted(len(self._loose), 'more record')} found")
                rows = sorted([*rows, *((place, row[0]) for place, row in self._loose.items())])
        for position, number in rows:
            if isinstance(number, int) and number > 0:
                found[number].append(position)
        return found

    def _loose_records(self) -> Iterator[tuple[int, Row]]:
        """Yield the rows of all pages that look like records, without their place."""
        content = self.path.read_bytes()
        size = int.from_bytes(content[_PAGE_SIZE_AT : _PAGE_SIZE_AT + 2], "big")
        newer: dict[int, bytes] = {}
        for frame in self._log.frames if self._log is not None else ():
            newer[int.from_bytes(frame.head[:4], "big")] = frame.page
        pages = Pages(content, size if size in PAGE_SIZES else USUAL_PAGE_SIZE, newer)
        for place, row in leaf_rows(pages):
            if (
                place > 0
                and tuple(map(type, row)) == (type(None), int, *_TYPES)
                and len(row[-2]) == _LINK_BYTES
            ):
                yield place, row[1:]

    def records(self, places: Sequence[int]) -> dict[int, tuple[int, StoredRecord]]:
        """Return the readable records at these places, by their seq, each with its place."""
        read: dict[int, list[tuple[int, StoredRecord]]] = defaultdict(list)
        for place in places:
            with suppress(sqlite3.DatabaseError, UnicodeDecodeError):
                row = (
                    self._loose.get(place, ())[1:]
                    or self._connection.execute(
                        f"SELECT {_RECORD} FROM records WHERE position = ?", (place,)
                    ).fetchone()
                )
                if row is not None and tuple(map(type, row)) == _TYPES and row[0] > 0:
                    read[row[0]].append((place, StoredRecord("", *row)))
        links = {record.link for found in read.values() for _, record in found} | {FIRST_LINK}
        return {seq: _true_one(read[seq], links) for seq in sorted(read)}

    def deleted(self) -> list[Row]:
        """The number of each deleted session, with the last position and arrival then, as far as they can be read."""
        with suppress(sqlite3.DatabaseError, UnicodeDecodeError):
            rows = self._connection.execute("SELECT session, position, arrival FROM deleted").fetchall()
            return [
                row for row in rows if all(isinstance(each, int) and 0 <= each < _LARGEST for each in row)
            ]
        return []

    def inbox_names(self) -> dict[int, tuple[int, str]]:
        """The session and name of each command, by arrival, as the index of the inbox says."""
        with suppress(sqlite3.DatabaseError, UnicodeDecodeError):
            named = self._connection.execute(
                "SELECT arrival, session, command_id FROM inbox INDEXED BY sqlite_autoindex_inbox_1"
                " WHERE session BETWEEN ? AND ?",
                (0, _LARGEST),
            )
            return {arrival: (number, name) for arrival, number, name in named}
        return {}


def _true_one(found: Sequence[tuple[int, StoredRecord]], links: set[bytes]) -> tuple[int, StoredRecord]:
    """Several records claim to be the same one. Return the one that follows another record."""
    if len(found) == 1:
        return found[0]
    return next((one for one in found if any(follows(link, one[1].seq, one[1]) for link in links)), found[0])
