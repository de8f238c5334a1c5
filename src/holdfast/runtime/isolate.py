"""Work in a copy of the workspace: what changed there, and whether it goes to the workspace.

`accept` changes all files or none. It is a step with an intent and an outcome, like an undo (`runtime.undo`). If it
is killed, the next command completes it, or takes back what was done if something else has changed a file. What was
accepted is an edit of the session, so an undo takes it back, also what commands changed.
"""

# Pathlib makes an object for each name.
# ruff: noqa: PTH112, PTH202, PTH114, PTH115, PTH118, PTH120

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.core.state import State, open_run
from holdfast.depths import walked
from holdfast.errors import Conflict, UsageError
from holdfast.policy.paths import above, is_among, is_inside, malformed, secret_rule
from holdfast.policy.protected import steering_below, steering_problem
from holdfast.protocol.commands import Principal, Restore, Restored
from holdfast.protocol.events import FilesRestored, FilesRestoring
from holdfast.protocol.ports import Store
from holdfast.protocol.rows import Sought
from holdfast.protocol.settings import Settings
from holdfast.protocol.tools import FileRestore, KeptFile
from holdfast.runtime import copies
from holdfast.runtime.copies import Accepting, Copy
from holdfast.runtime.fold import readable
from holdfast.runtime.holder import is_free
from holdfast.runtime.undo import Workshop, finish
from holdfast.runtime.visit import Visit, visiting
from holdfast.storage.images import IMAGE_BYTES
from holdfast.tools.aside import is_aside
from holdfast.tools.blocking import Refused
from holdfast.tools.commits import Tip, new_tips, take_tips
from holdfast.tools.copying import NOTHING, Change, Copied, Item, changes
from holdfast.tools.git_folders import place_in_git
from holdfast.tools.restoring import LINK, content_at, link_content, look_at
from holdfast.tools.workspace import Root, open_to_read
from holdfast.views.diffs import FileDiff, Redact, file_diff
from holdfast.views.edits import Place, open_restore

NOT_DONE = "It may change files of the copy. Nothing was done."
CHANGED = "it has changed in the workspace since the copy was made"
NEEDS_WORD = "{reason} Read it, then name it with --allow."
LEADS_OUT = "it is a link that leads out of the workspace"
NO_TEXT = "its name is not UTF-8 text"
LARGE = "it is over 32 MiB, and so large a file could not be undone"
MOVING = "it changes in this moment: a process still works in the copy"
_LOST = "The copy in which the session works is not where it was made: {folder}. Nothing was done."
_LOST_HINT = (
    "If its disk is not mounted, or it was moved, bring it back. Give it up: `holdfast discard {session}`."
)
COMMITS = ".git"
"""Names the commits of a copy among the paths that are left out or refused."""
_ORPHAN_MS = 3_600_000
"""A copy that no session knows is one whose run never began, after so long."""
_MOST = 100


class Waiting(msgspec.Struct, frozen=True):
    """A copy, and what changed in it."""

    copy: Copy
    changes: tuple[Change, ...]
    tips: tuple[Tip, ...] = ()
    """The branches with commits that were made in it."""
    problem: str = ""
    """Why its commits cannot be read, if so."""
    is_over: bool = False
    """All was accepted, and only the copy is still there, because the command was killed."""


class Accepted(msgspec.Struct, frozen=True):
    """What became of the changes in a copy. `done` may be of an `accept` that was cut off."""

    session: str
    done: tuple[FileRestore, ...] = ()
    problems: tuple[KeptFile, ...] = ()
    """Why no other file was changed."""
    changed: tuple[str, ...] = ()
    """The files that were changed all the same, and could not be changed back. The next command completes it."""
    skipped: tuple[str, ...] = ()
    """What stays in the copy: it was to be left out, or it was put aside there."""
    branches: tuple[str, ...] = ()
    """The new branches that have the commits of the copy. They stay, also if there are problems."""
    is_copy: bool = True
    """There was a copy."""


# --- the copy of a session ----------------------------------------------------------------------


