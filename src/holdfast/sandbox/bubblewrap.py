"""The backend `bubblewrap`: a process sees only what its fence names, in namespaces of its own. Its
network leads nowhere, or to the proxy.

`bwrap` makes the namespaces. It gets its arguments and its filter of system calls from descriptors, so no list of
processes shows them, and has no variable that the program may not see. `probe` finds out whether all this works on a
machine.

What this does not stop: reading the workspace and the system's folders, using the processor, and creating files with
controlling names that did not exist when the program began. `tools.aside` puts these aside.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from holdfast.errors import SandboxUnavailable
from holdfast.policy.paths import is_inside, is_within
from holdfast.protocol.fence import Backend, Fence, Finding, Held, Launch
from holdfast.sandbox import proxy, proxy_tls, seccomp
from holdfast.sandbox.probing import ENDED, attempt
from holdfast.sandbox.system import (
    PRIVATE_BYTES,
    SYSTEM,
    limits,
    memory_together,
    program_outside,
    secrets_of_system,
)

PROGRAM = "bwrap"
LEAVES_OPEN = (
    "reading the workspace and the folders of the system",
    "creating files that control other programs (.envrc, .vscode) for as long as the command runs",
    "using all processors until the time limit",
)

_HINT = (
    "For bubblewrap on Ubuntu, install the AppArmor profile bwrap-userns-restrict. In a container, allow user "
    "namespaces (`--security-opt seccomp=unconfined --security-opt systempaths=unconfined`)."
)
_HINTS = {"It could not": _HINT, ENDED: "The log of the kernel (`dmesg`) may say what ended bubblewrap."}
"""What to do about a fault that begins so."""
_NOT_ITSELF = "Look whether the bwrap that PATH leads to is the program of the package bubblewrap."
_KERNEL = "/proc/sys"
"""Settings of the kernel, which root could change."""
_KERNEL_FOLDERS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/acpi", "/proc/scsi")
"""More of these, which nothing reads. An empty folder over one costs less than a mount that is read-only: for such a
mount `bwrap` reads the list of all mounts."""
_KERNEL_FILES = (
    "/proc/sysrq-trigger",
    "/proc/kcore",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/latency_stats",
)
_NAMESPACES = (
    "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    "--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox",
)  # fmt: skip
_ORDINARY_USER = "1000"
"""Who root is inside."""
_PRIVATE_BYTES = str(PRIVATE_BYTES)
MAX_PLACES = 2_000
"""The most masks and the like of one command. Their time grows with the square: about 5 s for so many."""
_TEMPORARY = "/tmp"
_FIRST_FD = 100
"""Above the descriptors that tools pass."""
_SWAPPED = (
    "The command did not run: while its sandbox was made, a folder on the way to {path} became a link. It can be "
    "called again."
)
_MOVED = (
    "The command did not run: while its sandbox was made, {path} was moved, removed, or closed to its owner. It can "
    "be called again."
)
_NULL = "/dev/null"
_NEW_ROOT = "/newroot"
"""Where `bwrap` mounts what it shows, until the program begins."""
_LISTED = {ord(char): f"\\{ord(char):03o}" for char in " \t\n\\"}
"""How the kernel's list of mounts has some characters of a path."""
_BY_DESCRIPTOR = {"--bind": "--bind-fd", "--ro-bind": "--ro-bind-fd", "--ro-bind-try": "--ro-bind-fd"}


class Bubblewrap:
    """Fences processes with `bwrap`.

    Args:
        program: Its absolute path.
    """

    backend: Backend = "bubblewrap"

    def __init__(self, program: str) -> None:
        self._program = program
        self._system = tuple(_system())
        self._filter = seccomp.program()
        self._found: Finding | None = None

    async def probe(self) -> Finding:
        """Run a program inside that tries what a fence forbids."""
        if self._found is None:
            fault = await attempt(self)
            hint = next((hint for begin, hint in _HINTS.items() if fault.startswith(begin)), _NOT_ITSELF)
            hint = hint if fault else ""
            self._found = Finding("bubblewrap", fault, hint, LEAVES_OPEN)
        return self._found

    def launch(self, launch: Launch, fence: Fence) -> Launch:
        """Return how to start it inside the fence.

        Raises:
            SandboxUnavailable: the fence has more places than `bwrap` can mount.
        """
        number = max((_FIRST_FD, *(fd + 1 for fd in launch.pass_fds)))
        argv, variables = launch.argv, dict[str, str]()
        if launch.way_fd is not None:
            argv, variables = proxy.through(launch.way_fd, argv), proxy.variables()
            fence = _with_interpreter(fence)
        fence = _as_it_is(fence)
        shown, opened = _by_descriptor([*_mounts(fence)], fence.writable, number + 5)
        if launch.authorities:
            shown += ["--perms", "0444", "--file", str(number + 4), proxy_tls.BUNDLE]
            variables |= proxy_tls.variables()
        files = dict(enumerate(fence.files, number + 5 + len(opened)))
        for fd, path in files.items():
            shown += ["--file", str(fd), path]
        places = _places(fence)
        mounted = {_listed(path): (must_be, _listed(base)) for path, (must_be, base) in places.items()}
        told_fd, gate_fd = number + 2, number + 3
        held = Held(told_fd, gate_fd, mounted, (*places,), _NEW_ROOT, f"{_NEW_ROOT}/proc", fence.processes)
        mounts = [*self._system, *_hidden(fence), *shown, *_gate(held.gate_fd), "--chdir", launch.cwd]
        told = ("--seccomp", str(number + 1), "--info-fd", str(held.told_fd))
        arguments = [*_identity(), *_NAMESPACES, *told, *mounts]
        return replace(
            launch,
            argv=(self._program, "--args", str(number), "--", *argv),
            given={
                number: os.fsencode("\0".join([*arguments, ""])),
                number + 1: self._filter,
                **({number + 4: launch.authorities} if launch.authorities else {}),
                **{fd: fence.files[path].encode() for fd, path in files.items()},
            },
            opened=opened,
            covered=(*fence.masked, *fence.protected),
            held=held,
            env={**launch.env, "TMPDIR": _TEMPORARY, **variables},
            limits=limits(fence),
            memory_bytes=memory_together(fence),
        )


