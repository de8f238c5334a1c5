"""`holdfast trust`: shows what a project file would change, and asks whether to trust it.

`config.keys` says what needs trust, `config.trust` remembers it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.confirm import confirmed
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import has_person, say, say_json, tell
from holdfast.config import trust as trusted_files
from holdfast.config.load import Change, Proposal, proposal
from holdfast.config.paths import PROJECT_FILE, expanded, is_folder, is_text
from holdfast.errors import UsageError
from holdfast.storage.errors import storage_errors
from holdfast.views.lines import Line, Span, neutral, table

_BAD_NEWS = 1
_HEADS = {
    "trusted": "If you trust it, it sets:",
    "overruled": "If you trust it, it also sets these, but another source overrides them:",
    "already": "These count already, because they only tighten:",
    "never": "These never count in a project file:",
}
"""The headings of the groups of values, most important first."""


def trust(
    file: Annotated[
        str,
        typer.Argument(metavar="[FILE|DIR]", help=f"A {PROJECT_FILE}, or its folder. Default: this folder."),
    ] = ".",
    is_yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> int:
    """Show what a project file would change, and trust it until its content changes. Exits 1 if you say no.

    \b
    holdfast trust
    holdfast trust ./project/holdfast.toml --yes
    """
    place, path = home_of(home), project_file(file)
    told = proposal(place, path, os.environ)
    if not told.sha256:
        raise UsageError(f"There is no file {path}.", hint=f"Name a {PROJECT_FILE}, or its folder.")
    is_trusted = told.is_trusted
    if not is_trusted:
        _show(path, told, is_json=is_json)
        is_trusted = is_yes or _is_wanted(path)
        if is_trusted:
            with storage_errors(place.folder):
                trusted_files.trust(place, path, told.sha256)
    if is_json:
        changes = [change._asdict() for change in told.changes]
        say_json({"file": str(path), "sha256": told.sha256, "trusted": is_trusted, "changes": changes})
    elif told.is_trusted:
        say([f"{neutral(str(path))} is already trusted."])
    else:
        say([f"{neutral(str(path))} is {'trusted until it changes' if is_trusted else 'not trusted'}."])
    return 0 if is_trusted else _BAD_NEWS


def project_file(named: str) -> Path:
    """Return the project file for a path: the file itself, or the one in a folder.

    Raises:
        UsageError: It is not a project file.
    """
    path = expanded(named).absolute()
    path = path / PROJECT_FILE if is_folder(path) else path
    if path.name != PROJECT_FILE:
        raise UsageError(f"{named} is not a project file.", hint=f"Name a {PROJECT_FILE}, or its folder.")
    if not is_text(f"{path}{path.parent.resolve()}"):
        raise UsageError(f"The name of the folder of {path!r} is not UTF-8 text.", hint="Name another one.")
    return path


def _show(path: Path, told: Proposal, *, is_json: bool) -> None:
    lines = _lines(path, told)
    if not is_json:
        say(lines)
    elif has_person():
        for line in lines:
            tell(line)


def _lines(path: Path, told: Proposal) -> Iterator[Line]:
    yield [Span(neutral(str(path)), "bold")]
    if not told.changes:
        yield ["It sets nothing."]
    for counts, head in _HEADS.items():
        rows = [_row(change) for change in told.changes if change.counts == counts]
        if rows:
            yield [""]
            yield [head]
            yield from table(rows)
    yield [""]


def _row(change: Change) -> list[Span | str]:
    now = "nothing" if change.now is None else change.now
    note = change.why or f"instead of {now}"
    return [
        f"  {neutral(change.key)}",
        Span(neutral(str(change.value)), "bold"),
        Span(neutral(str(note)), "dim"),
    ]


def _is_wanted(path: Path) -> bool:
    if not has_person():
        hint = f"See what it changes, then: `holdfast trust {shlex.quote(str(path))} --yes`"
        raise UsageError(f"Nobody can be asked whether to trust {path}.", hint=hint)
    return confirmed("Trust it until it changes?")
