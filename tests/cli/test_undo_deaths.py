"""Edits and undos that die at any step: the same command completes them, and the tree is what it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.deaths import dies_at
from tests.cli.processes import Cli, calls, says
from tests.cli.test_undo import tree

MOST_STEPS = 400
OFTEN = pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.long)])
"""Every 29th step in the everyday suite."""


class Desk:
    """A home and a workspace that can be set back to what they were."""

    def __init__(self, folder: Path) -> None:
        self.cli = Cli(folder)
        self.work = self.cli.workspace

    def dies_at(self, step: int, *arguments: str) -> int | None:
        """Run a command that dies before that step."""
        environ = {
            "HOLDFAST_HOME": str(self.cli.home), "HOLDFAST_ADMIN_CONFIG": str(self.cli.folder / "admin.toml")
        }  # fmt: skip
        return dies_at(step, self.work, environ, *arguments)

    def saved(self) -> Path:
        """Copy everything as it is now."""
        copy = self.cli.folder / "saved"
        for name in ("home", "workspace"):
            if (self.cli.folder / name).exists():
                shutil.copytree(self.cli.folder / name, copy / name, symlinks=True)
        return copy

    def set_back(self, copy: Path) -> None:
        """Bring everything back as it was copied."""
        for name in ("home", "workspace"):
            shutil.rmtree(self.cli.folder / name, ignore_errors=True)
            if (copy / name).exists():
                shutil.copytree(copy / name, self.cli.folder / name, symlinks=True)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    (desk.work / "a.txt").write_text("first\n")
    (desk.work / "a.txt").chmod(0o750)
    (desk.work / "keep").mkdir()
    (desk.work / "keep" / "b.bin").write_bytes(b"\xff\x00")
    return desk


EDITS = [
    calls("edit_file", path="a.txt", old="first", new="second"),
    calls("write_file", path="new/deep/c.txt", content="c"),
    calls("write_file", path="keep/b.bin", content="now text"),
    says("Done."),
]

PATCH = (
    "*** Begin Patch\n*** Update File: a.txt\n*** Move to: new/deep/c.txt\n@@\n-first\n+second\n"
    "*** Delete File: keep/b.bin\n*** Add File: new/n.txt\n+n\n*** End Patch\n"
)


def deaths(desk: Desk, every: int, *arguments: str) -> Iterator[int]:
    """Every so many steps one at which the command can die, everything set back before it."""
    copy = desk.saved()
    for step in range(every, MOST_STEPS, every):
        desk.set_back(copy)
        if desk.dies_at(step, *arguments) is not None:
            assert step > 10, "it has steps at which it can die"
            return
        yield step
    raise AssertionError("it never ends")


@OFTEN
@pytest.mark.requirement("H2", "L2")
def test_an_undo_that_dies_at_any_step_is_completed_by_the_same_command(desk: Desk, every: int) -> None:
    before = tree(desk.work)
    session = desk.cli("run", "edit", "-m", desk.cli.model(*EDITS), "--json").json["session"]
    after = tree(desk.work)
    for step in deaths(desk, every, "undo", session):
        found = desk.cli("undo", session, "--json")
        assert (found.code, found.json["kept"]) == (0, []), step
        assert tree(desk.work) == before, step
        assert desk.cli("undo", session, "--redo").code == 0
        assert tree(desk.work) == after, step
    assert tree(desk.work) == before
    assert desk.cli("fsck").code == 0


@OFTEN
@pytest.mark.requirement("H2", "L2")
def test_a_redo_that_dies_at_any_step_is_completed_by_the_same_command(desk: Desk, every: int) -> None:
    session = desk.cli("run", "edit", "-m", desk.cli.model(*EDITS), "--json").json["session"]
    after = tree(desk.work)
    assert desk.cli("undo", session).code == 0
    for step in deaths(desk, every, "undo", session, "--redo"):
        found = desk.cli("undo", session, "--redo", "--json")
        assert (found.code, found.json["kept"]) == (0, []), step
        assert tree(desk.work) == after, step


@OFTEN
@pytest.mark.requirement("H2", "L2")
def test_edits_that_die_at_any_step_can_be_undone(desk: Desk, every: int) -> None:
    before = tree(desk.work)
    run = ("run", "edit", "-m", desk.cli.model(*EDITS), "-s", "cli:edit")
    for step in deaths(desk, every, *run):
        if desk.cli("show", "cli:edit").code == 2:  # it died before there was a session
            assert tree(desk.work) == before
            continue
        assert desk.cli("stop", "cli:edit").code == 0
        found = desk.cli("undo", "cli:edit", "--json")
        assert (found.code, found.json["kept"]) == (0, []), step
        assert tree(desk.work) == before, step
        assert desk.cli("resume", "cli:edit", "go on").code in (0, 1), step
        assert desk.cli("fsck").code == 0, step


@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.requirement("H1", "H2", "L2")
def test_a_patch_that_dies_at_any_step_is_whole_or_not_begun_or_told_file_by_file(
    desk: Desk, every: int
) -> None:
    before = tree(desk.work)
    model = desk.cli.model(calls("apply_patch", patch=PATCH), says("Done."))
    run = ("run", "edit", "-m", model, "-s", "cli:edit")
    seen: set[str] = set()
    for step in deaths(desk, every, *run):
        if desk.cli("show", "cli:edit").code == 2:  # it died before there was a session
            assert tree(desk.work) == before
            continue
        assert desk.cli("resume", "cli:edit").code == 0, step
        rows = [
            json.loads(row) for row in desk.cli("show", "cli:edit", "--events", "--json").out.splitlines()
        ]
        told = [row["body"]["text"] for row in rows if row["type"] == "ToolCallAbandoned"]
        changed = {name for name, (content, _) in tree(desk.work).items() if content}
        if told:
            seen.add("told")
            assert "changed: " in told[0], step
            assert "not changed: " in told[0], step
        else:
            assert changed == {"new/deep/c.txt", "new/n.txt"}, step
        assert desk.cli("replay", "cli:edit").code == 0, step
        assert desk.cli("undo", "cli:edit").code == 0, step
        assert tree(desk.work) == before, step
    if every == 1:
        assert seen


@OFTEN
@pytest.mark.requirement("H2", "L2")
def test_a_rewind_that_dies_at_any_step_is_completed_by_the_same_command(desk: Desk, every: int) -> None:
    before = tree(desk.work)
    session = desk.cli("run", "edit", "-m", desk.cli.model(*EDITS), "-s", "cli:edit", "--json").json[
        "session"
    ]
    again = ("rewind", session, "--to", "0", "--files")
    for step in deaths(desk, every, *again):
        branches = int(desk.cli("show", "cli:edit", "--json").json["session"] != session)
        found = desk.cli(*again, "--json")
        assert (found.code, found.json["kept"]) == (0, []), step
        assert tree(desk.work) == before, step
        named = desk.cli("show", "cli:edit", "--json").json["session"]
        assert named != session, step
        assert len(desk.cli("sessions", "--json").out.splitlines()) == 2 + branches, step
        assert desk.cli("fsck").code == 0, step
