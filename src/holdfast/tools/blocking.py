"""Runs blocking work on files in a thread and turns errors into sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from holdfast.protocol.ports import RawResult


class Refused(Exception):
    """A file tool refuses the work. The message is a sentence for the model."""


_T = TypeVar("_T")


async def in_thread(work: Callable[[], _T]) -> _T:
    """Run blocking work without blocking the loop. A cancellation is raised when the work is done, because a thread
    cannot be stopped and nobody may be told that it was.
    """
    task = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        task.exception()  # retrieved, so that asyncio does not report it as never retrieved
        raise


async def attempt(path: str, work: Callable[[], _T]) -> _T | RawResult:
    """Return what blocking work on a path returns, or a result that says why it failed."""
    try:
        return await in_thread(work)
    except Refused as refusal:
        return RawResult("error", str(refusal))
    except OSError as error:
        return RawResult("error", f"{path}: {error.strerror or error}.", detail=repr(error))


async def answer(path: str, work: Callable[[], str]) -> RawResult:
    """Return the text of blocking work on a path as a result."""
    text = await attempt(path, work)
    return text if isinstance(text, RawResult) else RawResult("ok", text)
