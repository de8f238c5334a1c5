"""What tools cut is masked before: a part of a value is not found later."""

from __future__ import annotations

from holdfast.redact import Redactor, make_redactor
from holdfast.sandbox.process import Ended
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
