"""What a model costs and how much it reads: the user's word, the price list, this machine, or unknown."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from genai_prices import Usage as ListedUsage
from genai_prices import __version__ as prices_version
from genai_prices import calc_price

from holdfast.errors import UsageError
from holdfast.protocol.limits import UNKNOWN_WINDOW_TOKENS, cost_microusd, microusd
from holdfast.protocol.messages import Usage
from holdfast.providers.catalog import Override, facts, known_models

NOW_MS = 1_795_219_200_000
"""2026-11-21."""


@pytest.mark.requirement("L2-07")
def test_a_known_model_has_its_price_its_window_and_the_source_of_both() -> None:
    known = facts("anthropic:claude-haiku-4-5", now_ms=NOW_MS)
    assert (known.price, known.price_source) == ("known", f"genai-prices {prices_version}")
    assert (known.input_microusd_per_mtok, known.output_microusd_per_mtok) == (1_000_000, 5_000_000)
    assert (known.cache_read_microusd_per_mtok, known.cache_write_microusd_per_mtok) == (100_000, 1_250_000)
    assert known.cache_write_1h_microusd_per_mtok == 2_000_000
    assert (known.context_tokens, known.is_window_known) == (200_000, True)
    assert cost_microusd(known, Usage(1_000_000, 1_000)) == 1_005_000


@pytest.mark.requirement("L2-07", "H3")
def test_a_price_in_tiers_is_known_for_every_size_of_a_call() -> None:
    tiered = facts("openai:gpt-5.5", now_ms=NOW_MS)
    for size in (200_000, 272_000, 272_001, 500_000):
        usage = Usage(size, 10_000, cache_read_tokens=100_000)
        assert cost_microusd(tiered, usage) == listed_microusd("openai", "gpt-5.5", usage), size
    assert tiered.tiers[0].above_tokens == 272_000


def listed_microusd(provider: str, model: str, usage: Usage) -> int:
    listed = calc_price(
        ListedUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
        ),
        model,
        provider_id=provider,
        genai_request_timestamp=datetime.fromtimestamp(NOW_MS / 1000, UTC),
    )
    return microusd(listed.total_price)


@pytest.mark.requirement("L2-07", "H3")
def test_of_dated_prices_the_one_in_force_counts() -> None:
    then, now = (
        facts("anthropic:claude-sonnet-4-6", now_ms=1_772_000_000_000),
        facts("anthropic:claude-sonnet-4-6", now_ms=NOW_MS),
    )
    assert (then.input_microusd_per_mtok, then.output_microusd_per_mtok) == (3_000_000, 15_000_000)
    (dearer,) = then.tiers
    assert (dearer.above_tokens, dearer.input_microusd_per_mtok, dearer.output_microusd_per_mtok) == (
        200_000,
        6_000_000,
        22_500_000,
    )
    assert (now.input_microusd_per_mtok, now.output_microusd_per_mtok, now.tiers) == (
        3_000_000,
        15_000_000,
        (),
    )


@pytest.mark.requirement("L2-07")
def test_a_price_that_the_user_says_holds_for_every_size() -> None:
    whole = {"*": Override(input_usd_per_mtok=7, output_usd_per_mtok=8)}
    assert facts("openai:gpt-5.5", overrides=whole, now_ms=NOW_MS).tiers == ()
    half = facts("openai:gpt-5.5", overrides={"*": Override(output_usd_per_mtok=8)}, now_ms=NOW_MS)
    (dearer,) = half.tiers
    assert dearer.output_microusd_per_mtok == half.output_microusd_per_mtok == 8_000_000
    assert dearer.input_microusd_per_mtok > half.input_microusd_per_mtok


@pytest.mark.requirement("L2-07")
def test_the_order_is_the_user_the_list_ollama_unknown() -> None:
    said = {"openai:*": Override(input_usd_per_mtok=7, output_usd_per_mtok=8)}
    assert facts("openai:gpt-4o", overrides=said, now_ms=NOW_MS).price_source == "catalog"
    assert facts("openai:gpt-4o", now_ms=NOW_MS).price == "known"
    assert facts("openai:mine", now_ms=NOW_MS).price == "unknown"
    assert facts("ollama:llama3", now_ms=NOW_MS).price == "free"
    assert facts("script:/a:b.jsonl", now_ms=NOW_MS).price == "free"
    assert facts("script:/a:b.jsonl", now_ms=NOW_MS).model == "/a:b.jsonl"


@pytest.mark.requirement("L2-07")
def test_the_most_specific_glob_counts() -> None:
    said = {
        "*": Override(1, 1),
        "openai:*": Override(2, 2),
        "openai:my-*": Override(3, 4, cache_read_usd_per_mtok=0.3, context_tokens=9_000),
    }
    mine = facts("openai:my-model", overrides=said, now_ms=NOW_MS)
    assert (mine.input_microusd_per_mtok, mine.output_microusd_per_mtok) == (3_000_000, 4_000_000)
    assert (mine.cache_read_microusd_per_mtok, mine.cache_write_microusd_per_mtok) == (300_000, 3_000_000)
    assert mine.cache_write_1h_microusd_per_mtok == 0, "as much as other writes"
    assert (mine.context_tokens, mine.is_window_known) == (9_000, True)
    dearer = facts(
        "anthropic:claude-haiku-4-5",
        overrides={"*": Override(cache_write_1h_usd_per_mtok=7, input_usd_per_mtok=3)},
        now_ms=NOW_MS,
    )
    assert dearer.cache_write_1h_microusd_per_mtok == 7_000_000


@pytest.mark.requirement("L2-07")
def test_half_a_price_is_no_price_unless_the_other_half_is_known() -> None:
    half = {"*": Override(input_usd_per_mtok=7)}
    assert facts("openai:mine", overrides=half, now_ms=NOW_MS).price == "unknown"
    known = facts("openai:gpt-4o", overrides=half, now_ms=NOW_MS)
    assert (known.input_microusd_per_mtok, known.output_microusd_per_mtok) == (7_000_000, 10_000_000)


@pytest.mark.requirement("C6")
def test_an_unknown_window_is_counted_as_the_usual_one_and_says_so() -> None:
    unknown = facts("openai:mine", now_ms=NOW_MS)
    assert (unknown.context_tokens, unknown.is_window_known) == (UNKNOWN_WINDOW_TOKENS, False)
    window_only = facts("openai:mine", overrides={"*": Override(context_tokens=5_000)}, now_ms=NOW_MS)
    assert (window_only.context_tokens, window_only.is_window_known, window_only.price) == (
        5_000,
        True,
        "unknown",
    )


@pytest.mark.requirement("L9")
@pytest.mark.parametrize("name", ["gpt-5.5", "openai:", ":gpt", "", "opnai:gpt-5.5"])
def test_a_name_that_is_no_model_is_told(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        facts(name, now_ms=NOW_MS)
    assert "PROVIDER:MODEL" in caught.value.hint


@pytest.mark.requirement("L2-07")
def test_the_models_of_a_provider_are_listed_with_their_prices() -> None:
    listed = known_models("anthropic", now_ms=NOW_MS)
    assert "anthropic:claude-haiku-4-5" in [model.name for model in listed]
    assert all(model.price in ("known", "free") for model in listed)
    assert known_models("ollama", now_ms=NOW_MS) == []


@pytest.mark.requirement("A15")
def test_neither_prices_nor_http_are_loaded_before_they_are_needed() -> None:
    heavy = "{'genai_prices', 'aiohttp', 'pydantic', 'httpx2'}"
    code = f"import sys, holdfast.providers.catalog; sys.exit(repr({heavy} & set(sys.modules) or ''))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "''"


@pytest.mark.requirement("L2-07")
@pytest.mark.parametrize(
    ("name", "cap"),
    [
        ("anthropic:claude-3-7-sonnet-20250219", 64_000),
        ("anthropic:claude-opus-4-20250514", 32_000),
        ("anthropic:claude-opus-4-1", 32_000),
        ("anthropic:claude-opus-4-5", 0),
        ("openai:gpt-4o-2024-05-13", 4_096),
        ("openai:gpt-4o-mini", 16_384),
        ("openai:gpt-4", 0),
    ],
)
def test_the_output_cap_of_a_model_is_known_where_somebody_said_it(name: str, cap: int) -> None:
    assert facts(name, now_ms=NOW_MS).max_output_tokens == cap
    said = {"*": Override(max_output_tokens=77)}
    assert facts(name, overrides=said, now_ms=NOW_MS).max_output_tokens == 77
