"""Finds the git repository of a workspace, and makes a view of it in which its own settings do not count.

A repository's config can name programs for almost everything that git does: monitors, hooks, filters, text
conversions, pagers, signatures, transports. A list of all such keys would never be complete. So git is not given the
config: it works in a folder of its own (`View`) with copies of the small files, links to the refs and objects, and a
config that has only harmless values. What git does not know of, it cannot run.
"""

# Pathlib makes an object for each name.
# ruff: noqa: PTH112, PTH114, PTH118, PTH119, PTH120, PTH208, PTH211

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import msgspec

from holdfast import depths
from holdfast.clock import SYSTEM_CLOCK
from holdfast.locks import Lock, try_lock
from holdfast.policy.paths import is_inside
from holdfast.sandbox.work_folder import work_folder, work_place
from holdfast.tools.blocking import Refused
from holdfast.tools.git_config import parsed
from holdfast.tools.own import OwnPlaces
from holdfast.tools.workspace import Root, open_to_read

COPIED_BYTES = 128 << 20
"""The largest index that is copied."""
_SMALL_BYTES = 1 << 20
_PREFIX = "holdfast-git-"
_LEFT_MS = 3_600_000
"""No call takes so long."""
_HEAD = re.compile(r"(?:ref: refs/[^\s\x00-\x1f]{1,500}|[0-9a-f]{40}|[0-9a-f]{64})\Z")
_VALUE = re.compile(r"[A-Za-z0-9.-]{0,32}\Z")
_WORKTREE = re.compile(r"(?m)^\tworktree = ([^\"\\#;\n]+)$")
"""As git writes it into the config of a submodule. A path with characters that it would quote is not read."""

KEPT_KEYS = frozenset({
    "core.autocrlf", "core.checkstat", "core.eol", "core.filemode", "core.ignorecase", "core.precomposeunicode",
    "core.repositoryformatversion", "core.sparsecheckout", "core.sparsecheckoutcone", "core.symlinks",
    "core.trustctime", "extensions.objectformat", "extensions.refstorage",
})  # fmt: skip
"""How files are compared and where refs lie. None of them names a program or a file."""
_IDLE_EXTENSIONS = frozenset(
    {"noop", "partialclone", "preciousobjects", "relativeworktrees", "worktreeconfig"}
)
"""Extensions that change nothing for a reader."""

_OF_WORKTREE = ("index", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "ORIG_HEAD", "info/sparse-checkout")
_OF_ALL = ("packed-refs", "shallow", "info/exclude")
_UNDER_WAY = {
    "MERGE_HEAD": "A merge", "CHERRY_PICK_HEAD": "A cherry-pick", "REVERT_HEAD": "A revert",
    "rebase-merge": "A rebase", "rebase-apply": "A rebase or `git am`", "BISECT_LOG": "A bisection",
}  # fmt: skip


class Repository(msgspec.Struct, frozen=True):
    """A repository that a workspace belongs to. All paths are absolute; but for `named`, every link is followed."""

    top: str
    """The folder of the working tree: the workspace, or one above it."""
    folder: str
    """The folder with HEAD and the index."""
    common: str
    """The folder with refs, objects and config. A linked working tree shares it with others."""
    named: str
    """The path by which git finds `folder`, with links as they are."""

    @property
    def folders(self) -> tuple[str, str]:
        """What git needs of it beside the working tree."""
        return self.common, self.folder


class View(msgspec.Struct, frozen=True):
    """What git is given instead of the repository."""

    repository: Repository
    folder: str
    environment: Mapping[str, str]
    under_way: tuple[str, ...]
    """What was begun in the repository and is not finished."""


def has_entry(workspace: str) -> bool:
    """Return whether a workspace, or a folder above it, has a `.git`."""
    return bool(_top_of(workspace))


def find(workspace: str, own: OwnPlaces, *, takes_link: bool = False) -> Repository:
    """Return the repository of a workspace.

    Args:
        workspace: The workspace.
        own: Holdfast's own files.
        takes_link: Whether its `.git` may be a link to a repository elsewhere that belongs to nobody else, though
            nothing there leads back.

    Raises:
        Refused: no folder has a `.git`, or its files lie where nothing in the workspace may lead.
        OSError: it cannot be read.
    """
    workspace = os.path.realpath(workspace)
    top = _top_of(workspace)
    if not top:
        raise Refused("The workspace is not in a git repository.")
    entry = os.path.join(top, ".git")
    named = entry if os.path.isdir(entry) else _named_in(entry, top)
    folder = os.path.realpath(named)
    is_users = not is_inside(workspace, entry)
    if not is_users and not is_inside(workspace, folder):
        is_users = _leads_back(folder, entry, own)
        is_taken = takes_link and os.path.islink(entry) and _is_nobodys(folder, own)
        if not (is_users or is_taken):
            raise Refused(
                f".git leads to {folder}, outside the workspace, and nothing there leads back to it."
            )
    common = _common(folder, own)
    if not is_inside(common, folder):
        raise Refused(
            "The repository names a folder elsewhere for its objects (commondir), so it is not read."
        )
    for name in ("objects", "refs"):
        if not stat.S_ISDIR(os.lstat(os.path.join(common, name)).st_mode):
            raise Refused(f"The repository's `{name}` is not a folder, so it is not read.")
    if not is_users:
        if not is_inside(workspace, common) and common != folder:
            raise Refused(
                f"The repository names {common}, outside the workspace, for its objects (commondir)."
            )
        _refuse_borrowed_objects(common)
    return Repository(top, folder, common, named)


