"""Which files of a workspace tell secrets, and when they are read again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.redact import Redactor
from holdfast.tools import secret_files
from holdfast.tools.secret_files import MAX_ENTRIES, MAX_MASKED, SecretFiles

VALUE = "plum-tree" + "-under-7-moons"
OTHER = "pear-tree" + "-under-8-moons"

pytestmark = pytest.mark.requirement("A4")


class FixedClock:
    """A clock that somebody sets."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    uptime_ms = awake_ms = now_ms


def known(folder: Path) -> tuple[Redactor, SecretFiles]:
    """The secrets of a folder, in which nothing has just changed."""
    redact = Redactor()
    files = SecretFiles(redact, FixedClock(SYSTEM_CLOCK.now_ms() + 60_000))
    files.look_now(str(folder))
    return redact, files


def settle(path: Path, at_s: int) -> None:
    """Set times back as a program can, so that only the time that it cannot set tells of a change."""
    os.utime(path, (at_s, at_s))
    os.utime(path.parent, (1_700_000_000, 1_700_000_000))


@pytest.mark.parametrize(
    "path", [".env", ".env.local", "app/.env", "app/web/.env.production", ".aws/credentials", ".pgpass"]
)
def test_a_secret_file_is_read_in_the_top_folder_and_two_below(tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"h:1:d:u:{VALUE}\n" if path == ".pgpass" else f"API_TOKEN={VALUE}\n")
    redact, files = known(tmp_path)
    assert redact(f"It is {VALUE}.") == "It is [redacted:known]."
    assert files.named_in(f"x {VALUE} y", str(tmp_path)).startswith(f"{path}:")
    assert files.named_in(VALUE.encode().hex(), str(tmp_path))
    assert not redact.known_in(VALUE)


@pytest.mark.parametrize(
    "path", [".env.example", "notes.txt", "a/b/c/.env", "node_modules/.env", ".git/.env"]
)
def test_other_files_are_not_read(tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"API_TOKEN={VALUE}\n")
    redact, files = known(tmp_path)
    assert (redact(VALUE), files.named_in(VALUE, str(tmp_path))) == (VALUE, "")


