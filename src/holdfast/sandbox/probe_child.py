"""The program that a probe runs inside a sandbox: tries what the fence forbids, and what it must not forbid.

    python -I -S probe_child.py FACTS < /dev/null      FACTS: one JSON object, see `probing`

Prints one JSON object: `done`, what it could do and must not; `failed`, what it could not do and must; and the bait
that it was given.
"""

# It must run with nothing but the standard library, and says nothing of what it finds.
# ruff: noqa: PTH107, PTH104, PTH123, PTH208

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_IO_URING_SETUP = 425
_CLONE_NEWUSER = 0x10000000
_AF_VSOCK = 40
_EPERM = 1


def main() -> None:
    """Try everything, and tell."""
    facts = json.loads(sys.argv[1])
    forbidden = ((name, tried) for name, tried in _forbidden(facts).items() if name not in facts["lets"])
    done = [name for name, tried in forbidden if _succeeds(tried)]
    failed = [name for name, tried in _needed().items() if not _succeeds(tried)]
    print(json.dumps({"bait": facts["bait"], "done": done, "failed": failed}))


def _forbidden(facts: dict[str, Any]) -> dict[str, Callable[[], object]]:
    outside = facts["outside"]
    return {
        "read a file outside": lambda: _has(f"{outside}/bait", facts["bait"]),
        "write a file outside": lambda: _write(f"{outside}/written"),
        "read a masked file": lambda: _has("masked", facts["bait"]),
        "change a protected file": lambda: _write("kept/protected"),
        "remove a protected file": lambda: os.remove("kept/protected"),
        "rename the folder of a protected file": lambda: os.rename("kept", "away"),
        "connect to a server of this machine": lambda: socket.create_connection(
            ("127.0.0.1", facts["port"]), 2
        ),
        "connect to an abstract socket": lambda: _connect(f"\0{facts['bait']}"),
        "send a datagram": lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 9)),
        "signal a process outside": lambda: _signals(facts["pid"]) and _is(facts),
        "see processes outside": lambda: _others_are_seen(),
        "make a user namespace": lambda: _unshared(),
        "use io_uring": lambda: _is_called(_IO_URING_SETUP),
        "talk to a hypervisor": lambda: socket.socket(_AF_VSOCK),
        "see the variables of Holdfast": lambda: _has(f"/proc/{facts['pid']}/environ", "") and _is(facts),
        "change the limits of Holdfast": lambda: _limited(facts["pid"]) and _is(facts),
        "see the variables of its starter": lambda: _is_told_secrets(),
        "change settings of the kernel": lambda: _write("/proc/sys/kernel/core_pattern", os.O_WRONLY),
        "write to the system": lambda: _write("/usr/written"),
    }


def _needed() -> dict[str, Callable[[], object]]:
    return {
        "write a file": lambda: _write("written"),
        "run a program": lambda: subprocess.run(["/bin/sh", "-c", "true"], check=True),
        "write a temporary file": lambda: _write(f"{os.environ['TMPDIR']}/written"),
        "make a pair of sockets": socket.socketpair,
    }


def _succeeds(tried: Callable[[], object]) -> bool:
    try:
        return tried() is not False
    except (OSError, subprocess.SubprocessError):
        return False


def _has(path: str, text: str) -> bool:
    with open(path) as file:
        return text in file.read()


def _write(path: str, flags: int = os.O_WRONLY | os.O_CREAT) -> None:
    os.close(os.open(path, flags, 0o600))


def begun(pid: int) -> str:
    """Return when a process began, as the kernel counts; empty: that is not known."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is(facts: dict[str, Any]) -> bool:
    """Whether its number leads to the process outside. In a container numbers are small, and another one inside may
    have the same.
    """
    return begun(facts["pid"]) in ("", facts["begun"])


def _signals(pid: int) -> bool:
    """Signal 0 does nothing, and says whether another signal could."""
    os.kill(pid, 0)
    return True


def _others_are_seen() -> bool:
    """Whether there are processes beside this one, its children, and what started it."""
    return len([name for name in os.listdir("/proc") if name.isdigit()]) > 4


def _connect(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(name)


def _limited(pid: int) -> bool:
    """Whether another process's limits could be changed. This changes nothing: they become what they are."""
    limits = resource.prlimit(pid, resource.RLIMIT_CORE)
    return resource.prlimit(pid, resource.RLIMIT_CORE, limits) == limits


def _unshared() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.unshare(_CLONE_NEWUSER) == 0)


def _is_called(number: int) -> bool:
    """Whether a system call is known: it fails here for its arguments, not for its number."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(number, 0, 0)
    return ctypes.get_errno() != _EPERM and platform.system() == "Linux"


def _is_told_secrets() -> bool:
    with open("/proc/1/environ", "rb") as file:
        names = {each.partition(b"=")[0] for each in file.read().split(b"\0")}
    return not names <= {b"", b"HOLDFAST_CALL", b"PWD", b"TMPDIR"}


if __name__ == "__main__":
    main()
