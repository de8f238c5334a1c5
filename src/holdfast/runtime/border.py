"""Prepares commands for storage: masks every text, and refuses names that contain a secret.

`runner` handles what models and tools return.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import UsageError
from holdfast.protocol.commands import Command, Continue, Resolve, Revoke, Send
from holdfast.protocol.ids import is_command_id
from holdfast.redact import Redactor
from holdfast.redact.deep import in_every_text, texts_in


def storable(command: Command, redact: Redactor) -> Command:
    """Return the command with every secret in it masked.

    Raises:
        UsageError: its id is not valid, or a name in it contains a secret: masked, it would name something else.
    """
    if not is_command_id(command.id):
        raise UsageError(f"{redact(command.id)[:40]!r} is not a valid id for a command.")
    texts = texts_in(command)
    if all(map(str.isascii, texts)) and redact.finds_none(texts):
        return command
    for what, name in _names(command):
        check_name(what, name, redact)
    _check_schema(command, redact)
    return in_every_text(lambda text: redact(encodable(text)), command)


def _check_schema(command: Command, redact: Redactor) -> None:
    match command.body:
        case Send(settings=settings) | Continue(settings=settings) if settings is not None:
            if redact.find(settings.output.schema):
                raise UsageError(
                    "The schema of the answer contains a secret, or what looks like one. It is stored, and the"
                    " model reads it.",
                    hint="Leave it out of the schema.",
                )
        case _:
            pass


def check_name(what: str, name: str, redact: Redactor) -> None:
    """Refuse a name that contains a secret, because names are stored unchanged.

    Raises:
        UsageError: it contains a secret.
    """
    if redact.find(name):
        raise UsageError(
            f"{what} {redact(name)!r} contains a secret, or what looks like one. Names are stored in clear text.",
            hint="Choose another name.",
        )


def _names(command: Command) -> Iterator[tuple[str, str]]:
    yield "The id of the command", command.id
    match command.body:
        case Send(settings=settings) | Continue(settings=settings) if settings is not None:
            yield "The workspace", settings.tools.workspace
            yield "The model", settings.model.facts.name
            yield from (
                ("The tool", name) for name in (*settings.tools.allow_tools, *settings.tools.deny_tools)
            )
        case Resolve(approval_id=approval_id):
            yield "The approval", approval_id
        case Revoke(grant_id=grant_id):
            yield "The grant", grant_id
        case _:
            pass


def encodable(text: str) -> str:
    """Return the text with a replacement for everything that cannot be encoded."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()  # a lone surrogate becomes a question mark
