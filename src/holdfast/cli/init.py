"""`holdfast init`: chooses a model from keys and local servers, and writes the user file once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.found import Found, find_providers
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import say, say_json
from holdfast.config.load import load
from holdfast.errors import StorageReadOnly, UsageError
from holdfast.providers.registry import entry_of
from holdfast.views.lines import COMMAND, Span, neutral

_NEXT = ('holdfast run "say hello in one line"', "holdfast show last")
FIRST_CHOICES = {
    "anthropic": "claude-sonnet-5",
    "openai": "gpt-5.5",
    "openrouter": "anthropic/claude-sonnet-5",
}
"""The default model of each provider, in order of preference."""


def init(
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="PROVIDER:MODEL", help="Choose this model.")
    ] = None,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> None:
    """Choose a model and write the user file, if there is none yet.

    \b
    holdfast init
    holdfast init -m ollama:qwen3
    """
    place = home_of(home)
    config = load(place, None, {"model": model}, os.environ)
    if model:
        entry_of(model.partition(":")[0])
        chosen, why = model, "you named it"
    elif config.model:
        chosen, why = config.model, f"already configured in {config.settings['model'].origin}"
    else:
        chosen, why = choose(find_providers(config, os.environ))
    content = f'model = "{_escaped(chosen)}"\n'
    is_written = write_once(place.user_file, content)
    if is_json:
        told = {"model": chosen, "why": why, "file": str(place.user_file), "written": is_written}
        say_json(told | {"configured": config.model or None})
        return
    say([f"Model: {neutral(chosen)} ({why})"])
    if is_written:
        say([f"Wrote {place.user_file}"])
    else:
        say(
            [
                f"{place.user_file} already exists and was not changed. It would contain:",
                f"    {neutral(content)}",
            ]
        )
    say(["", "Try next:"])
    say(["    ", Span(command, COMMAND)] for command in _NEXT)


def choose(found: Sequence[Found]) -> tuple[str, str]:
    """Return the model to use, and why. A provider with a key comes first, then a local server.

    Raises:
        UsageError: There is no usable provider, or none with a known model.
    """
    usable = {place.provider: place for place in found if place.is_usable}
    for provider, model in FIRST_CHOICES.items():
        if provider in usable and not usable[provider].is_local:
            return f"{provider}:{model}", usable[provider].why
    for place in usable.values():
        if place.models:
            return f"{place.provider}:{place.models[0]}", f"a server answers at {place.address}"
    if usable:
        hint = f"Name one with `holdfast init -m {next(iter(usable))}:MODEL`. `holdfast models` lists known models."
        raise UsageError(f"Found {', '.join(usable)}, but no default model for it.", hint=hint)
    raise UsageError(
        "No provider has a key, and no local server answers.",
        hint="Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start Ollama. `holdfast models` lists other providers.",
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
