"""The attack, the probe and honest work as other users, and where Holdfast itself is in a sandbox or a container."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.protocol.fence import Backend
from tests.sandbox import attack
from tests.sandbox.attacked import BACKENDS
from tests.sandbox.circumstances import NAMES, argv, give, is_possible
from tests.sandbox.expected import EXPECTED, LACKING, verdicts

pytestmark = pytest.mark.skipif(shutil.which("unshare") is None, reason="needs the namespaces of Linux")

PATIENCE_S = 300
PROBE = """
import asyncio, json, sys
from tests.sandbox.attacked import BACKENDS
made = BACKENDS[sys.argv[1]]()
print(json.dumps(asyncio.run(made.probe()).fault if hasattr(made, "probe") else made.fault))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a socket has a hundred characters."""
    with tempfile.TemporaryDirectory(prefix="a") as made:
        yield Path(made).resolve()


def under(name: str, folder: Path, *words: str) -> Any:
    """What a program of Python prints as JSON under these circumstances. Its last argument is a new folder."""
    if not is_possible(name):
        pytest.skip(f"this machine cannot run it {name}")
    start = argv(name, folder / "user")
    own = give(name, folder / "user" / "scene")
    done = subprocess.run(
        [*start, *words, str(own)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if "unshare" in name else ()) for name in NAMES[1:]],
)
@pytest.mark.parametrize("backend", [each for each in BACKENDS if each != "unsafe"])
def test_a_probe_says_truly_whether_a_backend_works_here(backend: Backend, name: str, folder: Path) -> None:
    """Inside of another sandbox it may not start. In a container, where processes have small numbers, it works."""
    fault = under(name, folder, "-c", PROBE, backend)
    if name == "inside of bubblewrap":
        assert fault == "" or fault.startswith("It could not")
    else:
        assert fault == ""


@pytest.mark.long
@pytest.mark.requirement("L2", "L12", "L11", "C8")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", [each for each in BACKENDS if each != "unsafe"])
def test_the_attack_finds_nothing_open_or_the_backend_does_not_count(
    backend: Backend, name: str, folder: Path
) -> None:
    report = under(name, folder, "-m", "tests.sandbox.attacked", backend)
    if report["fault"]:
        assert not report["verdicts"]
        assert "bubblewrap" in name
        return
    found = report["verdicts"]
    assert found.keys() == attack.STEPS.keys()
    assert not {step: found[step] for step in found if found[step] not in verdicts(backend, step)}
    assert report["strange"] == []
    assert report["failed"].keys() <= LACKING.get(backend, {}).keys()


@pytest.mark.long
@pytest.mark.requirement("L2")
def test_as_an_ordinary_user_without_a_sandbox_the_attack_succeeds(folder: Path) -> None:
    """So what a sandbox stops is not stopped by the rights of that user."""
    report = under("as somebody else", folder, "-m", "tests.sandbox.attacked", "unsafe")
    found = report["verdicts"]
    assert not {step: found[step] for step in found if found[step] not in verdicts("unsafe", step)}
    assert len([step for step in found if found[step] == "open"]) > len(EXPECTED["unsafe"].open) // 2