def borrowed(repository: Repository) -> Sequence[str]:
    """Return the folders that a repository takes objects from."""
    with suppress(OSError):
        lines = (
            Path(repository.common, "objects", "info", "alternates").read_text(errors="replace").splitlines()
        )
        return [line for line in lines if line.startswith("/") and os.path.isdir(line)]
    return ()


@contextmanager
def view_of(repository: Repository, own: OwnPlaces, writable: Sequence[str] = ()) -> Iterator[View]:
    """Make the view. It is removed at the end. Its config has no settings yet: `write_config` adds them.

    Args:
        repository: The repository.
        own: Holdfast's own files. In a home among them, no command can change the view.
        writable: Where commands may write beside the working tree.

    Raises:
        Refused: the repository is damaged, or too large.
        OSError: it cannot be read, or the view cannot be made.
    """
    writable = (repository.top, *writable)
    sweep(work_place(own.homes, writable))
    with work_folder(_PREFIX, own.homes, writable) as folder, _locked(folder):
        Path(folder, "info").mkdir()
        head = _read(repository.folder, "HEAD", own, _SMALL_BYTES).decode(errors="replace").rstrip("\n")
        if not _HEAD.match(head):
            raise Refused("The repository's HEAD names neither a branch nor a commit.")
        Path(folder, "HEAD").write_text(head + "\n")
        for source, names in ((repository.folder, per_worktree(repository)), (repository.common, _OF_ALL)):
            for name in names:
                with suppress(FileNotFoundError):
                    copy_small(source, name, own, os.path.join(folder, name))
        for name in ("objects", "refs", "reftable"):
            if os.path.isdir(os.path.join(repository.common, name)):
                os.symlink(os.path.join(repository.common, name), os.path.join(folder, name))
        Path(folder, "theirs").write_bytes(_read(repository.common, "config", own, _SMALL_BYTES))
        Path(folder, "config").write_text("[core]\n\tbare = false\n")
        yield View(repository, folder, _environment(folder, repository.top), _under_way(repository.folder))


@cache
def sweep(folder: str) -> None:
    """Remove the views in a folder whose processes were killed. Each process does this once."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):
                    age_ms = (
                        SYSTEM_CLOCK.now_ms() - entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000
                    )
                    if age_ms > _LEFT_MS:  # a younger one may not have its lock yet
                        with _locked(entry.path) as lock:
                            if lock == "ours":
                                depths.remove(entry.path)


@contextmanager
def _locked(folder: str) -> Iterator[Lock]:
    """Lock a view, if nobody else has.

    Raises:
        OSError: it is not a folder.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield try_lock(fd)
    finally:
        os.close(fd)


def write_config(view: View, listed: str) -> None:
    """Write the harmless settings of the repository into the view's config.

    Args:
        view: The view.
        listed: What `git config --list -z` says about the config of the repository.

    Raises:
        Refused: the repository has an extension that this does not know.
    """
    lines = ["[core]", "\tbare = false"]
    for entry in listed.split("\0"):
        key, has_value, value = entry.partition("\n")
        value = value if has_value else "true"
        section, _, name = key.rpartition(".")
        if section == "extensions" and key not in KEPT_KEYS and name not in _IDLE_EXTENSIONS:
            raise Refused(f"The repository needs the extension {name!r}, which these tools do not know.")
        if key in KEPT_KEYS and _VALUE.match(value):
            lines += [f"[{section}]", f"\t{name} = {value}"]
    Path(view.folder, "config").write_text("\n".join(lines) + "\n")


def _top_of(workspace: str) -> str:
    """Return the nearest folder with a `.git`, from the workspace upwards; empty if no folder has one."""
    top = os.path.realpath(workspace)
    while not os.path.lexists(os.path.join(top, ".git")):
        if top == os.path.dirname(top):
            return ""
        top = os.path.dirname(top)
    return top


def per_worktree(repository: Repository) -> Sequence[str]:
    """Return the names of small files that a linked working tree has for itself."""
    shared = [name for name in os.listdir(repository.folder) if name.startswith("sharedindex.")]
    return [*_OF_WORKTREE, *shared]


