"""The measure of growth tells a square from a line."""

from __future__ import annotations

import pytest

from tests.growth import grows_in_line


@pytest.mark.parametrize(("power", "is_in_line"), [(1, True), (2, False)])
def test_a_cost_that_grows_with_the_square_is_noticed(power: int, is_in_line: bool) -> None:
    few = 40_000 if power == 1 else 150
    assert grows_in_line(lambda length: sum(range(length**power)), few) is is_in_line
