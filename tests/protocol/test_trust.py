"""One order of trust, and that a mixture is as good as its worst part."""

from __future__ import annotations

from itertools import product

from holdfast.protocol.trust import ORDER, least


def test_the_order_is_the_users_word_then_the_models_then_data_then_the_rest() -> None:
    assert ORDER == ("user", "assistant", "data", "untrusted")


def test_a_mixture_has_the_trust_of_its_least_trusted_part() -> None:
    for first, second in product(ORDER, ORDER):
        worst = ORDER[max(ORDER.index(first), ORDER.index(second))]
        assert least(first, second) == least(second, first) == worst
        assert least(first, second, "untrusted") == "untrusted"
    assert least() == "user"
