"""Random edits, undos, redos and rewinds, with kills in the middle of each: the tree is byte for byte what it was, or
the difference is named.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.storage.home import DATABASE
from holdfast.storage.sqlite import SqliteStore
from tests.cli.processes import says
from tests.cli.test_undo import tree
from tests.cli.test_undo_deaths import Desk

PATHS = ("a.txt", "b.txt", "c/d.txt", "c/e.txt", "f/g/h.txt", "f/i.txt", "j.bin", "k/l/m/n.txt")
LAST_STEP = 140
"""Most commands have ended by then."""
KEY = "cli:random"

Tree = dict[str, tuple[bytes, int]]


class Moment(NamedTuple):
    """The tree at a record, and what can be undone and made again there."""

    seq: int
    tree: Tree
    done: tuple[tuple[Tree, Tree], ...]
    """The messages in effect that changed something: the trees before and after."""
    undone: tuple[tuple[Tree, Tree], ...]


class World:
    """A session that edits files at random, and what its tree must be."""

    def __init__(self, desk: Desk, seed: int) -> None:
        self.desk = desk
        self.pick = random.Random(seed)
        self.lines: list[dict[str, Any]] = []
        self.edits = 0
        self.kills = 0
        self.messages = 0
        self.done: list[tuple[Tree, Tree]] = []
        self.undone: list[tuple[Tree, Tree]] = []
        self.moments: list[Moment] = []
        self.masked = 0
        """How many edits held what looks like a secret."""

    # --- edits

    def edit(self) -> None:
        """A message with some edits. It is killed and resumed until it is done."""
        before = tree(self.desk.work)
        expected = {path: what[0] for path, what in before.items()}
        answered, masked, kills = len(self.lines), self.masked, self.kills
        for _ in range(self.pick.randrange(1, 5)):
            self.lines.append(
                {"tool_calls": [self._call(expected) for _ in range(self.pick.randrange(1, 3))]}
            )
        self.lines.append(says("Done."))
        self.messages += 1
        model = self.desk.cli.model(*self.lines)
        run = ("run", f"message {self.messages}", "-m", model, "-s", KEY)
        self._killed(*run)
        while self._count("MessageReceived") < self.messages:
            assert self.desk.cli(*run).code == 0
        while self._count("Responded") < len(self.lines):
            self._killed("resume", KEY)
            assert self.desk.cli("resume", KEY).code == 0
        assert self._count("Responded") - answered == len(self.lines) - answered
        after = tree(self.desk.work)
        # A call with a secret never runs from its copy: if it was killed, the model would have to make it again.
        if self.masked == masked or self.kills == kills:
            contents = {path: what[0] for path, what in after.items() if (self.desk.work / path).is_file()}
            assert contents == {
                path: content for path, content in expected.items() if (self.desk.work / path).is_file()
            }
            assert not [path for path in expected if path not in after]
        if before != after:
            self.done.append((before, after))
        if self._has_edited():
            self.undone.clear()
        self._remember()

    def _has_edited(self) -> bool:
        """Return whether an edit of the last message was to change a file, also there and back."""
        rows = self._rows()
        last = max(at for at, row in enumerate(rows) if row["type"] == "MessageReceived")
        planned = [row["body"].get("expects") for row in rows[last:] if row["type"] == "ToolCallStarted"]
        changes = [change for each in planned if each is not None for change in each["changes"]]
        return any(change["before"] != change["after"] for change in changes)

    def _call(self, expected: dict[str, bytes]) -> dict[str, Any]:
        """A call that writes a file or edits one; what is expected then."""
        self.edits += 1
        path = self.pick.choice(PATHS)
        content = expected.get(path, b"")
        word = f"w{self.pick.randrange(30)}"
        if self.pick.random() < 0.25:
            self.masked += 1
            word = f'password = "{word}-{word}"'
        if content.isascii() and content and self.pick.random() < 0.4:
            old = content.decode().split()[0]
            expected[path] = content.replace(
                old.encode(), word.encode()
            )  # the tool refuses it for the same word
            arguments = {"path": path, "old": old, "new": word, "all": True}
            return {"name": "edit_file", "arguments": arguments}
        text = " ".join([word] * self.pick.randrange(1, 50)) + self.pick.choice(["", "\n", "\r\n", "é"])
        expected[path] = text.encode()
        return {"name": "write_file", "arguments": {"path": path, "content": text}}

    # --- back and forth

    def undo(self) -> None:
        """Undo some messages."""
        count = min(self.pick.randrange(1, 4), len(self.done))
        self._put_back("undo", KEY, str(max(count, 1)))
        for _ in range(count):
            self.undone.append(self.done.pop())
        if count:
            assert tree(self.desk.work) == self.undone[-1][0]
        self._remember()

    def redo(self) -> None:
        """Make some messages again."""
        count = min(self.pick.randrange(1, 4), len(self.undone))
        self._put_back("undo", KEY, str(max(count, 1)), "--redo")
        for _ in range(count):
            self.done.append(self.undone.pop())
        if count:
            assert tree(self.desk.work) == self.done[-1][1]
        self._remember()

    def rewind(self) -> None:
        """Go back to a moment, and on from there."""
        moment = self.pick.choice(self.moments)
        session = self._ends()[0]
        self._put_back("rewind", session, "--to", str(moment.seq), "--files")
        assert tree(self.desk.work) == moment.tree
        self.moments = [each for each in self.moments if each.seq <= moment.seq]
        self.done, self.undone = list(moment.done), list(moment.undone)
        self.messages = self._count("MessageReceived")
        del self.lines[self._count("Responded") :]

    def disturb(self) -> None:
        """Something else changes files before an undo: they stay as they are, and are named."""
        if not self.done:
            return
        goal, now = self.done[-1]
        changed = [path for path in PATHS if goal.get(path) != now.get(path) and path in now]
        if not changed:
            return
        path = self.pick.choice(changed)
        (self.desk.work / path).write_bytes(b"somebody else's")
        found = self.desk.cli("undo", KEY, "--json")
        assert (found.code, [each["path"] for each in found.json["kept"]]) == (1, [path])
        left = tree(self.desk.work)
        assert left[path][0] == b"somebody else's"
        folders = {str(folder) for folder in Path(path).parents}
        others = {name: what for name, what in left.items() if name != path and name not in folders}
        assert others == {name: what for name, what in goal.items() if name != path and name not in folders}
        (self.desk.work / path).write_bytes(now[path][0])
        (self.desk.work / path).chmod(now[path][1] & 0o7777)
        assert self.desk.cli("undo", KEY).code == 0
        assert tree(self.desk.work) == goal
        self.undone.append(self.done.pop())
        self._remember()

    def _put_back(self, *command: str) -> None:
        """Run the command, and again if it was killed before it was done."""
        ends = self._ends()
        self._killed(*command)
        if self._ends() == ends:
            found = self.desk.cli(*command, "--json")
            assert (found.code, found.json["kept"]) == (0, []), found

    def _ends(self) -> tuple[str, int]:
        """What tells whether files were put back: the session of the name, and the outcomes in its journal."""
        session, rows = asyncio.run(self._read())
        return session, sum(row["type"] == "FilesRestored" for row in rows)

    # --- parts

    def _killed(self, *command: str) -> None:
        """Half of the times, run it once and kill it in the middle."""
        if self.pick.random() < 0.5:
            self.kills += self.desk.dies_at(self.pick.randrange(1, LAST_STEP), *command) is None

    def _remember(self) -> None:
        rows = self._rows()
        self.moments.append(
            Moment(rows[-1]["seq"], tree(self.desk.work), tuple(self.done), tuple(self.undone))
        )

    def _count(self, kind: str) -> int:
        return sum(row["type"] == kind for row in self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        return asyncio.run(self._read())[1]

    async def _read(self) -> tuple[str, list[dict[str, Any]]]:
        """The session of the name and its records, read without a command of its own: that is much faster."""
        if not (self.desk.cli.home / DATABASE).exists():
            return "", []
        store = SqliteStore.open(self.desk.cli.home)
        try:
            sessions = await store.find(KEY)
            records = await store.read(sessions[0]) if sessions else []
        finally:
            await store.aclose()
        rows = [{"seq": each.seq, "type": each.type, "body": json.loads(each.body)} for each in records]
        return sessions[0] if sessions else "", rows


@pytest.mark.requirement("H2")
@pytest.mark.parametrize(
    ("seed", "edits"), [(1, 14), pytest.param(2, 500, marks=pytest.mark.long)], ids=["some", "many"]
)
def test_after_random_edits_and_kills_the_tree_is_what_it_was_or_the_difference_is_named(
    tmp_path: Path, seed: int, edits: int
) -> None:
    desk = Desk(tmp_path)
    (desk.work / "a.txt").write_text("first\n")
    (desk.work / "a.txt").chmod(0o700)
    (desk.work / "c").mkdir()
    (desk.work / "j.bin").write_bytes(b"\xff\x00\xfe")
    world = World(desk, seed)
    world.edit()
    while world.edits < edits:
        world.pick.choice([world.edit, world.edit, world.undo, world.redo, world.rewind, world.disturb])()
    assert desk.cli("undo", KEY, "10000").code == 0
    assert tree(desk.work) == world.done[0][0] if world.done else True
    assert desk.cli("fsck").code == 0
    assert world.kills > edits // 20
    assert world.masked > edits // 20
