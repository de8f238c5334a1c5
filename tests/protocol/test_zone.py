"""The time before a person's words, by arithmetic alone."""

from __future__ import annotations

from datetime import UTC as UTC_TIME
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.zone import UTC, Zone, head_at, without_head, zone_in
from holdfast.runtime.zones import is_zone, zone_at

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia", "America/Sao_Paulo")


@given(st.integers(0, 250_000_000_000_000), st.sampled_from(ZONES))
def test_a_head_is_what_the_calendar_says(at_ms: int, name: str) -> None:
    local = datetime.fromtimestamp(at_ms // 1000, UTC_TIME).astimezone(ZoneInfo(name))
    head = head_at(at_ms, zone_at(name, at_ms))
    assert head == f"[{local:%Y-%m-%d %H:%M:%S} {local.tzname()}] "
    assert head_at(at_ms, zone_in(head, at_ms)) == head


def test_the_head_of_an_example() -> None:
    assert head_at(1_795_303_080_000, UTC) == "[2026-11-21 23:18:00 UTC] "
    assert head_at(1_795_303_080_999, Zone("CET", 3_600)) == "[2026-11-22 00:18:00 CET] "


@pytest.mark.parametrize("text", ["", "[stdin: 20 bytes]", "[2026-11-21] x", "x [2026-11-21 23:18:00 UTC] "])
def test_words_that_look_like_a_head_stay(text: str) -> None:
    assert without_head(text) == text
    assert zone_in(text, 0) == UTC
    assert without_head(f"[2026-11-21 23:18:00 UTC] {text}") == text


@pytest.mark.parametrize("name", ["", "Nowhere", "../etc/passwd", "/etc/localtime", "CET-1CEST", "Europe"])
def test_what_is_no_zone_counts_as_utc(name: str) -> None:
    assert not is_zone(name)
    assert zone_at(name, 0) == UTC
