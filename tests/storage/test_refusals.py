"""What the storage says when it cannot go on is true: what cannot be done, with which file, and what to do.

Each case is a real one: rights, limits and locks of the system, met by the real command in its own process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.protocol.events import MessageReceived, ToolCallFinished
from holdfast.protocol.tools import CallResult
from holdfast.storage.home import BLOBS, DATABASE
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.conformance_store import drive
from tests.edge import nursery
from tests.storage.power import built_shim

AS_ANYBODY = """
import ctypes, struct
libc = ctypes.CDLL(None)
header, data = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
assert not libc.capget(header, data)
words = struct.unpack("6I", data)
assert not libc.capset(header, struct.pack("6I", *(word & ~0b110 for word in words[:3]), *words[3:]))
"""
"""Takes two capabilities off this process, without which file rights bind root too."""


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """A home with one session and one blob."""
    home = tmp_path / "outer" / "home"
    home.parent.mkdir()
    store = SqliteStore.open(home)
    driving = await drive(store)
    blob = await store.blobs.put(b"the whole output")
    await driving.commit(MessageReceived("one"), ToolCallFinished("t1.c1", CallResult("ok", "x", blob=blob)))
    await store.aclose()
    return home


@pytest.fixture
def chmod(tmp_path: Path) -> Iterator[Callable[[Path, int], None]]:
    """Changes rights; they are given back, so that the folder of the test can be removed."""
    changed: dict[Path, int] = {}

    def change(path: Path, mode: int) -> None:
        changed[path] = path.stat().st_mode
        path.chmod(mode)

    yield change
    for path, mode in reversed(changed.items()):
        with suppress(FileNotFoundError, NotADirectoryError):
            path.chmod(mode)


def answers(home: Path, *commands: str, prepare: str = AS_ANYBODY) -> list[tuple[int, dict[str, Any]]]:
    """The exit code and the one JSON object of each command, all run by one process."""
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    environ |= {"HOLDFAST_ADMIN_CONFIG": "/nowhere", "HOLDFAST_HOME": str(home)}
    done = nursery.run(commands, code=prepare + _ONE_BY_ONE, text=True, timeout=120, cwd="/", env=environ)
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


_ONE_BY_ONE = """
import contextlib, io, json, sys
from holdfast.cli.root import run
for command in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run([*command.split(), "--json"])
    print(json.dumps([code, json.loads(out.getvalue() or "null")]))
