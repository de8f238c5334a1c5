"""Asks a Python function of an installed package, in this process.

It cannot be ended: if it is late, its answer is lost, and it may still be running.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.extensions.hook_commands import MOST_BYTES, HookFailed, body_of
from holdfast.protocol.hooks import HookSource, Occasion
from holdfast.protocol.ports import Check
from holdfast.tools.threads import Threads

_THREADS = 8


class FunctionHook:
    """A hook that is a function: it takes the event as a dict, and returns its answer as a dict, or None.

    Args:
        function: The function. If it blocks, it runs in a thread of its own.
    """

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self._function = function
        self._threads = Threads(_THREADS)

    async def answer(self, source: HookSource, occasion: Occasion, check: Check) -> str:
        """Return the answer as JSON.

        Raises:
            HookFailed: it was late, raised, or gave no valid answer.
            Lapsed: the check failed, and it was not called.
        """
        event = msgspec.json.decode(body_of(source, occasion))  # its own copy, which it may change
        try:
            async with asyncio.timeout(source.hook.timeout_s) as limit:
                said = await self._called(event, check)
        except TimeoutError:
            if not limit.expired():
                raise HookFailed("it raised TimeoutError") from None
            raise HookFailed(f"it did not answer within {source.hook.timeout_s:g} s") from None
        except (SystemExit, GeneratorExit) as stop:  # asyncio takes both for its own
            raise HookFailed(f"it raised {type(stop).__name__}") from None
        try:
            told = msgspec.json.encode({} if said is None else said)
        except (TypeError, ValueError, RecursionError):
            raise HookFailed("its answer cannot be written as JSON") from None
        if len(told) > MOST_BYTES:
            raise HookFailed(f"its answer has more than {MOST_BYTES // 1024} KiB")
        return told.decode()

    async def _called(self, event: dict[str, Any], check: Check) -> object:
        if not inspect.iscoroutinefunction(self._function):
            await self._threads.slot()
            check()
            work: Any = self._threads.run(lambda: self._function(event))
        else:
            check()
            work = self._function(event)
        try:
            said = await work
            return await said if inspect.isawaitable(said) else said
        except TimeoutError:
            raise
        except Exception as error:
            raise HookFailed(f"it raised {type(error).__name__}", str(error)) from error

    async def aclose(self) -> None:
        """Leave what still runs."""
