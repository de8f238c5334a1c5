"""Journals for the tests of the reading commands: built event by event, with requests that add up."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from holdfast.protocol.codec import json_text
from holdfast.protocol.events import (
    ApprovalRequested,
    Attached,
    Event,
    MessageReceived,
    ModelCallFailed,
    ModelCallStarted,
    Responded,
    RunStarted,
    RunStopped,
    SessionOpened,
    SettingsStored,
    ToolCallFinished,
    ToolCallStarted,
)
from holdfast.protocol.failures import Failure
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Text, ToolCall, Usage
from holdfast.protocol.ports import Store
from holdfast.protocol.request import Fresh, Piece, Request
from holdfast.protocol.rows import SessionStatus
from holdfast.protocol.settings import groups_of, ref_of, settings_with
from holdfast.protocol.tools import CallResult
from holdfast.testing.driving import Driving, drive

BASE = b'{"model":"m","messages":['
TAIL = '],"stream":true}'
FACTS = ModelFacts("openai", "gpt-5.5", input_microusd_per_mtok=1_000_000, output_microusd_per_mtok=8_000_000)
SETTINGS = settings_with(FACTS, "workspace", cost_microusd=50_000)
TASK = 'mend the "failing" test'
STARTED = (SettingsStored(groups_of(SETTINGS)), RunStarted(1, ref_of(SETTINGS)))
OUTPUT = "\n".join(f"line {number}" for number in range(1, 10))


@dataclass
class Book:
    """A journal that is being written, and the bodies of the requests in it."""

    events: list[Event] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    _fragments: list[bytes] = field(default_factory=list)

    def add(self, *events: Event) -> int:
        """Append events; the seq of the last."""
        self.events += events
        return len(self.events)

    def request(self, key: str, turn: int, attempt: int, *pieces: Piece, **changes: Any) -> None:
        """Append the intent of an attempt that adds these messages to the last request."""
        texts = {seq: text for seq, event in enumerate(self.events, 1) if (text := text_of_event(event))}
        new = [
            b"".join(json_text(texts[p]) if isinstance(p, int) else p.encode() for p in piece)
            for piece in pieces
        ]
        keep = len(self._fragments)
        self._fragments += new
        body = BASE + b",".join(self._fragments) + TAIL.encode()
        self.bodies.append(body)
        self.add(
            ModelCallStarted(
                **{
                    "key": key, "epoch": 1, "turn": turn, "attempt": attempt, "model": FACTS.name,
                    "request": Request(
                        "openai", hashlib.sha256(BASE).hexdigest(), keep, TAIL,
                        hashlib.sha256(body).hexdigest(), len(body), expected_tokens=100,
                        output_cap_tokens=1000, reserved_tokens=1100, reserved_microusd=9_000,
                        rest=tuple(Fresh("u", len(self.events), piece) for piece in pieces),
                    ),
                } | changes
            )
        )  # fmt: skip


def text_of_event(event: Event) -> str:
    """The text that a request may quote."""
    match event:
        case MessageReceived(text=text):
            return text
        case ToolCallFinished(result=result):
            return result.text
    return ""


def said(seq: int) -> Piece:
    """A user's message that quotes a record."""
    return ('{"role":"user","content":"', seq, '"}')


def told(seq: int) -> Piece:
    """A tool's message that quotes a record."""
    return ('{"role":"tool","content":"', seq, '"}')


def answer(key: str, *parts: Text | ToolCall, output_tokens: int = 50) -> Responded:
    """A response that cost 1,000 + 8 x its output micro-dollars."""
    usage = Usage(1_000, output_tokens)
    finish = "tool_calls" if any(isinstance(part, ToolCall) for part in parts) else "stop"
    return Responded(key, parts, usage, 1_000 + 8 * output_tokens, finish, duration_ms=1_200)


def call(book: Book, call_id: str, result: CallResult, arguments: str = '{"path":"a.py"}') -> int:
    """A read that was let through and done; the seq of its result."""
    book.add(ToolCallStarted(call_id, "read_file", 1, 1, "read", "rerun", 30.0, arguments))
    return book.add(ToolCallFinished(call_id, result))


def a_finished_run(session: str, blob: str = "") -> Book:
    """A run of three turns: a retry, the same call twice with the same result, then an answer."""
    book = Book()
    task = book.add(SessionOpened(session, "cli:demo", "cli:root"), MessageReceived(TASK, "cli:root"))
    book.add(Attached(1, "host"), *STARTED)
    book.request("t1.a1", 1, 1, said(task))
    book.add(ModelCallFailed("t1.a1", Failure("rate_limited", "Too many requests."), retry_at_ms=1))
    book.request("t1.a2", 1, 2)
    book.add(answer("t1.a2", Text("I look."), ToolCall("c", "read_file", '{"path":"a.py"}', "t1.c1")))
    clipped = CallResult("ok", OUTPUT, blob=blob, output_chars=100_000, duration_ms=250)
    first = call(book, "t1.c1", clipped)
    book.request("t2.a1", 2, 1, told(first))
    book.add(answer("t2.a1", ToolCall("c", "read_file", '{"path":"a.py"}', "t2.c1")))
    second = call(book, "t2.c1", clipped)
    book.request("t3.a1", 3, 1, told(second))
    book.add(answer("t3.a1", Text("Mended: the sign was wrong.")), RunStopped(1, "done", "answered"))
    return book


def a_waiting_run(session: str) -> Book:
    """A run at rest: a person has to allow a command."""
    book = Book()
    task = book.add(SessionOpened(session), MessageReceived("clean up"))
    book.add(Attached(1), *STARTED)
    book.request("t1.a1", 1, 1, said(task))
    arguments = '{"command":"rm -rf build"}'
    book.add(answer("t1.a1", ToolCall("c", "shell", arguments, "t1.c1")))
    book.add(ApprovalRequested(f"{session}-1", "t1.c1", "shell", arguments, "0" * 64, 2_000_000_000_000))
    return book


async def write(
    store: Store, number: int, book_of: Any, status: SessionStatus, key: str = ""
) -> tuple[Driving, Book]:
    """Commit a book as a session, which then has that status."""
    driving = await drive(store, number, key)
    await store.blobs.put(BASE)
    book: Book = book_of(driving.session)
    commit = await driving.commit(*book.events, releases_lease=True)
    assert commit.row.status == status, commit.row.status
    return driving, book
