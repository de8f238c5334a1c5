"""What to run, and what it may do: the border between tools and a sandbox, and the data that cross it.

How a sandbox keeps a process inside its fence does not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

from holdfast.protocol.traffic import Exchange, StandIn

Backend = Literal["bubblewrap", "landlock", "unsafe"]
Mode = Literal["auto", "bubblewrap", "landlock", "unsafe"]
"""The sandbox that the configuration asks for. `auto` is the strictest one that works."""
Network = Literal["none", "proxy", "all"]
"""What a program has of the network. Without a fence, all of it."""

MEMORY_BYTES = 2 << 30
"""The limit of memory by default."""
FILE_BYTES = 2 << 30
"""The limit of a file by default."""
PROCESSES = 256
"""The limit of processes by default."""
CPU_S = 3_600
"""The limit of processor time by default."""
NO_INPUT = -3
"""As `stdin_fd`: nothing to read. The same number as in `subprocess`."""
WITH_OUTPUT = -2
"""As `stderr_fd`: where stdout goes. The same number as in `subprocess`."""
KEPT_BYTES = 2 << 20
"""How much of the beginning and of the end of an output stays in memory by default. The middle is only counted."""
FLOOD_BYTES = 64 << 20
"""After this much output a tree is ended: nobody will read it, and it uses the processor."""


class Fence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process may do beside reading the system's folders.

    Paths are absolute, with every link followed. What is not named does not exist inside.
    """

    writable: tuple[str, ...]
    """Folders and files."""
    readable: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    """Empty folders of its own, which end with it, beside one for temporary files."""
    masked: tuple[str, ...] = ()
    """Files and folders within these that cannot be read."""
    protected: tuple[str, ...] = ()
    """Files and folders within these that cannot be changed, renamed or replaced."""
    memory_bytes: int = MEMORY_BYTES
    """The data of each process. All together may have a few times as much."""
    file_bytes: int = FILE_BYTES
    """The longest file that it may write."""
    processes: int = PROCESSES
    """How many there may be of them at a time."""
    cpu_s: int = CPU_S
    """The processor time of each process."""
    files: Mapping[str, str] = {}
    """Files of its own, with their content, in folders of its own."""
    hosts: tuple[str, ...] = ()
    """The hosts that it may reach through the proxy, as `[network] allow` names them."""
    links: Mapping[str, str] = {}
    """Links by which the settings name readable and writable folders, and what each of them says."""

    @property
    def network(self) -> Network:
        """What it has of the network."""
        return "proxy" if self.hosts else "none"

    def digest(self) -> str:
        """Return the hash of its rules. What is masked and protected within them is looked up right before the
        start, and only takes away.
        """
        return sha256(msgspec.json.encode(replace(self, masked=(), protected=()))).hexdigest()


