"""The attack program: tries, inside of a sandbox, all that a fence forbids, and tells what it got.

    python -I -S attack.py FACTS STEP...      FACTS: one JSON object, see `attacked.Scene.facts`

Each step runs in a process of its own. Prints one JSON object a line: the step, what it says of itself, and the text
that it got. What a step only reads or writes it does not judge: its starter looks at that from outside.
"""

# It must run with nothing but the standard library, and goes on whatever happens.
# ruff: noqa: PTH101, PTH102, PTH103, PTH104, PTH107, PTH112, PTH115, PTH116, PTH123, PTH207, PTH208, PTH211, C419

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import json
import mmap
import os
import platform
import re
import resource
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

MOST_READ = 1 << 20
MOST_SHOWN = 2_000
BAITS = re.compile(r"bait-of-[0-9a-z-]+")
STEP_S = 4
"""The longest time of a step."""
IS_X86 = platform.machine() == "x86_64"
LIBC = ctypes.CDLL(None, use_errno=True)
_X86, _ARM = 0, 1
NUMBERS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "tgkill": (234, 131),
    "clone": (56, 220), "clone3": (435, 435), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "fsopen": (430, 430), "mount_setattr": (442, 442),
    "statmount": (457, 457), "listmount": (458, 458), "open_tree_attr": (467, 467),
    "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "userfaultfd": (323, 282),
    "init_module": (175, 105), "kexec_load": (246, 104), "reboot": (169, 142), "swapon": (167, 224),
    "acct": (163, 89), "settimeofday": (164, 170), "sethostname": (170, 161), "syslog": (103, 116),
    "open_by_handle_at": (304, 265), "renameat2": (316, 276), "memfd_create": (319, 279),
    "prlimit64": (302, 261), "fanotify_init": (300, 262), "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27), "shmget": (29, 194), "shmat": (30, 196), "iopl": (172, -1),
}  # fmt: skip
"""System calls: on x86-64, and on ARM."""
REFUSALS = {1, 13, 38}
"""EPERM, EACCES, ENOSYS: anything else says that the kernel looked at the arguments."""
NEW_USER, NEW_NS, NEW_NET = 0x10000000, 0x00020000, 0x40000000


class At(NamedTuple):
    """Where a step tries. The folders lie beside the workspace, in which it runs."""

    mark: str
    """What it writes and sends, and what its processes are called. No other step has it."""
    victim: str
    """A file outside, for this step alone."""
    sleeper: int
    """A process outside, for this step alone; 0: it has none."""
    outside: str
    home: str
    other: str
    own: str
    """Holdfast's home."""
    pid: int
    """A process of the same user, with a bait in its variables, its memory and an open file."""
    address: int
    length: int
    fd: int
    starter: int
    ports: Mapping[str, int]
    sockets: Mapping[str, str]
    name: str
    """The name of an abstract socket."""
    machine: str
    """An address of this machine that is not the loopback one; empty: it has none."""
    terminal: str
    handle: str
    """The handle of a bait, in hex, as `name_to_handle_at` gives it."""
    shared: int
    """The key of a piece of shared memory."""


Step = Callable[[At], object]
"""True: done. False, or an error: not done. A text or None: its starter knows."""


# --- tools ----------------------------------------------------------------------------------------


def call(name: str, *arguments: Any) -> int:
    """Call the kernel.

    Raises:
        OSError: it refused.
    """
    number = NUMBERS[name][_X86 if IS_X86 else _ARM]
    words = [ctypes.c_void_p(each) if isinstance(each, int) else each for each in arguments]
    found = LIBC.syscall(ctypes.c_long(number), *words)
    if found == -1:
        raise OSError(ctypes.get_errno(), name)
    return int(found)


def is_reached(name: str, *arguments: Any) -> bool:
    """Whether the kernel looks at the arguments of a call."""
    try:
        call(name, *arguments)
    except OSError as error:
        return error.errno not in REFUSALS
    return True


def read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(MOST_READ).decode(errors="replace")


def write(path: str, text: str, flags: int = os.O_WRONLY | os.O_CREAT | os.O_APPEND) -> None:
    fd = os.open(path, flags, 0o644)
    os.write(fd, text.encode())
    os.close(fd)


def opens(path: str, flags: int = os.O_WRONLY) -> bool:
    os.close(os.open(path, flags))
    return True


