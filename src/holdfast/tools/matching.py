"""Matches a pattern in a process of its own, because a regular expression can run forever and cannot be stopped in
this one. The programs are `grep_child` and `output_child`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.protocol.fence import Launch
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.sandbox.process import Processes
from holdfast.sandbox.unnamed import unnamed_file
from holdfast.tools.blocking import in_thread
from holdfast.tools.fencing import own_fence
from holdfast.tools.web import redactor_of


def broken(pattern: str) -> RawResult | None:
    """Return the refusal of what is not a regular expression; None if it is one."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return RawResult("error", f"{pattern!r} is not a regular expression: {error}.")
    return None


async def matched(
    processes: Processes,
    program: str,
    request: dict[str, Any],
    context: CallContext,
    limit_s: float,
    fds: tuple[int, ...] = (),
    readable: Sequence[str] = (),
) -> RawResult:
    """Return what a program prints about a request, with the descriptors as its arguments.

    Args:
        processes: Run it.
        program: The name of its file.
        request: Its input.
        context: The call.
        limit_s: How long it may take.
        fds: Open files. What is below an open folder can be read through it, wherever it lies.
        readable: What else it reads.
    """
    with unnamed_file() as stdin:
        await in_thread(lambda: stdin.write(json.dumps(request).encode()))  # it may be long
        stdin.seek(0)
        limit_s = min(limit_s, context.timeout_s)
        child = str(Path(__file__).with_name(f"{program}.py"))
        launch = Launch(
            argv=(sys.executable, "-I", "-S", "-X", "utf8", child, *map(str, fds)),
            cwd="/",
            key=context.key,
            env={},
            timeout_s=limit_s,
            idle_s=limit_s,
            check=context.check,
            stdin_fd=stdin.fileno(),
            pass_fds=fds,
            fence=own_fence(processes, child, *readable),
        )
        ended = await processes.run(launch, context.on_output, redactor_of(context))
    if ended.how != "exited":
        advice = f"[the search was stopped after {limit_s:g} s: use a simpler pattern, or search less]"
        return RawResult("timeout", ended.output + advice)
    if ended.exit_code:
        return RawResult("error", "The search failed.", detail=ended.output)
    return RawResult("ok", ended.output)
