"""Replaces a file completely or not at all, and can tell afterwards whether it did.

The content goes to a temporary file beside the target, which then takes its name in one step. A crash may leave the
temporary file. Its writer's lock ends with the writer, so a probe and the next write in the folder recognise the file
and remove it. `files` makes the content.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal

import msgspec

from holdfast.errors import StorageError
from holdfast.locks import is_named, try_lock
from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import Check
from holdfast.protocol.tools import ChildSession, Expectation, FileChange, Files, IdempotencyKey
from holdfast.storage.images import IMAGE_BYTES, Digest, Images
from holdfast.tools.blocking import Refused
from holdfast.tools.workspace import (
    MISSING,
    PathRefused,
    Place,
    Root,
    look,
    open_regular,
    place,
    refuse_other_kinds,
    refuse_protected,
)

_CHUNK_BYTES = 1 << 20
_TRIES, _TRY_S = 200, 0.01
"""How often, and after how long, a file is tried that another process is about to replace."""
_MOST_TOLD = 20
_Happened = Literal["yes", "no", "unknown"]
_TEMPORARY = re.compile(r"\.holdfast-[0-9a-f]{16}\.tmp")
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

UNCONFIRMED = "{told} The disk did not confirm it ({why}): after a power failure the old content may be back."
NewDigest = Callable[[], Digest]
Make = Callable[[str, Place], tuple[bytes, str]]
"""The new content for a file, and the message to the model when it is written."""


class Unconfirmed(OSError):
    """The file has its new content, and the disk does not confirm that its name lasts."""


class Kept(msgspec.Struct, frozen=True):
    """Where the content of a file is kept before it is replaced, and what was planned for the file."""

    images: Images
    session: str
    expects: Expectation | None


def write(
    root: Root, path: str, make: Make, check: Check, *, makes_folders: bool, kept: Kept | None = None
) -> str:
    """Write what `make` returns to the path, and return the message to the model. Mode and owner stay the same.

    With `kept`, the old content is durable before the file is replaced, and the file is what was planned.

    Raises:
        Refused: the path is refused, has other names, or `make` refuses; or the file changed meanwhile.
        StorageError: the old content could not be kept. The old file is whole.
        OSError: it cannot be written. The old file is whole.
        Fenced: the `check` failed. The old file is whole.
    """
    check()
    with place(root, path) as found:  # before a folder is made
        refuse_protected(path, found, "write")
        place_of, folders = found.path, missing_folders(found) if makes_folders else 0
    try:
        return _write(root, path, make, check, makes_folders=makes_folders, kept=kept)
    except (Refused, OSError, StorageError):
        remove_folders(root, place_of, folders, check)
        raise


def _write(root: Root, path: str, make: Make, check: Check, *, makes_folders: bool, kept: Kept | None) -> str:
    with place(root, path, makes_folders=makes_folders) as found:
        refuse_protected(path, found, "write")
        facts = look(found)
        if facts is not None:
            refuse_other_kinds(path, facts.st_mode)
            if facts.st_nlink > 1:
                raise PathRefused(
                    f"{path} has other names (hard links), maybe outside the workspace, so it is not written. "
                    "Write to a new file, or remove this name first."
                )
        content, told = make(path, found)
        # Without a plan nobody could undo it: its path contains what looks like a secret, so no record may name it.
        if kept is not None and kept.expects is not None:
            _keep(found, path, content, kept)
        try:
            replace_file(found, path, content, facts, check)
        except Unconfirmed as error:
            return UNCONFIRMED.format(told=told, why=error.strerror or error)
    return told


def _keep(found: Place, path: str, content: bytes, kept: Kept) -> None:
    """Keep the old content, and refuse to change the file in another way than its intent tells."""
    before, mode = "", 0
    if look(found) is not None:
        with open_regular(found, path) as fd:
            before, mode = kept.images.keep(kept.session, fd), permissions(os.fstat(fd))
    changes = kept.expects.changes if isinstance(kept.expects, Files) else ()
    planned = [(each.path, each.before, each.after, each.mode) for each in changes]
    if planned != [(found.path, before, kept.images.mark(content), mode)]:
        raise changed(path)
    if len(content) <= IMAGE_BYTES:  # what the next edit replaces: kept now, `show --diff` needs no file
        kept.images.put(kept.session, content)


def changed(path: str) -> Refused:
    return Refused(f"{path} was changed by something else in this moment. Read it again, then decide.")


def plan(root: Root, path: str, make: Make, images: Images | None = None) -> Files | None:
    """Return the hashes before and after such a write; None if it would fail. With `images`, they are marks."""
    new_digest = digest_of(images)
    try:
        with place(root, path) as found:
            refuse_protected(path, found, "write")
            content, _ = make(path, found)
            before, digest = content_hash(found, new_digest), new_digest()
            digest.update(content)
            facts, after = look(found), digest.hexdigest()
            is_large = facts is not None and facts.st_size > IMAGE_BYTES
            folders = missing_folders(found)
            change = FileChange(found.path, before, after, permissions(facts), folders, is_large)
            return Files((change,), is_marked=images is not None)
    except (Refused, OSError):
        return None


def missing_folders(found: Place) -> int:
    """Count the folders above a place that are not there."""
    if found.folder_fd != MISSING:
        return 0
    folder, count = os.path.dirname(found.whole), 0  # noqa: PTH120
    while not os.path.lexists(folder):
        folder, count = os.path.dirname(folder), count + 1  # noqa: PTH120
    return count


def replace_file(
    found: Place,
    path: str,
    content: bytes,
    before: os.stat_result | None,
    check: Check,
    mode: int = 0,
    *,
    is_swept: bool = False,
) -> None:
    """Rename the content in one step: every reader sees the old file or the new one. Mode and owner stay the same,
    unless a `mode` is given. `is_swept`: the caller has swept the folder, as one that writes many files does once.

    Raises:
        Refused: the file has changed since `before`.
        Unconfirmed: the file is replaced, and the disk does not confirm it.
    """
    with listable(found) as folder:
        if not is_swept:
            with suppress(OSError):
                sweep(folder)
        with _temporary(folder) as (fd, name):
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if before is not None:
                with suppress(PermissionError):
                    os.fchown(fd, before.st_uid, before.st_gid)
            if mode or before is not None:  # after the owner: a change of owner takes setuid and setgid away
                os.fchmod(fd, mode or permissions(before))
            os.fsync(fd)
            with _alone(folder, found.name):
                check()
                if not is_same(before, look(found)):
                    raise changed(path)
                os.rename(name, found.name, src_dir_fd=folder, dst_dir_fd=folder)
        try:
            os.fsync(folder)
        except OSError as error:
            raise Unconfirmed(error.errno, error.strerror) from None


@contextmanager
def _alone(folder: int, name: str) -> Iterator[None]:
    """Keep other processes of Holdfast from replacing or making a file between the last look at it and the rename."""
    # Who waits here for another process looks at the file after it, and finds it changed. A process that is frozen
    # here, or a program that locks its file for long, keeps nobody waiting for more than a moment.
    try:
        fd = os.open(name, _LOOK, dir_fd=folder)
    except OSError:  # there is no file yet: who makes one has the lock of its folder
        fd = os.open(".", _LOOK | os.O_DIRECTORY, dir_fd=folder)
    try:
        for _ in range(_TRIES):
            if try_lock(fd) != "theirs":
                break
            time.sleep(_TRY_S)
        yield
    finally:
        os.close(fd)


def remove_folders(root: Root, path: str, count: int, check: Check) -> None:
    """Remove the last so many folders above a path, as far as they are empty."""
    names = path.split("/")[:-1]
    for up in range(count):
        with suppress(Refused, OSError), place(root, "/".join(names[: len(names) - up])) as found:
            if found.folder_fd != MISSING:
                check()
                os.rmdir(found.name, dir_fd=found.folder_fd)


def is_same(before: os.stat_result | None, now: os.stat_result | None) -> bool:
    """Return whether nobody changed or replaced the file in between."""
    if before is None or now is None:
        return before is now
    return _facts(before) == _facts(now)


def permissions(facts: os.stat_result | None) -> int:
    """Return the permission bits of a file; 0 if it does not exist."""
    return facts.st_mode & 0o7777 if facts is not None else 0


def _facts(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@contextmanager
def listable(found: Place) -> Iterator[int]:
    """Open the folder of a place so that it can be listed and synced, which the walk's descriptor cannot."""
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=found.folder_fd)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _temporary(folder: int) -> Iterator[tuple[int, str]]:
    """Open a new file that only this process writes, locked while the process lives. At the end it is removed, unless
    it was renamed.
    """
    while True:
        name = f".holdfast-{os.urandom(8).hex()}.tmp"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            if try_lock(fd) == "theirs" or not is_named(fd, name, folder):  # somebody clears it away
                continue
            try:
                yield fd, name
            finally:
                with suppress(OSError):  # then the next write in this folder removes it
                    if is_named(fd, name, folder):
                        os.unlink(name, dir_fd=folder)
            return
        finally:
            os.close(fd)


