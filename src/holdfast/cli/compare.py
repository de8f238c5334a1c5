"""`holdfast diff` compares what two sessions did after their common part."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from holdfast.cli.options import HomeFlag, JsonFlag, SessionName, home_of
from holdfast.cli.reading import read_session, reading
from holdfast.cli.terminal import columns, say, say_json
from holdfast.config.paths import Home
from holdfast.views.comparison import compare, comparison_lines, comparison_row
from holdfast.views.stored import StoredSession


def diff(
    session: SessionName,
    other: Annotated[str, typer.Argument(metavar="SESSION", help="The session to compare it with.")],
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> None:
    """Compare two sessions: what each did after the records that they share.

    \b
    holdfast fork cli:docs --at 12
    holdfast diff cli:docs last
    """
    left, right = asyncio.run(_read(home_of(home), session, other))
    found = compare(left, right)
    if is_json:
        say_json(comparison_row(found))
    else:
        say(comparison_lines(found, left, right, columns(sys.stdout)))


async def _read(home: Home, name: str, other: str) -> tuple[StoredSession, StoredSession]:
    async with reading(home) as store:
        return await read_session(store, name), await read_session(store, other)
