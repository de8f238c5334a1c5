"""A count in a message agrees with its noun: `1 turn`, `2 turns`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).parent
PLURAL = re.compile(
    r" (?:more |open |other |of output )?"
    r"(?:attempt|byte|call|character|edit|file|line|message|model|option|record|row|second|session|token|turn)s\b"
)
SHORTENED = ("short", "counted")
"""Functions whose text fits the plural, or brings its noun."""
LARGE = frozenset({
    "self.size_bytes",  # the head of an attachment, as scripts read it
    "needed",  # the tokens of a task that is too long
    "room",
    "facts.context_tokens",
    "self._max_bytes",
    "len(encoded)",  # a path that is too long
    "longest",
    "max_bytes",
    "len(found)",  # more than one, or more than the limit
    "len(files)",
    "len(options)",
    "count",
    "MAX_NESTING",
    "starts_of(call)",  # no fewer than `MAX_INTERRUPTIONS`
    "looked_at",
})  # fmt: skip
"""What is never 1 where it is told."""


def counts(path: Path) -> Iterator[str]:
    """Each number in a message that stands before a plural, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.JoinedStr):
            continue
        for number, after in zip(node.values, node.values[1:], strict=False):
            is_told = isinstance(number, ast.FormattedValue) and isinstance(after, ast.Constant)
            if is_told and PLURAL.match(str(after.value)):
                assert isinstance(number, ast.FormattedValue)
                told = ast.unparse(number.value)
                if not (told.isupper() or told in LARGE or told.startswith(SHORTENED)):
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}: {told}{after.value!r}"


def test_every_count_that_may_be_one_agrees_with_its_noun() -> None:
    found = [each for path in sorted(SOURCE.rglob("*.py")) for each in counts(path)]
    assert found == [], "use `protocol.counts.counted`:\n" + "\n".join(found)
