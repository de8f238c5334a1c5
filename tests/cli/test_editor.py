"""The line editor of `holdfast chat`, at a terminal whose screen is drawn."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from unicodedata import normalize

import pytest

from holdfast.cli.written import edited_elsewhere
from tests.cli.processes import Cli, calls, says

SECRET = "sk-proj-" + "a1B2c3D4" * 6
ANY = says("Understood.", repeat=True)


def sent(cli: Cli) -> list[str]:
    """The messages of the last session."""
    rows = [json.loads(line) for line in cli("show", "last", "--events", "--json").out.splitlines()]
    return [row["body"]["text"] for row in rows if row["type"] == "MessageReceived"]


def paste(text: str) -> str:
    """A text as a terminal sends it when it is pasted."""
    return "\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~"


# --- pastes -------------------------------------------------------------------------------------


@pytest.mark.requirement("L9")
def test_pasted_lines_are_one_message_which_is_shown_folded_and_sent_whole(cli: Cli) -> None:
    text = "".join(f"line {number}\n" for number in range(40))
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type("look: " + paste(text) + " and say\r")
        screen.until("> look: [pasted 40 lines] and say")
        screen.until("Understood.")
        assert "line 7" not in screen.text
    assert sent(cli) == [f"look: {text} and say"]


@pytest.mark.requirement("L9")
def test_none_of_many_pasted_characters_is_lost(cli: Cli) -> None:
    text = "".join(f"{number:06d} " for number in range(14_286))
    assert len(text) > 100_000
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type(paste(text))
        screen.until_shown("> [pasted 100,002 characters]")
        screen.type("\r")
        screen.until("Understood.")
    assert sent(cli) == [text]


@pytest.mark.requirement("L9")
def test_one_backspace_removes_a_paste(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type(paste("a\nb\n"))
        screen.until_shown("> [pasted 2 lines]")
        screen.type("\x7fshort\r")
        screen.until("Understood.")
    assert sent(cli) == ["short"]


@pytest.mark.parametrize("text", ["/exit", "!touch made", "//x"])
def test_what_was_pasted_is_never_a_command(cli: Cli, text: str) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type(paste(text) + "\r")
        screen.until("Understood.")
    assert sent(cli) == [text]
    assert not (cli.workspace / "made").exists()


def test_a_command_takes_no_pasted_lines(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type("!" + paste("touch made\ntouch more\n") + "\r")
        screen.until("A command takes no pasted lines.")
    assert not (cli.workspace / "made").exists()


@pytest.mark.parametrize(
    ("typed", "messages"), [("early\n", ["early", "late"]), ("one\ntwo\n", ["one\ntwo late"])]
)
def test_one_line_that_was_typed_before_the_prompt_is_sent_and_more_wait_in_it(
    cli: Cli, typed: str, messages: list[str]
) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.type(typed)
        screen.until("Ctrl-D leaves.")
        screen.until("> ")
        if len(messages) > 1:
            screen.until("Understood.")
            screen.type("late\r")
        else:
            screen.type(" late\r")
        screen.until("Understood.")
    assert sent(cli) == messages


def test_a_command_that_was_typed_before_the_prompt_waits_in_it(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.type("!touch made\n")
        screen.until("Ctrl-D leaves.")
        screen.until_shown("> !touch made")
        screen.type("\x15hello\r")
        screen.until("Understood.")
    assert not (cli.workspace / "made").exists()


# --- keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["\n", "\x1b\r", "\\\r"], ids=["ctrl-j", "alt-enter", "backslash"])
def test_keys_for_a_new_line(cli: Cli, key: str) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type(f"one{key}two\r")
        screen.until("Understood.")
    assert sent(cli) == ["one\ntwo"]


def test_up_and_ctrl_r_find_messages_of_earlier_chats(cli: Cli) -> None:
    for message in ("first words", paste("pasted\nwords\n")):
        with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
            screen.until(">")
            screen.type(message + "\r")
            screen.until("Understood.")
            screen.type("\x04")
            assert screen.end() == 0
    with cli.emulator("chat", "-m", cli.model(ANY), "-s", "a:b") as screen:
        screen.until(">")
        screen.type("\x1b[A")
        screen.until_shown("> [pasted 2 lines]")
        screen.type("\x1b[A\x1b[B\r")
        screen.until("Understood.")
        screen.type("\x12first")
        screen.until_shown("history: first", "> first words")
        screen.type("\r")
        screen.until_gone("history:")
        screen.type("\r")
        screen.until("Understood.")
    assert sent(cli) == ["pasted\nwords\n", "first words"]


def test_the_history_is_private_bounded_and_has_no_secrets(cli: Cli) -> None:
    history = cli.home / "history"
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type(f"the key is {SECRET}\r")
        screen.until("Understood.")
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert SECRET not in history.read_text()
    history.write_text("broken\n" + "".join(f'["message {number}"]\n' for number in range(999)))
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type("\x1b[A")
        screen.until_shown("> message 998")
        screen.type(" more\r")
        screen.until("Understood.")
    lines = history.read_text().splitlines()
    assert (len(lines), lines[0], lines[-1]) == (1_000, '["message 0"]', '["message 998 more"]')


@pytest.mark.requirement("A7")
def test_a_deleted_session_leaves_nothing_of_its_messages_in_the_home(cli: Cli) -> None:
    for key, word in (("cli:kept", "okapi"), ("cli:gone", "zebra")):
        with cli.emulator("chat", "-m", cli.model(ANY), "-s", key) as screen:
            screen.until(">")
            for line in (f"one {word}", f"//two {word}", f"!echo three {word}", f"four {word}"):
                screen.type(f"{line}\r")
                screen.until("exit 0" if line.startswith("!") else "Understood.")
            for pasted in (f"five\n{word}\n", f"!echo six {word}", f"//seven {word}"):
                screen.type(paste(pasted) + "\r")
                screen.until("Understood.")
            screen.type("\x04")
            assert screen.end() == 0
    history = (cli.home / "history").read_text()
    assert (history.count("okapi"), history.count("zebra")) == (7, 7)
    assert cli("delete", "cli:gone", "--yes").code == 0
    left = [path for path in cli.home.rglob("*") if path.is_file() and b"zebra" in path.read_bytes()]
    assert left == []
    assert (cli.home / "history").read_text() == "".join(
        line for line in history.splitlines(keepends=True) if "okapi" in line
    )


def test_ctrl_x_ctrl_e_edits_the_message_in_another_editor(cli: Cli) -> None:
    editor = cli.folder / "editor"
    editor.write_text('#!/bin/sh\ncat "$1" > seen\nprintf "two lines\\nof it\\n" > "$1"\n')
    editor.chmod(0o755)
    cli.environ["VISUAL"] = str(editor)
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type("draft\x18\x05")
        screen.until_shown("> two lines", "  of it")
        screen.type("\r")
        screen.until("Understood.")
    assert (cli.workspace / "seen").read_text() == "draft"
    assert sent(cli) == ["two lines\nof it"]


@pytest.mark.requirement("L2")
def test_an_editor_that_a_command_may_have_made_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (planted := tmp_path / "bin" / "vi").parent.mkdir()
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", str(planted.parent))
    monkeypatch.setenv("VISUAL", "vi")
    assert edited_elsewhere("draft", str(tmp_path), str(tmp_path / "home")) is None
    assert edited_elsewhere("draft", str(tmp_path / "ws"), str(tmp_path / "home")) == "draft"


@pytest.mark.parametrize("editor", ["no-such-editor", "false", 'vi "x'])
def test_an_editor_that_fails_leaves_the_line_as_it_was(cli: Cli, editor: str) -> None:
    cli.environ["VISUAL"] = editor
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type("draft\x18\x05")
        screen.until_shown("The editor failed.")  # until then the terminal is the editor's
        screen.type(" and more\r")
        screen.until("Understood.")
    assert sent(cli) == ["draft and more"]
    assert "No closing quotation" not in screen.text


def test_ctrl_c_clears_the_line_and_leaves_when_pressed_twice_on_an_empty_one(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type("draft")
        screen.until_shown("> draft")
        screen.type("\x03")
        screen.until_gone("> draft")
        screen.type("\x03")
        screen.until("Press Ctrl-C again to leave.")
        screen.type("x\x7f\x03")  # another key begins again
        screen.until("Press Ctrl-C again to leave.")
        screen.type("\x03")
        assert screen.end() == 0


def test_tab_completes_commands_and_their_arguments(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type("/c\t")
        screen.until_shown("/cost", "/compact", "/clear")
        screen.type("\x15/au\tre\t\r")
        screen.until("The autonomy is read-only from the next message on.")


def test_alt_with_a_letter_edits_and_does_not_stop_the_turn(cli: Cli) -> None:
    model = cli.model(says("one two three", chunks=3, delay_s=1.5), says("Next.", when="^new word$"))
    with cli.emulator("chat", "-m", model) as screen:
        screen.until(">")
        screen.type("count\r")
        screen.until_shown("thinking")
        screen.type("old word\x1bb\x1bbnew \x0b")
        screen.type("word\r")
        screen.until("one two three")
        screen.until("Next.")


# --- while a turn runs --------------------------------------------------------------------------


@pytest.mark.requirement("L2-06")
def test_what_waits_is_shown_and_comes_back_unsent_when_the_turn_is_stopped(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(says("one " * 400, chunks=400, delay_s=100))) as screen:
        screen.until(">")
        screen.type("count\r")
        screen.until_shown("thinking")
        for number in range(5):
            screen.type(f"message {number}\r")
        screen.type("draft")
        screen.until_shown("waits: message 0", "waits: message 2", "and 2 more", "> draft")
        screen.type("\x1b")
        screen.until("interrupted")
        screen.until_shown("> message 0", "  message 4", "  draft")
    assert sent(cli) == ["count"]


@pytest.mark.requirement("C11")
@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.long)])
def test_many_waiting_messages_are_all_sent_in_order(cli: Cli, count: int) -> None:
    (cli.workspace / "go").unlink(missing_ok=True)
    wait = "until [ -e go ]; do sleep 0.05; done"
    with cli.emulator(
        "chat", "-m", cli.model(calls("shell", command=wait), ANY), "--autonomy", "full"
    ) as screen:
        screen.until(">")
        screen.type("begin\r")
        screen.until_shown("until")
        screen.type("".join(f"number {number}\r" for number in range(count)))
        screen.until_shown(f"and {count - 3} more")
        (cli.workspace / "go").touch()
        screen.until(f"> number {count - 1}")
        screen.until("Understood.")
    assert sent(cli) == ["begin", *(f"number {number}" for number in range(count))]


@pytest.mark.requirement("L9")
def test_the_status_line_tells_what_runs_and_what_was_used(cli: Cli) -> None:
    model = cli.model(calls("shell", command="until [ -e go ]; do sleep 0.05; done"), says("Done."))
    with cli.emulator("chat", "-m", model, "--autonomy", "full", "--budget", "0.50", columns=200) as screen:
        screen.until("$0.0000 of $0.50 · full · script:")
        screen.type("wait\r")
        screen.until_shown(
            "shell until [ -e go ]", "· $0.0000 of $0.50 · 1 turn · ", "tokens · full · script:"
        )
        (cli.workspace / "go").touch()
        screen.until("Done.")


def test_the_last_lines_of_a_running_command_are_shown_and_then_its_exit_code(cli: Cli) -> None:
    command = (
        "for n in 1 2 3 4; do echo line $n; done; until [ -e go ]; do sleep 0.05; done; echo over; exit 3"
    )
    with cli.emulator(
        "chat", "-m", cli.model(calls("shell", command=command), ANY), "--autonomy", "full"
    ) as screen:
        screen.until(">")
        screen.type("work\r")
        screen.until_shown("  │ line 2\n  │ line 3\n  │ line 4\n>")
        assert "│ line 1" not in screen.text
        (cli.workspace / "go").touch()
        screen.until("exit code 3: over")
        screen.until("Understood.")
        assert "│ line" not in screen.text


# --- what it costs ------------------------------------------------------------------------------

MOST_MODULES = 1_000
HEAVY = (
    "aiohttp",
    "jsonschema_rs",
    "genai_prices",
    "cryptography",
    "keyring",
    "markdown_it",
    "rich",
    "unittest",
)
ONLY_FOR_THE_PROMPT = ("prompt_toolkit", "rich", "holdfast.cli.editor", "holdfast.cli.slash")


def test_the_first_prompt_loads_no_heavy_library_and_not_many_modules(cli: Cli, tmp_path: Path) -> None:
    folder, told = tmp_path / "path", tmp_path / "told"
    folder.mkdir()
    tell = f"import atexit, sys\natexit.register(lambda: open({str(told)!r}, 'w').write(chr(10).join(sys.modules)))\n"
    (folder / "sitecustomize.py").write_text(tell)
    cli.environ["PYTHONPATH"] = str(folder)
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until_shown("of $2.00")
        screen.type("\x04")
        screen.process.wait(10)
    loaded = set(told.read_text().split())
    assert "prompt_toolkit" in loaded
    assert loaded.isdisjoint(HEAVY)
    assert len(loaded) < MOST_MODULES


def test_only_a_chat_at_a_terminal_loads_the_line_editor(cli: Cli) -> None:
    code = f"""
