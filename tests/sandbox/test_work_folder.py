"""Where Holdfast does work of its own: never where a command may write, also one of another session."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from holdfast.sandbox import probing
from holdfast.sandbox.work_folder import work_folder, work_place

pytestmark = pytest.mark.requirement("L2", "C12")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TMPDIR in a workspace, as direnv and the services that test sources set it."""
    (folder := tmp_path / "ws" / "tmp").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_work_is_done_in_the_home_and_leaves_nothing_there(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    with work_folder("holdfast-x-", [str(tmp_path / "none"), str(home)], [str(tmp_path / "ws")]) as folder:
        assert Path(folder).parent == home / "run"
        assert Path(folder).stat().st_mode & 0o777 == (home / "run").stat().st_mode & 0o777 == 0o700
    assert not list((home / "run").iterdir())


def test_without_a_home_no_work_is_done_where_commands_may_write(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "led" / "run").parent.mkdir()
    (tmp_path / "led" / "run").symlink_to(temporary)
    for homes in ((), (tmp_path / "none",), (tmp_path / "file",), (tmp_path / "led",)):
        place = work_place(map(str, homes))
        assert not Path(place).is_relative_to(tmp_path)
        other = work_place(map(str, homes), [place])
        assert other != place
    (tmp_path / "ws" / "home").mkdir()
    assert "ws" not in work_place([str(tmp_path / "ws" / "home")], [str(tmp_path / "ws")])
    with pytest.raises(OSError, match="Commands may write in each folder"):
        work_place((), ["/"])


def test_a_probe_does_not_work_in_a_workspace(temporary: Path) -> None:
    with probing._own_folder() as folder:
        assert Path(folder).is_dir()
        assert not list(temporary.iterdir())
