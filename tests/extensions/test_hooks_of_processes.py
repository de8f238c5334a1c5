"""Hooks of the real command in real processes: killed with it, and asked again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.protocol.hooks import Hook
from holdfast.protocol.notify import NotificationDue
from holdfast.runtime.driver import end_orphans
from holdfast.sandbox.trees import members
from tests.core.stories import SESSION, Story
from tests.core.stories import call as call_of
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


@pytest.mark.requirement("S4", "H1")
async def test_a_new_driver_ends_the_hooks_and_notifications_of_a_dead_one() -> None:
    story = Story(hooks=(Hook("log", ("after_model",)),))
    story.attach()
    story.send()
    story.prepared()
    story.answered(call_of("shell"), call_of("grep"))
    story.admitted("t1.c1")
    story.given(NotificationDue("n1", "waiting", "waiting"))
    ended: list[str] = []

    class Tools:
        async def end_orphans(self, keys: Sequence[str]) -> None:
            ended.extend(keys)

    class Lease:
        def check(self) -> int:
            return 9**12

    await end_orphans(cast(Any, Tools()), story.state, cast(Any, Lease()))
    assert ended == [f"{SESSION}:{each}" for each in ("t1.c1", "notify:n1", "t1.c2", "hook:log")]


@pytest.mark.requirement("S4")
def test_a_program_that_only_listens_needs_no_answer_and_its_failure_is_said(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    machine.configure(
        f'[hooks.log]\non = ["run_end"]\ncommand = ["tee", "-a", "{tmp_path}/log"]\n'
        '[hooks.quiet]\non = ["after_model"]\ncommand = ["true"]\n'
        '[hooks.odd]\non = ["after_model"]\ncommand = ["false"]\n'
    )
    done = machine.holdfast("run", "Go.", "-m", machine.script([{"text": "Done."}]))
    assert (done.code, done.out.strip()) == (0, "Done.")
    assert json.loads((tmp_path / "log").read_text())["status"] == "done"
    ended = [each["body"] for each in machine.events("last") if each["type"] == "HookEnded"]
    assert {each["hook"]: each["status"] for each in ended} == {"log": "ok", "quiet": "ok", "odd": "failed"}
    assert (
        "hook:odd (after_model): the hook failed: its exit code was 1."
        in machine.holdfast("show", "last").out
    )
