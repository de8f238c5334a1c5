"""The filter of system calls, run by an interpreter of its instructions: for both machines, on any machine."""

from __future__ import annotations

import os
import struct

import pytest

from holdfast.sandbox import seccomp

ALLOWED, REFUSED = 0x7FFF0000, 0x00050001
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003
CALLS = {
    "x86_64": {"read": 0, "open": 2, "clone": 56, "execve": 59, "kill": 62, "socket": 41, "socketpair": 53,
               "ioctl": 16, "ptrace": 101, "mount": 165, "bpf": 321, "keyctl": 250, "perf_event_open": 298,
               "userfaultfd": 323, "process_vm_readv": 310, "process_vm_writev": 311, "unshare": 272},
    "aarch64": {"read": 63, "openat": 56, "clone": 220, "execve": 221, "kill": 129, "socket": 198, "socketpair": 199,
                "ioctl": 29, "ptrace": 117, "mount": 40, "bpf": 280, "keyctl": 219, "perf_event_open": 241,
                "userfaultfd": 282, "process_vm_readv": 270, "process_vm_writev": 271, "unshare": 97},
}  # fmt: skip
HARMLESS = ("read", "open", "openat", "clone", "execve", "kill")
GUARDED = ("socket", "socketpair", "ioctl")
IO_URING = (425, 426, 427)


def verdict(
    machine: str, number: int, *arguments: int, architecture: int | None = None, program: bytes = b""
) -> int:
    """What the kernel would do with a system call."""
    facts = struct.pack(
        "=IIQ6Q", number, architecture or ARCHITECTURES[machine], 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6]
    )
    lines = [*struct.iter_unpack("=HBBI", program or seccomp.program(machine))]
    place, loaded = 0, 0
    while True:
        code, if_true, if_false, value = lines[place]
        place += 1
        match code:
            case 0x20:
                loaded = struct.unpack_from("=I", facts, value)[0]
            case 0x15:
                place += if_true if loaded == value else if_false
            case 0x35:
                place += if_true if loaded >= value else if_false
            case 0x45:
                place += if_true if loaded & value else if_false
            case 0x54:
                loaded &= value
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("machine", CALLS)
def test_what_no_tool_needs_is_refused_and_all_else_is_allowed(machine: str) -> None:
    for name, number in CALLS[machine].items():
        if name not in GUARDED:
            assert verdict(machine, number) == (ALLOWED if name in HARMLESS else REFUSED), name
    assert {verdict(machine, number) for number in IO_URING} == {REFUSED}


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("machine", CALLS)
@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_only_local_and_internet_sockets_and_questions_about_routes_are_allowed(
    machine: str, call: str
) -> None:
    number = CALLS[machine][call]
    families = [family for family in range(64) if verdict(machine, number, family, 1, 0) == ALLOWED]
    assert families == [1, 2, 10, 16]
    netlink = [protocol for protocol in range(32) if verdict(machine, number, 16, 3, protocol) == ALLOWED]
    assert netlink == [0]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("machine", CALLS)
def test_nothing_is_put_into_the_input_of_a_terminal(machine: str) -> None:
    put, size = 0x5412, 0x5413
    assert verdict(machine, CALLS[machine]["ioctl"], 0, put) == REFUSED
    assert (
        verdict(machine, CALLS[machine]["ioctl"], 0, put | 1 << 40) == REFUSED
    )  # the kernel drops the upper half
    assert verdict(machine, CALLS[machine]["ioctl"], 0, size) == ALLOWED


@pytest.mark.requirement("L2")
def test_no_call_of_another_architecture_is_allowed() -> None:
    assert verdict("x86_64", 20, architecture=I386) == REFUSED
    assert verdict("x86_64", 0x40000000 + 39) == REFUSED  # x32 has the same architecture, and other numbers
    assert verdict("aarch64", 20, architecture=ARCHITECTURES["x86_64"]) == REFUSED
    assert not seccomp.is_known("sparc64")


MOUNTS = {  # pivot_root, mount, umount2, unshare, setns, chroot is not among them
    "x86_64": {155, 165, 166, 272, 308},
    "aarch64": {41, 40, 39, 97, 268},
}
MORE = {
    "x86_64": {101, 310, 311, 312, 248, 249, 250, 298, 321, 323, 175, 313, 176, 246, 320,
               303, 304, 163, 167, 168, 169, 179, 103, 300},
    "aarch64": {117, 270, 271, 272, 217, 218, 219, 241, 280, 282, 105, 273, 106, 104, 294,
                264, 265, 89, 224, 225, 142, 60, 116, 262},
}  # fmt: skip
"""Tracing, memory of others, keys, perf_event_open, bpf, userfaultfd, modules, kexec, handles, acct, swap, reboot and
quotas, the kernel's messages, and fanotify."""
SAME = {*IO_URING, 428, 429, 430, 431, 432, 433, 438, 440, 442, 443, 457, 458, 467, 470}
"""The same number everywhere: also those of new mounts, pidfd_getfd, process_madvise, quotactl_fd, listns."""


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("machine", CALLS)
def test_exactly_these_calls_are_refused_whatever_they_ask_for(machine: str) -> None:
    refused = {number for number in range(600) if verdict(machine, number) == REFUSED}
    assert refused - {CALLS[machine][name] for name in GUARDED} == MOUNTS[machine] | MORE[machine] | SAME


