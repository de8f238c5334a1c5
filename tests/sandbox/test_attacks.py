"""The attack program against each backend: what it tries, and what an independent judge finds outside.

`expected` says what must come of each step. A new backend is one row there and one in `attacked.BACKENDS`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from holdfast.protocol.fence import Backend, Finding
from tests.sandbox import attack
from tests.sandbox.attacked import ALWAYS_TRIED, BACKENDS, attacked, worked
from tests.sandbox.expected import ENDED, EXPECTED, LACKING, RIGHTS, verdicts
from tests.sandbox.honest import HONEST, QUICK

pytestmark = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="the sandboxes are those of Linux")


@pytest.fixture(params=[*BACKENDS])
def backend(request: pytest.FixtureRequest) -> Backend:
    """A backend that this machine may have."""
    name: Backend = request.param
    if isinstance(made := BACKENDS[name](), Finding):
        pytest.skip(made.fault)
    return name


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a socket has a hundred characters."""
    with tempfile.TemporaryDirectory(prefix="a") as made:
        yield Path(made).resolve()


def wrong(backend: Backend, found: dict[str, Any], said: dict[str, str]) -> dict[str, Any]:
    """What came out otherwise than expected."""
    return {
        step: (verdict, said.get(step))
        for step, verdict in found.items()
        if verdict not in verdicts(backend, step)
    }


@pytest.mark.requirement("L2", "L12", "L11", "C8", "C12", "C13")
async def test_write_outside_sandbox_blocked(backend: Backend, folder: Path) -> None:
    """Neither does it read, send, signal, stay or take all. `unsafe` has no fence: there the attack succeeds, which
    shows that its steps work."""
    report = await attacked(backend, folder, ALWAYS_TRIED)
    assert report.fault == ""
    assert report.verdicts.keys() == set(ALWAYS_TRIED)
    assert not wrong(backend, report.verdicts, report.said)
    assert not report.strange
    found = {step for step in attack.writing_outside() if report.verdicts[step] == "open"}
    can_touch = {"change the mode of a file outside", "change the times of a file outside"}
    if backend == "unsafe":
        assert found >= attack.writing_outside().keys() - RIGHTS
    else:
        assert found <= can_touch & EXPECTED[backend].open.keys()


@pytest.mark.requirement("L2", "C12", "H4")
async def test_a_way_to_the_proxy_lets_nothing_else_out(backend: Backend, folder: Path) -> None:
    steps = [*attack.network()]
    report = await attacked(backend, folder, steps, ("a.example",))
    assert report.verdicts.keys() == set(steps)
    assert not wrong(backend, report.verdicts, report.said)
    assert not report.strange


@pytest.mark.long
@pytest.mark.requirement("L2", "L12", "L11", "C8", "C12", "C13")
@pytest.mark.parametrize("hosts", [(), ("a.example",)], ids=["no hosts", "hosts"])
async def test_all_of_the_attack_comes_out_as_expected(
    backend: Backend, folder: Path, hosts: tuple[str, ...]
) -> None:
    report = await attacked(backend, folder, hosts=hosts)
    assert report.fault == ""
    assert report.verdicts.keys() == attack.STEPS.keys()
    assert not wrong(backend, report.verdicts, report.said)
    assert not report.strange


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("work", [QUICK, pytest.param(HONEST, marks=pytest.mark.long)], ids=["quick", "all"])
async def test_honest_work_succeeds(backend: Backend, folder: Path, work: Mapping[str, str]) -> None:
    """Without a sandbox it need not be tried: where it fails there too, it says nothing."""
    assert work
    if backend != "unsafe":
        assert (await worked(backend, folder, work)).keys() <= LACKING.get(backend, {}).keys()


def test_each_expectation_is_about_a_step_of_the_attack() -> None:
    named = {*ENDED, *RIGHTS, *(step for each in EXPECTED.values() for step in (*each.open, *each.undone))}
    assert named <= attack.STEPS.keys()
    assert EXPECTED.keys() == BACKENDS.keys() == {*get_args(Backend)}
    assert {what for work in LACKING.values() for what in work} <= HONEST.keys()
