"""The survey of a workspace: the same files bring the same digest, whatever happened in between."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.policy.protected import Own
from holdfast.protocol.evidence import PARTIAL
from holdfast.tools import survey as surveys
from holdfast.tools.own import OwnPlaces, own_places
from holdfast.tools.survey import Surveyor

pytestmark = pytest.mark.requirement("C4")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / "src" / "deep").mkdir(parents=True)
    for name in ("a.txt", "src/b.txt", "src/deep/c.txt"):
        (folder / name).write_text(name)
    return folder


def survey(
    place: Path, since_ms: int = 0, named: tuple[str, ...] = (), surveyor: Surveyor | None = None
) -> str:
    return (surveyor or Surveyor(OwnPlaces())).survey(str(place), since_ms, named)


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda place: (place / name).write_text(text)


CHANGES: dict[str, Callable[[Path], object]] = {
    "another content": write("a.txt", "A.TXT"),
    "a new file": write("new.txt", ""),
    "a file less": lambda place: (place / "src/b.txt").unlink(),
    "another name": lambda place: (place / "a.txt").rename(place / "z.txt"),
    "another folder": lambda place: (place / "a.txt").rename(place / "src/a.txt"),
    "a content deep below": write("src/deep/c.txt", "c.TXT/deep/src"),
    "two files swapped": lambda place: _swap(place / "a.txt", place / "src/b.txt"),
}


def _swap(one: Path, two: Path) -> None:
    first, second = one.read_text(), two.read_text()
    one.write_text(second)
    two.write_text(first)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("keeps", [True, False], ids=["one process", "two processes"])
def test_a_change_is_another_state_and_its_return_is_the_state_before(
    place: Path, change: Callable[[Path], object], keeps: bool
) -> None:
    surveyor = Surveyor(OwnPlaces()) if keeps else None
    copy = place.parent / "copy"
    shutil.copytree(place, copy)
    before = survey(place, surveyor=surveyor)
    change(place)
    assert survey(place, surveyor=surveyor) != before
    shutil.rmtree(place)
    shutil.copytree(copy, place)
    assert survey(place, surveyor=surveyor) == before


def test_touching_and_caches_change_nothing(place: Path) -> None:
    before = survey(place)
    os.utime(place / "a.txt")
    for folder in ("__pycache__", ".git", "node_modules", "src/.pytest_cache"):
        (place / folder).mkdir()
        (place / folder / "x").write_text("cached")
    assert survey(place) == before


def test_files_from_before_the_session_are_not_read_until_they_change(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    plain_open = os.open

    def noted(path: str, flags: int) -> int:
        opened.append(path)
        return plain_open(path, flags)

    monkeypatch.setattr(surveys.os, "open", noted)
    monkeypatch.setattr(surveys, "is_fresh", lambda *_: False)
    surveyor, later = Surveyor(OwnPlaces()), int(time.time() * 1000) + 60_000
    before = survey(place, later, surveyor=surveyor)
    assert not opened
    assert survey(place, 0, surveyor=surveyor) != before
    assert len(opened) == 3
    survey(place, 0, surveyor=surveyor)
    assert len(opened) == 3, "each version is read once"


def test_the_home_in_a_workspace_does_not_count(place: Path) -> None:
    home = place / ".holdfast"
    home.mkdir()
    surveyor = Surveyor(own_places(Own(homes=(str(home),))))
    before = survey(place, surveyor=surveyor)
    (home / "journal.db").write_text("more and more")
    assert survey(place, surveyor=surveyor) == before


def test_a_survey_that_takes_too_long_covers_only_the_named_files(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveys, "MAX_MS", 0)
    assert survey(place, named=("a.txt",)).startswith(PARTIAL)


def test_above_the_limit_only_the_named_files_count(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "MAX_FILES", 2)
    before = survey(place, named=("a.txt",))
    assert before.startswith(PARTIAL)
    (place / "src/b.txt").write_text("other")
    assert survey(place, named=("a.txt",)) == before
    (place / "a.txt").write_text("other")
    assert survey(place, named=("a.txt",)) != before
    assert survey(place, named=("gone.txt",)) not in (before, survey(place, named=()))


def test_what_is_beyond_the_limits_of_reading_counts_with_its_times(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in [("FILE_BYTES", 3), ("READ_BYTES", 3), ("READ_FILES", 0)]:
        with monkeypatch.context() as patched:
            patched.setattr(surveys, name, most)
            surveyor = Surveyor(OwnPlaces())
            before = survey(place, surveyor=surveyor)
            assert survey(place, surveyor=surveyor) == before
            (place / "src/b.txt").write_text(f"after {name}")
            assert survey(place, surveyor=surveyor) != before


def test_links_pipes_and_folders_that_nobody_may_list_stop_no_survey(place: Path) -> None:
    os.mkfifo(place / "pipe")
    (place / "link").symlink_to("nowhere")
    (place / "loop").symlink_to(".")
    (place / "src" / "deep").chmod(0)
    try:
        assert survey(place) == survey(place)
    finally:
        (place / "src" / "deep").chmod(0o700)
    assert survey(place / "missing") == survey(place / "missing")
