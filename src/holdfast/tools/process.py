"""process_output and process_stop: what a process in the background printed, and its end.

`background` keeps the processes. `shell` starts them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.protocol.counts import counted
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.tools import BackgroundProcess, ToolSpec
from holdfast.tools.background import Background, Process
from holdfast.tools.readers import reader
from holdfast.tools.schema import arguments_object
from holdfast.tools.unplanned import Unplanned

RUNS = (
    '[running in the background as {id}: process_output(id="{id}") reads what it prints, process_stop(id="{id}") '
    "ends it, and so does the end of the run, which comes with your answer]"
)
ALONE = (
    "\n[in a sandbox, no other command reaches a server that it starts: use it in the command that starts it]"
)
PAGE_CHARS = 16_000
"""Less than the limit of a result, so that a page is never clipped."""
WAIT_S = 10.0
"""How long a call waits for output that is not there yet: the model would ask again and again."""
SETTLE_S = 0.1
"""How much longer, since what prints once often prints more."""
_ID = {"type": "string", "minLength": 1, "maxLength": 64, "description": "As shell returned it."}


class ProcessOutput(Unplanned):
    """process_output: a page of what a process printed, and whether it still runs."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self.spec = reader(
            name="process_output",
            description="Read what a process in the background printed (stdout and stderr), and whether it still "
            "runs. Without an offset: the end of the output. With the offset where the last page ended: what came "
            f"since; if nothing did, this waits up to {WAIT_S:g} s for it.",
            parameters=arguments_object(
                required=["id"],
                id=_ID,
                offset={"type": "integer", "minimum": 0, "description": "First character, from 0."},
            ),
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Return the page, with how the process is and where to read on."""
        process = _found(self._background, arguments["id"], context)
        if isinstance(process, RawResult):
            return process
        offset = arguments.get("offset")
        if offset is None:
            text = await page(process, max(process.output.end - PAGE_CHARS, 0))
        else:
            text = await self._from(process, offset)
        over = None if process.is_running else told(process)
        return RawResult("ok", text, background=over, requests=process.asked())

    async def _from(self, process: Process, offset: int) -> str:
        """Return the page from this place on. If there is nothing yet, wait for it."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + WAIT_S
        while process.is_running and loop.time() < until_s:
            seen = process.output.end
            if (await process.read(offset, 1)).text:
                break
            await process.news(seen, until_s - loop.time())
            await process.gone(SETTLE_S)
        return await page(process, offset)


class ProcessStop(Unplanned):
    """process_stop: ends a process and all that it started."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self.spec = ToolSpec(
            name="process_stop",
            description="End a process in the background, with all that it started. Its output can still be read.",
            parameters=arguments_object(required=["id"], id=_ID),
            effect="write",
            on_interrupt="rerun",
            source="builtin",
            trust="data",
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """End it. It may have ended already."""
        process = _found(self._background, arguments["id"], context)
        if isinstance(process, RawResult):
            return process
        was_running = process.is_running
        context.check()
        await self._background.stop(process)
        how = "stopped" if was_running else f"had ended before: {process.how}"
        printed = counted(process.output.end, "character")
        return RawResult(
            "ok", f"[{how}; it printed {printed}]", background=told(process), requests=process.asked()
        )


def told(process: Process) -> BackgroundProcess:
    """Return what the record of a call tells of a process."""
    return BackgroundProcess(process.id, process.command, is_over=not process.is_running)


async def page(process: Process, offset: int) -> str:
    """Return what it printed from this place on, how it is, and where to read on."""
    is_running, how = process.is_running, process.how
    text, first, last = await process.read(offset, PAGE_CHARS)
    head = ""
    if offset < first:
        head = f"[{counted(first - offset, 'character')} before this are no longer kept]\n"
    elif first and text:
        head = f"[from character {first:,}]\n"
    if is_running and last - first < PAGE_CHARS:
        rest = f"read on with offset={last}"
    elif last < process.output.end:
        rest = f"{counted(process.output.end - last, 'character')} follow: offset={last}"
    else:
        rest = "no more output"
    gap = "" if not text or text.endswith("\n") else "\n"
    why = f"[{process.unreached}]\n" if process.unreached else ""
    return f"{head}{text}{gap}{why}[{how}; {rest}]"


def _found(background: Background, id_: str, context: CallContext) -> Process | RawResult:
    """Return the process of the session with this id, or the failure that names those there are."""
    processes = background.of(context.session)
    if id_ in processes:
        return processes[id_]
    known = [f"{each.id} ({each.how})" for each in processes.values()]
    which = f"There are {', '.join(known)}." if known else "Nothing was started in the background."
    return RawResult("error", f"There is no process {id_} in the background of this run. {which}")