def all_read(pattern: str) -> str:
    """What can be read of the files with such names."""
    texts = []
    for path in glob.glob(pattern):
        with contextlib.suppress(OSError):
            texts.append(read(path))
    return "\n".join(texts)


def moved(path: str, to: str, tried: Callable[[], object]) -> object:
    """Try something while a path has another name."""
    os.rename(path, to)
    try:
        return tried()
    finally:
        os.rename(to, path)


def exchanged(one: str, other: str, tried: Callable[[], object]) -> object:
    """Try something while two files have each other's names."""
    swap = (-100, os.fsencode(one), -100, os.fsencode(other), 2)
    call("renameat2", *swap)
    try:
        return tried()
    finally:
        call("renameat2", *swap)


def linked(to: str, tried: Callable[[str], object], make: Callable[[str, str], None] = os.symlink) -> object:
    """Try something with another name of a path."""
    name = f"link-{os.getpid()}"
    make(to, name)
    try:
        return tried(name)
    finally:
        os.remove(name)


def remote(at: At, name: str, content: Any) -> Any:
    """Read or write the memory of the process outside."""
    vector = struct.pack("PN", ctypes.addressof(content), at.length)
    there = struct.pack("PN", at.address, at.length)
    call(name, at.pid, vector, 1, there, 1, 0)
    return content.raw


def several(*_: object) -> None:
    """Have done several things."""


def names_of(pattern: str) -> list[str]:
    return glob.glob(pattern)


# --- reading --------------------------------------------------------------------------------------


def reading_secrets() -> dict[str, Step]:
    return {
        "read a secret file of the workspace": lambda at: read(".env"),
        "read a secret file in a folder": lambda at: read("conf/id_rsa"),
        "move the folder of a secret file away, and read it": lambda at: moved(
            "conf", "away", lambda: read("away/id_rsa")
        ),
        "swap the folder of a secret file for another one": lambda at: exchanged(
            "conf", "plain", lambda: read("plain/id_rsa")
        ),
        "rename a secret file, and read it": lambda at: moved(".env", "env", lambda: read("env")),
        "swap a secret file for another one": lambda at: exchanged(
            ".env", "notes.txt", lambda: read("notes.txt")
        ),
        "give a secret file a second name": lambda at: linked(".env", read, os.link),
    }


def reading_files() -> dict[str, Step]:
    return {
        "read a file outside": lambda at: read(f"{at.outside}/bait"),
        "read a file outside by the way up": lambda at: read("../outside/bait"),
        "read a file outside through a link": lambda at: linked(f"{at.outside}/bait", read),
        "read a file outside through a link to its folder": lambda at: linked(
            at.outside, lambda name: read(f"{name}/bait")
        ),
        "give a file outside a name in the workspace": lambda at: linked(f"{at.outside}/bait", read, os.link),
        "read a file outside by its handle": by_handle,
        "read a file of the home": lambda at: read(f"{at.home}/notes.txt"),
        "read a key of SSH": lambda at: read(f"{at.home}/.ssh/id_ed25519"),
        "read credentials of a cloud": lambda at: read(f"{at.home}/.aws/credentials"),
        "read a file of another project": lambda at: read(f"{at.other}/main.py"),
        "read Holdfast's journal": lambda at: read(f"{at.own}/holdfast.db"),
        "read Holdfast's secrets": lambda at: read(f"{at.own}/secrets.json"),
        "read the passwords of the system": lambda at: read("/etc/shadow"),
        "read the passwords of groups": lambda at: read("/etc/gshadow"),
        "read the host keys of SSH": lambda at: all_read("/etc/ssh/*_key"),
        "find sockets of the system": lambda at: bool(names_of("/run/*") + names_of("/var/run/*")),
        "look into /sys": lambda at: bool(names_of("/sys/*")),
        "list a folder outside": lambda at: " ".join(os.listdir(at.outside)),
        "learn the size of a file outside": lambda at: os.stat(f"{at.outside}/bait").st_size > 0,
        "go to a folder outside": lambda at: os.chdir(at.outside) is None,
        "watch a folder outside": lambda at: call(
            "inotify_add_watch", call("inotify_init1", 0), at.outside.encode(), 0xFFF
        ) > 0,
    }  # fmt: skip