"""
LOOKING = ("sessions", "show last", "fsck")
Chmod = Callable[[Path, int], None]


def test_a_home_that_cannot_be_entered_is_said_to_be_that(home: Path, chmod: Chmod) -> None:
    for closed in (home, home.parent):
        chmod(closed, 0)
        for code, answer in answers(home, *LOOKING):
            assert (code, answer["error"]["code"]) == (9, "storage_unreadable")
            assert answer["error"]["message"].endswith(
                f"cannot be read: the folder {closed} may not be entered"
            )
            assert "owner and permissions" in answer["error"]["hint"]
            assert "need no more than to read it" not in answer["error"]["hint"]
        chmod(closed, 0o700)


def test_a_database_that_may_not_be_read_is_said_to_be_that(home: Path, chmod: Chmod) -> None:
    chmod(home / DATABASE, 0)
    for code, answer in answers(home, *LOOKING):
        assert (code, answer["error"]["code"]) == (9, "storage_unreadable")
        assert answer["error"]["message"] == f"{home / DATABASE} cannot be read: its permissions forbid it"


def test_a_home_that_may_only_be_read_is_said_to_be_that(home: Path, chmod: Chmod) -> None:
    chmod(home / DATABASE, 0o400)
    chmod(home, 0o500)
    (code, _), (refused, answer) = answers(home, "fsck", "resume last hi -m script:/dev/null")
    assert (code, refused, answer["error"]["code"]) == (0, 9, "storage_read_only")
    assert answer["error"]["message"] == f"{home / DATABASE} cannot be written: its permissions forbid it"


def test_blobs_that_cannot_be_read_are_damage_beside_which_the_check_goes_on(
    home: Path, chmod: Chmod
) -> None:
    blob = next(path for path in (home / BLOBS).rglob("*") if path.is_file())
    chmod(blob, 0)
    [(code, answer)] = answers(home, "fsck")
    [damage] = answer["damage"]
    assert (code, damage["kind"]) == (1, "blob")
    assert damage["message"] == f"{blob} cannot be read: its permissions forbid it"
    shutil.rmtree(home / BLOBS)
    (home / BLOBS).write_text("not a folder")
    [(code, answer)] = answers(home, "fsck")
    assert (code, answer["damage"][0]["message"]) == (1, f"{blob} cannot be used: Not a directory")


def test_a_home_in_a_file_is_exit_2_for_every_command(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for home in (tmp_path / "file", tmp_path / "file" / "deeper"):
        for code, answer in answers(home, *LOOKING, "doctor", "run x -m script:/dev/null"):
            assert (code, answer["error"]["message"]) == (2, f"The home {home} is not a folder.")


def test_a_folder_in_the_way_of_the_log_is_told(home: Path) -> None:
    (home / f"{DATABASE}-wal").mkdir()
    for code, answer in answers(home, *LOOKING):
        assert (code, answer["error"]["message"]) == (
            9,
            f"{home / DATABASE}, or {DATABASE}-wal or {DATABASE}-shm beside it, cannot be opened",
        )


def test_too_many_open_files_are_said_to_be_that(home: Path) -> None:
    # One for the list of files of `answers` itself, three for the event loop, and none is left for the database.
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (7, 7))\n"
    [(code, answer)] = answers(home, "sessions", prepare=few)
    assert (code, answer["error"]["message"]) == (
        9,
        f"{home / DATABASE} cannot be opened: too many files are open",
    )
    assert "ulimit -n" in answer["error"]["hint"]


_FAILING = """
import asyncio, ctypes, errno, json, os, sys
from pathlib import Path
from holdfast.errors import StorageError
from holdfast.protocol.events import MessageReceived
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.conformance_store import drive
shim = ctypes.CDLL(os.environ.pop("LD_PRELOAD"))
home = Path(sys.argv[1])

def fail(error, kinds, last=1 << 40):
    first, last = ctypes.c_long(1), ctypes.c_long(last)
    shim.disk_arm(str(home).encode(), first, last, error, kinds, b"/dev/null")

async def main():
    for number, (error, kinds) in enumerate(((errno.EIO, 2), (errno.EIO, 1), (errno.ENOSPC, 1)), 1):
        store = SqliteStore.open(home)
        driving = await drive(store, number)
        await store.sessions()  # the connection is there, and what it read is old
        await driving.commit(MessageReceived("zero"))
        fail(error, kinds)
        try:
            if kinds == 2:
                await store.sessions()
            else:
                await driving.commit(MessageReceived("one"))
        except StorageError as refusal:
            print(json.dumps([refusal.code, refusal.message, refusal.hint]))
        fail(0, 0, 0)
        await driving.commit(MessageReceived("two"))
        await store.release(driving.lease)
        await store.aclose()

asyncio.run(main())
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler for the shim")
def test_a_disk_that_fails_is_said_to_be_that_and_writing_goes_on_when_it_works_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "-c", _FAILING, str(home)],
        capture_output=True, text=True, check=False,
        env={"LD_PRELOAD": str(built_shim()), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reading, writing, full = (json.loads(line) for line in done.stdout.splitlines())
    database = home / DATABASE
    assert reading[:2] == [
        "storage_corrupt",
        f"{database} is damaged or its disk fails to read it: database disk image is malformed",
    ]
    assert writing == [
        "storage",
        f"{database} cannot be read or written: disk I/O error",
        "Check the disk, its quota and the limit on the size of files. `holdfast fsck` lists all damage.",
    ]
    assert full[0] == "storage_full"
