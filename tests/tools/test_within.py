"""A result says which limit of its sandbox ended a command, whichever sandbox it was."""

from __future__ import annotations

import signal

import pytest

from holdfast.protocol.fence import Backend
from holdfast.sandbox.process import Ended
from holdfast.tools.within import cause


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
    assert said("unsafe", 1, full) == said("landlock", 0, full) == ""
