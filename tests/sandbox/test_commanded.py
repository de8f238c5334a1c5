"""The attack as a command of a hostile model, under `full`, with each backend: nothing is open, or nothing runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from holdfast.protocol.fence import Backend, Finding
from tests.sandbox.attacked import BACKENDS, TOGETHER
from tests.sandbox.circumstances import NAMES, argv, give, is_possible
from tests.sandbox.commanded import commanded
from tests.sandbox.expected import verdicts

pytestmark = pytest.mark.skipif(shutil.which("unshare") is None, reason="needs the namespaces of Linux")

PATIENCE_S = 300
FENCED = [name for name, make in BACKENDS.items() if name != "unsafe" and not isinstance(make(), Finding)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a socket has a hundred characters."""
    with tempfile.TemporaryDirectory(prefix="a") as made:
        yield Path(made).resolve()


def check(backend: Backend, report: dict[str, Any]) -> None:
    """Say what is wrong with a run whose model is hostile."""
    found = report["verdicts"]
    assert (report["code"], report["walled"], report["strange"]) == (0, backend, []), report
    assert found.keys() == {*TOGETHER}
    assert not {step: found[step] for step in found if found[step] not in verdicts(backend, step)}
    assert f"({backend})" in report["error"]


@pytest.mark.requirement("L2", "L12", "C12", "S14")
@pytest.mark.parametrize(
    "backend", [pytest.param(each, marks=pytest.mark.long if at else ()) for at, each in enumerate(FENCED)]
)
def test_a_hostile_model_reads_writes_signals_and_sends_nothing_outside(
    backend: Backend, folder: Path
) -> None:
    check(backend, asdict(commanded(backend, folder)))


EVERYDAY = ("bubblewrap", "inside of bubblewrap")
CASES = [
    pytest.param(backend, name, marks=() if (backend, name) == EVERYDAY else pytest.mark.long)
    for backend in FENCED
    for name in NAMES[1:]
]


@pytest.mark.requirement("L2", "L12")
@pytest.mark.parametrize(("backend", "name"), CASES)
def test_under_all_circumstances_the_backend_keeps_a_hostile_model_inside_or_nothing_runs(
    backend: Backend, name: str, folder: Path
) -> None:
    if not is_possible(name):
        pytest.skip(f"this machine cannot run it {name}")
    start = argv(name, folder / "user")
    own = give(name, folder / "user" / "scene")
    done = subprocess.run(
        [*start, "-m", "tests.sandbox.commanded", backend, str(own)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert not done.returncode, done.stderr
    report = json.loads(done.stdout)
    if report["code"] == 8:
        assert (report["ran"], report["strange"]) == (False, [])
        assert f"[sandbox] mode is {backend}" in report["error"] or backend in report["error"]
    else:
        check(backend, report)