def sweep(folder: int) -> None:
    """Remove temporary files in a folder if their writers are gone."""
    for name in os.listdir(folder):
        if not _TEMPORARY.fullmatch(name):
            continue
        with suppress(OSError):
            fd = os.open(name, _LOOK, dir_fd=folder)
            try:
                is_left = try_lock(fd) == "ours" and is_named(fd, name, folder)
                if is_left and os.fstat(fd).st_uid == os.geteuid():
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(fd)


def probe(root: Root, expectation: Expectation, images: Images | None = None) -> Probed:
    """Return whether an interrupted write happened: all files have their new content, all have their old content, or
    neither.

    Also removes what the interrupted writer left.
    """
    match expectation:
        case Files(changes=changes, is_marked=is_marked):
            new_digest = digest_of(images if is_marked else None)
            found = [(change.path, _look_for(root, change, new_digest)) for change in changes]
            if len(kinds := {happened for _, happened in found}) == 1:
                return Probed(kinds.pop())
            return Probed("unknown", _told(found))
        case IdempotencyKey() | ChildSession():
            return Probed("unknown")


def _told(found: Sequence[tuple[str, _Happened]]) -> str:
    """Return which files changed and which did not."""
    words: dict[_Happened, str] = {"yes": "changed", "no": "not changed", "unknown": "not known"}
    parts = []
    for happened, word in words.items():
        # On one line: a name must not begin a line of its own in what Holdfast says.
        paths = [" ".join(path.split()) for path, outcome in found if outcome == happened]
        more = f" and {len(paths) - _MOST_TOLD} more" if len(paths) > _MOST_TOLD else ""
        if paths:
            parts.append(f"{word}: {', '.join(paths[:_MOST_TOLD])}{more}")
    return "; ".join(parts)


def _look_for(root: Root, change: FileChange, new_digest: NewDigest) -> _Happened:
    try:
        with place(root, change.path) as found:
            if found.folder_fd != MISSING:
                with listable(found) as folder:
                    sweep(folder)
            now = content_hash(found, new_digest)
    except (Refused, OSError):
        return "unknown"
    if now == change.after:
        return "yes"
    return "no" if now == change.before else "unknown"


def digest_of(images: Images | None) -> NewDigest:
    """Return what begins the hash of a content: a mark where files are kept, else a plain SHA-256."""
    return images.digest if images is not None else hashlib.sha256


def content_hash(found: Place, new_digest: NewDigest) -> str:
    """Return the hash in hex; empty if there is no file."""
    if look(found) is None:
        return ""
    digest = new_digest()
    with open_regular(found, found.path) as fd:
        while chunk := os.read(fd, _CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
