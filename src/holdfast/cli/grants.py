"""`holdfast grants`: approvals that last, of all sessions, and `holdfast grants revoke`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated

import typer

from holdfast.app import open_app
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.reading import about_to_write, reading
from holdfast.cli.sitting import sender
from holdfast.cli.terminal import columns, say, say_json
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import load
from holdfast.config.paths import Home
from holdfast.errors import NoSuchSession
from holdfast.protocol.codec import decode
from holdfast.protocol.commands import Revoke
from holdfast.protocol.events import GrantMade, GrantRevoked, Record
from holdfast.protocol.ids import session_of_grant
from holdfast.protocol.ports import Store
from holdfast.protocol.rows import GrantRow
from holdfast.views.lines import Span, local
from holdfast.views.lists import grant_lines, grant_row

_BAD_NEWS = 1

grants = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    help="""List the grants: approvals that last, which `holdfast approve ID --always` makes.

\b
holdfast grants
holdfast grants revoke ID
""",
)


@grants.callback()
def list_grants(context: typer.Context, home: HomeFlag = None, is_json: JsonFlag = False) -> None:
    if context.invoked_subcommand is not None:
        return
    rows = asyncio.run(_listed(home_of(home)))
    if is_json:
        for session, row in rows:
            say_json(grant_row(session, row))
    elif rows:
        say(grant_lines(rows, columns(sys.stdout)))
    else:
        say(["No grants. `holdfast approve ID --always` makes one."])


async def _listed(home: Home) -> list[tuple[str, GrantRow]]:
    now_ms = SYSTEM_CLOCK.now_ms()
    async with reading(home) as store:
        rows = await store.granting()
    return [(row.session, each) for row in rows for each in row.grants if now_ms < each.until_ms]


@grants.command()
def revoke(
    grant: Annotated[str, typer.Argument(metavar="ID", help="The id that `holdfast grants` lists.")],
    home: HomeFlag = None,
) -> int:
    """Revoke a grant: the next call that it would cover asks again.

    \b
    holdfast grants revoke ID
    """
    return asyncio.run(_revoke(home_of(home), grant))


async def _revoke(home: Home, name: str) -> int:
    session = session_of_grant(name)
    async with about_to_write(home) as store:
        made = await _fact(store, session, name, GrantMade)
    if made is None or not isinstance(made.event, GrantMade):
        raise NoSuchSession(f"There is no grant {name!r} in this home.", hint="`holdfast grants` lists them.")
    grant = made.event.grant
    async with open_app(load(home, None, {}, os.environ), home, offers=None) as app:
        state = await app.controller.state(session)
        found = next((each for each in state.grants if each.id == name), None)
        command_id = ""
        if found is not None and found.is_live(app.clock.now_ms()):
            command_id = await app.controller.decide_now(session, sender(), Revoke(name))
        revoked = await _fact(app.store, session, name, GrantRevoked)
    if revoked is not None and isinstance(revoked.event, GrantRevoked):
        if revoked.cause.name == command_id:
            say([f"revoked: {grant.offer.rule} in session {session}. The next such call asks again."])
            return 0
        say([[Span("Already revoked", "yellow"), f" by {revoked.event.by}, {local(revoked.at_ms)}."]])
    elif grant.is_live(SYSTEM_CLOCK.now_ms()):
        say([[Span("Already over", "yellow"), ": all its uses are taken, or another grant took its place."]])
    else:
        say([[Span("Already over", "yellow"), f": it ended {local(grant.until_ms)}."]])
    return _BAD_NEWS


async def _fact(
    store: Store, session: str, name: str, kind: type[GrantMade] | type[GrantRevoked]
) -> Record | None:
    """Return the session's record of that kind about the grant; None without one."""
    if await store.session(session) is None:
        return None
    for stored in await store.read(session):
        if stored.type == kind.__name__ and not stored.is_erased:
            record = decode(stored)
            event = record.event
            found = event.grant.id if isinstance(event, GrantMade) else getattr(event, "grant_id", "")
            if found == name:
                return record
    return None
