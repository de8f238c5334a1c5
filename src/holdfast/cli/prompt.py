"""`holdfast prompt`: prints the system prompt of a run, and why each section is in it. It calls no model."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from holdfast.app import App, open_app
from holdfast.cli.flags import RunFlags, chosen, configured, taking_flags
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.reading import reading
from holdfast.cli.run import KeyFlag, name_of, past_of
from holdfast.cli.terminal import say_json
from holdfast.config.paths import Home
from holdfast.core.measure import Measure, expected_tokens
from holdfast.core.prompted import Prompted, reads_otherwise
from holdfast.core.state import State, open_run
from holdfast.prompt import Piece, section_of
from holdfast.protocol.kinds import Kinds
from holdfast.protocol.prompt import Section
from holdfast.protocol.settings import Settings, changed
from holdfast.protocol.tools import ToolSpec
from holdfast.runtime.in_text import described
from holdfast.runtime.prompting import fresh, outside, recorded_tools

_NO_MODEL = "script:none"
"""Stands for the model if none is named or configured: the prompt does not depend on it."""


@taking_flags
def prompt(flags: RunFlags, session: KeyFlag = None, is_json: JsonFlag = False, home: HomeFlag = None) -> int:
    """Print the system prompt as the model gets it. Needs no key and calls no model.

    With -s it is the prompt of the next request of that session: the recorded one as long as its run is open,
    otherwise the one that its next run opens with.

    \b
    holdfast prompt
    holdfast prompt -w ./project --autonomy full --json
    """
    return asyncio.run(_prompt(home_of(home), name_of(session), flags, is_json=is_json))


async def _prompt(home: Home, name: str, flags: RunFlags, *, is_json: bool) -> int:
    past = await past_of(home, name) if name else None
    state = past.ahead if past is not None else None
    recorded = state.settings if state is not None else None
    if state is not None and recorded is not None and open_run(state) is None:
        recorded = changed(recorded, schema="")  # the schema of an answer belongs to its task
    config = configured(home, flags, recorded)
    if not (flags.model or config.model):
        config = replace(config, model=_NO_MODEL)
    async with open_app(config, None, offers=None) as app:
        settings = chosen(app, flags, recorded, is_terminal=False).settings
        if state is not None and _is_in_force(state, settings):
            text, specs = await _recorded(home, state.prompt)
            sections = state.prompt.sections
        else:
            text, sections, specs = _built(app, settings)
    tools = described(specs, settings.model.facts, state.session if state is not None else "")
    if tools:
        why = "the model writes its calls into its text"
        sections = (*sections, section_of(Piece("tools", "holdfast", tools, why)))
        text = f"{text}\n\n{tools}"
    _show(text, sections, is_json=is_json)
    return 0


def _is_in_force(state: State, settings: Settings) -> bool:
    """Return whether the next request of the session carries the recorded prompt."""
    is_kept = bool(state.prompt.blob) and not state.prompt.due and open_run(state) is not None
    return is_kept and not reads_otherwise(state.settings, settings)


async def _recorded(home: Home, prompted: Prompted) -> tuple[str, Sequence[ToolSpec]]:
    async with reading(home) as store:
        blobs = store.blobs
        return (await blobs.get(prompted.blob)).decode(), await recorded_tools(blobs, prompted)


def _built(app: App, settings: Settings) -> tuple[str, tuple[Section, ...], Sequence[ToolSpec]]:
    found = fresh(app.ports, settings, outside(app.ports, settings))
    return found.text, tuple(map(section_of, found.pieces)), found.specs


def _show(text: str, sections: Sequence[Section], *, is_json: bool) -> None:
    if not is_json:
        sys.stdout.write(f"{text}\n")
        return
    for each, part in zip(sections, _parts(text, sections), strict=True):
        row = msgspec.structs.asdict(each)
        reason = row.pop("reason")
        say_json(
            {**row, "tokens": expected_tokens(Measure(), Kinds(base=len(part.encode()))), "reason": reason}
        )


def _parts(text: str, sections: Sequence[Section]) -> list[str]:
    """Return the text of each section."""
    parts, start = [], 0
    for each in sections:
        parts.append(text[start : start + each.chars])
        start += each.chars + len("\n\n")
    return parts
