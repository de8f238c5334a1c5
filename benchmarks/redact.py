"""What masking costs per KB of ordinary text, beside the cost of touching a text at all (`len`).

CPU time, the best of several rounds; a table on stderr, JSON on stdout. Not a test: it fails nothing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from holdfast.redact import Redactor, StreamRedactor, make_redactor

ROUNDS = 7
ROOT = Path(__file__).resolve().parent.parent
KNOWN = [f"known-value-{number}-of-a-session" for number in range(5)]


def samples() -> dict[str, str]:
    """Ordinary texts by kind; none holds a secret."""
    rows = [
        {"id": f"call_{n:06}", "path": f"src/app/module_{n}.py", "input_tokens": n * 37, "ok": n % 3 == 0}
        for n in range(100)
    ]
    log = "2026-03-04T10:11:{:02}.123Z INFO worker[{}]: GET /v1/items/{} took {} ms, 200, 5312 bytes\n"
    return {
        "code": (ROOT / "src/holdfast/protocol/events.py").read_text("utf-8"),
        "prose": (ROOT / "README.md").read_text("utf-8"),
        "json": json.dumps(rows, indent=1),
        "log": "".join(log.format(n % 60, n * 7, n * 13, n * 3) for n in range(100)),
        "german": "Über die Größe der Änderung wird später entschieden, so hieß es. " * 100,
        "chinese": "这段文字没有任何秘密。" * 100,
        "base64": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9w" * 100,
    }


def cpu_us(action: Callable[[], object], calls: int) -> float:
    """The CPU time of one call, in microseconds."""
    action()
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(calls):
            action()
        best = min(best, time.process_time() - began)
    return best / calls * 1e6


def fed(redactor: Redactor, words: list[str]) -> None:
    """A stream of these words."""
    stream = StreamRedactor(redactor)
    for word in words:
        stream.feed(word)


def measured() -> list[dict[str, float | str]]:
    """One row for each sample."""
    plain, knowing = make_redactor(), make_redactor(KNOWN)
    table: list[dict[str, float | str]] = []
    for name, text in samples().items():
        kb, words = len(text) / 1024, [word[:20] + " " for word in text.split()[:500]]
        cells = {
            "kb": kb,
            "us_per_kb": cpu_us(partial(plain, text), 50) / kb,
            "us_per_kb_known": cpu_us(partial(knowing, text), 50) / kb,
            "len_us_per_kb": cpu_us(partial(len, text), 5000) / kb,
            "us_per_200": cpu_us(partial(plain, text[:200]), 2000),
            "us_per_fed_word": cpu_us(partial(fed, plain, words), 3) / len(words),
        }
        table.append({"sample": name, **{key: round(cell, 3) for key, cell in cells.items()}})
    return table


def main() -> None:
    """Print the table and the JSON."""
    table = measured()
    lines: list[list[object]] = [list(table[0]), *(list(row.values()) for row in table)]
    for cells in lines:
        print("".join(f"{cell!s:>17}" for cell in cells), file=sys.stderr)
    print(json.dumps(table))


if __name__ == "__main__":
    main()
