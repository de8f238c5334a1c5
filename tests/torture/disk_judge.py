"""Checks what must hold after a disk failed. It imports nothing of Holdfast: it reads the database with sqlite3, what
the model's server received, and the files of the workspace.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

SESSION = "test:disk"
WAITS, DONE, STORAGE = 5, 0, 9
ANSWERS, CALLS = 4, 3
"""The model's answers and tool calls: it asks for three calls, one after another, and ends."""


class Ran(NamedTuple):
    """One command, from its start to its end."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str
    took_s: float


class Room(NamedTuple):
    """Where a round happens."""

    folder: Path

    @property
    def home(self) -> Path:
        """The home of its commands."""
        return self.folder / "home"

    @property
    def workspace(self) -> Path:
        """Where its tools work."""
        return self.folder / "workspace"

    @property
    def log(self) -> Path:
        """The calls that the shim saw, one a line."""
        return self.folder / "calls"


def rows_of(home: Path) -> list[dict[str, Any]]:
    """The records of the session, in order, with bodies as data."""
    if not (home / "holdfast.db").exists():
        return []
    with closing(sqlite3.connect(home / "holdfast.db")) as connection:
        connection.row_factory = sqlite3.Row
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'records'").fetchone():
            return []
        found = connection.execute("SELECT * FROM records ORDER BY session, seq").fetchall()
    return [{**row, "raw": row["body"], "body": json.loads(row["body"])} for row in map(dict, found)]


def types(home: Path) -> list[str]:
    """The types of the records, in order."""
    return [row["type"] for row in rows_of(home)]


def rest_of(home: Path) -> tuple[str, str]:
    """Return the session's status, empty if it does not exist, and the approval that it waits for."""
    rows = rows_of(home)
    if not (home / "holdfast.db").exists():
        return "", ""
    with closing(sqlite3.connect(home / "holdfast.db")) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sessions'").fetchone():
            return "", ""
        found = connection.execute("SELECT status FROM sessions WHERE key = ?", (SESSION,)).fetchone()
        waiting = connection.execute(
            "SELECT substr(body, 33) FROM inbox WHERE body IS NOT NULL"  # behind its seal
        ).fetchall()
    if found is None:
        return "", ""
    asked = [row["body"]["approval_id"] for row in rows if row["type"] == "ApprovalRequested"]
    answered = {row["body"]["approval_id"] for row in rows if row["type"] == "ApprovalResolved"}
    answered |= {json.loads(body).get("body", {}).get("approval_id", "") for (body,) in waiting}
    return str(found[0]), next((name for name in asked if name not in answered), "")


def judge(room: Room, ran: Sequence[Ran], served: Sequence[bytes]) -> Iterator[str]:
    """All that must not be."""
    rows = rows_of(room.home)
    yield from _stored(room.home, rows)
    yield from _acknowledged(rows, ran)
    yield from _calls(rows)
    yield from _requests(rows, served)
    yield from _effects(room.workspace, rows)
    for command in ran:
        if "Traceback" in command.err or "This is a bug" in command.err:
            yield f"a bug: {command.words[0]} says {command.err[-600:]}"
        if command.code == -9:
            yield f"a hang: {command.words[0]} did not end"
        elif command.code not in (DONE, WAITS, STORAGE):
            yield f"a wrong code: {command.words[0]} ended with {command.code}: {command.err[-600:]}"
    if ran[-1].code != DONE:
        yield f"it cannot be brought to an end: {ran[-1].words[0]} ended with {ran[-1].code}: {ran[-1].err[-600:]}"


def right_code(failing: Ran, code: int) -> Iterator[str]:
    if failing.code not in (code, STORAGE):
        yield f"a wrong code: {failing.words[0]} ended with {failing.code}: {failing.err[-600:]}"
    if failing.code == STORAGE and not failing.err and '"error"' not in failing.out:
        yield f"{failing.words[0]} ended with 9 without a word"


