"""`holdfast show`: every view of a session, and what it does with names, damage and hostile text."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import termios
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.protocol.codec import StoredRecord, chain_link, digest_of
from holdfast.protocol.events import (
    MessageReceived,
    ModelCallAbandoned,
    SessionOpened,
    ToolCallRefused,
)
from holdfast.protocol.failures import Failure
from holdfast.protocol.ids import trace_id
from holdfast.protocol.messages import ToolCall
from holdfast.protocol.rows import Commit
from holdfast.storage.blobs import blob_path
from holdfast.storage.home import BLOBS
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.driving import drive
from holdfast.views.lines import cells
from tests.cli.conftest import WHOLE_OUTPUT, Filled, Holdfast
from tests.edge import nursery
from tests.views.journals import OUTPUT, Book, a_finished_run, answer, said, write

AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
def show(holdfast: Holdfast, home: Filled) -> Any:
    """Runs `show` on the finished session."""
    return lambda *flags: holdfast("show", home.finished, *flags, "--home", str(home.folder))


@pytest.mark.requirement("L8")
def test_the_exact_bytes_of_every_attempt_are_printed(home: Filled) -> None:
    for number, body in enumerate(home.book.bodies, 1):
        words = ("show", "cli:demo", "--request", str(number), "--home", str(home.folder))
        child = nursery.run(words, cwd=".", env=environ(), timeout=120)
        assert (child.returncode, child.stdout) == (0, body)
    assert len(home.book.bodies) == 4, "the retry counts"


def test_a_request_that_is_not_there_is_exit_2(show: Any) -> None:
    answer = show("--request", "5")
    assert (answer.code, answer.out) == (2, "")
    assert "sent 4" in answer.err


@pytest.mark.requirement("L8", "L7")
def test_a_request_whose_bytes_were_lost_is_exit_9(show: Any, home: Filled) -> None:
    request = show("--events", "--json").rows[5]["body"]
    blob_path(home.folder / BLOBS, request["request"]["base"]).unlink()
    answer = show("--request", "1", "--json")
    assert answer.code == 9
    assert answer.rows[0]["error"]["code"] == "storage_corrupt"


@pytest.mark.requirement("L8")
def test_events_are_one_complete_record_a_line(show: Any, home: Filled) -> None:
    rows = show("--events", "--json").rows
    assert [row["type"] for row in rows] == [type(event).__name__ for event in home.book.events]
    assert [row["seq"] for row in rows] == list(range(1, 19))
    assert all(AT.fullmatch(row["at"]) and row["v"] == 1 for row in rows)
    assert {row["trace_id"] for row in rows} == {trace_id(home.finished, 1)}
    assert rows[1]["body"] == {"text": 'mend the "failing" test', "sender": "cli:root"}


@pytest.mark.requirement("L8")
def test_text_that_is_kept_by_reference_is_filled_in(show: Any, home: Filled) -> None:
    rows = show("--events", "--json").rows
    result = rows[10]["body"]["result"]
    assert (result["text"], result["full_text"]) == (OUTPUT, WHOLE_OUTPUT.decode())
    added = [each["piece"] for row in rows for each in row["body"].get("request", {}).get("rest", ())]
    settings = rows[4]["body"]["settings"]
    assert settings["limits"] == {"type": "limits", "cost_microusd": 50_000}
    assert settings["model"]["facts"]["model"] == "gpt-5.5"
    assert added[0] == '{"role":"user","content":"mend the \\"failing\\" test"}'
    assert ",".join(added).encode() in home.book.bodies[-1]


@pytest.mark.requirement("L7")
def test_a_lost_output_does_not_hide_the_other_records(show: Any, home: Filled) -> None:
    blob = show("--events", "--json").rows[10]["body"]["result"]["blob"]
    blob_path(home.folder / BLOBS, blob).unlink()
    answer = show("--events", "--json")
    assert (answer.code, len(answer.rows)) == (0, 18)
    assert answer.rows[10]["body"]["result"]["full_text"] is None
    assert "is missing" in answer.err


@pytest.mark.requirement("L8")
def test_every_tool_call_is_shown_with_parameters_duration_and_result(show: Any) -> None:
    first, second = show("--tools", "--json").rows
    assert (first["name"], first["arguments"], first["duration_ms"]) == ("read_file", '{"path":"a.py"}', 250)
    assert (first["status"], first["text"], first["repeat"], second["repeat"]) == ("ok", OUTPUT, 1, 2)
    plain = show("--tools").out
    assert "t2.c1  read_file  ok" in plain
    assert "│ line 1" in plain
    assert "... 5 more lines" in plain


@pytest.mark.requirement("L8")
def test_attempts_are_listed_with_what_became_of_them(show: Any) -> None:
    rows = show("--requests", "--json").rows
    assert [(row["number"], row["turn"], row["attempt"], row["status"]) for row in rows] == [
        (1, 1, 1, "failed"),
        (2, 1, 2, "answered"),
        (3, 2, 1, "answered"),
        (4, 3, 1, "answered"),
    ]
    assert rows[1]["usage"]["output_tokens"] == 50
    assert rows[1]["cost_usd"] == "0.0014"
    assert "Too many requests.; retried after" in show("--requests").out
    assert "rate_limited" not in show("--requests").out


@pytest.mark.requirement("B7")
def test_money_is_told_for_each_turn(show: Any) -> None:
    rows = show("--cost", "--json").rows
    assert [(row["turn"], row["model_calls"], row["spent_usd"], row["left_usd"]) for row in rows] == [
        (1, 2, "0.0014", "0.0486"),
        (2, 1, "0.0014", "0.0472"),
        (3, 1, "0.0014", "0.0458"),
    ]
    assert rows[-1]["forecast_turns"] == 458 * 3 // 42
    assert "total $0.0042 of $0.0500; 3,150 of 5,000,000 tokens" in show("--cost").out


@pytest.mark.requirement("B7")
def test_the_timeline_draws_turns_calls_repeats_and_cost(show: Any) -> None:
    title, task, *bars, stopped, _ = show("--timeline").out.split("\n")[:-1]
    assert "3 turns · 4 model calls · 2 tool calls · 1 repeat · 0.0s · $0.0042" in title
    assert 'mend the "failing" test' in task
    drawn = [re.match(r"(?:turn (\d))? +(\S+) +([█▏▎▍▌▋▊▉]+) +[\d.]+s  (.*)", bar) for bar in bars]
    assert [(bar[1], bar[2]) for bar in drawn if bar] == [
        ("1", "model"),
        (None, "model"),
        (None, "read_file"),
        ("2", "model"),
        (None, "read_file"),
        ("3", "model"),
    ]
    assert "↻ 2" in bars[4]
    assert stopped == "  ■ done: answered"
    rows = show("--timeline", "--json").rows
    assert [(row["turn"], row["repeats"], row["cost_usd"]) for row in rows] == [
        (1, 0, "0.0014"),
        (2, 1, "0.0014"),
        (3, 0, "0.0014"),
    ]


@pytest.mark.requirement("L8")
def test_the_default_view_says_where_it_stands_and_what_was_said(show: Any, home: Filled) -> None:
    out = show().out
    assert out.startswith(f"{home.finished}  cli:demo  done  (answered)\n")
    assert f'next      holdfast resume {home.finished} "TEXT"' in out
    assert f"trace     {trace_id(home.finished, 1)}" in out
    assert "3 turns, 4 model calls, 2 tool calls, 3,000 tokens in, 150 out, $0.0042" in out
    order = [
        'mend the "failing" test',
        "Too many requests",
        "I look.",
        "→ read_file",
        "│ line 1",
        "Mended:",
        "done",
    ]
    places = [out.index(words, out.index("run 1")) for words in order]
    assert places == sorted(places)
    assert "\x1b" not in out
    told = show("--json").rows[0]
    assert (told["text"], told["status"], told["records"]) == ("Mended: the sign was wrong.", "done", 18)


@pytest.mark.requirement("L8", "L12")
def test_a_session_is_found_by_any_of_its_names(holdfast: Holdfast, home: Filled) -> None:
    names = (
        home.finished,
        home.finished.lower(),
        home.finished[:12],
        "cli:demo",
        trace_id(home.finished, 1),
    )
    found = {
        holdfast("show", name, "--json", "--home", str(home.folder)).rows[0]["session"] for name in names
    }
    assert found == {home.finished}
    last = holdfast("show", "last", "--json", "--home", str(home.folder))
    assert last.rows[0]["session"] == home.waiting
    several = holdfast("show", home.finished[:8], "--home", str(home.folder))
    assert several.code == 2
    assert home.finished in several.err
    assert home.waiting in several.err


@pytest.mark.parametrize("name", ["", "../etc/passwd", "cli:", "last'; DROP TABLE", "x" * 5_000, "0" * 32])
@pytest.mark.requirement("A5", "L12")
def test_a_name_that_is_none_finds_nothing(holdfast: Holdfast, home: Filled, name: str) -> None:
    assert holdfast("show", name, "--home", str(home.folder)).code == 2


def test_two_views_at_once_are_refused(show: Any) -> None:
    assert "--tools and --cost cannot be combined" in show("--tools", "--cost").err


@pytest.mark.parametrize("flags", [(), ("--events",), ("--events", "--json"), ("--json",), ("--timeline",)])
def test_stored_text_cannot_act_on_the_terminal(
    holdfast: Holdfast, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    hostile = "\x1b]0;title\x07\x1b[2Jcleared\x9b31m\u202egnp.exe\r\x08 \u2066x"

    def book_of(session: str) -> Book:
        book = Book()
        seq = book.add(SessionOpened(session), MessageReceived(hostile, hostile))
        book.request("t1.a1", 1, 1, said(seq), model=hostile)
        return book

    async def fill() -> None:
        store = SqliteStore.open(tmp_path / "h")
        await write(store, 1, book_of, "new")
        await store.aclose()

    asyncio.run(fill())
    answer = holdfast("show", "last", *flags, "--home", str(tmp_path / "h"))
    assert answer.code == 0
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", answer.out)


@pytest.mark.requirement("L8")
def test_a_record_of_a_newer_version_does_not_hide_the_others(holdfast: Holdfast, tmp_path: Path) -> None:
    async def fill() -> None:
        store = SqliteStore.open(tmp_path / "h")
        driving, _ = await write(store, 1, a_finished_run, "done")
        stored = (await store.read(driving.session))[-1]
        body, seq = b'{"what":"never seen"}', stored.seq + 1
        link = chain_link(
            stored.link, seq, stored.at_ms, 0, 1, "command test", "DreamDreamt", 7, digest_of(body)
        )
        newer = StoredRecord(
            driving.session, seq, stored.at_ms, 0, 1, "command test", "DreamDreamt", 7, body, link
        )
        again = await drive(store, 1)
        row = await store.session(driving.session)
        assert row is not None
        row = msgspec.structs.replace(row, seq=seq)
        await store.commit(
            Commit(driving.session, again.lease.epoch, stored.seq, (newer,), row, stored.at_ms)
        )
        await store.aclose()

    asyncio.run(fill())
    answer = holdfast("show", "last", "--events", "--json", "--home", str(tmp_path / "h"))
    assert (answer.code, "newer version" in answer.err) == (0, True)
    assert [answer.rows[-1][name] for name in ("seq", "type", "v", "body")] == [
        19,
        "DreamDreamt",
        7,
        {"what": "never seen"},
    ]
    assert "Mended" in holdfast("show", "last", "--home", str(tmp_path / "h")).out


def environ() -> dict[str, str]:
    """The environment without the width of a terminal, and without what only concerns how Python starts."""
    return {name: each for name, each in os.environ.items() if not name.startswith(("COLUMNS", "PYTHON"))}


def at_a_terminal(width: int, *arguments: str) -> list[str]:
    """The lines that a command writes to a terminal of that width."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, width))
    with nursery.start(
        arguments, stdin=theirs, stdout=theirs, stderr=theirs, cwd=".",
        env=environ() | {"TERM": "xterm", "NO_COLOR": "1"},
    ) as child:  # fmt: skip
        os.close(theirs)
        out = b""
        with contextlib.suppress(OSError):  # how a pseudo-terminal ends
            while piece := os.read(ours, 65_536):
                out += piece
        assert child.wait(timeout=120) < 9
    os.close(ours)
    return out.decode().replace("\r\n", "\n").split("\n")