async def copy_for(workshop: Workshop, home: Path, recorded: Settings | None, origin: str) -> Copy:
    """Return the copy in which a session works, or a new one: it has none yet, or it was accepted or discarded.

    Raises:
        UsageError: the workspace cannot be copied.
        Conflict: the copy of the session is not where it was.
        StorageError: the copy cannot be written down.
    """
    if recorded is not None and recorded.tools.copy_of:
        folder = recorded.tools.workspace
        found = await asyncio.to_thread(copies.find, home, folder)
        if found is not None and found.origin == origin:
            return found
        if await asyncio.to_thread(copies.is_lost, home, folder):
            raise lost(folder, "last")
    await _sweep(workshop, home)
    now_ms = workshop.clock.now_ms()
    return await asyncio.to_thread(copies.make, home, origin, workshop.own, workshop.images, now_ms)


async def _sweep(workshop: Workshop, home: Path) -> None:
    """Drop the copies that no session works in."""
    await asyncio.to_thread(copies.clear, home)
    for found in await asyncio.to_thread(lambda: [*copies.every(home)]):
        is_old = found.made_ms < workshop.clock.now_ms() - _ORPHAN_MS
        if is_old and not await _sessions_in(workshop.store, found.folder):
            await asyncio.to_thread(copies.drop, home, found.folder)


async def _sessions_in(store: Store, folder: str) -> list[str]:
    rows = await store.sessions(Sought(workspace=folder), _MOST)
    return [row.session for row in rows]


async def drop_copies(store: Store, home: Path, session: str, folders: Collection[str]) -> None:
    """Drop the copies of a session that was deleted, unless another session works in them."""
    for folder in folders:
        if await asyncio.to_thread(_is_known, home, folder) and not {*await _sessions_in(store, folder)} - {
            session
        }:
            await asyncio.to_thread(copies.drop, home, folder)


def _is_known(home: Path, folder: str) -> bool:
    return copies.find(home, folder) is not None or copies.is_lost(home, folder)


async def waiting(workshop: Workshop, home: Path, folder: str) -> Waiting | None:
    """Return the copy that is this folder, with what changed in it; None for another folder.

    Raises:
        UsageError: it cannot be found out what changed.
    """
    found = await asyncio.to_thread(copies.find, home, folder)
    return await _waiting(workshop, found) if found is not None else None


async def _waiting(workshop: Workshop, found: Copy) -> Waiting:
    """Return what changed in a copy since it was made, but for what was accepted."""
    begun, is_over = found.accepting, False
    if begun is not None:
        records = await workshop.store.read(begun.session, begun.after_seq)
        events = [readable(each).event for each in records]
        if any(isinstance(each, FilesRestored) and each.why == "accept" and each.restored for each in events):
            found = replace(found, copied=_rebased(found.copied, begun.states))
            is_over = begun.is_all
    changes = await asyncio.to_thread(_changes, workshop, found)
    tips, problem = await asyncio.to_thread(_tips, workshop, found)
    return Waiting(found, changes, tips, problem, is_over and not changes and not tips)


def _tips(workshop: Workshop, found: Copy) -> tuple[tuple[Tip, ...], str]:
    try:
        return new_tips(found.folder, found.origin, workshop.own), ""
    except (Refused, OSError) as error:
        return (), f"its commits cannot be taken over. {error}"


def lost(folder: str, session: str) -> Conflict:
    """Return what is said of a copy that is not where it was."""
    return Conflict(_LOST.format(folder=folder), hint=_LOST_HINT.format(session=session))


def _changes(workshop: Workshop, found: Copy) -> tuple[Change, ...]:
    try:
        return tuple(changes(found.folder, found.copied, workshop.images, workshop.own))
    except Refused as refusal:
        raise UsageError(str(refusal)) from None
    except OSError as error:
        raise UsageError(f"{found.folder} cannot be read: {error.strerror or error}.") from None


# --- the diff -----------------------------------------------------------------------------------


def differences(workshop: Workshop, found: Waiting, redact: Redact) -> list[FileDiff]:
    """Return what changed in a copy, file by file. Secrets are masked."""
    return [_difference(workshop, found.copy, each, redact) for each in found.changes]


