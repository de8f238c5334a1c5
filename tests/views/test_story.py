"""What the views make of records: durations, statuses, and the picture of a session over time."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast.core.state import State
from holdfast.protocol.approvals import ApprovalResolved
from holdfast.protocol.events import (
    Attached,
    ContextCompacted,
    ContextRestored,
    MessageReceived,
    ModelCallAbandoned,
    ModelCallStarted,
    Record,
    SessionOpened,
    ToolCallAbandoned,
    ToolCallStarted,
    Trigger,
    ViewPart,
)
from holdfast.protocol.messages import ToolCall
from holdfast.protocol.rows import SessionRow
from holdfast.views.events_view import event_lines
from holdfast.views.happenings import Happenings
from holdfast.views.lines import cells, wrapped
from holdfast.views.stored import StoredSession
from holdfast.views.story import story
from holdfast.views.tables import call_lines, call_rows, cost_lines, request_lines, request_rows
from holdfast.views.timeline import timeline_lines, timeline_rows
from holdfast.views.transcript import transcript_lines
from tests.views.journals import STARTED, Book, a_finished_run, a_waiting_run, answer, said


def plain(lines: Any) -> str:
    """Lines for people, as a pipe shows them."""
    return "\n".join("".join(getattr(span, "text", span) for span in line) for line in lines)


@pytest.mark.requirement("B7")
def test_a_wait_overnight_does_not_squeeze_the_picture() -> None:
    records, at_ms = [], 0
    for seq, event in enumerate(a_finished_run("S").events, 1):
        at_ms += 8 * 3_600_000 if seq == 12 else 1_000
        records.append(Record("S", seq, at_ms, 1, Trigger("command", "test"), event))
    lines = ["".join(getattr(s, "text", s) for s in line) for line in timeline_lines(story(records), 100)]
    assert any("idle for 8h 00m" in line for line in lines)
    bars = [line.count("█") for line in lines if line.startswith("turn")]
    assert min(bars) >= 2, lines


def test_a_call_that_is_allowed_waits_until_it_starts() -> None:
    book = a_waiting_run("S")
    book.add(ApprovalResolved("S-1", "approve", "cli:ann"))
    records = [Record("S", seq, seq, 1, Trigger("command", "c"), e) for seq, e in enumerate(book.events, 1)]
    (row,) = call_rows(story(records))
    assert row["status"] == "waiting"
    assert "ann" in row["decision"]


@pytest.mark.requirement("L8")
def test_no_duration_is_told_of_what_nobody_saw_end() -> None:
    book = Book()
    task = book.add(SessionOpened("S"), MessageReceived("go"))
    book.add(Attached(1), *STARTED)
    book.request("m1", 1, 1, said(task))
    book.add(answer("m1", ToolCall("c", "shell", '{"command":"make"}', "t1.c1")))
    book.add(ToolCallStarted("t1.c1", "shell", 1, 1, "exec", "unknown", 120.0))
    alive = book.add(MessageReceived("and hurry"))
    book.add(Attached(2), ToolCallAbandoned("t1.c1", "Nobody knows."))
    book.request("m2", 2, 1, said(task), epoch=2)
    killed = book.add(Attached(3), ModelCallAbandoned("m2"))
    night_ms = 8 * 3_600_000
    records = [
        Record(
            "S", seq, seq * 1_000 + (night_ms if seq > alive else 0), 1 + (seq > alive) + (seq >= killed),
            Trigger("command", "c"), e,
        )
        for seq, e in enumerate(book.events, 1)
    ]  # fmt: skip
    told = story(records)
    assert "abandoned" in plain(call_lines(told, 100))
    (row,) = call_rows(told)
    assert (row["status"], row["duration_ms"], row["attempts"]) == ("abandoned", None, 1)
    assert row["ended_at"] == f"1970-01-01T00:00:{alive:02d}.000Z", "when it was last seen at work"
    drawn = [line for line in plain(timeline_lines(told, 100)).split("\n") if re.search("[█▏▎▍▌▋▊▉]", line)]
    assert len(drawn) == 3
    for shown in (plain(call_lines(told, 100)), plain(request_lines(told, 100)), *drawn):
        assert not re.search(r"\b0\.0s|8h", shown), shown
    (first, second) = timeline_rows(told)
    assert (first["tool_calls"][0]["duration_ms"], second["model_calls"][0]["duration_ms"]) == (None, None)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_of_a_view_is_wider_than_the_terminal(width: int) -> None:
    made = enumerate(a_finished_run("S").events, 1)
    records = [Record("S", seq, 1_750_000_000_000 + seq * 700, 1, "test", event) for seq, event in made]
    session, told = (
        StoredSession(SessionRow("S", model="a:b", workspace="/w" * 30), [], records),
        story(records),
    )
    views = [view(told, width) for view in (request_lines, call_lines, timeline_lines, cost_lines)]
    views += [transcript_lines(session, width), event_lines(session, width)]
    for lines in views:
        pieces = [plain([piece]) for line in lines for piece in wrapped(line, width)]
        assert pieces
        assert [text for text in pieces if cells(text) > width and len(text.split()) > 2] == []


@pytest.mark.requirement("B7")
def test_no_length_of_time_is_negative_when_the_clock_goes_back() -> None:
    book = a_finished_run("S")
    records = [
        Record("S", seq, 9_000_000 - seq * 60_000, 1, "test", event)
        for seq, event in enumerate(book.events, 1)
    ]
    told = story(records)
    assert all(attempt.duration_ms == 0 for attempt in told.attempts)
    for lines in (timeline_lines, call_lines, request_lines):
        assert not re.search(r"-\d", re.sub(r"\d{4}-\d\d-\d\d", "", plain(lines(told, 100))))
    rows = [*timeline_rows(told), *call_rows(told)]
    assert min(row["duration_ms"] for row in rows if row["duration_ms"] is not None) >= 0


@pytest.mark.requirement("L8", "H6")
def test_what_a_full_window_leaves_out_is_shown_where_it_begins_and_ends() -> None:
    book = a_finished_run("S")
    starts = [at for at, event in enumerate(book.events) if isinstance(event, ModelCallStarted)]
    book.events.insert(starts[3], ContextRestored("cli:ann"))
    part = ViewPart("head", "Some are left out.")
    book.events.insert(
        starts[1], ContextCompacted("full", ((3, 4), (6, 6)), 7, (part,), "data", 9, 3, 90, 30)
    )
    records = [Record("S", seq, seq * 1_000, 1, Trigger("attach"), e) for seq, e in enumerate(book.events, 1)]
    told = story(records)
    full = "the view was compacted: the model no longer sees records 3 to 4, record 6"
    *_, begins, ends = request_lines(told, 100)
    assert plain([begins]) == f"from request 2 on, {full}"
    assert plain([ends]) == "from request 4 on, the model sees the whole conversation again"
    assert [row["left_out"] for row in request_rows(told)] == [[], [[3, 4], [6, 6]], [[3, 4], [6, 6]], []]
    session = StoredSession(SessionRow("S"), [], records)
    transcript = plain(transcript_lines(session, 100))
    assert transcript.count(full) == 1
    assert transcript.index(full) < transcript.index("sees the whole conversation again")
    live = Happenings(State())
    lines = [plain([line]).strip() for record in records for line in live.lines(record, 100)]
    assert [line for line in lines if "the model" in line] == [
        f"! {full}", "! the model sees the whole conversation again",
    ]  # fmt: skip
