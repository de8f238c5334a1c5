"""What goes wrong while a command clears up changes neither its answer nor its exit code."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from tests.cli.processes import Cli, calls, says

WAITS = "until test -e go; do sleep 0.02; done"


def block_socket(cli: Cli) -> None:
    """Put a file in the place of the folder of the sockets, so that no socket can be removed."""
    (cli.home / "run").rename(cli.home / "moved")
    (cli.home / "run").touch()


@pytest.mark.requirement("L7", "L9")
def test_a_socket_that_cannot_be_removed_leaves_a_finished_run_as_it_is(cli: Cli) -> None:
    model = cli.model(calls("shell", command=WAITS), says("Done."))
    with cli.working("run", "x", "-m", model, "--autonomy", "full") as work:
        work.until_type("ToolCallStarted")
        block_socket(cli)
        (cli.workspace / "go").touch()
        ended = work.end()
    assert (ended.code, work.rows[-1]["status"]) == (0, "done"), ended.err
    assert "socket of the doorbell could not be cleared up" in ended.err


@pytest.mark.requirement("L7", "L9")
def test_a_disk_that_takes_nothing_any_more_is_exit_9_whatever_clearing_up_comes_to(cli: Cli) -> None:
    model = cli.model(calls("shell", command=WAITS), says("Done."))
    with cli.working("run", "x", "-m", model, "--autonomy", "full") as work:
        work.until_type("ToolCallStarted")
        block_socket(cli)
        resource.prlimit(work.process.pid, resource.RLIMIT_FSIZE, (0, 0))
        (cli.workspace / "go").touch()
        ended = work.end()
    assert ended.code == 9, ended.err


@pytest.mark.requirement("L2-06")
def test_a_socket_that_cannot_be_removed_leaves_an_interrupted_run_at_130(cli: Cli) -> None:
    with cli.working("run", "x", "-m", cli.model(says("one two", chunks=2, delay_s=60))) as work:
        work.until_type("ModelCallStarted")
        block_socket(cli)
        ended = work.end(signal.SIGTERM)
    assert ended.code == 130, ended.err


@pytest.mark.requirement("H5")
def test_an_old_socket_that_cannot_be_removed_keeps_nobody_from_being_rung(cli: Cli) -> None:
    nobody = int(Path("/proc/sys/kernel/pid_max").read_text()) + 1
    (cli.home / "run" / f"{nobody}-old.sock").mkdir(parents=True)
    model = cli.model(calls("shell", command=WAITS), says("Done."))
    with cli.working("run", "x", "-m", model, "--autonomy", "full") as work:
        work.until_type("ToolCallStarted")
        assert len(list((cli.home / "run").glob(f"{work.process.pid}-*.sock"))) == 1
