"""Refuses a message that cannot fit the window of its model, before anything of it is stored."""

from __future__ import annotations

import math

import msgspec

from holdfast.core.budget import input_room_tokens
from holdfast.core.measure import BYTES_PER_TOKEN
from holdfast.core.state import State, facts
from holdfast.errors import UsageError
from holdfast.protocol.codec import json_text
from holdfast.protocol.commands import CommandBody, Send
from holdfast.runtime.ports import Ports
from holdfast.runtime.prompting import fresh, outside


def check_fits(ports: Ports, body: CommandBody) -> None:
    """Check that a task with the prompt and the tools of its run is not too long for the model, by our estimate.

    Raises:
        UsageError: it is.
    """
    if not isinstance(body, Send) or body.settings is None:
        return
    settings = body.settings
    state = State(settings=settings)
    model, room = facts(state), input_room_tokens(state, settings)
    own = len(json_text(body.text)) + sum(each.weight_bytes or each.size_bytes for each in body.attachments)
    if (
        own <= room
    ):  # even with a token for each byte it fits; the prompt and the tools are not this message's fault
        return
    prompt = fresh(ports, settings, outside(ports, settings))
    specs = msgspec.json.encode(prompt.specs)
    needed = math.ceil((own + len(specs) + len(json_text(prompt.text))) / BYTES_PER_TOKEN)
    if needed > room:
        raise UsageError(
            f"The task is too long for {model.name}: it has about {needed:,} tokens with prompt and"
            f" tools, and the window of {model.context_tokens:,} has room for {room:,}. Nothing was sent.",
            hint="Shorten it, attach less, or use a model with a larger window.",
        )
