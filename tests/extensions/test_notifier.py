"""The program that notifies: once for each event. A mark is given back if the program was not started."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from holdfast.errors import Lapsed
from holdfast.extensions import notify
from holdfast.extensions.notify import ConfiguredNotifier
from holdfast.protocol.notify import NotificationDue, Notified
from holdfast.redact import Redactor
from holdfast.testing.clock import never_over

DUE = NotificationDue("n1", "done", "done", next=("holdfast show s",))
pytestmark = pytest.mark.requirement("H5")


@pytest.fixture
async def notifier(tmp_path: Path) -> AsyncIterator[ConfiguredNotifier]:
    made = ConfiguredNotifier(
        ("sh", "-c", f"echo >> {tmp_path}/ran"), tmp_path / "home", "", Redactor(), os.environ
    )
    async with aclosing(made):
        yield made


def ran(folder: Path) -> int:
    return len((folder / "ran").read_text()) if (folder / "ran").exists() else 0


def over_after(checks: int) -> Callable[[], int]:
    """Return the check of a lease that ends after so many checks."""
    left = iter(range(checks))

    def check() -> int:
        if next(left, None) is None:
            raise Lapsed
        return never_over()

    return check


async def test_an_event_is_notified_of_once(notifier: ConfiguredNotifier, tmp_path: Path) -> None:
    outcomes = [await notifier.notify("s", str(tmp_path), DUE, never_over) for _ in range(2)]
    assert outcomes == [Notified("sent"), Notified("unknown", notify.LOST)]
    assert ran(tmp_path) == 1


async def test_a_program_that_hangs_is_ended_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "LIMIT_S", 0.2)
    command = ("sh", "-c", f"sleep 600; echo >> {tmp_path}/ran")
    async with aclosing(ConfiguredNotifier(command, None, "", Redactor(), os.environ)) as made:
        told = await made.notify("s", str(tmp_path), DUE, never_over)
    assert told == Notified("failed", "it took longer than 0.2 s, and was killed")
    assert ran(tmp_path) == 0


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("where", ["ws", "more"])
async def test_a_program_that_a_command_may_have_made_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/{where}/bin:{os.environ['PATH']}")
    for name in ("env", "notify-me"):
        planted = tmp_path / where / "bin" / name
        planted.parent.mkdir(parents=True, exist_ok=True)
        planted.write_text(f"#!/bin/sh\necho >> {tmp_path}/ran\n")
        planted.chmod(0o755)
    told = list[Notified]()
    for command in (("env",), ("sh", "-c", "env"), ("notify-me",), (str(planted),)):
        made = ConfiguredNotifier(command, None, "", Redactor(), os.environ, [f"{tmp_path}/more"])
        async with aclosing(made):
            told.append(await made.notify("s", str(tmp_path / "ws"), DUE, never_over))
    assert [each.status for each in told] == ["sent", "sent", "failed", "failed"]
    assert "notify-me is in no folder of PATH" in told[2].problem
    assert "lies where commands can change it" in told[3].problem
    assert ran(tmp_path) == 0


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("checks", [0, 1])
async def test_what_a_driver_without_its_lease_did_not_start_the_next_one_starts(
    notifier: ConfiguredNotifier, tmp_path: Path, checks: int
) -> None:
    with pytest.raises(Lapsed):
        await notifier.notify("s", str(tmp_path), DUE, over_after(checks))
    assert ran(tmp_path) == 0
    assert await notifier.notify("s", str(tmp_path), DUE, never_over) == Notified("sent")
    assert ran(tmp_path) == 1


async def test_old_marks_are_removed_also_while_another_process_removes_them(
    notifier: ConfiguredNotifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "home" / notify.MARKS
    marks.mkdir(parents=True)
    for name in ("old", "older", "young"):
        (marks / name).touch()
    for name in ("old", "older"):
        os.utime(marks / name, (1_700_000_000, 1_700_000_000))
    unlink = Path.unlink

    def raced(path: Path, *, missing_ok: bool = False) -> None:
        for name in ("old", "older"):
            unlink(marks / name, missing_ok=True)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", raced)
    assert await notifier.notify("s", str(tmp_path), DUE, never_over) == Notified("sent")
    assert len([*marks.iterdir()]) == 2


async def test_what_the_program_printed_is_masked_before_it_is_cut(tmp_path: Path) -> None:
    value = "tulip-" + "under-9-moons"
    for after in range(285, 300, 5):
        command = ("sh", "-c", f"printf '{value}%0{after}d' 0; exit 1")
        notifier = ConfiguredNotifier(command, None, "", Redactor({"MINE": value}), os.environ)
        async with aclosing(notifier) as made:
            told = await made.notify("s", str(tmp_path), DUE, never_over)
        assert (told.status, "moons" in f"{told}", "0" * 250 in f"{told}") == ("failed", False, True)
