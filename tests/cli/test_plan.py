"""`run --plan`, `show --plan` and the plan in `chat`."""

from __future__ import annotations

import json

import pytest

from tests.cli.processes import Cli, calls, says

STEPS = [
    {"id": "look", "text": "Look at the file.", "status": "done", "note": "It is empty."},
    {"text": "Write \x1b[31mred\x1b[0m words.", "status": "in_progress"},
    {"text": "Tell.", "status": "pending"},
    {"text": "Ask.", "status": "dropped"},
]
SHOWN = {
    "goal": "Words in a file.",
    "revision": 1,
    "steps": [
        {"id": "look", "text": "Look at the file.", "status": "done", "note": "It is empty."},
        {"id": "1", "text": "Write \x1b[31mred\x1b[0m words.", "status": "in_progress", "note": ""},
        {"id": "2", "text": "Tell.", "status": "pending", "note": ""},
        {"id": "3", "text": "Ask.", "status": "dropped", "note": ""},
    ],
}
PLAN = calls("update_plan", steps=STEPS, goal="Words in a file.")


@pytest.mark.requirement("L2-02")
def test_a_run_with_plan_starts_nothing_before_there_is_one_and_show_prints_it(cli: Cli) -> None:
    write = calls("write_file", path="a.txt", content="words")
    model = cli.model(write, PLAN, write, says("It is done."))
    ended = cli("run", "write words", "-m", model, "--plan", "-s", "cli:a")
    assert ended.code == 0
    assert "⊘ write_file" in ended.err
    assert "this run needs a plan" in ended.err
    assert "✓ update_plan 1 of 3 steps done, step 1 in progress: Write" in ended.err
    assert (cli.workspace / "a.txt").read_text() == "words"
    row = json.loads(cli("show", "cli:a", "--plan", "--json").out)
    assert row == SHOWN
    assert list(row) == list(SHOWN)
    told = cli("show", "cli:a", "--plan").out
    assert [line.split() for line in told.splitlines()] == [
        ["Words", "in", "a", "file."],
        ["1", "of", "3", "steps", "done,", "step", "1", "in", "progress", "·", "revision", "1"],
        ["✓", "look", "Look", "at", "the", "file.", "It", "is", "empty."],
        [r"▸", r"1", r"Write", r"\x1b[31mred\x1b[0m", r"words."],
        ["·", "2", "Tell."],
        ["✗", "3", "Ask."],
    ]


@pytest.mark.requirement("L2-02")
def test_a_resume_keeps_the_plan_and_the_need_for_it_and_another_task_has_neither(cli: Cli) -> None:
    write = calls("write_file", path="a.txt", content="words")
    model = cli.model(
        calls("list_dir"), says("So far."), write, PLAN, write, says("It is done."), write, says("This too.")
    )
    assert cli("run", "write words", "-m", model, "--plan", "-s", "cli:a", "--max-turns", "1").code == 4
    assert cli("resume", "cli:a", "--max-turns", "9").code == 0
    events = [json.loads(line) for line in cli("show", "cli:a", "--events", "--json").out.splitlines()]
    assert [e["type"] for e in events].count("ToolCallRefused") == 1
    branch = cli("fork", "cli:a", "--at", str(events[-1]["seq"])).out.strip()
    assert json.loads(cli("show", branch, "--plan", "--json").out) == SHOWN
    assert cli("run", "write more", "-s", "cli:a").code == 0
    assert "of an earlier task" in cli("show", "cli:a", "--plan").out


@pytest.mark.requirement("L2-02")
def test_an_imported_session_has_its_plan(cli: Cli) -> None:
    assert cli("run", "write words", "-m", cli.model(PLAN, says("So far.")), "-s", "cli:a").code == 0
    archive = str(cli.folder / "a.json")
    assert cli("export", "cli:a", archive).code == 0
    there = ("--home", str(cli.folder / "there"))
    session = json.loads(cli("import", archive, "--json", *there).out)["session"]
    assert json.loads(cli("show", session, "--plan", "--json", *there).out) == SHOWN


def test_a_session_without_a_plan_says_so(cli: Cli) -> None:
    assert cli("run", "hello", "-m", cli.model(says("Hi."))).code == 0
    assert cli("show", "last", "--plan").out == "No plan.\n"
    assert json.loads(cli("show", "last", "--plan", "--json").out) == {"goal": "", "revision": 0, "steps": []}


def test_a_plan_that_is_none_is_refused_with_the_reason(cli: Cli) -> None:
    both = [{"text": "A", "status": "in_progress"}, {"text": "B", "status": "in_progress"}]
    model = cli.model(
        calls("update_plan", steps=[{"text": "A", "status": "finished"}]),
        calls("update_plan", steps=[{"text": "A", "status": "pending"}] * 51),
        calls("update_plan", steps=[{"text": "A" * 301, "status": "pending"}]),
        calls("update_plan", steps=both),
        calls("update_plan", steps=json.dumps(both[:1])),
        says("Ok."),
    )
    ended = cli("run", "plan it", "-m", model, "-v")
    assert ended.code == 0
    assert '"finished"' in ended.err
    assert ended.err.count("⊘ update_plan") == 4
    assert "Steps 1 and 2 are both in_progress" in ended.err
    assert json.loads(cli("show", "last", "--plan", "--json").out)["steps"] == [
        {"id": "1", "text": "A", "status": "in_progress", "note": ""}
    ]


def test_the_settings_of_plans_come_from_the_configuration(cli: Cli) -> None:
    failing = calls("read_file", path="missing.txt")
    plan = calls("update_plan", steps=[{"text": "Read.", "status": "in_progress"}])
    cli.configure("[reflection]\nafter_failures = 1\n[plan]\nmax_replans = 1\n")
    ended = cli("run", "read it", "-m", cli.model(plan, failing, failing, says("I cannot.")))
    assert ended.code == 0
    assert ended.err.count("a step of the plan failed") == 1


def test_a_plan_is_shown_in_chat(cli: Cli) -> None:
    with cli.emulator(
        "chat", "-m", cli.model(PLAN, says("It is done."), says("Bye.")), columns=110, rows=40
    ) as screen:
        screen.until(">")
        screen.type("plan it\r")
        screen.until("It is done.")
        screen.until("plan 1/3")
        screen.type("/plan\r")
        screen.until("Words in a file.")
        screen.until("▸ 1")
        screen.type("\x04")
        assert screen.end() == 0


@pytest.mark.parametrize("flags", [("--deny-tool", "update_*"), ("--allow-tool", "read_*")])
def test_a_run_that_can_never_have_a_plan_is_refused(cli: Cli, flags: tuple[str, ...]) -> None:
    ended = cli("run", "plan it", "-m", cli.model(says("never")), "--plan", *flags)
    assert ended.code == 2
    assert "update_plan is not allowed" in ended.err
