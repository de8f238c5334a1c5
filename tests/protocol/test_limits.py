"""Money is whole micro-dollars: read exactly, written exactly, and costs round up."""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, Rounded, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.limits import Limits, ModelFacts, Tier, cost_microusd, microusd, usd
from holdfast.protocol.messages import (
    ModelReply,
    Reasoning,
    Text,
    ToolCall,
    Usage,
    calls_of,
    text_of,
)

AMOUNTS = st.integers(-(10**15), 10**15)


@pytest.mark.parametrize(
    ("text", "amount"),
    [("2.00", 2_000_000), ("0.1", 100_000), (0.1, 100_000), (".000001", 1), ("0.0000004", 0), ("1e-3", 1_000),
     (Decimal("0.25"), 250_000), (3, 3_000_000)],
)  # fmt: skip
def test_an_amount_in_dollars_is_read_exactly(text: object, amount: int) -> None:
    assert microusd(text) == amount  # type: ignore[arg-type]


@pytest.mark.requirement("L9")
@pytest.mark.parametrize(
    "text", ["", "two", "NaN", "inf", "-Infinity", "1,5", "$2", "1e999999", "-1e999999", "1e10"]
)
def test_what_is_no_amount_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount in dollars"):
        microusd(text)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0.00"),
        (500_000, "0.50"),
        (1_234, "0.001234"),
        (2_000_000, "2.00"),
        (-1_500_000, "-1.50"),
        (1, "0.000001"),
    ],
)
def test_an_amount_is_written_as_plain_decimals(amount: int, text: str) -> None:
    assert usd(amount) == text


@given(AMOUNTS)
def test_what_is_written_reads_back_as_it_was(amount: int) -> None:
    assert microusd(usd(amount)) == amount


@pytest.mark.parametrize("context", [Context(prec=3), Context(prec=3, traps=[Inexact, Rounded])])
def test_an_amount_does_not_depend_on_how_the_program_counts_decimals(context: Context) -> None:
    with localcontext(context):
        assert (microusd("12.345678"), microusd(Decimal("19.99"))) == (12_345_678, 19_990_000)
        assert microusd("0.0000004") == 0


@pytest.mark.requirement("L2-07")
def test_a_cost_is_rounded_up_to_whole_micro_dollars() -> None:
    facts = ModelFacts("p", "m", input_microusd_per_mtok=1, output_microusd_per_mtok=3)
    assert cost_microusd(facts, Usage(1, 0)) == 1
    assert cost_microusd(facts, Usage(1_000_000, 0)) == 1
    assert cost_microusd(facts, Usage(1_000_000, 1)) == 2
    assert cost_microusd(facts, Usage()) == 0


@pytest.mark.requirement("L2-07")
def test_cached_tokens_have_their_own_price() -> None:
    facts = ModelFacts(
        "p", "m", input_microusd_per_mtok=1_000_000, output_microusd_per_mtok=4_000_000,
        cache_read_microusd_per_mtok=100_000, cache_write_microusd_per_mtok=1_250_000,
    )  # fmt: skip
    usage = Usage(1_000, 10, cache_read_tokens=600, cache_write_tokens=200)
    assert cost_microusd(facts, usage) == 200 + 60 + 250 + 40


@pytest.mark.requirement("L2-07", "B8")
def test_what_a_cache_keeps_for_an_hour_has_its_own_price() -> None:
    prices = {"input_microusd_per_mtok": 1_000_000, "cache_write_microusd_per_mtok": 1_250_000}
    usage = Usage(1_000, 0, cache_write_tokens=200, cache_write_1h_tokens=80)
    dearer = ModelFacts("p", "m", cache_write_1h_microusd_per_mtok=2_000_000, **prices)
    assert cost_microusd(dearer, usage) == 800 + 150 + 160
    assert cost_microusd(ModelFacts("p", "m", **prices), usage) == 800 + 250, "no price of its own is listed"
    larger = ModelFacts("p", "m", tiers=(Tier(500, 10**6, 0, 10**6, 10**6, 3 * 10**6),), **prices)
    assert cost_microusd(larger, usage) == 800 + 120 + 240
    impossible = Usage(1_000, 0, cache_write_tokens=200, cache_write_1h_tokens=900)
    assert cost_microusd(dearer, impossible) == 800 + 400


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_more_cached_tokens_than_were_read_never_make_a_cost_negative(
    read: int, cached: int, written: int
) -> None:
    facts = ModelFacts("p", "m", input_microusd_per_mtok=9_000_000)
    assert cost_microusd(facts, Usage(read, 0, cached, written)) >= 0


@given(st.lists(st.builds(Usage, *[st.integers(0, 10**6)] * 6), max_size=5))
def test_usages_add_up_field_by_field(usages: list[Usage]) -> None:
    total = sum(usages, Usage())
    for field in Usage.__struct_fields__:
        assert getattr(total, field) == sum(getattr(usage, field) for usage in usages)
    assert total.total_tokens == total.input_tokens + total.output_tokens


def test_a_model_is_named_by_its_provider_and_itself() -> None:
    assert ModelFacts("openai", "gpt").name == "openai:gpt"


@pytest.mark.requirement("B2")
def test_a_limit_that_nobody_set_is_there_all_the_same() -> None:
    assert Limits() == Limits(25, 5_000_000, 2_000_000, False, 7_200.0, 300.0)


def test_words_and_calls_are_found_among_the_parts() -> None:
    call = ToolCall("r", "grep", "{}")
    reply = ModelReply((Reasoning("p", "hm"), Text("a"), call, Text("b")), Usage())
    assert text_of(reply.parts) == "ab"
    assert calls_of(reply.parts) == (call,)
