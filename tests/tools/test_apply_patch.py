"""apply_patch changes all files of a patch or none, inside the workspace, and a probe tells what a crash left."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import Lapsed
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.settings import Policy
from holdfast.protocol.tools import Allowed, FileChange, Files, Refused
from holdfast.storage.images import Images
from holdfast.tools import apply_patch, writing
from holdfast.tools.own import OwnPlaces
from tests.syncs import record_syncs
from tests.tools.conftest import Bench
from tests.tools.test_confinement import OUTSIDE
from tests.tools.test_files import sha256
from tests.tools.test_patch import begun

PATCH = begun(
    "*** Update File: a.txt", "@@", " one", "-two", "+2", "*** Add File: new/deep/n.txt", "+new",
    "*** Delete File: d.txt", "*** Update File: m.txt", "*** Move to: new/moved.txt", "@@", "-x", "+y",
)  # fmt: skip

GONE = hashlib.sha256(b"\xff gone").hexdigest()


@pytest.fixture
def work(bench: Bench) -> Path:
    (bench.workspace / "a.txt").write_text("one\ntwo\n")
    (bench.workspace / "d.txt").write_bytes(b"\xff gone")
    (bench.workspace / "m.txt").write_text("x\n")
    (bench.workspace / "m.txt").chmod(0o750)
    return bench.workspace


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes() if path.is_file() else b"", path.stat().st_mode)
        for path in folder.rglob("*")
    }


@pytest.mark.requirement("C13")
async def test_one_patch_changes_adds_deletes_and_moves_files(bench: Bench, work: Path) -> None:
    done = await bench.call("apply_patch", patch=PATCH)
    assert (done.status, done.text) == (
        "ok",
        "Changed a.txt.\nAdded new/deep/n.txt.\nMoved m.txt to new/moved.txt.\nDeleted d.txt.",
    )
    assert {name: content for name, (content, _) in tree(work).items() if content} == {
        "a.txt": b"one\n2\n", "new/deep/n.txt": b"new\n", "new/moved.txt": b"y\n",
    }  # fmt: skip
    assert (work / "new" / "moved.txt").stat().st_mode & 0o777 == 0o750


@pytest.mark.requirement("C13")
async def test_if_one_part_does_not_fit_nothing_changes_and_every_reason_is_told(
    bench: Bench, work: Path
) -> None:
    before = tree(work)
    text = PATCH.replace("-two", "-three").replace("d.txt", "e.txt")
    admission = await bench.admit("apply_patch", patch=text)
    assert isinstance(admission, Allowed)
    assert admission.expects is None
    failed = await bench.call("apply_patch", patch=text)
    assert failed.status == "error"
    first, *reasons = failed.text.split("\n")
    assert first == "Nothing was changed."
    assert reasons[0].startswith("a.txt, hunk 1: its lines are not in the file.")
    assert reasons[1:] == ["e.txt does not exist."]
    assert tree(work) == before
    exists = begun("*** Add File: a.txt", "+x", "*** Update File: m.txt", "*** Move to: d.txt")
    failed = await bench.call("apply_patch", patch=exists)
    assert "a.txt exists already" in failed.text
    assert "m.txt cannot move there" in failed.text
    assert tree(work) == before
    assert "This is not a patch" in (await bench.call("apply_patch", patch="Replace two by 2.")).text


@pytest.mark.requirement("C13", "H1")
@pytest.mark.parametrize("failing", [1, 2, 3, 4, 5])
async def test_if_a_write_fails_what_was_written_before_is_put_back(
    bench: Bench, work: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Three files are written and two are removed; each of these fails once."""
    before = tree(work)
    count = 0

    def fails(name: str) -> None:
        real = getattr(os, name)

        def step(*args: object, **rest: object) -> None:
            nonlocal count
            is_temporary = name == "unlink" and str(args[0]).startswith(".holdfast-")
            count += not is_temporary
            if count == failing and not is_temporary:
                raise OSError(28, "No space left on device")
            real(*args, **rest)

        monkeypatch.setattr(writing.os, name, step)

    fails("rename")
    fails("unlink")
    failed = await bench.call("apply_patch", patch=PATCH)
    monkeypatch.undo()
    assert failed.status == "error"
    assert failed.text.endswith(
        "No space left on device. Nothing is changed: what was written before this was put back."
    )
    assert tree(work) == before


