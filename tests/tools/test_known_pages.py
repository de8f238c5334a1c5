"""A page that is read again is answered from what is known, and never with what the file no longer says."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import pytest

from holdfast.tools import pages
from holdfast.tools.blocking import Refused
from holdfast.tools.pages import KNOWN_PAGES, Pages
from holdfast.tools.workspace import Root

pytestmark = pytest.mark.requirement("B3")

NOW_S = int(time.time())
_SECOND_NS = 1_000_000_000


class Later:
    """A clock that is ahead: every file here changed long ago."""

    def __init__(self, seconds: float) -> None:
        self._ms = int(seconds * 1000)

    def now_ms(self) -> int:
        return int(time.time() * 1000) + self._ms


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pages, "SYSTEM_CLOCK", Later(3600))
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\nthree\n")
    return path


def read(
    known: Pages, file: Path, path: str = "a.txt", offset: int = 1, limit: int = 10, session: str = "s"
) -> pages.Page:
    return known.read(Root(str(file.parent)), path, offset, limit, session)


def test_the_same_page_in_another_spelling_is_known(file: Path) -> None:
    known = Pages()
    (file.parent / "link").symlink_to("a.txt")
    first = read(known, file)
    assert not first.is_known
    for path in ("a.txt", "./a.txt", str(file), "link"):
        assert read(known, file, path)[:2] == (first.text, True)


def test_another_page_another_session_and_another_file_are_read(file: Path) -> None:
    known = Pages()
    (file.parent / "b.txt").write_text("one\ntwo\nthree\n")
    read(known, file)
    assert not read(known, file, offset=2).is_known
    assert not read(known, file, limit=1).is_known
    assert not read(known, file, session="other").is_known
    assert not read(known, file, "b.txt").is_known


def change(file: Path, how: str) -> None:
    facts = file.stat()
    if how == "in place":
        with file.open("r+") as opened:
            opened.write("ONE")
    elif how == "in place, with its old time":
        with file.open("r+") as opened:
            opened.write("ONE")
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    elif how == "by another file":
        other = file.with_name("new")
        other.write_text("ONE\ntwo\nthree\n")
        os.utime(other, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        other.rename(file)
    else:
        with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
            mapped[:3] = b"ONE"
            mapped.flush()


@pytest.mark.parametrize(
    "how", ["in place", "in place, with its old time", "by another file", "through memory"]
)
def test_a_file_of_the_same_size_that_changed_is_read(file: Path, how: str) -> None:
    known = Pages()
    read(known, file)
    time.sleep(0.05)  # longer than the tick of the kernel's clock
    change(file, how)
    assert read(known, file)[:2] == ("ONE\ntwo\nthree\n", False)


def test_a_file_that_has_just_changed_is_not_known(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two writes within one tick of the clock have the same time: the second one could not be seen.
    known = Pages()
    monkeypatch.setattr(pages, "SYSTEM_CLOCK", Later(0))
    file.write_text("just now\n")
    read(known, file)
    assert not read(known, file).is_known
    # A file system that rounds to seconds needs longer, and a file from the future is never known.
    for changed_s, is_known in [(1, False), (3, True), (-3600, False)]:
        monkeypatch.setattr(pages, "_version", lambda fd, s=changed_s: (0, 0, 9, 0, (NOW_S - s) * _SECOND_NS))
        monkeypatch.setattr(pages, "SYSTEM_CLOCK", Later(NOW_S - time.time()))
        known = Pages()
        read(known, file)
        assert read(known, file).is_known == is_known, changed_s


def test_a_page_that_may_no_longer_be_read_is_refused(file: Path) -> None:
    known = Pages()
    secret = file.with_name("notes")
    secret.write_text("one\n")
    read(known, file, "notes")
    secret.rename(file.with_name(".env"))
    secret.symlink_to(".env")
    with pytest.raises(Refused):
        read(known, file, "notes")


def test_only_so_many_pages_are_remembered_those_used_last(file: Path) -> None:
    known = Pages()
    file.write_text("line\n" * 200)
    for offset in range(1, KNOWN_PAGES + 2):
        read(known, file, offset=offset)
        read(known, file, offset=KNOWN_PAGES + 1)
    assert not read(known, file, offset=1).is_known
    assert read(known, file, offset=KNOWN_PAGES).is_known
