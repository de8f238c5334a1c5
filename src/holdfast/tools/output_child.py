"""The matching half of read_output, in a process that can be killed: `python -I -S output_child.py < request`.

It prints the lines of a text that match a pattern, with their numbers. Standard library only.
"""

from __future__ import annotations

import json
import re
import sys

MAX_SHOWN_CHARS = 400
_BEFORE_CHARS = 120
"""How much of a long line is shown before its match."""


def main() -> None:
    """Print `number: line` for every matching line from the first one on, up to a limit. A long line is several."""
    request = json.load(sys.stdin)
    pattern, fold = re.compile(request["pattern"]), request["fold_chars"]
    first, left, number = request["first"], request["limit"], 1
    for line in request["text"].split("\n"):
        last, following = first - 1, number + max(-(-len(line) // fold), 1)
        for match in pattern.finditer(line) if following > first else ():
            place = number + match.start() // fold
            if place <= last:
                continue
            if left == 0:
                print(f"[more lines match: continue with offset={place}, or narrow the pattern]", flush=True)
                return
            last, left = place, left - 1
            print(f"{place}: {_excerpt(line, match.start())}", flush=True)
        number = following


def _excerpt(line: str, start: int) -> str:
    if len(line) <= MAX_SHOWN_CHARS:
        return line
    begin = max(min(start - _BEFORE_CHARS, len(line) - MAX_SHOWN_CHARS), 0)
    head = "... " if begin else ""
    tail = " ..." if begin + MAX_SHOWN_CHARS < len(line) else ""
    return f"{head}{line[begin : begin + MAX_SHOWN_CHARS]}{tail}"


if __name__ == "__main__":
    main()
