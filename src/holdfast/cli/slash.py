"""The commands of `chat`: one table. `/help` and the Tab key read it.

To add a command, write a function that takes the talk and the text after the command's name, and add a row.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, get_args

from holdfast.cli.admin import tool_lines
from holdfast.cli.compact import outcome_lines, shortened
from holdfast.cli.flags import RunFlags
from holdfast.cli.outside import outside
from holdfast.cli.pastes import Message
from holdfast.cli.reading import find_session
from holdfast.cli.sessions import waiting_lines
from holdfast.cli.show import show_view
from holdfast.cli.sitting import sender
from holdfast.cli.talk import Talk, going_on
from holdfast.cli.terminal import columns, say, tell
from holdfast.cli.undo import MESSAGES_MAX, files_lines, plan_of, put_files_back
from holdfast.core.state import phase
from holdfast.errors import UsageError
from holdfast.protocol.commands import Continue
from holdfast.protocol.limits import usd
from holdfast.protocol.settings import Autonomy
from holdfast.runtime.compact import restore
from holdfast.runtime.unread import questions, with_unread
from holdfast.views.lines import Span

_WORD = re.compile(r"/[^/\s]*(?=\s|$)")
"""A first word that names a command. With a second slash it is a path, and the text is a message."""
_NEAR = 0.6
"""How similar a name must be to be suggested."""

Work = Callable[[Talk, str], Awaitable[None]]


class Slash(NamedTuple):
    """A command of `chat`."""

    name: str
    argument: str
    """What may follow, as `/help` shows it; empty: nothing."""
    about: str
    work: Work
    choices: tuple[str, ...] = ()
    """The arguments that Tab knows."""


# --- reading ------------------------------------------------------------------------------------


async def obey(talk: Talk, message: Message) -> None:
    """Do what a command says, or send a message. Errors are shown and end nothing, but for those of the store."""
    text = message.text
    async with going_on(talk):
        if not message.is_command or (text.startswith("/") and not _WORD.match(text)):
            is_doubled = message.is_command and text.startswith("//")
            await talk.say(text[1:] if is_doubled else text, message.typed)
        else:
            await _command(talk, message)


async def _command(talk: Talk, message: Message) -> None:
    text = message.text
    if message.has_folded:
        raise UsageError("A command takes no pasted lines. Nothing was sent.")
    if text.startswith("!"):
        folder = talk.settings.tools.workspace
        talk.notes.append(await outside(text[1:].strip(), folder, talk.place, talk.app.redact))
    else:
        word, *rest = text.split(None, 1)
        await _done(talk, word, "".join(rest).strip())


async def _done(talk: Talk, word: str, argument: str) -> None:
    row = _named(word)
    if argument and not row.argument:
        raise UsageError(f"{word} takes no argument. Nothing was sent.")
    await row.work(talk, argument)


def completed(typed: str) -> list[str]:
    """Return the commands that begin with what is typed, or the arguments that a command knows."""
    if not typed.startswith("/") or "\n" in typed:
        return []
    word, blank, argument = typed.partition(" ")
    if not blank:
        return [row.name + (" " if row.argument else "") for row in SLASHES if row.name.startswith(word)]
    choices = next((row.choices for row in SLASHES if row.name == word), ())
    return [f"{word} {choice}" for choice in choices if choice.startswith(argument)]


def _named(word: str) -> Slash:
    """Return the command with that name.

    Raises:
        UsageError: the command is unknown. The message gives the nearest one.
    """
    names = {row.name: row for row in SLASHES}
    if word in names:
        return names[word]
    near = difflib.get_close_matches(word, names, n=1, cutoff=_NEAR)
    advice = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(
        f"There is no command {word}.{advice} Nothing was sent.",
        hint=f"/help lists the commands. /{word} sends the text {word}.",
    )


# --- the commands -------------------------------------------------------------------------------


async def _help(talk: Talk, argument: str) -> None:
    rows = [(f"{row.name} {row.argument}".rstrip(), row.about) for row in SLASHES]
    width = max(len(what) for what, _ in rows)
    for what, about in [*rows, *_OTHERS]:
        tell([Span(f"  {what:<{width}}", "bold"), f"  {about}"])


async def _model(talk: Talk, argument: str) -> None:
    if argument:
        await talk.choose(RunFlags(model=argument))
    _tell_chosen("The model", talk.settings.model.facts.name, is_new=bool(argument))


async def _autonomy(talk: Talk, argument: str) -> None:
    if argument:
        await talk.choose(RunFlags(autonomy=argument))
    _tell_chosen("The autonomy", talk.settings.posture.autonomy, is_new=bool(argument))


async def _budget(talk: Talk, argument: str) -> None:
    if argument:
        await talk.choose(RunFlags(budget=argument.removeprefix("$")))
    limit = f"${usd(talk.settings.limits.cost_microusd)} for each message"
    _tell_chosen("The budget", limit, is_new=bool(argument))


def _tell_chosen(what: str, value: str, *, is_new: bool) -> None:
    tell([f"{what} is ", Span(value, "bold"), " from the next message on." if is_new else "."])


async def _cost(talk: Talk, argument: str) -> None:
    await show_view(talk.home, _session(talk), "--cost")


async def _show(talk: Talk, argument: str) -> None:
    await show_view(talk.home, _session(talk))


async def _tools(talk: Talk, argument: str) -> None:
    say(tool_lines(talk.app.tools.specs(talk.settings), columns(sys.stdout)))


async def _approvals(talk: Talk, argument: str) -> None:
    rows = await with_unread(talk.app.store, await talk.app.store.approvals())
    say(waiting_lines(rows, await questions(talk.app.store)))


async def _plan(talk: Talk, argument: str) -> None:
    await show_view(talk.home, _session(talk), "--plan")


async def _diff(talk: Talk, argument: str) -> None:
    await show_view(talk.home, _session(talk), "--diff")


async def _compact(talk: Talk, argument: str) -> None:
    if argument not in ("", "undo"):
        raise UsageError(f"/compact {argument}: say /compact, or /compact undo.")
    session, is_undo = _session(talk), argument == "undo"
    app = talk.app
    outcome = await (restore(app.store, app.clock, session, sender()) if is_undo else shortened(app, session))
    say(outcome_lines(session, outcome, is_undo=is_undo))


async def _undo(talk: Talk, argument: str) -> None:
    """Put back the files that the last messages with edits changed."""
    if argument and not (argument.isdecimal() and 0 < int(argument[:9]) <= MESSAGES_MAX):
        raise UsageError(f"/undo {argument}: the number of messages must be 1 to {MESSAGES_MAX:,}.")
    plan = plan_of("undo", int(argument or 1))
    found = await put_files_back(talk.home, talk.app.store, _session(talk), "undo", plan)
    say(files_lines(found))
    tell("What shell commands changed is not undone.")


async def _clear(talk: Talk, argument: str) -> None:
    talk.state, talk.key, talk.notes = None, "", []
    talk.show_rest()
    tell("The next message begins a new session.")


async def _resume(talk: Talk, argument: str) -> None:
    """Change to a session, and continue it if its last run is not done."""
    name = argument or (talk.state.session if talk.state is not None else "last")
    session = await find_session(talk.app.store, name)
    past = await talk.app.controller.prospect(session)
    is_other = talk.state is None or talk.state.session != session
    if is_other and past.ahead.settings is not None:
        await talk.choose(RunFlags(), past.ahead.settings)
    talk.state, talk.key = past.now, past.now.key
    talk.show_rest()
    tell([Span(f"{session} · {talk.settings.model.facts.name} · {talk.settings.tools.workspace}", "dim")])
    if past.ahead.run is None or past.ahead.run.status == "done":
        tell("Nothing is left to continue. Your next message goes to this session.")
        return
    settings = talk.settings if talk.settings != past.ahead.settings else None
    if phase(past.ahead) != "waiting":
        await talk.app.controller.submit(session, sender(), Continue(settings))
    await talk.turn()


async def _exit(talk: Talk, argument: str) -> None:
    talk.is_over = True


def _session(talk: Talk) -> str:
    if talk.state is None:
        raise UsageError("There is no session yet: it begins with your first message.")
    return talk.state.session


SLASHES: tuple[Slash, ...] = (
    Slash("/help", "", "list the commands", _help),
    Slash("/model", "[PROVIDER:MODEL]", "show or change the model", _model),
    Slash("/autonomy", "[LEVEL]", "show or change what needs no approval", _autonomy, get_args(Autonomy)),
    Slash("/budget", "[USD]", "show or change the cost limit of each message", _budget),
    Slash("/cost", "", "show what the session cost, turn by turn", _cost),
    Slash("/tools", "", "list the tools of the agent", _tools),
    Slash("/approvals", "", "list what waits for you", _approvals),
    Slash("/show", "", "show the session: what was said, done and paid", _show),
    Slash("/plan", "", "show the plan of the task", _plan),
    Slash("/diff", "", "show all that file tools changed", _diff),
    Slash(
        "/compact",
        "[undo]",
        "shorten what the model sees, or bring it back; the journal keeps everything",
        _compact,
        ("undo",),
    ),
    Slash(
        "/undo", "[N]", "put back the files that the last message with edits changed, or the last N", _undo
    ),
    Slash("/clear", "", "begin a new session with the next message", _clear),
    Slash("/resume", "[SESSION]", "continue this session or another one", _resume),
    Slash("/exit", "", "leave", _exit),
)
"""All commands, in the order in which `/help` lists them."""
_OTHERS: Sequence[tuple[str, str]] = (
    ("//TEXT", "send the text /TEXT"),
    ("!COMMAND", "run a command; its output goes with your next message"),
)