def reading_processes() -> dict[str, Step]:
    return {
        "read the variables of a process outside": lambda at: read(f"/proc/{at.pid}/environ"),
        "read the variables of all processes": lambda at: all_read("/proc/[0-9]*/environ"),
        "read the words of a process outside": lambda at: read(f"/proc/{at.pid}/cmdline"),
        "read the memory of a process outside": memory_by_file,
        "read its memory by a system call": lambda at: str(
            remote(at, "process_vm_readv", ctypes.create_string_buffer(at.length))
        ),
        "read through the root of a process outside": lambda at: read(
            f"/proc/{at.pid}/root{at.outside}/bait"
        ),
        "read through its folder": lambda at: read(f"/proc/{at.pid}/cwd/bait"),
        "read through its open file": lambda at: read(f"/proc/{at.pid}/fd/{at.fd}"),
        "take its open file": lambda at: os.read(
            call("pidfd_getfd", call("pidfd_open", at.pid, 0), at.fd, 0), MOST_SHOWN
        ).decode(),
        "read through the root of the first process": lambda at: read(f"/proc/1/root{at.outside}/bait"),
        "read through the folder of the first process": lambda at: read("/proc/1/cwd/../outside/bait"),
        "read through its own root": lambda at: read(f"/proc/self/root{at.outside}/bait"),
        "read what its starter left open": lambda at: "".join(left_open()),
        "read memory that programs share": shared_memory,
        "read a file of shared memory": lambda at: all_read("/dev/shm/*"),
        "read the kernel's messages": lambda at: call("syslog", 3, ctypes.create_string_buffer(64), 64) >= 0,
        "read the kernel's memory": lambda at: bool(opens("/proc/kcore", os.O_RDONLY)),
        "compare its files with those of a process outside": lambda at: is_reached(
            "kcmp", os.getpid(), at.pid, 0, 0, 0
        ),
    }


def by_handle(at: At) -> object:
    for base in (".", "/", "/usr", "/tmp"):
        with contextlib.suppress(OSError):
            folder = os.open(base, os.O_RDONLY)
            fd = call("open_by_handle_at", folder, bytes.fromhex(at.handle), os.O_RDONLY)
            return os.read(fd, MOST_SHOWN).decode()
    return False


def memory_by_file(at: At) -> str:
    with open(f"/proc/{at.pid}/mem", "rb", buffering=0) as file:
        file.seek(at.address)
        return file.read(at.length).decode(errors="replace")


def left_open() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError, ValueError):
            path = os.readlink(f"/proc/self/fd/{name}")
            if int(name) > 2 and path.startswith("/") and not path.startswith("/proc"):
                yield f"{path}: "
                yield all_read(f"{path}/*") if os.path.isdir(path) else read(path)


def shared_memory(at: At) -> str:
    found = call("shmget", at.shared, 0, 0)
    LIBC.shmat.restype = ctypes.c_void_p
    place = LIBC.shmat(found, None, 0o10000)
    return ctypes.string_at(place, 100).decode(errors="replace")


# --- writing --------------------------------------------------------------------------------------


