"""Copies of workspaces that are moved, restored, lost, or left by a killed command."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.errors import Conflict
from holdfast.protocol.events import FilesRestored, FilesRestoring, Record
from holdfast.runtime import copies
from holdfast.runtime.fold import readable
from holdfast.runtime.undo import Workshop
from holdfast.views.edits import open_restore
from tests.cli.deaths import dies_in
from tests.cli.desks import Desk, change, desk_in, tree
from tests.cli.processes import Cli, calls, says
from tests.tools.test_copying import git


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return desk_in(tmp_path)


def restored_from_backup(folder: Path) -> None:
    """Put a folder back from a copy of it: every inode and every time of a change is another one."""
    backup = folder.with_name("backup")
    shutil.copytree(folder, backup, symlinks=True)
    shutil.rmtree(folder)
    shutil.copytree(backup, folder, symlinks=True)


def test_a_copy_that_was_restored_from_a_backup_is_still_the_copy(desk: Desk) -> None:
    copy = desk.copied()
    change(Path(copy.folder))
    after = tree(Path(copy.folder))
    restored_from_backup(copies.beside(desk.home.folder))
    found = desk.waits(copy)
    assert found is not None
    changed = ["a.txt", "d", "d/x", "gone", "link", "new/deep/b", "turned", "turned/deep/in"]
    assert [each.path for each in found.changes] == changed
    assert desk.accepted().problems == ()
    assert tree(desk.work) == after


def test_a_copy_that_is_not_where_it_was_is_not_said_to_be_accepted(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("one\n")
    model = cli.model(calls("shell", command="echo two >> a.txt"), says("Done."))
    assert cli("run", "x", "-m", model, "-s", "cli:try", "--isolate", "--autonomy", "full").code == 0
    beside = cli.folder / "home.copies"
    beside.rename(cli.folder / "unmounted")
    again = cli.model(says("Done."), name="again")
    for words in (("accept", "cli:try"), ("run", "go on", "-s", "cli:try", "-m", again)):
        done = cli(*words)
        assert (done.code, "is not where it was made" in done.err) == (1, True), (words, done.err)
        assert "holdfast discard" in done.err
    assert not beside.exists() or [*beside.iterdir()] == []
    shown = cli("show", "cli:try")
    assert "is not where it was made" in shown.err
    shutil.rmtree(beside, ignore_errors=True)
    (cli.folder / "unmounted").rename(beside)
    assert cli("accept", "cli:try").code == 0
    assert (cli.workspace / "a.txt").read_text() == "one\ntwo\n"


def test_while_another_session_works_in_the_copy_it_is_neither_accepted_nor_discarded(desk: Desk) -> None:
    copy = desk.copied()
    before = tree(desk.work)
    change(Path(copy.folder))
    after = tree(Path(copy.folder))
    other = desk.joined(copy)
    for decide in (desk.accepted, desk.discarded):
        with pytest.raises(Conflict, match=f"Session {other} works in the same copy"):
            decide()
    assert (tree(desk.work), tree(Path(copy.folder))) == (before, after)


def test_names_that_are_not_ascii_or_not_utf8_are_known_again(desk: Desk) -> None:
    names = ("café", "d/été/名", "caf\udce9", "\x7f")
    for folder in (desk.work, desk.work / "ignoré"):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("one\n")
    git(desk.work, "init", "--quiet")
    (desk.work / ".gitignore").write_text("ignoré/\n")
    copy = desk.copied()
    (Path(copy.folder) / "café").write_text("two\n")
    (Path(copy.folder) / "ignoré" / "más").write_text("two\n")
    waits = desk.waits(copy)
    assert waits is not None
    assert [each.path for each in waits.changes] == ["café"]
    assert [each.path for each in desk.accepted().done] == ["café"]


def test_a_lost_copy_can_be_given_up_and_the_session_gets_a_new_one(desk: Desk) -> None:
    copy = desk.copied()
    shutil.rmtree(copies.beside(desk.home.folder))
    with pytest.raises(Conflict, match="is not where it was made"):
        desk.accepted()
    assert desk.discarded().is_copy
    assert not copies.is_lost(desk.home.folder, copy.folder)
    assert not desk.discarded().is_copy


def test_files_that_are_edited_after_an_accept_was_done_but_not_cleared_away_are_no_conflict(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = desk.copied()
    change(Path(copy.folder))
    after = tree(Path(copy.folder))
    with monkeypatch.context() as patched:
        patched.setattr(copies, "drop", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        assert dies_in(1_000_000, lambda: len(desk.accepted().problems)) is None
    assert copies.find(desk.home.folder, copy.folder) is not None
    (desk.work / "a.txt").write_text("mine, later\n")
    assert desk.waits(copy) is not None
    assert not getattr(desk.waits(copy), "changes")  # noqa: B009 - it may be None
    assert desk.accepted().problems == ()
    assert tree(desk.work) == after | {"a.txt": (b"mine, later\n", 0o644)}
    assert copies.find(desk.home.folder, copy.folder) is None


def test_work_that_went_on_after_a_killed_accept_waits_and_only_that(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = desk.copied()
    change(Path(copy.folder))
    with monkeypatch.context() as patched:
        patched.setattr(copies, "drop", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        assert dies_in(1_000_000, lambda: len(desk.accepted().problems)) is None
    (desk.work / "a.txt").write_text("mine, later\n")
    (Path(copy.folder) / "more").write_text("more\n")
    found = desk.accepted()
    assert ([each.path for each in found.done], found.problems) == (["more"], ())
    assert (desk.work / "a.txt").read_text() == "mine, later\n"


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.long)])
def test_a_discard_after_a_killed_accept_is_refused_until_the_accept_is_completed(
    desk: Desk, every: int
) -> None:
    before = tree(desk.work)
    seen = set()
    for step in range(every, 400, every):
        copy = desk.copied()
        change(Path(copy.folder))
        after = tree(Path(copy.folder))
        is_over = dies_in(step, lambda: len(desk.accepted().problems)) is not None
        half = tree(desk.work)
        refused = None
        try:
            desk.discarded()
        except Conflict as error:
            refused = error.message
        if refused is not None:
            seen.add("refused")
            assert "was cut off" in refused
            assert tree(desk.work) == half
            assert desk.accepted().problems == ()
            assert tree(desk.work) == after
            desk.undone()
        else:
            seen.add("discarded")
            assert half in (before, after), "what is half done is never left behind"
            if half == after:
                desk.undone()
        assert copies.find(desk.home.folder, copy.folder) is None
        assert tree(desk.work) == before
        if is_over:
            assert seen == {"refused", "discarded"}
            return
    raise AssertionError("it never ends")


def test_a_redo_of_what_was_accepted_removes_the_folders_that_it_removed(desk: Desk) -> None:
    (desk.work / "e" / "f").mkdir(parents=True)
    (desk.work / "e" / "f" / "y").write_text("y\n")
    before = tree(desk.work)
    copy = Path(desk.copied().folder)
    change(copy)
    shutil.rmtree(copy / "e")
    after = tree(copy)
    assert desk.accepted().problems == ()
    for _ in range(2):
        desk.undone()
        assert tree(desk.work) == before
        desk.redone()
        assert tree(desk.work) == after
        assert (desk.work / "d").is_file()
        assert not (desk.work / "e").exists()


def test_a_discard_leaves_nothing_for_the_next_command_to_complete(desk: Desk) -> None:
    async def read(workshop: Workshop) -> Sequence[Record]:
        return [readable(each) for each in await workshop.store.read(desk.session)]

    change(Path(desk.copied().folder))
    desk.discarded()
    desk.doing(read)
    records = desk.found
    assert isinstance(records, list)
    of_files = [each.event for each in records if isinstance(each.event, FilesRestoring | FilesRestored)]
    assert [(type(each), each.why) for each in of_files] == [
        (FilesRestoring, "discard"),
        (FilesRestored, "discard"),
    ]
    assert open_restore(records) is None


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_discard_that_dies_at_any_step_leaves_the_copy_whole_or_gone(desk: Desk, every: int) -> None:
    before = tree(desk.work)
    for step in range(1, 400, every):
        copy = desk.copied()
        change(Path(copy.folder))
        after = tree(Path(copy.folder))
        is_over = dies_in(step, lambda: len(desk.discarded().problems)) is not None
        if copies.find(desk.home.folder, copy.folder) is not None:
            assert tree(Path(copy.folder)) == after
            assert desk.discarded().is_copy
        assert not copies.is_lost(desk.home.folder, copy.folder)
        assert tree(desk.work) == before
        if is_over:
            rest = desk.copied()
            copies.drop(desk.home.folder, rest.folder)
            assert [*copies.beside(desk.home.folder).iterdir()] == []
            assert [*(desk.home.folder / copies.FOLDER).iterdir()] == []
            return
    raise AssertionError("it never ends")


def test_lists_say_which_copies_wait_and_doctor_names_the_old_and_the_lost_ones(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("one\n")
    model = cli.model(calls("shell", command="echo two >> a.txt"), says("Done."))
    assert cli("run", "x", "-m", model, "-s", "cli:try", "--isolate", "--autonomy", "full").code == 0

    def waits() -> object:
        return json.loads(cli("sessions", "--json").out.splitlines()[0])["copy_waits"]

    def told() -> list[tuple[str, str, str]]:
        rows = [json.loads(line) for line in cli("doctor", "--json").out.splitlines()]
        return [(row["severity"], row["message"], row["hint"]) for row in rows if row["id"] == "copies"]

    session = json.loads(cli("sessions", "--json").out.splitlines()[0])["session"]
    assert (waits(), told()) == (True, [("ok", "copies of workspaces that wait: 1", "")])
    assert f"holdfast show {session} --diff" in cli("sessions").out
    [record] = (cli.home / "copies").iterdir()
    content = json.loads(record.read_bytes())
    record.write_text(json.dumps(content | {"made_ms": content["made_ms"] - 15 * 86_400_000}))
    [(severity, message, hint)] = told()
    assert (severity, content["folder"] in message, "MiB" in message) == ("warning", True, True)
    assert f"holdfast discard {session}" in hint
    assert waits() is True, "nothing is removed for its age"
    beside = cli.folder / "home.copies"
    beside.rename(cli.folder / "unmounted")
    assert (waits(), [row[0] for row in told()]) == (False, ["warning"])
    (cli.folder / "unmounted").rename(beside)
    assert cli("accept", "cli:try").code == 0
    assert (waits(), told()) == (False, [])
    assert "a copy waits" not in cli("sessions").out
