"""What it costs to clip 1 MB of output: prints the CPU time in milliseconds, by the kind of output.

`python -m benchmarks.clipping`: the best of several rounds. The last kinds are made to take long.
"""

from __future__ import annotations

import json
import time

from holdfast.context.clip import clip
from holdfast.runtime.runner import MAX_TOOL_TEXT_CHARS

ROUNDS = 7
MEGABYTE = 1 << 20

_FAILURE = """___________________ test_{0} ___________________

    def test_{0}() -> None:
>       assert total([1, 2]) == {0}
E       assert 4 == {0}
E        +  where 4 = total([1, 2])

tests/test_shop.py:{0}: AssertionError
"""
_CHANGE = """diff --git a/src/file_{0}.py b/src/file_{0}.py
index 1234567..89abcde 100644
--- a/src/file_{0}.py
+++ b/src/file_{0}.py
@@ -1,3 +1,4 @@
 a line
-another line
+a changed line
+a new line
"""


def _filled(piece: str, head: str = "") -> str:
    """A megabyte of a piece with a number in it."""
    many = MEGABYTE // len(piece.format(1_000)) + 1
    return (head + "".join(piece.format(number) for number in range(many)))[:MEGABYTE]


def samples() -> dict[str, str]:
    """A megabyte of each kind."""
    rows = [{"id": n, "name": f"name {n}", "tags": ["a", "b"], "at": {"x": 1.5}} for n in range(13_000)]
    failing = _filled(_FAILURE, "=========== FAILURES ===========\n")
    installing = _filled("Collecting package-{0}\n  Downloading it (1.2 MB)\n")
    return {
        "prose": _filled("The quick brown fox jumps over the lazy dog, and nothing else happens: {0}.\n"),
        "log": _filled("2026-03-04T10:11:12Z INFO worker[77]: GET /v1/items/{0} took 5 ms, 200\n"),
        "pytest": failing,
        "installing, then pytest": installing[: MEGABYTE // 2] + failing[: MEGABYTE // 2],
        "TAP": _filled("not ok {0} - adds\n  ---\n  message: 4 is not 3\n  ...\nok 1 - fine\n"),
        "JSON": json.dumps(rows),
        "JSON, nested": json.dumps({"data": {"page": {"items": rows}}}),
        "CSV": _filled('{0},"a name, with a comma",3.5\n', "id,name,value\n"),
        "diff": _filled(_CHANGE),
        "colours": _filled("\x1b[31mred\x1b[0m and plain words, number {0}\r\n"),
        "one line": "x" * MEGABYTE,
        "newlines": "\n" * MEGABYTE,
        "commas": "," * MEGABYTE,
        "empty lists": "[" + "[]," * (MEGABYTE // 3) + "[]]",
        "lists in lists": "[" + ",".join(["[" * 400 + "]" * 400] * 1_300) + "]",
        "verdicts": "not ok 1\n" * (MEGABYTE // 9),
    }


def measured() -> dict[str, float]:
    """The CPU time for each kind, for a megabyte."""
    costs: dict[str, float] = {}
    for name, text in samples().items():
        best = float("inf")
        for _ in range(ROUNDS):
            began = time.process_time()
            clip(text, MAX_TOOL_TEXT_CHARS)
            best = min(best, time.process_time() - began)
        costs[name] = round(best * 1e3 * MEGABYTE / len(text), 2)
    return costs


if __name__ == "__main__":
    print(json.dumps(measured()))
