"""Hooks of the real command in real processes: killed with it, and asked again."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from holdfast.sandbox.keeper import members
from tests.edge.machine import call, make_machine

PATIENCE_S = 60.0


@pytest.mark.requirement("S4", "H1")
def test_a_hook_dies_with_its_process_and_is_asked_again_by_the_next_one(tmp_path: Path) -> None:
    machine, pids, free = make_machine(tmp_path), tmp_path / "pids", tmp_path / "free"
    script = (
        f"echo $$ >> {pids}; while [ ! -e {free} ]; do sleep 0.05; done; cat > {tmp_path}/seen; echo '{{}}'"
    )
    machine.configure(
        'autonomy = "full"\n[sandbox]\nmode = "unsafe"\n'
        f'[hooks.slow]\non = ["before_tool"]\ntimeout_s = 60\ncommand = ["/bin/sh", "-c", {json.dumps(script)}]\n'
    )
    model = machine.script([{"tool_calls": [call("shell", command="echo ran >> ran")]}, {"text": "Done."}])
    with machine.start("run", "Go.", "-s", "cli:killed", "-m", model) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not pids.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
    while Path(f"/proc/{pids.read_text().split()[0]}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    session = machine.holdfast("sessions", "--json").rows[0]["session"]
    assert not members([f"{session}:t1.c1"])
    assert not (machine.workspace / "ran").exists()
    free.touch()
    done = machine.holdfast("resume", "cli:killed")
    assert (done.code, done.out.strip()) == (0, "Done.")
    assert (machine.workspace / "ran").read_text() == "ran\n"
    assert len(pids.read_text().split()) == 2
    assert json.loads((tmp_path / "seen").read_text())["arguments"] == {"command": "echo ran >> ran"}
