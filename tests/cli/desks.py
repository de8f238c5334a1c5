"""A home and a workspace, and sessions that work in copies of it, without a model."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from holdfast.app import open_store, open_workshop
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import load
from holdfast.config.paths import Home, find_home
from holdfast.core.draft import Draft
from holdfast.core.opening import change_settings
from holdfast.protocol.commands import owner
from holdfast.protocol.events import SessionOpened
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.settings import changed, settings_with
from holdfast.runtime.copies import Copy
from holdfast.runtime.fold import Fold
from holdfast.runtime.fork import CAUSE
from holdfast.runtime.holder import LEASE_MS, this_process
from holdfast.runtime.isolate import Accepted, Waiting, accept, copy_for, discard, waiting
from holdfast.runtime.undo import Workshop, put_back
from holdfast.views.edits import redo_of, undo_of

ANN = owner("ann", "cli")
Tree = dict[str, tuple[bytes | str, int]]


def tree(folder: Path) -> Tree:
    """All files and links, each with its content and permissions."""
    return {
        str(path.relative_to(folder)): (str(path.readlink()), 0)
        if path.is_symlink()
        else (path.read_bytes(), path.stat().st_mode & 0o777)
        for path in folder.rglob("*")
        if (path.is_symlink() or path.is_file()) and ".git" not in path.parts
    }


class Desk:
    """A home, a workspace, and a session that works in a copy of it."""

    def __init__(self, folder: Path) -> None:
        self.home: Home = find_home(str(folder / "home"), {})
        self.work = folder / "work"
        self.work.mkdir()
        self.session = ""

    def doing(self, work: Callable[[Workshop], object]) -> None:
        """Do something with the workshop of the home."""

        async def doing() -> None:
            store = open_store(self.home)
            try:
                config = load(self.home, None, {}, {})
                found = work(open_workshop(self.home, store, config, {}))
                if asyncio.iscoroutine(found):
                    self.found = await found
            finally:
                await store.aclose()

        asyncio.run(doing())

    def copied(self) -> Copy:
        """Begin a session in a new copy."""

        async def copied(workshop: Workshop) -> Copy:
            copy = await copy_for(workshop, self.home.folder, None, str(self.work))
            self.session = await _begun(workshop, copy, is_driven=False)
            return copy

        self.doing(copied)
        assert isinstance(self.found, Copy)
        return self.found

    def joined(self, copy: Copy) -> str:
        """Begin another session in a copy, which this process drives."""
        self.doing(lambda workshop: _begun(workshop, copy, is_driven=True))
        assert isinstance(self.found, str)
        return self.found

    def accepted(self, *skipped: str, allowed: tuple[str, ...] = ()) -> Accepted:
        self.doing(lambda workshop: accept(workshop, self.home.folder, self.session, ANN, allowed, skipped))
        assert isinstance(self.found, Accepted)
        return self.found

    def discarded(self) -> Accepted:
        self.doing(lambda workshop: discard(workshop, self.home.folder, self.session, ANN))
        assert isinstance(self.found, Accepted)
        return self.found

    def waits(self, copy: Copy) -> Waiting | None:
        self.doing(lambda workshop: waiting(workshop, self.home.folder, copy.folder))
        assert self.found is None or isinstance(self.found, Waiting)
        return self.found

    def undone(self) -> None:
        self.doing(
            lambda workshop: put_back(
                workshop, self.session, ANN, "undo", lambda edits, look: undo_of(edits, 1, look)
            )
        )

    def redone(self) -> None:
        self.doing(
            lambda workshop: put_back(
                workshop, self.session, ANN, "redo", lambda edits, look: redo_of(edits, 1, look)
            )
        )


async def _begun(workshop: Workshop, copy: Copy, *, is_driven: bool) -> str:
    now_ms = SYSTEM_CLOCK.now_ms()
    session = f"01JYA{now_ms % 10**13:013d}{random.randrange(10**8):08d}"
    fold = Fold(session)
    draft = Draft(fold.state, now_ms, 0, 1, CAUSE)
    draft.add(SessionOpened(session, ""))
    settings = settings_with(ModelFacts("script", "x"), copy.folder)
    change_settings(draft, changed(settings, copy_of=copy.origin))
    commit = fold.commit(fold.take(draft), 1, now_ms, releases_lease=not is_driven)
    await workshop.store.begin(commit, this_process(), LEASE_MS)
    return session


def desk_in(folder: Path) -> Desk:
    """A desk with a small workspace."""
    desk = Desk(folder)
    (desk.work / "a.txt").write_text("one\n")
    (desk.work / "gone").write_text("gone\n")
    (desk.work / "d").mkdir()
    (desk.work / "d" / "x").write_text("x\n")
    (desk.work / "turned").write_text("a file\n")
    return desk


def change(folder: Path) -> None:
    (folder / "a.txt").write_text("two\n")
    (folder / "gone").unlink()
    (folder / "new" / "deep").mkdir(parents=True, exist_ok=True)
    (folder / "new" / "deep" / "b").write_text("b\n")
    (folder / "link").symlink_to("a.txt")
    shutil.rmtree(folder / "d")
    (folder / "d").write_text("now a file\n")
    (folder / "turned").unlink()
    (folder / "turned" / "deep").mkdir(parents=True)
    (folder / "turned" / "deep" / "in").write_text("now a folder\n")
