"""Answers on a terminal: rendered once, within the width, whatever the window does meanwhile."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from holdfast.views.lines import cells
from tests.cli.processes import Cli, Emulator, says

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>78]")


def answer(size: int) -> str:
    """An answer with every kind of block. Its numbered words are all different."""
    parts, number = [], 0

    def words(count: int, form: str = "w{:05d}") -> str:
        nonlocal number
        number += count
        return " ".join(form.format(each) for each in range(number - count, number))

    while sum(map(len, parts)) < size:
        parts += [
            f"# {words(4)}\n",
            f"{words(30)} **{words(9)}** and `{words(2)}`, [{words(2)}](https://example.org/{words(1)}).\n",
            f"1. {words(12)}\n   - {words(12)}\n\n     ```sh\n     {words(9)}\n     ```\n2. {words(3)}\n",
            f"> {words(14)}\n",
            f"| {words(1)} | {words(1)} |\n|---|---:|\n| {words(9)} | {words(7)} |\n| {words(1)} | {words(1)} |\n",
            f"```python\nif {words(1)}:\n    return [{words(14)}]\n```\n",
            f"See https://example.org/{'x' * 30}/{words(1)}\n",
            "---\n",
        ]
    return "\n".join(parts)


def numbered(text: str) -> list[str]:
    return re.findall(r"w\d{5}", text)


def begin(screen: Emulator, command: str) -> None:
    """Give the task, which `run` has in its arguments."""
    if command == "chat":
        screen.until(">")
        screen.type("tell\r")


def leave(screen: Emulator, command: str) -> None:
    if command == "chat":
        screen.type("\x04")
    assert screen.end() == 0


def started(command: str) -> list[str]:
    return ["chat"] if command == "chat" else ["run", "tell"]


@pytest.mark.requirement("L9")
@pytest.mark.parametrize(
    ("command", "columns"),
    [
        ("run", 40),
        ("chat", 80),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in [("run", 80), ("run", 200), ("chat", 40), ("chat", 200)]
        ),
    ],
)
def test_a_long_answer_with_every_kind_of_block_is_shown_once_within_the_width(
    cli: Cli, command: str, columns: int
) -> None:
    text = answer(17_000)
    model = cli.model(says(text, chunks=len(text) // 8))
    with cli.emulator(*started(command), "-m", model, columns=columns) as screen:
        begin(screen, command)
        screen.until("done · ")
        leave(screen, command)
        shown, lines = screen.text, screen.lines
    assert len(text) > 16_384
    assert sorted(numbered(shown)) == numbered(text)  # cells that are side by side change the order
    rows = [row for row, line in enumerate(lines) if numbered(line)]
    answered = "\n".join(lines[rows[0] : rows[-1] + 1])  # a path above it may be cut
    assert not re.search(r"w\d{0,4}$|^\d{1,5}\b(?!\.)", answered, re.MULTILINE), "a word is cut"
    if command == "run":  # it writes whole lines: the terminal itself breaks none
        written = ESCAPES.sub("", screen.screen.replace("\r\x1b[K", "\r\n")).split("\r\n")
        own = [line for line in written if numbered(line) and "/" not in line]  # no path of the session
        assert max(map(cells, own)) <= columns


@pytest.mark.requirement("L9")
@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_window_that_changes_in_mid_answer_loses_and_repeats_nothing(cli: Cli, command: str) -> None:
    text = answer(5_000)
    words = numbered(text)
    model = cli.model(says(text, chunks=200, delay_s=4))
    with cli.emulator(*started(command), "-m", model, columns=100) as screen:
        begin(screen, command)
        screen.until_shown(words[40])
        screen.resize(140, 12)
        screen.until_shown(words[len(words) // 2])
        screen.resize(160, 40)
        screen.until("done · ")
        assert numbered(screen.text) == words
        leave(screen, command)


@pytest.mark.requirement("L9")
def test_the_words_of_an_unfinished_block_are_shown_below_what_was_printed(cli: Cli) -> None:
    text = "First paragraph.\n\nSecond **one** " + "word " * 300 + "\n\nThird."
    with cli.emulator("chat", "-m", cli.model(says(text, chunks=300, delay_s=30)), rows=20) as screen:
        screen.until(">")
        screen.type("tell\r")
        screen.until("First paragraph.")
        screen.until_shown("word word\n>")
        for _ in range(5):
            screen.until_shown("word word\n>")
            at = screen.lines.index(
                next(line for line in screen.lines if line.startswith(">") and "tell" not in line)
            )
            above = screen.lines[screen.lines.index("First paragraph.") + 1 : at]
            assert len([line for line in above if "word" in line]) <= 6
        screen.type("\x1b")
        screen.until("interrupted")
        assert screen.text.count("Second **one**") == 1


def test_a_run_shows_the_last_words_in_its_last_line_and_clears_it(cli: Cli) -> None:
    text = "First.\n\nThen " + " ".join(f"w{number:05d}" for number in range(60))
    with cli.emulator("run", "tell", "-m", cli.model(says(text, chunks=60, delay_s=6))) as screen:
        screen.until("First.")
        screen.until_shown("│ w00")
        screen.until("done · ")
        assert screen.end() == 0
        assert "│" not in screen.text
        assert numbered(screen.text) == numbered(text)


# --- terminals and pipes ------------------------------------------------------------------------

SHORT = "# Head\n\nA **bold** word, `code` and \x9b31mred.\n\n- item\n"


def test_in_a_pipe_markdown_stays_as_written(cli: Cli) -> None:
    ended = cli("run", "tell", "-m", cli.model(says(SHORT)))
    assert ended.out == SHORT


@pytest.mark.parametrize(
    ("environ", "lines"),
    [
        ({"NO_COLOR": ""}, ["Head", "", r"A bold word, code and \x9b31mred.", "", "• item"]),
        ({"NO_COLOR": "1"}, ["# Head", "", r"A **bold** word, `code` and \x9b31mred.", "", "• item"]),
        pytest.param(
            {"LANG": "C", "LC_ALL": "C", "NO_COLOR": ""},
            ["Head", "", r"A bold word, code and \x9b31mred.", "", "• item"],
            marks=pytest.mark.long,  # it is loaded anew; tests/edge has the locale every day
        ),
        ({"TERM": "dumb"}, ["# Head", "", r"A **bold** word, `code` and \x9b31mred.", "", "• item"]),
    ],
    ids=["styles", "no-color", "lang-c", "dumb"],
)
@pytest.mark.parametrize("command", ["run", "chat"])
def test_what_a_terminal_cannot_show_is_not_sent_to_it(
    cli: Cli, environ: dict[str, str], lines: list[str], command: str
) -> None:
    cli.environ |= environ
    with cli.emulator(*started(command), "-m", cli.model(says(SHORT, chunks=20))) as screen:
        if command == "chat":
            screen.until("Ctrl-D leaves.")
            begin(screen, command)
        screen.until("done · ")
        leave(screen, command)
        shown, raw = screen.lines, screen.screen
    start = shown.index(lines[0])
    assert shown[start : start + len(lines)] == lines
    assert ("\x1b[1;4mHead" in raw) == (environ.get("NO_COLOR") == "")
    if environ.get("TERM") == "dumb":
        assert not re.search(r"\x1b\[[0-9;]*m", raw)


@pytest.mark.parametrize("character", ["\x1b", "\x00", "\x9b", "\u200b", "\r", "\ufeff"])
def test_an_answer_with_control_characters_is_shown_once(cli: Cli, character: str) -> None:
    model = cli.model(says(f"one {character}[2J two {character} three", chunks=30))
    with cli.emulator("run", "tell", "-m", model) as screen:
        assert screen.end() == 0
        assert screen.text.count("three") == 1


def test_an_answer_that_goes_to_the_terminal_alone_is_rendered_too(cli: Cli) -> None:
    model = cli.model(says(SHORT, repeat=True))
    line = f"{sys.executable} -m holdfast run tell -m {model} 2> err; echo over"
    with cli.at_terminal(["/bin/sh", "-c", line]) as screen:
        screen.until("over")
        assert "# Head\r\n\r\nA **bold**" in screen.screen
        assert "• item" in screen.screen
    with cli.emulator("resume", "last") as again:
        assert again.end() == 0
        assert "• item" in again.text


@pytest.mark.requirement("L9")
def test_a_chat_loads_markdown_after_its_first_prompt_and_a_pipe_never(cli: Cli) -> None:
    code = f"""
