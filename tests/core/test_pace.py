"""How many calls a session started within the last hour."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.causes import Finding
from holdfast.core.pace import STRETCH_MS, Starts, after_start, started
from holdfast.core.state import Proposed
from holdfast.protocol.tools import Allowed, Resource
from tests.core.stories import PASSED, acting, call, kinds, proposing

HOUR_MS = 3_600_000
AT_MS = st.lists(st.integers(0, 4 * HOUR_MS), max_size=60).map(sorted)


@pytest.mark.requirement("S6")
@given(AT_MS, st.integers(0, HOUR_MS))
def test_no_call_of_the_last_hour_is_left_out_and_few_older_ones_count(
    times: list[int], later_ms: int
) -> None:
    starts: Starts = ()
    for at_ms in times:
        starts = after_start(starts, at_ms)
    now_ms = (times[-1] if times else 0) + later_ms
    of_hour = [at_ms for at_ms in times if at_ms > now_ms - HOUR_MS]
    at_most = [at_ms for at_ms in times if at_ms >= now_ms - HOUR_MS - STRETCH_MS]
    assert len(of_hour) <= started(starts, now_ms) <= len(at_most)
    assert len(starts) <= 13


def test_starts_after_a_clock_that_was_set_back_do_not_count() -> None:
    starts = after_start(after_start((), 10 * HOUR_MS), 5 * HOUR_MS)
    assert started(starts, 5 * HOUR_MS) == 1


@pytest.mark.requirement("S6")
def test_a_session_counts_each_start_of_a_call() -> None:
    story = acting()
    assert started(story.state.starts, story.now_ms) == 1
    assert started(story.state.starts, story.now_ms + 2 * HOUR_MS) == 0


@pytest.mark.requirement("S6")
def test_calls_that_slow_gates_judge_side_by_side_do_not_pass_the_limit_together() -> None:
    write, read = (Resource("write", "/w/a"),), (Resource("read", "/w/a"),)
    story = proposing(*[call("write_file")] + [call("read_file")] * 3, actions_per_hour=2)
    story.admitted("t1.c1", resources=write)
    for name in ("t1.c2", "t1.c3", "t1.c4"):  # they wait for the write
        story.admitted(name, resources=read)
    story.finished("t1.c1")
    late = [Finding(story.step(f"t1.c{n}#0"), Allowed(PASSED, "{}", resources=read)) for n in (2, 3, 4)]
    assert [kinds(story.when(each)) for each in late] == [["ToolCallStarted"], [], []]
    assert [type(each.stage) for each in story.state.turn.calls[2:]] == [Proposed, Proposed]