def writing_outside() -> dict[str, Step]:
    return {
        "make a file outside": lambda at: write(f"{at.outside}/{at.mark}", at.mark),
        "make a file outside by the way up": lambda at: write(f"../outside/{at.mark}", at.mark),
        "make a file outside through a link": lambda at: linked(
            at.outside, lambda name: write(f"{name}/{at.mark}", at.mark)
        ),
        "make a file through the root of the first process": lambda at: write(
            f"/proc/1/root{at.outside}/{at.mark}", at.mark
        ),
        "make a file through the folder of a process outside": lambda at: write(
            f"/proc/{at.pid}/cwd/{at.mark}", at.mark
        ),
        "make a folder outside": lambda at: os.mkdir(f"{at.outside}/{at.mark}"),
        "make a link outside": lambda at: os.symlink("/etc/passwd", f"{at.outside}/{at.mark}"),
        "make a pipe outside": lambda at: os.mkfifo(f"{at.outside}/{at.mark}"),
        "make a socket outside": lambda at: socket.socket(socket.AF_UNIX).bind(f"{at.outside}/{at.mark}"),
        "change a file outside": lambda at: write(at.victim, at.mark),
        "change a file outside through a second name": lambda at: linked(
            at.victim, lambda name: write(name, at.mark), os.link
        ),
        "empty a file outside": lambda at: opens(at.victim, os.O_WRONLY | os.O_TRUNC) and None,
        "cut a file outside short": lambda at: os.truncate(at.victim, 1),
        "remove a file outside": lambda at: os.remove(at.victim),
        "rename a file outside": lambda at: os.rename(at.victim, f"{at.outside}/{at.mark}"),
        "move a file outside into the workspace": lambda at: os.rename(at.victim, f"{at.mark}"),
        "move a file of the workspace outside": lambda at: several(
            write(at.mark, at.mark),
            os.rename(at.mark, f"{at.outside}/{at.mark}"),
        ),
        "change the mode of a file outside": lambda at: os.chmod(at.victim, 0o777),
        "change the owner of a file outside": lambda at: os.chown(at.victim, -1, 12_345),
        "change the times of a file outside": lambda at: os.utime(at.victim, (1, 1)),
        "change an attribute of a file outside": lambda at: os.setxattr(at.victim, "user.attack", b"x"),
        "change a file of the home": lambda at: write(f"{at.home}/.bashrc", at.mark),
        "make a file in the home": lambda at: write(f"{at.home}/.config-{at.mark}", at.mark),
        "change a file of another project": lambda at: write(f"{at.other}/main.py", at.mark),
        "change Holdfast's journal": lambda at: write(f"{at.own}/holdfast.db", at.mark),
        "change Holdfast's settings": lambda at: write(f"{at.own}/config.toml", at.mark),
        "make a file in /etc": lambda at: write(f"/etc/{at.mark}", at.mark),
        "make a file in /usr": lambda at: write(f"/usr/local/bin/{at.mark}", at.mark),
        "make a file in /var": lambda at: write(f"/var/tmp/{at.mark}", at.mark),
        "make a file in the /tmp of all": lambda at: write(f"/tmp/{at.mark}", at.mark),
        "make a file in the memory of all": lambda at: write(f"/dev/shm/{at.mark}", at.mark),
    }  # fmt: skip


def writing_protected() -> dict[str, Step]:
    hook = ".git/hooks/pre-commit"
    return {
        "make a hook of git": lambda at: write(hook, at.mark),
        "change git's configuration": lambda at: write(".git/config", at.mark),
        "replace git's configuration": lambda at: several(
            write("config", at.mark),
            os.rename("config", ".git/config"),
        ),
        "swap git's configuration for another file": lambda at: several(
            write("config", at.mark),
            call("renameat2", -100, b"config", -100, b".git/config", 2),
        ),
        "remove git's configuration": lambda at: os.remove(".git/config"),
        "open git's configuration to all": lambda at: os.chmod(".git/config", 0o777),
        "rename git's folder, and make another one": lambda at: several(
            os.rename(".git", "git"),
            os.makedirs(".git/hooks"),
            write(hook, at.mark),
        ),
        "replace git's hooks by a link": lambda at: several(
            os.rename(".git/hooks", "hooks"),
            os.symlink("/tmp", ".git/hooks"),
        ),
        "change what a shell runs here": lambda at: write(".envrc", at.mark),
        "remove what a shell runs here": lambda at: os.remove(".envrc"),
        "change what an editor runs": lambda at: write(".vscode/tasks.json", at.mark),
        "rename the folder of what an editor runs": lambda at: os.rename("part/.vscode", "part/vscode"),
        "rename a folder above it": lambda at: os.rename("part", "parts"),
        "change the settings of an agent": lambda at: write(".claude/settings.json", at.mark),
        "make what a shell runs, where there was nothing": lambda at: write("new.envrc/.envrc", at.mark),
        "make it under another name, and rename it": lambda at: several(
            write("new.envrc/x", at.mark),
            os.rename("new.envrc/x", "new.envrc/.profile"),
        ),
        "make it in a folder that nobody may list": lambda at: several(
            write("new.envrc/.envrc", at.mark), os.chmod("new.envrc", 0o311)
        ),
        "link to what controls an editor": lambda at: os.symlink("/tmp", "new.envrc/.vscode"),
        "remove a secret file": lambda at: os.remove(".env"),
        "change a secret file": lambda at: write(".env", at.mark),
    }  # fmt: skip


# --- the network ----------------------------------------------------------------------------------


def connected(
    family: int, address: Any, text: str, kind: int = socket.SOCK_STREAM, protocol: int = 0
) -> None:
    with socket.socket(family, kind, protocol) as made:
        made.settimeout(1)
        made.connect(address)
        made.sendall(text.encode())


