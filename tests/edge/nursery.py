"""Starts the command many times at the price of one: a process that has loaded it forks itself.

    python -m tests.edge.nursery FD     FD: a socket from the process that asks for others

What is started is a process of its own like any other, that can be killed, stopped and looked at. Only what comes
before its first line was done once for all: the loading of Python's modules, and what they keep of a first run
somewhere else. Who wants that too starts it anew.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from unittest.mock import patch

import holdfast
from holdfast.redact.likely import GATE

REPOSITORY = Path(__file__).resolve().parent.parent.parent
CUSTOMIZED = Path(__file__).with_name("customized")
"""With this folder on its path, a command is killed at a named moment, and waits only shortly between attempts."""
_MOST_CHARS = 10_000
"""The longest command, which is sent as one packet."""
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "TZ", "VIRTUAL_ENV")
_LATE = (
    "aiohttp", "encodings.utf_8_sig", "genai_prices.data", "jsonschema_rs", "prompt_toolkit.input.vt100",
    "prompt_toolkit.key_binding.bindings.search", "tree_sitter_bash",
)  # fmt: skip
"""Modules that commands load when they need them."""
_WARMING = (
    "run Hello --model script:script.jsonl", "show last", "show last --events --json", "sessions", "approvals",
    "fsck", "undo last", "rewind last --to 1", "resume last", "fork last", "accept last", "approve last",
    "replay last", "chat --help",
)  # fmt: skip
"""What a nursery does once for all the processes that it forks. Some of it is refused, which is enough."""
_READ_LATE = ("PYTHONPATH", "PYTHON_KEYRING_BACKEND")
"""Variables that also count for a process which has loaded its modules."""
_ONLY_OF_POPEN = frozenset(
    {"preexec_fn", "umask", "pass_fds", "start_new_session", "process_group", "user", "group"}
)
"""Options that a fork of a nursery does not obey."""


def start(
    words: Sequence[str], *, code: str = "", is_loaded_anew: bool = False, **options: Any
) -> subprocess.Popen[Any]:
    """Start `holdfast` with these words, and the options of `Popen`.

    `code`: a program that is run instead, with these words as its arguments.
    `is_loaded_anew`: it loads its modules itself. It does so too where its environment changes how they are loaded.
    """
    is_large = len(code) + sum(map(len, words)) > _MOST_CHARS
    is_special = not _ONLY_OF_POPEN.isdisjoint(options) or _changes_loading(options["env"])
    if is_loaded_anew or is_large or is_special:
        is_at_terminal = options.pop("is_at_terminal", False)
        return subprocess.Popen(
            [sys.executable, *(("-c", code) if code else ("-m", "holdfast")), *words],
            **({"preexec_fn": lambda: os.login_tty(0)} if is_at_terminal else {}),
            **options,
        )
    return Child(words, code=code, **options)


def run(words: Sequence[str], *, timeout: float, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run it to its end, as `subprocess.run` does, with the texts that it writes. `input`: what it reads; nothing."""
    given = options.pop("input", None)
    options.setdefault("stdin", subprocess.DEVNULL if given is None else subprocess.PIPE)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(words, **pipes, **options) as process:
        try:
            out, err = process.communicate(given, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(list(words), process.returncode, out, err)


def run_in_shell(line: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a line of bash to its end, in which `holdfast` is the command, with the texts that it writes."""
    door = _door().fileno()
    asking = shlex.join([sys.executable, "-I", "-S", str(Path(__file__).with_name("asking.py"))])
    options["env"] = {**options["env"], "NURSERY": str(door)}
    command = ["bash", "-c", f'holdfast() {{ {asking} "$@"; }}; set -o pipefail; {line}']
    return subprocess.run(
        command,
        pass_fds=[door],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def _changes_loading(environ: Mapping[str, str]) -> bool:
    """Whether what Python or the customization does while modules are loaded is seen in the environment."""
    folder = environ.get("PYTHONPATH", str(CUSTOMIZED))
    return (
        any(name.startswith(("PYTHON", "LC_")) and name not in _READ_LATE for name in environ)
        or (folder != str(CUSTOMIZED) and Path(folder, "sitecustomize.py").exists())
        or "SEEN" in environ
        or environ.get("MOMENT", "").startswith(".")
        or any(environ.get(name) != os.environ.get(name) for name in ("LANG", "TZ") if name in environ)
    )


class Child(subprocess.Popen[Any]):
    """A process that a nursery forked. It tells the end of the process, whose parent it is."""

    def __init__(
        self, words: Sequence[str], *, code: str = "", is_at_terminal: bool = False, **options: Any
    ) -> None:
        self._code, self._is_at_terminal = code, is_at_terminal
        self._reading = threading.Lock()
        super().__init__(list(words), **options)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        _, _, _, _, cwd, env, *_, child_in, our_in, our_out, child_out, our_err, child_err = rest[:15]
        request = {
            "words": args, "code": self._code, "cwd": os.fspath(cwd), "environ": dict(env), "streams": [0, 1, 2],
            "is_at_terminal": self._is_at_terminal,
        }  # fmt: skip
        ours, theirs = socket.socketpair()
        fds = [given if given >= 0 else own for own, given in enumerate((child_in, child_out, child_err))]
        with theirs:
            socket.send_fds(_door(), [json.dumps(request).encode()], [*fds, theirs.fileno()])
        self._told = ours.makefile("r")
        ours.close()
        self.pid = int(self._told.readline())
        self._child_created = True
        self._close_pipe_fds(child_in, our_in, our_out, child_out, our_err, child_err)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self._reading.acquire(blocking=False):  # else another thread waits, and knows first
            try:
                self._hear(0)
            finally:
                self._reading.release()
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        with self._reading:
            self._hear(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return cast(int, self.returncode)

    def _hear(self, timeout: float | None) -> None:
        if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
            self.returncode = int(self._told.readline())
            self._told.close()


@cache
def _door() -> socket.socket:
    """The socket of a nursery; it goes when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.edge.nursery", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        cwd=REPOSITORY,
        env={**environ, "PYTHONPATH": str(CUSTOMIZED)},
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for who asks
    )
    theirs.close()
    atexit.register(_close, ours, process)
    return ours


def _close(door: socket.socket, process: subprocess.Popen[bytes]) -> None:
    door.close()
    process.wait()


# --- the process that forks ---------------------------------------------------------------------


def main() -> None:
    """Fork every process that the tests ask for, and report how each ended, until the tests are over."""
    for name in (*_LATE, *modules()):
        import_module(name)
    door = socket.socket(fileno=int(sys.argv[1]))
    warm_up()
    gc.collect()
    gc.freeze()
    waking, woken = os.pipe()
    os.set_blocking(waking, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    tellers: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([door, waking], [], [])
        if waking in ready:
            with suppress(BlockingIOError):
                os.read(waking, 4096)
            while tellers and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with tellers.pop(ended[0]) as teller, suppress(OSError):
                    teller.sendall(b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
        if door in ready:
            body, fds, _, _ = socket.recv_fds(door, 1 << 20, 4)
            if not body:
                return
            teller = socket.socket(fileno=fds.pop())
            pid = os.fork()
            if not pid:
                become(json.loads(body), fds)
                return
            tellers[pid] = teller
            teller.sendall(b"%d\n" % pid)
            for fd in fds:
                os.close(fd)


def warm_up() -> None:
    """Run the commands that tests start most, in a home of their own: what is compiled, built or looked up when it is
    used for the first time is then there. It halves the work of each command."""
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    streams = [os.dup(1), os.dup(2)]
    with TemporaryDirectory() as place, chdir(place), patch.dict(os.environ, HOLDFAST_HOME=f"{place}/home"):
        os.environ["HOLDFAST_ADMIN_CONFIG"] = f"{place}/admin.toml"
        Path("script.jsonl").write_text('{"text": "Hello."}\n')
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for own in (1, 2):
            os.dup2(nowhere, own)
        while not GATE.is_made:  # a process makes it only after some texts
            GATE.is_open("0123456789")
        for line in _WARMING:
            sys.argv = ["holdfast", *line.split()]
            with suppress(SystemExit):
                runpy.run_module("holdfast", run_name="__main__", alter_sys=False)
    for own, stream in enumerate(streams, 1):
        os.dup2(stream, own)
        os.close(stream)
    os.close(nowhere)
    for number, handler in handlers.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)
    assert threading.active_count() == 1, "what has other threads cannot be forked"


def modules() -> Iterator[str]:
    """All modules of Holdfast but those that are run as programs, and what is for tests."""
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not found.name.endswith(("__main__", "_child")) and not found.name.startswith("holdfast.testing"):
            yield found.name


def become(request: dict[str, Any], fds: Sequence[int]) -> None:
    """Go on as the command."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for own, fd in zip(request["streams"], fds, strict=True):
        os.dup2(fd, own)
    if request.get("is_at_terminal"):
        os.login_tty(0)
    sys.stdin, sys.stdout, sys.stderr = (
        open(own, mode, buffering, closefd=False) if own in request["streams"] else os.close(own)  # noqa: SIM115
        for own, (mode, buffering) in enumerate((("r", -1), ("w", -1), ("w", 1)))
    )
    os.closerange(3, 512)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    code = request.get("code", "")
    sys.argv = ["-c" if code else "holdfast", *request["words"]]
    folder = os.environ.get("PYTHONPATH", "")
    if folder == str(CUSTOMIZED):
        runpy.run_path(str(CUSTOMIZED / "sitecustomize.py"))
    elif folder:
        sys.path.insert(1, folder)
    try:
        if code:
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_module("holdfast", run_name="__main__", alter_sys=False)
    except SystemExit as end:
        _exit(end.code)
    _exit(0)


def _exit(code: object) -> None:
    """End as Python does, but leave the memory as it is. To take every module apart would copy each shared page: six
    times the work of `holdfast --help`.

    What ends otherwise than by a number, or cannot write its last words, ends in Python's own way.
    """
    if not isinstance(code, int | None):
        raise SystemExit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        raise SystemExit(code) from None
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    main()
