"""The time in front of a person's words: `[2026-11-21 23:18:00 UTC] `.

Pure arithmetic. `runtime.zones` says what the time in a zone differs from UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

_HEAD = re.compile(r"\[(\d{4,})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d) ([^\]]+)\] ")
_DAY_S = 86_400
_ERA_DAYS = 146_097
"""Days of 400 years."""
_TO_1970 = 719_468
"""Days from 1 March of the year 0, with which the arithmetic begins, to 1 January 1970."""


class Zone(msgspec.Struct, frozen=True):
    """The time of a zone at a moment."""

    name: str = "UTC"
    """As it is written: UTC, CEST, +03."""
    offset_s: int = 0
    """How far it is ahead of UTC."""


UTC = Zone()


def head_at(at_ms: int, zone: Zone) -> str:
    """Return the head of words that came at this time."""
    days, second = divmod(at_ms // 1000 + zone.offset_s, _DAY_S)
    year, month, day = _date(days)
    time = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"[{year:04}-{month:02}-{day:02} {time} {zone.name}] "


def zone_in(head: str, at_ms: int) -> Zone:
    """Return the zone of a head that was written at this time; UTC if it names no zone."""
    found = _HEAD.fullmatch(head)
    if found is None:
        return UTC
    year, month, day, hours, minutes, seconds = map(int, found.groups()[:6])
    local_s = _days(year, month, day) * _DAY_S + hours * 3600 + minutes * 60 + seconds
    return Zone(found[7], local_s - at_ms // 1000)


def without_head(text: str) -> str:
    """Return the text without a head."""
    found = _HEAD.match(text)
    return text[found.end() :] if found is not None else text


class Period(NamedTuple):
    """A day or a month in a time zone."""

    name: str
    """`2026-11-23` or `2026-11`."""
    begun_ms: int
    ends_ms: int


def day_at(now_ms: int, zone_at: Callable[[int], Zone]) -> Period:
    """Return the day of a moment. `zone_at` returns the zone at a time."""
    days = _day_number(now_ms, zone_at)
    year, month, day = _date(days)
    return Period(
        f"{year:04}-{month:02}-{day:02}", _midnight_ms(days, zone_at), _midnight_ms(days + 1, zone_at)
    )


def month_at(now_ms: int, zone_at: Callable[[int], Zone]) -> Period:
    """Return the month of a moment. `zone_at` returns the zone at a time."""
    year, month, _ = _date(_day_number(now_ms, zone_at))
    first, next_ = _days(year, month, 1), _days(year + month // 12, month % 12 + 1, 1)
    return Period(f"{year:04}-{month:02}", _midnight_ms(first, zone_at), _midnight_ms(next_, zone_at))


def _day_number(now_ms: int, zone_at: Callable[[int], Zone]) -> int:
    """Return the number of the day since 1970 whose midnights are around a moment."""
    days = (now_ms // 1000 + zone_at(now_ms).offset_s) // _DAY_S
    # Where clocks change at midnight, the date alone may be one off.
    if now_ms < _midnight_ms(days, zone_at):
        return days - 1
    return days + 1 if now_ms >= _midnight_ms(days + 1, zone_at) else days


def _midnight_ms(days: int, zone_at: Callable[[int], Zone]) -> int:
    """Return when a day begins."""
    near_ms = (days * _DAY_S - zone_at(days * _DAY_S * 1000).offset_s) * 1000
    return (days * _DAY_S - zone_at(near_ms).offset_s) * 1000


def _date(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 1970, in the Gregorian calendar."""
    # Years begin in March here, so that a leap day is the last day of a year.
    era, day_of_era = divmod(days + _TO_1970, _ERA_DAYS)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def _days(year: int, month: int, day: int) -> int:
    """Do the opposite of `_date`."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return (
        era * _ERA_DAYS + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - _TO_1970
    )