@pytest.mark.parametrize(
    "command", ["show cli:demo", "sessions", "approvals", "doctor", "init --help", "replay nobody:here"]
)
def test_no_line_is_wider_than_the_terminal(holdfast: Holdfast, home: Filled, command: str) -> None:
    lines = at_a_terminal(40, *command.split(), "--home", str(home.folder))
    assert any(line.strip() for line in lines)
    for line in lines:
        is_copied_whole = "holdfast " in line or len((line.split() or [""])[-1]) > 20
        assert cells(line) <= 40 or is_copied_whole, line


@pytest.mark.parametrize(
    ("variables", "is_coloured"), [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)]
)
def test_colour_is_for_terminals(home: Filled, variables: dict[str, str], is_coloured: bool) -> None:
    ours, theirs = pty.openpty()
    command = ["show", "cli:demo", "--timeline", "--home", str(home.folder)]
    with nursery.start(command, stdout=theirs, stderr=theirs, cwd=".", env=variables) as child:
        os.close(theirs)
        out = b""
        # A pseudo-terminal whose other end is closed is an error to read, not an end.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65_536):
                out += piece
        assert child.wait(timeout=120) == 0
    os.close(ours)
    assert "█" in out.decode()
    assert bool(re.search(rb"\x1b\[(?:\d+;)*3[0-7]m", out)) == is_coloured


