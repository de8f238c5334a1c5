"""What all gates cost for one call of a tool that runs no command. CPU time, the best of several rounds.

`python -m benchmarks.plain_gates` prints one JSON object. It relies on little, so that it also measures an older
version, whose sources come first on the path: `PYTHONPATH=OLDER/src python -m benchmarks.plain_gates`.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.guard import best_us
from holdfast.clock import SYSTEM_CLOCK
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import ToolCall
from holdfast.protocol.ports import Proposal
from holdfast.protocol.settings import settings_with
from holdfast.protocol.tools import ToolSpec
from holdfast.redact import Redactor
from holdfast.tools.gates import Case, gates_of
from holdfast.tools.own import OwnPlaces
from holdfast.tools.schema import arguments_object

TIMES = 400
_FILES = "holdfast.tools.secret_files"
_TEXT: dict[str, Any] = {"type": "string"}
NOTES = arguments_object(required=["text"], text=_TEXT)
PATHS = arguments_object(required=["path"], path=_TEXT, text=_TEXT)
SPECS = {
    "a tool without a path": ToolSpec("plain", "", NOTES, effect="read"),
    "a tool that reads a path": ToolSpec("reads", "", PATHS, effect="read", kinds={"path": "path"}),
    "a tool that writes a path": ToolSpec("writes", "", PATHS, effect="write", kinds={"path": "path"}),
}
TEXT = "What was found is written down here. " * 20


def measured() -> dict[str, float]:
    """CPU microseconds of one call, for each kind of tool."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder, "workspace").resolve()
        (workspace / "src").mkdir(parents=True)
        (workspace / "src" / "app.py").write_text("text\n")
        redact = Redactor({"API_KEY": "a value of a key " * 2})
        needs: list[Any] = [redact.known_in, OwnPlaces((str(Path(folder, "home").resolve()),))]
        if importlib.util.find_spec(_FILES):
            files = importlib.import_module(_FILES).SecretFiles(redact, SYSTEM_CLOCK)
            files.look_now(str(workspace))
            needs.append(files)
        gates = gates_of(*needs)
        settings = settings_with(ModelFacts("x", "x"), str(workspace), autonomy="supervised")
        with asyncio.Runner() as runner:

            def cost_us(spec: ToolSpec) -> float:
                arguments = dict.fromkeys(spec.parameters["properties"], TEXT)
                if "path" in arguments:
                    arguments["path"] = "src/app.py"
                call = ToolCall("c", spec.name, json.dumps(arguments), "t1.c1")
                first = Case(Proposal(call, "s", settings), spec)

                async def judge() -> None:
                    for _ in range(TIMES):
                        case = first
                        for gate in gates:
                            verdict = await gate.judge(case)
                            assert type(verdict) is Case, verdict
                            case = verdict

                return best_us(lambda: runner.run(judge())) / TIMES

            return {name: cost_us(spec) for name, spec in SPECS.items()}


if __name__ == "__main__":
    print(json.dumps(measured()))
