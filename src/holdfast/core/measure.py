"""Learns from the provider's own counts how many tokens the next request has: the likely case, and the worst one.

What the provider has counted costs about the same again. Of everything else, each byte may be a token.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from holdfast.protocol.messages import Estimated, Part, Text, ToolCall, Usage

BYTES_PER_TOKEN = 3.5
"""The assumed bytes per token before a provider has counted anything: about right for English, code and JSON."""
MOST_BYTES_PER_TOKEN = 16
"""Text has at most this many bytes per token. A lower count of tokens is incomplete, and ignored."""
MOST_TOKENS_PER_BYTE = 10
"""The most tokens per byte that are believed. A server may add its own text to a short request, but not more."""
WORST_SHARE = 1.15
"""The factor by which a provider may count the same text higher the next time."""
OVERHEAD_TOKENS = 192
"""The tokens that a chat template and the end of the body (`ports.Wire.tail`) may add."""


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


def after_request(measure: Measure, fresh_bytes: int) -> Measure:
    """Update after a request is recorded."""
    return replace(measure, fresh_bytes=measure.fresh_bytes + fresh_bytes)


def after_response(
    measure: Measure,
    size_bytes: int,
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
        return Measure(size_bytes, tokens, told_bytes, told_tokens)
    # The count of the input is useless, but that of the output may still be good: keep the last good request,
    # and add.
    return replace(
        measure, told_bytes=measure.told_bytes + told_bytes, told_tokens=measure.told_tokens + told_tokens
    )


def expected_tokens(measure: Measure, size_bytes: int) -> int:
    """Return the likely input tokens of a request of this size."""
    if not measure.tokens:
        return math.ceil(size_bytes / BYTES_PER_TOKEN)
    if size_bytes < measure.size_bytes:
        return math.ceil(size_bytes * measure.tokens / measure.size_bytes)
    ratio = min(max(measure.size_bytes / measure.tokens, 1.0), 8.0)
    return measure.tokens + math.ceil((size_bytes - measure.size_bytes) / ratio)


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