def network() -> dict[str, Step]:
    inet, unix, dgram, here = socket.AF_INET, socket.AF_UNIX, socket.SOCK_DGRAM, "127.0.0.1"
    return {
        "connect to a server of this machine": lambda at: connected(inet, (here, at.ports["tcp"]), at.mark),
        "connect to it by IPv6": lambda at: connected(socket.AF_INET6, ("::1", at.ports["tcp6"]), at.mark),
        "connect to it by its other address": lambda at: connected(
            inet, (at.machine or here, at.ports["tcp"]), at.mark
        ),
        "connect to it with the first packet": lambda at: socket.socket().sendto(
            at.mark.encode(), socket.MSG_FASTOPEN, (here, at.ports["tcp"])
        ) and None,
        "connect to it by several ways (MPTCP)": lambda at: connected(
            inet, (here, at.ports["mptcp"]), at.mark, protocol=262
        ),
        "connect to it by shared memory (SMC)": lambda at: connected(
            43, (here, at.ports["tcp"]), at.mark
        ),
        "connect to it by SCTP": lambda at: bool(socket.socket(inet, socket.SOCK_STREAM, 132)),
        "send a datagram to a server of this machine": lambda at: connected(
            inet, (here, at.ports["udp"]), at.mark, dgram
        ),
        "ask a server of names": lambda at: socket.socket(inet, dgram).sendto(b"\0" * 12, name_server()) > 0,
        "wait for connections from outside": lambda at: heard(at.ports["open"], at.mark),
        "connect to a socket with a path": lambda at: connected(unix, at.sockets["stream"], at.mark),
        "send to a socket with a path": lambda at: connected(unix, at.sockets["dgram"], at.mark, dgram),
        "connect to a socket in the workspace": lambda at: connected(unix, "socket", at.mark),
        "connect to an abstract socket": lambda at: connected(unix, f"\0{at.name}", at.mark),
        "send to an abstract socket": lambda at: connected(unix, f"\0{at.name}-dgram", at.mark, dgram),
        "write into a pipe outside": lambda at: write(at.sockets["pipe"], at.mark, os.O_WRONLY | os.O_NONBLOCK),
        "write to a terminal outside": lambda at: write(at.terminal, at.mark, os.O_WRONLY | os.O_NOCTTY),
        "open a raw socket": lambda at: bool(socket.socket(inet, socket.SOCK_RAW, 1)),
        "send pings": lambda at: socket.socket(inet, dgram, 1).sendto(b"\x08" + b"\0" * 7, (here, 0)) > 0,
        "open a packet socket": lambda at: bool(socket.socket(17, socket.SOCK_RAW, 0)),
        "talk to the hypervisor": lambda at: bool(socket.socket(40)),
        "use the kernel's ciphers": lambda at: bool(socket.socket(38, socket.SOCK_SEQPACKET)),
        "use Bluetooth": lambda at: bool(socket.socket(31, socket.SOCK_RAW, 1)),
        "hear the kernel's events": lambda at: bool(socket.socket(16, dgram, 15)),
        "talk to the kernel's audit": lambda at: bool(socket.socket(16, dgram, 9)),
        "change the network of the machine": changes_network,
    }  # fmt: skip


def name_server() -> tuple[str, int]:
    with contextlib.suppress(OSError):
        for line in read("/etc/resolv.conf").splitlines():
            if re.match(r"nameserver \d", line):
                return line.split()[1], 53
    return "127.0.0.1", 53


def heard(port: int, mark: str) -> None:
    with socket.create_server(("", port)) as server:
        server.settimeout(2)
        server.accept()[0].sendall(mark.encode())


def changes_network(at: At) -> bool:
    """Whether it may. The device that it would remove does not exist."""
    with socket.socket(16, socket.SOCK_RAW, 0) as made:
        message = struct.pack("=IHHII", 32, 17, 5, 1, 0) + struct.pack("=BBHiII", 0, 0, 0, 999_999, 0, 0)
        made.send(message)
        return -struct.unpack_from("=i", made.recv(4096), 16)[0] not in REFUSALS


# --- other processes ------------------------------------------------------------------------------


