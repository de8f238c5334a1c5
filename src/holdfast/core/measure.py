"""Learns from the provider's own counts how many tokens the next request has: the likely case, and the worst one.

The likely case: what the provider has counted, and the rest by the rates of its kinds of text, which each count
corrects. The worst one: what the provider has counted costs about the same again; of everything else, each byte may
be a token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import mul, sub

import msgspec
from msgspec.structs import astuple, replace

from holdfast.protocol.kinds import NO_KINDS, Kinds
from holdfast.protocol.messages import Estimated, Part, Text, ToolCall, Usage

BYTES_PER_TOKEN = 3.5
"""The assumed bytes per token of text of an unknown kind: about right for English, code and JSON."""
MOST_BYTES_PER_TOKEN = 16
"""Text has at most this many bytes per token. A lower count of tokens is incomplete, and ignored."""
MOST_TOKENS_PER_BYTE = 10
"""The most tokens per byte that are believed. A server may add its own text to a short request, but not more."""
WORST_SHARE = 1.15
"""The factor by which a provider may count the same text higher the next time."""
OVERHEAD_TOKENS = 192
"""The tokens that a chat template and the end of the body (`ports.Wire.tail`) may add."""
MOST_LEARNT = 8
"""The most models whose rates a session remembers."""
LESSON_BYTES = 2_000
"""Less new text says little about the rates: most of its tokens are what the server adds around messages."""
LEAST_RATE, MOST_RATE = 1 / MOST_BYTES_PER_TOKEN, 2.0
"""The tokens per byte that text of one kind can have."""
NOISE_SHARE = 0.05
"""How much the tokens of two texts of one kind usually differ."""
NOISE_TOKENS = 15
"""How many tokens a server may add around messages."""
DRIFT_SHARE = 0.02
"""How much a rate may have changed since the last count: German follows English, or a log follows a table."""


class Rates(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The tokens per byte that one model counts, for each kind of text in the order of `Kinds`."""

    # They begin where published tokenizers are on average, and as uncertain as these differ from each other. Media
    # have a fixed weight, so there is nothing to learn.
    means: tuple[float, ...] = (0.25, 0.24, 0.29, 0.31, 0.28, 0.6, 1 / BYTES_PER_TOKEN)
    variances: tuple[float, ...] = (0.0156, 0.0052, 0.0076, 0.0086, 0.0125, 0.09, 0.0)
    """How uncertain each rate is: the square of its likely error."""


UNLEARNT = Rates()


