"""What tools cut is masked before: a part of a value is not found later."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from holdfast.extensions.hook_commands import _ERROR_BYTES, _ErrorOutput
from holdfast.protocol.tools import BackgroundProcess
from holdfast.redact import AROUND_CHARS, Redactor, begin_of, make_redactor, split_at
from holdfast.runtime.runner import _masked_background
from holdfast.sandbox.process import Ended, _Output
from holdfast.tools import grep_child
from holdfast.tools.background import KEPT_CHARS, Recent, page_of
from holdfast.tools.blocking import Refused
from holdfast.tools.cloning import ask_git
from holdfast.tools.files import _nearest_line
from holdfast.tools.git import _failure
from holdfast.tools.pages import PAGE_BYTES, read_page
from holdfast.tools.web import without_cut_value

VALUE = "tulip-" + "under-9-moons"


def test_what_git_printed_is_masked_before_it_is_cut() -> None:
    for after in range(1_985, 2_000, 5):
        ended = Ended("exited", 1, f"{VALUE}{'x' * after}", 0)
        assert "moons" not in _failure(ended, Redactor({"MINE": VALUE}))


def test_the_end_of_a_cut_text_tells_no_part_of_a_value_and_not_whether_one_begins_there() -> None:
    redact = make_redactor([VALUE])
    for length in range(1, len(VALUE)):
        ends = (VALUE[:length], "?" * length)
        shown = {without_cut_value("x" * 100 + end, redact) for end in ends}
        assert len(shown) == 1
        assert VALUE[:length] not in shown.pop().replace("x", "")
    assert VALUE[-3:] not in without_cut_value(VALUE + "x" * 10, redact)


def test_of_what_git_said_in_a_copy_only_whole_words_are_told(tmp_path: Path) -> None:
    for after in range(285, 300, 5):
        git = tmp_path / f"git-{after}"
        git.write_text(f"#!/bin/sh\nprintf '{VALUE}%0{after}d end' 0 >&2\nexit 1\n")
        git.chmod(0o755)
        with pytest.raises(Refused, match=r"git cannot clone: end$") as caught:
            ask_git([str(git)], {"HOME": str(tmp_path)}, "clone")
        assert "moons" not in str(caught.value)


def test_a_command_in_the_background_does_not_tell_whether_it_ends_in_a_secret() -> None:
    redact = Redactor({"MINE": VALUE})
    for end in (VALUE[:12], "?" * 12):
        told = _masked_background(BackgroundProcess("t1.c1", f"sleep 9 # {end}"), redact)
        assert told is not None
        assert told.command == f"sleep 9 # {end}"
    for before in range(85, 100):
        told = _masked_background(BackgroundProcess("t1.c1", "x" * before + VALUE), redact)
        assert told is not None
        assert len(told.command) == 100
        assert "tul" not in told.command


MARK = "RSA PRIVATE" + " KEY"
KEY = f"-----BEGIN {MARK}-----\n" + f"{'MIIEpAIBAAKCAQEA' * 4}\n" * 20 + f"-----END {MARK}-----\n"


def parts_of(value: str, text: str) -> set[str]:
    """Return the parts of a value, of six characters, in a text without whole ones."""
    rest = text.replace(value, "")
    return {part for at in range(len(value) - 5) if (part := value[at : at + 6]) in rest}


def test_a_secret_that_lies_across_a_cut_is_masked_on_both_sides() -> None:
    redact = make_redactor([VALUE])
    for at in range(len(VALUE) + 3):
        before, after = split_at(redact, f"x{VALUE}y", at)
        assert parts_of(VALUE, before) | parts_of(VALUE, after) == set()
    assert split_at(redact, f"x{VALUE[:9]}", 5) == (
        "x" + VALUE[:4],
        VALUE[4:9],
    )  # tells nothing about a value


def test_what_a_refusal_quotes_does_not_end_within_a_secret() -> None:
    Redactor({"MINE": VALUE})
    token = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    for secret in (VALUE, token):
        for before in range(60, 80):
            assert parts_of(secret, begin_of(f"{'x' * before} {secret} end", 80)) == set()
    assert begin_of("x" * 90, 80) == "x" * 80


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("before", [0, 7, 13])
def test_no_part_of_a_secret_is_left_where_a_long_output_is_cut(before: int) -> None:
    known = Redactor({"MINE": VALUE})
    output = _Output(lambda _: None, kept_bytes=AROUND_CHARS + 2_000)
    whole = "y" * before + VALUE * 20_000
    for at in range(0, len(whole), 60_000):
        output._add(whole[at : at + 60_000].encode())
    assert output.is_long
    for redact in (known, None):  # what any redactor of the process has known is found too
        cut = output.cut(redact)
        assert parts_of(VALUE, cut) == set()
        assert cut.count("[redacted:known]\n[... ") + cut.count(" not kept ...]\n[redacted:known]") >= 1
    head, note, tail = cut.replace("[redacted:known]", "").split("\n")
    assert whole.startswith(head)
    assert whole.endswith(tail)
    dropped = int(note.removeprefix("[... ").partition(" ")[0].replace(",", ""))
    assert len(whole) - len(head) - len(tail) - dropped in range(2 * len(VALUE))


def test_a_private_key_is_not_left_in_half_where_a_long_output_is_cut() -> None:
    output = _Output(lambda _: None, kept_bytes=AROUND_CHARS + 2_000)
    for _ in range(150):
        output._add(KEY.encode())
    cut = output.cut(Redactor())
    head, _, tail = cut.partition("\n[... ")
    for part in (head, tail.partition("]\n")[2]):
        assert "MIIEpAIBAAKCAQEA" not in part.replace(KEY, "")


def test_a_long_output_is_cut_between_two_characters() -> None:
    for shift in range(4):
        output = _Output(lambda _: None, kept_bytes=AROUND_CHARS + 2_000)
        output._add(b"x" * shift)
        for _ in range(60):
            output._add("😀é".encode() * 1_000)
        assert output.is_long
        head, _, tail = output.cut(Redactor()).partition("\n[... ")
        assert "\ufffd" not in head
        assert "\ufffd" not in tail.partition("]\n")[2][:100]


def test_the_output_of_a_process_in_the_background_does_not_begin_within_a_secret() -> None:
    redact = make_redactor([VALUE])
    recent = Recent()
    whole = VALUE * 100_000
    for at in range(0, len(whole), 60_001):
        recent.add(whole[at : at + 60_001])
    assert recent.begin > 0
    assert recent.end - recent.begin >= KEPT_CHARS + AROUND_CHARS
    assert not recent.whole().startswith(VALUE)
    page = page_of(redact, recent.whole(), recent.begin, 0, 2_000, is_growing=False)
    assert parts_of(VALUE, page.text) == set()
    assert recent.end - page.first >= KEPT_CHARS


async def test_the_errors_of_a_hook_do_not_begin_within_a_secret() -> None:
    Redactor({"MINE": VALUE})
    with _ErrorOutput() as error:
        written = VALUE * 15_000 + "y" * 7
        for at in range(0, len(written), 50_000):
            os.write(error.writing, written[at : at + 50_000].encode())
            await asyncio.sleep(0)
            error._read()
        assert parts_of(VALUE, error.text()) == set()
        assert len(error.text()) > _ERROR_BYTES - len(VALUE)


@pytest.mark.parametrize("word", ["日本語のエラー ", "Fehler: größer "])
async def test_as_much_is_kept_of_the_errors_of_a_hook_in_any_language(word: str) -> None:
    with _ErrorOutput() as error:
        written = (word * 20_000).encode()
        for at in range(0, len(written), 50_000):
            os.write(error.writing, written[at : at + 50_000])
            error._read()
        assert _ERROR_BYTES - 20 < len(error.text().encode()) <= _ERROR_BYTES


@pytest.mark.parametrize("before", [0, 1, 7])
def test_a_long_line_of_a_file_is_not_cut_within_a_secret(tmp_path: Path, before: int) -> None:
    Redactor({"MINE": VALUE})
    file = tmp_path / "long.txt"
    file.write_text("x" * before + VALUE * 2_000)
    with file.open("rb") as opened:
        page = read_page(opened.fileno(), "long.txt", 1, 10)
        assert parts_of(VALUE, page) == set()
        assert len(page) in range(PAGE_BYTES - 20, PAGE_BYTES + 200)


def test_what_grep_shows_of_a_long_line_does_not_begin_within_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("a long " + f"{VALUE} " * 3_000)
    with file.open("rb") as opened:
        found = [line for _, line in grep_child._matches(opened.fileno(), re.compile("tulip"))]
    assert len(found) > 3
    assert all(VALUE in line and parts_of(VALUE, line) == set() for line in found)


def test_the_line_that_an_edit_names_is_not_cut_within_a_secret() -> None:
    Redactor({"MINE": VALUE})
    line = "token = " + "x" * 180 + VALUE + " end"
    assert parts_of(VALUE, _nearest_line(line, line[:200] + "other")) == set()
