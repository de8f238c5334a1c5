"""Starts and ends process trees: the keeper and its guards, which run as a program. `trees` ends a tree from outside.

    python -I -S keeper.py DRIVER_PID     its standard input is a socket from the driver

The driver passes every call to its keeper: one byte with the open files of the call. The keeper forks a guard,
which starts the program. A guard adopts orphans (`PR_SET_CHILD_SUBREAPER`): every descendant that loses its parent
comes back to it, even one that forked twice, left its session and cleared its environment. So if a guard has no
children, its tree is gone. It ends the tree when the first process has exited, when the driver closes the call's
socket, and when the driver is gone for any reason. If a command kills its guard, the tree comes to the keeper,
which adopts orphans too and ends them.

A tree is stopped before it is killed, and no process is asked to end by itself: a shell that sees its child end
would begin its next command, although the model reads that the command was ended.

Where the kernel does not allow adoption (macOS) and has no /proc, only process groups are known.

It uses little of the standard library and nothing else, so that it starts in milliseconds.
"""

# Pathlib would double the time that the keeper takes to start.
# ruff: noqa: PTH108, PTH123, PTH208

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from stat import S_ISLNK
from typing import Any, NamedTuple, NoReturn

MAX_FDS = 64
"""The most open files of one call."""
_POLL_S = 0.01
_STOPS = 100
"""How often to look for what forked before it was stopped."""
_KERNEL_THREAD = 0x00200000
_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The same clock as `Clock.uptime_ms`."""
_COUNT_S = 0.05
"""How often the processes in a sandbox are counted."""
_SETTLE_S = 0.005
"""How long a sandbox needs at most, usually, from its gate to the beginning of its program."""
_BLANK_MODE = 0o100444
"""A file, to be read by all."""
_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end neither a keeper nor a guard: they exit when their work is done."""

# --- all processes ------------------------------------------------------------------------------


def with_descendants(stats: dict[int, _Stat], roots: Collection[int]) -> list[int]:
    """Return these processes, if they live, and all their descendants, each after its parent."""
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    following = [pid for pid in roots if pid in stats and stats[pid].parent not in roots]
    found: dict[int, None] = {}
    while following:
        found.update(dict.fromkeys(following))
        following = [pid for parent in following for pid in children.get(parent, ()) if pid not in found]
    return list(found)


class _Stat(NamedTuple):
    """What the kernel says about a process."""

    name: bytes
    parent: int
    is_kernel: bool


def living() -> Iterable[tuple[int, _Stat]]:
    """Yield all living processes; none without /proc."""
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):
            if entry.isdigit() and (stat := _stat(int(entry))):
                yield int(entry), stat


def _stat(pid: int) -> _Stat | None:
    """Return None if the process is gone or a zombie, which it is not while one of its threads runs."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, tail = file.read().rpartition(b")")
    except OSError:
        return None
    fields = tail.split()
    if fields[0] in (b"Z", b"X") and int(fields[17]) <= 1:
        return None
    return _Stat(head.partition(b"(")[2], int(fields[1]), bool(int(fields[6]) & _KERNEL_THREAD))


def kill(look: Callable[[], list[int]]) -> bool:
    """Stop these processes and what they forked meanwhile, then kill them. Return whether there were any.

    `look` returns them, each after its parent. A process forks nothing more once the signal is sent, so all are
    stopped if none is new.
    """
    seen: list[int] = []
    stopped: set[int] = set()
    for _ in range(_STOPS):
        seen = look()
        fresh = [pid for pid in seen if pid not in stopped]
        if not fresh:
            break
        send(fresh, signal.SIGSTOP)
        stopped.update(fresh)
    # Children first: the kernel may wake a stopped group when the parent of one of its members ends.
    send(reversed(seen), signal.SIGKILL)
    return bool(seen)


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


# --- the keeper ---------------------------------------------------------------------------------


def main() -> None:
    """Fork a guard for every call, until the driver and every guard are gone."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
    _become(b"hf-keeper")
    door, driver, wakes = socket.socket(fileno=0), _pidfd(int(sys.argv[1])), _wakes()
    guards: dict[int, socket.socket] = {}
    """The sockets of the calls too, so that a driver learns when the tree of a call is gone."""
    orphaned: list[socket.socket] = []  # the calls whose guards were killed
    is_open = True
    while is_open or guards or orphaned:
        sources = [wakes, door.fileno(), *driver] if is_open else [wakes]
        ready = _ready(sources, _POLL_S if orphaned else None)
        codes, _ = _ended(wakes)
        for pid in codes.keys() & guards.keys():
            control = guards.pop(pid)
            orphaned.append(control) if codes[pid] else control.close()
        if orphaned and not _kill_strays(guards):
            for control in orphaned:
                control.close()
            orphaned.clear()
        if not set(driver).isdisjoint(ready):
            is_open = False
        elif is_open and door.fileno() in ready:
            is_open = _begin(door, driver, guards)


