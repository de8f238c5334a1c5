"""Makes the cause of a command, with the time zone of the time before a person's words."""

from __future__ import annotations

from holdfast.core.causes import Commanded
from holdfast.core.state import State
from holdfast.protocol.commands import Command, Send
from holdfast.protocol.zone import UTC
from holdfast.runtime.ports import Ports


def heard(
    ports: Ports, state: State, command: Command, epoch: int, *, is_contested: bool = False
) -> Commanded:
    """Return the command as a cause of a session in this state."""
    body = command.body
    settings = (body.settings or state.settings) if isinstance(body, Send) else None
    zone = ports.zone(settings.prompt.zone, ports.clock.now_ms()) if settings is not None else UTC
    return Commanded(command, epoch, is_contested, zone)
