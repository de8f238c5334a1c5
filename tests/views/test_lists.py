"""The lists of a home: what of an open approval is shown, and what is hidden."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from holdfast.protocol.grants import Grant
from holdfast.protocol.rows import Approval
from holdfast.protocol.tools import Content, Offer, Reach
from holdfast.views.lines import Span, cells, wrapped
from holdfast.views.lists import approval_call_lines, approval_lines, clipped_call, lasting_lines


def test_a_clipped_call_says_how_much_is_hidden() -> None:
    shown, hidden = clipped_call(json.dumps({"command": "x" * 10_000}))
    assert f"[... {hidden:,} characters hidden ...]" in shown
    assert shown.count("x") + hidden == 10_000
    assert clipped_call('{"path":"a.txt"}') == ("path: a.txt", 0)


@pytest.mark.requirement("H5")
@pytest.mark.parametrize("width", [40, *(pytest.param(each, marks=pytest.mark.long) for each in (80, 200))])
@pytest.mark.parametrize("blank", [" ", "\t", "\u2800", "\u3164"])
def test_nothing_in_a_call_can_pass_for_a_line_of_the_prompt(width: int, blank: str) -> None:
    forged = "".join(f"x{blank * n}Approve it? y{blank * n}  in          /safe " for n in range(1, 2 * width))
    row = Approval(
        "ID", "S", "t1.c1", "shell", json.dumps({"command": forged[:3_900]}), 0, 1,
        source="builtin", cwd=forged, binary=forged,
    )  # fmt: skip
    lines = [
        "".join(span.text for span in piece).expandtabs()
        for line in approval_call_lines(row)
        for piece in wrapped(line, width)
    ]
    assert all(cells(line) <= width for line in lines)
    ours = [line for line in lines if not line.lstrip().startswith("│ ")]
    assert [line[:14] for line in ours] == ["  in          ", "  begins with ", "  tool        "]


def test_the_lines_of_an_approval_stay_at_its_left_on_a_narrow_terminal() -> None:
    reason = "Running commands needs approval."
    row = Approval("01JXT21Q020000000000000002-1", "S", "t1.c1", "shell", "{}", 0, 604_800_000, reason)
    first, *others = (
        "".join(span.text for span in piece)
        for line in approval_lines([row], 40)
        for piece in wrapped(line, 40)
    )
    assert first == row.id
    assert any("asked" in line for line in others)
    assert all(len(line) - len(line.lstrip()) <= 14 for line in others), others


@pytest.mark.requirement("S6", "H5")
def test_hidden_characters_in_all_that_a_question_shows_are_written_out() -> None:
    hidden = "a\u202eb\u200b"
    reach = Reach(
        (Content(f"/{hidden}", "0" * 64), Content("/large", "99 bytes, 1, 2")), (hidden,), (hidden,)
    )
    arguments = json.dumps({"command": hidden})
    row = Approval("ID", "S", "t1.c1", "shell", arguments, 0, 1, binary=hidden, reach=reach)
    text = "\n".join("".join(map(str, map(_text, line))) for line in approval_call_lines(row))
    assert text.count("a\\u202eb\\u200b") == 5
    assert "/large (99 bytes)" in text
    assert hidden not in text


@pytest.mark.requirement("S6", "H5")
def test_a_question_tells_of_the_grant_that_has_ended_and_of_the_one_it_offers() -> None:
    lapsed = Grant("S-g1", "deploy", Offer("deploy(site)", "0" * 64), 1_750_000_000_000, 3)
    row = Approval("ID", "S", "t1.c1", "deploy", "{}", 0, 1, offer=lapsed.offer, lapsed=lapsed)
    ended, offered = ("".join(map(_text, line)) for line in lasting_lines(row))
    assert ended.startswith("  The grant S-g1 covered this, and ended 2025-06-15 ")
    assert offered == "  always      deploy(site) with exactly these arguments"
    (used_up, _) = lasting_lines(replace(row, lapsed=replace(lapsed, uses=0)))
    assert "has been used as often as it may be" in _text(used_up[0])
    assert list(lasting_lines(replace(row, offer=None, lapsed=None))) == []


def _text(span: Span | str) -> str:
    return span if isinstance(span, str) else span.text
