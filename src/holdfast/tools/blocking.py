"""Blocking work on files: done in a thread, and what stands in its way told in a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from holdfast.protocol.ports import RawResult


class Refused(Exception):
    """What a file tool does not do; the message is a sentence for the model."""


_T = TypeVar("_T")


async def in_thread(work: Callable[[], _T]) -> _T:
    """Do blocking work without stopping the loop. A cancellation is raised when the work is done, since a
    thread can't be stopped and nobody may be told that it was."""
    task = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        task.exception()  # looked at, so that nobody reports it as overlooked
        raise


async def attempt(path: str, work: Callable[[], _T]) -> _T | RawResult:
    """What blocking work on a path returns, or the result that tells why there is nothing."""
    try:
        return await in_thread(work)
    except Refused as refusal:
        return RawResult("error", str(refusal))
    except OSError as error:
        return RawResult("error", f"{path}: {error.strerror or error}.", detail=repr(error))


async def answer(path: str, work: Callable[[], str]) -> RawResult:
    """The text that blocking work on a path returns, as a result."""
    text = await attempt(path, work)
    return text if isinstance(text, RawResult) else RawResult("ok", text)
