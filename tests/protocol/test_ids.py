"""Names of things: made from what is handed in, sortable, and checked when they come from outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.ids import (
    approval_id,
    call_id,
    is_session_id,
    is_session_key,
    is_session_prefix,
    session_id,
    trace_id,
)

TIMES = st.integers(0, (1 << 48) - 1)
ENTROPY = st.binary(min_size=10, max_size=10)


def test_a_session_id_is_the_ulid_that_the_specification_shows() -> None:
    assert session_id(1469918176385, bytes(10)).startswith("01ARYZ6S41")
    assert session_id((1 << 48) - 1, b"\xff" * 10) == "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"


@given(TIMES, ENTROPY, TIMES, ENTROPY)
def test_session_ids_sort_by_time_and_then_by_entropy(a: int, x: bytes, b: int, y: bytes) -> None:
    assert (session_id(a, x) < session_id(b, y)) == ((a, x) < (b, y))


@given(TIMES, ENTROPY, st.integers(4, 26))
def test_a_session_id_and_its_beginnings_are_known_as_such(at_ms: int, entropy: bytes, length: int) -> None:
    made = session_id(at_ms, entropy)
    assert is_session_id(made)
    assert is_session_prefix(made[:length])
    assert is_session_prefix(made[:length].lower())


@pytest.mark.requirement("A5")
@pytest.mark.parametrize(
    "text", ["", "01J", "8" + "0" * 25, "0" * 27, "0" * 25 + "U", "0" * 25 + "\n", "last"]
)
def test_what_is_no_session_id_is_not_taken_for_one(text: str) -> None:
    assert not is_session_id(text)


@pytest.mark.requirement("A5")
@pytest.mark.parametrize("text", ["01J", "", "0" * 27, "01J%", "cli:demo", "*****"])
def test_what_cannot_begin_a_session_id_is_no_prefix(text: str) -> None:
    assert not is_session_prefix(text)


@pytest.mark.requirement("A5")
@pytest.mark.parametrize(
    ("text", "is_key"),
    [("cli:demo", True), ("a.b-c_1:X", True), ("x" * 64 + ":y", True), ("x" * 65 + ":y", False), ("cli", False),
     (":demo", False), ("cli:", False), ("cli:a:b", False), ("cli:a b", False), ("cli:ä", False), ("cli:a\n", False)],
)  # fmt: skip
def test_a_session_key_is_two_plain_labels(text: str, is_key: bool) -> None:
    assert is_session_key(text) is is_key


@given(TIMES, ENTROPY, st.integers(0, 0xFFFFFF))
def test_a_trace_id_is_32_hex_digits_and_ends_with_the_run(at_ms: int, entropy: bytes, run: int) -> None:
    made = trace_id(session_id(at_ms, entropy), run)
    assert len(made) == 32
    assert int(made[-6:], 16) == run
    assert made[6:26] == entropy.hex()


def test_traces_of_two_runs_of_a_session_differ_only_in_the_run() -> None:
    session = session_id(1, b"0123456789")
    assert trace_id(session, 1)[:-6] == trace_id(session, 2)[:-6]
    assert trace_id(session, 1) != trace_id(session, 2)


def test_calls_and_approvals_are_named_by_counting() -> None:
    assert call_id(12, 3) == "t12.c3"
    assert approval_id("S", 2) == "S-2"
