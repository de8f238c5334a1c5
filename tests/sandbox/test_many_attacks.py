"""Many attacks at once, by two runs in one workspace with very many files: none finds more open than one alone."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from holdfast.protocol.fence import Backend, Finding
from holdfast.sandbox.process import Processes
from tests.sandbox import attack
from tests.sandbox.attacked import BACKENDS, Attacked, Judge, Scene, end
from tests.sandbox.expected import verdicts

FENCED = [name for name, make in BACKENDS.items() if name != "unsafe" and not isinstance(make(), Finding)]
STEPS = (*attack.reading_files(), *attack.writing_outside(), *attack.daemons(), "signal a process outside")
FILES_EACH = 500
HIDDEN = {".claude", ".env", ".envrc", ".git", ".vscode"}
"""What a scene has in its workspace. No empty file may come to it."""


@pytest.mark.requirement("L2", "L12", "C8")
@pytest.mark.parametrize(
    ("calls", "files"), [(4, 500), pytest.param(50, 100_000, marks=pytest.mark.long)], ids=["few", "many"]
)
@pytest.mark.parametrize("backend", FENCED)
async def test_many_attacks_at_once_in_two_runs_find_nothing_open(
    backend: Backend, calls: int, files: int
) -> None:
    made = BACKENDS[backend]()
    assert not isinstance(made, Finding)
    runs = [Processes(made), Processes(made)]
    with tempfile.TemporaryDirectory(prefix="a") as folder:
        scene = Scene(Path(folder).resolve())
        try:
            for number in range(files // FILES_EACH):
                (scene.workspace / f"d{number}").mkdir()
                for name in range(FILES_EACH):
                    (scene.workspace / f"d{number}" / f"{name}.py").touch()
            judge = Judge(scene)
            attacks = (Attacked(scene, backend, runs[number % 2]).attack(*STEPS) for number in range(calls))
            came = await asyncio.gather(*attacks)
            assert [len(rows) for rows, _ in came] == [len(STEPS)] * calls
            did, strange = judge.traces([row for rows, _ in came for row in rows])
            assert not {step for step in did if "open" not in verdicts(backend, step)}
            assert not strange
            assert {path.name for path in scene.workspace.glob(".*")} == {
                ".claude",
                ".env",
                ".envrc",
                ".git",
                ".vscode",
            }
            assert (scene.workspace / ".env").stat().st_size
        finally:
            for each in runs:
                await each.aclose()
            end(scene.token)
            scene.close()
