"""Markdown becomes lines for a terminal: block by block, nothing lost, nothing wider than the terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcswidth, wcwidth

from holdfast.cli.markdown import Page, Spans, rendered
from holdfast.views.lines import cells

SAMPLE = """\
# The fare

It is **wrong**, because `fare.py` divides *late*; see [the docs](https://example.org/fares).

1. Read the file:

   ```python
   def fare():
       return 900
   ```
2. Run the tests
   - by hand
   - or in CI

> A quote
> of two lines

| Name | Cents |
|:-----|------:|
| child | 450 |
| adult | **900** |

---
<b>[red]data[/red]</b>
"""
SHOWN = """\
The fare

It is wrong, because fare.py divides late; see the docs
(https://example.org/fares).

1. Read the file:

     def fare():
         return 900

2. Run the tests
   • by hand
   • or in CI

│ A quote
│ of two lines

Name  │ Cents
──────┼──────
child │   450
adult │   900

────────────────────────────────────────

<b>[red]data[/red]</b>"""


def text_of(line: Spans) -> str:
    return "".join(span.text for span in line).rstrip()


def shown(text: str, width: int = 60, *, has_styles: bool = True) -> list[str]:
    """The lines of a whole text."""
    return [text_of(line) for line in rendered(text, width, has_styles=has_styles)]


def streamed(pieces: list[str], width: int = 60) -> list[str]:
    """The lines of a text that comes in pieces."""
    page = Page()
    lines = [line for piece in pieces for line in page.feed(piece, width)]
    return [text_of(line) for line in [*lines, *page.end(width)]]


def test_every_kind_of_block_is_shown() -> None:
    assert "\n".join(shown(SAMPLE)) == SHOWN


def test_styles_are_those_of_the_marks() -> None:
    (line,) = rendered("a **b *c*** `d` ~~e~~", 60, has_styles=True)
    styles = {span.text: span.style for span in line if span.text.strip() and span.style}
    assert styles == {"b": "bold", "c": "bold italic", "d": "cyan", "e": "strike"}


def test_the_style_of_a_whole_text_is_that_of_each_of_its_words() -> None:
    page = Page("dim")
    lines = [*page.feed(SAMPLE, 60), *page.end(60)]
    words = [span for line in lines for span in line if re.search(r"\w", span.text)]
    assert words
    assert all("dim" in span.style.split() for span in words)


def test_without_styles_the_marks_stay() -> None:
    text = "## a **b** `c`\n\n*d* ~~e~~ __f__"
    assert shown(text, has_styles=False) == ["## a **b** `c`", "", "*d* ~~e~~ __f__"]


# --- a stream -----------------------------------------------------------------------------------

PIECES = (
    "a ", "b", "c\n", "\n", "\n\n", "# ", "> ", "- ", "1. ", "  ", "    ", "```\n", "~~~~\n", "`d`", "**", "[", "](",
    ")", "<e>", "\\", "\t", "===\n", "---\n", "語 ", "e\u0301 ", "https://example.org/f/g ",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=60), st.integers(40, 90), st.integers(1, 9))
def test_the_pieces_of_a_stream_do_not_matter_and_nothing_is_lost_or_shown_twice(
    pieces: list[str], width: int, size: int
) -> None:
    text = "".join(pieces)
    lines = streamed(pieces, width)
    assert lines == streamed([text[at : at + size] for at in range(0, len(text), size)], width)
    assert lines == shown(text, width)
    assert re.findall(r"\w", "".join(lines)) == re.findall(r"\w", _numbered(text, lines))
    assert all(cells(line) <= width for line in lines)


def _numbered(text: str, lines: list[str]) -> str:
    """The text with the numbers that its lists were given."""
    numbers = iter(re.findall(r"\d", "".join(lines)))
    return re.sub(r"\d", lambda found: next(numbers, found[0]), text)


def test_a_block_is_shown_at_the_width_of_its_moment() -> None:
    page, paragraph = Page(), "word " * 100 + "\n\n"
    narrow, wide = page.feed(paragraph, 40), page.feed(paragraph, 100)
    assert max(cells(text_of(line)) for line in narrow) == 39
    assert max(cells(text_of(line)) for line in wide) == 99


@pytest.mark.parametrize(
    ("begin", "piece"),
    [("", "word "), ("", "x"), ("", "word\n"), ("- ", "**w** "), ("```\n", "code\n"), ("> ", "w "),
     ("# ", "w "), ("| a | b |\n|--|--|\n", "| c | d |\n"), ("", "|"), ("", "["), ("", "> "), ("```\n", "y")],
)  # fmt: skip
def test_what_is_held_back_has_a_bound(begin: str, piece: str) -> None:
    page = Page()
    lines = [*page.feed(begin, 80), *page.feed(piece * (20_000 // len(piece)), 80)]
    held = "".join(text_of(line) for line in page.unfinished(80))
    assert len(held) < 5_000
    assert lines
    assert page.feed(piece, 80) == [] or len(piece) > 1


def test_a_long_paragraph_is_shown_in_full_lines() -> None:
    words = [f"word{number}" for number in range(2_000)]
    lines = streamed([" ".join(words)], 80)
    assert " ".join(lines).split() == words
    assert all(len(line) > 70 for line in lines[:-1])


def test_a_long_paragraph_is_not_broken_inside_of_marks() -> None:
    text = "".join(
        f"word{number} **is bold here** and `code it is` and [a link](https://e.org/{number}) "
        for number in range(200)
    )
    assert not re.search(r"[*`\[\]]", "".join(streamed([text], 80)))


def test_what_is_not_finished_is_shown_as_if_it_were_and_stays_unfinished() -> None:
    page = Page()
    assert [text_of(line) for line in page.feed("One.\n\nTwo **wo", 40)] == ["One."]
    assert [text_of(line) for line in page.unfinished(40)] == ["", "Two **wo"]
    assert page.feed("rds**", 40) == []
    assert [text_of(line) for line in page.end(40)] == ["", "Two words"]
    assert page.unfinished(40) == []


def test_a_line_of_code_is_shown_as_soon_as_it_ends() -> None:
    page = Page()
    assert [text_of(line) for line in page.feed("```\none\ntw", 40)] == ["  one"]
    assert [text_of(line) for line in page.feed("o\n", 40)] == ["  two"]


def test_a_line_break_of_two_characters_may_come_in_two_pieces() -> None:
    assert streamed(["one\r", "\n\r\n```\r\nco", "de\r", "\n```\r\n"]) == ["one", "", "  code"]


# --- data ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["A", "# A", "- A", "> A", "```\nA\n```", "    A", "`A`", "**A**", "| h |\n|--|\n| A |", "[x](A)",
     "[A](https://example.org)", "![A](x.png)", "<A>", "1. a\n\n   A"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("control", "escaped"),
    [("\x1b2J", "\\x1b2J"), ("\x1b(0\x07", "\\x1b(0\\x07"), ("\x00", "\\x00"),
     ("\u202e", "\\u202e"), ("\x85", "\\x85"), ("\u2028", "\\u2028"), ("a\rb", "a\\x0db"), ("\\x1b", "\\x1b")],
)  # fmt: skip
def test_a_control_character_is_escaped_exactly_once(text: str, control: str, escaped: str) -> None:
    whole = "\n".join(shown(text.replace("A", control), 200))
    assert whole.count(escaped) == 1 or "%5C" in whole
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]", whole)
    assert "\\\\x" not in whole


@pytest.mark.parametrize(
    "entity", ["&#27;[2J", "&#x1b;[2J", "&#155;", "&#8238;", "&#13;", "&Tab;", "&NewLine;"]
)
def test_an_entity_is_no_way_around_the_escaping(entity: str) -> None:
    for text in (
        f"a {entity} b",
        f"[a]({entity})",
        f"[a {entity}](b)",
        f"| {entity} |\n|--|\n",
        f"# {entity}",
    ):
        whole = shown(text, 200)
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", "".join(whole))


def test_a_link_shows_where_it_leads() -> None:
    assert shown("[docs](https://example.org/a)") == ["docs (https://example.org/a)"]
    assert shown("[https://good.org](https://evil.org)") == ["https://good.org (https://evil.org)"]
    assert shown("<https://example.org>, [example.org/](https://example.org)") == [
        "https://example.org, example.org/"
    ]
    assert shown("![a cat](cat.png) [x][1]\n\n[1]: https://example.org") == [
        "a cat (cat.png) [x][1]", "", "[1]: https://example.org"
    ]  # fmt: skip
    assert shown("[run](javascript:alert(1))") == ["[run](javascript:alert(1))"]


def test_html_and_brackets_stay_as_written() -> None:
    text = "<div>\n<b>x</b> [bold]y[/bold]\n</div>\n<!-- z -->"
    assert shown(text) == text.split("\n")


# --- lists and code -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("1. a\n\n```\nx\n```\n\n2. b", ["1. a", "", "  x", "", "2. b"]),
        ("1. a\n1. b\n1. c", ["1. a", "2. b", "3. c"]),
        ("9. a\n10. b", ["9. a", "10. b"]),
        ("1. a\n\n\n2. b\n   more", ["1. a", "", "2. b", "   more"]),
        ("- a\n\n  b\n- c", ["• a", "", "  b", "• c"]),
        ("1) a\n   1. b\n   2. c\n2) d", ["1) a", "   1. b", "   2. c", "2) d"]),
        ("- a\nlazy\n- b", ["• a", "  lazy", "• b"]),
        ("1. a\n   ```sh\n   x\n\n   y\n   ```\n   b", ["1. a", "", "     x", "", "     y", "", "   b"]),
        ("-\n- a", ["•", "• a"]),
        ("In\n1984. A year", ["In", "1984. A year"]),
        ("> a\n>\n> - b\n\nc", ["│ a", "│", "│ • b", "", "c"]),
        ("````\n```\nx\n```\n````\ny", ["  ```", "  x", "  ```", "", "y"]),
        ("~~~\n```\n~~~", ["  ```"]),
        ("```\nopen", ["  open"]),
        ("a\n\n    x\n\n      y\n\nb", ["a", "", "  x", "", "    y", "", "b"]),
        ("a\n===\nb\n---", ["a", "", "b"]),
        ("- a\n***\n- b", ["• a", "", "─" * 40, "", "• b"]),
    ],
)
def test_blocks_inside_and_beside_each_other(text: str, lines: list[str]) -> None:
    assert shown(text) == lines


def test_deep_lists_leave_room_for_words() -> None:
    text = "".join(f"{' ' * 2 * depth}- depth{depth} some words\n" for depth in range(30))
    lines = shown(text, 40)
    assert re.findall(r"depth\d+", " ".join(lines)) == [f"depth{depth}" for depth in range(30)]
    assert all(cells(line) <= 40 for line in lines)


def test_long_code_breaks_between_words_and_goes_on_further_in() -> None:
    (first, second) = shown("```\n  return adults * 900 + children * 450\n```", 39)
    assert (first, second) == ("    return adults * 900 + children *", "      450")


# --- tables -------------------------------------------------------------------------------------

WORDS = "a sentence of words"


def test_a_table_that_is_too_wide_breaks_its_cells_between_words() -> None:
    rows = "".join(f"| row{number} | {WORDS} | {WORDS} |\n" for number in range(3))
    lines = shown(f"| Name | One | Two |\n|--|--|--|\n{rows}", 40)
    assert all(cells(line) <= 40 for line in lines)
    assert {len(line.split(" │ ")) for line in lines if "┼" not in line} <= {2, 3}
    assert " ".join(" ".join(lines).replace("│", " ").split()).count("sentence") == 6


def test_a_table_whose_words_do_not_fit_side_by_side_shows_each_cell_after_its_head() -> None:
    text = "| Path | Meaning |\n|--|--|\n| /a/long/path/to/a/file | internationalisation |\n| /b | c |"
    assert shown(text, 40) == [
        "Path: /a/long/path/to/a/file",
        "Meaning: internationalisation",
        "",
        "Path: /b",
        "Meaning: c",
    ]


def test_a_long_table_keeps_its_columns_and_has_one_head() -> None:
    text = "| No | Word |\n|---:|:--|\n" + "".join(f"| {number} | w{number} |\n" for number in range(200))
    lines = streamed([text], 40)
    assert len(lines) == 202
    assert {line.index("│") for line in lines[2:42]} == {len("No ")}
    assert [line.split("│")[1].strip() for line in lines[2:]] == [f"w{number}" for number in range(200)]


def test_a_row_with_more_or_fewer_cells_loses_none() -> None:
    assert shown("| a | b |\n|--|--|\n| c |\n| d | e | f |\n| g \\| h | i |") == [
        "a     │ b", "──────┼──────", "c     │", "d     │ e | f", "g | h │ i",
    ]  # fmt: skip


def test_lines_with_bars_are_no_table_without_a_second_line_of_dashes() -> None:
    assert shown("a | b\nc | d") == ["a | b", "c | d"]
    assert shown("before\n| a | b |\n|---|---|\n| c | d |\nafter: x\n\nend")[0] == "before"


# --- cells --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "👩‍💻",
        "👨‍👩‍👧‍👦",
        "🏳️‍🌈",
        "❤️",
        "1️⃣",
        "👍🏽",
        "e\u0301",
        "\u0928\u093f",
        "日本",
        "a\u20dd",
        "🇩🇪",
        "x\u200dy",
        "─│•…",
    ],
)
def test_no_text_takes_more_cells_than_are_counted(text: str) -> None:
    side_by_side = sum(max(wcwidth(character), 0) for character in text)
    assert cells(text) >= max(wcswidth(text), side_by_side)
    for line in shown(f"{text} " * 90 + f"{text}" * 90, 40):
        assert cells(line) <= 40
        assert not line.startswith(("\u200d", "\ufe0f", "\u0301")), "a joined character stays whole"


def test_the_depth_of_quotes_is_bounded() -> None:
    (line,) = rendered("> " * 10_000 + "word", 80, has_styles=True)[:1]
    assert "".join(span.text for span in line).count("│") == 8


def test_a_row_that_never_ends_is_not_held_back() -> None:
    page = Page()
    page.feed("| a | b |\n|---|---|\n", 80)
    assert page.feed("| word " * 600, 80) != []
