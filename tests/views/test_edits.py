"""What an undo and a redo have to do, where it is not certain that an edit happened."""

from __future__ import annotations

import pytest

from holdfast.protocol.events import Record, ToolCallStarted, Trigger
from holdfast.protocol.tools import FileChange, Files
from holdfast.views.edits import Edit, Found, Place, edits_of, redo_of, undo_of
from tests.growth import grows_in_line


def edit(seq: int, message: int, before: str, after: str, *, is_certain: bool = True, left: str = "") -> Edit:
    """An edit of one file that was undone by record 90."""
    change = FileChange("f", before, after)
    return Edit(seq, message, "/w", change, is_certain=is_certain, undone_seq=90, mode=0o644, left=left)


def goals(edits: list[Edit], count: int = 1, now: str = "x") -> list[str]:
    """What a redo makes of the file, which has the content `now`."""

    def look(_: Place) -> Found:
        return Found(now, 0o644)

    todo = redo_of(edits, count, look)
    assert todo.kept == ()
    return [each.after for each in todo.files if each.after != now]


def test_an_edit_that_never_happened_is_not_made_by_a_redo() -> None:
    lost = edit(3, 1, "x", "y", is_certain=False, left="x")
    assert goals([lost]) == []


def test_an_edit_that_happened_although_nobody_knew_is_made_again() -> None:
    assert goals([edit(3, 1, "x", "y", is_certain=False, left="y")]) == ["y"]


@pytest.mark.parametrize("message", [1, 2])
def test_the_next_edit_tells_whether_the_one_before_it_happened(message: int) -> None:
    lost = edit(3, 1, "x", "y", is_certain=False, left="z")
    assert goals([lost, edit(5, message, "x", "z", left="z")]) == ["z"]
    happened = edit(3, 1, "x", "y", is_certain=False, left="z")
    assert goals([happened, edit(5, message, "y", "z", left="z")], 2) == ["z"]


def test_a_message_that_changed_nothing_does_not_count() -> None:
    there_and_back = [edit(3, 1, "x", "y", left="z"), edit(4, 1, "y", "x", left="z")]
    assert goals([*there_and_back, edit(6, 2, "x", "z", left="z")]) == ["z"]


@pytest.mark.parametrize("files", [1, 10_000])
@pytest.mark.parametrize("now", ["before", "after"])
def test_the_cost_of_an_undo_grows_with_the_number_of_messages(files: int, now: str) -> None:
    def change(at: int) -> FileChange:
        name = f"f{at % files}"
        return FileChange(name, f"{name} {at // files}", f"{name} {at // files + 1}")

    def undo(count: int) -> None:
        edits = [Edit(2 * at, 2 * at - 1, "/w", change(at), is_certain=True) for at in range(count)]
        last = {each.change.path: each.change for each in edits}

        def look(where: Place) -> Found:
            return Found(f"{where.path} 0" if now == "before" else last[where.path].after, 0o644)

        todo = undo_of(edits, count, look)
        assert len(todo.messages) == count
        assert len(todo.files) == (0 if now == "before" else min(files, count))
        assert todo.kept == ()

    assert grows_in_line(undo, 400)


def test_folders_that_a_first_attempt_made_are_remembered() -> None:
    """It made them and was killed, so the second attempt finds them."""

    def started(seq: int, new_folders: int) -> Record:
        change = FileChange("a/b/f", "", "x", new_folders=new_folders)
        event = ToolCallStarted(
            "c1", "write_file", 1, seq, "write", "probe", 10.0, expects=Files((change,), is_marked=True)
        )
        return Record("S", seq, 0, 1, Trigger("finding"), event)

    (found,) = edits_of([started(1, 2), started(2, 0)])
    assert (found.seq, found.change.new_folders) == (2, 2)