async def test_a_file_that_cannot_be_put_back_is_named(
    bench: Bench, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, count = os.rename, 0

    def full(*args: object, **rest: object) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise OSError(28, "No space left on device")
        real(*args, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(writing.os, "rename", full)
    failed = await bench.call("apply_patch", patch=PATCH)
    monkeypatch.undo()
    assert failed.text.endswith("These files were changed and could not be put back: a.txt. Read them again.")
    assert (work / "a.txt").read_text() == "one\n2\n"


@pytest.mark.requirement("H1")
async def test_after_a_crash_between_two_files_a_probe_names_those_that_changed(
    bench: Bench, work: Path
) -> None:
    admission = await bench.admit("apply_patch", patch=PATCH)
    assert isinstance(admission, Allowed)
    assert admission.on_interrupt == "probe"
    assert admission.expects == Files((
        FileChange("a.txt", sha256("one\ntwo\n"), sha256("one\n2\n"), 0o644),
        FileChange("new/deep/n.txt", "", sha256("new\n"), new_folders=2),
        FileChange("new/moved.txt", "", sha256("y\n"), new_folders=1),
        FileChange("d.txt", GONE, "", 0o644),
        FileChange("m.txt", sha256("x\n"), "", 0o750),
    ))  # fmt: skip
    assert (await bench.probe("apply_patch", admission.expects)).happened == "no"
    program = f"""
import asyncio, os, signal
from holdfast.tools import apply_patch, writing
from holdfast.tools.own import OwnPlaces
from holdfast.protocol.ports import CallContext
real, count = os.rename, 0
def rename(*args, **rest):
    global count
    count += 1
    real(*args, **rest) if count < 2 else os.kill(os.getpid(), signal.SIGKILL)
writing.os.rename = rename
context = CallContext("s", "c", "k", {str(work)!r}, 9.0, 9.0, print, lambda: 9**12)
asyncio.run(apply_patch.ApplyPatch(OwnPlaces()).run({{"patch": {PATCH!r}}}, context))
"""
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], timeout=120)
    assert killed.returncode == -9
    found = await bench.probe("apply_patch", admission.expects)
    assert (found.happened, found.told) == (
        "unknown",
        "changed: a.txt; not changed: new/deep/n.txt, new/moved.txt, d.txt, m.txt",
    )
    assert not [*work.rglob("*.tmp")]


async def test_when_the_lease_is_over_nothing_more_is_written_and_nothing_put_back(
    bench: Bench, work: Path
) -> None:
    checks = 0

    def check() -> int:
        nonlocal checks
        checks += 1
        if checks > 3:
            raise Lapsed
        return 9**12

    arguments = msgspec.json.encode({"patch": PATCH}).decode()
    with pytest.raises(Lapsed):
        await bench.tools.run("apply_patch", arguments, bench.context(check=check))
    assert (work / "a.txt").read_text() == "one\n2\n"
    assert (work / "m.txt").exists()


@pytest.mark.requirement("C13")
async def test_git_makes_what_the_tool_applies(bench: Bench, work: Path) -> None:
    def git(*words: str) -> str:
        told = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(work), *words]
        return subprocess.run(told, check=True, capture_output=True).stdout.decode()

    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in work.iterdir() if path.is_file()}

    (work / "d.txt").write_text("text\n" * 3)
    (work / "m.txt").write_text("".join(f"{n}\r\n" for n in range(30)))
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    (work / "a.txt").write_text("zero\none\n2")
    (work / "ä b.txt").write_text("")
    (work / "d.txt").unlink()
    (work / "m.txt").rename(work / "moved.txt")
    (work / "moved.txt").write_bytes((work / "moved.txt").read_bytes().replace(b"\n7\r", b"\nseven\r"))
    after = contents()
    git("add", ".")
    patch = git("diff", "--cached", "-M")
    git("reset", "-q", "--hard")
    done = await bench.call("apply_patch", patch=patch)
    assert done.status == "ok", done.text
    assert contents() == after


