"""Drafts of an export and of a copied workspace: what a killed command leaves, the next one removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.runtime.drafts import draft_beside
from tests.cli.test_undo import run, write
from tests.cli.test_undo_deaths import Desk, says


def drafts(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".holdfast-")]


@pytest.mark.parametrize("is_copy", [False, True])
def test_a_draft_that_a_killed_command_left_is_removed_by_the_next_one(tmp_path: Path, is_copy: bool) -> None:
    desk = Desk(tmp_path)
    (desk.work / ".env").write_text("of the workspace")
    session = run(desk.cli, write("a.txt", "a"), says("Done."))
    out = tmp_path / "out"
    out.mkdir()
    copying = ("fork", session, "--at", "5", "--copy")
    command = (*copying, str(out / "it")) if is_copy else ("export", session, str(out / "it"))
    left = step = 0
    while not (out / "it").exists():
        step += 1
        desk.dies_at(step, *command)
        assert len(drafts(out)) <= 1  # the one before it is gone
        left += len(drafts(out))
    assert left > 0
    again = (*copying, str(out / "again")) if is_copy else ("export", session, str(out / "again"))
    assert desk.cli(*again).code == 0
    assert sorted(path.name for path in out.iterdir()) == ["again", "it"]


@pytest.mark.parametrize("is_folder", [False, True])
def test_nobody_removes_the_draft_of_a_writer_that_lives(tmp_path: Path, is_folder: bool) -> None:
    (tmp_path / ".holdfast-mine.draft").write_text("of somebody else")
    with draft_beside(tmp_path / "one", is_folder=is_folder) as (one, _):
        with draft_beside(tmp_path / "two", is_folder=is_folder) as (two, _):
            assert one.exists()
            two.rename(tmp_path / "two")
        assert one.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".holdfast-mine.draft", "two"]
