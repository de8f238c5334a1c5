"""The root command, and the one place that catches whatever a command raises.

`commands` lists the commands, `edge` reports errors, `main` handles signals.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli.called import remember_call
from holdfast.cli.commands import LazyGroup, command_of
from holdfast.cli.edge import folder_lost, tell_bug, tell_error, tell_usage
from holdfast.cli.terminal import columns, legible, mute, output_lost
from holdfast.errors import HoldfastError

_COMPLETE = "_HOLDFAST_COMPLETE"
"""Set by the completion script of a shell, which `--install-completion` writes."""
_HELP_CELLS = 100
_HELP_LEAST_CELLS = 30
BROKEN_PIPE = 141
"""The exit code of a program that SIGPIPE ended."""

app = typer.Typer(
    name="holdfast",
    cls=LazyGroup,
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback()
def root(
    context: typer.Context,
    is_version_asked: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    home: Annotated[str | None, typer.Option("--home", metavar="DIR", help="The home to use.")] = None,
) -> None:
    """An agent runtime for work that lasts.

    \b
    holdfast init                         choose a model
    holdfast run "fix the failing test"   run a task
    holdfast show last                    see what happened
    """
    if is_version_asked:
        print(f"holdfast {__version__}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code.

    Raises:
        KeyboardInterrupt: A signal ended the command.
    """
    try:
        return _run([legible(argument) for argument in arguments])
    except BrokenPipeError:
        mute(sys.stdout)
        return BROKEN_PIPE


def _run(arguments: Sequence[str]) -> int:
    try:
        remember_call(arguments)
        code = _invoke(list(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    except HoldfastError as error:
        return tell_error(arguments, error)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        return tell_usage(arguments, error.format_message(), context.command_path if context else "holdfast")
    except typer.Abort:
        raise KeyboardInterrupt from None
    # A bug: the user gets a sentence and a trace id, the log gets the details.
    except Exception as error:
        known = (output_lost(error) or folder_lost(error)) if isinstance(error, OSError) else None
        return tell_error(arguments, known) if known else tell_bug(arguments, error)


def _help_cells() -> int:
    """Return the width of a help page. Typer by itself uses at least 50 cells."""
    return max(min(columns(sys.stdout), _HELP_CELLS), _HELP_LEAST_CELLS) - 2


def _invoke(arguments: list[str]) -> int:
    group = command_of(app, "holdfast")
    try:
        if _COMPLETE in os.environ:
            group.main([], prog_name="holdfast")  # answers the shell, and exits
        with group.make_context("holdfast", arguments, terminal_width=_help_cells()) as context:
            code = group.invoke(context)
    except typer.Exit as error:
        return error.exit_code
    return code if isinstance(code, int) else 0
