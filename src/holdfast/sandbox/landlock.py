"""The backend `landlock`: a process gives up all rights that its fence does not name, and then becomes the program.

It needs a Linux from 6.12 on and nothing else: no program, no namespaces, no rights. Landlock allows files by rules,
and no TCP. A filter of system calls takes what Landlock does not know. Where a call may reach hosts, this filter asks
the proxy about each connection, and the proxy makes it (`proxy_entrance`). `landlock_rights` does both to itself.
`probe` finds out whether all this works on a machine.

Landlock cannot take anything out of a folder that it allows, and nothing is hidden: there is one list of files and
one list of processes. So commands can read the secret files of the workspace, whose values Holdfast masks, and
change what is protected there, which `tools.kept` puts back afterwards.
"""

# The system has hundreds of files that are allowed one by one.
# ruff: noqa: PTH110, PTH112, PTH114, PTH118, PTH208

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from holdfast.policy.paths import is_inside, is_within
from holdfast.protocol.fence import Backend, Fence, Finding, Launch, Rights
from holdfast.sandbox import proxy, proxy_tls, seccomp, trees
from holdfast.sandbox.landlock_rights import OF_FILES
from holdfast.sandbox.own_folder import new_name
from holdfast.sandbox.probing import attempt
from holdfast.sandbox.searched import SearchPaths
from holdfast.sandbox.system import PRIVATE_BYTES, SYSTEM, limits, memory_together, secrets_of_system

LEAVES_OPEN = (
    "reading the secret files of the workspace (their values are masked in what it prints)",
    "changing files that control other programs (.git/hooks, .vscode) for as long as the command runs",
    "changing the mode and the times of files that belong to you, wherever they are",
    "seeing the names and sizes of files everywhere",
    "using all processors until the time limit",
)
LETS = ("read a masked file", "change a protected file", "remove a protected file",
        "rename the folder of a protected file")  # fmt: skip
"""What the probe finds open, and what is put back or masked."""
_HINT = "Landlock needs Linux 6.12 or later, with landlock in the list of /sys/kernel/security/lsm."


_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_CONTROL_DEVICES = 1 << 15
_TRUNCATE = 1 << 14
_MAKE_DEVICES = 1 << 6 | 1 << 11
_USE = _EXECUTE | _READ | _LIST
_FILES_BY_ABI = ((5, (1 << 16) - 1), (3, (1 << 15) - 1), (2, (1 << 14) - 1), (1, (1 << 13) - 1))
"""From which version on, and the rights to files that it knows."""
_TCP, _TCP_ABI = 0b11, 4
"""To bind and to connect."""
_SCOPES, _SCOPES_ABI = 0b11, 6
"""Abstract sockets, and signals."""
_VERSION = 1
_CREATE = 444

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SHARED_MEMORY = "/dev/shm"
_KERNEL = tuple(
    f"/proc/{name}"
    for name in (
        "self", "sys", "cpuinfo", "meminfo", "stat", "version", "uptime", "loadavg", "filesystems", "swaps", "vmstat",
        "cmdline", "devices", "cgroups", "pressure", "diskstats", "partitions",
    )
)  # fmt: skip
"""Nothing about other processes, not even their arguments. `self` is the first program only: what it starts has a
folder that nobody can name before."""
_HOME, _TEMPORARY, _PROGRAMS, _AUTHORITIES = "home", "tmp", "bin", "authorities.pem"
"""What is in the own folder of a call."""