def _difference(workshop: Workshop, copy: Copy, change: Change, redact: Redact) -> FileDiff:
    kind = kind_of(change)
    path = shown_path(change.path)
    if change.before[0] == change.after[0] and LINK not in (change.before[1], change.after[1]):
        modes = f"{change.before[1]:o} to {change.after[1]:o}"
        return FileDiff(path, kind, f"{path}: its permissions changed from {modes}.\n")
    now = look_at(workshop.own, workshop.images, Place(copy.origin, change.path))
    was = change.before if now.problem else (now.sha256, now.mode)
    is_conflict = was not in (change.before, change.after)
    if not is_conflict and was != change.before:
        return FileDiff(path, kind, f"{path}: {kind}; the workspace has the same already.\n")
    sides: list[bytes | None] = []
    for folder, (mark, mode) in ((copy.origin, was), (copy.folder, change.after)):
        content = _content(workshop, folder, change.path, mode) if mark else None
        if mark and (content is None or workshop.images.mark(content) != mark):
            return FileDiff(path, kind, f"{path}: {kind}; it cannot be shown.\n")
        sides.append(content)
    found = file_diff(path, sides[0], sides[1], lambda text: redact(text.replace("\0", "")))
    told = f"{path}: {CHANGED}. Compared with what it is there now:\n" if is_conflict else ""
    return replace(found, change=kind, diff=told + found.diff)


def shown_path(path: str) -> str:
    """Return a path as text. Bytes that are not UTF-8 are written out."""
    return path.encode(errors="backslashreplace").decode()


def kind_of(change: Change) -> Literal["added", "changed", "deleted"]:
    """Return what happened to a file."""
    if change.before == NOTHING:
        return "added"
    return "deleted" if change.after == NOTHING else "changed"


def _content(workshop: Workshop, folder: str, path: str, mode: int) -> bytes | None:
    """Return the content of a file or link; None if it may not be read, or is too large."""
    if mode != LINK:
        return content_at(workshop.own, Place(folder, path))
    try:
        return link_content(os.readlink(os.path.join(folder, path)))
    except OSError:
        return None


# --- accept -------------------------------------------------------------------------------------


async def accept(
    workshop: Workshop,
    home: Path,
    session: str,
    principal: Principal,
    allowed: Collection[str] = (),
    skipped: Collection[str] = (),
) -> Accepted:
    """Change all files of the workspace as they changed in the copy, or none. Then remove the copy.

    Args:
        workshop: What putting files back needs.
        home: The folder of the home.
        session: The session that works in the copy.
        principal: Who accepts.
        allowed: Files that are accepted although they control other programs, or were put aside in the copy.
        skipped: Files and folders that stay as they are; `.git`: the commits. Then the copy stays too.

    Raises:
        NoSuchSession: there is no such session.
        UsageError: it does not work in a copy, or nothing changed at a path that is named.
        Conflict: somebody drives it, or its run is open.
        StorageError: it cannot be recorded. The same command completes it.
        Unfinished: an undo that was cut off could not be completed. The same command completes it.
    """
    async with visiting(workshop.store, workshop.clock, session, principal, NOT_DONE) as visit:
        before = await _completed(workshop, visit)
        if before.changed:
            return before
        found = await _copy_at_rest(workshop, home, visit)
        if found is None:
            await asyncio.to_thread(copies.clear, home)
            return replace(before, is_copy=bool(before.done))
        waits = await _waiting(workshop, found)
        if waits.is_over:
            await asyncio.to_thread(copies.drop, home, found.folder)
            return replace(before, is_copy=bool(before.done))
        allowed, skipped = (_named(names, waits) for names in (allowed, skipped))
        left = _left(waits.changes, skipped, allowed)
        wanted = [each for each in waits.changes if each.path not in left]
        found, shown = waits.copy, tuple(map(shown_path, sorted(left)))
        files, problems = await asyncio.to_thread(_planned, workshop, session, found, wanted, set(allowed))
        tips = () if COMMITS in skipped else waits.tips
        if COMMITS in skipped:
            shown += (COMMITS,)
        elif waits.problem:
            problems.append(KeptFile(COMMITS, waits.problem))
        done = before.done
        if problems:
            return Accepted(session, done, tuple(problems), (), shown)
        branches, problem = await asyncio.to_thread(_taken, workshop, session, found, tips)
        if problem:
            return Accepted(session, done, (KeptFile(COMMITS, problem),), (), shown)
        states = {each.path: each.after for each in wanted}
        if files:
            begun = Accepting(session, visit.fold.state.seq, states, not shown)
            await asyncio.to_thread(copies.write, home, replace(found, accepting=begun))
            await visit.tell(Restore("accept", (), tuple(files)))
            outcome = await finish(
                workshop, visit, FilesRestoring("accept", principal.label, (), tuple(files))
            )
            if outcome.kept:
                return Accepted(session, done, outcome.kept, outcome.halfway, shown, branches)
            done += outcome.done
        if shown:
            rest = replace(found, copied=_rebased(found.copied, states), accepting=None)
            await asyncio.to_thread(copies.write, home, rest)
        elif wanted or branches:
            await asyncio.to_thread(copies.drop, home, found.folder)
        return Accepted(session, done, (), (), shown, branches)


