"""Holdfast loads no module from a folder in which commands may write."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path

import msgspec
import pytest

from holdfast.cli import modules
from holdfast.cli.modules import only_from_elsewhere
from holdfast.errors import UsageError
from holdfast.sandbox.installed import OURS
from holdfast.sandbox.proxy import libraries

pytestmark = pytest.mark.requirement("L2")


def test_a_project_that_is_installed_beside_holdfast_leaves_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, link = tmp_path / "workspace", tmp_path / "link"
    ours = workspace / ".venv" / "lib"
    for folder in (workspace / "src", ours, tmp_path / "plugin"):
        folder.mkdir(parents=True)
    link.symlink_to(workspace)
    others = [str(ours), str(tmp_path / "plugin"), "/usr/lib/python3"]
    monkeypatch.setattr(modules, "OURS", (str(workspace / ".venv"),))
    monkeypatch.setattr(sys, "path", [str(workspace / "src"), str(link / "src"), *others, str(workspace)])
    only_from_elsewhere([str(workspace)])
    assert sys.path == others


@pytest.mark.parametrize("named", ["src", "link/src", "."])
def test_where_python_looks_first_no_command_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    (tmp_path / "workspace" / "src").mkdir(parents=True)
    (tmp_path / "link").symlink_to("workspace")
    folder = tmp_path / named if named.startswith("link") else tmp_path / "workspace" / named
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("", "/usr/lib/elsewhere", str(folder))))
    before = [*sys.path]
    with pytest.raises(
        UsageError, match=r"PYTHONPATH names .* where commands of the run may write"
    ) as raised:
        only_from_elsewhere([str(tmp_path / "workspace")])
    assert "env -u PYTHONPATH holdfast" in raised.value.hint
    assert sys.path == before


def test_all_that_this_process_loads_is_kept_from_commands() -> None:
    """A virtual environment takes its library from another Python, which may lie in the workspace, too."""
    kept = (*OURS, *libraries())
    loaded = [
        json.__file__,
        msgspec.__file__,
        modules.__file__,
        sysconfig.get_path("platstdlib"),
        sys.executable,
    ]
    for path in map(os.path.abspath, (*loaded, os.path.realpath(sys.executable))):
        assert any(Path(path).is_relative_to(folder) for folder in kept), path
