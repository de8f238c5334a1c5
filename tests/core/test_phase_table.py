"""The tables of phases and rules in ARCHITECTURE.md are what the code does."""

from __future__ import annotations

import pytest

from holdfast.core.rules import RULES
from tests.core.phases import PAGE, with_tables


@pytest.mark.requirement("L5")
def test_the_tables_on_the_page_are_what_the_code_does() -> None:
    page = PAGE.read_text("utf-8")
    assert page == with_tables(page), "run: python -m tests.core.phases"


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