import sys
from holdfast.cli.root import run
sys.stdin = open(0, closefd=False)
assert run(["chat", "-m", {cli.model(ANY)!r}]) == 0
assert run(["chat", "--help"]) == 0
assert not set({ONLY_FOR_THE_PROMPT!r}) & set(sys.modules)
"""
    child = subprocess.run(
        [sys.executable, "-c", code], input="hello\n", text=True, cwd=cli.workspace, env=cli._environ(), check=False,
        capture_output=True,
    )  # fmt: skip
    assert (child.returncode, child.stdout.splitlines()[0]) == (0, "Understood."), child.stderr


# --- the screen ---------------------------------------------------------------------------------

LONG = " ".join(f"word{number}" for number in range(4_000))
"""Longer than a screen at any width."""


@pytest.mark.requirement("L9")
@pytest.mark.parametrize("columns", [40, *(pytest.param(each, marks=pytest.mark.long) for each in (80, 200))])
def test_a_long_answer_is_printed_once_and_breaks_between_words(cli: Cli, columns: int) -> None:
    with cli.emulator("chat", "-m", cli.model(says(LONG, chunks=1_000)), columns=columns) as screen:
        screen.until(">")
        screen.type("tell\r")
        screen.until("done · ")
        screen.type("\x04")
        assert screen.end() == 0
        words = [word for word in screen.text.split() if word.startswith("word")]
        lines = [line for line in screen.lines if line.startswith("word")]
    assert words == LONG.split()
    assert all(len(line) <= columns for line in lines)
    assert all(len(line) > columns - 10 for line in lines[:-1])


@pytest.mark.requirement("L9")
def test_a_window_that_changes_its_size_loses_and_repeats_nothing(cli: Cli) -> None:
    words = " ".join(f"word{number}" for number in range(300))
    with cli.emulator("chat", "-m", cli.model(says(words, chunks=300, delay_s=3)), columns=60) as screen:
        screen.until(">")
        screen.type("tell\r")
        screen.until("word30 ")
        screen.resize(100, 12)
        screen.until("word100 ")
        screen.resize(120, 30)
        screen.until("done · ")
        found = [word for word in screen.text.split() if word.startswith("word")]
        screen.resize(50, 10)
        screen.type("draft")
        screen.until_shown("> draft")
        assert screen.text.count("> draft") == 1
        assert screen.text.count("> tell") == 1
        assert screen.text.count("$0.0000 of $2.00") == 1, "the status line"
    assert found == words.split()


@pytest.mark.requirement("L9")
@pytest.mark.parametrize(
    ("text", "environ"),
    [
        ("日本語のテキスト" * 60, {}),
        pytest.param("日本語のテキスト" * 60, {"LC_ALL": "C"}, marks=pytest.mark.long),
        ("e\u0301 " * 300, {}),
        ("👩💻 wide " * 60, {}),
        ("x" * 700, {}),
    ],
    ids=["wide", "wide-lang-c", "joined", "pictures", "long"],
)
def test_wide_joined_and_long_words_stay_within_the_width_and_are_whole(
    cli: Cli, text: str, environ: dict[str, str]
) -> None:
    cli.environ |= environ
    with cli.emulator("chat", "-m", cli.model(says(text, chunks=50)), columns=40) as screen:
        screen.until(">")
        screen.type("tell\r")
        screen.until("done · ")
        lines = screen.lines
        begin = lines.index("> tell") + 1
        answer = lines[begin : next(at for at, line in enumerate(lines) if line.startswith("done · "))]
    assert "".join("".join(answer).split()) == normalize("NFC", "".join(text.split()))


@pytest.mark.long
@pytest.mark.requirement("L9")
def test_each_word_of_a_megabyte_appears_once_and_costs_little(cli: Cli) -> None:
    words = [f"w{number:06d}" for number in range(130_000)]
    parts = [says(" ".join(words[at : at + 10_000]), chunks=10_000) for at in range(0, len(words), 10_000)]
    model = cli.model(
        *(part | calls("glob", pattern=f"{at}*") for at, part in enumerate(parts[:-1])), parts[-1]
    )
    with cli.emulator("chat", "-m", model, columns=100) as screen:
        screen.until(">")
        screen.type("tell\r")
        screen.until_last("done · ")
        used_s = cpu_s(screen.process.pid)
        screen.type("\x04")
        assert screen.end() == 0
        lines = [line for line in screen.lines if line.startswith(("w0", "w1"))]
    assert " ".join(lines).split() == words
    assert used_s < 15


def cpu_s(pid: int) -> float:
    """The seconds of processor time that a process used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- mentioned files ----------------------------------------------------------------------------