def _begin(door: socket.socket, driver: Collection[int], guards: dict[int, socket.socket]) -> bool:
    """Accept the next call. Return False if the driver is gone."""
    fds = _received(door)
    if not fds:
        return False
    control = socket.socket(fileno=fds[0])
    pid = os.fork()
    if not pid:
        for other in (door, *guards.values()):
            other.close()
        _guard(control, fds[1:], driver)
    guards[pid] = control
    for fd in fds[1:]:
        os.close(fd)
    return True


def _received(door: socket.socket) -> list[int]:
    try:
        fds = socket.recv_fds(door, 1, MAX_FDS)[1]
    except OSError:
        return []
    for fd in fds:
        os.set_inheritable(fd, False)
    return fds


def _kill_strays(guards: Collection[int]) -> bool:
    """Kill what a killed guard left to this process. Return whether there was anything."""

    def strays() -> list[int]:
        stats = dict(living())
        mine = {pid for pid, stat in stats.items() if stat.parent == os.getpid()}
        return with_descendants(stats, mine.difference(guards))

    return kill(strays)


# --- a guard ------------------------------------------------------------------------------------


class _Inside(NamedTuple):
    """The processes in a sandbox."""

    first: list[int]
    """A descriptor of the first one, if the kernel ends all others with it."""
    folder: int
    """A descriptor of its /proc; -1: it has none of its own."""
    most: int
    """How many there may be."""
    mounts: _Mounts | None = None

    def are_too_many(self) -> bool:
        """Return whether there are more than that."""
        with contextlib.suppress(OSError):  # it has ended
            found = os.listdir(self.folder) if self.folder >= 0 else _below()
            return sum(map(str.isdigit, found)) > self.most
        return False


def _below() -> list[str]:
    """Return what is below this process. Reads nothing of other processes: it is asked often."""
    found = [str(os.getpid())]
    for pid in found:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children") as file:
                    found += file.read().split()
    return found[1:]


class _Mounts:
    """What must stay mounted in a sandbox while its program runs.

    A program outside that renames a file over another one takes away what is mounted on it inside. The kernel wakes
    those who poll the list of mounts. If a place itself is renamed, nobody is woken: so it is read at times, too.
    """

    def __init__(self, pid: int, held: dict[str, Any]) -> None:
        root = held["root"]
        self._process = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._begun = os.fsencode(held["folder"].removeprefix(root))
        self._needed = {
            name.removeprefix(root): (must_be, base.removeprefix(root))
            for name, (must_be, base) in held["mounts"].items()
        }
        self._paths = dict(zip(self._needed, held["paths"], strict=True))
        self._due_s = time.monotonic() + _SETTLE_S
        self.fd = -1
        """What becomes ready when mounts change; -1 before the program has begun."""

    def wait_s(self) -> float:
        """Return when to look next."""
        return _COUNT_S if self.fd >= 0 else max(0.001, self._due_s - time.monotonic())

    def lost(self, *, is_last: bool = False) -> str:
        """Return a place where somebody has put something else; empty if all is kept, or nothing can be told."""
        now_s = time.monotonic()
        has_changed = self.fd >= 0 and bool(_ready([], 0, [self.fd]))
        found = ""
        if now_s < self._due_s and not has_changed and not is_last:
            return found
        with contextlib.suppress(OSError):  # it has ended
            gone = (self._paths[name] for name in misplaced(self._lines(), self._needed))
            found = next(filter(os.path.lexists, gone), "")
        self._due_s = time.monotonic() + max(_SETTLE_S, 50 * (time.monotonic() - now_s))
        return found

    def _lines(self) -> list[bytes]:
        """Return the list of the mounts; an OSError says that the program has not begun, or has ended."""
        # The paths are those of its process at the moment when the list was opened.
        fd = (
            self.fd
            if self.fd >= 0
            else os.open("mountinfo", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._process)
        )
        os.lseek(fd, 0, os.SEEK_SET)
        with open(fd, "rb", closefd=False) as mounted:
            lines = mounted.readlines()
        if self.fd < 0 and not any(line.split(b" ", 5)[4] == self._begun for line in lines):
            os.close(fd)
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self.fd = fd
        return lines


