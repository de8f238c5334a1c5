"""A sitting: drive or follow a session until it rests, show what happens, ask the person, handle signals.

`run`, `resume` and `chat` use sittings. `live` shows events, `ask` asks.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import NamedTuple

from holdfast.app import App
from holdfast.cli.ask import Person, Unanswered, ask, decided
from holdfast.cli.edits import proposed
from holdfast.cli.keyboard import restore_terminal
from holdfast.cli.live import View
from holdfast.cli.outcome import INTERRUPTED
from holdfast.cli.signals import heeded, interruptible, leave_terminal, unhurried
from holdfast.cli.terminal import tell, write
from holdfast.core.evolve import evolve
from holdfast.core.state import State, phase
from holdfast.protocol.commands import Principal, Stop, owner
from holdfast.protocol.events import ApprovalRequested, Record

_REASONS = {signal.SIGHUP: "hangup", signal.SIGTERM: "terminated"}
"""Why a run is stopped, by the signal; any other: interrupted."""
_LOOK_S, _OTHERS_S = 0.05, 2.0
"""How often, and how long, to look whether another process continues after a decision."""


def sender() -> Principal:
    """Return the user of this machine, who owns the home."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # the user id has no name
        name = str(os.getuid())
    return owner(name, "cli")


class Rest(NamedTuple):
    """The end of a sitting."""

    state: State
    is_left: bool
    """The person left before the session came to rest."""
    signal: int
    """The signal that ended it, or 0."""


class Sitting:
    """One period of work on a session. Call `work` once."""

    def __init__(
        self,
        app: App,
        state: State,
        view: View,
        asking: Person | None,
        restore: Callable[[], None] = restore_terminal,
    ) -> None:
        """Create a sitting of a session.

        Args:
            asking: The person to ask for approvals; None to ask nobody.
            restore: Gives the terminal back, for a process that ends at once.
        """
        self._app = app
        self._session = state.session
        self._state = state
        """The fold of all records that were shown."""
        self._view = view
        self._asking = asking
        self._restore = restore
        self._is_free = asyncio.Event()
        """Set while nobody is asked, so the view may write."""
        self._is_free.set()
        self._was_asked = asyncio.Event()
        self._was_answered = asyncio.Event()
        """Set when a session at rest may have work again."""
        self._is_resting = asyncio.Event()
        """Set while the session waits for people and this process does not drive it."""
        self._was_shown = asyncio.Event()
        self._is_left = asyncio.Event()
        self._signal = 0
        self._stopping: asyncio.Task[None] | None = None

    async def work(self) -> Rest:
        """Work until the session rests or the person leaves.

        Raises:
            StorageError: The store failed. Acknowledged records are safe.
        """
        working = asyncio.create_task(self._work())
        leaving = asyncio.create_task(self._is_left.wait())
        tasks = [working, leaving, asyncio.create_task(self._watch())]
        if self._asking is not None:
            tasks.append(asyncio.create_task(self._answer(self._asking)))
        with self._heeding_signals():
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                await self._end([*tasks, *([self._stopping] if self._stopping else [])])
        is_left = not working.done() or working.cancelled()
        return Rest(self._state if is_left else working.result(), is_left, self._signal)

    def stop_once(self) -> None:
        """Stop the run, unless it is already stopping."""
        if not self._signal:
            self.stop()

    def stop(self, signal_number: int = signal.SIGINT) -> None:
        """Stop the run, or leave if it rests or another process drives it. A second Ctrl-C ends this process."""
        if self._signal and signal_number == signal.SIGINT:
            self._leave_at_once()
        if self._signal:
            return
        self._signal = signal_number
        self._stopping = asyncio.create_task(self._stop())

    async def _stop(self) -> None:
        controller = self._app.controller
        is_resting = self._asking is not None and phase(self._state) == "waiting"
        if is_resting or await controller.is_driven_elsewhere(self._session):
            self._is_left.set()
        else:
            reason = _REASONS.get(signal.Signals(self._signal), "interrupted")
            await controller.submit(self._session, sender(), Stop(reason))
            self._was_answered.set()

    def _leave_at_once(self) -> None:
        """End this process. Its tools end with it, and the session can be resumed from its journal."""
        self._restore()
        write("\n")
        tell(f"Stopped at once. Continue with `holdfast resume {self._session}`.")
        sys.stdout.flush()
        os._exit(INTERRUPTED)

    async def _end(self, tasks: Sequence[asyncio.Task[object]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._view.close()

    # --- work -----------------------------------------------------------------------------------

    async def _work(self) -> State:
        """Drive until the session rests and no answer from here is pending."""
        while True:
            self._was_answered.clear()
            self._is_resting.clear()
            state = await self._app.controller.drive(self._session)
            if phase(state) != "waiting" or self._asking is None:
                break
            self._is_resting.set()
            await self._was_answered.wait()
        while self._state.seq < state.seq:
            self._was_shown.clear()
            await self._was_shown.wait()
        return state

    # --- showing --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Show all events, but wait while the person is asked."""
        async with aclosing(self._app.controller.follow(self._session, self._state.seq)) as items:
            async for item in items:
                await self._is_free.wait()
                if isinstance(item, Record):
                    self._state = evolve(self._state, item)
                await self._view.show(item, self._state)
                if isinstance(item, Record):
                    self._was_shown.set()
                    if isinstance(item.event, ApprovalRequested):
                        self._was_asked.set()

    # --- asking ---------------------------------------------------------------------------------

    async def _answer(self, person: Person) -> None:
        """Ask for each open approval in turn, forever."""
        store = self._app.store
        while True:
            self._was_asked.clear()
            for row in await store.approvals(self._session):
                await self._ask(person, row.id)
            await self._was_asked.wait()

    async def _ask(self, person: Person, approval_id: str) -> None:
        store = self._app.store
        answer = None
        row = await store.approval(approval_id)
        if row is None or row.decision or self._asking is None:
            self._was_answered.set()  # somebody was quicker
            return
        controller = self._app.controller
        can_run = controller.can_run(row)
        if not can_run:
            await self._is_resting.wait()  # who drives runs what is approved
        self._is_free.clear()
        self._view.pause()
        try:
            diff = await asyncio.to_thread(proposed, self._app, row)
            answer = await ask(store, person, row, diff, can_run=can_run)
            if answer is not None:
                await (controller.submit if can_run else controller.decide_now)(
                    self._session, sender(), answer
                )
            if not can_run:
                await self._let_others_go_first()
        except Unanswered:
            self._asking = None
        finally:
            self._view.resume()
            self._is_free.set()
            self._was_answered.set()
        if answer is not None:
            await decided(store, approval_id)

    async def _let_others_go_first(self) -> None:
        """Wait a moment for the process that has what the model wrote: it runs the call, if it lives."""
        until_s = time.monotonic() + _OTHERS_S
        while time.monotonic() < until_s:
            if await self._app.controller.is_driven_elsewhere(self._session):
                return
            await asyncio.sleep(_LOOK_S)

    # --- signals --------------------------------------------------------------------------------

    @contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        loop, numbers = asyncio.get_running_loop(), heeded()
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
            interruptible()
            if self._signal not in (0, signal.SIGINT):
                unhurried()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            leave_terminal()
        self.stop(number)
