"""The site is built from a copy of the tree as `script/docs` does it, and every mistake stops the build."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

NEEDED = ("docs", "src", "mkdocs.yml")


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="`sh script/docs` has not run here")
@pytest.mark.parametrize(
    ("file", "right", "wrong", "told"),
    [
        ("docs/index.md", "](running.md)", "](nowhere.md)", "nowhere.md"),
        (
            "src/holdfast/agent.py",
            "            session: CHANNEL:CHAT",
            "            sesion: CHANNEL:CHAT",
            "sesion",
        ),
        ("docs/reference.md", "::: holdfast.Agent\n", "::: holdfast.Agnet\n", "Agnet"),
    ],
)
def test_a_mistake_in_a_page_or_a_docstring_stops_the_build(
    repository: Path, tmp_path: Path, file: str, right: str, wrong: str, told: str
) -> None:
    for name in NEEDED:
        copy = shutil.copytree if (repository / name).is_dir() else shutil.copy
        copy(repository / name, tmp_path / name)
    built = (repository / "script" / "docs").read_text().splitlines()[-1]
    _, program, *words = [word for word in shlex.split(built) if word != "$@"]
    page = tmp_path / file
    assert right in page.read_text()
    page.write_text(page.read_text().replace(right, wrong, 1))
    done = subprocess.run(
        [repository / program, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert told in done.stderr
