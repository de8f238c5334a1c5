"""Who holds a lease, and whether that process still lives. Reads /proc; elsewhere a dead holder is waited out."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import Fenced
from holdfast.protocol.ports import Clock
from holdfast.protocol.rows import Holder, Lease

LEASE_MS = 10_000
RENEW_MS = 3_000

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class Hold:
    """A lease while a task of this process has it: renewed in place, and over once a commit gave it back."""

    lease: Lease
    until_ms: int
    """By the clock's uptime, counted from before it was asked for: the store's own end is not earlier."""
    clock: Clock
    is_contested: bool = False
    """It was taken from a holder that may still be alive."""
    is_over: bool = False
    on_lost: Callable[[Exception], None] = lambda _: None
    """Is told by the heartbeat why the lease cannot be kept."""

    @property
    def is_lapsed(self) -> bool:
        """Whether another driver may have the session by now."""
        return self.clock.uptime_ms() >= self.until_ms

    def check(self) -> int:
        """As `ports.Check`."""
        if self.is_lapsed:
            raise Fenced("The lease lapsed before this could begin.")
        return self.until_ms


def this_process(doorbell: str = "") -> Holder:
    """The holder that a driver of this process is."""
    return Holder(
        host=socket.gethostname(),
        boot_id=_read(_BOOT_ID).strip(),
        pid_namespace=_pid_namespace(),
        pid=os.getpid(),
        started=_start_time(os.getpid()),
        nonce=secrets.token_hex(8),
        doorbell=doorbell,
    )


def is_dead(holder: Holder) -> bool:
    """Whether the holder's process is certainly gone: same host, boot and namespace, and no such process."""
    if _start_time(holder.pid) == holder.started:  # the one question that is asked again and again
        return False
    here = (socket.gethostname(), _read(_BOOT_ID).strip(), _pid_namespace())
    return here == (holder.host, holder.boot_id, holder.pid_namespace) and bool(holder.boot_id)


def is_free(lease: Lease | None) -> bool:
    """Whether nobody drives: no lease, a lapsed one, or one of a dead process."""
    return lease is None or not lease.left_ms or is_dead(lease.holder)


def _start_time(pid: int) -> str:
    """The start time of a process in clock ticks since boot; empty when there is none, or it is a zombie."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in ("Z", "X") else ""


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
