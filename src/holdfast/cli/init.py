"""`holdfast init`: chooses a model from keys and local servers, and writes the user file once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from holdfast.app import facts_of
from holdfast.cli.confirm import confirmed
from holdfast.cli.found import Found, find_providers, is_local
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import has_person, say, say_json
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import load
from holdfast.config.paths import Home
from holdfast.config.settings import Config
from holdfast.errors import StorageReadOnly, UsageError
from holdfast.providers.registry import entry_of
from holdfast.views.lines import COMMAND, Span, neutral

_NEXT = ('holdfast run "say hello in one line"', "holdfast show last")
_FREE = """
[catalog."{model}"]   # on a server of yours: its calls cost nothing
input_usd_per_mtok = 0
output_usd_per_mtok = 0
"""
FIRST_CHOICES = {
    "anthropic": "claude-sonnet-5",
    "openai": "gpt-5.5",
    "openrouter": "anthropic/claude-sonnet-5",
}
"""The default model of each provider, in order of preference."""


class Choice(NamedTuple):
    """A model, and why it was chosen."""

    model: str
    why: str


def init(
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="PROVIDER:MODEL", help="Choose this model.")
    ] = None,
    is_free: Annotated[
        bool, typer.Option("--free", help="Count its calls as free, because the server is yours.")
    ] = False,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> None:
    """Choose a model and write the user file, unless it exists.

    \b
    holdfast init
    holdfast init -m ollama:qwen3
    holdfast init -m openai:my-model --free    # served at OPENAI_BASE_URL
    """
    place = home_of(home)
    config = load(place, None, {"model": model}, os.environ)
    chosen = _chosen(model, config, place)
    is_unpriced = not is_free and _is_unpriced_server(chosen.model, config)
    if is_unpriced and not is_json and has_person() and not place.user_file.exists():
        say([f"{neutral(chosen.model)} is served on this machine, and its price is not known."])
        is_free = confirmed("Do its calls cost nothing?")
        is_unpriced = not is_free
    model_line = f'model = "{_escaped(chosen.model)}"\n'
    content = model_line + (_FREE.format(model=_escaped(chosen.model)) if is_free else "")
    is_written = write_once(place.user_file, content)
    if is_json:
        told = {"model": chosen.model, "why": chosen.why, "file": str(place.user_file), "written": is_written}
        say_json(told | {"configured": config.model or None, "free": is_free})
        return
    say([f"Model: {neutral(chosen.model)} ({chosen.why})"])
    if is_written:
        say([f"Wrote {place.user_file}"])
    else:
        say(
            [
                f"{place.user_file} already exists and was not changed. It would contain:",
                *(f"    {neutral(line)}" for line in content.splitlines()),
            ]
        )
    if is_unpriced:
        say(
            [
                "Its price is not known, so only the limit of tokens counts. If its calls cost nothing, add this:"
            ]
        )
        say(
            f"    {neutral(line)}" for line in _FREE.format(model=_escaped(chosen.model)).splitlines() if line
        )
    say(["", "Try next:"])
    say(["    ", Span(command, COMMAND)] for command in _NEXT)


def _chosen(model: str | None, config: Config, home: Home) -> Choice:
    if model:
        entry_of(model.partition(":")[0])
        return Choice(model, "you named it")
    if config.model:
        return Choice(config.model, f"already configured in {config.settings['model'].origin}")
    return choose(find_providers(config, home, os.environ))


def _is_unpriced_server(model: str, config: Config) -> bool:
    """Return whether a server on this machine serves the model, and nobody has said what it costs."""
    is_unknown = facts_of(config, model, SYSTEM_CLOCK.now_ms()).price == "unknown"
    return is_unknown and is_local(entry_of(model.partition(":")[0]), config, os.environ)


def choose(found: Sequence[Found]) -> Choice:
    """Return the model to use, and why. A provider with a key comes first, then a local server.

    Raises:
        UsageError: There is no usable provider, or none with a known model.
    """
    usable = {place.provider: place for place in found if place.is_usable}
    for provider, model in FIRST_CHOICES.items():
        if provider in usable and not usable[provider].is_local:
            return Choice(f"{provider}:{model}", usable[provider].why)
    for place in usable.values():
        if place.models:
            return Choice(f"{place.provider}:{place.models[0]}", f"a server answers at {place.address}")
    for provider, model in FIRST_CHOICES.items():
        if provider in usable:
            why = f"a server answers at {usable[provider].address}, and does not list its models"
            return Choice(f"{provider}:{model}", why)
    if usable:
        hint = f"Name one: `holdfast init -m {next(iter(usable))}:MODEL`. `holdfast models --all` lists more."
        raise UsageError(f"Found {', '.join(usable)}, but no default model for it.", hint=hint)
    raise UsageError(
        "No provider has a key, and no local server answers.",
        hint="Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start Ollama. `holdfast models --all` lists more.",
    )


def write_once(path: Path, content: str) -> bool:
    """Write the user file, readable only for its owner. Return False if it already exists.

    Raises:
        StorageReadOnly: The file cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(content)
    except FileExistsError:
        return False
    except OSError as error:
        raise StorageReadOnly(f"{path} cannot be written: {(error.strerror or 'unknown').lower()}") from error
    return True


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
