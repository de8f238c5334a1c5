"""Commands about an installation: `fsck` checks a home, `tools` lists the tools of an agent."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.app import offered_in, specs_of
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import columns, say, say_json
from holdfast.config.load import load
from holdfast.errors import StorageError
from holdfast.protocol.counts import counted
from holdfast.protocol.rows import Damage, Salvaged, Stretch, Verified
from holdfast.protocol.tools import ToolSpec
from holdfast.runtime.snapshot import is_sound
from holdfast.storage.errors import storage_errors
from holdfast.storage.fsck import verify_home
from holdfast.storage.salvage import salvage
from holdfast.views.lines import Line, Span, neutral, one_line, table

_BAD_NEWS = 1
_EFFECT_STYLES = {"read": "green", "write": "yellow", "exec": "red", "network": "red"}


def fsck(
    repair: Annotated[
        Path | None,
        typer.Option("--repair", metavar="FILE", help="Save all readable records into a new database."),
    ] = None,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> int:
    """Check every record of a home, and list damaged and erased records. Changes nothing. Exits 1 on damage.

    --repair saves all readable records into a new database and lists what is lost.

    \b
    holdfast fsck
    holdfast fsck --home ./backup --json
    holdfast fsck --repair saved.db
    """
    folder = home_of(home).folder
    with storage_errors(folder):
        found = _found(folder, is_repairing=repair is not None)
        saved = salvage(folder, repair) if repair is not None else None
    if is_json:
        said: dict[str, Any] = {"home": str(folder), "ok": not found.damages}
        said["damage"] = [damage_row(damage) for damage in found.damages]
        said |= {"erased": msgspec.to_builtins(found.erased), "lost": msgspec.to_builtins(found.lost)}
        said["notices"] = list(found.notices)
        if saved is not None:
            said["repaired"] = {"file": str(repair), **msgspec.to_builtins(saved)}
        say_json(said)
    else:
        say(_fsck_lines(folder, found))
        say(_salvage_lines(saved, str(repair)) if saved is not None else [])
    is_bad = bool(found.damages or (saved is not None and (saved.lost or saved.notes)))
    return _BAD_NEWS if is_bad else 0


def _found(folder: Path, *, is_repairing: bool) -> Verified:
    """What is wrong; a repair also begins where the check cannot."""
    try:
        return verify_home(folder, is_sound)
    except StorageError as error:
        if not is_repairing:
            raise
        return Verified((Damage("file", error.message),))


def _fsck_lines(folder: Path, found: Verified) -> Iterator[Line | str]:
    yield from map(_damage_line, found.damages)
    for stretch in found.erased:
        yield [Span(f"{'erased':<11}", "dim"), f"{_which(stretch)}: erased on purpose, not damaged"]
    for stretch in found.lost:
        yield [Span(f"{'lost':<11}", "dim"), f"{_which(stretch)}: lost before a repair, no new damage"]
    for notice in found.notices:
        yield [Span(f"{'notice':<11}", "dim"), neutral(notice)]
    if found.damages:
        yield ""
        is_checked = not any(damage.kind == "file" for damage in found.damages)
        rest = " All other records are readable." if is_checked else ""
        yield f"Found {counted(len(found.damages), 'damage')}.{rest}"
    else:
        yield f"{folder}: every record, row and blob is intact."


def _salvage_lines(saved: Salvaged, file: str) -> Iterator[Line | str]:
    yield ""
    for stretch in saved.lost:
        yield [Span(f"{'lost':<11}", "red"), _which(stretch)]
    for note in saved.notes:
        yield [Span(f"{'also':<11}", "red"), neutral(note)]
    yield f"Saved {counted(saved.records, 'record')} of {counted(saved.sessions, 'session')} in {file}."
    yield "To use it, put it in place of holdfast.db in a copy of the home. Sessions that lost records can be shown"
    yield "and forked, not continued."


def _which(stretch: Stretch) -> str:
    first, last = stretch.first_seq, stretch.last_seq
    return f"{stretch.session} " + (f"record {first}" if first == last else f"records {first} to {last}")


def damage_row(damage: Damage) -> dict[str, Any]:
    """Return a damage for scripts; `session` and `seq` are null if they do not apply."""
    return {
        "kind": damage.kind,
        "message": damage.message,
        "session": damage.session or None,
        "seq": damage.seq or None,
    }


def _damage_line(damage: Damage) -> Line:
    where = f"{damage.session} " if damage.session else ""
    where += f"record {damage.seq} " if damage.seq else ""
    return [Span(f"{damage.kind:<11}", "red"), f"{where}{neutral(damage.message)}"]


def tools(is_json: JsonFlag = False, home: HomeFlag = None) -> None:
    """List the tools of a run in this folder, in the order in which the model sees them, and what it lacks.

    A run lacks what the configuration leaves out, and what would be of no use: the web without a listed host, a
    search without an engine, git without a repository.

    \b
    holdfast tools
    holdfast tools --json
    """
    config = load(home_of(home), Path.cwd(), {}, os.environ)
    offered = offered_in(Path.cwd(), config)
    others = [spec for spec in specs_of(config) if spec not in offered]
    if is_json:
        for spec in (*offered, *others):
            say_json(msgspec.structs.asdict(spec) | {"offered": spec in offered})
    else:
        say(tool_lines(offered, columns(sys.stdout)))
        say([f"A run here does not have: {', '.join(spec.name for spec in others)}."] if others else [])


def tool_lines(specs: Sequence[ToolSpec], width: int) -> list[Line]:
    """Return a table of tools."""
    head = [Span(name, "bold") for name in ("tool", "effect", "after a crash", "timeout", "what it does")]
    rows: list[list[Span | str]] = [list(head)]
    for spec in specs:
        about = one_line(spec.description.partition("\n")[0], width)
        effect = Span(spec.effect, _EFFECT_STYLES.get(spec.effect, ""))
        rows.append([spec.name, effect, spec.on_interrupt, f"{spec.timeout_s:g}s", about])
    return table(rows, width, right=(3,), drop=(3, 2))
