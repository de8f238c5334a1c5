"""The tables of what each sandbox stops are those of the test that attacks them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandbox import attack
from tests.sandbox.expected import EXPECTED, PAGES, render


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_the_tables_of_the_attack_as_they_are(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text == render(text), "run: python -m tests.sandbox.expected"
    head = " | ".join(f"`{each}`" for each in EXPECTED)
    assert f"| Stopped of what a program tries | {head} |" in text


def test_the_page_about_security_has_each_step() -> None:
    text = PAGES[0].read_text("utf-8")
    assert [step for step in attack.STEPS if f"\n| {step} |" not in text] == []
