"""`holdfast run` and `holdfast resume`: send a task or a continue command to a session, then drive it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from holdfast.app import App, open_app, own_places
from holdfast.cli.ask import Person
from holdfast.cli.attachments import from_stdin, given, message_with
from holdfast.cli.edits import Edits
from holdfast.cli.flags import RunFlags, chosen, configured, taking_flags, workspace_of
from holdfast.cli.keyboard import Keyboard
from holdfast.cli.live import MARKDOWN, Bottom, JsonView, LineView, LiveView, View
from holdfast.cli.options import HomeFlag, SessionName, home_of
from holdfast.cli.outcome import closing_lines, exit_code, is_answer, last_before_files, left, next_steps
from holdfast.cli.reading import about_to_write, find_session, reading
from holdfast.cli.sitting import Rest, Sitting, sender
from holdfast.cli.terminal import (
    columns,
    has_person,
    has_styles,
    is_terminal,
    output_lost,
    say,
    say_json,
    tell,
    with_commands,
)
from holdfast.config.files import TEXT_MAX_BYTES, Unreadable, read_stream
from holdfast.config.paths import Home
from holdfast.core.state import State, open_run
from holdfast.core.summary import lasted_ms
from holdfast.errors import NoSuchSession, UsageError
from holdfast.policy.protected import Own
from holdfast.policy.rules import is_offered
from holdfast.protocol.commands import Continue, Send
from holdfast.protocol.ids import is_session_key
from holdfast.protocol.settings import Settings, changed
from holdfast.runtime.fold import Prospect, prospect_of
from holdfast.runtime.report import report
from holdfast.sandbox.cores import leave_no_core
from holdfast.views.happenings import Detail
from holdfast.views.lines import Span
from holdfast.views.report import Result, result_row
from holdfast.views.stored import readable_here

Output = Literal["text", "json", "stream"]

_ISOLATE = "holdfast.cli.isolate"
_WORKING_OFF = "holdfast.tools.working_off"
_LEFT = "aside"
_HOW_TO_NAME = (
    "Name a new session CHANNEL:CHAT, as in `-s cli:docs`: two labels of 1 to 64 letters, digits, dots, dashes and"
    " underscores. An existing session can also be named by its id, a prefix of it, or `last`."
)

KeyFlag = Annotated[
    str | None,
    typer.Option(
        "--session", "-s", metavar="CHANNEL:CHAT", help="Continue this session, or start it with that name."
    ),
]
ResultFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")]
IsolateFlag = Annotated[
    bool, typer.Option("--isolate", help="Work in a copy of the workspace. `accept` takes over the changes.")
]
StreamFlag = Annotated[
    bool, typer.Option("--stream-json", help="Print every event and delta, one JSON object per line.")
]


@taking_flags
def run(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task; - reads it from stdin.")],
    flags: RunFlags,
    session: KeyFlag = None,
    is_json: ResultFlag = False,
    is_stream: StreamFlag = False,
    is_isolated: IsolateFlag = False,
    home: HomeFlag = None,
) -> int:
    """Run a task. The answer goes to stdout, progress to stderr.

    \b
    holdfast run "fix the failing test" -w ./project
    holdfast run "and now the docs" -s cli:docs --budget 0.50
    holdfast run "list the open bugs" --output-schema bugs.schema.json > bugs.json
    git diff | holdfast run "review this"  the diff is a part of the message
    holdfast run "what is wrong here?" --attach screen.png --attach log.txt
    cat task.md | holdfast run -           the task comes from stdin
    holdfast run "try another parser" --isolate      then `holdfast accept last` or `holdfast discard last`
    """
    is_task = task == "-"
    text = _from_stdin() if is_task else task
    if not text.strip():
        raise UsageError("The task is empty.", hint='Say what to do: `holdfast run "TASK"`.')
    output = output_of(is_json=is_json, is_stream=is_stream)
    stdin = from_stdin(flags.attach or (), is_taken=is_task, is_quiet=flags.is_quiet)
    begun = _run(home_of(home), name_of(session), text, flags, output, stdin, is_isolated=is_isolated)
    return asyncio.run(begun)


@taking_flags
def resume(
    session: SessionName,
    flags: RunFlags,
    text: Annotated[
        str, typer.Argument(metavar='["TEXT"]', help="A message, or the answer to a question.")
    ] = "",
    is_json: ResultFlag = False,
    is_stream: StreamFlag = False,
    home: HomeFlag = None,
) -> int:
    """Continue a session with its recorded settings. Flags change them from now on.

    \b
    holdfast resume last
    holdfast resume cli:docs "yes, both files" --budget 1.00
    """
    output = output_of(is_json=is_json, is_stream=is_stream)
    names = flags.attach or ()
    if names and not text:
        raise UsageError(
            "--attach needs a message.", hint='Say what to do with it: `holdfast resume SESSION "TEXT"`.'
        )
    stdin = from_stdin(names, is_taken=not text, is_quiet=flags.is_quiet)
    return asyncio.run(_resume(home_of(home), session, text, flags, output, stdin))


def _from_stdin() -> str:
    try:
        return read_stream(sys.stdin.buffer, TEXT_MAX_BYTES).decode("utf-8", "replace")
    except Unreadable as error:
        hint = "Put it into a file in the workspace, and name the file in the task."
        raise UsageError(f"The task on stdin {error}.", hint=hint) from None


def output_of(*, is_json: bool, is_stream: bool) -> Output:
    """Return what goes to stdout.

    Raises:
        UsageError: Both JSON flags are given.
    """
    if is_json and is_stream:
        raise UsageError("--json and --stream-json cannot be combined.")
    return "json" if is_json else "stream" if is_stream else "text"


def name_of(session: str | None) -> str:
    """Return the name that -s gives; empty without -s.

    Raises:
        UsageError: The name is empty, for example because a variable in a script is not set.
    """
    if session == "":
        raise UsageError("-s: The name of the session is empty.", hint=_HOW_TO_NAME)
    return session or ""


# --- the commands -------------------------------------------------------------------------------


async def _run(
    home: Home, name: str, text: str, flags: RunFlags, output: Output, stdin: bytes, *, is_isolated: bool
) -> int:
    past = await past_of(home, name) if name else None
    async with at_work(home, flags, past, is_isolated=is_isolated) as (app, settings):
        words = await message_with(app, text, settings, given(app, flags.attach or (), stdin))
        state = await send(app, past.now if past else None, name, words)
        return await work(app, state, settings, output, flags.detail)


async def _resume(home: Home, name: str, text: str, flags: RunFlags, output: Output, stdin: bytes) -> int:
    past = await existing(home, name)
    now, run = past.now, past.ahead.run
    if run is None and not text:
        hint = f'Give it one: `holdfast resume {now.session} "TASK"`'
        raise UsageError(f"Session {now.session} has no task yet, so there is nothing to resume.", hint=hint)
    if run is not None and run.status == "done" and not text:
        _work_off(home, now.session)
        async with reading(home) as store:
            return show(await report(store, now), now, output)
    async with at_work(home, flags, past, is_new_task=bool(text)) as (app, settings):
        if text:
            words = await message_with(app, text, settings, given(app, flags.attach or (), stdin))
            await app.controller.give(now.session, sender(), words)
        else:
            await app.controller.submit(now.session, sender(), Continue(_changed(settings, past.ahead)))
        return await work(app, now, settings, output, flags.detail)


def _work_off(home: Home, session: str) -> None:
    """Undo what commands left that were killed after the end of their run, and say so."""
    if any((home.folder / _LEFT).glob("*.json")):
        own = Own(**own_places(home, os.environ))
        for said in import_module(_WORKING_OFF).worked_off(own, home.folder, session):
            tell(said)


async def send(app: App, past: State | None, key: str, words: Send) -> State:
    """Send a message to a session, or to a new one with that key. Return the state before it."""
    if past is None:
        return State(session=await app.controller.begin(key, sender(), words), key=key)
    await app.controller.give(past.session, sender(), words)
    return past


def _changed(settings: Settings, past: State) -> Settings | None:
    return settings if settings != past.settings else None


async def past_of(home: Home, name: str) -> Prospect | None:
    """Return the session with that name, or None if it is a new one.

    Raises:
        UsageError: The name is neither CHANNEL:CHAT nor that of a session.
    """
    if not is_session_key(name):
        try:
            return await existing(home, name)
        except NoSuchSession as error:
            raise NoSuchSession(f"-s: {error.message}", hint=_HOW_TO_NAME) from None
    async with about_to_write(home) as store:
        found = await store.find(name)
    return await existing(home, found[0]) if found else None


async def existing(home: Home, name: str) -> Prospect:
    """Return the state of an existing session, and what will come of the commands in its inbox.

    Raises:
        NoSuchSession: There is no such session.
        StorageError: Its journal cannot be read.
    """
    async with about_to_write(home) as store:
        session = await find_session(store, name)
        row = await store.session(session)
        return await prospect_of(store, session, row.key if row else "")


# --- work ---------------------------------------------------------------------------------------


@asynccontextmanager
async def at_work(
    home: Home,
    flags: RunFlags,
    past: Prospect | None,
    *,
    is_new_task: bool = True,
    is_isolated: bool = False,
) -> AsyncIterator[tuple[App, Settings]]:
    """Open the app, and return it with the settings of the next run. The most important warning goes to stderr.

    The schema of an answer and the need for a plan belong to their task: a new task has them only if a flag says so.

    Raises:
        UsageError: A model, key or folder is missing. Nothing was accepted.
    """
    recorded = past.ahead.settings if past is not None else None
    if past is not None and recorded is not None and is_new_task and open_run(past.ahead) is None:
        recorded = changed(recorded, schema="", needs_plan=False)
    tools = recorded.tools if recorded is not None else None
    allow = tuple(flags.allow_tool or (tools.allow_tools if tools is not None else ()))
    deny = tuple(flags.deny_tool or (tools.deny_tools if tools is not None else ()))
    has_copy = is_isolated or (tools is not None and bool(tools.copy_of))  # git makes it, in a sandbox

    def offers(name: str) -> bool:
        return has_copy or is_offered(name, allow, deny)

    leave_no_core()  # this process has keys of providers, and the values of secret files
    async with open_app(configured(home, flags, recorded), home, offers=offers) as app:

        async def copied() -> Path:
            make = import_module(_ISOLATE).copy_of_run
            return Path((await make(app, home, recorded, workspace_of(flags, recorded))).folder)

        was_copy = recorded is not None and bool(recorded.tools.copy_of)
        copy = await copied() if was_copy else None
        settings, warnings = chosen(app, flags, recorded, is_terminal=has_person(), copy=copy)
        await app.resolve(settings.model.facts.name)
        if is_isolated and copy is None:  # a task that cannot begin needs no copy
            settings, _ = chosen(app, flags, recorded, is_terminal=has_person(), copy=await copied())
        if flags.detail != "quiet":
            warn(app, settings, warnings)
        yield app, settings


def warn(app: App, settings: Settings, warnings: Sequence[str]) -> None:
    """Show the first warning, the most important one, and how many more `doctor` shows."""
    if not warnings:
        return
    is_usual = settings.model.facts.name == app.config.model  # the model that doctor looks at
    count = len([each for each in warnings[1:] if is_usual or each in app.config.warnings])
    more = f" `holdfast doctor` shows {count} more." if count else ""
    tell([Span("! ", "yellow"), *with_commands(warnings[0] + more)])


async def work(app: App, state: State, settings: Settings, output: Output, detail: Detail = "usual") -> int:
    """Work on a session until it rests, show the result, and return the exit code."""
    if detail != "quiet":
        tell([Span(f"{state.session} · {settings.model.facts.name} · {settings.tools.workspace}", "dim")])
    keyboard = person(settings)
    view = view_of(app, state, output, keyboard, detail)
    rest = await Sitting(app, state, view, keyboard).work()
    came_to = await what_came_of(app, rest)
    code = show(came_to, rest.state, output, view, is_quiet=detail == "quiet")
    if detail == "quiet" and code == 0:
        return code
    approvals = await app.store.approvals(state.session)
    is_refused = came_to.reason == "provider_fatal"
    before_files = 0
    if is_refused:
        stored = await app.store.read(state.session)
        before_files = last_before_files(each for each in map(readable_here, stored) if each is not None)
    for line in next_steps(came_to, approvals, before_files=before_files):
        tell(line)
    await _tell_copy(app, rest.state, settings)
    return code


async def _tell_copy(app: App, state: State, settings: Settings) -> None:
    """Tell what changed in the copy of the workspace, if the run works in one."""
    if settings.tools.copy_of and app.home is not None:
        isolate, folder = import_module(_ISOLATE), settings.tools.workspace
        is_open = open_run(state) is not None
        await isolate.tell_copy(app.home, app.store, folder, state.session, is_open=is_open)


async def what_came_of(app: App, rest: Rest) -> Result[Any]:
    """Return the report of a sitting."""
    came_to = await report(app.store, rest.state)
    return left(came_to) if rest.is_left else came_to


def person(settings: Settings) -> Keyboard | None:
    """Return the keyboard of the person to ask for approvals, or None."""
    return Keyboard() if settings.posture.approve_by == "prompt" and has_person() else None


def view_of(
    app: App,
    state: State,
    output: Output,
    asked: Person | None,
    detail: Detail = "usual",
    bottom: Bottom | None = None,
) -> View:
    """Return the view that shows everything after `state`.

    Args:
        asked: The person who is asked.
        bottom: Where to show what is running, if that is not the last line.
    """
    if output == "stream":
        return JsonView(app.store, state.session)
    if detail == "quiet":
        return LineView(state, detail)
    edits = Edits(app, state.session)
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":  # a dumb terminal cannot rewrite a line
        return LiveView(state, is_asked_here=asked is not None, detail=detail, bottom=bottom, edits=edits)
    return LineView(state, detail, edits)


def show(
    came_to: Result[Any], state: State, output: Output, view: View | None = None, *, is_quiet: bool = False
) -> int:
    """Write the answer to stdout and the closing lines to stderr. Return the exit code. Quiet: a run that is done has
    no closing lines.

    An answer that was streamed to this terminal is not written again.

    Raises:
        StorageError: stdout is full or closed.
    """
    run = state.run
    is_shown = isinstance(view, LiveView) and run is not None and view.shown_seq == run.answer_seq
    try:
        _write_answer(came_to, output, is_shown=is_shown and is_terminal())
    except OSError as error:
        stored = f"The session is stored: `holdfast show {came_to.session_id}` shows it."
        raise output_lost(error, stored) or error from None
    code = exit_code(came_to.status, came_to.reason)
    if not is_quiet or code:
        for line in closing_lines(came_to, lasted_ms(state)):
            tell(line)
    return code


def _write_answer(came_to: Result[Any], output: Output, *, is_shown: bool) -> None:
    if output == "json":
        say_json(result_row(came_to))
    elif output == "text" and is_answer(came_to) and not is_shown:
        if came_to.has_schema:
            say_json(came_to.answer)
        else:
            _say(came_to.text.rstrip("\n"))
    sys.stdout.flush()


def _say(answer: str) -> None:
    """Write an answer to stdout. In a pipe it stays as the model wrote it."""
    if is_terminal():
        lines = import_module(MARKDOWN).rendered(
            answer, columns(sys.stdout), has_styles=has_styles(sys.stdout)
        )
        say(lines or [""])
    else:
        sys.stdout.write(answer + "\n")
