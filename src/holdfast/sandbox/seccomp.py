"""The kernel's filter of system calls for programs in a sandbox, as the bytes that `bwrap --seccomp` reads.

It refuses, with EPERM, what no tool needs and what kernels had most of their holes in: io_uring, bpf, keys, tracing
and memory of other processes, mounts, and every kind of socket but local ones, IPv4, IPv6 and questions about
routes. A program of another architecture (i386 on x86-64) would have other numbers for its calls, so all of its
calls are refused.

A sandbox without namespaces of its own (`landlock`) needs a stricter one: `shared_program`. It refuses also what
would reach other programs of the machine past the rules for files, and what changes a file by its name.

Format: classic BPF over `struct seccomp_data`, as linux/seccomp.h and linux/filter.h define them. The numbers are
those of asm/unistd_64.h and asm-generic/unistd.h.
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

_LOAD, _EQUAL, _AT_LEAST, _HAS_ANY, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
"""Load a word, jump if it is equal, jump if it is not smaller, jump if they share a bit, keep these bits, return."""
_ALLOW, _REFUSE, _ASK = 0x7FFF0000, 0x00050001, 0x7FC00000
"""SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO with EPERM, and SECCOMP_RET_USER_NOTIF: who has the listener answers."""
_UNKNOWN, _UNSUPPORTED, _SKIP = 0x00050026, 0x0005005F, 0x00050000
"""SECCOMP_RET_ERRNO with ENOSYS, with EOPNOTSUPP, and with 0: nothing is done, without an error."""
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Where `struct seccomp_data` has them. An argument has eight bytes, the lower four first."""

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE = 0
_SOCK_STREAM, _SOCK_SEQPACKET, _KINDS = 1, 5, 0xF
_IPPROTO_TCP = 6
_MSG_FASTOPEN = 0x20000000
"""Connects without asking whether it may."""
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, and all others that `clone` knows."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""Put characters into the input of a terminal."""
_SET_FLAGS = (0x40086602, 0x40046602, 0x401C5820)
"""FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR: change a file that is open for reading only."""
TAG_LIMIT = 10
"""RLIMIT_LOCKS, which Linux has not used since 2.4. All processes of a call have its tag there, and keep it."""
_AS_IT_IS = 0xFFFFFFFF
"""-1 as an owner."""
_X32 = 0x40000000
"""Set in the numbers of calls of the x32 ABI."""
_EVERYWHERE = (
    425, 426, 427,  # io_uring_setup, _enter, _register
    428, 429, 430, 431, 432, 433, 442,  # open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr
    438, 440,  # pidfd_getfd, process_madvise
    443, 457, 458, 467, 470,  # quotactl_fd, statmount, listmount, open_tree_attr, listns
)  # fmt: skip
_ATTRIBUTES = (463, 466, 469)
"""setxattrat, removexattrat, file_setattr"""
_CLONE3 = 435


