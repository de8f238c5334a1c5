"""What each backend makes of each step of the attack, as data.

    python -m tests.sandbox.expected      writes the tables of docs/security.md and README.md

What is not named here is stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.protocol.fence import Backend
from tests.sandbox import attack
from tests.sandbox.attacked import Verdict

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = (REPOSITORY / "docs" / "security.md", REPOSITORY / "README.md")


class Expected(NamedTuple):
    """What a backend does not stop."""

    open: Mapping[str, str]
    """The reason of each step that succeeds."""
    undone: tuple[str, ...] = ()
    """The steps that are put right when the command has ended."""


_COMING = (
    "make what a shell runs, where there was nothing",
    "make it under another name, and rename it",
    "link to what controls an editor",
    "make it in a folder that nobody may list",
)
_NO_FILE = "it has the same fence"
_SHARED = "only four times `memory` for all processes together is a limit"
_KNOWN = "known values are masked in what it prints"
_FACTS = "names and sizes are seen, and no content"
_WRITTEN = "it is a file of the workspace"
_OWNED = "of files that belong to you"

ENDED = dict.fromkeys(attack.daemons(), "ends with the call") | {
    "read what its starter left open": "nothing is left open",
}
"""What is stopped without any sandbox, and by what."""
RIGHTS = frozenset({
    "become another user",
    "change the owner of a file outside", "call the kernel by the x32 interface", "change a group of processes",
    "change a setting of the kernel", "change a setting of the network", "change the network of the machine",
    "change the root of all", "change the root of its processes", "connect to it by SCTP",
    "connect to it by shared memory (SMC)", "copy mounts by the newer calls", "change mounts by the newer calls",
    "copy mounts and change them", "list mounts by the newer calls", "ask about a mount",
    "enter the namespaces of a process outside", "enter those of the first process", "account processes",
    "find sockets of the system", "load a module", "load another kernel", "make a device of a disk",
    "make a file in /etc", "make a file in /usr", "make a file through the root of the first process",
    "make a namespace of mounts", "make mounts writable", "mount a file system", "mount a folder elsewhere",
    "mount by a program (FUSE)", "mount by the newer calls", "open a disk", "open a packet socket",
    "open a raw socket", "open a tunnel of the network", "open a virtual machine", "open the machine's memory",
    "press the key of emergencies", "read a file outside by its handle", "read the host keys of SSH",
    "read the kernel's memory", "read the kernel's messages", "read the passwords of groups",
    "read the passwords of the system", "read through the folder of the first process",
    "read through the root of the first process", "rename the machine", "restart the machine", "send pings",
    "set the clock", "swap to a file", "type into the terminal", "use Bluetooth", "use the kernel's ciphers",
    "use the ports of the processor", "watch all files (fanotify)", "write the kernel's messages",
    # A kernel, a container or the administrator may not let anybody do these.
    "call the kernel as a 32-bit program", "compare its files with those of a process outside",
    "connect to it by IPv6", "connect to it by its other address", "connect to it by several ways (MPTCP)",
    "connect to it with the first packet", "handle page faults (userfaultfd)", "hear the kernel's events",
    "keep a key in the kernel", "load a program into the kernel (bpf)", "make a namespace while forking",
    "make a user namespace", "make one by clone3", "measure the kernel (perf)", "read its memory by a system call",
    "read the memory of a process outside", "remove a mount", "run a set-user-id program with its rights",
    "take its open file", "talk to the hypervisor", "talk to the kernel's audit", "trace a process outside",
    "use io_uring", "use the keys of the session", "ask for a key", "write the memory of a process outside",
    "ask a server of names", "change an attribute of a file outside", "open files without end",
    "give a file outside a name in the workspace", "change a file outside through a second name",
    "read a file of shared memory", "make a file in the memory of all", "look into /sys",
    "start processes without end",
    "move a process outside to one processor",
})  # fmt: skip
"""What succeeds without a sandbox only with the rights of some users, or on some machines."""

EXPECTED: Mapping[Backend, Expected] = {
    "bubblewrap": Expected(
        {"run a program that has no file": _NO_FILE, "take too much memory that processes share": _SHARED},
        _COMING,
    ),
    "landlock": Expected(
        {
            **dict.fromkeys(attack.reading_secrets(), _KNOWN),
            **dict.fromkeys(
                ("learn the size of a file outside", "go to a folder outside", "watch a folder outside"),
                _FACTS,
            ),
            **dict.fromkeys(("remove a secret file", "change a secret file"), _WRITTEN),
            **dict.fromkeys(
                ("change the mode of a file outside", "change the times of a file outside"), _OWNED
            ),
            "run a program that has no file": _NO_FILE,
            "take too much memory that processes share": _SHARED,
        },
        tuple(
            step
            for step in attack.writing_protected()
            if step not in ("remove a secret file", "change a secret file")
        ),
    ),
    "unsafe": Expected({name: "" for name in attack.STEPS if name not in ENDED}),
}

_SEMAPHORES = (
    "semaphores lie in `/dev/shm`, which all programs share; it works where Holdfast may mount another one"
)
LACKING: Mapping[Backend, Mapping[str, str]] = {
    "landlock": {
        "work with processes": _SEMAPHORES,
        "share memory of its own": "it lies there, too",
        "see its own processes": "`/proc` shows those of others as well",
        "use a pseudo-terminal": "they lie in `/dev/pts` with those of others",
    }
}
"""The honest work that a backend makes impossible, and why."""


def verdicts(backend: Backend, step: str) -> tuple[Verdict, ...]:
    """What may come of a step."""
    expected = EXPECTED[backend]
    if step in expected.open:
        return ("open", "stopped") if backend == "unsafe" and step in RIGHTS else ("open",)
    return ("undone",) if step in expected.undone else ("stopped",)


def _cell(backend: Backend, step: str) -> str:
    expected = EXPECTED[backend]
    if backend == "unsafe":
        return ENDED.get(step) or ("with the right" if step in RIGHTS else "**open**")
    if step in expected.open:
        return f"**open**: {expected.open[step]}"
    return "put right after the command" if step in expected.undone else "stopped"


def table() -> str:
    """Each step with each backend."""
    lines = [
        f"| What it tries | {' | '.join(f'`{each}`' for each in EXPECTED)} |",
        f"|---|{'---|' * len(EXPECTED)}",
    ]
    for group, steps in attack.GROUPS.items():
        lines.append(f"| **{group}** |{' |' * len(EXPECTED)}")
        lines += [f"| {step} | {' | '.join(_cell(each, step) for each in EXPECTED)} |" for step in steps]
    return "\n".join(lines)


def lacking() -> str:
    """The honest work that is impossible."""
    lines = ["| What does not work | under | because |", "|---|---|---|"]
    lines += [
        f"| {what} | `{each}` | {why} |" for each, work in LACKING.items() for what, why in work.items()
    ]
    return "\n".join(lines)


def summary() -> str:
    """How many steps of each group a backend stops."""
    lines = [f"| Stopped of what a program tries | {' | '.join(f'`{each}`' for each in EXPECTED)} |",
             f"|---|{'---|' * len(EXPECTED)}"]  # fmt: skip
    for group, steps in attack.GROUPS.items():
        cells = []
        for backend in EXPECTED:
            count = Counter(verdicts(backend, step)[0] for step in steps)
            kept = f"{count['stopped'] + count['undone']} of {len(steps)}"
            cells.append(f"{kept}, {count['undone']} of them put right" if count["undone"] else kept)
        lines.append(f"| {group} | {' | '.join(cells)} |")
    return "\n".join(lines)


def render(text: str) -> str:
    """Return a page with its tables anew."""
    for name, made in (("attacks", summary()), ("attack", table()), ("work", lacking())):
        head, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition(f"<!-- /{name} -->")
        text = f"{head}{begin}{made}\n{end}{tail}" if end else text
    return text


def main() -> None:
    """Write the pages."""
    for page in PAGES:
        page.write_text(render(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
