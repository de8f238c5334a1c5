"""What tools cut is masked before: a part of a value is not found later."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.protocol.tools import BackgroundProcess
from holdfast.redact import Redactor, make_redactor
from holdfast.runtime.runner import _masked_background
from holdfast.sandbox.process import Ended
from holdfast.tools.blocking import Refused
from holdfast.tools.cloning import ask_git
from holdfast.tools.git import _failure
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
        command = ["sh", "-c", f"printf '{VALUE}%0{after}d end' 0 >&2; exit 1"]
        with pytest.raises(Refused, match=r"git cannot clone: end$") as caught:
            ask_git(command, {"HOME": str(tmp_path)}, "clone")
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
