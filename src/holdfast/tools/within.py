"""Says how a program ended, that its sandbox caused its failure, where the output shows it, and what a person could
allow.
"""

from __future__ import annotations

import re
from signal import SIGBUS, SIGXCPU, SIGXFSZ

from holdfast.protocol.fence import FLOOD_BYTES, Backend, Fence
from holdfast.sandbox.process import Ended

_NOT_SHOWN = (
    "commands run in a sandbox without the folders of users. With [sandbox] read, a person shows them one"
)
_SPACE = {
    "bubblewrap": "/tmp, /dev/shm and the home are private in the sandbox, of 1 GiB each: large files belong in the "
    "workspace",
    "landlock": "the disk of the workspace, or that of $TMPDIR and $HOME, is full",
}
_LONG_FILE = "it wrote a file longer than [sandbox] file_size allows"
_LONG_TIME = "it used more processor time than [sandbox] cpu allows"
_LITTLE_MEMORY = "each process has at most what [sandbox] memory allows"
_FEW_FILES = "a process in the sandbox has at most 4,096 open files"
_MUCH_TIME = (
    "its programs together used about as much processor time as [sandbox] cpu allows one of them, or more, and one "
    "that uses more is ended"
)
_ABOUT = 0.7
"""For its limit, the kernel counts ticks. On a busy machine these are more than the time that it tells afterwards."""
_MANY = (
    "there may be as many processes as [sandbox] processes allows, and four times as many with their threads"
)
_BY_CODE = {
    127: _NOT_SHOWN,
    128 + SIGXCPU: _LONG_TIME,
    128 + SIGXFSZ: _LONG_FILE,
}
"""What an exit code may mean in a sandbox. A shell says so of a program that a signal ended."""
_SHARED = "it used more of /dev/shm than the 1 GiB that a sandbox has"
_CHANGES = "A person can let commands change a folder with [sandbox] write"
_REFUSED = (
    "in the sandbox, commands see only the workspace and the folders of the system, and change only the workspace, "
    f"$TMPDIR and $HOME. With [sandbox] read, a person shows them another folder. {_CHANGES}"
)
_NO_SHARED = (
    "semaphores and shared memory lie in /dev/shm, which all programs share, and this sandbox could get none of its "
    'own. A person can let commands use that with [sandbox] write = ["/dev/shm"], or install bubblewrap'
)
_OF_KERNEL = (
    "in the sandbox, most of /proc, /sys and /dev is closed: it shows the kernel, devices and other processes. No "
    "setting opens it"
)
_IN_KERNEL = r"(?<![\w.])/(?:proc|sys|dev)/(?!null\b|shm\b)"
_NO_REPOSITORY = (
    "in the sandbox, git sees the repository of the workspace, and not one of a folder above it, or one elsewhere "
    "that belongs to another project. If the workspace has such a one, a person can show it with [sandbox] write"
)
_BY_WORDS = {
    r"MemoryError|cannot allocate memory|out of memory|bad_alloc|memory exhausted|memory allocation of \d+ bytes":
        _LITTLE_MEMORY,
    r"too many open files": _FEW_FILES,
    r"file too large|file size limit exceeded|SIGXFSZ|by signal 25\b": _LONG_FILE,
    r"cpu time limit exceeded|SIGXCPU|by signal 24\b": _LONG_TIME,
    r"can't start new thread|fork: retry|fork: resource temporarily|cannot fork|pthread_create":
        _MANY,
    r"read-only file system":
        "in the sandbox, only the workspace can be changed, without what controls other programs. " + _CHANGES,
    r"fatal: not a git repository": _NO_REPOSITORY,
    r"command not found|bad interpreter|required file not found|env: .{1,100}: no such file": _NOT_SHOWN,
}  # fmt: skip
"""What programs say."""
_KEPT = (
    "in the sandbox, secret files and what controls other programs cannot be moved, removed or replaced, nor the "
    "folders that hold them"
)
"""A mount lies there. Landlock has none."""
_OF_SIGNAL = r"(?:: line \d+: +\d+ |^ +\d+ |^make(?:\[\d+\])?: \*\*\* \[.*\] ){0}|^{0}(?: \(core dumped\))?$"
"""How bash, make and other shells tell of a program among others, in a form that no page or log is likely to have."""
_BY_SHELL = {
    _OF_SIGNAL.replace("{0}", "CPU time limit exceeded"): _LONG_TIME,
    _OF_SIGNAL.replace("{0}", "File size limit exceeded"): _LONG_FILE,
    r"^\S*bash: fork: ": _MANY,
}
_BY_PROGRAM = {
    r"^MemoryError\b|^out of memory!$|: memory exhausted$|^memory allocation of \d+ bytes failed": _LITTLE_MEMORY,
    r"^OSError: \[Errno 24\]|: too many open files$": _FEW_FILES,
    r"^OSError: \[Errno 27\]|: file too large$": _LONG_FILE,
    r"^RuntimeError: can't start new thread": _MANY,
}
"""What programs say last of all when they fail, each on a line of its own. A log may have such lines, too."""
_BARRED = (
    r"\b(?:connect|urlopen|socket|bind|listen|dial|tcp)\w*.{0,200}(?:\n.{0,200}){0,3}"
    r"(?:operation not permitted|function not implemented|\bEPERM\b|\bENOSYS\b)|"
    r"\b(?:EPERM|ENOSYS)\b.{0,200}\b(?:connect|bind|listen)\b"
)
"""What programs say whose connections are refused by the sandbox itself."""
LOOKED_AT_CHARS = 20_000
"""How much of the end of an output counts."""