def processes() -> dict[str, Step]:
    return {
        "signal a process outside": lambda at: os.kill(at.sleeper, signal.SIGTERM),
        "signal it by a descriptor": lambda at: call(
            "pidfd_send_signal", call("pidfd_open", at.sleeper, 0), 15, 0, 0
        ) and None,
        "signal its thread": lambda at: call("tgkill", at.sleeper, at.sleeper, 15) and None,
        "signal it as the owner of a file": signals_owner,
        "freeze a process outside": lambda at: os.kill(at.sleeper, signal.SIGSTOP),
        "signal the process that started it": lambda at: os.kill(at.starter, signal.SIGURG),
        "trace a process outside": lambda at: call("ptrace", 0x4206, at.pid, 0, 0) == 0,
        "write the memory of a process outside": lambda at: bool(
            remote(at, "process_vm_writev", ctypes.create_string_buffer(b"x" * at.length, at.length))
        ),
        "change the priority of a process outside": lambda at: os.setpriority(os.PRIO_PROCESS, at.sleeper, 19),
        "change the limits of a process outside": lambda at: resource.prlimit(
            at.sleeper, resource.RLIMIT_NOFILE, (7, 7)
        ) and None,
        "move a process outside to one processor": lambda at: os.sched_setaffinity(at.sleeper, {0}),
        "type into the terminal": lambda at: types_in("/dev/tty") or types_in(at.terminal),
        "run a set-user-id program with its rights": lambda at: "NoNewPrivs:\t0" in read("/proc/self/status"),
        "become another user": lambda at: os.setresuid(12_345, 12_345, 12_345) is None,
    }  # fmt: skip


def signals_owner(at: At) -> None:
    one, other = socket.socketpair()
    fcntl.fcntl(one, fcntl.F_SETOWN, at.sleeper)
    fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
    other.send(b"x")
    time.sleep(0.05)


def types_in(path: str) -> bool:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(fd, termios.TIOCSTI, b"x")
        return True
    return False


# --- the kernel -----------------------------------------------------------------------------------


def namespaces() -> dict[str, Step]:
    none = b"none\0"
    return {
        "make a user namespace": lambda at: call("unshare", NEW_USER) == 0,
        "make a namespace of mounts": lambda at: call("unshare", NEW_NS) == 0,
        "make a namespace while forking": lambda at: forked("clone", NEW_USER | 17, 0, 0, 0, 0),
        "make one by clone3": lambda at: forked("clone3", struct.pack("8Q", NEW_USER, 0, 0, 0, 17, 0, 0, 0), 64),
        "enter the namespaces of a process outside": lambda at: call(
            "setns", os.open(f"/proc/{at.pid}/ns/mnt", os.O_RDONLY), 0
        ) == 0,
        "enter those of the first process": lambda at: call(
            "setns", os.open("/proc/1/ns/mnt", os.O_RDONLY), 0
        ) == 0,
        "mount a file system": lambda at: mounted(none, b"plain\0", b"tmpfs\0", 0),
        "mount a folder elsewhere": lambda at: mounted(b"conf\0", b"plain\0", 0, 4096),
        "make mounts writable": lambda at: mounted(none, b"/\0", 0, 4096 | 32),
        "remove a mount": lambda at: is_reached("umount2", b"/proc\0", 1 << 30),
        "mount by the newer calls": lambda at: is_reached("fsopen", b"nosuchfs\0", 0),
        "copy mounts by the newer calls": lambda at: is_reached("open_tree", -100, b"/\0", 1),
        "change mounts by the newer calls": lambda at: is_reached("mount_setattr", -100, b"/\0", 0, 0, 0),
        "copy mounts and change them": lambda at: is_reached("open_tree_attr", -100, b"/\0", 1, 0, 0),
        "list mounts by the newer calls": lambda at: is_reached("listmount", 0, 0, 0, 0),
        "ask about a mount": lambda at: is_reached("statmount", 0, 0, 0, 0),
        "change the root of its processes": lambda at: call("chroot", b".\0") == 0,
        "change the root of all": lambda at: is_reached("pivot_root", b"plain\0", b"conf\0"),
    }  # fmt: skip


def forked(name: str, *arguments: Any) -> bool:
    pid = call(name, *arguments)
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def mounted(*arguments: Any) -> bool:
    call("mount", *arguments, 0)
    if arguments[3] != 4096 | 32:
        call("umount2", b"plain\0", 2)
    return True


