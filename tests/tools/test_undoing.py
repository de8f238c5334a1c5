"""What a killed Holdfast left is ended before it is undone, and nothing of it stays."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.sandbox import own_folder, trees
from holdfast.tools.trace import Trace
from holdfast.tools.traces import Traces
from holdfast.tools.undoing import Undoing

KEY = f"killed{os.getpid()}:t1.c1"


@pytest.mark.requirement("L2", "C8")
@pytest.mark.parametrize("is_driven", [True, False], ids=["the next driver", "a command in between"])
def test_what_a_killed_holdfast_left_is_ended_before_it_is_undone(tmp_path: Path, *, is_driven: bool) -> None:
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    workspace.mkdir()
    blank, own = workspace / ".env", Path(own_folder.new_name(KEY, ()))
    blank.touch()
    blank.chmod(0o444)  # as a sandbox makes one
    (own / "home").mkdir(parents=True)
    if not (killed := os.fork()):
        Traces(home).begin(KEY, Trace((str(workspace),), 0, {}, (str(blank),), key=KEY))
        os._exit(0)
    os.waitpid(killed, 0)

    with subprocess.Popen(["sleep", "300"], env={trees.VARIABLE: KEY}) as process:
        try:

            def look(_: Trace) -> tuple[Sequence[str], Sequence[str]]:
                assert process.poll() is not None
                looked.append(blank.exists())
                return (), ()

            looked: list[bool] = []
            undoing = Undoing(Traces(home), look)
            said = (undoing.recovered if is_driven else undoing.worked_off)(KEY.partition(":")[0])
        finally:
            process.kill()
    assert (said, looked) == ([], [False])
    assert not own.exists()
