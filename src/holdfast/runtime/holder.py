"""The holder of a lease, and whether its process lives. Reads /proc; elsewhere it waits until the lease lapses."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import Lapsed
from holdfast.protocol.ports import Clock, Journals
from holdfast.protocol.rows import Commit, Holder, InboxEntry, Lease

LEASE_MS = 10_000
RENEW_MS = 3_000

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class LiveLease:
    """A lease while a task of this process has it. It is renewed in place, and ends when a commit gives it back."""

    row: Lease
    until_ms: int
    """The end of the lease by the clock's uptime, counted from before the request. The store's end is not earlier."""
    clock: Clock
    is_contested: bool = False
    """Whether the lease was taken from a holder that may still be alive."""
    is_over: bool = False
    on_lost: Callable[[Exception], None] = lambda _: None
    """The heartbeat calls this with the reason why the lease cannot be kept."""
    first: InboxEntry | None = None
    """The first command of a new session. Nothing of session, command and lease is stored before the first commit."""
    on_begun: Callable[[str], object] = lambda _: None
    """Is called with the id of the new session after that commit."""

    async def commit(self, store: Journals, commit: Commit) -> None:
        """Commit under this lease. The first commit of a new session makes it."""
        if self.first is None:
            self.is_over = await store.commit(commit)
            return
        self.is_over = await store.begin(commit, self.row.holder, LEASE_MS)
        self.first = None
        self.on_begun(self.row.session)

    @property
    def is_lapsed(self) -> bool:
        """Return whether another driver may have the session by now."""
        return self.clock.uptime_ms() >= self.until_ms

    def has_rival(self, last_epoch: int) -> bool:
        """Return whether an earlier driver may still be alive. `last_epoch`: of the journal's last record.

        The lease was taken from that driver, or from a process that took it and died before it recorded anything.
        """
        return self.is_contested or last_epoch < self.row.epoch - 1

    def check(self) -> int:
        """See `ports.Check`."""
        if self.is_lapsed:
            raise Lapsed
        return self.until_ms


def this_process(doorbell: str = "") -> Holder:
    """Return the holder for a driver of this process."""
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
    """Return whether the holder's process is certainly gone: same host, boot and namespace, and no such process."""
    if _start_time(holder.pid) == holder.started:  # the one question that is asked again and again
        return False
    here = (socket.gethostname(), _read(_BOOT_ID).strip(), _pid_namespace())
    return here == (holder.host, holder.boot_id, holder.pid_namespace) and bool(holder.boot_id)


def is_free(lease: Lease | None) -> bool:
    """Return whether nobody drives: no lease, a lapsed one, or one of a dead process."""
    return lease is None or not lease.left_ms or is_dead(lease.holder)


def _start_time(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; empty if it does not exist or is a zombie."""
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
