"""`holdfast secret`: stores, lists and removes the secrets of a home. No command shows a value, or takes one as an
argument.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from holdfast.access.sealing import keyring_name
from holdfast.access.store import VALUE_MAX_CHARS, Place, SecretStore, check_name
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import columns, has_person, say, say_json
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import load
from holdfast.config.paths import Home
from holdfast.config.settings import SecretUse
from holdfast.errors import UsageError
from holdfast.views.lines import Line, Span, iso, local, neutral, table

_READ_CHARS = VALUE_MAX_CHARS + 3

secret = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="""Store secrets, list and remove them. Texts and files never have their values.

\b
holdfast secret set GITHUB_TOKEN           # asks for the value
holdfast secret set GITHUB_TOKEN < FILE
holdfast secret list
holdfast secret remove GITHUB_TOKEN
""",
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, `.`, `_` and `-`.")]


@secret.command("set", context_settings={"allow_extra_args": True})
def set_(context: typer.Context, name: NameArgument, home: HomeFlag = None) -> None:
    """Store a value under a name, or replace it. The value comes from stdin, or you are asked for it.

    It is one line of at least 8 characters. The configuration says which hosts may get it:

    \b
    [secrets.GITHUB_TOKEN]
    hosts = ["api.github.com"]

    \b
    holdfast secret set GITHUB_TOKEN
    pass show github | holdfast secret set GITHUB_TOKEN
    """
    check_name(name)
    if context.args:
        raise UsageError(
            "A value does not go on the command line, where other users and the history of the shell see it. "
            "Nothing was stored.",
            hint=f"Replace that secret if it is in use, then: `holdfast secret set {name}` asks for it.",
        )
    place = home_of(home)
    uses = _uses(place)  # a wrong configuration fails here, before anything is stored
    store = SecretStore(place.folder, os.environ)
    kept = store.set(name, _value(name), SYSTEM_CLOCK.now_ms())
    say([f"stored: {name}, sealed in {neutral(str(store.path))}; the key is {_where(kept)}."])
    if not uses.get(name, SecretUse()).hosts:
        say(
            [
                f"No host may have it yet. Add to {neutral(str(place.user_file))}:",
                f"    [secrets.{_toml_name(name)}]",
                '    hosts = ["api.example.com"]',
            ]
        )


def _value(name: str) -> str:
    if has_person():
        try:
            return getpass.getpass(f"Value of {name} (it is not shown): ", sys.stderr)
        except EOFError:
            return ""
    text = sys.stdin.read(_READ_CHARS)
    return text.removesuffix("\n").removesuffix("\r")


def _where(place: Place) -> str:
    return (
        "in the environment" if place == "environment" else f"in the keyring of the system ({keyring_name()})"
    )


def _toml_name(name: str) -> str:
    return f'"{name}"' if "." in name else name


def _uses(home: Home) -> dict[str, SecretUse]:
    return load(home, Path.cwd(), {}, os.environ).secrets


@secret.command("list")
def list_(home: HomeFlag = None, is_json: JsonFlag = False) -> None:
    """List the stored secrets with the hosts that may get them. It needs no key, and shows no value.

    \b
    holdfast secret list
    holdfast secret list --json
    """
    place = home_of(home)
    content = SecretStore(place.folder, os.environ).content()
    uses = _uses(place)
    rows = [
        (name, uses.get(name, SecretUse()).hosts, entry.set_at_ms)
        for name, entry in (content.entries if content is not None else {}).items()
    ]
    if is_json:
        for name, hosts, set_at_ms in rows:
            say_json({"name": name, "hosts": list(hosts), "set_at": iso(set_at_ms)})
    elif rows:
        say(_lines(rows))
    else:
        say(["No secrets. `holdfast secret set NAME` stores one."])


def _lines(rows: list[tuple[str, tuple[str, ...], int]]) -> Iterator[Line]:
    head: list[Span | str] = [Span(text, "bold") for text in ("name", "hosts", "set")]
    body: list[list[Span | str]] = [
        [name, ", ".join(hosts) or Span("none", "dim"), local(set_at_ms)] for name, hosts, set_at_ms in rows
    ]
    yield from table([head, *body], columns(sys.stdout))


@secret.command()
def remove(name: NameArgument, home: HomeFlag = None) -> None:
    """Remove a secret. It needs no key.

    \b
    holdfast secret remove GITHUB_TOKEN
    """
    check_name(name)
    if not SecretStore(home_of(home).folder, os.environ).remove(name):
        raise UsageError(f"There is no secret {name}.", hint="`holdfast secret list` lists them.")
    say([f"removed: {name}"])
