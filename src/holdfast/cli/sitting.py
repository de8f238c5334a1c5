"""One sitting at a session: drive or follow it until it rests, show what happens, ask the person, heed signals.

`run`, `resume` and `chat` are made of sittings. How things are shown and asked stands in `live` and `answer`.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import NamedTuple

from holdfast.app import App
from holdfast.cli.answer import Unanswered, ask, settled
from holdfast.cli.keyboard import Keyboard, restore_terminal
from holdfast.cli.live import View
from holdfast.cli.outcome import INTERRUPTED
from holdfast.cli.signals import heeded, interruptible, leave_terminal
from holdfast.cli.terminal import tell, write
from holdfast.core.evolve import evolve
from holdfast.core.state import State, phase
from holdfast.protocol.commands import Principal, Stop, owner
from holdfast.protocol.events import ApprovalRequested, Record

STOP_REASON = "interrupted"


def sender() -> Principal:
    """Who asks: the user of this machine, whose home it is."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        name = str(os.getuid())
    return owner(name, "cli")


class Rest(NamedTuple):
    """How a sitting ended."""

    state: State
    is_left: bool
    """The person went away before the session came to rest: it waits, or another process goes on with it."""
    signal: int
    """The signal that ended it; 0: none did."""


class Sitting:
    """One stretch of work at a session; `work` is called once."""

    def __init__(self, app: App, state: State, view: View, asking: Keyboard | None) -> None:
        """`asking`: where the person is asked about approvals; None: nobody is asked."""
        self._app = app
        self._session = state.session
        self._state = state
        """The fold of all that was shown."""
        self._view = view
        self._asking = asking
        self._is_free = asyncio.Event()
        """Nobody is asked anything: the terminal may be written to."""
        self._is_free.set()
        self._was_asked = asyncio.Event()
        self._was_answered = asyncio.Event()
        """A session that rested may have something to do again."""
        self._was_shown = asyncio.Event()
        self._is_left = asyncio.Event()
        self._signal = 0
        self._stopping: asyncio.Task[None] | None = None

    async def work(self) -> Rest:
        """Until the session rests, or its person leaves.

        Raises:
            StorageError: the store failed; what was acknowledged is safe.
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
        """Stop the run, unless it is being stopped already."""
        if not self._signal:
            self.stop()

    def stop(self, signal_number: int = signal.SIGINT) -> None:
        """Stop the run, or leave where it rests or is not ours; the second time, end this process at once."""
        if self._signal:
            self._leave_at_once()
        self._signal = signal_number
        self._stopping = asyncio.create_task(self._stop())

    async def _stop(self) -> None:
        controller = self._app.controller
        is_resting = self._asking is not None and phase(self._state) == "waiting"
        if is_resting or await controller.is_driven_elsewhere(self._session):
            self._is_left.set()
        else:
            await controller.submit(self._session, sender(), Stop(STOP_REASON))
            self._was_answered.set()

    def _leave_at_once(self) -> None:
        """The session goes on from its journal; a tool's processes end with this one."""
        restore_terminal()
        write("\n")
        tell(f"Stopped at once. Continue with `holdfast resume {self._session}`.")
        sys.stdout.flush()
        os._exit(INTERRUPTED)

    async def _end(self, tasks: Sequence[asyncio.Task[object]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._view.close()

    # --- the work -------------------------------------------------------------------------------

    async def _work(self) -> State:
        """Drive until the session rests and nobody here is about to change that."""
        while True:
            self._was_answered.clear()
            state = await self._app.controller.drive(self._session)
            if phase(state) != "waiting" or self._asking is None:
                break
            await self._was_answered.wait()
        while self._state.seq < state.seq:
            self._was_shown.clear()
            await self._was_shown.wait()
        return state

    # --- showing --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Show everything, but hold it back while the person is asked."""
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

    async def _answer(self, keyboard: Keyboard) -> None:
        """Ask about every open approval of the session, one after the other; never ends by itself."""
        store = self._app.store
        while True:
            self._was_asked.clear()
            for row in await store.approvals(self._session):
                await self._ask(keyboard, row.id)
            await self._was_asked.wait()

    async def _ask(self, keyboard: Keyboard, approval_id: str) -> None:
        store = self._app.store
        answer = None
        row = await store.approval(approval_id)
        if row is None or row.decision or self._asking is None:
            return
        self._is_free.clear()
        self._view.pause()
        try:
            answer = await ask(store, keyboard, row)
            if answer is not None:
                await self._app.controller.submit(self._session, sender(), answer)
        except Unanswered:
            self._asking = None
        finally:
            self._view.resume()
            self._is_free.set()
            self._was_answered.set()
        if answer is not None:
            await settled(store, approval_id)

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

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            leave_terminal()
        self.stop(number)
