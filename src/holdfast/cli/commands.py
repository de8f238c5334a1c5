"""The table of all commands. A command's module is loaded when the command is used.

To add a command, write a function in this room that returns its exit code (None counts as 0), or a `typer.Typer` for
a command with subcommands, and add a row here. `holdfast --help` prints the table without loading any module.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter


class Row(NamedTuple):
    """A command: its name, its function as "module:name", and one line of help."""

    name: str
    target: str
    about: str


COMMANDS: Mapping[str, tuple[Row, ...]] = {
    "Work": (
        Row("demo", "holdfast.cli.demo:demo", "Watch a scripted agent survive a crash. Needs no key."),
        Row("run", "holdfast.cli.run:run", "Give an agent a task and watch it work."),
        Row("chat", "holdfast.cli.chat:chat", "Chat with an agent."),
        Row("resume", "holdfast.cli.run:resume", "Continue a session."),
        Row("pause", "holdfast.cli.control:pause", "Pause a session after the current step."),
        Row("stop", "holdfast.cli.control:stop", "Stop a session's run."),
        Row("fork", "holdfast.cli.branch:fork", "Branch off a session after a record."),
        Row("compact", "holdfast.cli.compact:compact", "Shorten what the model sees of a session."),
        Row("undo", "holdfast.cli.undo:undo", "Put back the files that the last message changed."),
        Row("rewind", "holdfast.cli.rewind:rewind", "Go back to a record, and on from there."),
        Row("accept", "holdfast.cli.isolate:accept", "Take over what changed in a copy of the workspace."),
        Row("discard", "holdfast.cli.isolate:discard", "Remove a copy of the workspace and its changes."),
        Row("approve", "holdfast.cli.control:approve", "Approve a call that waits for you."),
        Row("deny", "holdfast.cli.control:deny", "Deny a call that waits for you."),
    ),
    "Look": (
        Row("sessions", "holdfast.cli.sessions:sessions", "List sessions, newest first."),
        Row("show", "holdfast.cli.show:show", "Show a session: transcript, events, requests, tools, cost."),
        Row(
            "approvals", "holdfast.cli.sessions:approvals", "List the calls and questions that wait for you."
        ),
        Row("grants", "holdfast.cli.grants:grants", "List the approvals that last, and revoke one."),
        Row("budget", "holdfast.cli.spending:budget", "Show what this home spent today, this month, ever."),
        Row("report", "holdfast.cli.spending:report", "Report what model calls cost, and on what."),
        Row("prompt", "holdfast.cli.prompt:prompt", "Print the system prompt as the model gets it."),
        Row("diff", "holdfast.cli.compare:diff", "Compare what two sessions did after their common part."),
        Row("replay", "holdfast.cli.branch:replay", "Decide a recorded session again, and compare."),
    ),
    "Set up": (
        Row("init", "holdfast.cli.init:init", "Choose a model and write the user file."),
        Row("models", "holdfast.cli.models:models", "List providers and models, with prices."),
        Row("tools", "holdfast.cli.admin:tools", "List the tools of an agent."),
        Row("trust", "holdfast.cli.trust:trust", "Trust a project file."),
        Row("secret", "holdfast.cli.secret:secret", "Store secrets, list and remove them."),
        Row("policy", "holdfast.cli.policy_commands:policy", "Ask what the policy says about a call."),
        Row("parse-calls", "holdfast.cli.parse_calls:parse_calls", "Say which tool calls a text has."),
        Row("redact", "holdfast.cli.redact:redact", "Mask the secrets in a text."),
        Row("config", "holdfast.cli.config_commands:config", "Show settings and their sources."),
    ),
    "Care": (
        Row("doctor", "holdfast.cli.doctor:doctor", "Check this installation."),
        Row("circuits", "holdfast.cli.circuits:circuits", "List services that fail, and call them again."),
        Row("fsck", "holdfast.cli.admin:fsck", "Check every record of a home for damage."),
        Row("export", "holdfast.cli.archive:export", "Write a session to a file."),
        Row("import", "holdfast.cli.archive:import_", "Read a session from a file."),
        Row("delete", "holdfast.cli.archive:delete", "Delete a session for good."),
    ),
}
"""All commands by their heading in `--help`."""

_NEAR = 0.7
"""How similar a name must be to be suggested."""
_ROWS = {row.name: row for rows in COMMANDS.values() for row in rows}


class LazyGroup(TyperGroup):
    """A group that loads each command when it is used."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Return all names in the order of the table."""
        return list(_ROWS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command:
        """Return the command, or fail with a usage error."""
        row = _ROWS.get(cmd_name)
        if row is None:
            ctx.fail(f"There is no command {cmd_name!r}.{_advice(cmd_name)}")
        module, _, name = row.target.partition(":")
        return command_of(getattr(import_module(module), name), cmd_name)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the table with its headings."""
        for heading, rows in COMMANDS.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl([(row.name, row.about) for row in rows])


def _advice(name: str) -> str:
    """Return what the user may have meant."""
    near = difflib.get_close_matches(name, _ROWS, n=1, cutoff=_NEAR)
    if near:
        return f" Did you mean {near[0]}?"
    return f" To run a task, type `holdfast run {shlex.quote(name)}`." if " " in name.strip() else ""


@cache
def command_of(target: Any, name: str) -> Command:
    """Turn a function, or a Typer with subcommands, into a command.

    To make one costs more than what most commands do, and a process may run many.
    """
    if isinstance(target, typer.Typer):
        command: Command = typer.main.get_command(target)
        command.name = name
        return command
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name)(target)
    return typer.main.get_command(single)
