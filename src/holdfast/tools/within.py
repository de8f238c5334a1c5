"""Says that the sandbox of a command caused its failure, where the output shows it, and what a person could allow."""

from __future__ import annotations

import re
from signal import SIGBUS, SIGXCPU, SIGXFSZ

from holdfast.protocol.fence import Backend
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
_MANY = (
    "there may be as many processes as [sandbox] processes allows, and four times as many with their threads"
)
_BY_CODE = {
    127: _NOT_SHOWN,
    128 + SIGXCPU: _LONG_TIME,
    128 + SIGXFSZ: _LONG_FILE,
}
"""What an exit code may mean in a sandbox. A shell says so of a program that a signal ended."""
_SHARED = "it used more of /dev/shm than the 1 GiB that each sandbox has"
_CHANGES = "A person can let commands change a folder with [sandbox] write"
_REFUSED = (
    "in the sandbox, commands see only the workspace and the folders of the system, and change only the workspace, "
    f"$TMPDIR and $HOME. With [sandbox] read, a person shows them another folder. {_CHANGES}"
)
_NO_REPOSITORY = (
    "in the sandbox, git sees the repository of the workspace, and not one of a folder above it, or one elsewhere "
    "that belongs to another project. If the workspace has such a one, a person can show it with [sandbox] write"
)
_BY_WORDS = {
    r"MemoryError|cannot allocate memory|out of memory|bad_alloc":
        "each process has at most what [sandbox] memory allows",
    r"too many open files": "a process in the sandbox has at most 4,096 open files",
    r"file too large|file size limit exceeded": _LONG_FILE,
    r"cpu time limit exceeded": _LONG_TIME,
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
_BY_SHELL = {
    r": line \d+: +\d+ CPU time limit exceeded": _LONG_TIME,
    r": line \d+: +\d+ File size limit exceeded": _LONG_FILE,
    r"^\S*bash: fork: ": _MANY,
}
"""What bash itself says of a program among others, in a form that no page or log is likely to have."""
_TAIL_CHARS = 20_000


def cause(ended: Ended, backend: Backend) -> str:
    """Return what in its sandbox made a command fail, as half a sentence; empty if nothing is known."""
    if backend == "unsafe" or ended.how != "exited" or not ended.exit_code:
        return ""
    # Without namespaces, the first process is the program itself, and no shell tells of its signal.
    code = ended.exit_code if ended.exit_code > 0 else 128 - ended.exit_code
    if found := _BY_CODE.get(code):
        return found
    if code == 128 + SIGBUS and backend == "bubblewrap":
        return _SHARED
    if backend == "bubblewrap" and has_said(ended, r"device or resource busy"):
        return _KEPT
    if has_said(ended, r"no space left on device"):
        return _SPACE[backend]
    if found := next((why for words, why in _BY_WORDS.items() if has_said(ended, words)), ""):
        return found
    is_refused = backend == "landlock" and has_said(ended, r"permission denied|operation not permitted")
    return _REFUSED if is_refused else ""


def refused(ended: Ended, backend: Backend) -> str:
    """Return which limit ended or refused a program of a command that went on and succeeded, as half a sentence;
    empty if bash told of none.
    """
    if backend == "unsafe":
        return ""
    return "; ".join(dict.fromkeys(why for words, why in _BY_SHELL.items() if has_said(ended, words)))


def has_said(ended: Ended, words: str) -> bool:
    """Return whether what a command said at its end has such words."""
    return re.search(words, ended.output[-_TAIL_CHARS:], re.IGNORECASE | re.MULTILINE) is not None