@pytest.mark.requirement("L8")
def test_what_a_crash_left_open_is_shown_as_held(holdfast: Holdfast, tmp_path: Path) -> None:
    def book_of(session: str) -> Book:
        book = a_finished_run(session)
        del book.events[-2:]
        book.add(ModelCallAbandoned("t3.a1"))
        return book

    async def fill() -> None:
        store = SqliteStore.open(tmp_path / "h")
        await write(store, 1, book_of, "parked")
        await store.aclose()

    asyncio.run(fill())
    row = holdfast("show", "last", "--cost", "--json", "--home", str(tmp_path / "h")).rows[-1]
    assert (row["spent_usd"], row["held_usd"], row["left_usd"]) == ("0.00", "0.009", "0.0382")
    plain = holdfast("show", "last", "--cost", "--home", str(tmp_path / "h")).out
    assert "$0.0090 reserved for model calls with an unknown outcome" in plain
    assert "enough for about" in plain


@pytest.mark.requirement("L8")
def test_calls_that_never_ran_are_told_apart_from_those_that_were_started(
    holdfast: Holdfast, tmp_path: Path
) -> None:
    def book_of(session: str) -> Book:
        book = a_finished_run(session)
        proposed = ToolCall("c", "shell", '{"command":"halt"}', "t3.c1")
        book.events[-2] = answer("t3.a1", proposed)
        book.events.insert(-1, ToolCallRefused("t3.c1", "shell", Failure("policy_denied", "Never.")))
        return book

    async def fill() -> None:
        store = SqliteStore.open(tmp_path / "h")
        await write(store, 1, book_of, "done")
        await store.aclose()

    asyncio.run(fill())
    home = ("--home", str(tmp_path / "h"))
    assert holdfast("show", "last", "--json", *home).rows[0]["tool_calls"] == 2
    assert "4 model calls, 2 tool calls (1 refused), " in holdfast("show", "last", *home).out
    assert "4 model calls · 2 tool calls (1 refused) · " in holdfast("show", "last", "--timeline", *home).out