@pytest.mark.requirement("L2", "L12", "C13", "C12")
@pytest.mark.parametrize(
    "path", [*OUTSIDE, "/proc/self/root/etc/hosts", ".env", ".git/config", "sub/../.ENV"]
)
async def test_every_path_of_a_patch_is_judged(bench: Bench, work: Path, path: str) -> None:
    (work / ".env").write_text("TOKEN=x\n")
    before = tree(work)
    fine = ["*** Update File: a.txt", "@@", "-two", "+2"]
    for other in (
        [f"*** Add File: {path}", "+x"],
        [f"*** Delete File: {path}"],
        [f"*** Update File: {path}", "@@", "-x", "+y"],
        ["*** Update File: m.txt", f"*** Move to: {path}"],
    ):
        text = begun(*fine, *other)
        assert isinstance(await bench.admit("apply_patch", patch=text), Refused)
        # Also when nobody asked the gates.
        assert (await bench.run("apply_patch", patch=text)).status == "error"
    assert tree(work) == before


@pytest.mark.requirement("C12")
async def test_allowed_paths_and_rules_judge_every_file_of_a_patch(bench: Bench, work: Path) -> None:
    text = begun("*** Update File: a.txt", "@@", "-two", "+2", "*** Delete File: d.txt")
    bench.settings = msgspec.structs.replace(bench.settings, policy=Policy(allowed_paths=("a.txt",)))
    refused = await bench.admit("apply_patch", patch=text)
    assert isinstance(refused, Refused)
    assert "d.txt is not in [policy] allowed_paths" in refused.failure.message
    bench.settings = msgspec.structs.replace(bench.settings, policy=Policy(allowed_paths=("a.txt", "d.txt")))
    assert isinstance(await bench.admit("apply_patch", patch=text), Allowed)


@pytest.mark.requirement("C12")
async def test_two_names_of_one_file_and_hard_links_are_refused(bench: Bench, work: Path) -> None:
    (work / "link").symlink_to("a.txt")
    os.link(work / "d.txt", work / "hard")
    before = tree(work)
    change = ["@@", "-two", "+2"]
    twice = begun("*** Update File: a.txt", *change, "*** Update File: link", *change)
    assert "a.txt and link are the same file" in (await bench.call("apply_patch", patch=twice)).text
    hard = begun("*** Delete File: d.txt")
    assert "hard links" in (await bench.call("apply_patch", patch=hard)).text
    assert tree(work) == before


def meanwhile(change: Callable[[], None], number: int) -> Callable[[], int]:
    """Return a check at which something else changes files: the one of this number."""
    checks = 0

    def check() -> int:
        nonlocal checks
        checks += 1
        if checks == number:
            change()
        return 9**12

    return check


async def patched(bench: Bench, text: str, **changes: Any) -> RawResult:
    arguments = msgspec.json.encode({"patch": text}).decode()
    return await bench.tools.run("apply_patch", arguments, bench.context(**changes))


@pytest.mark.requirement("C13", "L7")
async def test_a_file_that_changes_after_it_was_read_is_not_deleted(bench: Bench, work: Path) -> None:
    text = begun("*** Update File: a.txt", "@@", "-two", "+2", "*** Delete File: d.txt")
    check = meanwhile(lambda: (work / "d.txt").write_text("precious"), 4)  # a.txt is written, d.txt is next
    failed = await patched(bench, text, check=check)
    assert "d.txt was changed by something else in this moment" in failed.text
    assert (work / "d.txt").read_text() == "precious"
    assert (work / "a.txt").read_text() == "one\ntwo\n"


