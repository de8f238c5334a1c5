"""Refuses a message that cannot fit the window of its run, before anything of it is stored."""

from __future__ import annotations

import msgspec

from holdfast.core.budget import window_of
from holdfast.core.measure import Measure, expected_tokens
from holdfast.core.state import State, facts
from holdfast.errors import UsageError
from holdfast.protocol.codec import json_text
from holdfast.protocol.commands import CommandBody, Send
from holdfast.protocol.counts import counted
from holdfast.protocol.kinds import Kinds
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.settings import Settings
from holdfast.runtime.ports import Ports
from holdfast.runtime.prompting import fresh, outside

AMPLE_TOKENS = 60_000
"""Prompt, rules and tools are never larger."""
LEAST_TOKENS = 256
"""What the shortest task and the first notes need."""


def check_fits(ports: Ports, body: CommandBody) -> None:
    """Check that the window has room for the prompt and the rules, and for the task beside them, by our estimate.

    Raises:
        UsageError: it has not.
    """
    if not isinstance(body, Send) or body.settings is None:
        return
    settings = body.settings
    state = State(settings=settings)
    room = window_of(state, settings).room_tokens
    media = sum(each.weight_bytes for each in body.attachments)
    own = len(json_text(body.text)) + sum(each.weight_bytes or each.size_bytes for each in body.attachments)
    # With a token for each byte it fits, and so do prompt and tools beside it.
    if own <= room - AMPLE_TOKENS:
        return
    bound, more = _bound(facts(state), settings)
    prompt = fresh(ports, settings, outside(ports, settings))
    base = len(msgspec.json.encode(prompt.specs)) + len(json_text(prompt.text))
    bare = expected_tokens(Measure(), Kinds(base=base)) + LEAST_TOKENS
    if bare > room:
        raise UsageError(
            f"The prompt, the rules and the tools have about {counted(bare, 'token')} with the shortest task, and"
            f" {bound} has room for {room:,}. Nothing was sent.",
            hint=f"Shorten the rules, allow fewer tools, or {more}.",
        )
    needed = expected_tokens(Measure(), Kinds(base=base, prose=own - media, media=media))
    if needed > room:
        raise UsageError(
            f"The task is too long for {facts(state).name}: it has about {needed:,} tokens with prompt and"
            f" tools, and {bound} has room for {room:,}. Nothing was sent.",
            hint=f"Shorten it, attach less, or {more}.",
        )


def _bound(model: ModelFacts, settings: Settings) -> tuple[str, str]:
    """Return what bounds a request, and how to widen that."""
    most = settings.context.max_tokens
    if most < model.context_tokens:
        return f"[context] max_tokens = {most:,}", "raise [context] max_tokens"
    return f"the window of {model.context_tokens:,}", "use a model with a larger window"