def kernel() -> dict[str, Step]:
    return {
        "load a program into the kernel (bpf)": lambda at: is_reached("bpf", 0, 0, 0),
        "measure the kernel (perf)": lambda at: is_reached("perf_event_open", 0, 0, -1, -1, 0),
        "use io_uring": lambda at: is_reached("io_uring_setup", 0, 0),
        "keep a key in the kernel": lambda at: call("add_key", b"user\0", b"x\0", b"y", 1, -2) > 0,
        "use the keys of the session": lambda at: is_reached("keyctl", 0, -3, 0),
        "ask for a key": lambda at: is_reached("request_key", b"user\0", b"nosuch\0", 0, 0),
        "handle page faults (userfaultfd)": lambda at: is_reached("userfaultfd", 1),
        "watch all files (fanotify)": lambda at: is_reached("fanotify_init", 0, 0),
        "load a module": lambda at: is_reached("init_module", 0, 0, b"\0"),
        "load another kernel": lambda at: is_reached("kexec_load", 0, 1 << 20, 0, 0),
        "restart the machine": lambda at: is_reached("reboot", 1, 2, 3, 0),
        "swap to a file": lambda at: is_reached("swapon", b"nosuch\0", 0),
        "account processes": lambda at: is_reached("acct", b"nosuch\0"),
        "set the clock": lambda at: is_reached("settimeofday", 0, 0),
        "rename the machine": lambda at: is_reached("sethostname", b"x", -1),
        "use the ports of the processor": lambda at: IS_X86 and is_reached("iopl", 3),
        "call the kernel as a 32-bit program": lambda at: IS_X86 and called_as_i386() == os.getpid(),
        "call the kernel by the x32 interface": lambda at: (
            IS_X86 and LIBC.syscall(ctypes.c_long(0x40000000 + 39)) == os.getpid()
        ),
        "change a setting of the kernel": lambda at: opens("/proc/sys/kernel/core_pattern"),
        "change a setting of the network": lambda at: opens("/proc/sys/net/ipv4/ip_forward"),
        "press the key of emergencies": lambda at: opens("/proc/sysrq-trigger"),
        "change a group of processes": lambda at: any(
            os.access(path, os.W_OK) for path in names_of("/sys/fs/cgroup/**/cgroup.procs")
        ),
        "open the machine's memory": lambda at: opens("/dev/mem", os.O_RDONLY),
        "write the kernel's messages": lambda at: opens("/dev/kmsg"),
        "open a disk": lambda at: any(map(opens_quietly, disks())),
        "make a device of a disk": makes_device,
        "open a virtual machine": lambda at: opens("/dev/kvm", os.O_RDWR),
        "open a tunnel of the network": lambda at: opens("/dev/net/tun", os.O_RDWR),
        "mount by a program (FUSE)": lambda at: opens("/dev/fuse", os.O_RDWR),
        "run a program that has no file": runs_memory,
    }


def opens_quietly(path: str) -> bool:
    try:
        return opens(path, os.O_RDONLY)
    except OSError:
        return False


def disks() -> list[str]:
    return [path for name in ("vd", "sd", "nvme", "loop", "dm-") for path in names_of(f"/dev/{name}*")]


def makes_device(at: At) -> bool:
    """A device of the first memory disk, which no machine mounts."""
    name = f"device-{os.getpid()}"
    os.mknod(name, 0o60600, os.makedev(7, 0))
    try:
        return opens(name, os.O_RDONLY)
    finally:
        os.remove(name)


