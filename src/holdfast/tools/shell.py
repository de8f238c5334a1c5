"""shell: runs a command in the workspace, in the sandbox of its run, with a clean environment.

`policy` judges the command. `sandbox.process` ends its processes. `background` keeps those that go on.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast.errors import SandboxUnavailable
from holdfast.protocol.fence import Backend, Launch
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.tools import ToolSpec
from holdfast.sandbox.process import Ended, clean_environment
from holdfast.tools import aside
from holdfast.tools.background import Background
from holdfast.tools.blocking import Refused
from holdfast.tools.fencing import Fences
from holdfast.tools.process import ALONE, RUNS, page, told
from holdfast.tools.sameness import is_answer
from holdfast.tools.schema import arguments_object
from holdfast.tools.unplanned import Unplanned
from holdfast.tools.unreached import note
from holdfast.tools.web import redactor_of
from holdfast.tools.within import failure, refused

TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 3_600.0
MAX_COMMAND_CHARS = 30_000
"""A longer command belongs in a file: every character is examined before it runs."""
NO_BASH = "The command did not run: bash is not installed, and the gates read commands as bash does."
_LONGER = "With a greater timeout_s it has longer, and with background=true it goes on by itself"


class Shell(Unplanned):
    """shell: returns what a command printed, and how it ended."""

    def __init__(self, background: Background, fences: Fences) -> None:
        self._background = background
        self._fences = fences
        self.spec = ToolSpec(
            name="shell",
            description="Run a shell command in the workspace; stdout and stderr come together. There is no "
            "terminal and no input. When the command ends, all processes it started are ended, also those after &. "
            "With background=true it returns at once, and the command goes on until process_stop ends it, or "
            "until the run ends, which it does with your answer: for a server, or a long build.",
            parameters=arguments_object(
                required=["command"],
                command={"type": "string", "minLength": 1, "maxLength": MAX_COMMAND_CHARS},
                timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S},
                background={"type": "boolean", "default": False},
            ),
            effect="exec",
            on_interrupt="unknown",
            timeout_s=TIMEOUT_S,
            keeps_time=True,
            source="builtin",
            trust="data",
            kinds={"command": "command", "timeout_s": "timeout"},
        )

    def readable(self) -> tuple[str, ...]:
        """Return nothing: commands read what a fence shows anyway."""
        return ()

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Run the command. The status is `ok` for exit code 0, `error` for any other, and `timeout` at a limit.

        In the background, the status is `ok` if it runs after a moment.
        """
        bash = shutil.which("bash")
        if bash is None:
            return RawResult("error", NO_BASH, is_unavailable=True)
        try:
            launch = await self._launch(bash, arguments, context)
            if arguments.get("background"):
                return await self._started(launch, arguments, context)
            ended = await self._background.processes.run(launch, context.on_output, redactor_of(context))
        except (Refused, SandboxUnavailable) as refusal:
            return RawResult("error", str(refusal))
        except OSError as error:
            why = f"The command could not be started: {error.strerror}."
            return RawResult("error", why, detail=repr(error))
        result = _result(ended, launch, self._fences.backend(context.policy.walls))
        notes = note(ended, launch, context) + aside.told(ended.put_right, context.workspace)
        result = replace(result, text=result.text + notes, requests=ended.requests)
        is_negative = ended.how == "exited" and is_answer(arguments["command"], ended.exit_code)
        return replace(result, is_negative=True) if is_negative else result

    async def _launch(self, bash: str, arguments: dict[str, Any], context: CallContext) -> Launch:
        launch = Launch(
            argv=(bash, "-c", arguments["command"]),
            cwd=context.workspace,
            key=context.key,
            env=clean_environment(os.environ),
            timeout_s=min(float(arguments.get("timeout_s", TIMEOUT_S)), context.timeout_s),
            idle_s=context.idle_s,
            check=context.check,
        )
        policy = context.policy
        return await self._fences.around(
            launch, context.workspace, policy.walls, context.walled, hosts=policy.allowed_hosts
        )

    async def _started(self, launch: Launch, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Start the command in the background. Its limits are the run's, and its own `timeout_s`."""
        limit_s = arguments.get("timeout_s", math.inf)
        launch = replace(launch, timeout_s=limit_s, idle_s=math.inf)
        process = await self._background.start(launch, self._fences.backend(context.policy.walls), context)
        if process.is_running:
            text = RUNS.format(id=process.id) + (ALONE if launch.fence is not None else "")
            return RawResult("ok", text, background=told(process), requests=process.asked())
        return RawResult(
            "ok" if process.has_succeeded else "error", await page(process, 0), requests=process.asked()
        )


def program_of(command: str, workspace: str) -> str:
    """Return the file that the command's first word names, with every link followed; the shell itself if that is not
    a program (a builtin, a variable, a text that cannot be split). Empty if there is no shell either.
    """
    try:
        word = next(iter(shlex.split(command, comments=True)), "")
    except ValueError:
        word = ""
    found = shutil.which(str(Path(workspace, word)) if "/" in word else word) if word else None
    found = found or shutil.which("bash")
    return str(Path(found).resolve()) if found else ""


def _result(ended: Ended, launch: Launch, backend: Backend) -> RawResult:
    output = ended.output if ended.output.endswith("\n") or not ended.output else f"{ended.output}\n"
    match ended.how:
        case "timeout":
            why = f"[killed after {launch.timeout_s:g} s, with all its processes. {_LONGER}.]"
            return RawResult("timeout", output + why)
        case "idle":
            why = f"[killed after {launch.idle_s:g} s without output, with all its processes. {_LONGER}.]"
            return RawResult("timeout", output + why)
        case "exited" if not ended.exit_code:
            why = refused(ended, launch.fence, backend)
            return RawResult("ok", f"{output}[{why}]" if why else ended.output or "[no output]")
        case "exited" | "flood" | "processes" | "memory" | "replaced" | "left":
            return RawResult("error", f"{output}[{failure(ended, launch.fence, backend)}]")
