"""Clipping keeps head and tail, says what is gone, and never gives more than was asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.context.clip import clean, clip

LINES = "".join(f"line {number}\n" for number in range(2_000))


@pytest.mark.requirement("L1")
def test_a_long_text_keeps_whole_lines_of_its_head_and_tail_and_names_the_blob() -> None:
    clipped = clip(LINES, 1_000, "the full text is blob abc123")
    head, _, rest = clipped.partition("[... ")
    marker, _, tail = rest.partition(" ...]\n")
    assert len(clipped) <= 1_000
    assert LINES.startswith(head)
    assert head.endswith("\n")
    assert LINES.endswith(tail)
    assert tail.startswith("line ")
    assert marker.endswith("the full text is blob abc123")
    left_out = len(LINES) - len(head) - len(tail)
    assert int(marker.split()[0].replace(",", "")) == left_out


def test_a_text_that_fits_is_left_alone() -> None:
    assert clip("short", 5) == "short"


def test_one_endless_line_is_cut_inside_the_line() -> None:
    clipped = clip("x" * 100_000, 500)
    assert len(clipped) <= 500
    assert clipped.startswith("xxx")
    assert clipped.endswith("xxx")
    assert "left out" in clipped


def test_control_characters_and_lone_surrogates_are_replaced() -> None:
    assert clean("a\x1b[31m\ud800\tb\n\x00") == "a\ufffd[31m\ufffd\tb\n\ufffd"
    assert clip("\x07ding", 100) == "\ufffdding"


@given(st.text(max_size=3_000), st.integers(200, 1_000))
def test_the_result_is_never_longer_than_asked_and_always_valid_text(text: str, chars: int) -> None:
    clipped = clip(text, chars, "the full text is blob " + "b" * 64)
    assert len(clipped) <= chars
    clipped.encode()
