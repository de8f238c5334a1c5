"""The turn with which ARCHITECTURE.md opens is what the scripted model plays today."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.edge.machine import Machine

LINE = re.compile(r"^ *(\d+)  (\w+) +(\w+)(?: ([\w.#]+))?  ", re.MULTILINE)
NAMES_AN_ATTEMPT = ("finding", "outcome")
"""The other causes have ids or nothing as names."""
REPLIES = (
    {
        "text": "I look at the file first.",
        "tool_calls": [{"name": "read_file", "arguments": {"path": "greet.py"}}],
    },
    {"text": "It prints hello."},
)


def test_the_turn_in_the_architecture_has_the_events_of_a_real_run(
    machine: Machine, repository: Path
) -> None:
    shown = (repository / "ARCHITECTURE.md").read_text("utf-8").split("<!-- turn -->")[1]
    told = LINE.findall(shown.split("<!-- /turn -->")[0])
    (machine.workspace / "greet.py").write_text('print("hello")\n')
    script = machine.folder / "model.jsonl"
    script.write_text("".join(json.dumps(reply) + "\n" for reply in REPLIES))
    question = "What does greet.py print?"
    assert machine.holdfast("run", question, "-m", f"script:{script}", "-s", "cli:greet").code == 0
    rows = machine.holdfast("show", "last", "--events", "--json").rows
    causes = [row["cause"].partition(" ")[::2] for row in rows]
    assert told == [
        (str(row["seq"]), row["type"], kind, name if kind in NAMES_AN_ATTEMPT else "")
        for row, (kind, name) in zip(rows, causes, strict=True)
    ]
