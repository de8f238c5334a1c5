"""What comes in, as it may be stored: every text is masked, and what must stay exact is refused with a secret in it.

What comes back from models and tools passes `runner`.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import UsageError
from holdfast.protocol.commands import Command, Continue, Resolve, Send
from holdfast.protocol.ids import is_command_id
from holdfast.redact import Redactor
from holdfast.redact.deep import in_every_text


def storable(command: Command, redact: Redactor) -> Command:
    """The command with every secret in it masked.

    Raises:
        UsageError: its id is none, or a name in it holds a secret; masked it would name something else.
    """
    if not is_command_id(command.id):
        raise UsageError(f"{redact(command.id)[:40]!r} is no id of a command.")
    for what, name in _names(command):
        check_name(what, name, redact)
    return in_every_text(lambda text: redact(encodable(text)), command)


def check_name(what: str, name: str, redact: Redactor) -> None:
    """A name is stored as it is, so it may hold no secret.

    Raises:
        UsageError: it does.
    """
    if redact.find(name):
        raise UsageError(
            f"{what} {redact(name)!r} holds a secret, or what looks like one; names are stored in clear text.",
            hint="Choose another name.",
        )


def _names(command: Command) -> Iterator[tuple[str, str]]:
    yield "The command's id", command.id
    match command.body:
        case Send(settings=settings) | Continue(settings=settings) if settings is not None:
            yield "The workspace", settings.tools.workspace
            yield "The model", settings.model.facts.name
            yield from (
                ("The tool", name) for name in (*settings.tools.allow_tools, *settings.tools.deny_tools)
            )
        case Resolve(approval_id=approval_id):
            yield "The approval", approval_id
        case _:
            pass


def encodable(text: str) -> str:
    """The text with what no encoder can write replaced."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()  # a lone surrogate comes out as a question mark