class Landlock:
    """Fences processes with the kernel's Landlock.

    Args:
        abi: The version of it.
    """

    backend: Backend = "landlock"

    def __init__(self, abi: int) -> None:
        files = next(rights for first, rights in _FILES_BY_ABI if abi >= first)
        self._all = files & ~_MAKE_DEVICES & ~_CONTROL_DEVICES
        self._handled = [files]
        if abi >= _TCP_ABI:
            self._handled.append(_TCP)
        if abi >= _SCOPES_ABI:
            self._handled.append(_SCOPES)
        self._hidden: tuple[str, ...] | None = None
        self._apart: tuple[str, ...] = ()
        self._system: list[tuple[str, int]] = []
        self._paths = SearchPaths()
        self._filters = {each: seccomp.shared_program(has_network=each) for each in (False, True)}
        self._found: Finding | None = None

    async def probe(self) -> Finding:
        """Run a program inside that tries what a fence forbids."""
        if self._found is None:
            fault = await attempt(self, LETS)
            self._found = Finding("landlock", fault, _HINT if fault else "", LEAVES_OPEN)
        return self._found

    def launch(self, launch: Launch, fence: Fence) -> Launch:
        """Return how to start it inside the fence.

        Raises:
            SandboxUnavailable: there is no place for a folder of its own.
        """
        granted = {
            **dict.fromkeys(_seen(fence), _USE & self._handled[0]),
            **dict.fromkeys(filter(os.path.lexists, fence.writable), self._all),
        }
        own = launch.own_folder or new_name(launch.key, fence.writable)
        home, temporary = f"{own}/{_HOME}", f"{own}/{_TEMPORARY}"
        known_home = next(iter(fence.private), "")
        has_way = launch.way_fd is not None
        variables = {
            **(proxy.variables() if has_way else {}),
            **(proxy_tls.variables(f"{own}/{_AUTHORITIES}") if launch.authorities else {}),
        }
        moved = {
            _moved(path, known_home): content
            for path, content in fence.files.items()
            if known_home and is_inside(known_home, path)
        }
        search, programs = self._paths.inside(launch.env.get("PATH", ""), (*granted, own))
        rights = Rights(
            handled=tuple(self._handled),
            shown=tuple(granted.items()),
            paths=tuple(self._of_system(fence)),
            own=own,
            own_rights=self._all,
            folders=(_HOME, _TEMPORARY, _PROGRAMS),
            files={
                **({_AUTHORITIES: launch.authorities.decode()} if launch.authorities else {}),
                **moved,
                **{f"{_PROGRAMS}/{name}": script for name, script in programs.items()},
            },
            links={_moved(path, known_home): path for path in _within(known_home, granted)},
            shared=_shared((*granted, own, launch.cwd)),
            shared_bytes=PRIVATE_BYTES,
            tag_limit=seccomp.TAG_LIMIT,
            tag=trees.tag(launch.key),
            capset=seccomp.capset(),
            filter=self._filters[has_way].hex(),
            installation=seccomp.installation(),
            way_fd=launch.way_fd,
        )
        is_home_shown = is_within(granted, known_home)
        return replace(
            launch,
            rights=rights,
            own_folder=own,
            processes=fence.processes,
            memory_bytes=memory_together(fence),
            env={
                **launch.env,
                **(
                    {"PATH": f"{own}/{_PROGRAMS}:{search}" if programs else search}
                    if "PATH" in launch.env
                    else {}
                ),
                **({"HOME": home} if not is_home_shown else {}),
                "TMPDIR": temporary,
                **variables,
            },
            limits=limits(fence),
        )

    def _of_system(self, fence: Fence) -> list[tuple[str, int]]:
        """Return the rights to what the system shows, without what is secret there now, or hidden by the fence."""
        hidden, roots = secrets_of_system(), (*fence.writable, *fence.readable)
        apart = tuple(
            path
            for path in (*fence.masked, *fence.private)
            if is_within(SYSTEM, path) and not is_within(roots, path)
        )
        # It may have been looked for again. Then folders beside it may be new, too.
        if hidden is not self._hidden or apart != self._apart:
            self._hidden, self._apart = hidden, apart
            self._system = [*_system(self._handled[0], (*hidden, *apart))]
        return self._system


@cache
def make() -> Landlock | Finding:
    """Return the backend, the same object each time, or why this machine cannot have it. It is not known yet whether
    it keeps anything out.
    """
    if not sys.platform.startswith("linux") or not seccomp.is_known():
        return Finding("landlock", "It does not know this system or this processor.")
    abi = ctypes.CDLL(None).syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)
    if abi < 1:
        return Finding("landlock", "This kernel has no Landlock, or does not allow its use here.", _HINT)
    return Landlock(abi)


def _seen(fence: Fence) -> Iterator[str]:
    """Yield what a fence lets a process read, without what it hides there."""
    for root in filter(os.path.exists, fence.readable):
        yield from parts(root, fence.masked)


def parts(root: str, hidden: Iterable[str]) -> Iterator[str]:
    """Yield what must be allowed for a file or folder, so that all of it is but what is hidden in it."""
    following = [(root, hidden)]
    while following:
        folder, known = following.pop()
        inside = [path for path in known if is_inside(folder, path)]
        if not inside:
            yield folder
        elif folder not in inside:
            below = [os.path.join(folder, name) for name in sorted(os.listdir(folder), reverse=True)]
            # What a link leads to has a rule of its own, or none. The link needs none.
            following += [(path, inside) for path in below if not os.path.islink(path)]


def _system(files: int, hidden: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the rights to the folders of the system, to devices and to what the kernel tells of itself."""
    for root in SYSTEM:
        if not os.path.islink(root) and os.path.isdir(root):
            found = [*parts(root, hidden)]
            yield from ((path, _USE if os.path.isdir(path) else _USE & OF_FILES) for path in found)
            if found != [root]:
                yield root, _LIST
    yield from ((path, (_READ | _WRITE | _TRUNCATE | _CONTROL_DEVICES) & files) for path in _DEVICES)
    yield from (
        (path, _READ | _LIST if os.path.isdir(path) else _READ) for path in _KERNEL if os.path.exists(path)
    )


def _shared(used: Iterable[str]) -> str:
    """Return where a call gets memory of its own that its processes share, which semaphores need. Empty: it uses what
    lies there, or above, and would no longer find it.
    """
    folder = os.path.realpath(_SHARED_MEMORY)
    return "" if any(is_within((folder,), path) or is_inside(path, folder) for path in used) else folder


def _within(home: str, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths that lie in the home: programs look for them in the home that they get. What lies in one of
    them is found there.
    """
    inside = {path: None for path in paths if home and path != home and is_inside(home, path)}
    return (path for path in inside if inside.keys().isdisjoint(map(str, Path(path).parents)))


def _moved(path: str, home: str) -> str:
    """Return where a path of the home is in the own folder."""
    return os.path.join(_HOME, os.path.relpath(path, home))
