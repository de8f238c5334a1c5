"""A result says which limit of its sandbox ended a command, whichever sandbox it was."""

from __future__ import annotations

import signal

import pytest

from holdfast.protocol.fence import Backend
from holdfast.sandbox.process import Ended
from holdfast.tools.within import cause, refused


def said(backend: Backend, code: int, output: str = "") -> str:
    return cause(Ended("exited", code, output, len(output)), backend)


@pytest.mark.requirement("L11")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
@pytest.mark.parametrize(
    ("code", "output", "limit"),
    [
        (128 + signal.SIGXCPU, "", "[sandbox] cpu"),
        (-signal.SIGXCPU, "", "[sandbox] cpu"),
        (-signal.SIGXFSZ, "", "[sandbox] file_size"),
        (1, "OSError: [Errno 27] File too large", "[sandbox] file_size"),
        (1, "RuntimeError: can't start new thread", "[sandbox] processes"),
        (254, "bash: fork: retry: Resource temporarily unavailable", "[sandbox] processes"),
        (3, "bash: line 1:     4 CPU time limit exceeded bash -c x\nafter", "[sandbox] cpu"),
        (2, "make: *** [Makefile:2: all] File size limit exceeded", "[sandbox] file_size"),
        (1, "MemoryError", "[sandbox] memory"),
        (1, "Too many open files", "4,096 open files"),
    ],
)
def test_each_limit_is_named(backend: Backend, code: int, output: str, limit: str) -> None:
    assert limit in said(backend, code, output)


@pytest.mark.requirement("L11")
def test_what_a_sandbox_does_not_have_is_not_said() -> None:
    full = "write error: No space left on device"
    assert "1 GiB" in said("bubblewrap", 1, full)
    assert "1 GiB" not in said("landlock", 1, full)
    assert "$TMPDIR" in said("landlock", 1, full)
    assert "/dev/shm" in said("bubblewrap", 128 + signal.SIGBUS)
    assert said("landlock", 128 + signal.SIGBUS) == ""
    assert "[sandbox] write" in said("landlock", 1, "/tmp/x: Permission denied")
    assert "[sandbox] write" in said("landlock", 128, "fatal: not a git repository (or any of its parents)")
    busy = "mv: cannot move 'a' to 'b': Device or resource busy"
    assert "what controls other programs" in said("bubblewrap", 1, busy)
    assert said("landlock", 1, busy) == said("unsafe", 1, busy) == ""
    assert said("unsafe", 1, full) == said("landlock", 0, full) == ""


@pytest.mark.requirement("L11")
@pytest.mark.parametrize(
    ("output", "limit"),
    [
        (
            "/usr/bin/bash: line 1:     4 CPU time limit exceeded bash -c 'while :; do :; done'\nafter",
            "[sandbox] cpu",
        ),
        ("x: line 20: 77 File size limit exceeded(core dumped) dd of=big", "[sandbox] file_size"),
        ("bash: fork: retry: Resource temporarily unavailable\nok", "[sandbox] processes"),
        ("docs.md: File size limit exceeded", ""),
        ("all is well", ""),
    ],
)
def test_a_limit_that_one_of_several_programs_reached_is_named_also_if_the_command_succeeded(
    output: str, limit: str
) -> None:
    ended = Ended("exited", 0, output, len(output))
    assert (limit in refused(ended, "landlock"), bool(refused(ended, "landlock"))) == (True, bool(limit))
    assert refused(ended, "unsafe") == ""
