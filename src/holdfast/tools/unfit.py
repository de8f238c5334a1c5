"""Says where no command may run in a sandbox, because it could reach there what no sandbox shows, or change what
Holdfast itself runs or obeys.
"""

# Paths are compared as text.
# ruff: noqa: PTH111, PTH116, PTH120

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from holdfast.policy.paths import is_inside, is_within
from holdfast.policy.protected import Own
from holdfast.protocol.allowed import is_of_kernel
from holdfast.protocol.fence import Backend
from holdfast.protocol.settings import Settings, Walls
from holdfast.sandbox.installed import CODE, OURS
from holdfast.sandbox.proxy import libraries
from holdfast.sandbox.system import LOADED, PROGRAMS
from holdfast.tools.led import way
from holdfast.tools.own import OwnPlaces, own_places

_HOMES = ("/home", "/Users")
"""Where the home folders of people lie."""
_FIRST_PERSON = 1_000
"""The first number of a user who is a person, not a service."""
_NOBODY = 65_534
_OF_KERNEL = frozenset({
    "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs", "fusectl",
    "nfsd", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
})  # fmt: skip
"""The file systems in which files are ways to speak to the kernel."""
SMALLER = "Work in a smaller folder (-w DIR); files can be read and written with the file tools."
_TAKE_OUT = "Take it out of [sandbox] write, or name a smaller folder there."
_MEANWHILE = "Landlock keeps it only by putting it back afterwards, and another Holdfast could use it before"
_ESCAPED = re.compile(r"\\([0-7]{3})")


def real(path: str) -> str:
    """Return what a path of `[sandbox]` leads to."""
    return os.path.realpath(os.path.expanduser(path))


def unfit_in(settings: Settings, own: Mapping[str, tuple[str, ...]], backend: Backend) -> str:
    """Return the same as `unfit` for this user, with the fields of an `Own`."""
    home = os.path.expanduser("~")  # `Path.home` may raise
    workspace = os.path.realpath(settings.tools.workspace)
    return unfit(workspace, settings.policy.walls, own_places(Own(**own)), os.path.realpath(home), backend)


def unfit(workspace: str, walls: Walls, own: OwnPlaces, home: str, backend: Backend) -> str:
    """Return why no command may run in a workspace, as the end of a sentence, and what to do, as another one.
    Empty if commands may run.

    Args:
        workspace: The workspace, with every link followed.
        walls: What the settings show of the rest.
        own: Holdfast's own files.
        home: The folder of the user, with every link followed.
        backend: The sandbox of commands.
    """
    if why := _private(workspace, own, home):
        return f"{why}. {SMALLER}"
    written, read = [*map(real, walls.write)], map(real, walls.read)
    mounts = _mounts()
    for path in (workspace, *read, *written):
        if is_of_kernel(path) or _has_kernel(path, mounts):
            return f"{path} is, or holds, a folder in which the kernel can be changed. {SMALLER}"
    named = (os.path.expanduser(each) for each in (*walls.read, *walls.write))
    if why := _misled((workspace, *written), own, named):
        return f"{why}. {SMALLER}"
    for path in (workspace, *written):
        if why := _changing(path, own, backend):
            return f"it {why}. {SMALLER}" if path == workspace else f"{path} {why}. {_TAKE_OUT}"
    return ""


def _private(workspace: str, own: OwnPlaces, home: str) -> str:
    """Return why a workspace is nobody's to run commands in: it is a home, or has Holdfast's own files."""
    for each in (home, *_homes_of_others()):
        if is_inside(workspace, each):
            return f"it is, or holds, the home folder {each}"
    if _is_home(workspace):
        return "it is the home folder of a user"
    for each in _HOMES:
        if is_inside(workspace, each):
            return f"it is, or holds, {each}, where the home folders are"
    for each in own.homes:  # a key may lie in a workspace
        if each not in own.keys and is_inside(workspace, each):
            return f"Holdfast's own files are in it ({each})"
    return ""


def _changing(folder: str, own: OwnPlaces, backend: Backend) -> str:
    """Return what a command could change there that Holdfast itself runs or obeys, as the end of a sentence."""
    for file in own.settings:
        if is_inside(folder, file) and not _is_file(file):
            return f"has a place where Holdfast looks for settings ({file}), and a command could put a file there"
    for each in CODE:
        if is_inside(each, folder):
            return f"lies in the code of Holdfast or of its Python ({each})"
    for each in (*PROGRAMS, *LOADED):
        if is_inside(folder, os.path.realpath(each)):
            return f"holds {each}, from where programs outside of every sandbox come"
    if backend == "landlock":
        # Under bubblewrap these are read-only.
        for each in (*own.settings, *own.homes, *OURS, *libraries()):
            if each not in own.keys and is_inside(folder, each):
                return f"holds what Holdfast itself uses ({each}). {_MEANWHILE}"
    return ""


def _misled(changed: Collection[str], own: OwnPlaces, named: Iterable[str]) -> str:
    """Return how a command could lead the next run to other settings, or the next command to other folders.

    Args:
        changed: Where commands may write.
        own: Holdfast's own files.
        named: What `[sandbox] read` and `write` name.
    """
    for link in own.links:
        if is_within(changed, link):
            return f"the link {link} leads to Holdfast's own files, and a command could replace it"
    # A command could have made it a moment ago, in place of the folder that the person named.
    for link in (link for path in named for link in way(path)[0]):
        if is_within(changed, link):
            return (
                f"the link {link} leads to what [sandbox] read or write names, and a command could replace it"
            )
    return ""


def _is_file(path: str) -> bool:
    """Return whether a file lies there, which a sandbox keeps as it is. It cannot keep a link, or a free name."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


@cache
def _homes_of_others() -> tuple[str, ...]:
    """Return the home folders of people on this machine, as far as they are there."""
    users = (each for each in pwd.getpwall() if _FIRST_PERSON <= each.pw_uid != _NOBODY or each.pw_uid == 0)
    homes = dict.fromkeys(os.path.realpath(each.pw_dir) for each in users if each.pw_dir.strip("/"))
    return tuple(each for each in homes if os.path.isdir(each))  # noqa: PTH112 - it may be closed


def _is_home(folder: str) -> bool:
    """Return whether a folder among the home folders belongs to somebody else, also if nobody has the name of a user
    here, as in a container.
    """
    if os.path.dirname(folder) not in _HOMES:
        return False
    with suppress(OSError):
        return os.stat(folder).st_uid not in (os.geteuid(), 0)
    return False


def _has_kernel(path: str, mounts: Mapping[str, str]) -> bool:
    """Return whether a path lies in such a file system, or holds one."""
    nearest = max((each for each in mounts if is_inside(each, path)), key=len, default="")
    return mounts.get(nearest) in _OF_KERNEL or any(
        kind in _OF_KERNEL and is_inside(path, each) for each, kind in mounts.items()
    )


def _mounts() -> Mapping[str, str]:
    """Return the file system of each place where one is mounted; nothing where the system does not say."""
    mounts = dict[str, str]()
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
            before, _, after = line.partition(" - ")
            place = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), before.split(" ")[4])
            mounts[place] = after.partition(" ")[0]
    return mounts