def _stored(home: Path, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    with closing(sqlite3.connect(home / "holdfast.db")) as connection:
        checked = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        if checked != ["ok"]:
            yield f"damaged: {checked}"
        if waiting := connection.execute("SELECT count(*) FROM inbox WHERE body IS NOT NULL").fetchone()[0]:
            yield f"lost: {waiting} accepted commands were never taken"
        if connection.execute("SELECT count(*) FROM leases WHERE holder IS NOT NULL").fetchone()[0]:
            yield "a lease is still held"
        if connection.execute("SELECT count(*) FROM sessions").fetchone()[0] != 1:
            yield "doubled: there is more than one session"
    link = bytes(32)
    for seq, row in enumerate(rows, 1):
        words = "".join(
            f"{row[name]}\0" for name in ("seq", "at_ms", "awake_ms", "epoch", "cause", "type", "v")
        )
        link = hashlib.sha256(link + words.encode() + hashlib.sha256(row["raw"]).digest()).digest()
        if (row["seq"], row["link"]) != (seq, link):
            yield f"damaged: record {seq} is not there, or is not what was written"
            return
    wanted = {row["body"]["request"]["base"] for row in rows if row["type"] == "ModelCallStarted"}
    wanted |= {row["body"]["result"].get("blob", "") for row in rows if row["type"] == "ToolCallFinished"} - {
        ""
    }
    for name in wanted:
        path = home / "blobs" / name[:2] / name[2:4] / name
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != name:
            yield f"lost: the blob {name} is missing or damaged"


def _acknowledged(rows: Sequence[Mapping[str, Any]], ran: Iterable[Ran]) -> Iterator[str]:
    """Whatever a command told is there."""
    there = {row["seq"]: row["type"] for row in rows}
    resolved = {row["body"]["approval_id"] for row in rows if row["type"] == "ApprovalResolved"}
    for command in ran:
        for line in command.out.splitlines():
            told = json.loads(line) if line.startswith("{") else {}
            if "seq" in told and there.get(told["seq"]) != told["type"]:
                yield f"lost: {command.words[0]} told record {told['seq']} ({told['type']}), which is not there"
        if command.words[0] == "approve" and not command.code and command.words[1] not in resolved:
            yield "lost: the answer was taken, and is not there"
    counts = Counter(row["type"] for row in rows)
    for type_ in ("MessageReceived", "RunStarted", "RunStopped", "ApprovalRequested", "ApprovalResolved"):
        if counts[type_] != 1:
            yield f"{'doubled' if counts[type_] else 'lost'}: there are {counts[type_]} records {type_}"
    ends = [row["body"]["status"] for row in rows if row["type"] == "RunStopped"]
    if ends != ["done"]:
        yield f"the run ended {ends}"


def _calls(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each call that was asked for came to one end."""
    asked: list[str] = []
    ends: Counter[str] = Counter()
    for row in rows:
        if row["type"] == "Responded":
            asked += [part["call_id"] for part in row["body"]["parts"] if part["kind"] == "tool_call"]
        elif row["type"] in ("ToolCallFinished", "ToolCallAbandoned", "ToolCallRefused"):
            ends[row["body"]["call_id"]] += 1
    if len(asked) != CALLS:
        yield f"{len(asked)} calls were asked for, and not {CALLS}"
    for call_id in asked:
        if ends[call_id] != 1:
            yield f"{'doubled' if ends[call_id] else 'lost'}: {call_id} has {ends[call_id]} ends"


def _requests(rows: Sequence[Mapping[str, Any]], served: Sequence[bytes]) -> Iterator[str]:
    """What was sent was recorded before."""
    meant = Counter(row["body"]["request"]["sha256"] for row in rows if row["type"] == "ModelCallStarted")
    for sha256, count in Counter(hashlib.sha256(body).hexdigest() for body in served).items():
        if count > meant[sha256]:
            yield f"{'doubled' if meant[sha256] else 'unreported'}: a request was sent {count} times"
    answered = {row["body"]["key"] for row in rows if row["type"] == "Responded"}
    if len(answered) != ANSWERS:
        yield f"lost: {len(answered)} answers are there, and not {ANSWERS}"


def _effects(workspace: Path, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The command ran once, or the model was told that nobody knows; the file is what was asked for."""
    effects = workspace / "effects.log"
    count = len(effects.read_text().splitlines()) if effects.exists() else 0
    finished = [row["body"]["result"]["status"] for row in rows if row["type"] == "ToolCallFinished"]
    unknown = sum(row["type"] == "ToolCallAbandoned" for row in rows)
    if count > 1:
        yield f"doubled: the command ran {count} times"
    if not count and not unknown:
        yield "lost: the command never ran, and nobody was told"
    if finished.count("ok") + unknown != CALLS:
        yield f"the calls came to {finished} and {unknown} unknown outcomes"
    part = workspace / "part.txt"
    if not unknown and (not part.exists() or part.read_text() != "whole\n"):
        yield "lost: the file is not what was asked for"
