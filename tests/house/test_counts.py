"""A count in a message agrees with its noun: `1 turn`, `2 turns`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.trees import nodes

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
"""What is never 1 where a message has it."""


def counts() -> Iterator[str]:
    """Each number in a message before a plural, with its line."""
    for file, node in nodes():
        if not isinstance(node, ast.JoinedStr):
            continue
        for number, after in zip(node.values, node.values[1:], strict=False):
            is_told = isinstance(number, ast.FormattedValue) and isinstance(after, ast.Constant)
            if is_told and PLURAL.match(str(after.value)):
                assert isinstance(number, ast.FormattedValue)
                told = ast.unparse(number.value)
                if not (told.isupper() or told in LARGE or told.startswith(SHORTENED)):
                    yield f"{file}:{node.lineno}: {told}{after.value!r}"


def test_every_count_that_may_be_one_agrees_with_its_noun() -> None:
    found = [*counts()]
    assert found == [], "use `protocol.counts.counted`:\n" + "\n".join(found)
