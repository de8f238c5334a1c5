"""The picture in the README shows what the command prints today."""

from __future__ import annotations

from tests.house.picture import PICTURE, picture


def test_the_picture_shows_what_a_run_prints_today() -> None:
    assert picture() == PICTURE.read_text(), "run `python -m tests.house.picture`"
