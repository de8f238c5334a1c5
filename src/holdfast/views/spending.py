"""Reads the books for people and scripts: what a home spent, and on what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from holdfast.protocol.limits import usd
from holdfast.protocol.spending import Amounts
from holdfast.protocol.spending import Line as Booked
from holdfast.views.lines import Line, Span, iso, table, utc
from holdfast.views.tables import money

Scope = Literal["home", "month", "day"]


class Period(msgspec.Struct, frozen=True):
    """A span of time whose spending is counted together."""

    scope: Scope
    name: str
    """`2026-11` for a month, `2026-11-23` for a day; empty for the home."""
    begun_ms: int
    ends_ms: int
    """0: never."""


def periods(now_ms: int) -> tuple[Period, ...]:
    """Return the periods that a moment lies in, longest first. Days and months are those of UTC."""
    day = utc(now_ms).replace(hour=0, minute=0, second=0, microsecond=0)
    month = day.replace(day=1)
    next_month = (month + timedelta(days=31)).replace(day=1)
    return (
        Period("home", "", 0, 0),
        Period("month", f"{month:%Y-%m}", _ms(month), _ms(next_month)),
        Period("day", f"{day:%Y-%m-%d}", _ms(day), _ms(day + timedelta(days=1))),
    )


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def budget_row(period: Period, amounts: Amounts) -> dict[str, Any]:
    """Return what a period has spent, for scripts."""
    return {
        "scope": period.scope,
        "name": period.name,
        "limit_usd": None,
        "spent_usd": usd(amounts.spent),
        "estimated_usd": usd(amounts.estimated),
        "held_usd": usd(amounts.held),
        "left_usd": None,
        "resets_at": iso(period.ends_ms) if period.ends_ms else None,
    }


def budget_lines(rows: Sequence[tuple[Period, Amounts]], width: int) -> list[Line]:
    """Return one line per period."""
    names = ("scope", "name", "spent", "estimated", "held", "resets")
    cells: list[list[Span | str]] = [[Span(name, "bold") for name in names]]
    for period, amounts in rows:
        resets = f"{utc(period.ends_ms):%Y-%m-%d %H:%M} UTC" if period.ends_ms else "never"
        sums = (amounts.spent, amounts.estimated, amounts.held)
        cells.append([period.scope, period.name, *map(money, sums), resets])
    return table(cells, width, right=(2, 3, 4), drop=(5, 3))


def cost_report(lines: Iterable[Booked], since_ms: int, until_ms: int) -> dict[str, Any]:
    """Return what these lines come to, in all and by purpose, model, day and user. Each breakdown sums to
    `spent_usd`."""
    booked = list(lines)
    total = sum((line.amounts for line in booked), Amounts())
    return {
        "since": iso(since_ms) if since_ms else None,
        "until": iso(until_ms),
        "spent_usd": usd(total.spent),
        "estimated_usd": usd(total.estimated),
        "held_usd": usd(total.held),
        "by_purpose": _by((line.purpose, line.amounts.spent) for line in booked),
        "by_model": _by((line.model, line.amounts.spent) for line in booked),
        "by_day": _by((f"{utc(line.begun_ms):%Y-%m-%d}", line.amounts.spent) for line in booked),
        "by_user": _by((line.user, line.amounts.spent) for line in booked),
    }


def cost_report_lines(report: Mapping[str, Any], width: int) -> list[Line]:
    """Return the report for people: the sums, then a table for each breakdown."""
    shown: list[Line] = [
        [
            "spent ",
            Span(f"${report['spent_usd']}", "bold"),
            f", of which ${report['estimated_usd']} is estimated",
        ],
        [f"held ${report['held_usd']}: attempts whose process died, which the provider may have charged"],
    ]
    for name in ("purpose", "model", "day", "user"):
        sums: Mapping[str, str] = report[f"by_{name}"]
        if sums:
            cells: list[list[Span | str]] = [[Span(name, "bold"), Span("spent", "bold")]]
            cells += [[each, f"${amount}"] for each, amount in sums.items()]
            shown += [[""], *table(cells, width, right=(1,))]
    return shown


def _by(parts: Iterable[tuple[str, int]]) -> dict[str, str]:
    sums: dict[str, int] = {}
    for name, spent in parts:
        sums[name] = sums.get(name, 0) + spent
    return {name: usd(spent) for name, spent in sorted(sums.items()) if spent}
