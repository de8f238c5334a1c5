"""What masking costs per KB of ordinary text, beside encoding it as JSON: CPU time, the best of several rounds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from holdfast.redact import Redactor, StreamRedactor, make_redactor

ROUNDS = 7
ROOT = Path(__file__).resolve().parent.parent
KNOWN = [f"known-value-{number}-of-a-session" for number in range(5)]


def samples() -> dict[str, str]:
    """Texts by kind; the last ones hold what may be a secret, or what is one."""
    rows = [
        {"id": f"call_{n:06}", "path": f"src/app/module_{n}.py", "input_tokens": n * 37, "ok": n % 3 == 0}
        for n in range(100)
    ]
    log = "2026-03-04T10:11:{:02}.123Z INFO worker[{}]: GET /v1/items/{} took {} ms, 200, 5312 bytes\n"
    data = [{**row, "password": f"hunter{n}x"} if n % 40 == 0 else row for n, row in enumerate(rows * 6)]
    code = (ROOT / "src/holdfast/protocol/events.py").read_text("utf-8") * 3
    return {
        "code": (ROOT / "src/holdfast/protocol/events.py").read_text("utf-8"),
        "typed code": "class Sign:\n    x_pass: bool = False\n    def by(self, token: str) -> None: ...\n"
        * 60,
        "prose": (ROOT / "README.md").read_text("utf-8"),
        "json": json.dumps(rows, indent=1),
        "log": "".join(log.format(n % 60, n * 7, n * 13, n * 3) for n in range(100)),
        "german": "Über die Größe der Änderung wird später entschieden, so hieß es. " * 100,
        "chinese": "这段文字没有任何秘密。" * 100,
        "base64": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9w" * 100,
        "benign, 4 KB": seeded(code, "login(password=password, user=user)\n"),
        "password, 100 KB": seeded(code * 2, "DB_PASSWORD=hunter2" + "2x\n", 100 * 1024),
        "password, 4 KB": seeded(code, "DB_PASSWORD=hunter2" + "2x\n"),
        "odd password, 4 KB": seeded(code, "db_passwd := 'correct " + "horse-9'\n"),
        "key, 4 KB": seeded(code, "key = ghp_" + "0123456789abcdefghijklmnopqrstuvwxyzAB\n"),
        "header, 4 KB": seeded(code, "Authorization: Bearer " + "abcdefgh0123456789abc\n"),
        "password, one line": " ".join(seeded(code, "DB_PASSWORD=hunter2" + "2x\n").split()),
        "key, one line": " ".join(
            seeded(code, "key = ghp_" + "0123456789abcdefghijklmnopqrstuvwxyzAB\n").split()
        ),
        "password, JSON line": json.dumps(data, separators=(",", ":")),
        "all benign": "f(password=password)\n" * 500,
        "all passwords": "".join(f"password=hunter{n}x\n" for n in range(500)),
        "all odd passwords": "".join(f"db_passwd := 'hunt er-{n}x'\n" for n in range(500)),
        "all JSON passwords": json.dumps([{"password": f"hunter{n}x"} for n in range(500)], indent=1),
        "all keys": "".join(f"key = ghp_{n}456789abcdefghijklmnopqrstuvwxyzAB\n" for n in range(1000, 1500)),
    }


def seeded(text: str, line: str, every: int = 4096) -> str:
    """Put the line into the text after every so many characters."""
    pieces, size = [], 0
    for each in text.splitlines(keepends=True):
        if size // every != (size + len(each)) // every:
            pieces.append(line)
        pieces.append(each)
        size += len(each)
    return "".join(pieces)


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


def measured() -> Iterator[dict[str, float | str]]:
    """One row for each sample."""
    plain, knowing = make_redactor(), make_redactor(KNOWN)
    for name, text in samples().items():
        calls = 3 if name.startswith("all ") else 20
        kb, words = len(text) / 1024, [word[:20] + " " for word in text.split()[:500]]
        cost, floor = cpu_us(partial(plain, text), calls) / kb, cpu_us(partial(json.dumps, text), 50) / kb
        yield {
            "sample": name,
            "kb": kb,
            "json_us_per_kb": floor,
            "us_per_kb": cost,
            "us_per_kb_known": cpu_us(partial(knowing, text), calls) / kb,
            "us_per_200": cpu_us(partial(plain, text[:200]), 500),
            "us_per_fed_word": cpu_us(partial(fed, plain, words), 1) / len(words),
            "x_json": cost / floor,
        }


def first_passes() -> dict[str, float]:
    """What a fresh process pays: the first text, then texts that it has never seen, and these once more."""
    began = time.process_time()
    redact = make_redactor()
    redact("the first text")
    costs = {"first_text_ms": (time.process_time() - began) * 1e3}
    files = [path.read_text("utf-8") for path in sorted((ROOT / "src").rglob("*.py"))]
    pieces = [text[at : at + 2000] for text in files for at in range(0, len(text), 2000)]
    kb = sum(map(len, pieces)) / 1024
    for name in ("new_us_per_kb", "seen_us_per_kb"):
        began = time.process_time()
        for piece in pieces:
            redact.find(piece)
        costs[name] = (time.process_time() - began) * 1e6 / kb
    return {name: round(cost, 2) for name, cost in costs.items()}


def main() -> None:
    """Print what a fresh process pays, and the rows."""
    print(json.dumps({"fresh": first_passes(), "samples": [*measured()]}))


if __name__ == "__main__":
    main()
