"""What all gates cost for one call, beside splitting its command with `shlex` and encoding its arguments as JSON.

CPU time, the best of several rounds. Each command is read anew: `again` says what it costs when the gates judge the
same call once more. `python -m benchmarks gates` prints the table.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.guard import Row, best_us
from holdfast.policy.commands import parsed
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import ToolCall
from holdfast.protocol.ports import Proposal
from holdfast.protocol.settings import settings_with
from holdfast.protocol.tools import ToolSpec
from holdfast.sandbox.process import Processes
from holdfast.tools.gates import Case, gates_of, passed
from holdfast.tools.own import OwnPlaces
from holdfast.tools.schema import arguments_object
from holdfast.tools.shell import Shell

TIMES = 200
COMMANDS = (
    "ls -la",
    "git status",
    "cat README.md",
    "python -m pytest -q tests/policy 2>&1 | tail -5",
    'grep -rn "def judge" src | head -20',
    "cd src && ls && cat app.py | wc -l",
    "git log --oneline -5",
    "sed -n 1,40p src/app.py",
    'find . -name "*.py" -not -path "./.venv/*" | xargs wc -l | sort -n | tail',
)


def measured() -> Iterator[Row]:
    """Each command, and a tool that names nothing and one that names a path."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder, "workspace").resolve()
        (workspace / "src").mkdir(parents=True)
        for name in ("README.md", "src/app.py"):
            (workspace / name).write_text("text\n")
        own = OwnPlaces((str(Path(folder, "home").resolve()),))
        settings = settings_with(ModelFacts("x", "x"), str(workspace), autonomy="supervised")
        gates = gates_of(lambda _: "", own)
        with asyncio.Runner() as runner:

            def judge(spec: ToolSpec, arguments: str) -> None:
                call = ToolCall("c", spec.name, arguments, "t1.c1")
                runner.run(passed(gates, Case(Proposal(call, "s", settings), spec)))

            bare = best_us(lambda: runner.run(_nothing()), TIMES)
            shell = Shell(Processes()).spec
            for command in COMMANDS:
                arguments = json.dumps({"command": command})

                def anew(arguments: str = arguments) -> None:
                    parsed.cache_clear()
                    judge(shell, arguments)

                floor = best_us(partial(_floor, command), TIMES)
                cost = best_us(anew, TIMES) - bare
                again = best_us(partial(judge, shell, arguments), TIMES) - bare
                yield {
                    "call": command,
                    "cpu_us": cost,
                    "again_us": again,
                    "floor_us": floor,
                    "x_floor": cost / floor,
                }
            path = {"path": {"type": "string"}}
            plain = ToolSpec("plain", "", arguments_object(required=["path"], **path), effect="read")
            reads = ToolSpec(
                "reads",
                "",
                arguments_object(required=["path"], **path),
                effect="read",
                kinds={"path": "path"},
            )
            for spec in (plain, reads):
                arguments = json.dumps({"path": "src/app.py"})
                floor = best_us(partial(json.loads, arguments), TIMES)
                cost = best_us(partial(judge, spec, arguments), TIMES) - bare
                name = "a tool without a path" if spec is plain else "a tool with a path"
                yield {
                    "call": name,
                    "cpu_us": cost,
                    "again_us": cost,
                    "floor_us": floor,
                    "x_floor": cost / floor,
                }


async def _nothing() -> None:
    """What a loop costs that runs nothing."""


def _floor(command: str) -> None:
    shlex.split(command)
    json.dumps({"command": command})
