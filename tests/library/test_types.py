"""Type checkers see the type of `Result.output`, and a wrong argument of `Agent`."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from holdfast.agent import Agent, AgentOptions

PROGRAM = Path(__file__).with_name("typed.py")
SEEN = [
    "str", "Struct", "Data", "Dict", "Model", "list[Model]", "Any", "Data", "list[Dict]", "str", "Any", "Struct",
    "Model", "Struct", "Struct", "Data", "Struct", "Data",
]  # fmt: skip


def checked(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.requirement("S1", "L9")
def test_mypy_sees_the_type_of_the_output(repository: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text('from holdfast import Agent\n\nAgent(modle="m")\n')
    # With the project's own options and cache, what was checked before is only read.
    mypy = (sys.executable, "-m", "mypy", f"--config-file={repository}/pyproject.toml")
    seen = checked(*mypy, f"--cache-dir={repository}/.mypy_cache", str(PROGRAM), str(wrong))
    found = re.findall(r'typed\.py:\d+: note: Revealed type is "(.*)"', seen.stdout)
    plain = [re.sub(r"TypedDict\(typed\.(\w+), \{.*?\}\)|\w+\.", r"\1", each) for each in found]
    assert plain == SEEN, seen.stdout
    assert "did you mean" in seen.stdout
    assert seen.stdout.count(" error: ") == 1, seen.stdout


@pytest.mark.long  # the everyday suite asks mypy
@pytest.mark.requirement("S1", "L9")
@pytest.mark.skipif(
    not (shutil.which("pyright") and shutil.which("node")), reason="needs pyright and Node.js"
)
def test_pyright_sees_the_type_of_the_output() -> None:
    seen = checked("pyright", "--pythonpath", sys.executable, str(PROGRAM))
    assert re.findall(r'information: Type of ".*" is "(.*)"', seen.stdout) == SEEN, seen.stdout
    assert "0 errors" in seen.stdout


def test_type_checkers_know_every_option_of_an_agent() -> None:
    parameters = set(inspect.signature(Agent.__init__).parameters) - {"self", "output"}
    assert set(get_type_hints(AgentOptions)) == parameters