@pytest.mark.requirement("C13", "L2")
async def test_a_folder_that_becomes_a_link_after_it_was_judged_leads_nowhere(
    bench: Bench, work: Path
) -> None:
    for name in ("here", "there"):
        (work / name).mkdir()

    def swap() -> None:
        (work / "here").rename(work / "old")
        (work / "here").symlink_to("there")

    failed = await patched(bench, begun("*** Add File: here/n.txt", "+new"), check=meanwhile(swap, 2))
    assert failed.status == "error"
    assert [*(work / "there").iterdir()] == []


@pytest.mark.requirement("C13", "L7")
async def test_the_lease_is_checked_right_before_each_change_of_a_patch(
    bench: Bench, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for name in ("rename", "unlink"):
        real = getattr(os, name)

        def step(path: str, *args: Any, name: str = name, real: Any = real, **rest: Any) -> None:
            done.extend([name] * (name == "rename" or not path.startswith(".holdfast-")))
            real(path, *args, **rest)

        monkeypatch.setattr(writing.os, name, step)

    def check() -> int:
        done.append("check")
        return 9**12

    assert (await patched(bench, PATCH, check=check)).status == "ok"
    changes = [place for place, each in enumerate(done) if each != "check"]
    assert len(changes) == 5
    # The first one is before the walk to the file, the second one right before the change.
    assert {tuple(done[place - 2 : place]) for place in changes} == {("check", "check")}


@pytest.mark.requirement("H1", "L7")
async def test_the_folder_of_a_deleted_file_is_synced_after_it(
    bench: Bench, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    await bench.call("apply_patch", patch=begun("*** Delete File: d.txt"))
    assert [(each.path, "d.txt" in each.names) for each in syncs] == [(work, False)]


@pytest.mark.requirement("C13")
async def test_a_file_that_changes_again_after_the_patch_is_not_put_back(bench: Bench, work: Path) -> None:
    text = begun("*** Update File: a.txt", "@@", "-two", "+2", "*** Delete File: d.txt")

    def others() -> None:
        (work / "a.txt").write_text("theirs")
        (work / "d.txt").write_text("theirs too")

    failed = await patched(bench, text, check=meanwhile(others, 4))
    assert "could not be put back: d.txt, a.txt" in failed.text
    assert ((work / "a.txt").read_text(), (work / "d.txt").read_text()) == ("theirs", "theirs too")


@pytest.mark.requirement("C13")
async def test_all_files_of_a_patch_together_have_a_bound(
    bench: Bench, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_patch, "PATCHED_BYTES", 9)
    before = tree(work)
    assert "larger than" in (await patched(bench, PATCH)).text
    assert tree(work) == before
    assert (await patched(bench, begun("*** Update File: a.txt", "@@", "-two", "+2"))).status == "ok"


@pytest.mark.requirement("H1", "L5")
async def test_a_patch_keeps_all_contents_and_changes_files_only_as_planned(
    work: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    images = Images(tmp_path / "home", SYSTEM_CLOCK)
    tool, text = (
        apply_patch.ApplyPatch(OwnPlaces(), images),
        begun("*** Update File: a.txt", "@@", "-two", "+2"),
    )
    context = CallContext("s", "c", "k", str(work), 9.0, 9.0, print, lambda: 9**12)
    expects = await tool.plan({"patch": text}, context)
    assert isinstance(expects, Files)
    (work / "a.txt").write_text("one\ntwo\nthree\n")  # it still fits
    context = msgspec.structs.replace(context, expects=expects)
    assert "was changed by something else" in (await tool.run({"patch": text}, context)).text
    (work / "a.txt").write_text("one\ntwo\n")
    assert (await tool.run({"patch": text}, context)).status == "ok"
    (change,) = expects.changes
    kept = [images.get(("s",), mark) for mark in (change.before, change.after)]
    assert kept == [b"one\ntwo\n", b"one\n2\n"]
