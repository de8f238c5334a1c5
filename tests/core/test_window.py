"""The window of a request: the smallest of the model's own, `[context] max_tokens`, and what one call may cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core import budget
from holdfast.core.measure import Measure, expected_tokens
from holdfast.protocol.kinds import Kinds
from holdfast.protocol.limits import ModelFacts, Tier
from holdfast.protocol.outcomes import Unaffordable
from tests.core.stories import FACTS, Story, call, opened

pytestmark = pytest.mark.requirement("C6")

BASE = Kinds(base=16_000)
PRICED = replace(FACTS, context_tokens=200_000, input_microusd_per_mtok=5_000_000)


def begun(facts: ModelFacts = PRICED, **values: object) -> Story:
    """A session whose first request was sent."""
    story = opened(facts=facts, **values)
    story.prepared(size_bytes=17_000, fresh_bytes=17_000, kinds=BASE)
    story.answered(call())
    return story


def window(story: Story) -> int:
    return budget.window_of(story.state, story.settings).tokens


def test_a_free_model_has_its_own_window_or_the_smaller_one_of_the_settings() -> None:
    free = replace(PRICED, price="free")
    assert window(begun(free)) == 200_000
    assert window(begun(free, max_tokens=30_000)) == 30_000
    assert window(begun(free, max_tokens=900_000)) == 200_000


def test_one_request_takes_a_quarter_of_the_money_at_most() -> None:
    assert window(begun(cost_microusd=2_000_000)) == 100_000
    assert window(begun(cost_microusd=2_000_000, max_tokens=70_000)) == 70_000
    assert window(begun(cost_microusd=90_000_000)) == 200_000


def test_what_a_cache_asks_for_writing_counts() -> None:
    cached = replace(PRICED, cache_write_microusd_per_mtok=6_250_000)
    assert window(begun(cached, cost_microusd=2_000_000)) == 80_000


def test_a_dearer_price_of_large_requests_bounds_the_window_where_it_begins() -> None:
    tier = Tier(60_000, 20_000_000, 0, 0, 0)
    assert window(begun(replace(PRICED, tiers=(tier,)), cost_microusd=2_000_000)) == 60_000


def test_with_little_money_the_window_is_still_four_times_the_prompt() -> None:
    assert window(begun(cost_microusd=40_000)) == 4 * expected_tokens(Measure(), BASE)


def test_before_the_first_request_the_money_does_not_bound_the_window() -> None:
    assert window(opened(facts=PRICED, cost_microusd=40_000)) == 200_000


def test_a_window_that_the_provider_named_still_counts() -> None:
    story = opened(facts=PRICED)
    story.prepared(kinds=BASE)
    story.failed("context_overflow", tokens=20_000)
    assert window(story) == 20_000


@given(st.integers(1_000, 300_000), st.integers(10_000, 10**7))
def test_a_request_that_fits_leaves_a_tenth_of_each_window_to_errors(most: int, cost: int) -> None:
    story = begun(max_tokens=most, cost_microusd=cost)
    room = budget.window_of(story.state, story.settings).room_tokens
    assert 1 <= room <= max(0.9 * window(story), 1)


def test_what_cannot_be_shortened_below_the_most_tokens_is_refused_with_the_number() -> None:
    story = opened(facts=PRICED, max_tokens=5_000)
    kinds = Kinds(base=16_000, prose=9_000)
    short = budget.afford(story.state, 25_000, 25_000, kinds, is_last_pass=False)
    assert isinstance(short, Unaffordable)
    assert (short.reason, "[context] max_tokens = 5,000" in short.message) == ("context", True)