class Measure(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What was counted, and what came after that."""

    size_bytes: int = 0
    tokens: int = 0
    """The last request that was counted."""
    told_bytes: int = 0
    told_tokens: int = 0
    """The responses since then, which later requests contain: their size, and their counted tokens."""
    fresh_bytes: int = 0
    """The bytes of the requests since then that the counted one did not have."""
    by_rates: float = 0.0
    """The tokens of the counted request by the rates."""
    taught_kinds: Kinds = NO_KINDS
    taught_tokens: int = 0
    """The last counted request that corrected the rates."""
    rates: Rates = UNLEARNT


def after_request(measure: Measure, fresh_bytes: int) -> Measure:
    """Update after a request is recorded."""
    return replace(measure, fresh_bytes=measure.fresh_bytes + fresh_bytes)


def after_response(
    measure: Measure,
    size_bytes: int,
    kinds: Kinds,
    window_tokens: int,
    usage: Usage,
    estimated: Estimated,
    parts: tuple[Part, ...],
) -> Measure:
    """Update after a response to a request of that size. An impossible count of tokens is ignored."""
    # Some servers report only the uncached part, or a total over several requests. Such a count would make the
    # next worst case too small. An example: for 14,000 bytes, counts from 875 (16 bytes per token) to 140,000
    # (10 tokens per byte) are believed, if the window is that large.
    tokens = usage.input_tokens
    is_possible = (
        size_bytes / MOST_BYTES_PER_TOKEN <= tokens <= min(size_bytes * MOST_TOKENS_PER_BYTE, window_tokens)
    )
    told_bytes = told_tokens = 0
    if "output" not in estimated:
        told_tokens = usage.output_tokens
        told_bytes = min(size_of(parts), told_tokens * MOST_BYTES_PER_TOKEN)
    if is_possible and "input" not in estimated:
        counted = Measure(size_bytes, tokens, told_bytes, told_tokens)
        return _with_lesson(counted, measure, kinds)
    # The count of the input is useless, but that of the output may still be good: keep the last good request,
    # and add.
    return replace(
        measure, told_bytes=measure.told_bytes + told_bytes, told_tokens=measure.told_tokens + told_tokens
    )


def expected_tokens(measure: Measure, kinds: Kinds) -> int:
    """Return the likely input tokens of a request."""
    # The rates explain most of the last count. The rest (what the server adds, the language of this session)
    # comes again, and as a share of a request that became smaller. An example: by the rates, the last request had
    # 9,000 tokens, and 9,900 were counted. One that is 500 tokens longer by the rates has 10,400, and one with
    # 3,000 by the rates has 3,300.
    by_rates, counted = _by_rates(measure.rates, kinds), measure.by_rates
    if counted:
        by_rates += (measure.tokens - counted) * min(1.0, by_rates / counted)
    return max(math.ceil(by_rates), 1)


def learnt_with(learnt: Mapping[str, Rates], model: str, rates: Rates) -> dict[str, Rates]:
    """Return what is learnt about models, with the rates of one that is no longer used."""
    if rates == UNLEARNT:
        return dict(learnt)
    others = [(name, each) for name, each in learnt.items() if name != model]
    return dict([*others, (model, rates)][-MOST_LEARNT:])


def _by_rates(rates: Rates, kinds: Kinds) -> float:
    tokens: float = sum(map(mul, rates.means, astuple(kinds)))
    return tokens


def _with_lesson(counted: Measure, before: Measure, kinds: Kinds) -> Measure:
    """Return the measure with the rates that its count teaches, if that is enough for a lesson."""
    # If the request has all that the one of the last lesson had, what came since teaches; else all of it does.
    sizes, tokens, rates = astuple(kinds), counted.tokens, before.rates
    if before.taught_tokens and kinds.base == before.taught_kinds.base:
        added = tuple(map(sub, sizes, astuple(before.taught_kinds)))
        if min(added) >= 0:
            sizes, tokens = added, tokens - before.taught_tokens
    if sum(sizes) >= LESSON_BYTES:
        rates = _corrected(rates, sizes, tokens)
        before = replace(counted, taught_kinds=kinds, taught_tokens=counted.tokens)
    return replace(
        counted,
        by_rates=_by_rates(rates, kinds),
        taught_kinds=before.taught_kinds,
        taught_tokens=before.taught_tokens,
        rates=rates,
    )


def _corrected(rates: Rates, sizes: tuple[int, ...], tokens: int) -> Rates:
    """Return the rates corrected by one count: a Kalman filter that looks at each kind alone."""
    # Each kind answers for the error in proportion to how uncertain its part of the estimate was, and becomes more
    # certain. An example: 1,000 bytes of prose at 0.24 and 1,000 of digits at 0.6 are estimated at 840 tokens, and
    # 1,290 are counted. Digits are four times as uncertain, so they take nearly all of the error.
    if tokens <= 0 or not any(sizes):
        return rates
    expected = sum(map(mul, rates.means, sizes))
    spread = tuple(map(mul, rates.variances, sizes))
    noise = NOISE_SHARE * max(tokens, expected)
    doubt = sum(map(mul, spread, sizes)) + noise * noise + NOISE_TOKENS * NOISE_TOKENS
    error = (tokens - expected) / doubt
    means, variances = list(rates.means), list(rates.variances)
    for kind, size in enumerate(sizes):
        if size and variances[kind]:
            means[kind] = min(max(means[kind] + spread[kind] * error, LEAST_RATE), MOST_RATE)
            drift = DRIFT_SHARE * means[kind]
            variances[kind] = variances[kind] * (1 - spread[kind] * size / doubt) + drift * drift
    return Rates(tuple(means), tuple(variances))


def worst_tokens(measure: Measure, size_bytes: int, fresh_bytes: int) -> int:
    """Return the most input tokens of a request of this size. `fresh_bytes`: what the last one did not have."""
    # There are two upper limits, and the smaller one counts. Each byte is at most one token. And what was counted
    # once costs at most 15 % more the next time; only the bytes that came since are uncounted. An example: a
    # request of 14,000 bytes was 4,000 tokens, its response of 1,000 bytes was 300. With a result of 20,000 bytes
    # the next request has 35,000 bytes. The limits are 35,000 and 1.15 * 4,300 + 20,000 = 24,945 tokens.
    most = size_bytes
    if measure.tokens:
        counted = math.ceil((measure.tokens + measure.told_tokens) * WORST_SHARE)
        most = min(most, counted + max(measure.fresh_bytes + fresh_bytes - measure.told_bytes, 0))
    return most + OVERHEAD_TOKENS


def size_of(parts: tuple[Part, ...]) -> int:
    """Return the bytes of a response that later requests contain: words and calls, but not thoughts."""
    size_bytes = 0
    for part in parts:
        if isinstance(part, Text):
            size_bytes += len(part.text.encode("utf-8", "surrogatepass"))
        elif isinstance(part, ToolCall):
            size_bytes += len(part.arguments.encode("utf-8", "surrogatepass"))
    return size_bytes
