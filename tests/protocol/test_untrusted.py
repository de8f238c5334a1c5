"""JSON from outside: what is read is what it says, and what is too deep is refused before anybody goes down."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.untrusted import MAX_NESTING, decode_exact, decode_untrusted

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from('ab[{"\\'), inner),
    max_leaves=20,
)


def nested(depth: int, inside: str = "0") -> str:
    return "[" * depth + inside + "]" * depth


@pytest.mark.untraced
@given(VALUES, st.booleans())
def test_what_is_not_too_deep_is_read_as_it_was_written(value: object, is_bytes: bool) -> None:
    text = json.dumps(value)
    assert decode_untrusted(text.encode() if is_bytes else text) == value


@pytest.mark.requirement("L1", "L7")
@pytest.mark.parametrize("depth", [MAX_NESTING + 1, 1_000, 100_000])
def test_what_is_nested_too_deep_is_no_json(depth: int) -> None:
    assert decode_untrusted(nested(MAX_NESTING)) is not None
    with pytest.raises(msgspec.DecodeError, match="nested deeper than 128"):
        decode_untrusted(nested(depth))
    with pytest.raises(msgspec.DecodeError):
        decode_untrusted('{"a":' * depth)


def test_brackets_in_texts_and_beside_one_another_are_not_deep() -> None:
    text = json.dumps(["[{" * 500 + '\\" \\\\', *([[]] * 500)])
    assert decode_untrusted(text) == json.loads(text)


@pytest.mark.parametrize("wrong", [b"\xff", b'"\xff"', '"\ud800"', "", "{", "[1,]"])
def test_what_is_no_json_or_no_text_is_told_in_one_way(wrong: str | bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_untrusted(wrong)


def test_a_string_without_an_end_is_looked_through_once() -> None:
    """Else 200,000 quotes without an end would take hours, also each time that the journal is folded."""
    text = "[" * 129 + '"' + '\\"' * 200_000
    with pytest.raises(msgspec.DecodeError, match="nested deeper"):
        decode_untrusted(text)
    with pytest.raises(msgspec.DecodeError):
        decode_untrusted("[" * 129 + '"' + '\\"' * 200_000 + "\\")


@pytest.mark.untraced
@given(VALUES, st.booleans())
def test_what_says_one_thing_is_read_as_it_was_written(value: object, is_bytes: bool) -> None:
    text = json.dumps(value)
    assert decode_exact(text.encode() if is_bytes else text) == value


@pytest.mark.requirement("S3", "S4")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"verdict":"deny","verdict":"allow"}', "verdict"),
        ('{"a":{"b":1,"b":1}}', "b"),
        ('[1,[{"a":1,"b":2,"\\u0061":3}]]', "a"),
        (b'{"":1,"":2}', ""),
    ],
)
def test_what_names_a_member_twice_says_two_things(text: str | bytes, name: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=f"an object names '{name}' twice"):
        decode_exact(text)


def test_no_part_of_a_long_name_is_told() -> None:
    with pytest.raises(msgspec.DecodeError, match="an object names a long member twice"):
        decode_exact(json.dumps({"x" * 5_000: 1})[:-1] + ',"' + "x" * 5_000 + '":2}')


def test_numbers_of_any_length_and_members_of_other_objects_are_no_members_twice() -> None:
    text = '[{"a":1},{"a":{"a":0.' + "1" * 5_000 + "}}, 1.5]"
    assert decode_exact(text) == decode_untrusted(text)
