"""The system prompt in force, and when its inputs are looked at again.

A prompt is a fact: requests carry the recorded bytes, in every process and version, until another one is recorded.
`runtime.prompting` looks at the inputs; a difference becomes `PromptBuilt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.protocol import events as e
from holdfast.protocol.outcomes import Built
from holdfast.protocol.prompt import Section
from holdfast.protocol.settings import Settings

Due = Literal["", "a run opened", "a compaction landed", "the settings changed"]
"""What happened since the inputs were looked at last; empty if nothing."""

FIRST = "the first prompt"
THE_ORDER = "the order"
OTHER_TOOLS = "tools came or went"
THE_TOOLS = "the specs of the tools"


class Prompted(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The prompt in force."""

    blob: str = ""
    """Empty before the first one. See `events.PromptBuilt`."""
    tools: str = ""
    sections: tuple[Section, ...] = ()
    due: Due = ""
    due_seq: int = 0
    """The record that made it due."""
    base: str = ""
    """The base of the last request with this prompt (`request.Request`); empty if none was sent."""
    model: str = ""
    wire: str = ""
    """The model and the wire format of that request."""


# An example: run 1 opens, so the inputs are due; without a prompt before, `PromptBuilt` follows, and then m1.
# The user edits AGENTS.md and raises a limit: neither is due, m2 to m9 have one prefix. Run 2 opens: due. Now
# AGENTS.md differs, so a second `PromptBuilt` says "a run opened: workspace (AGENTS.md) changed", and m10 carries it.
# Run 3 opens: due. Nothing differs, nothing is recorded, and m11 begins with the bytes of m10.


def due(prompted: Prompted, why: Due, seq: int) -> Prompted:
    """Look at the inputs before the next request."""
    return replace(prompted, due=why, due_seq=seq)


def reads_otherwise(before: Settings | None, after: Settings | None) -> bool:
    """Return whether a change of settings may change the text of the prompt, or its tools."""
    return before is None or after is None or _inputs(before) != _inputs(after)


def _inputs(settings: Settings) -> tuple[object, ...]:
    # Limits, the guard and approvals are not in the prompt. Without this distinction a raised limit would make an
    # edited file count, and cost the provider's cache of the whole conversation.
    return (
        settings.tools,
        (settings.policy.offered, settings.policy.withheld),
        settings.posture.autonomy,
        settings.prompt,
        settings.output,
        settings.conduct,
    )


def built(prompted: Prompted, found: Built) -> e.PromptBuilt:
    """Return the record of a new prompt."""
    changed = changes(prompted, found.sections, found.tools)
    reason = f"{prompted.due or OTHER_TOOLS}: {', '.join(changed)} changed" if prompted.blob else FIRST
    return e.PromptBuilt(reason, found.sections, found.blob, found.tools)


def differs(prompted: Prompted, found: Built) -> bool:
    """Return whether what was found is not the prompt in force: tools came or went within a run."""
    return bool(prompted.blob) and bool(changes(prompted, found.sections, found.tools))


def changes(prompted: Prompted, sections: Sequence[Section], tools: str) -> tuple[str, ...]:
    """Return the names of what differs from the prompt in force, with its source if that is a file or a package."""
    old = {(each.section, each.source): each.sha256 for each in prompted.sections}
    new = {(each.section, each.source): each.sha256 for each in sections}
    keys = [*new, *[key for key in old if key not in new]]
    changed = [_called(*key) for key in keys if old.get(key) != new.get(key)]
    if not changed and [*old] != [*new]:
        changed = [THE_ORDER]
    return (*changed, *([THE_TOOLS] if tools != prompted.tools else []))


def _called(section: str, source: str) -> str:
    return section if source in ("holdfast", "settings") else f"{section} ({source})"


def after_built(event: e.PromptBuilt) -> Prompted:
    return Prompted(event.blob, event.tools, event.sections)


def after_request(prompted: Prompted, event: e.ModelCallStarted) -> Prompted:
    """Remember the bytes that carry the prompt. The last pass may go without the tools."""
    request = event.request
    # The base is the same for hundreds of turns, so most requests change nothing here.
    is_known = (prompted.base, prompted.model, prompted.wire) == (request.base, event.model, request.wire)
    if (is_known or event.is_last_pass) and not prompted.due:
        return prompted
    if event.is_last_pass:
        return replace(prompted, due="", due_seq=0)
    return replace(prompted, due="", due_seq=0, base=request.base, model=event.model, wire=request.wire)