class Walled(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """In which sandbox a call ran, as its intent records it. `unsafe`: in none, with the rights of the user."""

    backend: Backend
    digest: str
    """The hash of the fence's rules; empty: it has no fence."""
    network: Network = "none"
    is_approved: bool = False
    """A person approved the call with this network, so untrusted text that comes later does not cut it off."""


class Held(msgspec.Struct, frozen=True):
    """What is checked inside a sandbox before its program begins."""

    told_fd: int
    """The sandbox tells here which process is the first one inside."""
    gate_fd: int
    """The sandbox reads here, and waits, when everything is mounted. The program begins at the end of the file."""
    mounts: Mapping[str, tuple[bool, str]]
    """Where something must be mounted, as the kernel lists it: whether it must be read-only, and where the mount lies
    that it is mounted upon; empty: anywhere."""
    paths: tuple[str, ...]
    """The same places, as they are outside."""
    root: str
    """Where all this is mounted until the program begins. Then it is the root."""
    folder: str
    """Where the processes inside are listed."""
    processes: int
    """How many processes there may be inside at a time."""


class Rights(msgspec.Struct, frozen=True):
    """What a process keeps that gives up all other rights before its program begins, in numbers of the kernel."""

    handled: tuple[int, ...]
    """The rights that are given up but for these paths: to files, to the network, to other processes."""
    shown: tuple[tuple[str, int], ...]
    """The rights to files and folders. None may be missing, and no link on the way is followed."""
    paths: tuple[tuple[str, int], ...]
    """The rights to files and folders that may be missing."""
    own: str
    """A folder that it makes for itself. No link is on the way to it."""
    own_rights: int
    folders: tuple[str, ...]
    """Folders that it makes in there."""
    files: Mapping[str, str]
    """Files that it makes in there, with their content."""
    links: Mapping[str, str]
    """Links that it makes in there, and where they lead."""
    shared: str
    """The folder of the memory that processes share, if it gets one of its own there; empty: it gets none."""
    shared_bytes: int
    """How large that may become."""
    tag_limit: int
    """The limit of the kernel by which all that it starts is known."""
    tag: int
    capset: int
    """The number of the system call that gives up capabilities."""
    filter: str
    """The filter of system calls, as hexadecimal digits."""
    installation: int
    """The number of the system call that installs a filter with a listener."""
    way_fd: int | None
    """Where the listener goes; None: the filter has none."""


class Undone(msgspec.Struct, frozen=True):
    """What no sandbox prevented, and what became of it when a command had ended."""

    changed: tuple[str, ...] = ()
    """The paths at which something was undone, or should have been."""
    stuck: tuple[str, ...] = ()
    """Those of them at which it could not be undone."""
    why: str = ""
    """Why not, at the first of them."""
    since: tuple[str, ...] = ()
    """Those at which it could not be undone at first, and somebody has changed something since. It stays so."""


class Launch(msgspec.Struct, frozen=True):
    """What to run."""

    argv: tuple[str, ...]
    cwd: str
    key: str
    """The call's key. Every process of the tree has it."""
    env: Mapping[str, str]
    timeout_s: float
    idle_s: float
    """The longest silence of the output."""
    check: Callable[[], int]
    """Called right before the program is started, as `ports.Check`."""
    stdin_fd: int = NO_INPUT
    pass_fds: tuple[int, ...] = ()
    stderr_fd: int = WITH_OUTPUT
    """Where stderr goes: by default to stdout."""
    flood_bytes: int = FLOOD_BYTES
    """After this much output the tree is ended."""
    kept_bytes: int = KEPT_BYTES
    """How much of the beginning and of the end of the output is kept."""
    fence: Fence | None = None
    """What it may do; None: what the user can do."""
    given: Mapping[int, bytes] = {}
    """What it reads from descriptors of these numbers. A sandbox needs it."""
    opened: Mapping[int, str] = {}
    """Files and folders that a sandbox shows, by the numbers of their descriptors. No link on the way is followed."""
    own_folder: str = ""
    """A folder that the sandbox makes for it, which is removed when its tree has ended."""
    processes: int = 0
    """How many there may be of its tree at a time; 0: the sandbox counts by itself, or nobody does."""
    memory_bytes: int = 0
    """The most memory that its tree may use together; 0: nobody looks. A sandbox sets it."""
    covered: tuple[str, ...] = ()
    """Files that a sandbox mounts something on. Where one is gone by then, it makes an empty one, which is removed
    when the tree has ended."""
    on_exchange: Callable[[Exchange], None] = lambda _: None
    """Hears of each request that went through the proxy, or was refused there."""
    way_fd: int | None = None
    """What a sandbox needs to lead it to the proxy; None: it leads nowhere."""
    secrets: tuple[StandIn, ...] = ()
    """The secrets that the proxy puts in place of their marks."""
    authorities: bytes = b""
    """Those that it may trust, as PEM; empty: those of this machine."""
    put_right: Callable[[], Undone] | None = None
    """Called in a thread when the tree has ended, or did not begin: undoes what no sandbox prevents."""
    rights: Rights | None = None
    """What it keeps of its rights; None: all of them. A sandbox sets it."""
    held: Held | None = None
    """What is checked before its program begins. A sandbox sets it."""
    limits: Mapping[str, int] = {}
    """The kernel's limits by name, like RLIMIT_DATA. A sandbox sets them."""


class Finding(msgspec.Struct, frozen=True):
    """Whether a backend works on this machine."""

    backend: Backend
    fault: str = ""
    """Why it does not, as a sentence; empty if it does."""
    hint: str = ""
    """What to do about it."""
    leaves_open: tuple[str, ...] = ()
    """What it does not stop, each as half a sentence."""


class Sandbox(Protocol):
    """Keeps processes inside their fences."""

    backend: Backend

    async def probe(self) -> Finding:
        """Find out whether it keeps anything out on this machine: run a program inside that tries. This takes
        a fraction of a second."""
        ...

    def launch(self, launch: Launch, fence: Fence) -> Launch:
        """Return how to start a program inside a fence. Starts nothing."""
        ...