class _TooLate(Exception):
    """It is too late to start the program."""


def _guard(control: socket.socket, fds: list[int], driver: Collection[int]) -> NoReturn:
    """Run one call to its end. The keeper ends what is left after an exception."""
    code = 1
    try:
        wakes = _wakes()
        if request := _request(control):
            _become(request["name"].encode())
            unmade = [path for path in request["covered"] if not is_blank(path)]
            ends, root = [control.fileno(), *driver], 0
            try:
                root, pipes = _started(request, fds, ends)
                inside = _Inside([], -1, request["processes"]) if request["processes"] else None
                inside = _let_in(pipes, request["held"], root, wakes, ends) if pipes else inside
            except _TooLate:
                _tell(control, "late", 0)
            except (OSError, ValueError) as error:
                _tell(control, "failed", getattr(error, "errno", None) or errno.EINVAL)
                if root:
                    _end_all(root, wakes, lambda: _ended(wakes)[1])
            else:
                _watch(root, control, ends, wakes, inside)
            for path in filter(is_blank, unmade):
                with contextlib.suppress(OSError):
                    os.unlink(path)
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
    _limit(request["limits"])
    others = [*([0] if request["has_stdin"] else []), *([2] if request["has_stderr"] else [])]
    given = {int(number): _file_with(bytes.fromhex(content)) for number, content in request["given"].items()}
    try:
        given |= {int(number): opened(path) for number, path in request["opened"].items()}
    except OSError as error:
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
    actions: list[Any] = []
    for fd, target in zip([*fds, *given.values()], targets, strict=True):
        # Move it away: another file may need its number.
        source = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(2, *targets) + 1)
        os.close(fd)
        actions.append((os.POSIX_SPAWN_DUP2, source, target))
    if not request["has_stderr"]:
        actions.append((os.POSIX_SPAWN_DUP2, 1, 2))
    if not request["has_stdin"]:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    os.chdir(request["cwd"])
    # Frozen before it had its name, nobody could find it, and the next driver may be at work by now.
    if time.clock_gettime_ns(_UPTIME) // 1_000_000 >= request["until_ms"] or _ready(ends, 0):
        raise _TooLate
    root = os.posix_spawnp(
        request["argv"][0],
        request["argv"],
        request["env"],
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )
    return root, pipes