# --- without namespaces ------------------------------------------------------------------------

SHARED = {
    "x86_64": {"chroot": 161, "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240, "syslog": 103},
    "aarch64": {"chroot": 51, "shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180, "syslog": 116},
}
ATTRIBUTES = {"x86_64": (188, 189, 190, 197, 198, 199), "aarch64": (5, 6, 7, 14, 15, 16)}
SENDTO = {"x86_64": 44, "aarch64": 206}
CHOWN = {"x86_64": (94, ()), "aarch64": (54, (0,))}
"""The number of a call that gives a file away, and its arguments before the owner, without the path."""
OF_OTHERS = {"x86_64": {302: 0, 203: 0}, "aarch64": {261: 0, 122: 0}}
PRIORITIES = {"x86_64": {141: 0, 251: 1}, "aarch64": {140: 0, 30: 1}}
"""setpriority and ioprio_set, and what says that they are about a process."""
CONNECTING = {"x86_64": (42, (49, 50, 43, 288)), "aarch64": (203, (200, 201, 202, 242))}
"""The number of connect, and those of bind, listen, accept and accept4."""
ASKED = 0x7FC00000
CLONE3, NEW_USER, UNKNOWN, UNSUPPORTED, SKIPPED = 435, 0x10000011, 0x00050026, 0x0005005F, 0x00050000


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("machine", CALLS)
@pytest.mark.parametrize("has_network", [False, True])
def test_without_namespaces_all_of_that_is_refused_and_what_reaches_others(
    machine: str, has_network: bool
) -> None:
    program = seccomp.shared_program(machine, has_network=has_network)
    for name, number in (CALLS[machine] | SHARED[machine]).items():
        if name not in GUARDED:
            told = verdict(machine, number, program=program)
            assert told == (ALLOWED if name in HARMLESS else REFUSED), name
    assert verdict(machine, 0, architecture=I386, program=program) == REFUSED
    assert verdict(machine, CLONE3, program=program) == UNKNOWN
    assert verdict(machine, CALLS[machine]["clone"], NEW_USER, program=program) == REFUSED
    assert {verdict(machine, number, program=program) for number in ATTRIBUTES[machine]} == {UNSUPPORTED}
    for number, place in OF_OTHERS[machine].items():
        own, other = ([0] * place + [pid] for pid in (0, 4711))
        assert verdict(machine, number, *own, program=program) == ALLOWED
        assert verdict(machine, number, *other, program=program) == REFUSED
    for number, of_process in PRIORITIES[machine].items():
        allowed = [
            (which, who)
            for which in range(4)
            for who in (0, 4711)
            if verdict(machine, number, which, who, 5, program=program) == ALLOWED
        ]
        assert allowed == [(of_process, 0)], "all others reach processes outside"
    for flags, told in ((0, ALLOWED), (0x20000000, REFUSED), (0x20004000, REFUSED)):
        assert verdict(machine, SENDTO[machine], 3, 0, 1, flags, program=program) == told


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("machine", CALLS)
def test_without_namespaces_sockets_are_pairs_and_tcp_where_there_is_a_network(machine: str) -> None:
    closed, opened = (seccomp.shared_program(machine, has_network=each) for each in (False, True))
    call, pair = CALLS[machine]["socket"], CALLS[machine]["socketpair"]
    kinds = [(family, kind | flags, protocol)
             for family in range(48) for kind in range(1, 11) for flags in (0, 0o2004000)
             for protocol in (0, 6, 17, 132, 262)]  # fmt: skip
    assert not [each for each in kinds if verdict(machine, call, *each, program=closed) == ALLOWED]
    found = {each for each in kinds if verdict(machine, call, *each, program=opened) == ALLOWED}
    assert found == {
        (family, 1 | flags, protocol) for family in (2, 10) for flags in (0, 0o2004000) for protocol in (0, 6)
    }
    asked, refused = CONNECTING[machine]
    assert verdict(machine, asked, 3, 0, 16, program=opened) == ASKED
    assert {verdict(machine, each, 3, 0, 16, program=opened) for each in refused} == {REFUSED}
    pairs = {
        (family, kind & 15)
        for family, kind, _ in kinds
        if verdict(machine, pair, family, kind, 0, program=opened) == ALLOWED
    }
    assert pairs == {(1, 1), (1, 5)}


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("machine", CALLS)
def test_without_namespaces_no_file_is_given_away(machine: str) -> None:
    program = seccomp.shared_program(machine, has_network=False)
    number, before = CHOWN[machine]
    as_it_is, own = (0xFFFFFFFF, 0xFFFFFFFF), (os.geteuid(), os.getegid())
    for owner, told in (
        (own, SKIPPED),
        (as_it_is, SKIPPED),
        ((4711, own[1]), REFUSED),
        ((own[0], 4711), REFUSED),
    ):
        assert verdict(machine, number, *before, 0, *owner, program=program) == told
