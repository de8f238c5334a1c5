"""Finds and ends the process trees of calls from outside, also of calls that another driver began.

The next driver of a session knows only the keys of its calls. Each process of a call has the key in its environment,
and its guard (see `guard`) has it in its name. Under landlock, each also has a tag that it cannot shed. Without
/proc, nothing is found.
"""

# The keeper reads what the kernel says in the same way.
# ruff: noqa: PTH123

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from hashlib import sha256
from typing import NamedTuple

from holdfast.sandbox.living import kill, living, send, with_descendants

VARIABLE = "HOLDFAST_CALL"
"""The environment variable that names the call of a process."""
_END_S = 0.9
_POLL_S = 0.01
_LOOKS = 4
"""How often no process must be found, while one could not be identified."""


def end_trees(keys: Collection[str]) -> bool:
    """End every process of these calls. Return when they are gone, or after about a second: whether they are."""
    until = time.monotonic() + _END_S
    while _lives(keys):
        # Repeat, because something may have escaped. Guards come last: while a guard lives, no orphan escapes.
        if not kill(lambda: _look(keys).members):
            send(_look(keys).guards, signal.SIGKILL)
        # Not before the first kill: on a busy machine a look alone may take longer than that.
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_S)
    return True


def members(keys: Collection[str]) -> set[int]:
    """Return the pids of all living processes of the calls, without their guards and this process."""
    return set(_look(keys).members)


def guard_name(key: str) -> str:
    """Return the name of a call's guard, as `ps -o comm` shows it."""
    return f"hf-{tag(key):012x}"


def tag(key: str) -> int:
    """Return the number by which the processes of a call are known that have no variables left (`landlock`)."""
    return int(sha256(key.encode(errors="replace")).hexdigest()[:12], 16)


class _Seen(NamedTuple):
    """The result of a look at all processes."""

    members: list[int]
    """Each after its parent."""
    guards: set[int]
    is_unsure: bool
    """Some process could not be identified: one that is just starting another program has no environment."""


def _look(keys: Collection[str]) -> _Seen:
    needles = {f"{VARIABLE}={key}".encode() for key in keys}
    names, tags = {guard_name(key).encode() for key in keys}, {b"%d" % tag(key) for key in keys}
    stats = dict(living())
    stats.pop(os.getpid(), None)
    found: set[int] = set()
    guards: set[int] = set()
    is_unsure = False
    for pid, stat in stats.items():
        if stat.name in names:
            guards.add(pid)
        elif not stat.is_kernel:
            environment = _environment(pid)
            is_unsure = is_unsure or environment == {b""}
            if not needles.isdisjoint(environment) or _tag_of(pid) in tags:
                found.add(pid)
    members = [pid for pid in with_descendants(stats, found | guards) if pid not in guards]
    return _Seen(members, guards, is_unsure)


def _lives(keys: Collection[str]) -> bool:
    for _ in range(_LOOKS):
        seen = _look(keys)
        if seen.members or seen.guards:
            return True
        if not seen.is_unsure:
            return False
        time.sleep(_POLL_S)
    return False


def _tag_of(pid: int) -> bytes:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/limits", "rb") as file:
        return file.read().partition(b"Max file locks")[2].split(None, 1)[0]
    return b""


def _environment(pid: int) -> set[bytes]:
    """Return its variables as NAME=VALUE; nothing if it is gone or another user's."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return set(file.read().split(b"\0"))
    return set()
