"""list_dir, glob and grep. Both what they examine and what they return is limited.

They follow no symbolic link and skip `.git`, secret files and Holdfast's own. A pattern is matched in its own
process (`grep_child`), because a regular expression can run forever and cannot be stopped in this one.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import Any, NamedTuple

from holdfast.policy.paths import secret_rule
from holdfast.policy.protected import HOME
from holdfast.protocol.counts import counted
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.sandbox.process import Processes
from holdfast.tools.blocking import answer, attempt
from holdfast.tools.known import Known
from holdfast.tools.matching import broken, matched
from holdfast.tools.own import Identity, OwnPlaces, identity
from holdfast.tools.readers import reader
from holdfast.tools.schema import arguments_object
from holdfast.tools.unplanned import Unplanned
from holdfast.tools.workspace import (
    PathRefused,
    Root,
    deeper_secrets,
    kind_of,
    look,
    open_folder,
    place,
    refuse_protected,
    secret_identities,
)

MAX_ENTRIES = 500
"""Names or lines in one result."""
MAX_LOOKED_AT = 50_000
"""Files and folders that one call examines."""
MAX_DEPTH = 100
MAX_WALK_S = 10.0
GREP_S = 30.0

_PASSED_OVER = frozenset({".git", ".hg", ".svn"})

_FOLDER = {"type": "string", "minLength": 1, "default": ".", "description": "Folder, in the workspace."}
_GLOB = "`*` and `?` stay within a name, `**` crosses folders."


class ListDir(Unplanned):
    """list_dir: lists a folder."""

    def __init__(self, own: OwnPlaces) -> None:
        self._own = own
        self._known = Known()
        self.spec = reader(
            name="list_dir",
            description="List a folder: folders end in /, links in @, files show their size in bytes.",
            parameters=arguments_object(required=[], path=_FOLDER),
            kinds={"path": "path"},
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Return one entry per line, folders first."""
        path = arguments.get("path", ".")
        result = await answer(path, lambda: _list(Root(context.workspace, self._own), path))
        return self._known.marked(result, context, normpath(path))


