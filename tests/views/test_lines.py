"""Lines for people: no line is wider than the terminal, and nothing that is cut is cut inside a word."""

from __future__ import annotations

import shlex
import subprocess
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.views.lines import (
    COMMAND,
    EXACT,
    Line,
    Span,
    cells,
    clipped,
    filled,
    iso,
    local,
    moment,
    table,
    wrapped,
)

RESUME = "holdfast resume 01M80H5ZWKGTTC1B9KXKKZAPN7"


def text_of(line: Line) -> str:
    return "".join(getattr(span, "text", span) for span in line).rstrip()


def test_a_long_line_breaks_between_words_and_goes_on_below_its_text() -> None:
    line = [Span("  limits    ", "dim"), "25 turns, 5,000,000 tokens, $2.0000, 2h, idle 5m"]
    assert [text_of(piece) for piece in wrapped(line, 40)] == [
        "  limits    25 turns, 5,000,000 tokens,",
        "            $2.0000, 2h, idle 5m",
    ]


def test_styles_stay_with_their_words() -> None:
    (first, second) = wrapped([Span("one two", "bold"), " three ", Span("four", "red")], 10)
    assert [span for span in first if span.style] == [
        Span("one", "bold"),
        Span(" ", "bold"),
        Span("two", "bold"),
    ]
    assert second[-1] == Span("four", "red")


def test_a_word_in_several_styles_is_not_broken() -> None:
    line = ["one ", Span("two", "bold"), ", ", "(", Span("thr", "red"), "ee)", " four"]
    assert [text_of(piece) for piece in wrapped(line, 12)] == ["one two,", "(three) four"]


def test_a_long_word_gets_a_line_with_less_indentation_instead_of_being_cut() -> None:
    label = Span("  workspace  ", "dim")
    assert [text_of(piece) for piece in wrapped([label, "a ", "x" * 36], 40)] == [
        "  workspace  a",
        "    " + "x" * 36,
    ]


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("one two three", 13, "one two three"),
        ("one two three", 12, "one two…"),
        ("one two three", 8, "one two…"),
        ("read src/holdfast/core.py", 20, "read src/holdfast/…"),
        ("read " + "x" * 50, 20, "read " + "x" * 14 + "…"),
        ("語語語 語語", 7, "語語語…"),
        ("👩‍💻👩‍💻", 6, "👩‍💻…"),
    ],
)
def test_a_clipped_line_ends_between_words_or_parts_of_a_path(text: str, width: int, short: str) -> None:
    assert clipped(text, width) == short


@given(st.text("ab /語e\u0301", max_size=60), st.integers(1, 40))
def test_a_clipped_line_fits(text: str, width: int) -> None:
    assert cells(clipped(text, width)) <= width
    assert text.startswith(clipped(text, width).removesuffix("…"))


@given(st.lists(st.text("ab 語\n", max_size=30), max_size=6), st.integers(2, 30))
def test_filled_lines_fit_and_lose_no_word(texts: list[str], width: int) -> None:
    lines = [*filled([Span(text) for text in texts], width, Span("> "), Span("  "))]
    whole = "".join("".join(span.text for span in line[1:]) for line in lines)
    assert "".join(whole.split()) == "".join("".join(texts).split())
    assert all(sum(cells(span.text) for span in line) <= max(width, 4) for line in lines)


def test_a_command_is_never_broken() -> None:
    pieces = [text_of(piece) for piece in wrapped(["  Continue with: ", Span(RESUME, COMMAND)], 50)]
    assert pieces == ["  Continue with:", f"  {RESUME}"]


@pytest.mark.parametrize("width", [20, 30, 40])
def test_a_command_longer_than_a_line_works_when_it_is_pasted(width: int) -> None:
    command = f"{RESUME} 'one  two' \"it's three\" --home /a/long/path/to/a/home"
    line = ["  Continue with: ", Span(command, COMMAND), "."]
    pieces = [text_of(piece) for piece in wrapped(line, width)]
    assert pieces[0] == "  Continue with:"
    pasted = "\n".join(pieces[1:]).removesuffix(".")
    said = subprocess.run(["sh", "-c", f"printf '%s|' {pasted}"], capture_output=True, text=True, check=True)
    assert said.stdout == "".join(f"{word}|" for word in shlex.split(command))
    assert all(cells(piece) <= width or len(piece.split()) <= 2 for piece in pieces)


def test_exact_text_is_cut_before_the_blanks_of_a_word_and_goes_on_behind_a_bar() -> None:
    text = "rm  -rf   build   and   everything"
    framed = [text_of(piece) for piece in wrapped([Span("  │ ", "yellow"), Span(text, EXACT)], 20)]
    assert framed == ["  │ rm  -rf   build", "  │    and", "  │    everything"]
    labelled = [text_of(piece) for piece in wrapped([Span("  in  "), Span("/a/b c/d", EXACT)], 10)]
    assert labelled == ["  in  /a/b", "    │  c/d"]
    long = [text_of(piece) for piece in wrapped([Span("  │ ", "yellow"), Span("x" * 20, EXACT)], 20)]
    assert long == ["  │ " + "x" * 16, "  │ xxxx"]


@given(st.text("a \t语e\u0301", max_size=90), st.integers(4, 40))
def test_exact_text_fits_behind_its_bar_and_loses_no_character(text: str, width: int) -> None:
    first, *others = wrapped([Span("│ ", "yellow"), Span(text, EXACT)], width)
    assert all(piece[0].text == "│ " for piece in [first, *others])
    assert "".join(piece[1].text for piece in [first, *others]) == text.expandtabs()
    assert all(sum(cells(span.text) for span in piece) <= width for piece in [first, *others])


@example(["   aa"], 4)
@given(st.lists(st.text("ab 语", max_size=30), max_size=5), st.integers(4, 40))
def test_a_wrapped_line_fits_and_loses_no_word(texts: list[str], width: int) -> None:
    pieces = list(wrapped([Span(text) for text in texts], width))
    words = "".join(texts).split()
    assert "".join(" ".join(text_of(piece) for piece in pieces).split()) == "".join(words)
    for piece in pieces:
        longest = max(map(cells, words), default=0)
        assert cells(text_of(piece)) <= width or longest > width // 2


@pytest.mark.parametrize(("width", "heads"), [(0, "id size about"), (40, "id size about"), (30, "id about")])
def test_a_narrow_table_drops_columns_and_clips_the_last_one(width: int, heads: str) -> None:
    rows = [["id", "size", "about"], ["0123456789", "12", "what it is for, in a sentence that is long"]]
    lines = [text_of(line) for line in table(rows, width, right=(1,), drop=(1,))]
    assert lines[0].split() == heads.split()
    assert all(cells(line) <= width for line in lines) or not width
    assert lines[1].endswith("long" if not width else "…")


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"])
@pytest.mark.parametrize("at_ms", [1 << 200, 1 << 62, 253_402_300_799_999, -1, -(1 << 62)])
def test_every_integer_is_shown_as_a_time(monkeypatch: pytest.MonkeyPatch, zone: str, at_ms: int) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert iso(at_ms).endswith("Z")
        assert local(at_ms)
        assert moment(at_ms, -at_ms)
    finally:
        monkeypatch.undo()
        time.tzset()
