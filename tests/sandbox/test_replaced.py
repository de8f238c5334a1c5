"""Somebody outside replaces a protected or secret file while a command runs: its mount is gone, and the call ends."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast.protocol.fence import Fence, Launch
from holdfast.sandbox import bubblewrap
from holdfast.sandbox.bubblewrap import Bubblewrap
from holdfast.sandbox.process import Ended, Processes
from holdfast.tools.within import how_ended

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

PATHS = (".git/config", "conf/.env", "a b/.envrc")


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    made = bubblewrap.make()
    assert isinstance(made, Bubblewrap)
    found = Processes(made)
    yield found
    await found.aclose()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for path in PATHS:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("old")
    return tmp_path


def launch(workspace: Path, command: str, timeout_s: float = 20) -> Launch:
    config, secret, settings = (str(workspace / path) for path in PATHS)
    return Launch(
        ("/bin/bash", "-c", command),
        str(workspace),
        f"replaced-{workspace.name}",
        {"PATH": "/usr/bin:/bin"},
        timeout_s,
        timeout_s,
        check=lambda: sys.maxsize,
        fence=Fence((str(workspace),), masked=(secret,), protected=(config, settings)),
    )


def saved(path: Path) -> None:
    """As git and most editors do."""
    draft = path.with_name("draft")
    draft.write_text("new")
    draft.rename(path)


def backed_up(path: Path) -> None:
    """As an editor does that keeps the old file."""
    path.rename(path.with_name("backup"))
    path.write_text("new")


def removed(path: Path) -> None:
    path.unlink()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():  # noqa: ASYNC110 - a file is all that tells
            await asyncio.sleep(0.01)


async def ended_after(processes: Processes, workspace: Path, command: str, act: Callable[[], None]) -> Ended:
    running = asyncio.create_task(processes.run(launch(workspace, f"touch begun; {command}"), lambda _: None))
    await until((workspace / "begun").exists)
    act()
    return await running


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("act", [saved, backed_up])
async def test_a_command_ends_when_somebody_replaces_a_file_that_its_sandbox_keeps(
    processes: Processes, workspace: Path, path: str, act: Callable[[Path], None]
) -> None:
    ended = await ended_after(processes, workspace, "sleep 15", lambda: act(workspace / path))
    assert (ended.how, ended.replaced) == ("replaced", str(workspace / path))
    assert str(workspace / path) in how_ended(ended)


@pytest.mark.requirement("L2")
async def test_a_command_goes_on_when_others_change_what_its_sandbox_does_not_keep_or_remove_it(
    processes: Processes, workspace: Path
) -> None:
    (workspace / "plain").write_text("old")

    def act() -> None:
        saved(workspace / "plain")
        (workspace / ".git" / "config").write_text("changed in place")
        removed(workspace / "conf" / ".env")

    ended = await ended_after(processes, workspace, "sleep 0.3; cat .git/config", act)
    assert (ended.how, ended.exit_code, ended.output) == ("exited", 0, "changed in place")


@pytest.mark.requirement("L2")
async def test_what_was_replaced_right_before_a_command_ended_is_told_too(
    processes: Processes, workspace: Path
) -> None:
    command = "sleep 0.1; while [ ! -e over ]; do :; done"

    def act() -> None:
        backed_up(workspace / ".git" / "config")
        (workspace / "over").touch()

    ended = await ended_after(processes, workspace, command, act)
    assert ended.how == "replaced"


@pytest.mark.requirement("L2")
async def test_a_sandbox_that_is_stopped_and_continued_while_it_starts_begins_its_program(
    tmp_path: Path, workspace: Path
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(
        f'#!/bin/bash\n(sleep 0.2; kill -CONT $$) &\nkill -STOP $$\nexec {shutil.which("bwrap")} "$@"\n'
    )
    program.chmod(0o755)
    processes = Processes(Bubblewrap(str(program)))
    ended = await processes.run(launch(workspace, "echo ran", 5), lambda _: None)
    await processes.aclose()
    assert (ended.how, ended.output) == ("exited", "ran\n")
