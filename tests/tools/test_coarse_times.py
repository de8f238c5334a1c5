"""Some file systems count whole seconds: a second change within one second has the time of the first.

So what is remembered of a file or folder is looked at again where its time may hide a change.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.clock import SYSTEM_CLOCK, SystemClock, is_fresh
from holdfast.protocol.fence import Fence
from holdfast.redact import Redactor
from holdfast.storage.images import Images
from holdfast.tools.copying import changes, copy
from holdfast.tools.folders import Folders
from holdfast.tools.kept import keep, put_back
from holdfast.tools.led import Leads
from holdfast.tools.other_names import OtherNames
from holdfast.tools.own import OwnPlaces
from holdfast.tools.pages import Pages
from holdfast.tools.reach import content_of
from holdfast.tools.secret_files import SecretFiles
from holdfast.tools.survey import Surveyor
from holdfast.tools.workspace import Root

pytestmark = pytest.mark.requirement("L2")

VALUE, OTHER = "plum-tree" + "-under-7-moons", "pear-tree" + "-under-8-moons"
_SECOND_NS = 1_000_000_000
Look = Callable[[], object]
Change = Callable[[], object]


class Clock:
    """A clock that a test sets. Every file that a test makes changed one second before it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.second = SYSTEM_CLOCK.now_ms() // 1_000
        self.after_ms = 1_000
        monkeypatch.setattr(SystemClock, "now_ms", lambda _: self.second * 1_000 + self.after_ms)
        for name in ("stat", "lstat", "fstat"):
            monkeypatch.setattr(os, name, self._rounded(getattr(os, name)))

    def _rounded(self, real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def rounded(*given: object, **more: object) -> os.stat_result:
            found = real(*given, **more)
            times = dict.fromkeys(("st_atime_ns", "st_mtime_ns", "st_ctime_ns"), self.second * _SECOND_NS)
            return os.stat_result(tuple(found), times)

        return rounded


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def protected_file(top: Path) -> tuple[Look, Change]:
    (top / ".envrc").write_text("good")
    copies = keep(Fence((str(top),), protected=(str(top / ".envrc"),)), ())
    return lambda: put_back(copies).changed, lambda: (top / ".envrc").write_text("evil")


def controlling_name(top: Path) -> tuple[Look, Change]:
    folders = Folders()
    return lambda: [each.fixed for each in folders.below(str(top))], (top / ".envrc").touch


def link_in_a_protected_folder(top: Path) -> tuple[Look, Change]:
    (top / ".vscode").mkdir()
    (top / "tasks").touch()
    leads = Leads(str(top / "home"))
    link = top / ".vscode" / "tasks.json"
    return lambda: leads.found([str(top / ".vscode")], [str(top)]), lambda: link.symlink_to("../tasks")


def hooks_of_a_configuration(top: Path) -> tuple[Look, Change]:
    config = top / ".git" / "config"
    config.parent.mkdir()
    config.write_text("[core]\n\thooksPath = a/\n")
    leads = Leads(str(top / "home"))
    return lambda: leads.found([str(config)], [str(top)]), lambda: config.write_text(
        "[core]\n\thooksPath = b/\n"
    )


def second_name(top: Path) -> tuple[Look, Change]:
    for name in ("a", "b"):
        (top / name).mkdir()
    (top / ".env").touch()
    for name in ("a/1", "outside"):
        os.link(top / ".env", top / name)
    names = OtherNames()

    def look() -> object:
        return {*names.found([str(top / ".env")], (), [str(top / "a"), str(top / "b")]).masked}

    def change() -> None:
        (top / "outside").unlink()
        os.link(top / ".env", top / "b" / "1")

    return look, change


def secret(name: str) -> Callable[[Path], tuple[Look, Change]]:
    def of(top: Path) -> tuple[Look, Change]:
        (top / ".env").write_text(f"API_TOKEN={VALUE}\n")
        redact = Redactor()
        files = SecretFiles(redact, SYSTEM_CLOCK)

        def look() -> str:
            files.look_now(str(top))
            return redact(OTHER)

        return look, lambda: (top / name).write_text(f"API_TOKEN={OTHER}\n")

    of.__name__ = f"secret_in_{name}"
    return of


def page(top: Path) -> tuple[Look, Change]:
    pages = Pages()
    (top / "a").write_text("one\n")
    root = Root(str(top), OwnPlaces())
    return lambda: pages.read(root, "a", 1, 10, "s").text, lambda: (top / "a").write_text("two\n")


def approved_program(top: Path) -> tuple[Look, Change]:
    (top / "a").write_text("one\n")
    return lambda: content_of(str(top / "a")), lambda: (top / "a").write_text("two\n")


def file_of_a_copy(top: Path) -> tuple[Look, Change]:
    for name in ("home", "workspace", "copy"):
        (top / name).mkdir()
    (top / "workspace" / "a").write_text("one\n")
    images = Images(top / "home", SYSTEM_CLOCK)
    copied = copy(str(top / "workspace"), top / "copy", OwnPlaces(), images)
    work = top / "copy" / "a"
    return lambda: changes(str(top / "copy"), copied, images, OwnPlaces()), lambda: work.write_text("two\n")


def surveyed_file(top: Path) -> tuple[Look, Change]:
    surveyor = Surveyor(OwnPlaces())
    (top / "a").write_text("one\n")
    # Named files of a workspace that is too large are looked at one by one, and so with the times of this test.
    folders = [str(number) for number in range(3)]
    for each in folders:
        (top / each).mkdir()
    return lambda: surveyor.survey(str(top), 0, ["a"]), lambda: (top / "a").write_text("two\n")


@pytest.mark.parametrize(
    "remembered",
    [
        protected_file, controlling_name, link_in_a_protected_folder, hooks_of_a_configuration, second_name,
        secret(".env"), secret(".npmrc"), page, approved_program, file_of_a_copy, surveyed_file,
    ],
    ids=lambda each: each.__name__,
)  # fmt: skip
def test_a_change_within_the_second_of_a_look_is_seen(
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    remembered: Callable[[Path], tuple[Look, Change]],
) -> None:
    monkeypatch.setattr("holdfast.tools.survey.MAX_FOLDERS", 1)
    look, change = remembered(tmp_path)
    before = look()
    assert look() == before
    change()
    assert look() != before


def test_a_protected_file_is_put_back_however_old_a_time_of_whole_seconds_is(
    tmp_path: Path, clock: Clock
) -> None:
    """On such a disk, as FAT is, a program may set all times of a file."""
    clock.after_ms = 3_600_000
    look, change = protected_file(tmp_path)
    change()
    assert look() == (str(tmp_path / ".envrc"),)


@pytest.mark.parametrize(
    ("changed_ns", "looked_ms", "expected"),
    [
        (100_000_000_000, 100_000, True),
        (100_000_000_000, 101_900, True),
        (100_000_000_000, 102_100, False),
        (100_000_000_001, 100_040, True),
        (100_000_000_001, 100_060, False),
        (100_000_000_001, 99_000, True),
    ],
)
def test_how_long_the_time_of_a_file_proves_nothing(changed_ns: int, looked_ms: int, expected: bool) -> None:
    assert is_fresh(changed_ns, looked_ms) == expected
