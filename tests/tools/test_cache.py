"""A cache keeps what was used last, no longer than it counts, and no more than it may."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.cache import Cache


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        return self.ms


@pytest.mark.requirement("A7")
def test_a_value_counts_as_long_as_it_lives_and_not_longer() -> None:
    hand = Hand()
    cache: Cache[str, int] = Cache(3, 100, hand.now_ms)
    cache.put("a", 1)
    hand.ms += 99
    assert cache.get("a") == 1
    hand.ms += 1
    assert cache.get("a") is None
    assert len(cache) == 0


@pytest.mark.requirement("A3", "A7")
def test_the_value_that_was_used_the_longest_ago_makes_room() -> None:
    cache: Cache[str, int] = Cache(2, 100, Hand().now_ms)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]


@pytest.mark.requirement("A7")
def test_what_is_too_old_is_swept_out_by_any_use() -> None:
    hand = Hand()
    cache: Cache[str, int] = Cache(100, 100, hand.now_ms)
    for number in range(50):
        cache.put(f"{number}", number)
    hand.ms += 100
    cache.put("new", 0)
    assert len(cache) == 1


@given(st.lists(st.tuples(st.sampled_from("pg+"), st.integers(0, 6)), max_size=40))
def test_a_cache_answers_like_a_list_of_what_was_put(steps: list[tuple[str, int]]) -> None:
    hand, kept = Hand(), list[tuple[int, int, int]]()
    cache: Cache[int, int] = Cache(3, 5, hand.now_ms)
    for number, (step, key) in enumerate(steps):
        kept = [each for each in kept if hand.ms - each[1] < 5]
        if step == "p":
            cache.put(key, number)
            kept = [*[each for each in kept if each[0] != key], (key, hand.ms, number)][-3:]
        elif step == "g":
            found = next((each for each in kept if each[0] == key), None)
            assert cache.get(key) == (found[2] if found else None)
            kept = [*[each for each in kept if each != found], *([found] if found else [])]
        else:
            hand.ms += key
        assert len(cache) <= 3
