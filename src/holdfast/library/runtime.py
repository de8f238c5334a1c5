"""The runtime that agents share. It belongs to one event loop at a time."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast.app import App, open_app, open_store
from holdfast.config.load import load_only
from holdfast.config.paths import expanded, find_home
from holdfast.config.settings import Config
from holdfast.errors import UsageError, clearing_up
from holdfast.library.tools import distinct
from holdfast.protocol.commands import Stop, owner
from holdfast.protocol.ports import Tool
from holdfast.tools.fencing import STARTING

SENDER = owner("agent", "library")
_STOP_S = 5.0
"""How long `aclose` waits for what it stopped."""


class Runtime:
    """What many agents share: one store, one pool of connections, one registry of tools, one runtime.

    Open it with `async with`, or let the first use of an agent open it, and call `aclose` at the end.

    Args:
        home: The folder of the sessions. None keeps them in memory until the runtime is closed.
        config: A file or a dict with the keys of config.toml. Without it, no file and no `HOLDFAST_*` variable
            is read; keys and addresses come from the providers' variables.
        tools: Functions decorated with `@tool`, or other `ports.Tool`s. Agents may add more.

    A closed runtime cannot be used again: this raises `UsageError`. It works in one event loop at a time. When that
    is closed, the next one may use it, and sessions in memory are still there.

    Raises:
        ConfigError: the configuration is wrong. Lists every problem.
        UsageError: two tools have the same name.
    """

    def __init__(
        self,
        *,
        home: str | Path | None = None,
        config: str | Path | Mapping[str, Any] | None = None,
        tools: Iterable[Tool] = (),
    ) -> None:
        self._source = expanded(config) if isinstance(config, str | Path) else config or {}
        self.config = load_only(self._source)
        self._home = None if home is None else find_home(str(home), {})
        self._tools = distinct(tools)
        self._offered: tuple[str, ...] = ()
        """The tools that its runs surely may have. An agent that comes later may have others (`App.confine`)."""
        self._memory = open_store(None) if self._home is None else None
        """The sessions without a home. They outlive an event loop."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that everything below belongs to."""
        self._taking = threading.Lock()
        self._opening = asyncio.Lock()
        self._rooms = AsyncExitStack()
        self._left = AsyncExitStack()
        """What the loop before left open."""
        self._app: App | None = None
        self._working: dict[asyncio.Future[None], str] = {}
        """The sessions in use, each by the future that ends with its drive; empty for readers."""
        self._is_closed = False

    async def __aenter__(self) -> Runtime:
        await self.app()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop what still runs (its runs end as `interrupted`) and close everything. Records in a home stay; sessions
        in memory are lost.
        """
        self._take_loop()
        async with self._opening:  # what is opening now is closed too
            self._is_closed = True
            app, self._app = self._app, None
            if app is not None:
                await self._stop(app)
            await self._rooms.aclose()
            await self._close_left()

    async def _close_left(self) -> None:
        """Close what the loop before left open. Usually that is nothing: a loop that is ended closes its generators,
        and `open_app` is one. But a loop may be closed without that.
        """
        left, self._left = self._left, AsyncExitStack()
        with suppress(RuntimeError):  # what belongs to a closed loop, only the garbage collector can end
            await left.aclose()

    async def _stop(self, app: App) -> None:
        ending = {""}
        for session in set(self._working.values()) - ending:
            with clearing_up("What still ran"):
                await app.controller.submit(session, SENDER, Stop("closed"))
                ending.add(session)
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                while waited := [ended for ended, session in self._working.items() if session in ending]:
                    await asyncio.wait(waited)  # who has read one item of a stream waits for the next

    @contextmanager
    def working(self, session: str = "") -> Iterator[None]:
        """Use the app inside the block. `aclose` waits for it, and stops a session that is driven."""
        ended = asyncio.get_running_loop().create_future()
        self._working[ended] = session
        try:
            yield
        finally:
            if self._working.pop(ended, None) is not None:  # otherwise its loop is closed
                ended.set_result(None)

    async def app(self) -> App:
        """Return the app, opened on first use in an event loop.

        Raises:
            UsageError: the runtime is closed, or works in another event loop.
        """
        self._take_loop()
        async with self._opening:
            if self._is_closed:
                hint = "Create another Runtime. With the same home it continues the same sessions."
                raise UsageError("This runtime is closed.", hint=hint)
            if self._app is None:
                await self._close_left()
                self._app = await self._rooms.enter_async_context(self._opened())
            return self._app

    def _opened(self) -> AbstractAsyncContextManager[App]:
        """Return the app, to be opened. Tests open them over a store of their own."""
        return open_app(
            self.config,
            self._home,
            extra_tools=self._tools,
            offers=lambda name: name in self._offered,
            environ=os.environ,
            memory=self._memory,
        )

    def _take_loop(self) -> None:
        """Belong to the running loop.

        Raises:
            UsageError: this belongs to another one, which may still run.
        """
        loop = asyncio.get_running_loop()
        with self._taking:
            if self._loop is loop:
                return
            if self._loop is not None and not self._loop.is_closed():
                raise UsageError(
                    "This agent works in another event loop, which is not closed. Create one Agent for each event "
                    "loop and thread: with the same home they share their sessions.",
                    hint="Or send the work to the first loop, with asyncio.run_coroutine_threadsafe.",
                )
            self._loop, self._opening = loop, asyncio.Lock()
            self._left, self._rooms, self._app, self._working = self._rooms, AsyncExitStack(), None, {}

    def config_with(self, said: Mapping[str, Any]) -> Config:
        """The configuration, below the values set in code, with the same keys."""
        return load_only(self._source, said)


def owned(
    home: str | Path | None,
    config: str | Path | Mapping[str, Any] | None,
    tools: Iterable[Tool],
    offered: tuple[str, ...],
    is_isolated: bool,
) -> Runtime:
    """Return the runtime of one agent, whose runs have the offered tools only. If none of them starts a program, and
    git copies nothing, it needs no sandbox.
    """
    made = Runtime(home=home, config=config, tools=tools)
    made._offered = (*STARTING, *offered) if is_isolated else offered
    return made