def test_a_file_that_is_mentioned_goes_with_the_message_only_if_it_was_typed(cli: Cli) -> None:
    (cli.workspace / "notes.txt").write_text("the notes")
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type("read @notes.txt\r")
        screen.until("Understood.")
        screen.type("read " + paste("@notes.txt") + "\r")
        screen.until("Understood.")
        screen.type("read @.env\r")
        screen.until("Understood.")
    rows = [json.loads(line) for line in cli("show", "last", "--events", "--json").out.splitlines()]
    messages = [row["body"] for row in rows if row["type"] == "MessageReceived"]
    assert [len(each.get("attachments", ())) for each in messages] == [1, 0, 0]


def test_a_file_that_may_not_be_attached_ends_nothing_and_sends_nothing(cli: Cli) -> None:
    (cli.workspace / ".env").write_text("KEY=value")
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type("read @.env\r")
        screen.until("! .env was not attached: .env is secret. Nothing was sent.")
        screen.type("never mind\r")
        screen.until("Understood.")
    assert sent(cli) == ["never mind"]


def test_a_message_that_is_too_long_is_not_sent_and_stays_in_the_line(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type(paste("x" * 1_000_001) + "\r")
        screen.until("A message may have 1,000,000 bytes.")
        screen.type("\x7fshort\r")
        screen.until("Understood.")
    assert sent(cli) == ["short"]
