"""A result says which limit of its sandbox ended a command, whichever sandbox it was."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from holdfast.protocol.fence import Backend, Fence, Launch
from holdfast.protocol.ports import CallContext
from holdfast.protocol.settings import Policy
from holdfast.protocol.traffic import Exchange, Requests
from holdfast.sandbox.process import Ended
from holdfast.tools.unreached import cut_off, note
from holdfast.tools.within import cause, refused

FENCE = Fence(("/w",), cpu_s=10)
PROXIED = Fence(("/w",), hosts=("a.example",))


def said(backend: Backend, code: int, output: str = "", cpu_s: float = 0.0) -> str:
    return cause(Ended("exited", code, output, len(output), cpu_s=cpu_s), FENCE, backend)


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
        (1, "tail: memory exhausted", "[sandbox] memory"),
        (101, "memory allocation of 3221225472 bytes failed", "[sandbox] memory"),
        (1, "CalledProcessError: Command 'x' died with <Signals.SIGXCPU: 24>.", "[sandbox] cpu"),
        (125, "xargs: dd: terminated by signal 25", "[sandbox] file_size"),
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
    assert said("unsafe", 128 + signal.SIGBUS) == ""
    assert "[sandbox] write" in said("landlock", 1, "/tmp/x: Permission denied")
    assert "[sandbox] write" in said("landlock", 128, "fatal: not a git repository (or any of its parents)")
    lock = "self._semlock = _multiprocessing.SemLock(\nPermissionError: [Errno 13] Permission denied"
    assert '[sandbox] write = ["/dev/shm"]' in said("landlock", 1, lock)
    assert said("bubblewrap", 1, lock) == ""
    for kernel in (
        "cat: /proc/self/environ: Permission denied",
        "PermissionError: [Errno 13] Permission denied: '/sys/power/state'",
        "ls: cannot open directory '/dev/pts': Permission denied",
    ):
        assert said("landlock", 1, kernel).endswith("No setting opens it")
    assert "[sandbox] read" in said("landlock", 1, "/srv/proc/x: Permission denied\nsee /proc/x")
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
        (
            "x: line 1: 3 Broken pipe  head big\n      4 File size limit exceeded| cat > b",
            "[sandbox] file_size",
        ),
        ("CPU time limit exceeded\nafter", "[sandbox] cpu"),
        ("make: *** [Makefile:2: all] CPU time limit exceeded\nafter", "[sandbox] cpu"),
        ("Traceback:\nMemoryError\nafter", "[sandbox] memory"),
        ("tail: memory exhausted\nafter", "[sandbox] memory"),
        ("OSError: [Errno 24] Too many open files: 'x'\nafter", "4,096 open files"),
        ("OSError: [Errno 27] File too large\nafter", "[sandbox] file_size"),
        ("RuntimeError: can't start new thread\nafter", "[sandbox] processes"),
        ("docs.md: File size limit exceeded", ""),
        ("test_x.py::test_a FAILED - MemoryError", ""),
        ("all is well", ""),
    ],
)
def test_a_limit_that_one_of_several_programs_reached_is_named_also_if_the_command_succeeded(
    output: str, limit: str
) -> None:
    ended = Ended("exited", 0, output, len(output))
    found = refused(ended, FENCE, "landlock")
    assert (limit in found, bool(found)) == (True, bool(limit))
    assert refused(ended, FENCE, "unsafe") == ""


@pytest.mark.requirement("L11")
def test_what_only_the_processor_time_shows_is_said() -> None:
    """A pipeline hides a program that a signal ended, and one that ignores the warning is killed without a name."""
    assert "[sandbox] cpu" in said("bubblewrap", 128 + signal.SIGKILL, cpu_s=11.0)
    assert "[sandbox] cpu" in said("landlock", -signal.SIGKILL, "sh: Permission denied", cpu_s=11.0)
    assert said("bubblewrap", 128 + signal.SIGKILL, cpu_s=1.0) == ""
    ended = Ended("exited", 0, "after", 5, cpu_s=9.0)
    assert refused(ended, FENCE, "bubblewrap").startswith("a program in it may have reached a limit: ")
    assert refused(ended, None, "bubblewrap") == ""
    assert refused(ended, FENCE, "unsafe") == ""


BARRED = [
    "urllib.error.URLError: <urlopen error [Errno 1] Operation not permitted>",
    "    sock.connect(sa)\n    ^^^^^^^^^^^^^^^^\nPermissionError: [Errno 1] Operation not permitted",
    "Error: connect EPERM 10.0.0.1:80 - Local (undefined:undefined)",
    "dial tcp 10.0.0.1:80: connect: operation not permitted",
    "bash: connect: Operation not permitted",
    "URLError(OSError(38, 'Function not implemented'))\n<urlopen error [Errno 38] Function not implemented>",
    "ssh: connect to host 10.0.0.1 port 22: Operation not permitted",
]
"""What programs say where Landlock has no network for them."""


@pytest.mark.requirement("L11")
@pytest.mark.parametrize("output", BARRED)
def test_a_refused_connection_is_a_matter_of_the_network_and_of_no_folder(output: str) -> None:
    ended = Ended("exited", 1, output, len(output))
    assert said("landlock", 1, output) == ""
    assert "commands have no network here" in cut_off(ended, FENCE, Policy())
    assert "untrusted text" in cut_off(ended, FENCE, Policy(allowed_hosts=("a.example",)))
    unasked = Policy(allowed_hosts=("a.example",), sandboxed="allow")
    assert "nobody approved it" in cut_off(ended, FENCE, unasked)
    assert cut_off(ended, PROXIED, Policy()).startswith(
        "commands reach the hosts of [network] allow only through"
    )
    assert cut_off(ended, None, Policy()) == ""


@pytest.mark.requirement("L11")
def test_without_a_network_a_server_that_does_not_answer_may_be_outside() -> None:
    for output in ("[Errno 111] Connection refused", "curl: (7) Couldn't connect to server"):
        found = cut_off(Ended("exited", 1, output, len(output)), FENCE, Policy())
        assert found.startswith("commands have no network here")
        assert found.endswith("only a server answers that the command starts itself")
        past = cut_off(Ended("exited", 1, output, len(output)), PROXIED, Policy())
        assert past.endswith(
            "reaches nothing; beside it, only a server answers that the command starts itself"
        )
    for output in ("chown: x: Operation not permitted", "all is well", "tests of connect\n" * 9 + "x" * 300):
        assert cut_off(Ended("exited", 1, output, len(output)), FENCE, Policy()) == ""
    assert "[sandbox] write" in said("landlock", 1, "chown: x: Operation not permitted")


OF_PROGRAMS = [
    "npm error code EAI_AGAIN\nnpm error network request to https://registry.npmjs.org/x failed",
    "npm error request to https://r.example/x failed, reason: getaddrinfo EAI_AGAIN r.example",
    " WARN  GET https://r.example/x error (EAI_AGAIN). Will retry in 10 seconds.",
    "fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com",
    "wget: unable to resolve host address 'a.example'",
    "W: Failed to fetch http://a.example/x  Temporary failure resolving 'a.example'",
    "Err:1 http://a.example x InRelease\n  Temporary failure resolving 'a.example'",
    "curl: (7) Failed to connect to 127.0.0.1 port 19080 after 0 ms: Couldn't connect to server\n0 data.json",
    "ssh: Could not resolve hostname github.com: Temporary failure in name resolution\nok",
    "ssh: connect to host 10.0.0.1 port 22: Network is unreachable",
    "Traceback:\nConnectionRefusedError: [Errno 111] Connection refused\nskipped",
    "socket.gaierror: [Errno -3] Temporary failure in name resolution\nskipped",
    "WARNING: Retrying (Retry(total=4)) after 'E(\"[Errno -3] Temporary failure in name resolution\")': /simple/x/",
    "TypeError: fetch failed {\n  [cause]: Error: connect ECONNREFUSED 127.0.0.1:5432\n    code: 'ECONNREFUSED',",
    "  Caused by: failed to lookup address information: Temporary failure in name resolution",
    'psql: error: connection to server at "127.0.0.1", port 5432 failed: Connection refused',
    "ERROR 2003 (HY000): Can't connect to MySQL server on '127.0.0.1:3306' (111)",
]
"""What programs without a network say, in a command that goes on and succeeds."""
OF_OTHERS = [
    "src/net.py:12:    raise Failed('could not resolve host')",
    "net.py:    # connection refused",
    "2026-11-24 10:00:00 ERROR db: connection refused",
    "tests/test_net.py::test_connection_refused PASSED",
    "    \u2713 retries after ECONNREFUSED (12 ms)",
    "a1b2c3d Retry if a connection was refused (ENOTFOUND, too)",
    "note: see the docs of ECONNREFUSED",
    '{"message": "connection refused"}',
    "all is well",
]
"""What searches, logs and tests say of the network."""


@pytest.mark.requirement("L11")
@pytest.mark.parametrize("output", OF_PROGRAMS)
def test_the_network_is_named_also_if_the_command_succeeded(output: str) -> None:
    for code in (0, 1):
        ended = Ended("exited", code, f"before\n{output}\nafter\n", len(output))
        assert "[network] allow" in cut_off(ended, FENCE, Policy())
        assert "the HTTP proxy that HTTPS_PROXY names" in cut_off(ended, PROXIED, Policy())


@pytest.mark.requirement("L11")
@pytest.mark.parametrize("output", OF_OTHERS)
def test_a_text_about_the_network_is_no_sign_of_it_in_a_command_that_succeeded(output: str) -> None:
    ended = Ended("exited", 0, f"before\n{output}\nafter\n", len(output))
    assert cut_off(ended, FENCE, Policy()) == cut_off(ended, PROXIED, Policy()) == ""


@pytest.mark.requirement("L11")
def test_what_a_person_can_allow_is_said_to_be_for_programs_that_use_a_proxy() -> None:
    ended = Ended("exited", 255, "ssh: Could not resolve hostname github.com", 9)
    listed = ("github.com",)
    for policy in (Policy(), Policy(allowed_hosts=listed), Policy(allowed_hosts=listed, sandboxed="allow")):
        assert "HTTP proxy" in cut_off(ended, FENCE, policy)


@pytest.mark.requirement("L11")
def test_what_the_proxy_said_of_the_whole_call_is_not_said_twice(tmp_path: Path) -> None:
    def told(exchange: Exchange) -> str:
        output = "curl: (6) Could not resolve host: a.example"
        ended = Ended("exited", 6, output, len(output), requests=Requests((exchange,)))
        return note(ended, launch, context)

    context = CallContext("s", "c", "k", str(tmp_path), 9.0, 9.0, print, lambda: 9**12)
    launch = Launch(("x",), str(tmp_path), "k", {}, 9.0, 9.0, lambda: 9**12, fence=PROXIED)
    assert told(Exchange("", "", "failed", "This call had no network.")) == (
        "\n[failed in the proxy: a request: This call had no network.]"
    )
    assert len(told(Exchange("GET", "http://b.example/", "refused", "It is not listed.")).splitlines()) == 3


def test_to_look_for_a_refused_connection_takes_no_time_that_grows_with_the_square_of_a_text() -> None:
    assert cut_off(Ended("exited", 1, "connect " * 2_500, 20_000), FENCE, Policy()) == ""
    assert cut_off(Ended("exited", 1, "connect\n" * 2_500, 20_000), FENCE, Policy()) == ""
    for text in ("a: " * 7_000, "a: b\n" * 4_000, "npm error" * 2_500, "a" * 20_000, " " * 20_000):
        assert cut_off(Ended("exited", 0, text, 20_000), FENCE, Policy()) == ""
