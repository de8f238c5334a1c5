"""`holdfast policy check`: what the gates would say about a call, without a session, a model or an effect."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import typer

from holdfast.app import open_checker, open_sandbox
from holdfast.cli.batch import answered
from holdfast.cli.config_commands import WorkspaceFlag, load_here, workspace_named
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import say, say_json, tell
from holdfast.config.settings import Config
from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.protocol.tools import Decision
from holdfast.tools.checking import SUBJECTS, Checker
from holdfast.views.lines import Span, neutral

_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}
_KINDS = ("tool", *sorted(SUBJECTS))

policy = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="""Ask what the policy says about a call.

\b
holdfast policy check --command "ls -la"
""",
)


@policy.callback()
def _group() -> None:
    """Keeps `check` a subcommand while it is the only one."""


class Asked(NamedTuple):
    """One question: what is judged, and its text. For a tool also the arguments."""

    kind: str
    value: str
    arguments: Any = None


@policy.command()
def check(  # noqa: PLR0913 -- each parameter is a flag of the command
    tool: Annotated[str | None, typer.Option("--tool", metavar="NAME", help="A tool.")] = None,
    args: Annotated[str | None, typer.Option("--args", metavar="JSON", help="The tool's arguments.")] = None,
    command: Annotated[str | None, typer.Option("--command", metavar="TEXT", help="A shell command.")] = None,
    read: Annotated[str | None, typer.Option("--read", metavar="PATH", help="A file to read.")] = None,
    write: Annotated[str | None, typer.Option("--write", metavar="PATH", help="A file to write.")] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="An address to read.")] = None,
    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="FILE", help="One question per line, as JSON. - reads stdin."),
    ] = None,
    posture: Annotated[
        str | None,
        typer.Option("--posture", metavar="NAME", help="The posture of the run, such as overnight."),
    ] = None,
    workspace: WorkspaceFlag = "",
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> int:
    """Say what the gates would say about a call: allow, ask or deny, with the rule and the reason. Runs nothing.

    Each line of a batch is one of {"tool", "args"}, {"command"}, {"read"}, {"write"} and {"url"}. A line that cannot
    be judged gives {"error"} in its place, and the exit code is 1.

    \b
    holdfast policy check --command "ls -la"
    holdfast policy check --command "make test" --posture overnight
    holdfast policy check --tool write_file --args '{"path": "a.txt", "content": ""}' --json
    holdfast policy check --batch calls.jsonl --json
    """
    given = {"tool": tool, "command": command, "read": read, "write": write, "url": url, "batch": batch}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        raise UsageError(
            "Give exactly one of --tool, --command, --read, --write, --url and --batch.",
            hint="`holdfast policy check --help` has examples.",
        )
    if (args is not None) != (tool is not None):
        raise UsageError("--tool and --args go together.", hint="A tool without arguments takes --args '{}'.")
    config = load_here(home, workspace, posture)
    checker = open_checker(config, home_of(home), workspace_named(workspace), os.environ)
    for warning in (*config.warnings, *_without_sandbox(config)):
        tell(warning)
    if batch is not None:
        with asyncio.Runner() as runner:
            return answered(
                batch,
                lambda said: _show(runner.run(_answer(checker, _asked(said))), is_json=is_json),
                is_json=is_json,
            )
    (kind,) = chosen
    _show(asyncio.run(_answer(checker, Asked(kind, given[kind] or "", args))), is_json=is_json)
    return 0


def _without_sandbox(config: Config) -> Iterator[str]:
    """Yield that no run can do what the answers say, where they count on a sandbox that does not work here."""
    if config.policy.sandboxed != "allow":
        return
    try:
        asyncio.run(open_sandbox(config))
    except SandboxUnavailable as error:
        yield f"No command runs here, and a run ends with exit code 8. {error.message} {error.hint}"


async def _answer(checker: Checker, asked: Asked) -> Decision:
    if asked.kind == "tool":
        return await checker.call(asked.value, asked.arguments)
    return await checker.subject(asked.kind, asked.value)


def _asked(said: Any) -> Asked:
    """Return the question of a line.

    Raises:
        UsageError: it is not one question.
    """
    found = [kind for kind in _KINDS if isinstance(said, dict) and kind in said]
    if len(found) != 1:
        raise UsageError(f"The line is not an object with exactly one of {', '.join(_KINDS)}.")
    (kind,) = found
    if not isinstance(said[kind], str):
        raise UsageError(f"{kind} is not a text.")
    arguments = said.get("args", said.get("arguments", {}))
    if kind == "tool" and not isinstance(arguments, dict | str):
        raise UsageError("args is neither an object nor JSON text.")
    return Asked(kind, said[kind], arguments)


def _show(decision: Decision, *, is_json: bool) -> None:
    if is_json:
        say_json({"verdict": decision.verdict, "rule": decision.rule, "reason": decision.reason})
        return
    about = f"  {neutral(decision.rule)}" + (f": {neutral(decision.reason)}" if decision.reason else "")
    say([[Span(decision.verdict, _STYLES[decision.verdict]), about]])
