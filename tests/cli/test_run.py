"""`holdfast run`, as a process of its own: what goes where, how it ends, and what it goes on with."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.outcome import exit_code
from holdfast.testing.model_replies import Reply, ReplyCall
from holdfast.testing.model_server import ModelServer
from holdfast.views.lines import moment
from tests.cli.processes import SLOW, Cli, calls, is_running, says

PRICED = """
[providers.openai]
base_url = "{url}"
[catalog."openai:priced"]
input_usd_per_mtok = 1000.0
output_usd_per_mtok = 1000.0
context_tokens = 100000
"""


# --- what goes where ----------------------------------------------------------------------------


@pytest.mark.requirement("B1")
def test_the_answer_alone_goes_to_stdout_and_progress_to_stderr(cli: Cli) -> None:
    model = cli.model(
        says("I look.", **calls("list_dir")),
        calls("write_file", path="a.txt", content="x"),
        says("All done."),
    )
    ended = cli("run", "do it", "-m", model)
    assert (ended.code, ended.out) == (0, "All done.\n")
    assert "✓ write_file a.txt" in ended.err
    assert "done · 3 turns · 2 tool calls" in ended.err
    assert (cli.workspace / "a.txt").read_text() == "x"


@pytest.mark.requirement("B8", "L1")
def test_an_answer_in_several_parts_is_told_as_one(cli: Cli) -> None:
    model = cli.model(says("Hello, ", finish="length"), says("wor", finish="length"), says("ld."))
    ended = cli("run", "greet", "-m", model)
    assert (ended.code, ended.out) == (0, "Hello, world.\n")
    assert "the answer reached the output limit, and the model goes on with it" in ended.err
    model = cli.model(says("Hello, ", finish="length"), says("world."))
    answer = cli("run", "greet", "-m", model, "--json").json
    assert (answer["text"], answer["reason"], answer["turns"]) == ("Hello, world.", "answer", 2)


def test_json_is_one_object_as_pinned(cli: Cli) -> None:
    model = cli.model(calls("list_dir"), says("Fine.", usage={"input_tokens": 7, "output_tokens": 3}))
    answer = cli("run", "look", "-m", model, "--json").json
    assert list(answer) == [
        "session", "status", "reason", "text", "turns", "model_calls", "tool_calls", "usage", "cost_usd",
        "trace_id", "resume", "message",
    ]  # fmt: skip
    assert list(answer["usage"]) == [
        "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
    ]  # fmt: skip
    counts = (answer["turns"], answer["model_calls"], answer["tool_calls"])
    assert (answer["status"], answer["text"], counts) == ("done", "Fine.", (2, 2, 1))
    assert (answer["resume"], answer["cost_usd"], len(answer["trace_id"])) == (None, "0.00", 32)


@pytest.mark.requirement("L2-06")
def test_a_stream_of_json_holds_every_event_in_order_and_the_crumbs_of_every_text(cli: Cli) -> None:
    model = cli.model(says("one two three four", chunks=4))
    ended = cli("run", "count", "-m", model, "--stream-json")
    rows = [json.loads(line) for line in ended.out.splitlines()]
    events = [row for row in rows if "delta" not in row]
    assert [row["seq"] for row in events] == list(range(1, len(events) + 1))
    assert (events[0]["type"], events[-1]["type"], events[-1]["status"]) == (
        "SessionOpened",
        "RunStopped",
        "done",
    )
    assert all(row["at"].endswith("Z") for row in events)
    crumbs = [row["delta"] for row in rows if "delta" in row]
    assert len(crumbs) > 1
    assert "one two three four".startswith("".join(crumbs))


def test_the_task_may_come_from_stdin(cli: Cli) -> None:
    model = cli.model(says("Read.", when="from the pipe"))
    assert cli("run", "-", "-m", model, stdin="this came from the pipe").out == "Read.\n"


def test_it_is_said_once_a_run_that_tools_have_the_users_own_rights(cli: Cli) -> None:
    model = cli.model(says("Hi.", repeat=True))
    assert cli("run", "hi", "-m", model).err.count("no sandbox") == 1
    cli.configure('[sandbox]\nmode = "unsafe"\n')
    assert cli("run", "hi", "-m", model).err.count("no sandbox") == 1
    cli.configure('[sandbox]\nmode = "auto"\n')
    assert "no sandbox" not in cli("run", "hi", "-m", model).err


async def test_a_run_over_http_does_real_work_on_real_files(cli: Cli) -> None:
    replies = [
        Reply(text="First.", tool_calls=(ReplyCall("write_file", {"path": "a/b.txt", "content": "hello"}),)),
        Reply(text="It is written.", pieces=3),
    ]
    async with ModelServer(replies) as server:
        cli.environ |= {"OPENAI_BASE_URL": server.openai_url}
        answer = await _in_thread(cli, "run", "write it", "-m", "openai:any", "--json")
        assert len(server.requests) == 2
    assert (answer.json["text"], answer.json["usage"]["input_tokens"]) == ("It is written.", 20)
    assert (cli.workspace / "a" / "b.txt").read_text() == "hello"


# --- exit codes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        ("done", "answer", 0),
        ("done", "length", 0),
        ("failed", "provider_fatal", 1),
        ("failed", "empty_response", 1),
        ("failed", "provider_transient", 7),
        ("failed", "rate_limited", 7),
        ("failed", "provider_refused", 7),
        ("limit", "cost", 3),
        ("limit", "turns", 4),
        ("limit", "tokens", 4),
        ("limit", "wall", 4),
        ("waiting", "approval", 5),
        ("waiting", "question", 5),
        ("waiting", "paused", 5),
        ("stuck", "repeat", 6),
        ("parked", "rate_limited", 7),
        ("interrupted", "stopped", 130),
    ],
)
def test_every_ending_has_its_exit_code(status: str, reason: str, code: int) -> None:
    assert exit_code(status, reason) == code


@pytest.mark.requirement("C15", "L7")
def test_a_script_that_has_no_line_left_ends_failed_with_a_trace_id_and_the_next_command(cli: Cli) -> None:
    ended = cli("run", "go", "-m", cli.model(calls("list_dir")))
    assert ended.code == 1
    assert ended.out == ""
    assert "trace " in ended.err
    assert "holdfast resume " in ended.err


@pytest.mark.requirement("L9", "C15")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "x"), "No model was given, and none is configured"),
        (("run", "x", "-m", "nonsense"), "must be PROVIDER:MODEL"),
        (("run", "x", "-m", "nowhere:model"), "nowhere"),
        (("run", "x", "-m", "anthropic:claude-sonnet-5"), "ANTHROPIC_API_KEY"),
        (("run", "x", "-m", "script:/missing.jsonl"), "missing.jsonl"),
        (("run", "x", "-m", "MODEL", "--max-turns", "0"), "--max-turns: limits.turns"),
        (("run", "x", "-m", "MODEL", "--max-turns", "1000000"), "--max-turns: limits.turns"),
        (("run", "x", "-m", "MODEL", "--timeout", "-1"), "--timeout: limits.wall"),
        (("run", "x", "-m", "MODEL", "--timeout", "0"), "--timeout: limits.wall"),
        (("run", "x", "-m", "MODEL", "--budget", "free"), "--budget: limits.cost_usd"),
        (("run", "x", "-m", "MODEL", "--autonomy", "wild"), "--autonomy: autonomy"),
        (("run", "x", "-m", "MODEL", "--posture", "lazy"), "there is no such posture"),
        (("run", "x", "-m", "MODEL", "-w", "nowhere"), "not a folder"),
        (("run", "x", "-m", "MODEL", "--system", "nowhere.txt"), "--system nowhere.txt"),
        (("run", "x", "-m", "MODEL", "-s", "no such"), "no such"),
        (("run", "x", "-m", "MODEL", "--until-done"), "No such option: --until-done"),
        (("run", "  ", "-m", "MODEL"), "empty"),
        (("resume", "last"), "no session"),
        (("run", "x", "--frobnicate"), "frobnicate"),
    ],
)
def test_what_cannot_be_done_as_asked_ends_with_2_and_accepts_nothing(
    cli: Cli, arguments: tuple[str, ...], told: str
) -> None:
    model = cli.model(says("never"))
    ended = cli(*(model if each == "MODEL" else each for each in arguments))
    assert ended.code == 2
    assert ended.out == ""
    assert told in ended.err
    assert cli("sessions", "--json").out == ""


@pytest.mark.requirement("A5")
@pytest.mark.parametrize(
    "name", ["docs", "cli:", ":docs", "cli:my docs", "cli:a:b", "cli:\u00e9", "x:" + "y" * 65]
)
@pytest.mark.parametrize("command", [("run", "x"), ("chat",)])
def test_a_name_that_is_none_is_refused_with_the_rule_and_an_example(
    cli: Cli, command: tuple[str, ...], name: str
) -> None:
    ended = cli(*command, "-m", cli.model(says("never")), "-s", name)
    assert (ended.code, ended.out) == (2, "")
    assert repr(name) in ended.err
    assert "CHANNEL:CHAT, as in `-s cli:docs`: two labels of 1 to 64 letters" in ended.err


@pytest.mark.requirement("A5")
def test_a_script_that_cannot_be_read_is_told_with_its_whole_path_and_what_to_name(cli: Cli) -> None:
    (cli.workspace / "binary.jsonl").write_bytes(b"\xff\xfe")
    for name, why in ((".", "is a folder"), ("gone.jsonl", "does not exist"), ("binary.jsonl", "UTF-8")):
        ended = cli("run", "x", "-m", f"script:{name}", "--json")
        assert ended.code == 2
        error = ended.json["error"]
        assert str(cli.workspace / name) in error["message"].replace("/.", "")
        assert why in error["message"]
        assert "-m script:FILE" in error["hint"]


def test_with_json_a_usage_error_is_an_object_on_stdout(cli: Cli) -> None:
    ended = cli("run", "x", "--json")
    assert ended.code == 2
    assert ended.json["error"]["code"] == "usage"
    assert "cannot be combined" in cli("run", "x", "--json", "--stream-json").json["error"]["message"]


async def test_a_reached_budget_ends_with_3_and_an_answer(cli: Cli) -> None:
    replies = [Reply(tool_calls=(ReplyCall("list_dir"),), repeat=True)]
    async with ModelServer(replies) as server:
        cli.configure(PRICED.format(url=server.openai_url))
        args = ("run", "x", "-m", "openai:priced", "--budget", "0.01", "--json")
        ended = await _in_thread(cli, *args)
    assert (ended.code, ended.json["status"], ended.json["reason"]) == (3, "limit", "cost")


@pytest.mark.requirement("L1")
def test_the_limit_of_turns_ends_with_4_and_the_last_words(cli: Cli) -> None:
    model = cli.model(calls("list_dir"), calls("glob", pattern="*"), says("So far so good."))
    ended = cli("run", "x", "-m", model, "--max-turns", "2", "--json")
    answer = ended.json
    assert (ended.code, answer["status"], answer["reason"], answer["turns"]) == (4, "limit", "turns", 2)
    assert (answer["text"], answer["model_calls"]) == ("So far so good.", 3)
    assert answer["resume"] == f"holdfast resume {answer['session']}"


@pytest.mark.requirement("L1")
def test_the_same_call_again_and_again_ends_with_6(cli: Cli) -> None:
    cli.configure("[repeat]\nnote = 2\nstop = 4\n")
    ended = cli("run", "x", "-m", cli.model(calls("list_dir") | {"repeat": True}), "--json")
    assert (ended.code, ended.json["status"], ended.json["turns"]) == (6, "stuck", 4)


@pytest.mark.requirement("L7")
async def test_a_refused_key_ends_with_7(cli: Cli) -> None:
    async with ModelServer([Reply(status=401, message="bad key", repeat=True)]) as server:
        cli.environ |= {"OPENAI_BASE_URL": server.openai_url}
        ended = await _in_thread(cli, "run", "x", "-m", "openai:any", "--json")
        assert len(server.requests) == 1
    assert (ended.code, ended.json["status"], ended.json["reason"]) == (7, "failed", "provider_refused")


@pytest.mark.requirement("L7", "H5")
async def test_a_provider_that_asks_to_be_left_alone_for_an_hour_parks_the_session(cli: Cli) -> None:
    replies = [Reply(status=429, headers={"retry-after": "3600"}), Reply(text="Back again.")]
    async with ModelServer(replies) as server:
        cli.environ |= {"OPENAI_BASE_URL": server.openai_url}
        ended = await _in_thread(cli, "run", "x", "-m", "openai:any", "--json")
        assert (ended.code, ended.json["status"], ended.json["reason"]) == (7, "parked", "rate_limited")
        assert "It can continue at " in ended.err
        resumed = await _in_thread(cli, "resume", "last")
    assert (resumed.code, resumed.out) == (0, "Back again.\n")


@pytest.mark.requirement("C2", "L7")
@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
async def test_of_several_calls_only_the_one_without_a_name_is_refused(cli: Cli, provider: str) -> None:
    write = ReplyCall("write_file", {"path": "a.txt", "content": "x"})
    replies = [Reply(tool_calls=(ReplyCall(""), write)), Reply(text="Written.")]
    async with ModelServer(replies) as server:
        cli.environ |= {"OPENAI_BASE_URL": server.openai_url}
        cli.environ |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k"}
        ended = await _in_thread(cli, "run", "x", "-m", f"{provider}:any")
        assert len(server.requests) == 2
        assert b"There is no tool ''" in server.requests[1].body
    assert (ended.code, ended.out) == (0, "Written.\n")
    assert (cli.workspace / "a.txt").read_text() == "x"


@pytest.mark.requirement("C16", "H5", "L7")
@pytest.mark.parametrize(
    ("rules", "wait", "status", "said"),
    [
        ('patience = "1s"', "5", "parked", "Next attempt in"),
        ('park = "1h"', "7200", "failed", "called again in 2 h, and [retry] park leaves 1 h"),
        ("per_run = 0", "0", "failed", "tried model calls again 0 times"),
        ("attempts = 1", "0", "failed", ""),
    ],
)
async def test_the_settings_say_how_long_a_run_waits_and_how_often_it_tries_again(
    cli: Cli, rules: str, wait: str, status: str, said: str
) -> None:
    cli.configure(f"[retry]\n{rules}\n")
    async with ModelServer([Reply(status=429, headers={"retry-after": wait})]) as server:
        cli.environ |= {"OPENAI_BASE_URL": server.openai_url}
        ended = await _in_thread(cli, "run", "x", "-m", "openai:any", "--json")
        assert len(server.requests) == 1
    assert (ended.code, ended.json["status"], ended.json["reason"]) == (7, status, "rate_limited")
    assert said in " ".join(f"{ended.err} {ended.json.get('message', '')}".split())


@pytest.mark.requirement("A3", "L7")
@pytest.mark.parametrize("wait", ["1e400", "252455616000", "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_a_provider_that_asks_for_thousands_of_years_is_asked_again_tomorrow(
    cli: Cli, wait: str
) -> None:
    async with ModelServer([Reply(status=429, headers={"retry-after": wait})]) as server:
        cli.environ |= {"OPENAI_BASE_URL": server.openai_url}
        ended = await _in_thread(cli, "run", "x", "-m", "openai:any", "--json")
    assert (ended.code, ended.json["status"], ended.json["reason"]) == (7, "parked", "rate_limited")
    told = re.search(r"Next attempt in [^,]+, at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.", ended.err)
    assert told, ended.err
    away = datetime.fromisoformat(told[1]).astimezone() - datetime.now().astimezone()
    assert timedelta(hours=22) < away <= timedelta(hours=25), "an hour may be gained or lost over night"


@pytest.mark.requirement("A3", "L7")
async def test_a_wait_that_is_no_number_does_not_end_the_run(cli: Cli) -> None:
    replies = [Reply(status=429, headers={"retry-after": "nan"}), Reply(text="Here I am.")]
    async with ModelServer(replies) as server:
        cli.environ |= {"OPENAI_BASE_URL": server.openai_url}
        ended = await _in_thread(cli, "run", "x", "-m", "openai:any")
    assert (ended.code, ended.out) == (0, "Here I am.\n")


def test_a_moment_is_told_with_its_date_on_another_day_only() -> None:
    noon_ms = int(datetime(2026, 11, 21, 12).astimezone().timestamp() * 1000)
    assert moment(noon_ms, noon_ms - 3_600_000) == "12:00:00"
    assert moment(noon_ms, noon_ms - 24 * 3_600_000) == "2026-11-21 12:00:00"


@pytest.mark.requirement("L7", "C15")
def test_a_file_that_is_no_database_ends_with_9_and_stays_as_it_is(cli: Cli) -> None:
    cli("run", "x", "-m", cli.model(says("Hi.", repeat=True)))
    database = cli.home / "holdfast.db"
    for path in cli.home.glob("holdfast.db*"):
        path.unlink()
    database.write_bytes(b"this is a letter to my aunt" * 100)
    ended = cli("run", "x", "-m", cli.model(says("Hi.")), "--json")
    assert ended.code == 9
    assert ended.json["error"]["code"].startswith("storage")
    assert database.read_bytes() == b"this is a letter to my aunt" * 100


# --- interrupted --------------------------------------------------------------------------------


@pytest.mark.requirement("L2-06")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_mid_stream_stops_cleanly_and_keeps_the_words(cli: Cli, number: int) -> None:
    with cli.working("run", "count", "-m", cli.model(SLOW)) as work:
        work.until(lambda row: "delta" in row)
        ended = work.end(number)
    assert ended.code == 130
    assert [row["type"] for row in work.rows[-2:]] == ["ModelCallCut", "RunStopped"]
    assert work.rows[-2]["text"].startswith("word")
    assert "holdfast resume " in ended.err
    resumed = cli("resume", "last", "-m", cli.model(says("All of it."), name="quick"))
    assert (resumed.code, resumed.out) == (0, "All of it.\n")


@pytest.mark.requirement("L2-06", "L1")
def test_ctrl_c_in_mid_tool_ends_the_tool_too(cli: Cli) -> None:
    model = cli.model(calls("shell", command="sleep 63.25"), says("Went on."))
    with cli.working("run", "wait", "-m", model, "--autonomy", "full") as work:
        work.until_type("ToolCallStarted")
        ended = work.end(signal.SIGINT)
    assert ended.code == 130
    assert not is_running("63.25")
    finished = [row for row in work.rows if row.get("type") == "ToolCallFinished"]
    assert [row["result"]["status"] for row in finished] == ["cancelled"]
    assert cli("resume", "last").out == "Went on.\n"


# --- -s -----------------------------------------------------------------------------------------


@pytest.mark.requirement("B1")
def test_a_named_session_goes_on_with_what_it_was_recorded_with(cli: Cli) -> None:
    model = cli.model(says("First."), says("Second."), says("Third."))
    first = cli("run", "one", "-s", "cli:demo", "-m", model, "--max-turns", "7", "--json").json
    cli.configure('model = "nowhere:else"\n[limits]\nturns = 3\n')
    second = cli("run", "two", "-s", "cli:demo", "--json").json
    assert (second["session"], second["text"]) == (first["session"], "Second.")
    settings = _settings(cli, first["session"])
    assert settings["limits"]["turns"] == 7
    third = cli("run", "three", "-s", first["session"][:12], "--max-turns", "9", "--json").json
    assert (third["session"], third["text"]) == (first["session"], "Third.")
    assert _settings(cli, first["session"])["limits"]["turns"] == 9


def test_a_changed_model_and_workspace_are_recorded(cli: Cli, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    cli("run", "one", "-s", "cli:demo", "-m", cli.model(says("First.")))
    model = cli.model(says("-"), says("New model."), name="other")
    assert cli("run", "two", "-s", "cli:demo", "-m", model, "-w", str(other)).out == "New model.\n"
    settings = _settings(cli, "cli:demo")
    assert settings["model"]["facts"]["model"].endswith("other.jsonl")
    assert settings["tools"]["workspace"] == str(other)


@pytest.mark.requirement("L12")
def test_session_persisted(cli: Cli) -> None:
    cli("run", "remember the milk", "-s", "cli:milk", "-m", cli.model(says("Noted.")))
    (row,) = [json.loads(line) for line in cli("sessions", "--json").out.splitlines()]
    assert (row["key"], row["status"], row["title"]) == ("cli:milk", "done", "remember the milk")
    shown = cli("show", "cli:milk").out
    assert "remember the milk" in shown
    assert "Noted." in shown


def _settings(cli: Cli, session: str) -> dict[str, Any]:
    """The settings of the session's last run."""
    rows = [json.loads(line) for line in cli("show", session, "--events", "--json").out.splitlines()]
    started = [row["body"]["settings"] for row in rows if row["type"] == "RunStarted"]
    settings: dict[str, Any] = started[-1]
    return settings


async def _in_thread(cli: Cli, *arguments: str) -> Any:
    """The command, while this process serves the model that it asks."""
    return await asyncio.to_thread(cli, *arguments)


@pytest.mark.requirement("C15")
@pytest.mark.parametrize(
    "flag",
    ["--output-schema", "--system", "--attach", "--model", "--workspace", "--budget", "--deny-tool"],
)
def test_an_empty_value_is_refused_by_its_flag(cli: Cli, flag: str) -> None:
    ended = cli("run", "go", "-m", cli.model(says("Fine.")), flag, "")
    assert (ended.code, ended.out) == (2, "")
    assert f"{flag}: The value is empty." in ended.err


@pytest.mark.requirement("C15")
def test_json_says_why_a_run_ended(cli: Cli) -> None:
    ended = cli("run", "go", "-m", cli.model(says("", repeat=True)), "--json")
    assert ended.json["status"] == "failed"
    assert ended.json["message"]
    assert ended.json["message"] in ended.err