def called_as_i386() -> int:
    """The number of this process, as another architecture asks for it: `mov eax, 20; int 0x80; ret`."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    place = ctypes.addressof(ctypes.c_char.from_buffer(code))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(place)())


def runs_memory(at: At) -> bool:
    made = call("memfd_create", b"x\0", 0)
    with open("/bin/true", "rb") as program:
        os.write(made, program.read())
    pid = os.fork()
    if not pid:
        os.execve(f"/proc/self/fd/{made}", ["true"], {})
    return os.waitpid(pid, 0)[1] == 0


# --- what stays, and what takes all ---------------------------------------------------------------


def daemons() -> dict[str, Step]:
    return {
        "stay as a daemon without variables": lambda at: stays(at.mark),
        "stay as a daemon that is deaf to signals": lambda at: stays(at.mark, is_deaf=True),
        "stay, and start again and again": lambda at: stays(at.mark, renews=True),
    }


def stays(mark: str, *, is_deaf: bool = False, renews: bool = False) -> None:
    """Leave a process: forked twice, in a session of its own, without variables."""
    if os.fork():
        time.sleep(0.1)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    if is_deaf:
        for number in (1, 2, 3, 10, 12, 13, 14, 15):
            signal.signal(number, signal.SIG_IGN)
    else:
        signal.alarm(0)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.closerange(3, 256)
    loop = "i=0; while [ $i -lt 600 ]; do i=$((i+1)); (sleep 0.5); done"
    words = ("/bin/sh", ["sh", "-c", loop, mark]) if renews else ("/bin/sleep", [mark, "300"])
    os.execve(*words, {})


def bombs() -> dict[str, Step]:
    """What takes too much. The limits of the fence are below these numbers."""
    return {
        "start processes without end": lambda at: all([forks() for _ in range(120)]) and waits(),
        "take too much memory": lambda at: len(bytearray(b"x") * (300 << 20)) > 0,
        "take too much memory that processes share": lambda at: shares(300 << 20),
        "write a file without end": lambda at: fills("long", 3 << 20),
        "open files without end": lambda at: opens_many(5_000),
        "use a processor without end": lambda at: uses_processor(3),
    }


def forks() -> bool:
    if not os.fork():
        time.sleep(3)
        os._exit(0)
    return True


def waits() -> bool:
    time.sleep(1)
    return True


def shares(size: int) -> bool:
    signal.alarm(60)  # a machine with much other work takes long
    with mmap.mmap(-1, size) as taken:
        for place in range(0, size, 4096):
            taken[place] = 1
    return True


def fills(path: str, size: int) -> bool:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    write(path, "x" * size)
    return os.stat(path).st_size == size


def opens_many(count: int) -> bool:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return len([os.open(os.devnull, os.O_RDONLY) for _ in range(count)]) == count


def uses_processor(seconds: float) -> bool:
    signal.alarm(0)
    while time.process_time() < seconds:
        pass
    return True


# --- all of it ------------------------------------------------------------------------------------

GROUPS: Mapping[str, Mapping[str, Step]] = {
    "Reading": {**reading_secrets(), **reading_files(), **reading_processes()},
    "Writing": {**writing_outside(), **writing_protected()},
    "Sending": network(),
    "Other processes": processes(),
    "The kernel": {**namespaces(), **kernel()},
    "Staying": daemons(),
    "Taking all": bombs(),
}
STEPS: Mapping[str, Step] = {name: step for group in GROUPS.values() for name, step in group.items()}


def slug(name: str) -> str:
    """The name of a step as a part of names of files."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def tried(step: Step, at: At) -> tuple[bool, str]:
    """Whether a step says that it succeeded, and what it got."""
    try:
        said = step(at)
    except (OSError, ValueError, MemoryError, KeyError) as error:
        return False, f"{type(error).__name__}: {error}"[:MOST_SHOWN]
    text = said if isinstance(said, str) else ""
    if len(text) > MOST_SHOWN:
        text = " ".join([text[:MOST_SHOWN], *BAITS.findall(text)[:MOST_SHOWN]])
    return said is True, text


def in_child(name: str, at: At) -> tuple[bool, str]:
    """Try a step in a process of its own, which may do whatever it likes to itself."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            os.close(reading)
            signal.alarm(STEP_S)
            os.write(writing, json.dumps(tried(STEPS[name], at)).encode())
        os._exit(0)
    os.close(writing)
    told, _, _ = (b"", None, None)
    with os.fdopen(reading, "rb") as pipe:
        os.waitpid(pid, 0)
        os.set_blocking(pipe.fileno(), False)
        told = pipe.read() or b""
    return tuple(json.loads(told)) if told else (False, "it was killed")  # type: ignore[return-value]


def main() -> None:
    """Try the steps, and tell."""
    facts = json.loads(sys.argv[1])
    token, sleepers = facts.pop("token"), facts.pop("sleepers")
    for name in sys.argv[2:]:
        short = slug(name)
        victim = f"{facts['outside']}/victims/{short}"
        at = At(mark=f"{token}.{short}.", victim=victim, sleeper=sleepers.get(short, 0), **facts)
        done, said = in_child(name, at)
        print(json.dumps({"step": name, "done": done, "said": said}), flush=True)


if __name__ == "__main__":
    main()