def how_ended(ended: Ended) -> str:
    """Return how a command ended that reached no time limit, as half a sentence."""
    if ended.how == "flood":
        return f"killed after printing more than {FLOOD_BYTES >> 20} MiB"
    if ended.how == "processes":
        return "killed: it had more processes at a time than [sandbox] processes allows"
    if ended.how == "memory":
        return "killed: its processes used several times what [sandbox] memory allows one of them"
    if ended.how == "replaced":
        return (
            f"killed: somebody outside replaced {ascii(ended.replaced)[1:-1]} while it ran, as git and editors "
            "do, so the sandbox no longer kept this file. The command may have read or changed it in that moment. A "
            "person should look at it"
        )
    if ended.how == "left":
        return "some of its processes could not be ended, and may still run. A person should look for them"
    code = ended.exit_code
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def cause(ended: Ended, fence: Fence | None, backend: Backend) -> str:
    """Return what in its sandbox made a command fail, as half a sentence; empty if nothing is known."""
    if backend == "unsafe" or ended.how != "exited" or not ended.exit_code:
        return ""
    # Without namespaces, the first process is the program itself, and no shell tells of its signal.
    code = ended.exit_code if ended.exit_code > 0 else 128 - ended.exit_code
    if found := _BY_CODE.get(code):
        return found
    if code == 128 + SIGBUS:
        return _SHARED
    if backend == "bubblewrap" and has_said(ended, r"device or resource busy"):
        return _KEPT
    if has_said(ended, r"no space left on device"):
        return _SPACE[backend]
    if found := next((why for words, why in _BY_WORDS.items() if has_said(ended, words)), ""):
        return found
    if found := _much_time(ended, fence):
        return found
    if backend != "landlock" or not has_said(ended, r"permission denied|operation not permitted"):
        return ""
    if fence is not None and is_barred(ended):
        return ""  # `unreached` tells of the network
    if has_said(ended, r"/dev/shm|SemLock|shm_open|sem_open|shared memory"):
        return _NO_SHARED
    denied = r"(?:permission denied|operation not permitted)"
    is_kernel = has_said(ended, rf"{_IN_KERNEL}.{{0,200}}{denied}|{denied}.{{0,20}}{_IN_KERNEL}")
    return _OF_KERNEL if is_kernel else _REFUSED


def failure(ended: Ended, fence: Fence | None, backend: Backend) -> str:
    """Return how a program failed, and what in its sandbox made it fail, as half a sentence."""
    return "; ".join(filter(None, (how_ended(ended), cause(ended, fence, backend))))


def refused(ended: Ended, fence: Fence | None, backend: Backend) -> str:
    """Return which limit ended or refused a program of a command that went on and succeeded, as half a sentence;
    empty if nothing shows that.
    """
    if backend == "unsafe" or ended.how != "exited" or ended.exit_code:
        return ""
    if sure := [why for words, why in _BY_SHELL.items() if has_said(ended, words)]:
        return f"a program in it reached a limit: {'; '.join(sure)}"
    told = (why for words, why in _BY_PROGRAM.items() if has_said(ended, words))
    # In a pipeline, no shell tells of a program that a signal ended.
    found = next(told, "") or _much_time(ended, fence)
    return f"a program in it may have reached a limit: {found}" if found else ""


def _much_time(ended: Ended, fence: Fence | None) -> str:
    """Return that one of its programs may have reached the limit of processor time, if they could together."""
    return _MUCH_TIME if fence is not None and ended.cpu_s >= _ABOUT * fence.cpu_s else ""


def has_no_network(fence: Fence | None) -> bool:
    """Return whether a fence lets nothing out."""
    return fence is not None and fence.network == "none"


def is_barred(ended: Ended) -> bool:
    """Return whether what a command said shows that its sandbox refused a connection."""
    return has_said(ended, _BARRED)


def has_said(ended: Ended, words: str) -> bool:
    """Return whether what a command said at its end has such words."""
    return re.search(words, ended.output[-LOOKED_AT_CHARS:], re.IGNORECASE | re.MULTILINE) is not None
