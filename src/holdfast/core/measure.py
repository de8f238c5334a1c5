"""What a provider's own counts teach about the tokens of the next request: the likely case, and the worst one.

What has been counted costs about the same again. Of everything else each byte may be a token.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from holdfast.protocol.messages import Estimated, Part, Text, ToolCall, Usage

BYTES_PER_TOKEN = 3.5
"""Before a provider has counted anything: about what English, code and JSON have."""
MOST_BYTES_PER_TOKEN = 16
"""Text has at most this many bytes per token. A lower count of tokens is incomplete, and ignored."""
MOST_TOKENS_PER_BYTE = 10
"""A server may add to a short request; who counts more than that errs."""
WORST_SHARE = 1.15
"""How much more a provider may count, the next time, for what it has counted before."""
OVERHEAD_TOKENS = 192
"""What a chat template and the end of the body (`ports.Wire.tail`) may add."""


class Measure(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What was counted, and what came after that."""

    size_bytes: int = 0
    tokens: int = 0
    """The last request that was counted."""
    told_bytes: int = 0
    told_tokens: int = 0
    """What the model has said since, which goes back to it: its size, and as how much it was counted."""
    fresh_bytes: int = 0
    """How much the requests since then held that the counted one did not."""


def after_request(measure: Measure, fresh_bytes: int) -> Measure:
    """After a request is recorded."""
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
    """The likely input tokens of a request of this size."""
    if not measure.tokens:
        return math.ceil(size_bytes / BYTES_PER_TOKEN)
    if size_bytes < measure.size_bytes:
        return math.ceil(size_bytes * measure.tokens / measure.size_bytes)
    ratio = min(max(measure.size_bytes / measure.tokens, 1.0), 8.0)
    return measure.tokens + math.ceil((size_bytes - measure.size_bytes) / ratio)


def worst_tokens(measure: Measure, size_bytes: int, fresh_bytes: int) -> int:
    """The most input tokens of a request of this size. `fresh_bytes`: the part that the last request did not hold."""
    # Two upper limits hold, and the smaller one counts. Each byte is at most one token. And what was counted
    # once costs at most 15 % more the next time; only the bytes that came since are uncounted. An example: a
    # request of 14,000 bytes was 4,000 tokens, its answer of 1,000 bytes was 300. With a result of 20,000 bytes
    # the next request has 35,000 bytes. The limits are 35,000 and 1.15 * 4,300 + 20,000 = 24,945 tokens.
    most = size_bytes
    if measure.tokens:
        counted = math.ceil((measure.tokens + measure.told_tokens) * WORST_SHARE)
        most = min(most, counted + max(measure.fresh_bytes + fresh_bytes - measure.told_bytes, 0))
    return most + OVERHEAD_TOKENS


def size_of(parts: tuple[Part, ...]) -> int:
    """The bytes of what goes back to the model: its words and calls, not its thoughts."""
    size_bytes = 0
    for part in parts:
        if isinstance(part, Text):
            size_bytes += len(part.text.encode("utf-8", "surrogatepass"))
        elif isinstance(part, ToolCall):
            size_bytes += len(part.arguments.encode("utf-8", "surrogatepass"))
    return size_bytes
