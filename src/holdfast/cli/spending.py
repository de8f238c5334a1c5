"""`holdfast budget` and `holdfast report`: what a home spent, and on what."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from holdfast.cli.options import HomeFlag, JsonFlag, home_of, since_ms
from holdfast.cli.reading import find_session, reading
from holdfast.cli.terminal import columns, say, say_json
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import load
from holdfast.config.paths import Home
from holdfast.core.budgets import buckets_of
from holdfast.errors import UsageError
from holdfast.protocol.budgets import Balance, Budgets
from holdfast.protocol.spending import Line
from holdfast.protocol.zone import day_at, month_at
from holdfast.runtime.zones import zone_at
from holdfast.views.spending import budget_lines, budget_row, cost_report, cost_report_lines


def budget(home: HomeFlag = None, is_json: JsonFlag = False) -> None:
    """Show what this home spent, and what its budgets leave. Budgets of users and sessions are listed where they have
    a limit and were used: of users this month, of sessions today.

    \b
    holdfast budget
    holdfast budget --json
    """
    place = home_of(home)
    budgets = load(place, None, {}, os.environ).budgets
    rows = asyncio.run(_balances(place, budgets, SYSTEM_CLOCK.now_ms()))
    if is_json:
        for balance in rows:
            say_json(budget_row(balance))
    else:
        say(budget_lines(rows, columns(sys.stdout), partial(zone_at, budgets.zone)))


async def _balances(home: Home, budgets: Budgets, now_ms: int) -> Sequence[Balance]:
    """Return the budgets that everybody has, and those of the users and sessions of today that have a limit."""
    zone = partial(zone_at, budgets.zone)
    async with reading(home) as store:
        begun_ms = month_at(now_ms, zone).begun_ms
        found = list(buckets_of(budgets, "", "", now_ms, zone, is_all=True)[:3])
        today = day_at(now_ms, zone).begun_ms
        for line in await store.lines(begun_ms):
            of_line = buckets_of(budgets, line.session, line.user, now_ms, zone)
            found += [
                each
                for each in of_line
                if each.scope.startswith("user") or (each.scope == "session" and line.begun_ms >= today)
            ]
        return await store.balances(list(dict.fromkeys(found)))


def report(
    session: Annotated[
        str, typer.Argument(metavar="[SESSION]", help="An id, the beginning of one, a name, or last.")
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="12h", help="Only attempts that began in that time.")
    ] = "",
    is_cost: Annotated[bool, typer.Option("--cost", help="What was spent, and on what.")] = False,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> None:
    """Report what model calls cost, by purpose, model, day and user. Deleted sessions count.

    \b
    holdfast report --cost
    holdfast report --cost --since 12h
    holdfast report last --cost --json
    """
    if not is_cost:
        raise UsageError(
            "Say what to report.", hint="`holdfast report --cost` reports what model calls cost."
        )
    now_ms = SYSTEM_CLOCK.now_ms()
    begun_ms = since_ms(since)
    place = home_of(home)
    zone = partial(zone_at, load(place, None, {}, os.environ).budgets.zone)
    found = cost_report(asyncio.run(_lines(place, session, begun_ms)), begun_ms, now_ms, zone)
    if is_json:
        say_json(found)
    else:
        say(cost_report_lines(found, columns(sys.stdout)))


async def _lines(home: Home, name: str, since_ms: int) -> list[Line]:
    async with reading(home) as store:
        session = await find_session(store, name) if name else ""
        return list(await store.lines(since_ms, session))
