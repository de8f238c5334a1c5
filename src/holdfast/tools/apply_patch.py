"""apply_patch: changes the files that a patch names, all of them or none.

All files are read and all hunks applied in memory before the first file changes. If a write fails, the files that
were changed are put back. `patch` reads the patch, `hunks` applies it, and `writing` replaces a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import CallContext, Check, RawResult
from holdfast.protocol.tools import Expectation, FileChange, Files, ToolSpec
from holdfast.storage.images import IMAGE_BYTES, Images
from holdfast.tools.blocking import Refused, answer, in_thread
from holdfast.tools.hunks import applied
from holdfast.tools.own import OwnPlaces
from holdfast.tools.patch import FilePatch, PatchError, patch_of
from holdfast.tools.schema import arguments_object
from holdfast.tools.workspace import (
    PathRefused,
    Place,
    Root,
    look,
    open_regular,
    place,
    refuse_other_kinds,
    refuse_protected,
)
from holdfast.tools.writing import (
    Kept,
    changed,
    digest_of,
    is_same,
    listable,
    missing_folders,
    permissions,
    probe,
    remove_folders,
    replace_file,
)

PATCHED_BYTES = 16 << 20
"""The most that all files of a patch have together, before it and after it."""
_MOST_TOLD = 20


class ApplyPatch:
    """apply_patch: changes several files at once."""

    def __init__(self, own: OwnPlaces, images: Images | None = None) -> None:
        self._own = own
        self._images = images
        self.spec = ToolSpec(
            name="apply_patch",
            description="Change, add, delete and move files with a patch: all of them, or none if a part does not "
            "fit. `patch` is a unified diff, or has the form `*** Begin Patch`, `*** Update File: PATH` (or Add, "
            "Delete), `@@ a line above`, lines with ` `, `-` or `+` before them, `*** End Patch`. Paths are "
            "relative to the workspace.",
            parameters=arguments_object(required=["patch"], patch={"type": "string", "minLength": 1}),
            effect="write",
            on_interrupt="probe",
            source="builtin",
            trust="data",
            kinds={"patch": "patch"},
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Return what was changed, file by file, or why nothing was."""
        root, kept = Root(context.workspace, self._own), None
        if self._images is not None:
            kept = Kept(self._images, context.session, context.expects)
        return await answer(
            "The patch", lambda: _patch(root, _steps(root, arguments["patch"]), context.check, kept)
        )

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> Expectation | None:
        """Return the hash of each file before and after; None if the patch would be refused."""

        def plan() -> Files | None:
            try:
                steps = _steps(Root(context.workspace, self._own), arguments["patch"])
            except (Refused, OSError):
                return None
            return Files(_changes(steps, self._images), is_marked=self._images is not None)

        return await in_thread(plan)

    async def probe(self, expectation: Expectation, context: CallContext) -> Probed:
        """Return whether all files changed, or none. Remove what an interrupted writer left."""
        return await in_thread(lambda: probe(Root(context.workspace, self._own), expectation, self._images))


class _Step(msgspec.Struct, frozen=True):
    """What happens to one file."""

    given: str
    path: str
    """Where it is, with every link followed."""
    before: bytes | None
    """None: there is no file."""
    after: bytes | None
    facts: os.stat_result | None
    folders: int
    mode: int = 0
    """The permission bits that the new file gets; 0: those of the old one, or of any new one."""
    told: str = ""


# --- before anything changes ----------------------------------------------------------------------


def _steps(root: Root, text: str) -> tuple[_Step, ...]:
    """Return what happens to each file: what is new first, what is removed last.

    Raises:
        Refused: the patch cannot be read or does not fit. All reasons are in the message.
        OSError: a file cannot be read.
    """
    steps: list[_Step] = []
    problems: list[str] = []
    size = 0
    for each in patch_of(text):
        try:
            for step in _steps_of(root, each):
                steps.append(step)
                size += max(len(step.before or b""), len(step.after or b""))
        except Refused as refusal:
            problems.append(str(refusal))
        except OSError as error:
            problems.append(f"{each.path}: {error.strerror or error}.")
        if size > PATCHED_BYTES:
            raise PatchError(f"The files of the patch are larger than {PATCHED_BYTES >> 20} MiB together.")
    seen: dict[str, str] = {}
    for step in steps:
        other = seen.setdefault(step.path, step.given)
        if other != step.given:
            problems.append(f"{other} and {step.given} are the same file.")
    if problems:
        more = len(problems) - _MOST_TOLD
        told = [*problems[:_MOST_TOLD], *([f"{more} more problems."] if more > 0 else [])]
        raise PatchError("\n".join(["Nothing was changed.", *told]))
    return tuple(sorted(steps, key=lambda step: step.after is None))


def _steps_of(root: Root, each: FilePatch) -> Iterator[_Step]:
    """Yield what happens to the paths of one part of a patch."""
    with place(root, each.path) as found:
        facts = _writable(each.path, found)
        if each.kind == "add":
            if facts is not None:
                raise PatchError(
                    f"{each.path} exists already. Change it with `-` and `+` lines, or delete it first."
                )
            content = each.content.encode()
            told = f"Added {each.path}."
            if each.is_executable:
                told += " It is not executable: a patch does not set permissions."
            yield _Step(each.path, found.path, None, content, None, missing_folders(found), told=told)
            return
        if facts is None:
            raise PatchError(f"{each.path} does not exist.")
        before = _content(each.path, found)
        here = _Step(each.path, found.path, before, None, facts, 0, told=f"Deleted {each.path}.")
    if each.kind == "delete":
        if each.is_checked and applied(each.path, _text(each.path, before), each.hunks)[0]:
            raise PatchError(
                f"{each.path} has more lines than the patch deletes. Give all of them, or use `*** Delete File`."
            )
        yield here
        return
    after = before
    notes: tuple[str, ...] = ()
    if each.hunks:
        text, notes = applied(each.path, _text(each.path, before), each.hunks)
        after = text.encode()
    if not each.new_path:
        told = "\n".join([f"Changed {each.path}.", *notes])
        yield msgspec.structs.replace(here, after=after, told=told)
        return
    with place(root, each.new_path) as found:
        if _writable(each.new_path, found) is not None:
            raise PatchError(f"{each.new_path} exists already, so {each.path} cannot move there.")
        folders, mode = missing_folders(found), permissions(facts)
        told = "\n".join([f"Moved {each.path} to {each.new_path}.", *notes])
        yield _Step(each.new_path, found.path, None, after, None, folders, mode, told)
    yield msgspec.structs.replace(here, told="")


