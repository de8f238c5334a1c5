"""The token estimate: what each count teaches about the kinds of text, for each model apart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from holdfast.core.measure import (
    BYTES_PER_TOKEN,
    LEAST_RATE,
    MOST_LEARNT,
    MOST_RATE,
    UNLEARNT,
    Measure,
    Rates,
    after_response,
    expected_tokens,
)
from holdfast.core.state import State
from holdfast.protocol.kinds import Kinds, total
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Usage
from tests.core.stories import FACTS, Story, call, opened, words

pytestmark = pytest.mark.requirement("C6")

WINDOW = 10**8
TEKKEN = Rates((0.23, 0.21, 0.22, 0.27, 0.25, 1.3, 1 / BYTES_PER_TOKEN))
"""What a tokenizer counts that takes each digit for a token."""
FIRST = Kinds(base=18_000, prose=700)


def counted(kinds: Kinds, rates: Rates = TEKKEN) -> int:
    return round(sum(rate * size for rate, size in zip(rates.means, astuple(kinds), strict=True)))


def after(measure: Measure, kinds: Kinds, tokens: int | None = None) -> Measure:
    """The measure after a request of these kinds was counted."""
    tokens = counted(kinds) if tokens is None else tokens
    size_bytes = sum(astuple(kinds))
    return after_response(measure, size_bytes, kinds, WINDOW, Usage(tokens, 1), (), ())


def test_before_a_count_each_kind_has_a_usual_rate() -> None:
    assert expected_tokens(Measure(), Kinds(prose=1_000)) == 240
    assert expected_tokens(Measure(), Kinds(digits=1_000)) == 600
    assert expected_tokens(Measure(), Kinds()) == 1


def test_what_was_counted_is_estimated_at_exactly_that() -> None:
    measure = after(Measure(), FIRST, 5_000)
    assert expected_tokens(measure, FIRST) == 5_000


def test_what_a_server_adds_comes_again_and_shrinks_with_the_request() -> None:
    long = total([FIRST, Kinds(prose=50_000)])
    measure = after(Measure(rates=replace(UNLEARNT, variances=(0.0,) * 7)), long, 20_000)
    by_rates = 0.25 * 18_000 + 0.24 * 50_700
    longer = total([long, Kinds(code=1_000)])
    assert expected_tokens(measure, longer) == pytest.approx(20_000 + 290, abs=1)
    shorter = 0.25 * 18_000 + 0.24 * 700
    assert expected_tokens(measure, FIRST) == pytest.approx(shorter * 20_000 / by_rates, abs=1)


@pytest.mark.parametrize("kind", ["prose", "code", "json", "cjk", "digits"])
def test_a_few_counts_teach_the_rate_of_a_kind_and_leave_the_others(kind: str) -> None:
    kinds, measure = FIRST, after(Measure(), FIRST)
    before = measure.rates
    for _ in range(4):
        kinds = total([kinds, Kinds(**{kind: 3_000})])
        measure = after(measure, kinds)
    place = Kinds.__struct_fields__.index(kind)
    for at, (mean, old) in enumerate(zip(measure.rates.means, before.means, strict=True)):
        assert mean == (pytest.approx(TEKKEN.means[at], rel=0.03) if at == place else old)


def test_mixed_text_teaches_all_its_kinds() -> None:
    kinds, measure = FIRST, after(Measure(), FIRST)
    errors = []
    for turn in range(30):
        new = Kinds(
            prose=400 + turn * 37 % 500, code=turn * 911 % 4_000, json=turn * 577 % 2_500,
            cjk=turn * 331 % 900, digits=turn * 213 % 1_200,
        )  # fmt: skip
        kinds = total([kinds, new])
        errors.append(expected_tokens(measure, new) / counted(new) - 1)
        measure = after(measure, kinds)
    assert max(map(abs, errors[10:])) < 0.1
    assert measure.rates.means == pytest.approx(TEKKEN.means, rel=0.25)


def test_a_shorter_view_teaches_as_a_whole() -> None:
    long = total([FIRST, Kinds(digits=20_000)])
    measure = after(after(Measure(), FIRST), long)
    anew = total([FIRST, Kinds(cjk=9_000)])
    learnt = after(measure, anew, 30_000).rates
    assert learnt.means[4] > measure.rates.means[4]
    assert learnt.means[5] == measure.rates.means[5], "this request had no digits"


def test_media_keep_their_weight() -> None:
    measure = after(Measure(), Kinds(base=10, media=350_000), 150_000)
    assert measure.rates.means[6] == 1 / BYTES_PER_TOKEN


def test_the_same_request_again_teaches_nothing() -> None:
    measure = after(Measure(), FIRST, 5_000)
    assert after(measure, FIRST, 5_600).rates == measure.rates


@given(st.lists(st.tuples(st.lists(st.integers(0, 10**6), min_size=7, max_size=7), st.integers(1, 10**7))))
def test_whatever_a_server_counts_the_estimate_stays_within_reason(counts: list[Any]) -> None:
    measure, kinds = Measure(), Kinds()
    for sizes, tokens in counts:
        kinds = Kinds(*sizes)
        measure = after(measure, kinds, tokens)
        assert all(LEAST_RATE <= mean <= MOST_RATE for mean in measure.rates.means)
        assert all(0 <= variance < 1 for variance in measure.rates.variances)
        assert expected_tokens(measure, kinds) >= 1
    stored = msgspec.json.encode(measure)
    assert msgspec.json.decode(stored, type=Measure) == measure


# --- models -------------------------------------------------------------------------------------


def with_model(story: Story, name: str, tokens: int) -> Rates:
    """Go on with this model, which counts so many tokens of 9,000 digits."""
    story.go_on(facts=ModelFacts("openai", name, price="free", context_tokens=10**6))
    story.prepared(size_bytes=20_000, fresh_bytes=20_000, kinds=Kinds(base=11_000, digits=9_000))
    story.answered(call(), usage=Usage(tokens, 1))
    story.admitted(story.state.turn.calls[0].call_id)
    story.finished(story.state.turn.calls[0].call_id)
    return story.state.models.measure.rates


def test_each_model_has_rates_of_its_own_and_one_that_comes_back_has_what_it_learnt() -> None:
    story = opened(facts=replace(FACTS, price="free"), turns=99)
    one = with_model(story, "one", 15_000)
    story.go_on(facts=ModelFacts("openai", "two", price="free"))
    assert story.state.models.measure == Measure()
    two = with_model(story, "two", 6_000)
    assert one.means[5] > two.means[5]
    story.go_on(facts=ModelFacts("openai", "one", price="free"))
    assert story.state.models.measure == Measure(rates=one), (
        "what was counted may have been written otherwise"
    )


def test_a_session_remembers_a_bounded_number_of_models() -> None:
    story = opened(facts=replace(FACTS, price="free"), turns=99)
    for number in range(MOST_LEARNT + 4):
        with_model(story, f"m{number}", 9_000 + number)
    learnt = story.state.models.learnt
    assert list(learnt) == [f"openai:m{number}" for number in range(3, MOST_LEARNT + 3)]
    stored = msgspec.json.encode(story.state)
    assert msgspec.json.decode(stored, type=State).models.learnt == learnt


def test_a_response_of_the_model_before_teaches_the_next_one_nothing() -> None:
    story = opened(facts=replace(FACTS, price="free"))
    story.prepared(size_bytes=20_000, fresh_bytes=20_000, kinds=Kinds(digits=20_000))
    story.go_on(facts=ModelFacts("openai", "two", price="free"))
    story.answered(words(), usage=Usage(25_000, 1))
    assert story.state.models.measure == Measure()