class _Machine(msgspec.Struct, frozen=True):
    architecture: int
    """AUDIT_ARCH."""
    refused: tuple[int, ...]
    socket: int
    socketpair: int
    ioctl: int
    shared: tuple[int, ...]
    """What is refused, too, in a sandbox that has no namespaces of its own."""
    clone: int
    capset: int
    seccomp: int
    connect: int
    serving: tuple[int, ...]
    """What makes a server of a socket. One that listens gets a port also if nobody asked for one."""
    attributes: tuple[int, ...]
    """Calls that change further attributes of a file by its name. Tools go on without them."""
    chown: Mapping[int, int]
    """Calls that give a file away, and where their arguments say to whom."""
    with_flags: Mapping[int, int]
    """Calls that send, and which of their arguments has the flags."""
    of_others: Mapping[int, int]
    """Calls about a process, and which of their arguments says which one; 0 is the caller."""
    priorities: Mapping[int, int]
    """Calls about a process, a group or a user, and what says that they are about a process."""
    prlimit: int
    setrlimit: int
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
                103, 300,  # syslog, fanotify_init
            ),
            socket=41, socketpair=53, ioctl=16, first_foreign=_X32,
            shared=(
                161,  # chroot
                29, 30, 31, 67, 64, 65, 66, 220, 68, 69, 70, 71,  # shm*, sem*, msg*
                240, 241, 256, 279,  # mq_open, mq_unlink, migrate_pages, move_pages
            ),
            clone=56, capset=126, seccomp=317, connect=42,
            serving=(49, 50, 43, 288),  # bind, listen, accept, accept4
            attributes=(188, 189, 190, 197, 198, 199),  # *setxattr, *removexattr
            chown={92: 1, 93: 1, 94: 1, 260: 2},  # chown, fchown, lchown, fchownat
            with_flags={44: 3, 46: 2, 307: 3},  # sendto, sendmsg, sendmmsg
            # sched_setparam, _setscheduler, _setaffinity, _setattr
            of_others={142: 0, 144: 0, 203: 0, 314: 0},
            priorities={141: 0, 251: 1},  # setpriority, ioprio_set
            prlimit=302, setrlimit=160,
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
                116, 262,
            ),
            socket=198, socketpair=199, ioctl=29,
            shared=(
                51,
                194, 196, 195, 197, 190, 193, 191, 192, 186, 189, 188, 187,
                180, 181, 238, 239,
            ),
            clone=220, capset=91, seccomp=277, connect=203,
            serving=(200, 201, 202, 242),
            attributes=(5, 6, 7, 14, 15, 16),
            chown={55: 1, 54: 2},
            with_flags={206: 3, 211: 2, 269: 3},
            of_others={118: 0, 119: 0, 122: 0, 274: 0},
            priorities={140: 0, 30: 1}, prlimit=261, setrlimit=164,
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
    lines = _beginning(own, own.refused)
    for number in (own.socket, own.socketpair):
        lines += _guarded(number, [
            *_argument(0), *_if(_EQUAL, _AF_UNIX, _ALLOW), *_if(_EQUAL, _AF_INET, _ALLOW),
            *_if(_EQUAL, _AF_INET6, _ALLOW), *_unless(_EQUAL, _AF_NETLINK, _REFUSE),
            *_argument(2), *_unless(_EQUAL, _NETLINK_ROUTE, _REFUSE), *_return(_ALLOW),
        ])  # fmt: skip
    return b"".join([*lines, *_ioctls(own, ()), *_return(_ALLOW)])


def capset() -> int:
    """Return the number of the system call on this machine."""
    return _MACHINES[platform.machine()].capset


def installation() -> int:
    """Return the number of the system call on this machine that installs a filter with a listener."""
    return _MACHINES[platform.machine()].seccomp


