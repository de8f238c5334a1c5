"""`holdfast budget` and `holdfast report`: what a home spent, and on what."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from holdfast.cli.options import HomeFlag, JsonFlag, home_of, since_ms
from holdfast.cli.reading import find_session, reading
from holdfast.cli.terminal import columns, say, say_json
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.paths import Home
from holdfast.errors import UsageError
from holdfast.protocol.spending import Amounts, Line
from holdfast.views.spending import (
    Period,
    budget_lines,
    budget_row,
    cost_report,
    cost_report_lines,
    periods,
)


def budget(home: HomeFlag = None, is_json: JsonFlag = False) -> None:
    """Show what this home spent: today, this month, and ever.

    \b
    holdfast budget
    holdfast budget --json
    """
    rows = asyncio.run(_budget(home_of(home)))
    if is_json:
        for period, amounts in rows:
            say_json(budget_row(period, amounts))
    else:
        say(budget_lines(rows, columns(sys.stdout)))


async def _budget(home: Home) -> list[tuple[Period, Amounts]]:
    async with reading(home) as store:
        return [(each, await store.spent(each.begun_ms)) for each in periods(SYSTEM_CLOCK.now_ms())]


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
    found = cost_report(asyncio.run(_lines(home_of(home), session, begun_ms)), begun_ms, now_ms)
    if is_json:
        say_json(found)
    else:
        say(cost_report_lines(found, columns(sys.stdout)))


async def _lines(home: Home, name: str, since_ms: int) -> list[Line]:
    async with reading(home) as store:
        session = await find_session(store, name) if name else ""
        return list(await store.lines(since_ms, session))
