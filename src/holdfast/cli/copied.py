"""Tells which copies of workspaces wait for a person, in `sessions` and `doctor`. None is removed for its age."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress

from holdfast.cli.reading import reading
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.paths import Home
from holdfast.depths import walked
from holdfast.protocol.rows import SessionRow, Sought
from holdfast.runtime import copies
from holdfast.runtime.copies import Copy
from holdfast.views.lines import COMMAND, Line, Span, local

_OLD_MS = 14 * 86_400_000
_SHOWN = 5
_COUNTED_FILES = 100_000


def waiting_sessions(home: Home, rows: Sequence[SessionRow]) -> set[str]:
    """Return the sessions whose copy is still there. What changed in it is not looked for."""
    return {row.session for row in rows if copies.is_waiting(home.folder, row.workspace)}


def copy_lines(waiting: Sequence[str]) -> Iterator[Line]:
    """Return the sessions whose copy waits to be accepted or discarded."""
    for session in waiting[:_SHOWN]:
        yield ["a copy waits:  ", Span(f"holdfast show {session} --diff", COMMAND)]
    if len(waiting) > _SHOWN:
        yield [f"a copy waits:  {len(waiting) - _SHOWN} more"]


def told_copies(home: Home) -> Iterator[tuple[bool, str, str]]:
    """Yield what there is to say about copies: whether somebody should act, the sentence, and what to do."""
    if not (home.folder / copies.FOLDER).is_dir():
        return
    found = sorted(copies.every(home.folder), key=lambda each: each.made_ms)
    old = [each for each in found if each.made_ms < SYSTEM_CLOCK.now_ms() - _OLD_MS]
    sessions = asyncio.run(_sessions(home, old)) if old else {}
    for each in old[:_SHOWN]:
        size, is_whole = _size(each.folder)
        told = f"{'' if is_whole else 'more than '}{size / (1 << 20):,.0f} MiB"
        who = sessions[each.folder]
        hint = f"`holdfast show {who} --diff` shows what changed; `holdfast discard {who}` removes it."
        yield (
            True,
            f"the copy {each.folder} of {each.origin} waits since {local(each.made_ms)} ({told})",
            hint if who else "No session works in it. The next run with --isolate removes it.",
        )
    if lost := copies.lost(home.folder):
        hint = "Mount their disk, or move them back. `holdfast discard SESSION` gives one up."
        yield True, f"copies of workspaces that are not in {copies.beside(home.folder)}: {len(lost)}", hint
    if found and not old:
        yield False, f"copies of workspaces that wait: {len(found)}", ""


async def _sessions(home: Home, found: Sequence[Copy]) -> dict[str, str]:
    async with reading(home) as store:
        rows = {each.folder: await store.sessions(Sought(workspace=each.folder), 1) for each in found}
    return {folder: theirs[0].session if theirs else "" for folder, theirs in rows.items()}


def _size(folder: str) -> tuple[int, bool]:
    """Return how many bytes the files of a folder have, and whether all were counted."""
    size, files = 0, 0
    is_whole = True
    for _, entries in walked(folder):
        is_whole = is_whole and entries is not None
        for entry in entries or ():
            if entry.is_dir(follow_symlinks=False):
                continue
            files += 1
            if files > _COUNTED_FILES:
                return size, False
            with suppress(OSError):
                size += entry.stat(follow_symlinks=False).st_size
    return size, is_whole
