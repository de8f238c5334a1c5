"""Runs blocking functions of users on threads that do not delay the end of the program."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.errors import ToolUnavailable

T = TypeVar("T")
_WAIT_S = 0.02


def raisable(raised: BaseException) -> Exception:
    """An exception of a function, as one that ends only its call: not the program, and not a loop that takes it for
    its own.
    """
    match raised:
        case SystemExit(code=code):
            return RuntimeError(f"the function called sys.exit({code!r})")
        case Exception() if not isinstance(raised, StopIteration):
            return raised
    return RuntimeError(f"the function raised {type(raised).__name__}: {raised}")


class Threads:
    """Runs a limited number of functions at once, each on its own daemon thread.

    The interpreter joins the threads of a thread pool when it ends, so a function that never returns would keep it
    from ending.
    """

    def __init__(self, most: int) -> None:
        self._free = threading.BoundedSemaphore(most)

    async def slot(self) -> None:
        """Wait for a free slot. `run` gives it back."""
        # Polled, because all loops of the process share the slots.
        while not self._free.acquire(blocking=False):  # noqa: ASYNC110
            await asyncio.sleep(_WAIT_S)

    async def run(self, function: Callable[[], T]) -> T:
        """Return or raise what the function does. If this is cancelled, the function continues and its result is
        lost.

        Raises:
            ToolUnavailable: no thread could be started.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def resolve(value: Any, error: Exception | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(error)

        def work() -> None:
            value: T | None = None
            error: Exception | None = None
            try:
                value = function()
            except BaseException as raised:  # none is swallowed: it is raised where `run` is awaited
                error = raisable(raised)
            finally:
                self._free.release()
            with suppress(RuntimeError):  # the loop is closed, and nobody waits for the result
                loop.call_soon_threadsafe(resolve, value, error)

        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(work,), name="holdfast-tool", daemon=True)
        try:
            thread.start()
        except (
            RuntimeError
        ) as error:  # the machine has no thread left, and nothing runs that gives the slot back
            self._free.release()
            raise ToolUnavailable("It was not run: no thread could be started.") from error
        return await answer
