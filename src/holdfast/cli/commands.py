"""The table of all commands, and the group that loads a command's module when it is asked for.

To add a command: write a function in a module of this room that returns its exit code (None counts as 0), or
a `typer.Typer` for a command with commands of its own, and add its row here. `holdfast --help` prints this
table and loads none of the modules.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter


class Row(NamedTuple):
    """A command: where it stands, as "module:name", and what it is for in one line."""

    name: str
    target: str
    about: str


COMMANDS: Mapping[str, tuple[Row, ...]] = {
    "Work": (
        Row("demo", "holdfast.cli.demo:demo", "See it at work without a key: a crash, an approval, an end."),
        Row("run", "holdfast.cli.run:run", "Give an agent work, and see it done."),
        Row("chat", "holdfast.cli.chat:chat", "Work together, message by message."),
        Row("resume", "holdfast.cli.run:resume", "Go on with a session."),
        Row("pause", "holdfast.cli.control:pause", "Let a session start nothing new."),
        Row("stop", "holdfast.cli.control:stop", "End a session's run."),
        Row("fork", "holdfast.cli.branch:fork", "Branch off a session after one of its records."),
        Row("approve", "holdfast.cli.control:approve", "Allow what a session asks for."),
        Row("deny", "holdfast.cli.control:deny", "Refuse what a session asks for."),
    ),
    "Look": (
        Row("sessions", "holdfast.cli.sessions:sessions", "List sessions, newest first."),
        Row("show", "holdfast.cli.show:show", "Show a session: transcript, events, requests, tools, cost."),
        Row("approvals", "holdfast.cli.sessions:approvals", "List what waits for a person's decision."),
        Row("replay", "holdfast.cli.branch:replay", "Decide a recorded session again and compare."),
    ),
    "Set up": (
        Row("init", "holdfast.cli.init:init", "Pick a model from what is found and write the user file."),
        Row("models", "holdfast.cli.models:models", "List the providers that can be used, and known models."),
        Row("tools", "holdfast.cli.admin:tools", "List the tools that an agent is offered."),
        Row("trust", "holdfast.cli.trust:trust", "Let a project file set more than it may by itself."),
        Row("config", "holdfast.cli.config_commands:config", "Show settings and where each came from."),
    ),
    "Care": (
        Row("doctor", "holdfast.cli.doctor:doctor", "Check this installation."),
        Row("fsck", "holdfast.cli.admin:fsck", "Read a whole home and tell all damage."),
    ),
}
"""All commands under the headings of `--help`."""

_ROWS = {row.name: row for rows in COMMANDS.values() for row in rows}


class LazyGroup(TyperGroup):
    """The commands of the table, each loaded when it is used."""

    def list_commands(self, ctx: Context) -> list[str]:
        """All names, in the table's order."""
        return list(_ROWS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command:
        """The command of that name; a usage error when there is none."""
        row = _ROWS.get(cmd_name)
        if row is None:
            near = difflib.get_close_matches(cmd_name, _ROWS, n=1)
            ctx.fail(f"There is no command {cmd_name!r}." + (f" Did you mean {near[0]}?" if near else ""))
        module, _, name = row.target.partition(":")
        return command_of(getattr(import_module(module), name), cmd_name)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """The table under its headings."""
        for heading, rows in COMMANDS.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl([(row.name, row.about) for row in rows])


def command_of(target: Any, name: str) -> Command:
    """A function, or a Typer with commands of its own, as a command of that name."""
    if isinstance(target, typer.Typer):
        command: Command = typer.main.get_command(target)
        command.name = name
        return command
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name)(target)
    return typer.main.get_command(single)
