"""`holdfast fork` branches off a session; `holdfast replay` decides a recorded session again."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.app import open_workshop
from holdfast.cli.options import HomeFlag, JsonFlag, SessionName, home_of
from holdfast.cli.reading import about_to_write, find_session, read_session, reading
from holdfast.cli.terminal import columns, is_terminal, say, say_json
from holdfast.cli.undo import Found, files_lines, files_row
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import load, load_only
from holdfast.config.paths import Home, expanded
from holdfast.config.settings import CONDUCT, CONTEXT, RETRY, Config
from holdfast.errors import RecordErased, StorageNewer
from holdfast.protocol.codec import encode_json, to_builtins
from holdfast.protocol.counts import counted
from holdfast.protocol.events import Event
from holdfast.runtime.fork import fork as branch_off
from holdfast.runtime.rewind import fork_with_copy
from holdfast.views.lines import COMMAND, Line, Span, one_line
from holdfast.views.replay import Difference, Replay
from holdfast.views.replay import replay as decide_again
from holdfast.views.stored import StoredSession

_DIFFERS = 1
_KEPT = 1
_SHOWN_DIFFERENCES = 20
_LIMITS = {
    "limits.turns": "turns",
    "limits.tokens": "tokens",
    "limits.cost_usd": "cost_microusd",
    "limits.wall": "wall_s",
    "limits.tool_calls": "tool_calls",
    "limits.call_usd": "call_microusd",
}
_SETTINGS = {
    "approve_by": "approve_by",
    "repeat.note": "repeat_note",
    "repeat.stop": "repeat_stop",
    **CONTEXT,
    **CONDUCT,
    **RETRY,
    "guard.stall_turns": "stall_turns",
    "guard.wait_s": "wait_s",
}
"""The settings that a replay can change, by key. Other settings need a model, a tool or a gate."""


def fork(
    session: SessionName,
    at: Annotated[int, typer.Option("--at", metavar="SEQ", help="The last shared record.")],
    copy: Annotated[
        Path | None,
        typer.Option("--copy", metavar="DIR", help="Work in a new copy of the workspace, as of that record."),
    ] = None,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> int:
    """Branch off a session after a record, and print the id of the branch.

    \b
    holdfast fork last --at 12
    holdfast resume ID "Try it without the cache."
    holdfast fork last --at 12 --copy ../try

    The session itself does not change. Without --copy, the branch works on the workspace as it is now. In the
    copy, fork takes back what file tools did after the record. If something else has changed a file since, fork
    leaves that file alone and exits with 1.
    """
    folder = expanded(copy).absolute() if copy is not None else None
    found = asyncio.run(_fork(home_of(home), session, at, folder))
    if is_json:
        row = {"session": found.branch, "parent": found.parent, "at": at}
        say_json(row if folder is None else row | {"copy": str(folder), **files_row(found.files)})
    else:
        say([found.branch])
        if folder is not None:
            say(files_lines(found.files))
        if is_terminal():
            say([["  continue:  ", Span(f"holdfast resume {found.branch}", COMMAND)]])
    return _KEPT if found.files.kept else 0


class _Forked(msgspec.Struct, frozen=True):
    parent: str
    branch: str
    files: Found


async def _fork(home: Home, name: str, at_seq: int, copy: Path | None) -> _Forked:
    async with about_to_write(home) as store:
        parent = await find_session(store, name)
        if copy is None:
            branch = await branch_off(store, SYSTEM_CLOCK, parent, at_seq)
            return _Forked(parent, branch, Found(branch, (), ()))
        workshop = open_workshop(home, store, load(home, None, {}, os.environ), os.environ)
        made = await fork_with_copy(workshop, parent, at_seq, copy)
        return _Forked(parent, made.session, Found(*made))


def replay(
    session: SessionName,
    config: Annotated[
        Path | None,
        typer.Option("--with", metavar="CONFIG", help="Use the limits, repeats and approve_by of this file."),
    ] = None,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> int:
    """Decide a recorded session again with today's code. Exits 1 on a difference.

    \b
    holdfast replay last
    holdfast replay last --with strict.toml

    Replay uses what models, tools and gates returned then, and writes nothing. So it cannot show what they
    would return today, or whether a request would have the same bytes. With other settings it stops at the first
    difference, because everything after it would have been different too.
    """
    change = load_only(config) if config is not None else None
    stored, found = asyncio.run(_replay(home_of(home), session, change))
    ignored = _ignored(change) if change is not None else []
    if is_json:
        say_json(_as_json(stored, found, config, ignored))
    else:
        say(_lines(stored, found, config, ignored))
    return _DIFFERS if found.differences else 0


async def _replay(home: Home, name: str, config: Config | None) -> tuple[StoredSession, Replay]:
    async with reading(home) as store:
        session = await read_session(store, name)
    if session.erased:
        raise RecordErased(
            f"The content of {counted(session.erased, 'record')} of session {session.row.session} was erased."
        )
    if session.newer:
        raise StorageNewer(f"Session {session.row.session} contains records of a newer version.")
    change = _said(config) if config is not None else None
    return session, decide_again(session.row.session, session.row.key, session.records, change)


def _said(config: Config) -> dict[str, Any]:
    """Return the settings that the file gives, by their names."""
    said = {key for key, setting in config.settings.items() if setting.layer != "default"}
    limits = {name: getattr(config.limits, name) for key, name in _LIMITS.items() if key in said}
    others = {name: getattr(config, name) for key, name in _SETTINGS.items() if key in said}
    return limits | others


def _ignored(config: Config) -> list[str]:
    """Return the settings of the file that a replay cannot change."""
    said = (key for key, setting in config.settings.items() if setting.layer != "default")
    return sorted(key for key in said if key not in _LIMITS and key not in _SETTINGS)


# --- output -------------------------------------------------------------------------------------


def _as_json(
    session: StoredSession, found: Replay, config: Path | None, ignored: list[str]
) -> dict[str, Any]:
    return {
        "session": session.row.session,
        "with": str(config) if config is not None else None,
        "ignored": ignored,
        "records": found.records,
        "decisions": found.decisions,
        "same": not found.differences,
        "differences": [
            {
                "seq": difference.seq,
                "what": difference.what,
                "recorded": _plain(difference.recorded),
                "decided": _plain(difference.decided),
            }
            for difference in found.differences
        ],
    }


def _plain(event: Event | None) -> dict[str, Any] | None:
    return None if event is None else {"type": type(event).__name__, **to_builtins(event)}


def _lines(session: StoredSession, found: Replay, config: Path | None, ignored: list[str]) -> Iterator[Line]:
    whose = f"With {config}" if config is not None else "Today's code"
    size = f"{counted(found.decisions, 'decision')} over {counted(found.records, 'record')}"
    if ignored:
        yield [Span(f"Ignored by replay: {', '.join(ignored)}.", "yellow")]
    if not found.differences:
        verb = "it decides the same" if config is not None else "decides the same"
        yield [Span("same", "bold green"), f"  {session.row.session}: {whose} {verb} ({size})."]
        return
    count = (
        counted(len(found.differences), "difference") if config is None else "it would have gone differently"
    )
    yield [Span("different", "bold red"), f"  {session.row.session}: {count}, after {size}."]
    for difference in found.differences[:_SHOWN_DIFFERENCES]:
        yield from _difference(difference, columns(sys.stdout))
    if len(found.differences) > _SHOWN_DIFFERENCES:
        yield [Span(f"  ... {len(found.differences) - _SHOWN_DIFFERENCES} more; --json has them all", "dim")]


def _difference(difference: Difference, width: int) -> Iterator[Line]:
    yield [Span(f"  record {difference.seq}", "bold"), f"  {difference.what}"]
    for name, event in (("then", difference.recorded), ("now", difference.decided)):
        if event is not None:
            told = f"{type(event).__name__} {encode_json(event).decode()}"
            yield [Span(f"    {name:<5} {one_line(told, max(width - 12, 40))}", "dim")]
