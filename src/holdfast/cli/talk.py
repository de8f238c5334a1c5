"""A chat at work: its session, the settings of the next message, and the person at the terminal.

`chat` reads messages, `slash` has the commands that change a talk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from holdfast.app import App
from holdfast.cli.ask import Person
from holdfast.cli.attachments import Given, mentioned, message_with
from holdfast.cli.flags import RunFlags, chosen, configured
from holdfast.cli.live import Bottom
from holdfast.cli.run import Output, send, show, view_of, warn, what_came_of
from holdfast.cli.sitting import Sitting
from holdfast.cli.terminal import has_person, tell
from holdfast.config.paths import Home
from holdfast.core.state import State, phase
from holdfast.errors import HoldfastError, StorageError
from holdfast.protocol.settings import Settings
from holdfast.views.happenings import Detail
from holdfast.views.lines import Span, neutral

Stop = Callable[[bool], None]
"""Stops a turn. True if the person pressed Ctrl-C, which may be pressed twice."""
_BEGINS_ANEW = "Your next message begins a new session. Up brings the text back."


class Place(Person, Protocol):
    """Where the person types."""

    @property
    def bottom(self) -> Bottom | None:
        """Where to show what is running, if that is not the last line."""
        ...

    def turn(self, stop: Stop) -> AbstractContextManager[None]:
        """Let Esc and Ctrl-C call `stop` until the end of the block."""
        ...

    def leave_at_once(self) -> None:
        """Give the terminal back as it was, for a process that ends now."""
        ...


@asynccontextmanager
async def going_on(talk: Talk) -> AsyncIterator[None]:
    """Show an error of the block and go on, unless it is one of the store. A deleted session is left."""
    try:
        yield
    except StorageError:
        raise
    except HoldfastError as error:
        message, hint = error.message, error.hint
        if await talk.left_deleted():
            message, hint = "The session of this chat was deleted. Nothing was sent.", _BEGINS_ANEW
        tell([Span("! ", "yellow"), neutral(message)])
        if hint:
            tell(f"  {hint}")


class Talk:
    """A chat at work."""

    def __init__(self, app: App, home: Home, settings: Settings, output: Output, place: Place) -> None:
        self.app, self.home, self.output = app, home, output
        self.place = place
        self.detail: Detail = "usual"
        """How much progress is shown."""
        self.settings = settings
        """Those of the next message."""
        self.state: State | None = None
        """The session; None until the first message."""
        self.key = ""
        """The name that the session gets with its first message."""
        self.code = 0
        """The exit code of the last run."""
        self.signal = 0
        """The signal that ended the last turn, or 0."""
        self.is_over = False
        """The person said that they leave."""
        self.notes: list[str] = []
        """What the person's own commands printed. It goes with the next message."""
        self.attached: list[Given] = []
        """What goes with the next message too."""

    async def say(self, text: str, typed: str = "") -> None:
        """Send a message, and work until the session rests.

        Args:
            typed: The part that a person typed. Files of the workspace that it mentions go with the message.

        Raises:
            UsageError: A mentioned file cannot be attached, or the message is too long. Nothing was sent.
        """
        parts = [*self.attached, *mentioned(self.app, typed, Path(self.settings.tools.workspace))]
        words = await message_with(self.app, "\n\n".join([*self.notes, text]), self.settings, parts)
        self.state = await send(self.app, self.state, self.key, words)
        self.notes, self.attached = [], []
        await self.turn()

    async def turn(self) -> None:
        """Work until the session rests, and show what came of it."""
        assert self.state is not None
        asking = self.place if self.settings.posture.approve_by == "prompt" and has_person() else None
        view = view_of(self.app, self.state, self.output, asking, self.detail, self.place.bottom)
        sitting = Sitting(self.app, self.state, view, asking, self.place.leave_at_once)

        def stop(is_hurried: bool) -> None:
            sitting.stop() if is_hurried else sitting.stop_once()

        with self.place.turn(stop) if has_person() else nullcontext():
            rest = await sitting.work()
        self.state, self.signal = rest.state, rest.signal
        self.code = show(
            await what_came_of(self.app, rest), rest.state, self.output, view, is_quiet=self.detail == "quiet"
        )
        if phase(self.state) == "waiting" and self.place.bottom is not None:
            tell("  /resume asks you again.")
        self.show_rest()

    async def left_deleted(self) -> bool:
        """Return whether the session is gone, because somebody deleted it. Then the next message begins a new one."""
        if self.state is None or await self.app.store.session(self.state.session) is not None:
            return False
        self.state = None
        self.show_rest()
        return True

    def show_rest(self) -> None:
        """Show at the bottom what the session used, and that nothing is running."""
        if self.place.bottom is not None:
            self.place.bottom.show("", self.state or State())

    async def choose(self, flags: RunFlags, recorded: Settings | None = None) -> None:
        """Change the settings of the next message. `recorded`: those of another session to begin from.

        Raises:
            ConfigError: A flag is wrong, or the administrator does not allow it.
            UsageError: A model or key is missing, or the cost has a limit and no price.
        """
        base = recorded or self.settings
        config = configured(self.home, flags, base)
        before = chosen(self.app, RunFlags(), self.settings, is_terminal=True).warnings
        settings, warnings = chosen(replace(self.app, config=config), flags, base, is_terminal=True)
        await self.app.resolve(settings.model.facts.name)
        warn(self.app, settings, [each for each in warnings if each not in before])
        self.settings = settings
        self.show_rest()
