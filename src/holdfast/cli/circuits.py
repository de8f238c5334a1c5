"""`holdfast circuits`: which services fail, or want no calls for a while, and `holdfast circuits reset`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.reading import about_to_write, reading
from holdfast.cli.terminal import columns, say, say_json
from holdfast.config.paths import Home
from holdfast.errors import UsageError
from holdfast.protocol.circuits import Circuit
from holdfast.protocol.counts import counted
from holdfast.views.services import circuit_lines, circuit_row

circuits = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    help="""List the circuits of this home: services that have failed, or wanted no calls for a while.

There is one for each provider, model and key, and one for each search engine. While it is open, nobody calls.

\b
holdfast circuits
holdfast circuits --json
holdfast circuits reset NAME
""",
)


@circuits.callback()
def list_circuits(context: typer.Context, home: HomeFlag = None, is_json: JsonFlag = False) -> None:
    if context.invoked_subcommand is not None:
        return
    found = asyncio.run(_listed(home_of(home)))
    if is_json:
        for each in found:
            say_json(circuit_row(each))
    elif found:
        say(circuit_lines(found, columns(sys.stdout)))
    else:
        say(["No service has failed yet."])


async def _listed(home: Home) -> Sequence[Circuit]:
    async with reading(home) as store:
        return await store.circuits()


@circuits.command()
def reset(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="The name that `holdfast circuits` lists; none: all.")
    ] = "",
    home: HomeFlag = None,
) -> None:
    """Close a circuit, and forget its failures and what its service asked for: it is called again at once.

    \b
    holdfast circuits reset
    holdfast circuits reset NAME
    """
    names = asyncio.run(_reset(home_of(home), name))
    say([f"{counted(len(names), 'circuit')} reset." if names else "There is no circuit to reset."])


async def _reset(home: Home, name: str) -> list[str]:
    async with about_to_write(home) as store:
        names = [each.name for each in await store.circuits() if name in ("", each.name)]
        if name and not names:
            hint = "`holdfast circuits` lists them."
            raise UsageError(f"There is no circuit {name!r} in this home.", hint=hint)
        for each in names:
            await store.reset_circuit(each)
    return names