def _writable(given: str, found: Place) -> os.stat_result | None:
    """Return the facts of a file that a file tool may replace; None if there is no file."""
    refuse_protected(given, found, "write")
    facts = look(found)
    if facts is None:
        return None
    refuse_other_kinds(given, facts.st_mode)
    if facts.st_nlink > 1:
        raise PathRefused(
            f"{given} has other names (hard links), maybe outside the workspace, so it is not written."
        )
    return facts


def _content(given: str, found: Place) -> bytes:
    with open_regular(found, given) as fd, open(fd, "rb", closefd=False) as file:
        content = file.read(PATCHED_BYTES + 1)
    if len(content) > PATCHED_BYTES:
        raise PatchError(f"{given} is larger than {PATCHED_BYTES >> 20} MiB and too large for a patch.")
    return content


def _text(given: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise PatchError(f"{given} is not UTF-8 text and cannot be patched.") from None


def _changes(steps: Sequence[_Step], images: Images | None) -> tuple[FileChange, ...]:
    """Return what an intent says about the files."""
    new_digest = digest_of(images)

    def mark(content: bytes | None) -> str:
        digest = new_digest()
        digest.update(content or b"")
        return "" if content is None else digest.hexdigest()

    return tuple(
        FileChange(
            step.path,
            mark(step.before),
            mark(step.after),
            permissions(step.facts),
            step.folders,
            len(step.before or b"") > IMAGE_BYTES,
        )
        for step in steps
    )


# --- the change -----------------------------------------------------------------------------------


def _patch(root: Root, steps: Sequence[_Step], check: Check, kept: Kept | None) -> str:
    """Change all files, and return the message to the model.

    Raises:
        Refused: a file changed meanwhile, or a write failed. The files are as before, or the message names those
            that are not.
        StorageError: the old content could not be kept. No file was changed.
        Fenced: the `check` failed. Some files may be changed; a probe tells.
    """
    check()
    if kept is not None and kept.expects is not None:
        _keep(steps, kept)
    done: list[_Step] = []
    for step in steps:
        try:
            _write(root, step, step.facts, check)
        except (Refused, OSError) as error:
            why = f"{step.given}: {error.strerror or error}." if isinstance(error, OSError) else str(error)
            left = _back(root, [*done, step], check)
            if left:
                raise PatchError(
                    f"{why} These files were changed and could not be put back: {', '.join(left)}. Read them again."
                ) from None
            raise PatchError(
                f"{why} Nothing is changed: what was written before this was put back."
            ) from None
        done.append(step)
    return "\n".join(step.told for step in steps if step.told)


def _keep(steps: Sequence[_Step], kept: Kept) -> None:
    """Keep all old contents, and refuse to change the files in another way than the intent tells."""
    changes = kept.expects.changes if isinstance(kept.expects, Files) else ()
    if _told(changes) != _told(_changes(steps, kept.images)):
        raise changed("A file of the patch")
    for step in steps:
        for content in (step.before, step.after):
            if content is not None and len(content) <= IMAGE_BYTES:
                kept.images.put(kept.session, content)


def _told(changes: Sequence[FileChange]) -> list[tuple[str, str, str, int]]:
    return [(each.path, each.before, each.after, each.mode) for each in changes]


def _write(root: Root, step: _Step, facts: os.stat_result | None, check: Check) -> None:
    """Make the file what the step says, if it still is what was read."""
    check()
    with place(root, step.path) as found:  # before a folder is made
        refuse_protected(step.given, found, "write")
    with place(root, step.path, makes_folders=step.after is not None) as found:
        if found.path != step.path or not is_same(facts, _writable(step.given, found)):
            raise changed(step.given)
        if step.after is not None:
            replace_file(found, step.given, step.after, facts, check, step.mode)
            return
        with listable(found) as folder:
            check()
            os.unlink(found.name, dir_fd=folder)
            os.fsync(folder)


# --- if a write fails -----------------------------------------------------------------------------


def _back(root: Root, steps: Sequence[_Step], check: Check) -> list[str]:
    """Put files back, the last first, and return those that could not be put back."""
    left: list[str] = []
    for step in reversed(steps):
        try:
            _put_back(root, step, check)
        except (Refused, OSError):
            left.append(step.given)
    return left


def _put_back(root: Root, step: _Step, check: Check) -> None:
    """Put one file back, if it is what the patch made of it. The one whose write failed may be as before."""
    with place(root, step.path) as found:
        facts = _writable(step.given, found)
        now = _content(step.given, found) if facts is not None else None
        if found.path != step.path or now not in (step.before, step.after):
            raise changed(step.given)
    if now != step.before:
        back = msgspec.structs.replace(step, after=step.before, mode=permissions(step.facts))
        _write(root, back, facts, check)
    remove_folders(root, step.path, step.folders, check)