def _environment(folder: str, top: str) -> dict[str, str]:
    """Return git's whole environment: nothing of the user's, and none of the variables that change what it reads."""
    return {
        "PATH": os.defpath,
        "HOME": folder,
        "XDG_CONFIG_HOME": folder,
        "LC_ALL": "C.UTF-8",
        "TZ": os.environ.get("TZ", ""),
        "GIT_DIR": folder,
        "GIT_WORK_TREE": top,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_PAGER": "cat",
    }


def _under_way(folder: str) -> tuple[str, ...]:
    return tuple(what for name, what in _UNDER_WAY.items() if os.path.lexists(os.path.join(folder, name)))


def _named_in(entry: str, top: str) -> str:
    """Return the folder that a `.git` file names."""
    with open_to_read(Root(top), ".git") as (fd, _):
        text = os.read(fd, 5_000).decode(errors="replace").rstrip("\n")
    if not text.startswith("gitdir: ") or "\n" in text:
        raise Refused(f"{os.path.basename(entry)} is neither a repository nor a file that names one.")
    return os.path.join(top, text.removeprefix("gitdir: "))


def _leads_back(folder: str, entry: str, own: OwnPlaces) -> bool:
    """Return whether a folder outside the workspace names the workspace's `.git`, as git does for a linked working
    tree, or the workspace, as it does for a submodule. Nothing in the workspace can make that so.
    """
    with suppress(FileNotFoundError, Refused):
        named = _read(folder, "gitdir", own, _SMALL_BYTES).decode(errors="replace").rstrip("\n")
        return os.path.realpath(os.path.join(folder, named)) == os.path.realpath(entry)
    with suppress(Refused, OSError):
        tree = _WORKTREE.search(_read(folder, "config", own, _SMALL_BYTES).decode(errors="replace"))
        return tree is not None and os.path.realpath(os.path.join(folder, tree[1])) == os.path.dirname(entry)
    return False


def _is_nobodys(folder: str, own: OwnPlaces) -> bool:
    """Return whether a folder is a repository that nothing says to be of another working tree, or of none. A folder
    from a stranger could link to every repository of this machine.
    """
    if ".git" in folder.casefold().split("/"):
        return False
    with suppress(Refused, OSError):
        if any(os.path.lexists(os.path.join(folder, name)) for name in ("gitdir", "commondir")):
            return False
        head = _read(folder, "HEAD", own, _SMALL_BYTES).decode(errors="replace").rstrip("\n")
        entries = parsed(_read(folder, "config", own, _SMALL_BYTES).decode(errors="replace"))
        # A bare repository has no working tree, and a tree of its own is not this one.
        says = {entry.key: entry.value.lower() for entry in entries or ()}
        is_plain = "core.worktree" not in says and says.get("core.bare") in ("false", "no", "off", "0")
        return _HEAD.match(head) is not None and is_plain
    return False


def _common(folder: str, own: OwnPlaces) -> str:
    try:
        named = _read(folder, "commondir", own, _SMALL_BYTES).decode(errors="replace").rstrip("\n")
    except FileNotFoundError:
        return folder
    return os.path.realpath(os.path.join(folder, named))


def _refuse_borrowed_objects(common: str) -> None:
    """Refuse a repository whose objects may lie elsewhere: the workspace could lead git to those of another one."""
    objects = os.path.join(common, "objects")
    for name in ("info/alternates", "info/http-alternates"):
        if os.path.lexists(os.path.join(objects, name)):
            raise Refused("The repository borrows objects of another one (alternates), so it is not read.")
    for folder in (objects, os.path.join(objects, "pack")):
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            if any(entry.is_symlink() for entry in entries):
                raise Refused("The repository's `objects` has a symbolic link, so it is not read.")


def copy_small(folder: str, name: str, own: OwnPlaces, to: str) -> None:
    """Copy a file with its time. Git compares the index's with those of the files: one that changed in the second of
    the index may have changed after it.
    """
    with open_to_read(Root(folder, own), name) as (fd, _):
        facts = os.fstat(fd)
        Path(to).write_bytes(_content(fd, name, COPIED_BYTES))
    os.utime(to, ns=(facts.st_mtime_ns, facts.st_mtime_ns))


def _read(folder: str, name: str, own: OwnPlaces, most: int) -> bytes:
    """Read a file of the repository. No link leads out of the folder."""
    with open_to_read(Root(folder, own), name) as (fd, _):
        return _content(fd, name, most)


def _content(fd: int, name: str, most: int) -> bytes:
    with open(fd, "rb", closefd=False) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Refused(f"The repository's `{name}` is larger than {most >> 20} MiB, so it is not read.")
    return content
