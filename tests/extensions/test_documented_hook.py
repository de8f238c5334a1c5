"""The example of docs/hooks.md, as it is written there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.edge.machine import call, make_machine

PAGE = Path(__file__).parents[2] / "docs" / "hooks.md"


@pytest.mark.requirement("S4")
def test_the_documented_hook_denies_what_it_says_and_nothing_else(tmp_path: Path) -> None:
    machine, text = make_machine(tmp_path), PAGE.read_text()
    (program,) = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    table = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
    guard = tmp_path / "guard.py"
    guard.write_text(program)
    table = table.replace("/home/ann/guard.py", str(guard)).replace("python3", str(shutil.which("python3")))
    machine.configure(f'autonomy = "full"\n[sandbox]\nmode = "unsafe"\n{table}')
    script = machine.script(
        [
            {"tool_calls": [call("shell", command="echo git push"), call("shell", command="echo fine")]},
            {"text": "Done."},
        ]
    )
    done = machine.holdfast("run", "Go.", "-m", script)
    assert (done.code, done.out.strip()) == (0, "Done.")
    shown = machine.holdfast("show", "last").out
    assert "Refused by the hook friday: Nobody pushes on a Friday." in shown
    assert '"echo fine"}  ok' in shown
