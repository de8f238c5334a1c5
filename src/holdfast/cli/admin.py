"""Commands about an installation: `fsck` checks a home, `tools` lists the tools of an agent."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from holdfast.app import built_in_specs
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import columns, say, say_json
from holdfast.protocol.rows import Damage, Erased
from holdfast.protocol.tools import ToolSpec
from holdfast.runtime.snapshot import holds
from holdfast.storage.errors import storage_errors
from holdfast.storage.fsck import verify_home
from holdfast.views.lines import Line, Span, neutral, one_line, table

_BAD_NEWS = 1
_EFFECT_STYLES = {"read": "green", "write": "yellow", "exec": "red", "network": "red"}


def fsck(home: HomeFlag = None, is_json: JsonFlag = False) -> int:
    """Check every record of a home, and list damaged and erased records. Changes nothing. Exits 1 on damage.

    \b
    holdfast fsck
    holdfast fsck --home ./backup --json
    """
    folder = home_of(home).folder
    with storage_errors(folder):
        found = verify_home(folder, holds)
    damages = found.damages
    if is_json:
        erased = [msgspec.structs.asdict(stretch) for stretch in found.erased]
        rows = [damage_row(damage) for damage in damages]
        say_json({"home": str(folder), "ok": not damages, "damage": rows, "erased": erased})
        return _BAD_NEWS if damages else 0
    say(_damage_line(damage) for damage in damages)
    say(_erased_line(stretch) for stretch in found.erased)
    if damages:
        say(["", f"Found {len(damages)} damages. All other records are readable."])
    else:
        say([f"{folder}: every record, row and blob is intact."])
    return _BAD_NEWS if damages else 0


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


def _erased_line(erased: Erased) -> Line:
    first, last = erased.first_seq, erased.last_seq
    which = f"record {first}" if first == last else f"records {first} to {last}"
    return [Span(f"{'erased':<11}", "dim"), f"{erased.session} {which}: erased on purpose, not damaged"]


def tools(is_json: JsonFlag = False, home: HomeFlag = None) -> None:
    """List the tools of an agent, in the order in which the model sees them.

    \b
    holdfast tools
    holdfast tools --json
    """
    specs = built_in_specs()
    if is_json:
        for spec in specs:
            say_json(msgspec.structs.asdict(spec))
    else:
        say(_tool_lines(specs, columns(sys.stdout)))


def _tool_lines(specs: tuple[ToolSpec, ...], width: int) -> list[Line]:
    head = [Span(name, "bold") for name in ("tool", "effect", "after a crash", "timeout", "what it does")]
    rows: list[list[Span | str]] = [list(head)]
    for spec in specs:
        about = one_line(spec.description.partition("\n")[0], width)
        effect = Span(spec.effect, _EFFECT_STYLES.get(spec.effect, ""))
        rows.append([spec.name, effect, spec.on_interrupt, f"{spec.timeout_s:g}s", about])
    return table(rows, width, right=(3,), drop=(3, 2))
