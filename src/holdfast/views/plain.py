"""Events as plain data for scripts, in the same shape while they happen and when they are read later.

The caller adds the seq, time and trace id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict, astuple

from holdfast.context.requests import fragment
from holdfast.protocol.codec import to_builtins
from holdfast.protocol.events import Event, ModelCallStarted, RunStarted, SettingsChanged, ToolCallFinished
from holdfast.protocol.request import Fresh, Quoted, Request, quoted_in
from holdfast.protocol.settings import Group


def plain(
    event: Event, texts: Mapping[Quoted, str], outputs: Mapping[str, str | None], groups: Mapping[str, Group]
) -> dict[str, Any]:
    """Return an event with what is stored elsewhere: whole new messages of a request, the whole output of a tool as
    `full_text`, and the settings that it names.

    Args:
        texts: The texts that a request quotes (see `quotes`).
        outputs: The whole texts of a result (see `outputs_of`), by their blobs; None for a damaged one.
        groups: The groups of settings of the journal, by name. A group that is missing stays a name.

    Raises:
        StorageCorrupt: A quoted record is missing.
    """
    data = to_builtins(event)
    match event:
        case ModelCallStarted(request=Request(rest=rest)) if rest:
            for each, shown in zip(rest, data["request"]["rest"], strict=True):
                if isinstance(each, Fresh):
                    shown["piece"] = fragment(each.piece, texts).decode()
        case ToolCallFinished(result=result):
            if result.blob:
                data["result"]["full_text"] = outputs[result.blob]
            if result.traffic is not None and result.traffic.blob:
                data["result"]["traffic"]["full_text"] = outputs[result.traffic.blob]
        case RunStarted(settings=ref) | SettingsChanged(settings=ref):
            found = {group: groups[name] for group, name in asdict(ref).items() if name in groups}
            data["settings"] |= msgspec.to_builtins(found)
    return data


def quotes(event: Event) -> list[Quoted]:
    """Return the records and blobs that a request quotes; empty for other events."""
    return quoted_in(event.request) if isinstance(event, ModelCallStarted) else []


def named(event: Event) -> tuple[str, ...]:
    """Return the names of the groups of settings that an event refers to; empty for most events."""
    return astuple(event.settings) if isinstance(event, RunStarted | SettingsChanged) else ()


def outputs_of(event: Event) -> tuple[str, ...]:
    """Return the blobs with the whole texts of a result: its output, and its requests."""
    if not isinstance(event, ToolCallFinished):
        return ()
    traffic = event.result.traffic
    return tuple(filter(None, (event.result.blob, traffic.blob if traffic is not None else "")))
