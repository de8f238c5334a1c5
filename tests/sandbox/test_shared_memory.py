"""What processes share in memory: under Landlock, a command has its own, or none."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.sandbox import landlock, landlock_rights, shared_memory
from holdfast.sandbox.landlock import Landlock
from holdfast.sandbox.process import Processes
from tests.sandbox.test_landlock import BAIT, Scene, in_a_fork

MADE = landlock.make()
pytestmark = pytest.mark.skipif(not isinstance(MADE, Landlock), reason="needs Landlock")


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    assert isinstance(MADE, Landlock)
    processes = Processes(MADE)
    yield processes
    await processes.aclose()


SHARED = Path("/dev/shm")


@pytest.fixture
def aside() -> Iterator[Scene]:
    """A scene that does not lie in shared memory, as the folder for temporary files may."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Scene(Path(folder))


@pytest.mark.requirement("L2", "L12", "S14")
@pytest.mark.parametrize("can_mount", [True, False])
async def test_a_command_neither_sees_nor_leaves_what_others_share_in_memory(
    processes: Processes, aside: Scene, monkeypatch: pytest.MonkeyPatch, *, can_mount: bool
) -> None:
    """Also what begins while it runs."""
    if not can_mount:
        monkeypatch.setattr(landlock, "_shared", lambda _: "")
    bait, go = SHARED / f"holdfast-test-{os.getpid()}", aside.workspace / "go"
    command = f"echo up; until [ -e go ]; do sleep 0.01; done; cat {bait}; touch {bait}.left; ls {SHARED}"

    def share(_: str) -> None:
        bait.write_text(BAIT)
        go.touch()

    own = str(aside.outside.parent / "own")
    try:
        ended = await processes.run(replace(aside.launch(command), own_folder=own), share)
        left = [*SHARED.glob(f"{bait.name}.*")]
    finally:
        for path in SHARED.glob(f"{bait.name}*"):
            path.unlink()
    assert BAIT not in ended.output
    assert bait.name not in ended.output.splitlines()
    assert not left


@pytest.mark.requirement("L2")
async def test_semaphores_work_where_memory_of_its_own_can_be_mounted(
    processes: Processes, aside: Scene
) -> None:
    if in_a_fork(lambda _: shared_memory.is_made(str(SHARED), 1 << 20)) != "True":
        pytest.skip("nothing can be mounted here")
    launch = aside.launch(
        f"{sys.executable} -c 'import multiprocessing as m; print(m.Lock())'; ls -A {SHARED}"
    )
    own = str(aside.outside.parent / "own")
    ended = await processes.run(replace(launch, own_folder=own), lambda _: None)
    assert ended.output == "<Lock(owner=None)>\n"


@pytest.mark.requirement("L2")
def test_nothing_is_mounted_over_what_a_command_uses(aside: Scene) -> None:
    own = str(aside.outside / "own")

    def shared(*writable: str, cwd: str = "/usr", own: str = own) -> str:
        fence = replace(aside.fence, writable=writable)
        launch = replace(aside.launch("true"), cwd=cwd, own_folder=own)
        rights = Landlock(7).launch(launch, fence).rights
        assert rights is not None
        return rights.shared

    real = os.path.realpath(SHARED)
    assert shared() == real
    with tempfile.TemporaryDirectory(dir=real) as workspace:
        assert shared(workspace) == shared(real) == shared("/dev") == ""
    assert shared(cwd=f"{real}/workspace") == shared(own=f"{real}/own") == ""


@pytest.mark.requirement("L2")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_is_mounted_for_a_command_hides_nothing_from_others(tmp_path: Path) -> None:
    """Most machines tell all namespaces of what one of them mounts. So does this one here."""

    def outside(_: int) -> object:
        libc = ctypes.CDLL(None)
        if libc.unshare(0x20000) or libc.mount(None, b"/", None, 0x4000 | 0x100000, None):
            return "nothing can be mounted"
        made = in_a_fork(lambda _: shared_memory.is_made(str(tmp_path), 1 << 20))
        return made, [path.name for path in tmp_path.iterdir()]

    (tmp_path / "here").touch()
    assert in_a_fork(outside) in ("('True', ['here'])", "'nothing can be mounted'")


@pytest.mark.requirement("L2")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_who_cannot_mount_memory_loses_nothing() -> None:
    def of_somebody(*, is_open: bool) -> Callable[[int], object]:
        def work(_: int) -> object:
            os.setresgid(54321, 54321, 54321)
            os.setresuid(54321, 54321, 54321)
            ctypes.CDLL(None).prctl(4, int(is_open), 0, 0, 0)  # PR_SET_DUMPABLE: may it change its own /proc
            is_made = shared_memory.is_made(str(SHARED), 1 << 20)
            return is_made, os.getuid(), not is_made or [*SHARED.iterdir()]

        return work

    def behind_a_layer(other: int) -> object:
        landlock_rights.signals_below_only({"handled": (1, 1, 0b11)}, other)
        return shared_memory.is_made(str(SHARED), 1 << 20)

    assert in_a_fork(of_somebody(is_open=False)) == "(False, 54321, True)"
    assert in_a_fork(of_somebody(is_open=True)) in ("(True, 54321, [])", "(False, 54321, True)")
    assert in_a_fork(behind_a_layer) == "False"
