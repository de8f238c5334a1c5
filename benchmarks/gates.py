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

from benchmarks import plain_gates
from benchmarks.guard import Row, best_us
from holdfast.policy.commands import parsed
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import ToolCall
from holdfast.protocol.ports import Proposal
from holdfast.protocol.settings import settings_with
from holdfast.protocol.tools import ToolSpec
from holdfast.tools.background import Background
from holdfast.tools.fencing import Fences
from holdfast.tools.gates import Case, gates_of, passed
from holdfast.tools.own import OwnPlaces
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
    """Each command, and tools that run none."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder, "workspace").resolve()
        (workspace / "src").mkdir(parents=True)
        for name in ("README.md", "src/app.py"):
            (workspace / name).write_text("text\n")
        home = Path(folder, "home").resolve()
        home.mkdir()
        own = OwnPlaces((str(home),))
        settings = settings_with(ModelFacts("x", "x"), str(workspace), autonomy="supervised")
        gates = gates_of(lambda _: "", own)
        with asyncio.Runner() as runner:

            def cost_us(spec: ToolSpec, arguments: str, *, is_new: bool = False) -> float:
                call = ToolCall("c", spec.name, arguments, "t1.c1")
                case = Case(Proposal(call, "s", settings), spec)

                async def judge() -> None:
                    for _ in range(TIMES):
                        if is_new:
                            parsed.cache_clear()
                        await passed(gates, case)

                return best_us(lambda: runner.run(judge())) / TIMES

            shell = Shell(Background(), Fences(OwnPlaces(), "/")).spec
            for command in COMMANDS:
                arguments = json.dumps({"command": command})
                floor = best_us(partial(_floor, command), TIMES)
                cost, again = cost_us(shell, arguments, is_new=True), cost_us(shell, arguments)
                yield _row(command, cost, again, floor)
    arguments = json.dumps({"path": "src/app.py"})
    floor = best_us(partial(json.loads, arguments), TIMES)
    for name, cost in plain_gates.measured().items():
        yield _row(name, cost, cost, floor)


def _row(call: str, cost: float, again: float, floor: float) -> Row:
    return {"call": call[:40], "cpu_us": cost, "again_us": again, "floor_us": floor, "x_floor": cost / floor}


def _floor(command: str) -> None:
    shlex.split(command)
    json.dumps({"command": command})
