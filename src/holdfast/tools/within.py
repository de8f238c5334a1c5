"""Says that the sandbox of a command caused its failure, where the output shows it, and what a person could allow."""

from __future__ import annotations

import re

from holdfast.protocol.fence import Fence
from holdfast.sandbox.process import Ended

_NOT_SHOWN = (
    "commands run in a sandbox without the folders of users. With [sandbox] read, a person shows them one"
)
_BY_CODE = {
    127: _NOT_SHOWN,
    135: "it used more of /dev/shm than the 1 GiB that each sandbox has",
    152: "it used more processor time than [sandbox] cpu allows",
    153: "it wrote a file longer than [sandbox] file_size allows",
}
"""What an exit code may mean in a sandbox: no such program, SIGBUS, SIGXCPU and SIGXFSZ."""
_BY_WORDS = {
    r"MemoryError|cannot allocate memory|out of memory|bad_alloc":
        "each process has at most what [sandbox] memory allows",
    r"too many open files": "a process in the sandbox has at most 4,096 open files",
    r"no space left on device":
        "/tmp, /dev/shm and the home are private in the sandbox, of 1 GiB each: large files belong in the workspace",
    r"read-only file system":
        "in the sandbox, only the workspace can be changed, without what controls other programs. A person can let "
        "commands change a folder with [sandbox] write",
    r"command not found|bad interpreter|required file not found|env: .{1,100}: no such file": _NOT_SHOWN,
}  # fmt: skip
"""What programs say."""
_TAIL_CHARS = 20_000


def cause(ended: Ended, fence: Fence | None) -> str:
    """Return what in its sandbox made a command fail, as half a sentence; empty if nothing is known."""
    if fence is None or ended.how != "exited" or not ended.exit_code:
        return ""
    if found := _BY_CODE.get(ended.exit_code):
        return found
    return next((why for words, why in _BY_WORDS.items() if has_said(ended, words)), "")


def has_said(ended: Ended, words: str) -> bool:
    """Return whether what a command said at its end has such words."""
    return re.search(words, ended.output[-_TAIL_CHARS:], re.IGNORECASE) is not None
