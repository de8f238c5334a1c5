"""read_file, write_file and edit_file: pages, whole writes, exact edits, and what a probe finds."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.protocol.ports import Medium
from holdfast.protocol.tools import FileChange, Files
from holdfast.tools import writing
from holdfast.tools.blocking import Refused
from holdfast.tools.own import OwnPlaces
from holdfast.tools.pages import Pages
from holdfast.tools.workspace import Root
from tests.syncs import record_syncs
from tests.tools.conftest import Bench


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.requirement("C13")
async def test_a_new_file_in_new_folders_is_written_and_read_back(bench: Bench) -> None:
    written = await bench.call("write_file", path="a/b/c.txt", content="héllo\n")
    assert (written.status, written.text) == ("ok", "Wrote 7 bytes to a/b/c.txt.")
    assert (await bench.call("read_file", path="a/b/c.txt")).text == "héllo\n"
    assert [path.name for path in (bench.workspace / "a" / "b").iterdir()] == ["c.txt"]


async def test_a_long_file_is_read_in_pages_that_say_where_to_go_on(bench: Bench) -> None:
    (bench.workspace / "long").write_text("".join(f"line {n}\n" for n in range(1, 5_001)))
    first = (await bench.call("read_file", path="long", limit=3)).text
    assert first == "line 1\nline 2\nline 3\n[lines 1-3 of 5000; continue with offset=4]"
    assert (await bench.call("read_file", path="long", offset=4_999)).text == (
        "line 4999\nline 5000\n[lines 4999-5000 of 5000]"
    )
    offset, seen = 1, ""
    while True:
        text = (await bench.call("read_file", path="long", offset=offset)).text
        page, _, note = text.rpartition("[lines ")
        seen += page
        assert len(text) < 24_000
        if "offset=" not in note:
            break
        offset = int(note.split("offset=")[1].rstrip("]"))
    assert seen == (bench.workspace / "long").read_text()


async def test_odd_files_are_told_apart(bench: Bench) -> None:
    (bench.workspace / "empty").touch()
    (bench.workspace / "binary").write_bytes(b"\x7fELF\0\0")
    (bench.workspace / "no-end").write_text("a\nb")
    (bench.workspace / "one-line").write_text("x" * 50_000 + "\nend\n")
    (bench.workspace / "latin").write_bytes(b"caf\xe9\n")
    assert (await bench.call("read_file", path="empty")).text == "[empty is empty]"
    assert (await bench.call("read_file", path="no-end")).text == "a\nb"
    assert (await bench.call("read_file", path="latin")).text == "caf\ufffd\n"
    cut = (await bench.call("read_file", path="one-line")).text
    assert cut.endswith("[lines 1-1 of 2; line 1 is longer than a page and was cut; continue with offset=2]")
    for path, word in (("binary", "binary"), ("gone", "No such file"), ("no-end/x", "not a folder")):
        refused = await bench.run("read_file", path=path)
        assert refused.status == "error"
        assert word in refused.text
    beyond = await bench.call("read_file", path="no-end", offset=9)
    assert (beyond.status, beyond.text) == ("error", "no-end has 2 lines. There is no line 9.")


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(17) + b"IEND"


def test_an_image_is_read_whole_and_others_are_not_taken_for_one(tmp_path: Path) -> None:
    pages, root = Pages(), Root(str(tmp_path), OwnPlaces())
    for name, content in (("a.png", PNG), ("half", PNG[:20]), ("b.txt", b"text"), ("c.pdf", b"%PDF-1.7")):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "large").write_bytes(PNG + bytes(5_000_000))
    found = pages.look(root, "a.png")
    assert found is not None
    assert (found.text, found.image) == (f"[image/png, {len(PNG)} bytes: attached]", Medium("image/png", PNG))
    assert pages.look(root, "b.txt") is None
    assert pages.look(root, "c.pdf") is None
    for name, why in (("half", "without a whole header"), ("large", "At most 5,000,000")):
        with pytest.raises(Refused, match=why):
            pages.look(root, name)


async def test_a_huge_file_is_streamed(bench: Bench) -> None:
    with (bench.workspace / "huge").open("wb") as file:
        file.write(b"first\n")
        file.truncate(3 << 30)
    with (bench.workspace / "huge").open("r+b") as file:
        file.write(b"\n" * 10_000)
    text = (await bench.call("read_file", path="huge", limit=1)).text
    assert "continue with offset=2" in text


async def test_an_edit_replaces_exactly_one_place_or_all(bench: Bench) -> None:
    path = bench.workspace / "a.py"
    path.write_text("x = 1\ny = 1\r\nx = 1\n", newline="")
    twice = await bench.call("edit_file", path="a.py", old="x = 1", new="x = 2")
    assert twice.status == "error"
    assert "occurs 2 times in a.py (lines 1, 3)" in twice.text
    assert (
        await bench.call("edit_file", path="a.py", old="y = 1", new="y = 3")
    ).text == "Replaced 1 place in a.py."
    assert (await bench.call("edit_file", path="a.py", old="x = 1", new="", all=True)).text == (
        "Replaced 2 places in a.py."
    )
    assert path.read_bytes() == b"\ny = 3\r\n\n"


@pytest.mark.parametrize(
    ("content", "old", "word"),
    [
        (
            b"def total(a, b):\n    return a - b\n",
            "def total(a,b):",
            "The nearest line is 1: 'def total(a, b):'",
        ),
        (b"a\r\nb\r\n", "a\nb", "lines of the file end in \\r\\n"),
        (b"abc", "zzzzzz", "No line is like it"),
        (b"\xff\xfe", "a", "not UTF-8"),
    ],
)
async def test_an_edit_that_does_not_fit_says_what_is_nearest(
    bench: Bench, content: bytes, old: str, word: str
) -> None:
    (bench.workspace / "f").write_bytes(content)
    failed = await bench.call("edit_file", path="f", old=old, new="x")
    assert failed.status == "error"
    assert word in failed.text
    assert (bench.workspace / "f").read_bytes() == content


async def test_an_edit_of_a_missing_file_makes_nothing(bench: Bench) -> None:
    assert "does not exist" in (await bench.call("edit_file", path="new/f", old="a", new="b")).text
    assert list(bench.workspace.iterdir()) == []


async def test_a_write_keeps_the_mode_of_the_file(bench: Bench) -> None:
    script = bench.workspace / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o751)
    await bench.call("write_file", path="run.sh", content="#!/bin/sh\ntrue\n")
    await bench.call("edit_file", path="run.sh", old="true", new="false")
    assert stat.S_IMODE(script.stat().st_mode) == 0o751


@pytest.mark.requirement("L2", "L7")
async def test_an_exception_in_mid_write_leaves_the_old_file_whole_and_nothing_beside_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.workspace / "f").write_text("old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.os, "fsync", full)
    failed = await bench.call("write_file", path="f", content="new")
    monkeypatch.undo()
    assert (failed.status, failed.text) == ("error", "f: No space left on device.")
    assert [path.name for path in bench.workspace.iterdir()] == ["f"]
    assert (bench.workspace / "f").read_text() == "old"


@pytest.mark.requirement("L2", "L7")
async def test_a_file_whose_new_name_the_disk_does_not_confirm_is_told_as_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its new content, so nobody may read that it was not written."""
    (bench.workspace / "f").write_text("old")
    real = os.fsync

    def broken(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(5, "Input/output error")
        real(fd)

    monkeypatch.setattr(writing.os, "fsync", broken)
    written = await bench.call("write_file", path="f", content="new")
    edited = await bench.call("edit_file", path="f", old="new", new="newer")
    monkeypatch.undo()
    assert (bench.workspace / "f").read_text() == "newer"
    for done in (written, edited):
        assert done.status == "ok"
        assert done.text.endswith(
            "The disk did not confirm it (Input/output error): after a power failure the old content may be back."
        )


@pytest.mark.parametrize("failing", ["mkdir", "write", "rename"])
async def test_a_write_that_fails_leaves_no_folder_that_it_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    (bench.workspace / "there").mkdir()
    real = getattr(os, failing)

    def full(*args: object, **rest: object) -> object:
        if failing == "mkdir" and args[0] != "deep":
            return real(*args, **rest)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    failed = await bench.call("write_file", path="there/new/deep/f", content="new")
    monkeypatch.undo()
    assert (failed.status, failed.text) == ("error", "there/new/deep/f: No space left on device.")
    assert [path.name for path in bench.workspace.rglob("*")] == ["there"]


@pytest.mark.requirement("H1", "L7")
async def test_a_file_is_synced_before_it_takes_its_name_and_its_folder_after_that(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    await bench.call("write_file", path="f", content="content")
    content, name = syncs
    assert (content.path.parent, content.size_bytes) == (bench.workspace, len("content"))
    assert "f" not in content.names
    assert (name.path, name.names) == (bench.workspace, {"f"})


@pytest.mark.requirement("H1", "L2")
async def test_a_write_that_was_killed_before_it_took_its_name_is_probed_as_not_done_and_cleared_away(
    bench: Bench,
) -> None:
    (bench.workspace / "f").write_text("old")
    admission = await bench.admit("write_file", path="f", content="new")
    assert admission.on_interrupt == "probe"
    assert admission.expects == Files((FileChange("f", sha256("old"), sha256("new"), 0o644),))
    program = f"""
import asyncio, os, signal
from holdfast.tools import files, writing
from holdfast.tools.own import OwnPlaces
from holdfast.protocol.ports import CallContext
writing.os.rename = lambda *args, **rest: os.kill(os.getpid(), signal.SIGKILL)
context = CallContext("s", "c", "k", {str(bench.workspace)!r}, 9.0, 9.0, print, lambda: 9**12)
asyncio.run(files.WriteFile(OwnPlaces()).run({{"path": "f", "content": "new"}}, context))
"""
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], timeout=120)
    assert killed.returncode == -9
    assert len(list(bench.workspace.iterdir())) == 2
    assert (await bench.probe("write_file", admission.expects)).happened == "no"
    assert [path.name for path in bench.workspace.iterdir()] == ["f"]
    await bench.run("write_file", path="f", content="new")
    assert (await bench.probe("write_file", admission.expects)).happened == "yes"
    (bench.workspace / "f").write_text("somebody else's")
    assert (await bench.probe("write_file", admission.expects)).happened == "unknown"


