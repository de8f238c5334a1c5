"""An independent judge of what a session left behind: it imports nothing of Holdfast.

It reads the database with sqlite3 and json, what the model's server received and sent, what lies in the workspace,
what every command said, and which processes are left. Each check gives the faults that it finds; `judge` runs all.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.torture.effects import calls, conversation, effects, kept, money, requests
from tests.torture.evidence import DATABASE, OPEN_FILES, SECRET, Evidence, Fault, Ran, bodies, journal

PATIENCE_S = 5.0
"""So long a process that is ending may take."""

AT_WORK = 12
"""So many files a driver at work holds open. One that starts, or follows another one, has fewer."""

_FILLED_IN = {"SettingsStored", "ModelCallStarted"}
"""Told with what they refer to filled in: not as they are stored."""
_CODES = {"done": 0, "failed": 1, "limit": 4, "stuck": 6, "interrupted": 130}
_UNAVAILABLE = ("provider_transient", "rate_limited", "provider_refused", "provider_unready")
_BUGS = ("Traceback (most recent call last):\n", "that should not have")
_LOCKED = re.compile(r"another process keeps \S+ locked")


def judge(evidence: Evidence) -> list[Fault]:
    """All faults."""
    rows = journal(evidence.home)
    session = rows[0]["session"] if rows else ""
    return [
        *chain(rows),
        *blobs(evidence.home, rows),
        *inbox(evidence.home),
        *acknowledged(rows, evidence.ran),
        *messages(rows, evidence.ran),
        *runs(rows, evidence.ends),
        *calls(rows),
        *requests(rows, evidence.served),
        *conversation(rows, evidence.served),
        *kept(rows, evidence.served),
        *effects(rows, evidence),
        *money(rows, evidence.served),
        *codes(rows, evidence.ran, evidence.said, is_frozen=evidence.is_frozen),
        *times(rows),
        *descriptors(evidence.descriptors),
        *left_over(evidence, session),
        *leaks(evidence),
    ]


# --- what is stored -----------------------------------------------------------------------------


def chain(rows: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """Records are numbered without a gap up to the head of their session, and each is bound to the one before."""
    link, seq, session, head = bytes(32), 0, "", 0
    for row in [*rows, {"session": None}]:
        if row["session"] != session:
            if seq != head:
                yield Fault("lost", f"{session} ends at record {seq}, its row says {head}")
            link, seq, session, head = bytes(32), 0, row["session"], row.get("head", 0)
        if session is None:
            return
        seq += 1
        if row["seq"] != seq:
            yield Fault("lost", f"{session} has no record {seq}")
            return
        words = (str(row[name]) for name in ("seq", "at_ms", "awake_ms", "epoch", "cause", "type", "v"))
        bound = "\0".join(words) + "\0"
        link = hashlib.sha256(link + bound.encode() + hashlib.sha256(row["raw"]).digest()).digest()
        if link != row["link"]:
            yield Fault("damaged", f"record {seq} of {session} is not what was written")
            return


def blobs(home: Path, rows: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """What records refer to is there and whole; nothing else lies there but what a killed writer left."""
    wanted = {body["request"]["base"] for body in bodies(rows, "ModelCallStarted")}
    wanted |= {body["result"].get("blob", "") for body in bodies(rows, "ToolCallFinished")} - {""}
    there = {path.name: path for path in (home / "blobs").rglob("*") if path.is_file()}
    for name in sorted(wanted - there.keys()):
        yield Fault("lost", f"the blob {name} is missing")
    for name, path in there.items():
        if len(name) == 64 and hashlib.sha256(path.read_bytes()).hexdigest() != name:
            yield Fault("damaged", f"the blob {name} was changed")


def inbox(home: Path) -> Iterator[Fault]:
    """Every accepted command was taken, and nobody holds a lease."""
    with closing(sqlite3.connect(home / DATABASE)) as connection:
        for (body,) in connection.execute("SELECT body FROM inbox WHERE body IS NOT NULL"):
            yield Fault("lost", f"a command was accepted, and nobody took it: {body[:200]!r}")
        for (holder,) in connection.execute("SELECT holder FROM leases WHERE holder IS NOT NULL"):
            yield Fault("left", f"a lease is still held by {holder!r}")


# --- what was acknowledged ----------------------------------------------------------------------


def acknowledged(rows: Sequence[Mapping[str, Any]], ran: Iterable[Ran]) -> Iterator[Fault]:
    """Every record that a command printed is in the journal in the same form, and each command printed a row of
    consecutive ones."""
    written = {row["seq"]: row for row in rows}
    for command in ran:
        before = 0
        for told in command.records:
            row = written.get(told["seq"])
            if before and told["seq"] != before + 1:
                yield Fault("lost", f"after record {before} it told record {told['seq']}")
            before = told["seq"]
            if row is None or row["type"] != told["type"]:
                yield Fault("lost", f"it told record {told['seq']} ({told['type']}), which is not there")
            elif row["type"] not in _FILLED_IN:
                differs = [name for name in row["body"] if not _is_told(name, row["body"], told)]
                if differs:
                    yield Fault("lost", f"record {told['seq']} was told with another {', '.join(differs)}")


def _is_told(name: str, body: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
    if name == "settings":
        return name in told
    if name == "result":  # its text may be told whole
        return bool(body[name]["status"] == told[name]["status"])
    return bool(body[name] == told.get(name))


def messages(rows: Sequence[Mapping[str, Any]], ran: Sequence[Ran]) -> Iterator[Fault]:
    """Each message that a command brought came once, as such or as the answer to a question; that of a killed command
    at most once."""
    came = Counter(body["text"] for body in bodies(rows, "MessageReceived"))
    brought = {command.says for command in ran}
    came.update(
        body["note"] for body in bodies(rows, "ApprovalResolved") if body.get("note") in brought - {""}
    )
    for command in ran:
        if command.says:
            count, is_accepted = came.pop(command.says, 0), command.code not in (2, 9)
            if count > 1:
                yield Fault("doubled", f"the message {command.says!r} came {count} times")
            elif not count and is_accepted and not command.was_killed:
                yield Fault("lost", f"the message {command.says!r} did not come")
    for text in came:
        yield Fault("unreported", f"nobody sent the message {text!r}")
    resolved = Counter(body["approval_id"] for body in bodies(rows, "ApprovalResolved"))
    for command in ran:
        if command.words[0] in ("approve", "deny") and not command.code and not resolved[command.words[1]]:
            yield Fault("lost", f"the decision of {command.words[1]} was acknowledged, and is not there")
    asked = Counter(body["approval_id"] for body in bodies(rows, "ApprovalRequested"))
    for counts, what in ((asked, "asked for"), (resolved, "decided")):
        for name, count in counts.items():
            if count > 1:
                yield Fault("doubled", f"{name} was {what} {count} times")


def runs(rows: Sequence[Mapping[str, Any]], ends: frozenset[str]) -> Iterator[Fault]:
    """Each run ends once, before the next one begins; the last one with an answer."""
    open_, last = 0, ""
    for row in rows:
        if row["type"] == "RunStarted":
            if open_:
                yield Fault("lost", f"run {open_} never ended")
            open_ = row["body"]["run"]
        elif row["type"] == "RunStopped":
            if row["body"]["run"] != open_:
                yield Fault("doubled", f"run {row['body']['run']} ended when run {open_} was open")
            open_, last = 0, row["body"]["status"]
            if last not in ends:
                yield Fault("code", f"a run ended {last}: {row['body'].get('reason')}")
    if open_:
        yield Fault("lost", f"run {open_} never ended")
    elif last != "done":
        yield Fault("code", f"the last run ended {last}")


# --- codes and times ----------------------------------------------------------------------------


def codes(
    rows: Sequence[Mapping[str, Any]], ran: Iterable[Ran], said: str, *, is_frozen: bool = False
) -> Iterator[Fault]:
    """No command hung or told a bug, and each that followed the session ended with the code of how it stood.

    While a process sleeps, another one may give up with 9, and say that the database is locked.
    """
    gave_up = 9 if is_frozen and _LOCKED.search(said) else 0
    for bug in _BUGS:
        if bug in said:
            yield Fault("code", f"a command told a bug: {said[said.index(bug) :][:2000]}")
    for command in ran:
        name = " ".join(command.words[:3])
        if command.hung:
            yield Fault("hang", f"{name} did not end")
        elif command.was_killed:
            if command.code not in (-9, *range(131)):
                yield Fault("code", f"{name} was killed and ended {command.code}")
        elif command.words[0] not in ("run", "resume"):
            if command.code not in (0, 1, 2, gave_up):
                yield Fault("code", f"{name} ended {command.code}")
        elif command.records:
            meant = code_at(rows, command.records[-1]["seq"])
            if command.code != meant:
                yield Fault("code", f"{name} ended {command.code}, and {meant} was meant")
        elif command.code in {8, 9} - {gave_up}:
            yield Fault("code", f"{name} ended {command.code}")


def code_at(rows: Sequence[Mapping[str, Any]], seq: int) -> int:
    """The exit code of a command that left a session as it stood at that record."""
    ended, asked, is_paused, is_parked = -1, set[str](), False, False
    for row in rows:
        if row["seq"] > seq:
            break
        body = row["body"]
        match row["type"]:
            case "RunStarted":
                ended, asked, is_paused = -1, set(), False
            case "RunStopped":
                is_down = body["status"] == "failed" and body["reason"] in _UNAVAILABLE
                is_spent = body["status"] == "limit" and body["reason"] == "cost"
                ended = 3 if is_spent else 7 if is_down else _CODES[body["status"]]
            case "RunPaused" | "RunResumed":
                is_paused = row["type"] == "RunPaused"
                is_parked = False
            case "ApprovalRequested":
                asked.add(body["approval_id"])
            case "ApprovalResolved":
                asked.discard(body["approval_id"])
            case "ModelCallFailed" | "ModelCallUnready":
                is_parked = bool(body.get("retry_at_ms"))
            case "ModelCallStarted":
                is_parked = False
    if ended >= 0:
        return ended
    return 5 if is_paused or asked else 7 if is_parked else 130


def times(rows: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """No length of time is negative, or longer than the driver was at work."""
    awake: dict[int, int] = {}
    for row in rows:
        at_ms, epoch = row["awake_ms"], row["epoch"]
        if at_ms < awake.get(epoch, 0):
            yield Fault("damaged", f"record {row['seq']} was written before the one before it")
        awake[epoch] = at_ms
        took_ms = row["body"].get("duration_ms", row["body"].get("result", {}).get("duration_ms", 0))
        if not 0 <= took_ms <= at_ms:
            yield Fault("damaged", f"record {row['seq']} tells of {took_ms} ms after {at_ms} ms at work")


# --- what is left -------------------------------------------------------------------------------


def leaks(evidence: Evidence) -> Iterator[Fault]:
    """No file of the home and no request has a secret that a tool read or a summary told."""
    secret = SECRET.encode()
    for path in evidence.home.rglob("*"):
        if path.is_file() and secret in path.read_bytes():
            yield Fault("leaked", f"{path.name} has the secret")
    for number, each in enumerate(evidence.served):
        if secret in each.body:
            yield Fault("leaked", f"request {number} has the secret")


def descriptors(seen: Sequence[tuple[int, int]]) -> Iterator[Fault]:
    """A driver holds no more files open at its last request than at its third, but for a few."""
    counts: dict[int, list[int]] = {}
    for pid, count in seen:
        counts.setdefault(pid, []).append(count)
    for pid, found in counts.items():
        if len(found) > 3 and found[-1] > max(found[2], AT_WORK) + 6:
            yield Fault("left", f"process {pid} holds more and more files open: {found}")


def left_over(evidence: Evidence, session: str) -> Iterator[Fault]:
    """No process that has to do with the folder, no keeper of a driver, no socket in the home, no half-written file,
    no foreign file open in a command."""
    home, workspace = evidence.home, evidence.workspace
    until_s = time.monotonic() + PATIENCE_S
    while (still := alive(str(evidence.folder), session, evidence.pids)) and time.monotonic() < until_s:
        time.sleep(0.05)
    for pid, words in still:
        yield Fault("left", f"process {pid} is left: {words}")
    if (home / "run").is_dir():
        for path in (home / "run").iterdir():
            yield Fault("left", f"a socket is left: {path.name}")
    for path in workspace.rglob(".holdfast-*"):
        yield Fault("left", f"a half-written file is left: {path}")
    log = workspace / OPEN_FILES
    for line in log.read_text().splitlines() if log.exists() else ():
        if DATABASE in line or "socket:" in line or str(home) in line:
            yield Fault("left", f"a command has a file of its driver open: {line}")


def alive(folder: str, session: str = "", drivers: Collection[int] = ()) -> list[tuple[int, str]]:
    """The processes that work below the folder or for the session, know of either, or keep trees of these drivers;
    and their words."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            cwd = str((entry / "cwd").readlink())
            words, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        keeps = b"keeper_child.py\0" in words and {int(w) for w in words.split(b"\0") if w.isdigit()} & set(
            drivers
        )
        knows = folder.encode() in words + environ or (session and session.encode() in words + environ)
        if cwd.startswith(folder) or knows or keeps:
            found.append((int(entry.name), words.decode(errors="replace")[:200]))
    return found