def make() -> Bubblewrap | Finding:
    """Return the backend, or why this machine cannot have it. It is not known yet whether it keeps anything out."""
    program = program_outside(PROGRAM)
    if not program:
        hint = (
            "Install bubblewrap: `apt install bubblewrap`, `dnf install bubblewrap`, `pacman -S bubblewrap`."
        )
        found = shutil.which(PROGRAM)
        fault = (
            f"{found} is not used: commands could have changed it." if found else "bwrap is not installed."
        )
        return Finding("bubblewrap", fault, hint)
    if not seccomp.is_known():
        return Finding("bubblewrap", "Its filter of system calls does not know this processor.")
    return _of(program)


@lru_cache(maxsize=8)
def _of(program: str) -> Bubblewrap:
    """Return the same object each time, so that it is probed once in a process."""
    return Bubblewrap(program)


def _identity() -> tuple[str, ...]:
    user, group = (str(number or _ORDINARY_USER) for number in (os.getuid(), os.getgid()))
    return "--uid", user, "--gid", group


def _system() -> Iterator[str]:
    """Yield the arguments that show the system."""
    for path in SYSTEM:
        if Path(path).is_symlink():
            yield from ("--symlink", str(Path(path).readlink()), path)
        elif Path(path).is_dir():
            yield from ("--ro-bind", path, path)
    yield from ("--proc", "/proc")
    yield from ("--ro-bind", _KERNEL, _KERNEL)
    for path in _KERNEL_FOLDERS:
        if Path(path).is_dir():
            yield from ("--perms", "0555", "--size", "4096", "--tmpfs", path)
    for path in _KERNEL_FILES:
        if Path(path).exists():
            yield from ("--ro-bind", _NULL, path)
    # Without a size, a program could fill half of the machine's memory with files there.
    yield from ("--dev", "/dev", "--size", _PRIVATE_BYTES, "--tmpfs", "/dev/shm")


def _hidden(fence: Fence) -> Iterator[str]:
    """Yield the arguments that hide what is secret of the system and still there."""
    shown = (*fence.writable, *fence.readable)
    for path in filter(os.path.lexists, secrets_of_system()):
        if Path(path).is_dir():
            # Nothing can be moved there, so a folder needs no mount that holds it in its place.
            perms = "0555" if any(is_inside(path, each) for each in shown) else "0000"
            yield from ("--perms", perms, "--size", "4096", "--tmpfs", path)
        else:
            yield from _mask(path)


def _places(fence: Fence) -> Mapping[str, tuple[bool, str]]:
    """Return where something must be mounted, as `Held.mounts` with paths as they are outside.

    `bwrap` resolves these places by their names. A program in the background may swap a folder for another one at
    that moment, and back: then the mount is elsewhere, or upon another one.
    """
    shown = dict.fromkeys((*fence.writable, *_pinned(fence)), False)
    places = {**shown, **dict.fromkeys((*fence.readable, *fence.protected, *fence.masked), True)}

    def base(path: str) -> str:
        above = (str(parent) for parent in Path(path).parents)
        return next((parent for parent in above if parent in places), "")

    return {path: (must_be, base(path)) for path, must_be in places.items()}


def _listed(path: str) -> str:
    """Return a path as the kernel's list of mounts has it until the program begins."""
    return f"{_NEW_ROOT}{path.translate(_LISTED)}" if path else ""


def _gate(number: int) -> Iterator[str]:
    """Yield the last arguments. `bwrap` waits at the first of them: it makes a file of what it reads."""
    yield from ("--file", str(number), "/dev/gate", "--remount-ro", "/dev", "--remount-ro", "/")


def _with_interpreter(fence: Fence) -> Fence:
    """Return the fence with the Python that makes the way to the proxy, unless it is shown anyway."""
    folder = proxy.interpreter()
    is_shown = is_within((*SYSTEM, *fence.writable, *fence.readable), folder)
    return fence if is_shown else replace(fence, readable=(*fence.readable, folder))


