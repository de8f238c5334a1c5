"""Reads the books for people and scripts: what a home spent, and on what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.protocol.budgets import Balance
from holdfast.protocol.limits import usd
from holdfast.protocol.spending import Amounts
from holdfast.protocol.spending import Line as Booked
from holdfast.protocol.zone import Zone, day_at, head_at
from holdfast.views.lines import Line, Span, iso, table
from holdfast.views.tables import money


def budget_row(balance: Balance) -> dict[str, Any]:
    """Return the state of a budget, for scripts. What attempts have reserved that are at work counts as held."""
    bucket = balance.bucket
    limit = bucket.limit_microusd
    return {
        "scope": bucket.scope,
        "name": bucket.name,
        "limit_usd": usd(limit) if limit is not None else None,
        "spent_usd": usd(balance.spent),
        "estimated_usd": usd(balance.estimated),
        "held_usd": usd(balance.held + balance.reserved),
        "left_usd": usd(max(balance.left, 0)) if limit is not None else None,
        "resets_at": iso(bucket.ends_ms) if bucket.ends_ms else None,
    }


def budget_lines(balances: Sequence[Balance], width: int, zone_at: Callable[[int], Zone]) -> list[Line]:
    """Return one line per budget."""
    names = ("scope", "name", "limit", "spent", "estimated", "held", "left", "resets")
    cells: list[list[Span | str]] = [[Span(name, "bold") for name in names]]
    for each in balances:
        limit, ends_ms = each.bucket.limit_microusd, each.bucket.ends_ms
        resets = head_at(ends_ms, zone_at(ends_ms))[1:-2] if ends_ms else "never"
        sums = (each.spent, each.estimated, each.held + each.reserved)
        cells.append(
            [
                each.bucket.scope.replace("_", " "),
                each.bucket.name,
                money(limit) if limit is not None else "none",
                *map(money, sums),
                money(max(each.left, 0)) if limit is not None else "",
                resets,
            ]
        )
    return table(cells, width, right=(2, 3, 4, 5, 6), drop=(4, 5, 7))


def cost_report(
    lines: Iterable[Booked], since_ms: int, until_ms: int, zone_at: Callable[[int], Zone]
) -> dict[str, Any]:
    """Return what these lines come to, in all and by purpose, model, day and user. Each breakdown sums to
    `spent_usd`. `zone_at` returns the zone of days at a time."""
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
        "by_day": _by((day_at(line.begun_ms, zone_at).name, line.amounts.spent) for line in booked),
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