def test_neither_links_nor_pipes_nor_folders_are_read(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    for folder in (workspace, outside, workspace / ".env.d", workspace / ".env.local"):
        folder.mkdir()
    (outside / ".env").write_text(f"API_TOKEN={VALUE}\n")
    (outside / "config.json").write_text(f'{{"identitytoken": "{VALUE}"}}')
    (workspace / ".env").symlink_to(outside / ".env")
    (workspace / "sub").symlink_to(outside)
    (workspace / ".docker").symlink_to(outside)
    os.mkfifo(workspace / ".netrc")
    os.mkfifo(workspace / ".env.pipe")
    redact, _ = known(workspace)
    assert redact(VALUE) == VALUE


def test_a_changed_file_is_read_again_and_its_old_value_stays_known(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(f"API_TOKEN={VALUE}\n")
    settle(file, 1_700_000_001)
    redact, files = known(tmp_path)
    early = redact.also(["another-value-1"])
    file.write_text(f"API_TOKEN={OTHER}\n")
    settle(file, 1_700_000_002)
    files.look_now(str(tmp_path))
    for each in (redact, early):
        assert each(f"{VALUE} {OTHER}") == "[redacted:known] [redacted:known]"
    assert files.named_in(OTHER, str(tmp_path)) == ".env:API_TOKEN"
    assert files.named_in(VALUE, str(tmp_path))
    file.unlink()
    files.look_now(str(tmp_path))
    assert redact(OTHER) == "[redacted:known]"


def test_a_value_of_the_same_length_and_time_is_another_value(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(f"API_TOKEN={VALUE}\n")
    settle(file, 1_700_000_001)
    redact, files = known(tmp_path)
    file.write_text(f"API_TOKEN={OTHER}\n")
    settle(file, 1_700_000_001)
    files.look_now(str(tmp_path))
    assert redact(OTHER) == "[redacted:known]"


def test_a_file_that_has_just_changed_is_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        secret_files, "_stamp", lambda facts: (1, 1, 1, 1)
    )  # all within a tick of the disk's clock
    file = tmp_path / ".env"
    file.write_text(f"API_TOKEN={VALUE}\n")
    changed_ms = file.stat().st_ctime_ns // 1_000_000
    redact, clock = Redactor(), FixedClock(changed_ms + 40)
    files = SecretFiles(redact, clock)
    for value, later_ms, is_known in (
        (VALUE, 0, True),
        (OTHER, 60_000, True),
        ("fig-tree-under-9-moons", 0, False),
    ):
        with file.open("r+") as opened:  # no name changes, so the folder does not tell of it
            opened.write(f"API_TOKEN={value}\n")
        files.look_now(str(tmp_path))
        clock.ms += later_ms
        files.look_now(str(tmp_path))
        assert (redact(value) == "[redacted:known]") == is_known


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("path", [".env", "conf/.env"])
def test_a_program_cannot_hide_a_new_file_by_setting_the_time_of_its_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(secret_files, "SWEEP_MS", 0)
    folder = (tmp_path / path).parent
    folder.mkdir(exist_ok=True)
    redact, files = known(tmp_path)
    was = folder.stat()
    (folder / ".env").write_text(f"API_TOKEN={VALUE}\n")
    os.utime(folder, ns=(was.st_atime_ns, was.st_mtime_ns))
    files.look_now(str(tmp_path))
    assert redact(VALUE) == "[redacted:known]"


def test_a_folder_that_has_just_changed_is_read_each_time(tmp_path: Path) -> None:
    """Its next change may have the same time."""
    (tmp_path / "x").touch()
    os.utime(tmp_path, (1, 1))
    now_ms = tmp_path.stat().st_ctime_ns // 1_000_000
    scans = [secret_files._Scan({}, ms) for ms in (now_ms, now_ms + 60_000)]
    for scan in scans:
        scan.run(str(tmp_path))
    assert [scan.folders[""] < 0 for scan in scans] == [True, False]


def test_however_often_a_program_changes_its_secrets_a_search_looks_for_a_bounded_number(
    tmp_path: Path,
) -> None:
    redact, files = known(tmp_path)
    counts: list[int] = []
    for turn in range(15):
        for name in (".env", ".env.local"):
            lines = [f"TOKEN_{number}=value-{turn}-{name}-{number}-{VALUE}" for number in range(64)]
            (tmp_path / name).write_text("\n".join(lines))
        files.look_now(str(tmp_path))
        counts.append(len(redact._known.needles))
    assert counts[1] > counts[0]
    assert counts[-1] == max(counts) <= 10 * MAX_MASKED
    newest = [f"value-{turn}-.env-7-{VALUE}" for turn in (14, 13, 0)]
    assert [redact(each) == "[redacted:known]" for each in newest] == [True, True, False]


def test_a_new_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_files, "SWEEP_MS", 0)
    (tmp_path / "app").mkdir()
    redact, files = known(tmp_path)
    (tmp_path / "app" / ".env").write_text(f"API_TOKEN={VALUE}\n")
    (tmp_path / ".netrc").write_text(f"machine h password {OTHER}\n")
    files.look_now(str(tmp_path))
    assert redact(f"{VALUE} {OTHER}") == "[redacted:known] [redacted:known]"


def test_nothing_is_read_again_without_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".env"
    file.write_text(f"API_TOKEN={VALUE}\n")
    settle(file, 1_700_000_001)
    _, files = known(tmp_path)
    monkeypatch.setattr(files, "read", lambda workspace: pytest.fail("It was read again."))
    files.look_now(str(tmp_path))


def test_a_call_is_refused_only_for_a_value_of_its_own_workspace(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    theirs.mkdir()
    (theirs / ".env").write_text(f"API_TOKEN={VALUE}\n")
    redact, files = known(mine)
    files.look_now(str(theirs))
    assert files.named_in(VALUE, str(mine)) == ""
    assert files.named_in(VALUE, str(theirs)) == ".env:API_TOKEN"
    assert redact(VALUE) == "[redacted:known]"


def test_a_folder_with_very_many_files_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_files, "MAX_ENTRIES_OF_FOLDER", 100)
    for number in range(200):
        (tmp_path / f"{number}.env").touch()
    (tmp_path / ".env").write_text(f"API_TOKEN={VALUE}\n")
    scan = secret_files._Scan({}, SYSTEM_CLOCK.now_ms())
    scan.run(str(tmp_path))
    assert scan._entries == 100 < MAX_ENTRIES
    assert list(scan.files) == [".env"]


def test_what_does_not_exist_has_no_secrets(tmp_path: Path) -> None:
    redact, files = known(tmp_path / "missing")
    assert (redact(VALUE), files.named_in(VALUE, str(tmp_path / "missing"))) == (VALUE, "")
