"""Builds a system prompt: reads its inputs, redacts them, and stores the text and the tools."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from holdfast import prompt
from holdfast.core.prompted import Prompted, changes
from holdfast.protocol.outcomes import Built
from holdfast.protocol.ports import Blobs
from holdfast.protocol.prompt import CustomSection, Guidance
from holdfast.protocol.settings import Settings
from holdfast.protocol.tools import ToolSpec
from holdfast.redact.deep import without_secrets
from holdfast.runtime.ports import Ports


class Fresh(msgspec.Struct, frozen=True):
    """A prompt as it would be built now."""

    pieces: tuple[prompt.Piece, ...]
    specs: tuple[ToolSpec, ...]

    @property
    def text(self) -> str:
        return prompt.text_of(self.pieces)


class Outside(msgspec.Struct, frozen=True):
    """What a prompt is made from beside the settings."""

    guidance: Sequence[Guidance]
    custom: Sequence[CustomSection]


def outside(ports: Ports, settings: Settings) -> Outside:
    """Read the files of the workspace, and ask the packages. This blocks.

    Raises:
        UsageError: a section of a package cannot be made.
    """
    return Outside(ports.guidance(settings.tools.workspace), ports.sections(settings))


def fresh(ports: Ports, settings: Settings, read: Outside) -> Fresh:
    """Return the prompt for these settings, without secrets."""
    specs = without_secrets(ports.redact, tuple(ports.tools.specs(settings)))
    where = f"{platform.system()} ({platform.machine()})"
    files = [replace(each, text=ports.redact(each.text, is_cut=each.is_cut)) for each in read.guidance]
    inputs = prompt.Inputs(settings, [spec.name for spec in specs], where, files, read.custom)
    masked = [piece._replace(text=ports.redact(piece.text)) for piece in prompt.pieces(inputs)]
    return Fresh(tuple(masked), specs)


async def difference(ports: Ports, settings: Settings, before: Prompted) -> Built | None:
    """Return the prompt of now, stored; None if it is the one in force."""
    found = fresh(ports, settings, await asyncio.to_thread(outside, ports, settings))
    sections = tuple(map(prompt.section_of, found.pieces))
    tools = await ports.store.blobs.put(msgspec.json.encode(found.specs)) if found.specs else ""
    if before.blob and not changes(before, sections, tools):
        return None
    return Built(sections, await ports.store.blobs.put(found.text.encode()), tools)


async def recorded_tools(blobs: Blobs, prompted: Prompted) -> Sequence[ToolSpec]:
    """Return the tools of the prompt in force.

    Raises:
        StorageCorrupt: their blob is missing or was changed.
    """
    if not prompted.tools:
        return ()
    return msgspec.json.decode(await blobs.get(prompted.tools), type=tuple[ToolSpec, ...])