async def test_a_probe_leaves_the_temporary_file_of_a_living_writer_alone(bench: Bench) -> None:
    living = bench.workspace / ".holdfast-0123456789abcdef.tmp"
    with living.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        await bench.probe("write_file", Files((FileChange("f", "", sha256("x")),)))
        assert living.exists()
    await bench.probe("write_file", Files((FileChange("f", "", sha256("x")),)))
    assert not living.exists()


@pytest.mark.requirement("H1")
async def test_a_write_removes_what_writers_left_in_its_folder(bench: Bench) -> None:
    """Nobody probes for a call that was never recorded as interrupted, and an unlink may fail."""
    left, named = (
        bench.workspace / name for name in (".holdfast-0123456789abcdef.tmp", ".holdfast-mine.tmp")
    )
    left.write_text("half")
    named.write_text("of somebody else")
    with left.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        await bench.run("write_file", path="f", content="one")
        assert left.exists()
    await bench.run("edit_file", path="f", old="one", new="two")
    assert sorted(path.name for path in bench.workspace.iterdir()) == [named.name, "f"]


async def test_a_temporary_file_that_cannot_be_removed_is_removed_by_the_next_write(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(writing.os, "rename", failing)
        patch.setattr(writing.os, "unlink", failing)
        failed = await bench.call("write_file", path="f", content="one")
    assert (failed.status, failed.text) == ("error", "f: Read-only file system.")
    assert len(list(bench.workspace.iterdir())) == 1
    await bench.run("write_file", path="g", content="two")
    assert [path.name for path in bench.workspace.iterdir()] == ["g"]


async def test_a_writer_whose_temporary_file_another_process_clears_away_takes_another_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process has just locked the new file, because it had no lock yet, and is about to remove it."""
    real, theirs = os.open, list[int]()

    def opened(path: str, flags: int, *args: int, dir_fd: int | None = None) -> int:
        fd = real(path, flags, *args, dir_fd=dir_fd)
        if flags & os.O_EXCL and not theirs:
            theirs.append(real(path, os.O_RDONLY, dir_fd=dir_fd))
            fcntl.flock(theirs[0], fcntl.LOCK_EX)
        return fd

    with monkeypatch.context() as patch:
        patch.setattr(writing.os, "open", opened)
        assert (await bench.run("write_file", path="f", content="new")).status == "ok"
    assert not os.path.samestat(os.fstat(theirs[0]), (bench.workspace / "f").stat())
    os.close(theirs[0])


async def test_a_plan_tells_where_the_write_will_land_behind_links(bench: Bench) -> None:
    (bench.workspace / "real").mkdir()
    (bench.workspace / "near").symlink_to("real")
    admission = await bench.admit("write_file", path="near/new.txt", content="x")
    assert admission.expects == Files((FileChange("real/new.txt", "", sha256("x")),))
    failing = await bench.admit("edit_file", path="near/none.txt", old="a", new="b")
    assert (failing.expects, failing.on_interrupt) == (None, "unknown")


@pytest.mark.requirement("L2-06")
async def test_a_cancelled_write_is_over_when_the_cancellation_arrives(bench: Bench) -> None:
    call = asyncio.create_task(bench.run("write_file", path="f", content="x" * (8 << 20)))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    before = {path.name: path.stat().st_size for path in bench.workspace.iterdir()}
    assert before in ({}, {"f": 8 << 20})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_without_the_right_to_write_gives_a_sentence(bench: Bench) -> None:
    (bench.workspace / "locked").mkdir(mode=0o500)
    failed = await bench.call("write_file", path="locked/f", content="x")
    assert (failed.status, failed.text) == ("error", "locked/f: Permission denied.")


async def test_reading_leaves_no_descriptor_open(bench: Bench) -> None:
    (bench.workspace / "f").write_text("x")
    await bench.call("read_file", path="f")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        await bench.call("read_file", path="f")
        await bench.call("read_file", path="../f")
        await bench.call("write_file", path="d/f", content="x")
        await bench.call("list_dir")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.requirement("C12", "C19")
@pytest.mark.parametrize("tool", ["write_file", "apply_patch"])
async def test_a_file_that_another_process_makes_meanwhile_is_not_overwritten(
    bench: Bench, tool: str
) -> None:
    """The other process holds the lock of the folder, as file tools do between their last look and the rename."""
    patch = "*** Begin Patch\n*** Add File: a.txt\n+mine\n*** End Patch\n"
    given = {"path": "a.txt", "content": "mine\n"} if tool == "write_file" else {"patch": patch}
    file = bench.workspace / "a.txt"
    theirs = os.open(bench.workspace, os.O_RDONLY)
    try:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        making = asyncio.create_task(bench.run(tool, **given))
        await asyncio.sleep(0.3)
        assert not file.exists()
        file.write_text("theirs\n")
        fcntl.flock(theirs, fcntl.LOCK_UN)
        result = await making
    finally:
        os.close(theirs)
    assert (result.status, file.read_text()) == ("error", "theirs\n")


@pytest.mark.requirement("C12", "C19")
async def test_a_file_that_another_process_replaces_meanwhile_is_not_overwritten(bench: Bench) -> None:
    """The other process holds the lock of the file, as file tools do between their last look and the rename."""
    file = bench.workspace / "a.txt"
    file.write_text("old\n")
    theirs = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        editing = asyncio.create_task(bench.run("edit_file", path="a.txt", old="old", new="mine"))
        await asyncio.sleep(0.3)
        assert file.read_text() == "old\n"
        (bench.workspace / "b.txt").write_text("theirs\n")
        (bench.workspace / "b.txt").rename(file)
        fcntl.flock(theirs, fcntl.LOCK_UN)
        result = await editing
    finally:
        os.close(theirs)
    assert result.status == "error"
    assert file.read_text() == "theirs\n"
