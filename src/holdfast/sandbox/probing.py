"""Finds out whether a sandbox keeps anything out: a program inside tries what its fence forbids.

A backend counts only if every attempt fails, and all that honest work needs succeeds. That it starts a program says
nothing: a `bwrap` that just runs its argument would do that, too. `probe_child` is the program.
"""

# A probe runs once, before anything else does.
# ruff: noqa: ASYNC240

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import secrets
import socket
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from holdfast import depths
from holdfast.protocol.fence import Fence, Launch, Sandbox
from holdfast.sandbox.probe_child import begun
from holdfast.sandbox.process import Ended, Processes
from holdfast.sandbox.work_folder import work_place

ENDED = "It was ended"
_CHILD = Path(__file__).with_name("probe_child.py")
_TIMEOUT_S = 10.0
_SHOWN_CHARS = 300
_ENOUGH_FILES = 256
_PREFIX = "holdfast-probe-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


async def attempt(sandbox: Sandbox, lets: Collection[str] = ()) -> str:
    """Return what is wrong with a sandbox, as a sentence; empty if it keeps its fences.

    Args:
        sandbox: The sandbox.
        lets: What it does not claim to stop, by the names of `probe_child`.
    """
    with (
        _own_folder() as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        outside, inside = Path(folder, "outside"), Path(folder, "inside")
        (inside / "kept").mkdir(parents=True)
        outside.mkdir()
        bait = secrets.token_hex()
        for path in (outside / "bait", inside / "masked", inside / "kept" / "protected"):
            path.write_text(bait)
        fence = Fence(
            writable=(str(inside),),
            readable=(*interpreter(), str(_CHILD)),
            masked=(str(inside / "masked"),),
            protected=(str(inside / "kept" / "protected"),),
        )
        abstract.bind(f"\0{bait}")
        abstract.listen()
        facts = {
            "bait": bait,
            "outside": str(outside),
            "port": server.getsockname()[1],
            "pid": os.getpid(),
            "begun": begun(os.getpid()),
            "lets": [*lets],
        }
        fault = _fault(await _ended(sandbox, fence, facts, f"{folder}/own"), bait)
        strange = [path.name for path in outside.iterdir() if path.name != "bait"]
        if fault and (most := resource.getrlimit(resource.RLIMIT_NOFILE)[1]) < _ENOUGH_FILES:
            return f"{fault} The limit of open files (`ulimit -n {most}`) may be why."
        return fault or (f"It let a program write outside: {', '.join(strange)}." if strange else "")


@contextlib.contextmanager
def _own_folder() -> Iterator[str]:
    """Yield a new folder, and remove those of probes that somebody killed. A probe that lives has locked its own."""
    place = work_place()
    _remove_left(place)
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        lock = os.open(folder, _FOLDER)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if Path(folder).is_dir():  # another probe may have found it before it had its lock
            break
        os.close(lock)
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            depths.remove(folder)
        os.close(lock)


def _remove_left(place: str) -> None:
    with os.scandir(place) as entries:
        left = [entry.path for entry in entries if entry.name.startswith(_PREFIX)]
    for path in left:
        with contextlib.suppress(OSError):
            folder = os.open(path, _FOLDER)
            try:
                if os.fstat(folder).st_uid == os.getuid():
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    depths.remove(path)
            finally:
                os.close(folder)


def interpreter() -> tuple[str, ...]:
    """Return the folders that this Python needs."""
    return tuple({os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)})


async def _ended(sandbox: Sandbox, fence: Fence, facts: dict[str, object], own: str) -> Ended | OSError:
    argv = (os.path.realpath(sys.executable), "-I", "-S", str(_CHILD), json.dumps(facts))
    key = f"probe-{os.getpid()}"
    launch = Launch(
        argv,
        fence.writable[0],
        key,
        {},
        _TIMEOUT_S,
        _TIMEOUT_S,
        check=lambda: sys.maxsize,
        fence=fence,
        own_folder=own,  # nobody else would find that of a killed probe
    )
    processes = Processes(sandbox)
    try:
        return await processes.run(launch, lambda _: None)
    except OSError as error:
        return error
    finally:
        await processes.aclose()


def _fault(ended: Ended | OSError, bait: str) -> str:
    if isinstance(ended, OSError):
        return f"It could not be started: {ended.strerror or ended}."
    with contextlib.suppress(ValueError, LookupError, TypeError):
        said = json.loads(ended.output)
        # It repeats a word that nobody else knows: so the program ran, and to its end.
        if said["bait"] == bait and not ended.exit_code:
            done, failed = map(", ".join, (said["done"], said["failed"]))
            if done:
                return f"It let a program do what its fence forbids: {done}."
            return f"It kept a program from its own work: {failed}." if failed else ""
    if ended.how in ("timeout", "idle"):
        return f"It did not answer within {_TIMEOUT_S:g} s, and was ended."
    if ended.exit_code < 0:
        return f"{ENDED} by signal {-ended.exit_code}."
    if not ended.exit_code and not ended.output.strip():
        return "It ended without an error, and did not run a program."
    said = ended.output.split("\n")
    why = next((line for each in reversed(said) if (line := " ".join(each.split()))), "")
    why = why[-_SHOWN_CHARS:].rstrip(".") or f"exit code {ended.exit_code}"
    return f"It could not run a program: {why}."
