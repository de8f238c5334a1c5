"""What the token estimate costs: prints the CPU time of counting kinds, estimating and learning, in microseconds.

`python -m benchmarks.tokens`: the best of several rounds.
"""

from __future__ import annotations

import json
import timeit
from collections.abc import Callable
from functools import partial

from holdfast.context.kinds import kinds_in
from holdfast.core.measure import Measure, after_response, expected_tokens
from holdfast.protocol.kinds import NO_KINDS, Kinds
from holdfast.protocol.messages import Usage

ROUNDS, CALLS = 7, 300
_TEXTS = {
    "prose, 2 kB": "The quick brown fox jumps over the lazy dog, and nothing else happens.\n" * 28,
    "code, 2 kB": "    def total(self, lines: list[Line]) -> int:\n        return sum(self.prices)\n" * 25,
    "CJK, 2 kB": "请先检查配置文件是否存在。" * 52,
    "log, 64 kB": "2026-03-04T10:11:12Z INFO worker[77]: GET /v1/items/4711 took 5 ms, 200\n" * 890,
}


def measured() -> dict[str, float]:
    """The CPU time of each part."""
    costs = {name: _best(partial(kinds_in, [(text, 0)], NO_KINDS)) for name, text in _encoded()}
    counted, longer = Kinds(16_000, 4_000, 9_000, 2_000), Kinds(16_000, 4_500, 12_000, 2_000, 300, 80)
    known = after_response(Measure(), 31_000, counted, 10**6, Usage(8_000, 50), (), ())
    costs["an estimate"] = _best(lambda: expected_tokens(known, longer))
    costs["a lesson"] = _best(lambda: after_response(known, 35_000, longer, 10**6, Usage(9_000, 50), (), ()))
    return costs


def _encoded() -> list[tuple[str, bytes]]:
    return [
        (name, json.dumps({"content": text}, ensure_ascii=False).encode()) for name, text in _TEXTS.items()
    ]


def _best(call: Callable[[], object]) -> float:
    return round(min(timeit.repeat(call, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6, 2)


if __name__ == "__main__":
    print(json.dumps(measured()))