def shared_program(machine: str = "", *, has_network: bool) -> bytes:
    """Return the filter for a sandbox that shares the namespaces of the machine.

    Sockets are pairs only, and of kinds that cannot be connected to another place. With a network, they are also of
    TCP, and who has the listener of the filter connects them: the program itself cannot. A file cannot be given away.
    Nothing is done where its owner shall be who runs the program: `tar` and `cp -a` of root ask for that, and would
    fail.

    Args:
        machine: As `platform.machine` names it; by default this one.
        has_network: Whether it may open TCP sockets. Such a filter needs a listener.

    Raises:
        KeyError: such a machine is not known.
    """
    own = _MACHINES[machine or platform.machine()]
    lines = [*_beginning(own, (*own.refused, *own.shared)), *_if(_EQUAL, _CLONE3, _UNKNOWN)]
    for number in (*_ATTRIBUTES, *own.attributes):
        lines += _if(_EQUAL, number, _UNSUPPORTED)
    streams = [_line(_AND, _KINDS), *_if(_EQUAL, _SOCK_STREAM, _ALLOW)]
    lines += _guarded(own.socketpair, [
        *_argument(0), *_unless(_EQUAL, _AF_UNIX, _REFUSE),
        *_argument(1), *streams, *_unless(_EQUAL, _SOCK_SEQPACKET, _REFUSE), *_return(_ALLOW),
    ])  # fmt: skip
    if has_network:
        lines += _guarded(own.socket, [
            *_argument(2), _line(_EQUAL, 0, 2, 0), *_unless(_EQUAL, _IPPROTO_TCP, _REFUSE),
            *_argument(0), _line(_EQUAL, _AF_INET, 2, 0), *_unless(_EQUAL, _AF_INET6, _REFUSE),
            *_argument(1), *streams, *_return(_REFUSE),
        ])  # fmt: skip
        lines += _if(_EQUAL, own.connect, _ASK)
        for number in own.serving:
            lines += _if(_EQUAL, number, _REFUSE)
    else:
        lines += _if(_EQUAL, own.socket, _REFUSE)
    lines += _guarded(own.clone, [*_argument(0), *_if(_HAS_ANY, _NEW_NAMESPACES, _REFUSE), *_return(_ALLOW)])
    for number, place in own.chown.items():
        lines += _guarded(number, [
            *_argument(place), _line(_EQUAL, os.geteuid(), 2, 0), *_unless(_EQUAL, _AS_IT_IS, _REFUSE),
            *_argument(place + 1), _line(_EQUAL, os.getegid(), 2, 0), *_unless(_EQUAL, _AS_IT_IS, _REFUSE),
            *_return(_SKIP),
        ])  # fmt: skip
    for number, place in own.with_flags.items():
        flags = [*_argument(place), *_if(_HAS_ANY, _MSG_FASTOPEN, _REFUSE), *_return(_ALLOW)]
        lines += _guarded(number, flags)
    lines += _guarded(own.prlimit, [
        *_argument(0), *_unless(_EQUAL, 0, _REFUSE), *_argument(1), *_unless(_EQUAL, TAG_LIMIT, _ALLOW),
        *_argument(2), *_unless(_EQUAL, 0, _REFUSE), *_upper(2), *_unless(_EQUAL, 0, _REFUSE), *_return(_ALLOW),
    ])  # fmt: skip
    lines += _guarded(own.setrlimit, [*_argument(0), *_if(_EQUAL, TAG_LIMIT, _REFUSE), *_return(_ALLOW)])
    for number, place in own.of_others.items():
        lines += _guarded(number, [*_argument(place), *_unless(_EQUAL, 0, _REFUSE), *_return(_ALLOW)])
    for number, of_process in own.priorities.items():
        lines += _guarded(number, [
            *_argument(0), *_unless(_EQUAL, of_process, _REFUSE),
            *_argument(1), *_unless(_EQUAL, 0, _REFUSE), *_return(_ALLOW),
        ])  # fmt: skip
    return b"".join([*lines, *_ioctls(own, _SET_FLAGS), *_return(_ALLOW)])


def _beginning(own: _Machine, refused: Iterable[int]) -> list[bytes]:
    """Refuse other architectures and these calls. The number of the call stays loaded."""
    lines = [
        *_load(_ARCHITECTURE), *_unless(_EQUAL, own.architecture, _REFUSE),
        *_load(_NUMBER), *(_if(_AT_LEAST, own.first_foreign, _REFUSE) if own.first_foreign else ()),
    ]  # fmt: skip
    for number in (*_EVERYWHERE, *refused):
        lines += _if(_EQUAL, number, _REFUSE)
    return lines


def _ioctls(own: _Machine, more: Iterable[int]) -> list[bytes]:
    commands = (line for each in (_TIOCSTI, _TIOCLINUX, *more) for line in _if(_EQUAL, each, _REFUSE))
    return _guarded(own.ioctl, [*_argument(1), *commands, *_return(_ALLOW)])


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _load(place: int) -> list[bytes]:
    return [_line(_LOAD, place)]


def _argument(number: int) -> list[bytes]:
    """Load the lower half of an argument. Those that are examined are ints, so the kernel uses no more of them."""
    return _load(_ARGUMENTS + 8 * number)


def _upper(number: int) -> list[bytes]:
    """Load the upper half of an argument that is a pointer."""
    return _load(_ARGUMENTS + 8 * number + 4)


def _return(verdict: int) -> list[bytes]:
    return [_line(_RETURN, verdict)]


def _if(comparison: int, value: int, verdict: int) -> list[bytes]:
    return [_line(comparison, value, 0, 1), *_return(verdict)]


def _unless(comparison: int, value: int, verdict: int) -> list[bytes]:
    return [_line(comparison, value, 1, 0), *_return(verdict)]


def _guarded(number: int, lines: list[bytes]) -> list[bytes]:
    """Run these lines, the last of which returns, for one call only."""
    return [_line(_EQUAL, number, 0, len(lines)), *lines]