class Glob(Unplanned):
    """glob: finds files by name."""

    def __init__(self, own: OwnPlaces) -> None:
        self._own = own
        self._known = Known()
        self.spec = reader(
            name="glob",
            description=f"Find files by name under a folder, e.g. `**/*.py`. {_GLOB}",
            parameters=arguments_object(
                required=["pattern"], pattern={"type": "string", "minLength": 1}, path=_FOLDER
            ),
            kinds={"path": "path", "pattern": "query"},
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Return one path per line, relative to the workspace, sorted."""
        pattern, path = arguments["pattern"], arguments.get("path", ".")
        result = await answer(path, lambda: _glob(Root(context.workspace, self._own), path, pattern))
        return self._known.marked(result, context, pattern, normpath(path))


class Grep(Unplanned):
    """grep: finds lines by content."""

    def __init__(self, processes: Processes, own: OwnPlaces) -> None:
        self._processes = processes
        self._own = own
        self._known = Known()
        self.spec = reader(
            name="grep",
            description="Search text files under a folder for a regular expression (Python's), line by line. "
            f"`glob` narrows it to files, e.g. `*.py`. {_GLOB}",
            parameters=arguments_object(
                required=["pattern"],
                pattern={"type": "string", "minLength": 1},
                path={**_FOLDER, "description": "Folder or file, in the workspace."},
                glob={"type": "string", "minLength": 1},
            ),
            kinds={"path": "path", "pattern": "query"},
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Return `path:line: text` for each line, with paths relative to the workspace."""
        pattern, path = arguments["pattern"], arguments.get("path", ".")
        if (refusal := broken(pattern)) is not None:
            return refusal
        glob = arguments.get("glob", "")
        searched = await attempt(path, lambda: _searchable(Root(context.workspace, self._own), path, glob))
        if isinstance(searched, RawResult):
            return searched
        try:
            result = await self._match(pattern, searched, context)
            return self._known.marked(result, context, pattern, normpath(path), glob)
        finally:
            os.close(searched.fd)

    async def _match(self, pattern: str, searched: _Searched, context: CallContext) -> RawResult:
        request = {
            "pattern": pattern,
            "files": searched.files,
            "secret": searched.secret,
            "own": searched.own,
            "homes": searched.homes,
            "prefix": searched.prefix,
            "max_lines": MAX_ENTRIES,
        }
        result = await matched(
            self._processes, "grep_child", request, context, GREP_S, (searched.fd,), searched.homes
        )
        if result.status != "ok":
            return result
        return RawResult("ok", (result.text or "[no lines match]\n") + searched.note)


class _Searched(NamedTuple):
    """The files of a search, relative to an open folder. The caller closes it."""

    fd: int
    files: list[str]
    prefix: str
    """The folder relative to the workspace, ending in a slash; empty for the workspace itself."""
    note: str
    """Says what was not examined."""
    secret: list[Identity]
    """Device and inode of secret files. They are skipped under other names too."""
    own: list[Identity]
    """Holdfast's own files. They are always skipped."""
    homes: list[str]
    """Folders whose files are skipped under other names too."""


def _searchable(root: Root, path: str, glob: str) -> _Searched:
    passed_over = (sorted(root.own.identities(HOME)), list(root.own.homes))
    with place(root, path) as found:
        refuse_protected(path, found, "read")
        facts = look(found)
        if facts is not None and kind_of(facts.st_mode) == "file":
            folder = found.path.rpartition("/")[0]
            files, note, secret = _told_apart(root, found.folder_fd, [found.name])
            prefix = folder and f"{folder}/"
            return _Searched(os.dup(found.folder_fd), files, prefix, note, secret, *passed_over)
    with open_folder(root, path) as (fd, found):
        prefix = "" if found.path == "." else f"{found.path}/"
        pattern = glob if "/" in glob or not glob else f"**/{glob}"
        files, note = _files(fd, lambda name: not pattern or matches(name, pattern), root.own)
        files = [file for file in files if not secret_rule(prefix + file)]
        files, more, secret = _told_apart(root, fd, files)
        return _Searched(os.dup(fd), files, prefix, note + more, secret, *passed_over)


def _told_apart(root: Root, folder: int, files: list[str]) -> tuple[list[str], str, list[Identity]]:
    """Return the files that are searched, a note about the others, and the secret files, which may be among them by
    another name.
    """
    secret = secret_identities(root.folder)
    linked = {file for file in files if _has_other_names(folder, file)}
    if not linked:
        return files, "", sorted(secret)
    try:
        secret.update(deeper_secrets(root.folder))
    except PathRefused:
        note = f"[{counted(len(linked), 'file')} with several names (hard links) not examined: one may be secret]\n"
        return [file for file in files if file not in linked], note, sorted(secret)
    return files, "", sorted(secret)


def _has_other_names(folder: int, file: str) -> bool:
    try:
        return os.stat(file, dir_fd=folder, follow_symlinks=False).st_nlink > 1
    except OSError:  # it is gone
        return False


def _list(root: Root, path: str) -> str:
    with open_folder(root, path) as (fd, _), os.scandir(fd) as entries:
        folders, others = [], []
        for entry in itertools.islice(entries, MAX_LOOKED_AT):
            name = _shown(entry.name)
            if entry.is_symlink():
                others.append(f"{name}@")
            elif entry.is_dir(follow_symlinks=False):
                folders.append(f"{name}/")
            else:
                with suppress(FileNotFoundError):
                    others.append(f"{name}  {entry.stat(follow_symlinks=False).st_size}")
    return _told(sorted(folders) + sorted(others), "[the folder is empty]", "")


def _glob(root: Root, path: str, pattern: str) -> str:
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise PathRefused(f"{pattern}: a pattern is relative to `path` and cannot leave it.")
    with open_folder(root, path) as (fd, found):
        prefix = "" if found.path == "." else f"{found.path}/"
        files, note = _files(fd, lambda name: matches(name, pattern), root.own)
    return _told([_shown(prefix + file) for file in files], "[no files match]", note)


def matches(path: str, pattern: str) -> bool:
    """Return whether a relative path matches a glob: `*`, `?` and `[...]` within a name, `**` for any folders.

    The time is proportional to both lengths: `**` needs no backtracking.
    """
    names, globs = path.split("/"), [glob for glob in pattern.split("/") if glob not in ("", ".")]
    reached = {0}
    """How many globs the names so far may have used."""
    for name in names:
        reached = _closed(reached, globs)
        reached = {
            at if globs[at] == "**" else at + 1
            for at in reached
            if at < len(globs) and (globs[at] == "**" or fnmatchcase(name, globs[at]))
        }
    return len(globs) in _closed(reached, globs)


def _closed(reached: set[int], globs: list[str]) -> set[int]:
    """Add every position that is reached because a `**` may match no folder."""
    for at in range(len(globs)):
        if at in reached and globs[at] == "**":
            reached.add(at + 1)
    return reached


def _files(folder: int, is_wanted: Callable[[str], bool], own: OwnPlaces) -> tuple[list[str], str]:
    """Return the matching files under an open folder, sorted, and a note if not all were examined."""
    until, looked_at = time.monotonic() + MAX_WALK_S, 0
    homes = own.identities(HOME)
    found: list[str] = []
    # Each folder is opened relative to its parent and never through a link, also under races.
    for path, folders, files, here in os.fwalk(".", dir_fd=folder):
        if identity(os.fstat(here)) in homes:
            folders[:] = files[:] = []
        looked_at += len(folders) + len(files)
        base = path[2:] + "/" if len(path) > 1 else ""
        is_deep = path.count("/") >= MAX_DEPTH
        folders[:] = [] if is_deep else sorted(name for name in folders if name not in _PASSED_OVER)
        found += [base + name for name in sorted(files) if is_wanted(base + name)]
        if looked_at > MAX_LOOKED_AT or time.monotonic() > until:
            return found, f"[only the first {looked_at} files and folders were examined]\n"
    return found, ""


def _told(lines: list[str], nothing: str, note: str) -> str:
    if len(lines) > MAX_ENTRIES:
        note = f"[{len(lines) - MAX_ENTRIES} more: narrow the search]\n{note}"
    return "".join(f"{line}\n" for line in lines[:MAX_ENTRIES] or [nothing]) + note


def _shown(name: str) -> str:
    """Return a name as valid text on one line, so that no file can look like several."""
    text = os.fsencode(name).decode(errors="replace")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
