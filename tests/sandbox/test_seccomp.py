"""The filter of system calls, run by an interpreter of its instructions: for both machines, on any machine."""

from __future__ import annotations

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


def verdict(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the kernel would do with a system call."""
    facts = struct.pack(
        "=IIQ6Q", number, architecture or ARCHITECTURES[machine], 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6]
    )
    lines = [*struct.iter_unpack("=HBBI", seccomp.program(machine))]
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