def _taken(workshop: Workshop, session: str, copy: Copy, tips: Sequence[Tip]) -> tuple[tuple[str, ...], str]:
    """Bring commits into the repository of the user, and return their branches, or why that is not possible."""
    try:
        prefix = f"holdfast/{session}"
        return take_tips(copy.folder, copy.origin, tips, prefix, workshop.own) if tips else (), ""
    except (Refused, OSError) as error:
        return (), f"its commits cannot be taken over. {error}"


async def _completed(workshop: Workshop, visit: Visit, *, is_accepting: bool = True) -> Accepted:
    """Complete what a killed command left undone.

    Raises:
        Conflict: it was an `accept`, and this command is to leave the workspace as it is.
    """
    session = visit.fold.session
    left = open_restore([readable(each) for each in await workshop.store.read(session)])
    if left is None:
        return Accepted(session)
    if left.why == "accept" and not is_accepting:
        raise Conflict(
            f"An accept of session {session} was cut off, so some of its files may be in the workspace already. "
            "Nothing was done.",
            hint=f"Complete it with `holdfast accept {session}`, or take it back with `holdfast undo {session}`.",
        )
    outcome = await finish(workshop, visit, left)
    if outcome.halfway:
        return Accepted(session, (), outcome.kept, outcome.halfway)
    return Accepted(session, outcome.done if left.why == "accept" else ())


async def _copy_at_rest(
    workshop: Workshop, home: Path, visit: Visit, *, is_going: bool = False
) -> Copy | None:
    """Return the copy of a session whose run is over. `is_going`: it is to be removed, also if it is lost.

    Raises:
        UsageError: the session does not work in a copy.
        Conflict: its run is open, another session works in the copy now, or the copy is not where it was.
    """
    state: State = visit.fold.state
    session = visit.fold.session
    if state.settings is None or not state.settings.tools.copy_of:
        raise UsageError(
            f"Session {session} works in the workspace itself, not in a copy.",
            hint='Begin one that does: `holdfast run "TASK" --isolate`.',
        )
    if open_run(state) is not None:
        raise Conflict(
            f"The run of session {session} has not ended. Nothing was done.",
            hint=f"Continue it with `holdfast resume {session}`, or end it with `holdfast stop {session}`.",
        )
    folder = state.settings.tools.workspace
    found = await asyncio.to_thread(copies.find, home, folder)
    if found is None and not is_going and await asyncio.to_thread(copies.is_lost, home, folder):
        raise lost(folder, session)
    for other in await _sessions_in(workshop.store, folder) if found is not None else ():
        situation = await workshop.store.situation(other) if other != session else None
        if situation is not None and not is_free(situation.lease):
            raise Conflict(
                f"Session {other} works in the same copy. Nothing was done.",
                hint=f"Stop it first: `holdfast stop {other}`.",
            )
    return found


