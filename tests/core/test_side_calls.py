"""Side calls beside the work: when they start, what they reserve and cost, and that none ever fails a run."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from holdfast.core import budget
from holdfast.core.causes import Outcome
from holdfast.core.retry import SIDE_ATTEMPTS
from holdfast.core.side_calls import afford
from holdfast.core.state import phase
from holdfast.core.wanted import CallModel, PrepareRequest, PrepareSide, wanted
from holdfast.protocol import events as e
from holdfast.protocol.commands import Pause, Stop
from holdfast.protocol.failures import Failure
from holdfast.protocol.kinds import Kinds
from holdfast.protocol.messages import ToolCall, Usage
from holdfast.protocol.outcomes import ModelCut, Unaffordable, Unready
from holdfast.testing.invariants import check_journal
from tests.core.stories import FACTS, Story, a_turn, call, calling, kinds, only, opened, request, words

GOES_WELL = '{"progress":"good","decision":"continue","reason":"It works.","next":"More."}'
USED = Usage(1_000, 100)


def asked(**changes: Any) -> Story:
    """After one turn, a side call is open beside the second model call."""
    story = opened(**{"reflect_turns": 1} | changes)
    a_turn(story)
    story.side_prepared()
    story.prepared()
    return story


def keys(story: Story) -> list[str]:
    return [action.key for action in wanted(story.state) if isinstance(action, CallModel)]


def test_a_side_call_runs_beside_the_call_for_work() -> None:
    story = asked()
    assert keys(story) == ["m2", "s1"]
    assert story.side_call.purpose == "reflection"
    assert story.model_call.purpose == "work"


def test_a_side_call_is_prepared_before_the_work_and_only_once() -> None:
    story = opened(reflect_turns=1)
    a_turn(story)
    steps = [a for a in wanted(story.state) if isinstance(a, PrepareSide | PrepareRequest)]
    assert [step.key for step in steps] == ["s1", "m2"]
    story.side_prepared()
    assert not [a for a in wanted(story.state) if isinstance(a, PrepareSide)]


def test_the_answer_of_a_side_call_is_charged_and_is_not_the_answer_of_the_run() -> None:
    story = asked()
    before = story.state.models
    story.side_answered(words(GOES_WELL), usage=USED)
    totals = story.run.totals
    assert (totals.model_calls, totals.side_calls, totals.turns) == (2, 1, 1)
    assert totals.usage.input_tokens == 1_100
    assert totals.cost_microusd == story.state.side.tally("reflection").spent_microusd + 140
    assert phase(story.state) == "calling"
    assert story.state.models == before


@pytest.mark.parametrize("code", ["rate_limited", "provider_transient"])
def test_a_side_call_is_tried_again_with_the_first_step_after_its_time_and_then_given_up(code: Any) -> None:
    story = asked()
    for attempt in range(1, SIDE_ATTEMPTS):
        ended = only(e.SideCallEnded, story.side_failed(code))
        assert ended.retry_at_ms > story.now_ms
        assert not [a for a in wanted(story.state) if isinstance(a, PrepareSide)]
        story.later(120)
        story.given(e.NoteAdded("cost", "something happened"))
        started = only(e.ModelCallStarted, story.side_prepared())
        assert (started.attempt, started.key) == (attempt + 1, f"s{attempt + 1}")
    assert not only(e.SideCallEnded, story.side_failed(code)).retry_at_ms
    story.later(120)
    story.given(e.NoteAdded("cost", "something happened"))
    assert not [a for a in wanted(story.state) if isinstance(a, PrepareSide)]
    assert not story.run.status


@pytest.mark.parametrize("code", ["provider_fatal", "provider_refused", "context_overflow", "cancelled"])
def test_a_side_call_that_fails_for_good_never_fails_the_run(code: Any) -> None:
    story = asked()
    assert kinds(story.side_failed(code)) == ["SideCallEnded"]
    story.answered(words())
    assert (story.run.status, story.run.reason) == ("done", "answer")
    assert story.state.models.learnt_window_tokens == 0


def test_a_side_call_that_cannot_be_made_is_given_up_for_this_turn() -> None:
    for found in (
        Unaffordable("cost", "Too much.", 1_000, 100),
        Unready(Failure("provider_unready", "No key.")),
    ):
        story = opened(reflect_turns=1)
        a_turn(story)
        (event,) = story.found("s1", found)
        assert isinstance(event, e.ModelCallUnaffordable | e.ModelCallUnready)
        assert event.purpose == "reflection"
        assert next(type(a) for a in wanted(story.state)) is PrepareRequest
        assert not story.run.landing


def test_the_end_of_a_run_waits_for_the_side_call_and_cancels_it() -> None:
    story = asked()
    assert kinds(story.answered(words())) == ["Responded", "RunStopping"]
    assert keys(story) == []
    assert kinds(story.when(Outcome("s1", ModelCut("", Usage(5))))) == ["SideCallEnded", "RunStopped"]
    assert story.run.totals.usage.input_tokens == 100 + 100 + 300, "a cut call counts as it was expected"
    assert story.run.totals.is_estimated
    assert (story.run.status, story.run.reason) == ("done", "answer")
    check_journal(story.records)


def test_a_side_call_that_does_not_end_in_time_is_abandoned_and_its_reservation_stays() -> None:
    story = asked()
    story.command(Stop())
    story.when(Outcome("m2", ModelCut("")))
    assert phase(story.state) == "stopping"
    assert kinds(story.due("grace")) == ["ModelCallAbandoned", "RunStopped"]
    assert story.run.totals.held_microusd == 5_000


def test_the_next_driver_abandons_an_open_side_call_and_asks_again() -> None:
    story = asked()
    events = story.attach()
    assert [each.key for each in events if isinstance(each, e.ModelCallAbandoned)] == ["m2", "s1"]
    started = only(e.ModelCallStarted, story.side_prepared())
    assert (started.key, started.attempt) == ("s2", 2)
    assert story.run.totals.held_microusd == 10_000
    assert story.state.side.tally("reflection").asked == 1
    assert story.state.side.tally("reflection").spent_microusd == 5_000, "what it may have cost counts"


def test_drivers_that_die_again_and_again_ask_no_more_than_three_times() -> None:
    story = asked(reflect_turns=1)
    for _ in range(SIDE_ATTEMPTS - 1):
        story.attach()
        story.side_prepared()
    story.attach()
    assert not [a for a in wanted(story.state) if isinstance(a, PrepareSide)]


def test_a_visitor_ends_a_run_with_an_open_side_call() -> None:
    story = asked()
    events = story.visit(Stop())
    assert [each.key for each in events if isinstance(each, e.ModelCallAbandoned)] == ["m2", "s1"]
    assert story.run.status == "interrupted"


@pytest.mark.parametrize("event", [e.SessionForked("branch", "parent", 1), e.SessionImported()])
def test_a_branch_or_an_imported_session_runs_no_side_call_of_others(event: e.Event) -> None:
    story = asked()
    story.given(event)
    assert keys(story) == []
    abandoned = [each for each in story.attach() if isinstance(each, e.ModelCallAbandoned)]
    assert [(each.key, each.purpose) for each in abandoned] == [("m2", "work"), ("s1", "reflection")]


def test_an_open_side_call_goes_on_in_a_pause_and_no_other_one_starts() -> None:
    story = asked()
    story.command(Pause())
    story.answered(call(), finish="tool_calls")
    assert keys(story) == ["s1"]
    story.side_answered(words(GOES_WELL))
    assert wanted(story.state) == []


def test_work_that_is_short_only_of_the_reservation_of_a_side_call_waits_for_its_end() -> None:
    story = opened(reflect_turns=1)
    a_turn(story)
    story.side_prepared()
    story.found("m2", Unaffordable("cost", "Too much.", 1_000, 100))
    assert not story.run.landing
    assert not [a for a in wanted(story.state) if isinstance(a, PrepareRequest)]
    story.side_failed("provider_fatal")
    assert [a.key for a in wanted(story.state) if isinstance(a, PrepareRequest)] == ["m2"]
    story.found("m2", Unaffordable("cost", "Too much.", 1_000, 100))
    assert story.run.landing == "cost"


def test_no_side_call_starts_once_the_run_lands() -> None:
    story = opened(reflect_turns=1, turns=1)
    a_turn(story)
    assert story.run.landing
    assert not [a for a in wanted(story.state) if isinstance(a, PrepareSide)]


def test_a_side_call_reserves_beside_the_open_call_and_leaves_it_a_last_pass() -> None:
    story = opened(reflect_turns=1, cost_microusd=1_000_000)
    a_turn(story)
    assert not isinstance(afford(story.state, "reflection", 4_000, 400, Kinds(prose=4_000)), Unaffordable)
    story.prepared(reserved_microusd=990_000, reserved_tokens=4_000)
    short = afford(story.state, "reflection", 4_000, 400, Kinds(prose=4_000))
    assert isinstance(short, Unaffordable)
    assert short.reason == "cost"


def test_the_work_never_spends_what_a_side_call_has_reserved() -> None:
    story = opened(reflect_turns=1, cost_microusd=1_000_000)
    a_turn(story)
    story.side_prepared(reserved_microusd=990_000, reserved_tokens=4_000)
    short = budget.afford(story.state, 40_000, 40_000, Kinds(prose=40_000), is_last_pass=True)
    assert isinstance(short, Unaffordable)
    assert short.reason == "cost"
    assert budget.affordable_bytes(story.state, story.settings) < 10_000


def test_the_reflections_of_a_run_may_cost_a_twentieth_of_its_limit() -> None:
    story = opened(reflect_turns=1, cost_microusd=200_000)
    a_turn(story)
    grant = afford(story.state, "reflection", 4_000, 400, Kinds(prose=4_000))
    assert not isinstance(grant, Unaffordable)
    assert grant.reserved_microusd <= 10_000
    assert isinstance(afford(story.state, "reflection", 40_000, 40_000, Kinds(prose=40_000)), Unaffordable)


def test_a_side_call_needs_a_request_to_the_same_model() -> None:
    story = opened(reflect_turns=1)
    assert not [a for a in wanted(story.state) if isinstance(a, PrepareSide)]
    a_turn(story)
    assert [a for a in wanted(story.state) if isinstance(a, PrepareSide)]
    story.given(e.ModelCallStarted("m2", 1, 2, 1, "other:model", request()))
    assert not [a for a in wanted(story.state) if isinstance(a, PrepareSide)]


def test_calls_of_a_side_call_are_counted_and_never_run() -> None:
    story = asked()
    ended = story.side_answered(words(GOES_WELL), ToolCall("", "shell", "{}"))[0]
    assert isinstance(ended, e.SideCallEnded)
    assert ended.calls == 1
    assert story.state.turn.calls == ()


def test_the_next_run_counts_its_own_side_calls() -> None:
    story = asked(max_reflections=1)
    story.side_answered(words(GOES_WELL))
    assert story.state.side.tally("reflection").asked == 1
    story.answered(words())
    story.send()
    assert story.state.side.tally("reflection").asked == 0
    assert story.state.side.tally("reflection").outcomes == 1


def test_without_reflections_nothing_is_asked() -> None:
    story = calling(reflect_turns=1, max_reflections=0)
    story.answered(call(), finish="tool_calls")
    assert not [a for a in wanted(story.state) if isinstance(a, PrepareSide)]


@pytest.mark.untraced
@pytest.mark.requirement("L2-05")
def test_work_and_side_calls_together_never_spend_more_than_the_limits() -> None:
    assert sum(map(side_calls_of, range(40))) > 40


def side_calls_of(seed: int) -> int:
    """Play a session with limits of any size, and check every record. Return how many side calls it had."""
    dice = random.Random(seed)
    limits = {"cost_microusd": dice.randrange(20_000, 2_000_000), "tokens": dice.randrange(20_000, 400_000)}
    story = opened(reflect_turns=1, max_reflections=99, turns=99, **limits)
    size = dice.randrange(500, 9_000)
    for _ in range(25):
        prepare = [a for a in wanted(story.state) if isinstance(a, PrepareSide | PrepareRequest)]
        if prepare:
            size = afforded(story, prepare[0], size, dice)
        else:
            size += happens(story, dice)
        check_journal(story.records)
        if story.run.status:
            break
    return story.run.totals.side_calls


def afforded(story: Story, step: PrepareSide | PrepareRequest, size: int, dice: random.Random) -> int:
    """Prepare a request as the engine does. Return the size of the next one."""
    fresh = dice.randrange(100, 3_000)
    kinds = Kinds(prose=size + fresh)
    if isinstance(step, PrepareSide):
        grant = afford(story.state, "reflection", size + fresh, fresh, kinds)
    else:
        size += fresh
        grant = budget.afford(story.state, size, fresh, kinds, is_last_pass=step.is_last_pass)
    sizes = {"size_bytes": size, "fresh_bytes": fresh, "kinds": kinds}
    found = grant if isinstance(grant, Unaffordable) else request(**sizes, **asdict(grant))
    assert story.found(step.key, found)
    return size


def happens(story: Story, dice: random.Random) -> int:
    """Something that is in flight ends, or the driver dies. Return how much the next request has more."""
    side, work = story.state.side.open, story.state.models.open
    if side is not None and dice.random() < 0.5:
        usage = Usage(
            dice.randrange(1, side.expected_tokens + 1), dice.randrange(1, side.output_cap_tokens + 1)
        )
        story.side_answered(words(GOES_WELL), usage=usage)
    elif work is not None and dice.random() < 0.15:
        story.attach()
    elif work is not None:
        usage = Usage(
            dice.randrange(1, work.expected_tokens + 1), dice.randrange(1, work.output_cap_tokens + 1)
        )
        story.answered(call(arguments=f'{{"n":{story.state.seq}}}'), finish="tool_calls", usage=usage)
        for each in story.state.turn.calls:
            if not story.run.status:
                story.admitted(each.call_id)
                story.finished(each.call_id, str(story.state.seq))
        return 400
    elif side is not None:
        story.side_failed("provider_fatal")
    return 0


@pytest.mark.parametrize("is_caching", [True, False])
def test_the_cached_price_counts_only_where_the_provider_caches(is_caching: bool) -> None:
    """3,000 of 4,300 tokens were counted before: at a tenth of the price, a reflection stays within its share."""
    facts = replace(FACTS, cache_read_microusd_per_mtok=100_000)
    story = opened(reflect_turns=1, cost_microusd=100_000, facts=facts)
    story.prepared(size_bytes=12_000, kinds=Kinds(prose=12_000))
    used = Usage(3_000, 10, cache_read_tokens=2_000 if is_caching else 0)
    story.answered(call(), finish="tool_calls", usage=used)
    grant = afford(story.state, "reflection", 12_400, 400, Kinds(prose=12_400))
    assert isinstance(grant, Unaffordable) != is_caching