def _file_with(content: bytes) -> int:
    """Return the descriptor of a file in memory, to be read from its beginning. A sandbox gets its arguments so."""
    fd = os.memfd_create("given", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def opened(path: str) -> int:
    """Return a descriptor of what lies at an absolute path, to mount it.

    A program of an earlier command may swap a folder for a link at any moment. Mounted by its path, the link would
    show what it leads to.

    Raises:
        OSError: it is gone, or a part of the path is a link.
    """
    fd = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for name in path.split("/")[1:]:
        above = fd
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        os.close(above)
    if S_ISLNK(os.fstat(fd).st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return fd


def is_blank(path: str) -> bool:
    """Return whether there is such a file as `bwrap` makes to mount something on it."""
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        return found.st_mode == _BLANK_MODE and not found.st_size
    return False


def _limit(limits: dict[str, int]) -> None:
    """Set limits of the kernel for this process, and so for all that it starts: none of them may raise one."""
    if limits:
        for name, most in limits.items():
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            least = most if hard == resource.RLIM_INFINITY else min(most, hard)
            # The kernel warns by a signal that names the limit, and kills a moment later.
            resource.setrlimit(kind, (least, least + (name == "RLIMIT_CPU" and least != hard)))


def _let_in(
    pipes: tuple[int, int], held: dict[str, Any], root: int, wakes: int, ends: list[int]
) -> _Inside | None:
    """Let a sandbox begin its program when everything is mounted where it belongs. Return None if the sandbox has
    ended before, or shall end.

    Raises:
        OSError: something is mounted elsewhere, and the program did not begin.
    """

    poll = select.poll()
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
    folder = os.open(f"/proc/{pid}/root{held['folder']}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    inside = _Inside([os.pidfd_open(pid)], folder, held["processes"], _Mounts(pid, held))
    # Set here, it counts what is inside, with threads. It stops what is faster than the guard. It does not bind root.
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_NPROC, (4 * inside.most, 4 * inside.most))
    os.close(gate)
    return inside


def are_in_place(mounted: Iterable[bytes], mounts: dict[str, tuple[bool, str]]) -> bool:
    """Return whether the kernel's list has a mount at each place, upon the right one, and read-only where it must."""
    return not any(misplaced(mounted, mounts))


def misplaced(mounted: Iterable[bytes], mounts: dict[str, tuple[bool, str]]) -> Iterator[str]:
    """Yield the places where it does not."""
    found = {b"": (b"", b"", False)}
    for line in mounted:
        number, upon, _, _, place, options, _ = line.split(b" ", 6)
        covered = found.get(place)
        if covered and covered[0] == upon:
            upon = covered[1]
        found[place] = number, upon, options.startswith(b"ro")
    for name, (must_be_read_only, base) in mounts.items():
        _, upon, is_read_only = found.get(os.fsencode(name), found[b""])
        is_right = not base or upon == found.get(os.fsencode(base), found[b""])[0]
        if not upon or not is_right or is_read_only < must_be_read_only:
            yield name


def _watch(root: int, control: socket.socket, ends: list[int], wakes: int, inside: _Inside | None) -> None:
    """Wait for the exit of the program, for one of `ends`, for a limit, or for a lost mount. End the tree."""
    has_exited = False
    mounts = inside.mounts if inside else None

    def is_left() -> bool:
        nonlocal has_exited
        codes, is_any_left = _ended(wakes)
        if root in codes and not has_exited:
            has_exited = True
            lost = mounts.lost(is_last=True) if mounts else ""
            _tell(control, *(("replaced", lost) if lost else ("exited", codes[root])))
        return is_any_left

    while is_left() and not has_exited:
        wait_s = mounts.wait_s() if mounts else _COUNT_S if inside else None
        if _ready([wakes, *ends], wait_s, [mounts.fd] if mounts and mounts.fd >= 0 else ()) & set(ends):
            break
        if mounts and (lost := mounts.lost()):
            has_exited = True
            _tell(control, "replaced", lost)
        elif inside and inside.are_too_many():
            has_exited = True
            _tell(control, "processes", inside.most)
    for first in inside.first if inside else ():
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(first, signal.SIGKILL)
    # The kernel ends all others with the first one, before anybody could find them in the list of all processes.
    until = time.monotonic() + (_COUNT_S if inside and inside.first else 0)
    while is_left() and (left_s := until - time.monotonic()) > 0:
        _ready([wakes], left_s)
    _end_all(root, wakes, is_left)


def _end_all(root: int, wakes: int, is_left: Callable[[], bool]) -> None:
    """End everything below this process. Return when it is gone."""
    pause_s = _POLL_S
    while is_left():
        _kill_tree(root)  # again, because something may have escaped
        _ready([wakes], pause_s)
        pause_s = min(2 * pause_s, 1.0)


def _kill_tree(root: int) -> None:
    """Kill everything below this process; without /proc, the group of the first process."""
    if _stat(os.getpid()):
        kill(lambda: with_descendants(dict(living()), {os.getpid()})[1:])
        return
    with contextlib.suppress(OSError):
        os.killpg(root, signal.SIGSTOP)
        os.killpg(root, signal.SIGKILL)


def _tell(control: socket.socket, word: str, said: int | str) -> None:
    with contextlib.suppress(OSError):
        control.sendall(json.dumps([word, said]).encode() + b"\n")


# --- both ---------------------------------------------------------------------------------------


def _become(name: bytes) -> None:
    """Take this name, and adopt the orphans among all descendants."""
    import ctypes

    with contextlib.suppress(AttributeError):  # not Linux
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_NAME, name, 0, 0, 0)
        prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def _ready(fds: Iterable[int], timeout_s: float | None = None, changing: Iterable[int] = ()) -> set[int]:
    """Wait so long, and return the readable descriptors, and lists of the kernel that changed."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    for fd in changing:
        poll.register(fd, select.POLLPRI)
    return {fd for fd, _ in poll.poll(None if timeout_s is None else 1000 * timeout_s)}


def _pidfd(pid: int) -> list[int]:
    """Return what becomes readable when the process ends: another one may keep its end of the socket."""
    with contextlib.suppress(OSError, AttributeError):
        return [os.pidfd_open(pid)]
    return []


def _wakes() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def _ended(wakes: int) -> tuple[dict[int, int], bool]:
    """Return the exit codes of the children that ended since the last look, and whether any child is left."""
    with contextlib.suppress(BlockingIOError):
        os.read(wakes, 1 << 16)
    codes: dict[int, int] = {}
    try:
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            codes[child[0]] = os.waitstatus_to_exitcode(child[1])
    except ChildProcessError:
        return codes, False
    return codes, True


if __name__ == "__main__":
    main()
