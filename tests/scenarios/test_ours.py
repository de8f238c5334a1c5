"""What file tools wrote in the session, commands may overwrite unasked: after every crash, compaction and resume."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.evolve import fold
from holdfast.protocol import events as e
from holdfast.protocol.commands import Compact, Resolve, Send, owner
from holdfast.protocol.ports import CallContext, RawResult, Store, Tool
from holdfast.runtime.fold import state_of
from holdfast.runtime.fork import fork
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults
from holdfast.testing.invariants import check_session, ended
from holdfast.testing.scenarios import (
    Played,
    Scenario,
    Step,
    World,
    controller_of,
    play,
    play_with_crash,
    records_of,
    say,
    settings_of,
)
from holdfast.tools.shell import Shell
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage

THEIRS = "a person wrote this\n"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command within one step of the loop: the clock of a scenario jumps while a process runs."""

    async def run(self: Shell, arguments: dict[str, Any], context: CallContext) -> RawResult:
        context.check()
        command = ["sh", "-c", arguments["command"]]
        done = subprocess.run(command, cwd=context.workspace, capture_output=True, text=True, check=False)  # noqa: ASYNC221
        return RawResult("error" if done.returncode else "ok", done.stdout + done.stderr)

    monkeypatch.setattr(Shell, "run", run)


def theirs_is_there(world: World) -> Iterable[Tool]:
    """A file that was there before."""
    if not (path := world.workspace / "theirs.txt").exists():
        path.write_text(THEIRS)
    return ()


def shell(command: str) -> dict[str, object]:
    return call("shell", command=command)


SCENARIO = Scenario(
    "ours",
    [
        calls(call("write_file", path="a.txt", content="one\n")),
        calls(shell("cp theirs.txt a.txt")),  # a file tool wrote it
        calls(shell("echo two > a.txt")),  # a command wrote it since: asks
        calls(call("write_file", path="b.txt", content="three\n")),
        calls(shell("mv b.txt c.txt")),
        calls(shell("echo x > theirs.txt")),  # asks, as before
        calls(shell("mv theirs.txt d.txt")),  # asks
        calls(call("write_file", path="e.txt", content="four\n")),
        words("Done."),
    ],
    theirs_is_there,
    lambda settings: (say("Do it.", settings), *[Step(Resolve("", "deny"))] * 3),
    {"autonomy": "supervised"},
)


def run(stage: Stage, *faults: Faults) -> tuple[Played, list[str]]:
    async def one(clock: JumpingClock, store: Store, workspace: Path) -> tuple[Played, list[str]]:
        played = await play_with_crash(SCENARIO, clock, store, workspace, *faults)
        await check_session(store, played.session, played.records)
        assert played.state.progress.written == fold(list(played.records)).progress.written
        assert (workspace / "theirs.txt").read_text() == THEIRS
        return played, sorted(path.name for path in workspace.glob("*.txt"))

    return stage.run(one)


def asked(played: Played) -> list[str]:
    """The turns whose call was asked about."""
    requests = [r.event for r in played.records if isinstance(r.event, e.ApprovalRequested)]
    return [each.call_id.partition(".")[0] for each in requests]


@pytest.mark.requirement("C12", "L2")
def test_a_session_is_not_asked_about_what_its_file_tools_wrote(stage: Stage) -> None:
    played, files = run(stage)
    assert ended(played.records) == [("done", "answer")]
    assert asked(played) == ["t3", "t6", "t7"]
    assert files == ["a.txt", "c.txt", "e.txt", "theirs.txt"]


@pytest.mark.requirement("C12", "L2", "B4")
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_crash_at_any_commit_lets_nothing_be_lost_unasked(volatile: Stage, every: int) -> None:
    whole, _ = run(volatile)
    for number in range(1, whole.commits + 1, every):
        for faults in (Faults(crash_before_commit=number), Faults(crash_after_commit=number)):
            broken, _ = run(volatile, faults)
            assert {"t6", "t7"} <= set(asked(broken)), faults


@pytest.mark.requirement("C12", "L2")
def test_compaction_resume_and_a_branch_keep_what_was_written_and_another_workspace_does_not(
    stage: Stage, tmp_path: Path
) -> None:
    async def later(clock: JumpingClock, store: Store, workspace: Path) -> tuple[list[str], int, int]:
        played = await play(SCENARIO, clock, store, workspace)
        branch = await fork(store, clock, played.session, len(played.records))
        copy = await fork(store, clock, played.session, len(played.records), workspace=str(tmp_path))
        more = replace(SCENARIO, lines=[*SCENARIO.lines, calls(shell("mv e.txt f.txt")), words("Done.")])
        async with controller_of(more, store, clock, played.world) as controller:
            await controller.submit(played.session, owner("ann"), Compact())
            await controller.submit(
                played.session, owner("ann"), Send("Go on.", settings_of(more, workspace))
            )
            await controller.drive(played.session)
        records = await records_of(store, played.session)
        assert any(isinstance(record.event, e.ContextCompacted) for record in records)
        states = [await state_of(store, name) for name in (branch, copy)]
        moved = sorted(path.name for path in workspace.glob("[ef].txt"))
        return moved, *[len(state.progress.written) for state in states]

    assert stage.run(later) == (["f.txt"], 3, 0)