def _named(names: Collection[str], waits: Waiting) -> set[str]:
    """Return the names as paths of changes are written. They may be absolute.

    Raises:
        UsageError: nothing changed at a path.
    """
    origin = waits.copy.origin
    # A name that is not UTF-8 can be given as it was shown.
    raw = {shown_path(path): path for each in waits.changes for path in (each.path, *above(each.path))}
    plain = {each: os.path.relpath(os.path.join(origin, each), origin) for each in names}
    plain = {each: raw.get(path, path) for each, path in plain.items()}
    found = {each.path for each in waits.changes} | ({COMMITS} if waits.tips or waits.problem else set())
    for given, path in plain.items():
        if not any(is_among(each, {path}) for each in found):
            raise UsageError(
                f"Nothing changed at {given!r} in the copy. Nothing was done.",
                hint="Name a file or folder of the list that `holdfast show` prints.",
            )
    return set(plain.values())


def _left(changes: Sequence[Change], skipped: Collection[str], allowed: Collection[str]) -> set[str]:
    """Return what stays in the copy. What was put aside there may be the work of somebody, so it is never lost."""
    return {
        each.path
        for each in changes
        if is_among(each.path, skipped)
        or (each.before == NOTHING and is_aside(each.path) and not is_among(each.path, allowed))
    }


def _planned(
    workshop: Workshop, session: str, copy: Copy, wanted: Sequence[Change], allowed: set[str]
) -> tuple[list[FileRestore], list[KeptFile]]:
    """Return what to do, and why it cannot be done. The contents are kept before anything is changed."""
    removed = {each.path for each in wanted if each.after == NOTHING}
    files: list[FileRestore] = []
    problems: list[KeptFile] = []
    by_path = {each.path: each for each in wanted}
    for change in wanted:
        shown = shown_path(change.path)
        problem = _forbidden(workshop, copy, change, allowed)
        if not problem and change.after != NOTHING:
            problem, _ = _new_content(workshop, copy, change)
        if not problem:
            problem, now = _now(workshop, copy.origin, change, removed)
            if not problem and now != change.after:
                files.append(_goal(copy, change))
        if problem:
            problems.append(KeptFile(shown, problem))
    for goal in files if not problems else ():
        if (
            goal.after and goal.after != goal.before
        ):  # read again: all together may be too much for the memory
            problem, content = _new_content(workshop, copy, by_path[goal.path])
            if problem:
                problems.append(KeptFile(goal.path, problem))
            else:
                workshop.images.put(session, content)
    return files, problems


def _forbidden(workshop: Workshop, copy: Copy, change: Change, allowed: set[str]) -> str:
    """Return why a file may not be written, as the tools that write files would say it."""
    path = change.path
    try:
        path.encode()
    except UnicodeEncodeError:
        return NO_TEXT
    whole = os.path.join(copy.origin, path)
    if problem := malformed(path):
        return problem
    if rule := secret_rule(path) or secret_rule(whole):
        return f"it may be a secret ({rule}), and Holdfast writes no such file"
    here = place_in_git(whole, copy.origin)
    in_git = here or place_in_git(os.path.join(copy.folder, path), copy.folder)
    steered = steering_problem(path, whole, copy.origin, in_git)
    if steered is None and change.after[1] == LINK and (below := steering_below(path)):
        return f"it is a link, and files below it would be controlling ones ({below})"
    if steered is None or (steered.verdict == "ask" and path in allowed):
        return ""
    return NEEDS_WORD.format(reason=steered.reason) if steered.verdict == "ask" else steered.reason