def _as_it_is(fence: Fence) -> Fence:
    """Return the fence without what cannot be mounted: what is hidden anyway, and what a person names that is not
    there.

    Raises:
        SandboxUnavailable: it has too many places, or a folder has become a link, or something that must be masked or
            protected is not where it was. It may come back in the next moment, and would be open to the command.
    """
    if swapped := next((path for path in fence.masked if not _is_straight(path)), ""):
        raise SandboxUnavailable(_SWAPPED.format(path=swapped))
    masked, writable, protected = (
        _outside(fence.masked, each) for each in (fence.masked, fence.writable, fence.protected)
    )
    # What a person names may not be there yet, as a cache. The workspace is.
    readable = _outside(masked, filter(os.path.lexists, fence.readable))
    writable = (*writable[:1], *filter(os.path.lexists, writable[1:]))
    hidden = {*masked}
    protected = tuple(path for path in protected if path not in hidden)
    if moved := next((path for path in (*masked, *protected) if not os.path.lexists(path)), ""):
        raise SandboxUnavailable(_MOVED.format(path=moved))
    found = replace(fence, masked=masked, protected=protected, writable=writable, readable=readable)
    places = len(found.masked) + len(found.protected) + len(_pinned(found))
    if places > MAX_PLACES:
        raise SandboxUnavailable(
            f"No command runs in a sandbox in this workspace: {places:,} secret or protected files, with the folders "
            f"that hold them, are in it, and at most {MAX_PLACES:,} can be kept. Work in a smaller folder."
        )
    return found


def _is_straight(path: str) -> bool:
    """Return whether no part of a path is a link."""
    try:
        return os.path.realpath(path) == path
    except OSError:  # it is being swapped
        return False


def _mounts(fence: Fence) -> Iterator[str]:
    """Yield the arguments that show what the fence names. A folder comes before what is in it."""
    for path in sorted((_TEMPORARY, *fence.private), key=_depth):
        yield from ("--size", _PRIVATE_BYTES, "--tmpfs", path)
    shown = [
        *((path, ("--bind", path, path)) for path in (*fence.writable, *_pinned(fence))),
        *((path, ("--ro-bind-try", path, path)) for path in (*fence.readable, *fence.protected)),
        *((path, _mask(path)) for path in fence.masked),
        *((path, ("--symlink", fence.links[path], path)) for path in _missing_links(fence)),
    ]
    for _, arguments in sorted(shown, key=lambda each: _depth(each[0])):
        yield from arguments


def _missing_links(fence: Fence) -> Iterator[str]:
    """Yield the links of a fence that lie in nothing that is shown or masked: they would not exist inside."""
    there = (*SYSTEM, *fence.writable, *fence.readable, *fence.protected, *fence.masked)
    yield from (path for path in fence.links if not is_within(there, path))


def _outside(masked: Iterable[str], paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that lie in nothing masked: there, nothing can be mounted or seen."""
    hidden = {*masked}
    return tuple(path for path in dict.fromkeys(paths) if hidden.isdisjoint(map(str, Path(path).parents)))


def _by_descriptor(
    arguments: Sequence[str], writable: Collection[str], first: int
) -> tuple[list[str], dict[int, str]]:
    """Return the arguments with descriptors for what lies in a writable folder, and what to open for them.

    `bwrap` follows links. A program that another command has started may swap a folder for a link in this moment, and
    would see, and change, what the link leads to.
    """
    opened = dict[int, str]()
    changed = [*arguments]
    for at, word in enumerate(arguments):
        path = arguments[at + 1] if word in _BY_DESCRIPTOR else ""
        if is_within(writable, path):
            number = first + len(opened)
            opened[number] = path
            changed[at : at + 2] = _BY_DESCRIPTOR[word], str(number)
    return changed, opened


def _pinned(fence: Fence) -> Collection[str]:
    """Return the writable folders that hold something masked or protected. As places of mounts they cannot be
    renamed: else a program could move `conf` away, with the mask of `conf/.env` in it, and the next one would read
    the file. A folder that may only be read needs no pin, which would let it be changed.
    """
    writable, closed = {*fence.writable}, {*fence.readable, *fence.protected}
    pinned = set[str]()
    for path in (*fence.masked, *fence.protected):
        above = [str(parent) for parent in Path(path).parents]
        roots = (at for at, parent in enumerate(above) if parent in writable or parent in closed)
        root = next(roots, None)
        if root is not None and above[root] not in closed:
            pinned.update(above[:root])
    return pinned


def _mask(path: str) -> tuple[str, ...]:
    if os.path.isdir(path):  # noqa: PTH112 - that of a path raises where a folder above is closed
        # The first mount needs a folder that is there. The second alone would make one where it is gone.
        return ("--bind", path, path, "--perms", "0000", "--tmpfs", path, "--remount-ro", path)
    return ("--ro-bind", _NULL, path)


def _depth(path: str) -> int:
    return path.rstrip("/").count("/")
