"""The event stream parser gives the same events however the bytes are cut, and stays within bounds."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.providers.sse import Event, EventParser, EventTooLarge


def events_of(*chunks: bytes) -> list[Event]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


LINES = st.sampled_from(
    [
        "data: one",
        "data:two",
        "data",
        "data: é漢🎈",
        "event: error",
        "id: 7",
        "id",
        ": note",
        "",
        "",
        "x: y",
        "\ufeff",
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    ending = draw(st.sampled_from(["\n", "\r", "\r\n"]))
    mark = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    return mark + (ending.join(draw(st.lists(LINES, max_size=12))) + ending).encode()


def cut(content: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(content), *(place % (len(content) + 1) for place in at)})
    return [content[start:end] for start, end in itertools.pairwise(places)]


@pytest.mark.requirement("L7")
@settings(deadline=None)
@given(streams(), st.lists(st.integers(0, 300), max_size=30))
def test_any_cut_gives_the_events_of_the_whole(content: bytes, at: list[int]) -> None:
    assert events_of(*cut(content, at)) == events_of(content)
    assert events_of(*(content[i : i + 1] for i in range(len(content)))) == events_of(content)


@pytest.mark.requirement("L7")
def test_all_line_ends_comments_and_a_mark_mean_the_same() -> None:
    expected = [Event("", "a\nb", None), Event("error", "c", "7")]
    text = ": hello\ndata: a\ndata: b\n\nevent: error\nid: 7\ndata:c\n\n"
    for ending in ("\n", "\r", "\r\n"):
        assert events_of(b"\xef\xbb\xbf" + text.replace("\n", ending).encode()) == expected


@pytest.mark.requirement("L7")
def test_an_event_without_its_blank_line_is_not_given() -> None:
    assert events_of(b"data: whole\n\ndata: half\n") == [Event("", "whole", None)]


@pytest.mark.requirement("A3")
@pytest.mark.parametrize("piece", [b"data: xxxxxxxxxx\n", b"xxxxxxxxxxxxxxxx"], ids=["lines", "one line"])
def test_an_endless_event_is_refused(piece: bytes) -> None:
    parser = EventParser(max_event_bytes=1_000)
    with pytest.raises(EventTooLarge):
        list(map(parser.feed, [piece] * 100))


@pytest.mark.requirement("A3")
def test_many_small_events_never_reach_the_bound() -> None:
    parser = EventParser(max_event_bytes=1_000)
    assert sum(len(parser.feed(b"data: 0123456789\n\n" * 10)) for _ in range(100)) == 1_000


@pytest.mark.requirement("L7")
def test_the_corpus_of_others_is_read_as_they_read_it(shared: Path) -> None:
    scorer, adapter = shared / "tools" / "score_corpora.py", Path(__file__).parent / "sse_adapter.py"
    done = subprocess.run(
        [sys.executable, str(scorer), "--adapter", str(adapter), "--sets", "sse"],
        capture_output=True,
        text=True,
        check=True,
    )
    scores = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("sse/")]
    assert sorted(scores) == ["165/165", "90/90"], done.stdout