def _new_content(workshop: Workshop, copy: Copy, change: Change) -> tuple[str, bytes]:
    """Return why a file or link of the copy cannot be taken over, and its content."""
    mark, mode = change.after
    if mode == LINK:
        whole = os.path.join(copy.folder, change.path)
        target = os.readlink(whole)
        lexical = os.path.normpath(os.path.join(os.path.dirname(change.path), target))
        is_out = target.startswith("/") or lexical.split("/")[0] == ".."
        # What is ignored is not accepted, so the link may lead elsewhere in the workspace than in the copy.
        there = os.path.join(copy.origin, os.path.dirname(change.path), target)
        is_out = is_out or not is_inside(copy.origin, os.path.realpath(there))
        if is_out or not is_inside(copy.folder, os.path.realpath(whole)):
            return LEADS_OUT, b""
        content = link_content(target)
    else:
        try:
            with (
                open_to_read(Root(copy.folder, workshop.own), change.path) as (fd, _),
                open(fd, "rb", closefd=False) as file,
            ):
                content = file.read(IMAGE_BYTES + 1)
        except (Refused, OSError) as error:
            return str(error), b""
        if len(content) > IMAGE_BYTES:
            return LARGE, b""
    return ("" if workshop.images.mark(content) == mark else MOVING), content


def _now(workshop: Workshop, origin: str, change: Change, removed: set[str]) -> tuple[str, tuple[str, int]]:
    """Return why a file of the workspace cannot be changed, and its state."""
    whole = os.path.join(origin, change.path)
    if change.before == NOTHING and _is_going(whole, origin, removed):
        return "", NOTHING  # a folder makes room for a file
    found = look_at(workshop.own, workshop.images, Place(origin, change.path))
    now = found.sha256, found.mode
    if found.problem:
        return found.problem, now
    is_in_the_way = found.odd and found.mode != LINK and now != change.after
    if is_in_the_way and not removed.intersection(
        above(change.path)
    ):  # a file is where a folder was, or a folder for a file
        return CHANGED, now
    if now not in (change.before, change.after):
        return CHANGED, now
    if found.sha256 and found.mode != LINK and os.path.getsize(whole) > IMAGE_BYTES:
        return LARGE, now
    return "", now


def _is_going(folder: str, origin: str, removed: Collection[str]) -> bool:
    """Return whether a folder has only files that will be removed."""
    if os.path.islink(folder) or not os.path.isdir(folder):
        return False
    files: list[str] = []
    for _, entries in walked(folder):
        if entries is None:
            return False
        files += [entry.path for entry in entries if not entry.is_dir(follow_symlinks=False)]
    return bool(files) and all(os.path.relpath(each, origin) in removed for each in files)


def _goal(copy: Copy, change: Change) -> FileRestore:
    (before, before_mode), (after, mode) = change.before, change.after
    top = copy.folder if not after else copy.origin

    def is_missing(folder: str) -> bool:
        whole = os.path.join(top, folder)
        return os.path.islink(whole) or not os.path.isdir(whole)

    folders = len([*takewhile(is_missing, above(change.path))])
    return FileRestore(
        copy.origin, change.path, before, after, before_mode, mode, folders if not (before and after) else 0
    )


def _rebased(copied: Copied, states: Mapping[str, tuple[str, int]]) -> Copied:
    """Return what counts as copied after files were accepted, so that only the rest waits."""
    items = dict(copied.items)
    for path, (mark, mode) in states.items():
        if (mark, mode) == NOTHING:
            items.pop(path, None)
        else:
            items[path] = Item(mode, mark, ())
    return replace(copied, items=items)


# --- discard ------------------------------------------------------------------------------------


async def discard(workshop: Workshop, home: Path, session: str, principal: Principal) -> Accepted:
    """Remove the copy of a session with everything that changed in it. Raises what `accept` raises."""
    async with visiting(workshop.store, workshop.clock, session, principal, NOT_DONE) as visit:
        before = await _completed(workshop, visit, is_accepting=False)
        found = await _copy_at_rest(workshop, home, visit, is_going=True)
        settings = visit.fold.state.settings
        assert settings is not None
        folder = settings.tools.workspace
        if found is None and not await asyncio.to_thread(copies.is_lost, home, folder):
            await asyncio.to_thread(copies.clear, home)
            return replace(before, is_copy=False)
        # First the record: if this is killed, the copy is still there, and the same command removes it.
        await visit.tell(Restore("discard", (), ()))
        await visit.tell(Restored("discard", ()))
        await asyncio.to_thread(copies.drop, home, folder)
        return before
