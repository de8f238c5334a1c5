"""Where the JSON value is in an answer."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.protocol.answers import value_in
from tests.growth import grows_in_line


@pytest.mark.requirement("S1")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("  [1, 2]\n", [1, 2]),
        ('"word"', "word"),
        ("null", None),
        ('```json\n{"a": "```"}\n```', {"a": "```"}),
        ("Here it is:\n\n```\n[1]\n```\nAnything else?", [1]),
        ("  ```JSON\n  7\n  ```  ", 7),
        ("123456789012345678901234567890", 123456789012345678901234567890),
    ],
)
def test_the_value_may_stand_in_a_code_fence(text: str, value: object) -> None:
    assert value_in(text) == value


@pytest.mark.requirement("S1")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is 7.",
        '{"a": 1} and more',
        "```json\n1\n```\n```json\n2\n```",
        "```json\n1",
        "```json\nnothing\n```",
        "[" * 300 + "]" * 300,
    ],
)
def test_anything_else_is_no_value(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        value_in(text)


def test_fences_that_never_end_are_read_in_one_pass() -> None:
    def read(fences: int) -> None:
        with pytest.raises(msgspec.DecodeError):
            value_in("```x\n" * fences)

    assert grows_in_line(read, 5_000)
