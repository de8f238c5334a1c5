"""Holdfast loads no module from a folder in which commands may write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import msgspec
import pytest

from holdfast import __main__
from holdfast.cli import modules
from holdfast.cli.modules import only_from_elsewhere
from holdfast.errors import UsageError
from holdfast.sandbox.installed import OURS, only_installed
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


def test_no_module_comes_from_a_project_that_is_installed_for_editing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands of another run may have written there."""
    installed = [str(tmp_path / "lib" / "site-packages"), str(tmp_path / "dist-packages")]
    named = str(tmp_path / "plugins")
    here = str(Path(modules.__file__).parents[2])
    kept = [named, here, *installed, str(Path(os.__file__).parent)]
    monkeypatch.setenv("PYTHONPATH", named)
    monkeypatch.setattr(sys, "path", [*kept, str(tmp_path / "project" / "src"), str(tmp_path), ".", ""])
    only_installed()
    assert sys.path == kept


def test_no_module_comes_from_a_finder_that_a_package_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install -e .` installs one that leads to the project's own folder."""

    class Finder:
        @classmethod
        def find_spec(cls, name: str, path: object = None, target: object = None) -> None: ...

    Finder.__module__ = "__editable___project_finder"
    pythons = [each for each in sys.meta_path if getattr(each, "__module__", "").startswith("_frozen")]
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [Finder, *pythons, Finder()])
    only_installed()
    assert sys.meta_path == pythons
    assert len(pythons) == 3


def test_the_command_line_begins_with_it(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.append({str(tmp_path)!r}); sys.argv = ['holdfast', '--version']\n"
        "from holdfast.cli.main import main\n"
        f"try: main()\nexcept SystemExit: print({str(tmp_path)!r} in sys.path)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False"


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


@pytest.mark.parametrize(
    "named", ["", ":", ":/usr/lib/elsewhere", "/usr/lib/elsewhere:", "/usr/lib::/usr/lib/elsewhere"]
)
def test_an_empty_entry_of_pythonpath_is_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """`PYTHONPATH=$PYTHONPATH:/my/lib` has one where nothing was set before. Python takes no other text for none."""
    (tmp_path / "below").mkdir()
    monkeypatch.setenv("PYTHONPATH", named)
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setattr(sys, "path", [*sys.path])
    if not named:
        only_from_elsewhere([str(tmp_path)])
        return
    with pytest.raises(UsageError, match="PYTHONPATH names the current folder, by an empty entry, where"):
        only_from_elsewhere([str(tmp_path)])
    sys.path.insert(0, str(tmp_path / "below"))
    only_installed()
    assert str(tmp_path / "below") not in sys.path


def test_what_pythonpath_names_is_kept_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own list has whole paths."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"plugins:{tmp_path}/a/../b/")
    named = [str(tmp_path / "plugins"), str(tmp_path / "b")]
    monkeypatch.setattr(sys, "path", [*named, str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    only_installed()
    assert sys.path == named


def test_without_a_current_folder_the_path_is_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("PYTHONPATH", ":plugins")
    monkeypatch.setattr(sys, "path", [*OURS])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    only_installed()
    only_from_elsewhere([str(tmp_path)])
    assert sys.path


def test_python_m_loads_nothing_before_it_leaves_the_current_folder_but_what_is_loaded_already() -> None:
    """What Python imports itself for `-m` comes from there all the same, unless it starts with `-P`."""
    lines = Path(__main__.__file__).read_text().partition('if __name__ == "__main__":')[0].splitlines()
    imported = {line for line in lines if line.startswith(("import", "from"))}
    assert imported == {"from __future__ import annotations", "import os", "import sys"}


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
