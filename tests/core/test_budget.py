"""Budgets are proofs: what a call may cost at the worst is reserved before it is sent, and never breaks the limit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core import budget
from holdfast.core.budget import Grant
from holdfast.core.causes import Outcome, Prepared
from holdfast.core.state import next_key, open_run
from holdfast.core.summary import summary
from holdfast.protocol import events as e
from holdfast.protocol.limits import ModelFacts, Tier, cost_microusd
from holdfast.protocol.messages import ModelReply, Text, ToolCall, Usage
from holdfast.protocol.outcomes import Unaffordable
from tests.core.stories import FACTS, Story, a_turn, call, kinds, only, opened, request, settings, words

BOTH = "another call and a last answer after it"
PRICES = st.integers(0, 200_000_000)
"""Per million tokens: up to 200 dollars."""


TIERS = st.lists(
    st.builds(Tier, st.sampled_from([500, 4_000, 20_000, 100_000]), PRICES, PRICES, PRICES, PRICES),
    max_size=2,
    unique_by=lambda tier: tier.above_tokens,
)
"""Any prices for larger calls, also lower ones."""


@st.composite
def facts(draw: st.DrawFn) -> ModelFacts:
    return ModelFacts(
        "openai",
        "m",
        context_tokens=draw(st.sampled_from([8_192, 128_000, 1_000_000])),
        max_output_tokens=draw(st.sampled_from([0, 512, 8_192])),
        input_microusd_per_mtok=draw(PRICES),
        output_microusd_per_mtok=draw(PRICES),
        cache_read_microusd_per_mtok=draw(PRICES),
        cache_write_microusd_per_mtok=draw(PRICES),
        price="known",
        tiers=tuple(sorted(draw(TIERS), key=lambda tier: tier.above_tokens)),
    )


def within(draw: st.DrawFn, grant: Grant) -> Usage:
    """A usage that stays within what was reserved."""
    most = grant.reserved_tokens - grant.output_cap_tokens
    read = draw(st.just(most) | st.integers(0, most))
    cached = draw(st.integers(0, read))
    written = draw(st.integers(0, read - cached))
    output = draw(st.just(grant.output_cap_tokens) | st.integers(0, grant.output_cap_tokens))
    return Usage(read, output, cached, written)


def reserve(story: Story, size_bytes: int) -> Grant | Unaffordable:
    """Prepare the next request as the engine does."""
    run = open_run(story.state)
    assert run is not None
    grant = budget.afford(story.state, size_bytes, is_final=bool(run.landing))
    key = next_key(story.state)
    if isinstance(grant, Unaffordable):
        story.when(Prepared(key, grant))
    else:
        reserved = request(
            size_bytes=size_bytes,
            expected_tokens=grant.expected_tokens,
            output_cap_tokens=grant.output_cap_tokens,
            reserved_tokens=grant.reserved_tokens,
            reserved_microusd=grant.reserved_microusd,
        )
        story.when(Prepared(key, reserved))
    return grant


@pytest.mark.requirement("H3", "L2-07", "B8")
@examples(max_examples=150, deadline=None)
@given(st.data(), facts(), st.integers(1_000, 5_000_000), st.integers(2_000, 3_000_000))
def test_what_is_spent_and_held_never_exceeds_the_limits(
    data: st.DataObject, model: ModelFacts, limit_microusd: int, tokens: int
) -> None:
    story = opened(facts=model, cost_microusd=limit_microusd, tokens=tokens, turns=50)
    size = data.draw(st.integers(200, 60_000))
    for _ in range(12):
        if open_run(story.state) is None:
            break
        granted = reserve(story, size)
        if isinstance(granted, Unaffordable):
            continue
        totals = story.run.totals
        reserved = totals.cost_microusd + totals.held_microusd + granted.reserved_microusd
        assert reserved <= limit_microusd
        assert totals.usage.total_tokens + totals.held_tokens + granted.reserved_tokens <= tokens
        if data.draw(st.integers(0, 4)) == 0:
            story.attach()  # a crash: nobody knows what it cost
            continue
        usage = within(data.draw, granted)
        story.when(Outcome(story.model_call.key, ModelReply((call(),), usage, "tool_calls")))
        for each in story.state.turn.calls:
            story.admitted(each.call_id)
            story.finished(each.call_id, str(story.state.seq))
        size += data.draw(st.integers(0, 30_000))
    totals = story.run.totals
    assert totals.cost_microusd + totals.held_microusd <= limit_microusd
    assert totals.usage.total_tokens + totals.held_tokens <= tokens


@pytest.mark.requirement("H3", "L2-07")
@examples(max_examples=400, deadline=None)
@given(
    st.data(), facts(), st.integers(1_000, 5_000_000), st.integers(4_000, 3_000_000), st.integers(200, 60_000)
)
def test_after_a_granted_call_a_last_pass_over_its_answer_is_affordable(
    data: st.DataObject, model: ModelFacts, limit_microusd: int, tokens: int, size: int
) -> None:
    story = opened(facts=model, cost_microusd=limit_microusd, tokens=tokens)
    for _ in range(data.draw(st.integers(1, 3))):
        granted = reserve(story, size)
        assume(isinstance(granted, Grant) and not story.run.landing)
        assert isinstance(granted, Grant)
        usage = within(data.draw, granted)
        story.answered(call(), usage=usage)
        story.admitted(story.state.turn.calls[0].call_id)
        story.finished(story.state.turn.calls[0].call_id, str(story.state.seq))
        per_token = min(size / max(usage.input_tokens, 1), budget.WORST_BYTES_PER_TOKEN)
        size += data.draw(st.integers(0, int(usage.output_tokens * per_token)))
    last = budget.afford(story.state, size, is_final=True)
    assert isinstance(last, Grant) or last.reason == "context"


@pytest.mark.requirement("H3", "L2-07")
@pytest.mark.parametrize(
    ("prices", "limits", "size", "usage"),
    [
        ((5_000_000, 0), {"cost_microusd": 231_392}, 43_516, Usage(21_822, 150)),
        ((1_000_000, 1_000_000), {"tokens": 48_000, "cost_microusd": 10**9}, 40_774, Usage(20_451, 0)),
    ],
    ids=["cost", "tokens"],
)
def test_a_reading_that_took_the_worst_case_can_be_paid_again(
    prices: tuple[int, int], limits: dict[str, int], size: int, usage: Usage
) -> None:
    model = replace(
        FACTS, input_microusd_per_mtok=prices[0], output_microusd_per_mtok=prices[1], max_output_tokens=300
    )
    story = opened(facts=model, **limits)
    if isinstance(reserve(story, size), Unaffordable):
        return  # it was not granted in the first place
    story.answered(call(), usage=usage)
    assert isinstance(budget.afford(story.state, size + 2 * usage.output_tokens, is_final=True), Grant)


@pytest.mark.requirement("L2-07")
def test_a_dime_is_never_exceeded_however_much_the_model_writes() -> None:
    story = opened(cost_microusd=100_000, turns=100)
    size, calls = 4_000, 0
    while open_run(story.state) is not None:
        granted = reserve(story, size)
        if isinstance(granted, Unaffordable):
            continue
        calls += 1
        worst = Usage(granted.reserved_tokens - granted.output_cap_tokens, granted.output_cap_tokens)
        story.when(Outcome(story.model_call.key, ModelReply((Text("x"), call()), worst, "length")))
        for each in story.state.turn.calls:
            story.admitted(each.call_id)
            story.finished(each.call_id, str(calls))
        size += 2 * worst.output_tokens
    assert (story.run.status, story.run.reason) == ("limit", "cost")
    assert 0 < story.run.totals.cost_microusd <= 100_000
    assert story.run.has_landed, "it ended in an answer"
    assert calls >= 2


@pytest.mark.requirement("L2-07")
def test_at_80_percent_of_the_budget_model_and_user_are_told_once() -> None:
    story = opened(cost_microusd=10_000)
    story.prepared(reserved_microusd=1)
    events = story.answered(call(), usage=Usage(7_999, 0))
    assert "NoteAdded" not in kinds(events)
    story.admitted("t1.c1")
    assert kinds(story.finished("t1.c1")) == ["ToolCallFinished"]
    story.prepared(reserved_microusd=1)
    story.answered(call(), usage=Usage(1, 0))
    story.admitted("t2.c1")
    told = only(e.NoteAdded, story.finished("t2.c1"))
    assert (told.about, told.text) == ("cost", "80 % of the budget of $0.01 is used; $0.002 is left.")
    assert kinds(a_turn(story, call("other"))) == ["ToolCallFinished"]


@pytest.mark.requirement("B2")
def test_at_80_percent_of_the_tokens_model_and_user_are_told_once() -> None:
    story = opened(tokens=1_000)
    story.prepared()
    story.answered(call(), usage=Usage(700, 100))
    story.admitted("t1.c1")
    assert only(e.NoteAdded, story.finished("t1.c1")).about == "tokens"
    assert kinds(a_turn(story, call("other"))) == ["ToolCallFinished"]


@pytest.mark.requirement("H3", "L2-07")
def test_what_is_held_after_crashes_counts_towards_the_warning() -> None:
    story = opened(cost_microusd=10_000)
    story.prepared(reserved_microusd=8_000)
    assert kinds(story.attach()) == ["Attached", "ModelCallAbandoned", "NoteAdded"]


@pytest.mark.requirement("L2-07")
def test_a_model_without_a_known_price_is_bound_by_tokens_and_its_cost_is_unknown() -> None:
    story = opened(
        facts=replace(FACTS, price="unknown", input_microusd_per_mtok=0, output_microusd_per_mtok=0)
    )
    granted = reserve(story, 4_000)
    assert isinstance(granted, Grant)
    assert granted.reserved_microusd == 0
    assert summary(story.state).cost_microusd is None
    story.answered(words(), usage=Usage(1_000, 1_000))
    assert summary(story.state).cost_microusd is None


LONG = replace(
    FACTS,
    context_tokens=1_000_000,
    max_output_tokens=1_000,
    tiers=(Tier(10_000, 2_000_000, 6_000_000, 2_000_000, 2_000_000),),
)
"""A model whose price doubles for a call that reads more than 10,000 tokens."""


@pytest.mark.requirement("H3", "L2-07")
def test_a_call_is_settled_at_the_price_of_its_size() -> None:
    assert cost_microusd(LONG, Usage(10_000, 1_000)) == 14_000
    assert cost_microusd(LONG, Usage(10_001, 1_000, cache_read_tokens=9_000)) == 26_002


@pytest.mark.requirement("H3", "L2-07")
def test_the_dearer_price_is_reserved_when_a_call_may_grow_into_it() -> None:
    small, large = (budget.afford(opened(facts=LONG).state, size, is_final=True) for size in (19_000, 21_000))
    assert isinstance(small, Grant)
    assert isinstance(large, Grant)
    assert small.expected_tokens < 10_000
    assert large.expected_tokens < 10_000, "at two bytes a token it is more"
    assert small.reserved_microusd == 9_564 + 1_000 * 4
    assert large.reserved_microusd == 10_564 * 2 + 1_000 * 6


@pytest.mark.requirement("H3", "L2-07")
def test_a_last_pass_is_cut_to_the_cheaper_size_where_the_dearer_one_cannot_be_paid() -> None:
    story = opened(facts=LONG, cost_microusd=15_000)
    fits = budget.window_tokens(story.state, story.settings, is_final=True)
    assert fits == int(10_000 / budget.WORST_SHARE) - budget.OVERHEAD_TOKENS
    story = opened(facts=LONG, cost_microusd=40_000)
    assert budget.window_tokens(story.state, story.settings, is_final=True) > 10_000


def test_a_free_model_costs_nothing_and_that_is_known() -> None:
    story = opened(facts=replace(FACTS, price="free", input_microusd_per_mtok=0, output_microusd_per_mtok=0))
    assert isinstance(reserve(story, 4_000), Grant)
    story.answered(words())
    assert summary(story.state).cost_microusd == 0


def test_the_cap_that_is_sent_is_the_least_of_setting_model_window_and_budget() -> None:
    def cap(**changes: Any) -> int:
        model = replace(FACTS, **{name: changes.pop(name) for name in list(changes) if hasattr(FACTS, name)})
        granted = budget.afford(opened(facts=model, **changes).state, 1_000, is_final=False)
        assert isinstance(granted, Grant)
        return granted.output_cap_tokens

    assert opened().settings.model.max_output_tokens == cap()
    assert cap(max_output_tokens=500) == 500
    assert cap(context_tokens=4_096) < 4_096
    assert 256 <= cap(cost_microusd=20_000) < 5_000
    assert 256 <= cap(tokens=10_000) < 5_000


@pytest.mark.requirement("C15")
def test_a_conversation_that_leaves_no_room_for_an_answer_is_short_of_context() -> None:
    story = opened(facts=replace(FACTS, context_tokens=8_192))
    short = budget.afford(story.state, 40_000, is_final=False)
    assert isinstance(short, Unaffordable)
    assert short.reason == "context"


@pytest.mark.requirement("B2")
@pytest.mark.parametrize(("limit", "reason"), [({"cost_microusd": 100}, "cost"), ({"tokens": 100}, "tokens")])
def test_a_limit_that_affords_no_call_says_which_one_it_is(limit: dict[str, int], reason: str) -> None:
    for is_final in (False, True):
        short = budget.afford(opened(**limit).state, 4_000, is_final=is_final)
        assert isinstance(short, Unaffordable)
        assert short.reason == reason


@pytest.mark.requirement("B2", "L2-07")
@pytest.mark.parametrize(
    ("limit", "is_final", "told"),
    [
        (
            {"cost_microusd": 5_100},
            False,
            f"With $0.0001 left of the budget of $0.0051, {BOTH} could cost more than that.",
        ),
        (
            {"cost_microusd": 5_100},
            True,
            "With $0.0001 left of the budget of $0.0051, a last answer could cost more than that.",
        ),
        ({"cost_microusd": 5_000}, True, "The budget of $0.005 is used up."),
        (
            {"tokens": 7_200},
            False,
            f"With 1,200 left of the limit of 7,200 tokens, {BOTH} could take more than that.",
        ),
        (
            {"tokens": 7_200},
            True,
            "With 1,200 left of the limit of 7,200 tokens, a last answer could take more than that.",
        ),
        ({"tokens": 6_000}, True, "The limit of 6,000 tokens is used up."),
    ],
)
def test_what_does_not_fit_any_more_is_told_with_what_is_left(
    limit: dict[str, int], is_final: bool, told: str
) -> None:
    story = opened(**limit)
    story.prepared()
    story.answered(call(), usage=Usage(5_000, 1_000 if "tokens" in limit else 0))
    short = budget.afford(story.state, 4_000, is_final=is_final)
    assert isinstance(short, Unaffordable)
    assert short.message == told


# --- estimates ----------------------------------------------------------------------------------


def measured(size_bytes: int, tokens: int) -> Story:
    story = opened()
    story.prepared(size_bytes=size_bytes)
    story.answered(call(), usage=Usage(tokens, 1))
    return story


def test_before_a_provider_counted_bytes_stand_for_tokens() -> None:
    assert budget.expected_tokens(opened().state, 3_500) == 1_000
    assert budget.worst_tokens(opened().state, 2_000) == 1_000 + budget.OVERHEAD_TOKENS


def test_the_estimate_follows_what_the_provider_counted() -> None:
    story = measured(4_000, 1_000)
    assert budget.expected_tokens(story.state, 4_000) == 1_000
    assert budget.expected_tokens(story.state, 8_000) == 2_000
    assert budget.expected_tokens(story.state, 2_000) == 500


def test_an_estimated_usage_does_not_calibrate() -> None:
    story = opened()
    story.prepared()
    reply = ModelReply((ToolCall("", "shell", "{}"),), Usage(9_999, 1), is_estimated=True)
    story.when(Outcome(story.model_call.key, reply))
    assert story.state.models.measured_tokens == 0


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**7))
def test_the_worst_case_is_never_below_what_is_expected(size: int, tokens: int, asked: int) -> None:
    state = measured(size, tokens).state
    assert budget.worst_tokens(state, asked) >= budget.expected_tokens(state, asked)


@given(facts(), st.integers(1, 10**6), st.integers(1, 10**6), st.booleans())
def test_what_fits_the_window_leaves_room_for_an_answer(
    model: ModelFacts, size: int, tokens: int, is_final: bool
) -> None:
    story = measured(size, tokens)
    story.settings = settings(facts=model)
    story.send()
    assert 1 <= budget.window_tokens(story.state, story.settings, is_final=is_final) < model.context_tokens


@given(facts(), st.integers(0, 10**6), st.integers(0, 10**6))
def test_what_a_reservation_holds_covers_any_usage_within_it(
    model: ModelFacts, read: int, written: int
) -> None:
    story = opened(facts=model, cost_microusd=10**12, tokens=10**9)
    granted = budget.afford(story.state, 1_000, is_final=False)
    assume(isinstance(granted, Grant))
    assert isinstance(granted, Grant)
    most = granted.reserved_tokens - granted.output_cap_tokens
    cached = read % (most + 1)
    usage = Usage(most, granted.output_cap_tokens, cached, written % (most - cached + 1))
    assert cost_microusd(model, usage) <= granted.reserved_microusd
