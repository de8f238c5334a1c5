"""A `bwrap` that keeps less than it says, or nothing, does not count: the probe finds out, whatever it leaves out."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from pathlib import Path

import pytest

from holdfast.sandbox import probing
from holdfast.sandbox.bubblewrap import Bubblewrap
from tests.sandbox.liars import BROKEN, script

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

REAL = shutil.which("bwrap")
CHANGED = """
import os, sys
words = os.read(int(sys.argv[2]), 1 << 20).split(b"\\0")
{change}
given = os.memfd_create("given")
os.write(given, b"\\0".join(words))
os.lseek(given, 0, os.SEEK_SET)
os.dup2(given, int(sys.argv[2]))
os.execv("{real}", ["bwrap", *sys.argv[1:]])
"""
LEFT_OUT = {
    "the network": ('words.remove(b"--unshare-net")', "connect to a server"),
    "the processes": ('words.remove(b"--unshare-pid")', "see processes outside"),
    "the new namespaces": ('words.remove(b"--disable-userns")', ""),
    "the filter": ('at = words.index(b"--seccomp"); del words[at : at + 2]', "use io_uring"),
    "the settings of the kernel": ('at = words.index(b"/proc/sys"); del words[at - 1 : at + 2]', ""),
    "all walls": ('words[:] = [b"--bind", b"/", b"/", b""]', ""),
}
"""What a `bwrap` may leave out, and what the probe then finds; empty: that depends on the user and the kernel."""


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("what", LEFT_OUT)
async def test_a_backend_that_leaves_out_a_wall_does_not_count(tmp_path: Path, what: str) -> None:
    change, found = LEFT_OUT[what]
    program = script(tmp_path, CHANGED.format(change=change, real=REAL), f"{sys.executable} -IS")
    fault = (await Bubblewrap(str(program)).probe()).fault
    assert fault
    assert found in fault


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("what", BROKEN)
async def test_a_program_that_is_no_sandbox_does_not_count(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_TIMEOUT_S", 0.5)
    found = await Bubblewrap(str(script(tmp_path, BROKEN[what]))).probe()
    assert found.fault
    assert found.hint


async def test_a_probe_removes_what_killed_probes_left_and_nothing_of_one_that_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "work_place", lambda: str(tmp_path))
    for name in ("holdfast-probe-dead", "holdfast-probe-lives", "holdfast-other"):
        (tmp_path / name / "inside").mkdir(parents=True)
    (tmp_path / "holdfast-probe-link").symlink_to("holdfast-other")
    lock = os.open(tmp_path / "holdfast-probe-lives", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert (await Bubblewrap("/bin/false").probe()).fault
    os.close(lock)
    assert {path.name for path in tmp_path.iterdir()} == {
        "holdfast-probe-lives",
        "holdfast-probe-link",
        "holdfast-other",
    }
    assert (tmp_path / "holdfast-other" / "inside").is_dir()
