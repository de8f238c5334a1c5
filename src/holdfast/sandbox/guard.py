"""A guard: starts the program of one call, watches it, and ends its tree. A keeper forks it.

It starts a program in two ways. Most are spawned: what a sandbox needs comes with their arguments then. What runs
under Landlock is forked, and gives up its rights before it becomes its program (`landlock_rights`).
"""

# Pathlib would double the time that a keeper takes to start.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple, NoReturn

from holdfast.sandbox import landlock_rights, shared_memory, waiting
from holdfast.sandbox.living import kill, living, stat_of, with_descendants
from holdfast.sandbox.mounted import LOOK_S, Mounts, are_in_place, is_blank, opened, remove_blank

POLL_S = 0.01
"""How often is looked for what may have escaped."""
_CAN_BE_DEFAULT = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_CPU = "RLIMIT_CPU"
_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The same clock as `Clock.uptime_ms`."""


class _Inside(NamedTuple):
    """The processes in a sandbox."""

    first: list[int]
    """A descriptor of the first one, if the kernel ends all others with it."""
    folder: int
    """A descriptor of its /proc; -1: it has none of its own."""
    most: int
    """How many there may be."""
    mounts: Mounts | None = None
    most_bytes: int = 0
    """How much memory they may use together; 0: nobody looks."""

    def limit(self) -> str:
        """Return which of these limits they have passed; empty: none."""
        with contextlib.suppress(OSError):  # it has ended
            found = os.listdir(self.folder) if self.folder >= 0 else _below()
            pids = [*filter(str.isdigit, found)]
            if len(pids) > self.most:
                return "processes"
            # What they share counts for each of them here, so this is more than they use. The rest takes longer.
            resident = sum(map(self._resident_bytes, pids)) if self.most_bytes else 0
            if resident > self.most_bytes and sum(map(self._share_bytes, pids)) > self.most_bytes:
                return "memory"
        return ""

    def _resident_bytes(self, pid: str) -> int:
        """Return how much memory a process has, also what it shares with others; 0: it has ended."""
        with contextlib.suppress(OSError):
            return int(self._told(pid, "statm").split()[1]) * resource.getpagesize()
        return 0

    def _share_bytes(self, pid: str) -> int:
        """Return the same with only a part of what it shares, and without what the kernel can drop, as the pages of a
        file that it only reads. A process may hide this, and not the other.
        """
        with contextlib.suppress(OSError):
            told = self._told(pid, "smaps_rollup")
            # Before Linux 5.9, one number counts all.
            parts = [each for each in (b"\nPss_Anon:", b"\nPss_Shmem:") if each in told] or [b"\nPss:"]
            return 1024 * sum(int(told.partition(each)[2].split(None, 1)[0]) for each in parts)
        return self._resident_bytes(pid)

    def _told(self, pid: str, file: str) -> bytes:
        """Return what the kernel tells of a process."""
        own = self.folder if self.folder >= 0 else None
        path = f"{pid}/{file}" if own is not None else f"/proc/{pid}/{file}"
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=own)
        try:
            return os.read(fd, 1 << 16)
        finally:
            os.close(fd)


def _below() -> list[str]:
    """Return what is below this process. Reads nothing of other processes: it is asked often."""
    found = [str(os.getpid())]
    for pid in found:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children") as file:
                    found += file.read().split()
    return found[1:]


class _Unmade(OSError):
    """The sandbox could not be made."""


class _TooLate(Exception):
    """It is too late to start the program."""


def guard(control: socket.socket, fds: list[int], driver: Collection[int]) -> NoReturn:
    """Run one call to its end. The keeper ends what is left after an exception."""
    code = 1
    try:
        wakes = waiting.wakes()
        if request := _request(control):
            become(request["name"].encode())
            unmade = [path for path in request["covered"] if not is_blank(path)]
            ends, root, is_alone = [control.fileno(), *driver], 0, False
            try:
                if rights := request["rights"]:
                    # Before the first layer, which lets nobody mount.
                    if rights["shared"] and shared_memory.is_made(rights["shared"], rights["shared_bytes"]):
                        rights["paths"].append((rights["shared"], rights["own_rights"]))
                    is_alone = bool(driver) and landlock_rights.signals_below_only(rights, *driver)
                root, pipes = _started(request, fds, ends)
                most, most_bytes = request["processes"], request["memory"]
                inside = _Inside([], -1, most, None, most_bytes) if most else None
                inside = _let_in(pipes, request, root, wakes, ends) if pipes else inside
            except _TooLate:
                _tell(control, "late", 0)
            except (OSError, ValueError) as error:
                if root:
                    _end_all(root, wakes, lambda: waiting.ended(wakes)[1])
                word = "unmade" if isinstance(error, _Unmade) else "failed"
                _tell(control, word, getattr(error, "errno", None) or errno.EINVAL)
            else:
                _watch(root, control, ends, wakes, inside, is_alone=is_alone)
            for path in unmade:
                remove_blank(path)
        code = 0
    finally:
        os._exit(code)


def _request(control: socket.socket) -> Any:
    """Return what to run; None if the driver is gone already."""
    told = b""
    while not told.endswith(b"\n"):
        chunk = control.recv(1 << 16)
        if not chunk:
            return None
        told += chunk
    return json.loads(told)


def _started(request: dict[str, Any], fds: list[int], ends: list[int]) -> tuple[int, tuple[int, int] | None]:
    """Start the program as the leader of a session, with default signals and only its own files. Return its pid, and
    what holds it.

    Raises:
        _TooLate: the driver is gone, or may have lost its session.
    """
    if not request["rights"]:
        # A guard that watches for days uses the processor, too. So this limit is set for what is inside (`_let_in`).
        _limit({name: most for name, most in request["limits"].items() if name != _CPU})
    others = [*([0] if request["has_stdin"] else []), *([2] if request["has_stderr"] else [])]
    given = {int(number): _file_with(bytes.fromhex(content)) for number, content in request["given"].items()}
    try:
        given |= {int(number): opened(path) for number, path in request["opened"].items()}
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE)) from error
    pipes = None
    if held := request["held"]:
        told, given[held["told_fd"]] = os.pipe()
        given[held["gate_fd"]], gate = os.pipe()
        pipes = told, gate
        # With room for one page, it is full until somebody reads from it.
        fcntl.fcntl(gate, fcntl.F_SETPIPE_SZ, 1)
        os.write(gate, b"\n")
    targets = [1, *others, *request["pass_fds"], *given]
    actions, above = list[Any](), max(2, *targets) + 1
    for fd, target in zip([*fds, *given.values()], targets, strict=True):
        # Move it away: another file may need its number.
        source = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above)
        os.close(fd)
        actions.append((os.POSIX_SPAWN_DUP2, source, target))
    if not request["has_stderr"]:
        actions.append((os.POSIX_SPAWN_DUP2, 1, 2))
    if not request["has_stdin"]:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    os.chdir(request["cwd"])
    # Frozen before it had its name, nobody could find it, and the next driver may be at work by now.
    if time.clock_gettime_ns(_UPTIME) // 1_000_000 >= request["until_ms"] or waiting.ready(ends, 0):
        raise _TooLate
    if request["rights"]:
        return _forked(request, actions, above, ends), pipes
    root = os.posix_spawnp(
        request["argv"][0],
        request["argv"],
        request["env"],
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=_CAN_BE_DEFAULT,
    )
    return root, pipes


def _forked(request: dict[str, Any], actions: Iterable[tuple[Any, ...]], above: int, ends: list[int]) -> int:
    """Do the same in a process that gives up rights before it becomes the program. Return its pid.

    Args:
        request: What to run.
        actions: What to do with its files.
        above: The numbers of its files are below this one.
        ends: What is readable when it shall end.

    Raises:
        _Unmade: it could not give them up.
        OSError: it could not become the program.
    """
    telling, told = os.pipe()
    pid = os.fork()
    if pid:
        os.close(told)
        # It ends when the process becomes the program.
        failed = os.read(telling, 64).split() if telling in waiting.ready([telling, *ends]) else []
        os.close(telling)
        if failed:
            os.waitpid(pid, 0)
            number, is_made = map(int, failed)
            raise (OSError if is_made else _Unmade)(number, os.strerror(number))
        return pid
    number, is_made = errno.EINVAL, False
    try:
        # Out of the way of the files that it gets.
        told = fcntl.fcntl(told, fcntl.F_DUPFD_CLOEXEC, above)
        signal.set_wakeup_fd(-1)
        for number in _CAN_BE_DEFAULT:
            signal.signal(number, signal.SIG_DFL)
        _limit(request["limits"])
        os.setsid()
        for kind, *arguments in actions:
            if kind == os.POSIX_SPAWN_DUP2:
                os.dup2(*arguments)
            else:
                target, path, flags, mode = arguments
                os.dup2(os.open(path, flags, mode), target)
        landlock_rights.keep_only(request["rights"])
        is_made = True
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        landlock_rights.become(request["argv"], request["env"])
    except OSError as error:
        number = error.errno or number
    finally:
        os.write(told, b"%d %d" % (number, is_made))
        os._exit(1)


def _file_with(content: bytes) -> int:
    """Return the descriptor of a file in memory, to be read from its beginning. A sandbox gets its arguments so."""
    fd = os.memfd_create("given", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _limit(limits: dict[str, int], pid: int = 0) -> None:
    """Set limits of the kernel for a process (0: for this one), and so for all that it starts: none of them may raise
    one.
    """
    for name, most in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        # The kernel warns by a signal that names the limit, and kills a moment later.
        resource.prlimit(pid, kind, (least, least + (name == _CPU and least != hard)))


def _let_in(
    pipes: tuple[int, int], request: dict[str, Any], root: int, wakes: int, ends: list[int]
) -> _Inside | None:
    """Let a sandbox begin its program when everything is mounted where it belongs. Return None if the sandbox has
    ended before, or shall end.

    Raises:
        OSError: something is mounted elsewhere, and the program did not begin.
    """

    poll = select.poll()
    held = request["held"]
    told, gate = pipes
    poll.register(gate, select.POLLOUT)
    for fd in (wakes, *ends):
        poll.register(fd, select.POLLIN)
    while (ready := dict(poll.poll())).get(gate) != select.POLLOUT or wakes in ready:
        if not ready.keys() <= {wakes, gate} or ready.get(gate, select.POLLOUT) != select.POLLOUT:
            return None
        # A child that somebody has stopped sends the same signal as one that has ended.
        with contextlib.suppress(BlockingIOError):
            os.read(wakes, 1 << 16)
        if os.waitid(os.P_PID, root, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return None
    if not ready.keys() <= {gate}:
        return None
    text = b""
    while not text.endswith(b"}\n"):
        text += os.read(told, 4096) or b"}\n"  # it has ended: no JSON, so an error
    pid = json.loads(text)["child-pid"]
    with open(f"/proc/{pid}/mountinfo", "rb") as mounted:
        if not are_in_place(mounted, held["mounts"]):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    _limit({name: most for name, most in request["limits"].items() if name == _CPU}, pid)
    folder = os.open(f"/proc/{pid}/root{held['folder']}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    first = os.pidfd_open(pid)
    inside = _Inside([first], folder, held["processes"], Mounts(pid, held), request["memory"])
    # Set here, it counts what is inside, with threads. It stops what is faster than the guard. It does not bind root.
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_NPROC, (4 * inside.most, 4 * inside.most))
    os.close(gate)
    return inside


def _watch(
    root: int, control: socket.socket, ends: list[int], wakes: int, inside: _Inside | None, *, is_alone: bool
) -> None:
    """Wait for the exit of the program, for one of `ends`, for a limit, or for a lost mount. End the tree.

    `is_alone`: this process can signal nothing but its tree.
    """
    has_exited = False
    mounts = inside.mounts if inside else None

    def is_left() -> bool:
        nonlocal has_exited
        codes, is_any_left = waiting.ended(wakes)
        if root in codes and not has_exited:
            has_exited = True
            lost = mounts.lost(is_last=True) if mounts else ""
            _tell(control, *(("replaced", lost) if lost else ("exited", codes[root])))
        return is_any_left

    while is_left() and not has_exited:
        wait_s = mounts.wait_s() if mounts else LOOK_S if inside else None
        if waiting.ready([wakes, *ends], wait_s, [mounts.fd] if mounts and mounts.fd >= 0 else ()) & set(
            ends
        ):
            break
        if mounts and (lost := mounts.lost()):
            has_exited = True
            _tell(control, "replaced", lost)
        elif inside and (limit := inside.limit()):
            has_exited = True
            _tell(control, limit, 0)
    for first in inside.first if inside else ():
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(first, signal.SIGKILL)
    # The kernel ends all others with the first one, before anybody could find them in the list of all processes.
    until = time.monotonic() + (LOOK_S if inside and inside.first else 0)
    while is_left() and (left_s := until - time.monotonic()) > 0:
        waiting.ready([wakes], left_s)
    _end_all(root, wakes, is_left, is_alone=is_alone)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    _tell(control, "used", round(1_000 * (used.ru_utime + used.ru_stime)))


def _end_all(root: int, wakes: int, is_left: Callable[[], bool], *, is_alone: bool = False) -> None:
    """End everything below this process. Return when it is gone."""
    pause_s = POLL_S
    while is_left():
        if is_alone:
            # A look at all processes takes longer than some are there, which fork and end at once.
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)
        else:
            _kill_tree(root)  # again, because something may have escaped
        waiting.ready([wakes], pause_s)
        pause_s = min(2 * pause_s, 1.0)


def _kill_tree(root: int) -> None:
    """Kill everything below this process; without /proc, the group of the first process."""
    if stat_of(os.getpid()):
        kill(lambda: with_descendants(dict(living()), {os.getpid()})[1:])
        return
    with contextlib.suppress(OSError):
        os.killpg(root, signal.SIGSTOP)
        os.killpg(root, signal.SIGKILL)


def _tell(control: socket.socket, word: str, said: int | str) -> None:
    with contextlib.suppress(OSError):
        control.sendall(json.dumps([word, said]).encode() + b"\n")


def become(name: bytes) -> None:
    """Take this name, and adopt the orphans among all descendants."""
    with contextlib.suppress(AttributeError):  # not Linux
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_NAME, name, 0, 0, 0)
        prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