import sys
from holdfast.cli import editor
from holdfast.cli.root import run
HEAVY = {{"markdown_it", "rich", "pygments", "holdfast.cli.markdown"}}
message = editor.Editor.message
async def looked(self):
    print("loaded:", sorted(HEAVY & set(sys.modules)), file=sys.stderr)
    return await message(self)
editor.Editor.message = looked
sys.exit(run({["chat", "-m", cli.model(says(SHORT))]!r}))
"""
    with cli.at_terminal([sys.executable, "-c", code]) as screen:
        screen.until("loaded: []")
        screen.type("tell\r")
        screen.until("done · ")
        screen.until("loaded: ['holdfast.cli.markdown', 'markdown_it']")
        screen.type("\x04")
        assert screen.end() == 0
    plain = code.replace("'chat', ", "'run', 'tell', ").replace("from holdfast.cli import editor", "")
    plain = re.sub("message = .*(?=sys.exit)", "", plain, flags=re.DOTALL).replace("sys.exit", "code = ")
    plain += "assert not {*HEAVY, 'prompt_toolkit'} & set(sys.modules)\n"
    child = subprocess.run(
        [sys.executable, "-c", plain], cwd=cli.workspace, env=cli._environ(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (child.returncode, child.stdout) == (0, SHORT), child.stderr


@pytest.mark.requirement("L9")
@pytest.mark.parametrize("command", ["chat", pytest.param("run", marks=pytest.mark.long)])
def test_an_answer_goes_on_after_its_command_was_suspended(cli: Cli, command: str) -> None:
    words = " ".join(f"w{number:05d}" for number in range(200))
    text = "\n\n".join(words[at : at + 70] for at in range(0, len(words), 70))
    model = cli.model(says(text, chunks=100, delay_s=3))
    with cli.drawn_shell(" ".join([*started(command), "-m", model])) as screen:
        if command == "chat":
            screen.until("Ctrl-D leaves.")
            begin(screen, command)
        screen.until_shown("w00030")
        screen.type("\x1a")
        screen.until("Stopped")
        screen.type("fg\n")
        screen.until("done · ")
        lines = [line for line in screen.lines if "│" not in line]  # the last line of a suspended run stays
    assert numbered("\n".join(lines)) == numbered(text)


# --- how long it lasted -------------------------------------------------------------------------


def test_the_summary_counts_the_time_of_retries(cli: Cli) -> None:
    model = cli.model({"error": {"status": 429, "retry_after": 2}}, says("Done."))
    ended = cli("run", "tell", "-m", model)
    lasted = re.search(r"done · .* · (\d+\.\d)s", ended.err)
    assert lasted is not None, ended.err
    assert float(lasted[1]) >= 2
    again = cli("resume", "last")  # it prints the result once more, and later
    assert f" · {lasted[1]}s" in again.err
