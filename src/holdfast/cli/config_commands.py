"""`holdfast config`: settings and their sources, paths of files, their schema, and a check."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import say, say_json, tell
from holdfast.config.load import load
from holdfast.config.paths import PROJECT_FILE, admin_files, expanded, is_folder
from holdfast.config.schema import json_schema, shown
from holdfast.config.settings import DEFAULT_ORIGIN, Config
from holdfast.errors import UsageError
from holdfast.views.lines import Span, neutral, table

_HELP = """Show settings and their sources.

\b
holdfast config show
$EDITOR $(holdfast config path)
"""

config = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help=_HELP,
)

WorkspaceFlag = Annotated[
    str,
    typer.Option(
        "--workspace", "-w", metavar="DIR", help="The folder of the project file. Default: this folder."
    ),
]


def workspace_named(workspace: str) -> Path:
    """Return the folder that `-w` names; without it, this folder.

    Raises:
        UsageError: It is not a folder.
    """
    folder = expanded(workspace) if workspace else Path.cwd()
    if not is_folder(folder):
        raise UsageError(f"The workspace {folder} is not a folder.", hint="Name another one with -w DIR.")
    return folder


def load_here(home: str | None, workspace: str = "", posture: str | None = None) -> Config:
    """Return the settings of a run in that folder, with that posture.

    Raises:
        ConfigError: A file or variable is wrong; the error lists every problem.
        UsageError: The folder does not exist.
    """
    return load(home_of(home), workspace_named(workspace), {"posture": posture}, os.environ)


@config.command()
def show(workspace: WorkspaceFlag = "", home: HomeFlag = None, is_json: JsonFlag = False) -> None:
    """Show every setting with its value and source, and values that do not count.

    \b
    holdfast config show
    holdfast config show -w ./project --json
    """
    rows = shown(load_here(home, workspace))
    if is_json:
        for row in rows:
            say_json(row)
        return
    cells: list[list[Span | str]] = [[Span(name, "bold") for name in ("setting", "value", "from")]]
    for row in rows:
        if row["origin"] is not None:
            style = "dim" if row["origin"] == DEFAULT_ORIGIN else ""
            cells.append([row["key"], neutral(_written(row["value"])), Span(neutral(row["origin"]), style)])
    say(table(cells))
    ignored: list[list[Span | str]] = [
        [neutral(row["key"]), neutral(_written(each["value"])), neutral(f"{each['origin']}: {each['why']}")]
        for row in rows
        for each in row.get("ignored", ())
    ]
    if ignored:
        say(
            [
                [""],
                *table([[Span(head, "bold") for head in ("ignored", "value", "a project file")], *ignored]),
            ]
        )


def _written(value: object) -> str:
    """Return a value as a file has it: `true`, and not Python's `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@config.command()
def path(home: HomeFlag = None, is_json: JsonFlag = False) -> None:
    """Print the path of the user file; with --json, of all files that count here.

    \b
    $EDITOR $(holdfast config path)
    holdfast config path --json
    """
    user_file = home_of(home).user_file
    if is_json:
        project_file = Path.cwd() / PROJECT_FILE
        user, project, *admin = (
            {"path": str(file), "exists": file.exists()}
            for file in (user_file, project_file, *admin_files(os.environ))
        )
        say_json({"user": user, "project": project, "admin": admin})
    else:
        say([str(user_file)])


@config.command()
def schema(home: HomeFlag = None) -> None:
    """Print the JSON Schema of config.toml and holdfast.toml, for editors.

    \b
    holdfast config schema > holdfast.schema.json
    """
    say([json.dumps(json_schema(), indent=2)])


@config.command()
def check(workspace: WorkspaceFlag = "", home: HomeFlag = None, is_json: JsonFlag = False) -> None:
    """Check all files and variables that count here. Exits 2 and lists every problem.

    \b
    holdfast config check
    holdfast config check -w ./project
    """
    loaded = load_here(home, workspace)
    if is_json:
        say_json({"ok": True, "warnings": loaded.warnings})
        return
    for warning in loaded.warnings:
        tell(warning)
    say(["The configuration is valid."])
