"""Where an agent works: in a workspace, or in a copy of it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast.app import App, open_workshop
from holdfast.errors import UsageError
from holdfast.protocol.settings import Settings, changed
from holdfast.runtime import copies
from holdfast.runtime.isolate import copy_for
from holdfast.runtime.undo import Workshop


def workshop_of(app: App) -> tuple[Workshop, Path]:
    """Return what putting files back needs, and the folder of the home.

    Raises:
        UsageError: the agent has no home.
    """
    if app.home is None:
        raise UsageError("A copy of the workspace needs a home.", hint="Pass one, as in Agent(home=...).")
    return open_workshop(app.home, app.store, app.config, app.environ, app.clock), app.home.folder


async def settings_of_copy(app: App, session: str, recorded: str) -> Settings | None:
    """Return the last settings of a session that works in a copy; None for another one.

    Args:
        app: The open app.
        session: The id of the session; empty for a new one.
        recorded: The workspace of the session, as it was recorded.
    """
    if app.home is None or copies.beside(app.home.folder) not in Path(recorded).parents:
        return None
    last = (await app.controller.prospect(session)).ahead.settings
    return last if last is not None and last.tools.copy_of else None


async def in_copy(app: App, last: Settings | None, settings: Settings) -> Settings:
    """Return the settings with a copy of their workspace: the one in which the session works, or a new one.

    Args:
        app: The open app.
        last: The last settings of a session that works in a copy.
        settings: Those of the next run, in the workspace of the user.

    Raises:
        UsageError: it cannot be copied, or is not the workspace of the session.
    """
    workshop, home = workshop_of(app)
    origin = settings.tools.workspace
    if last is not None and await asyncio.to_thread(os.path.realpath, last.tools.copy_of) != origin:
        raise UsageError(f"The session works in a copy of {last.tools.copy_of}, not of {origin}.")
    copy = await copy_for(workshop, home, last, origin)
    return changed(settings, workspace=copy.folder, copy_of=origin)
