"""The kernel's filter of system calls for programs in a sandbox, as the bytes that `bwrap --seccomp` reads.

It refuses, with EPERM, what no tool needs and what kernels had most of their holes in: io_uring, bpf, keys, tracing
and memory of other processes, mounts, and every kind of socket but local ones, IPv4, IPv6 and questions about
routes. A program of another architecture (i386 on x86-64) would have other numbers for its calls, so all of its
calls are refused.

Format: classic BPF over `struct seccomp_data`, as linux/seccomp.h and linux/filter.h define them. The numbers are
those of asm/unistd_64.h and asm-generic/unistd.h.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
"""Load a word, jump if it is equal, jump if it is not smaller, return."""
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001
"""SECCOMP_RET_ALLOW, and SECCOMP_RET_ERRNO with EPERM."""
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Where `struct seccomp_data` has them. An argument has eight bytes, the lower four first."""

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE = 0
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""Put characters into the input of a terminal."""
_X32 = 0x40000000
"""Set in the numbers of calls of the x32 ABI."""
_EVERYWHERE = (
    425, 426, 427,  # io_uring_setup, _enter, _register
    428, 429, 430, 431, 432, 433, 442,  # open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr
    438, 440,  # pidfd_getfd, process_madvise
)  # fmt: skip


class _Machine(msgspec.Struct, frozen=True):
    architecture: int
    """AUDIT_ARCH."""
    refused: tuple[int, ...]
    socket: int
    socketpair: int
    ioctl: int
    first_foreign: int = 0
    """Numbers from here on belong to another ABI; 0: all belong to this one."""


_MACHINES: Mapping[str, _Machine] = MappingProxyType(
    {
        "x86_64": _Machine(
            0xC000003E,
            (
                101, 310, 311, 312,  # ptrace, process_vm_readv, process_vm_writev, kcmp
                155, 165, 166, 272, 308,  # pivot_root, mount, umount2, unshare, setns
                248, 249, 250,  # add_key, request_key, keyctl
                298, 321, 323,  # perf_event_open, bpf, userfaultfd
                175, 313, 176, 246, 320,  # init_module, finit_module, delete_module, kexec_load, kexec_file_load
                303, 304, 163, 167, 168, 169, 179,  # *_by_handle_at, acct, swapon, swapoff, reboot, quotactl
            ),
            socket=41, socketpair=53, ioctl=16, first_foreign=_X32,
        ),
        "aarch64": _Machine(
            0xC00000B7,
            (
                117, 270, 271, 272,
                41, 40, 39, 97, 268,
                217, 218, 219,
                241, 280, 282,
                105, 273, 106, 104, 294,
                264, 265, 89, 224, 225, 142, 60,
            ),
            socket=198, socketpair=199, ioctl=29,
        ),
    }
)  # fmt: skip


def is_known(machine: str = "") -> bool:
    """Return whether there is a filter for a machine, as `platform.machine` names it; for this one by default."""
    return (machine or platform.machine()) in _MACHINES


def program(machine: str = "") -> bytes:
    """Return the filter for a machine; for this one by default.

    Raises:
        KeyError: such a machine is not known.
    """
    own = _MACHINES[machine or platform.machine()]
    lines = [
        *_load(_ARCHITECTURE), *_unless(_EQUAL, own.architecture, _REFUSE),
        *_load(_NUMBER), *(_if(_AT_LEAST, own.first_foreign, _REFUSE) if own.first_foreign else ()),
    ]  # fmt: skip
    for number in (*_EVERYWHERE, *own.refused):
        lines += _if(_EQUAL, number, _REFUSE)
    for number in (own.socket, own.socketpair):
        lines += _guarded(number, [
            *_argument(0), *_if(_EQUAL, _AF_UNIX, _ALLOW), *_if(_EQUAL, _AF_INET, _ALLOW),
            *_if(_EQUAL, _AF_INET6, _ALLOW), *_unless(_EQUAL, _AF_NETLINK, _REFUSE),
            *_argument(2), *_unless(_EQUAL, _NETLINK_ROUTE, _REFUSE), *_return(_ALLOW),
        ])  # fmt: skip
    lines += _guarded(own.ioctl, [
        *_argument(1), *_if(_EQUAL, _TIOCSTI, _REFUSE), *_if(_EQUAL, _TIOCLINUX, _REFUSE), *_return(_ALLOW)
    ])  # fmt: skip
    return b"".join([*lines, *_return(_ALLOW)])


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _load(place: int) -> list[bytes]:
    return [_line(_LOAD, place)]


def _argument(number: int) -> list[bytes]:
    """Load the lower half of an argument. Those that are examined are ints, so the kernel uses no more of them."""
    return _load(_ARGUMENTS + 8 * number)


def _return(verdict: int) -> list[bytes]:
    return [_line(_RETURN, verdict)]


def _if(comparison: int, value: int, verdict: int) -> list[bytes]:
    return [_line(comparison, value, 0, 1), *_return(verdict)]


def _unless(comparison: int, value: int, verdict: int) -> list[bytes]:
    return [_line(comparison, value, 1, 0), *_return(verdict)]


def _guarded(number: int, lines: list[bytes]) -> list[bytes]:
    """Run these lines, the last of which returns, for one call only."""
    return [_line(_EQUAL, number, 0, len(lines)), *lines]
