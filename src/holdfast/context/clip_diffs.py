"""What matters in a diff: which files it changes, and how much.

Pure and linear.
"""

from __future__ import annotations

import re
from itertools import islice

from holdfast.protocol.counts import counted

_GIT = "\ndiff --git"
_PLAIN = re.compile(r"\n--- [^\n]+\n\+\+\+ [^\n]+\n@@ ")
"""Where a file begins in a diff that git did not make."""
_PATH_CHARS = 300
_HEAD_CHARS = 1_000
"""How much of a file's part may come before its first change."""


def changed_files(text: str, room: int) -> str:
    """Return the files of a diff with the numbers of added and removed lines, within so many characters; empty for
    other texts.
    """
    text = f"\n{text}" if text.startswith(("diff --git ", "--- ")) else text
    begins = _begins(text, room)
    if not begins:
        return ""
    is_git = text.startswith(_GIT, begins[0])
    total = text.count(_GIT) if is_git else len(begins)
    told = [f"[diff: {counted(total, 'file')}]"]
    left = room - len(told[0]) - len("\n[100,000 more files]")
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        line = _file(text, begin + 1, end)
        if len(line) + 1 > left:
            break
        told.append(line)
        left -= len(line) + 1
    if (more := total - len(told) + 1) > 0:
        told.append(f"[{counted(more, 'more file')}]")
    return "\n".join(told)


def _begins(text: str, room: int) -> list[int]:
    """Return where the first files begin, at most one more than there is room for."""
    most = max(room // 10, 1) + 1
    begins: list[int] = []
    place = text.find(_GIT)
    while place >= 0 and len(begins) < most:
        begins.append(place)
        place = text.find(_GIT, place + 1)
    return begins or [each.start() for each in islice(_PLAIN.finditer(text), most)]


def _file(text: str, begin: int, end: int) -> str:
    """Return a file with its sizes. The lines of a diff begin with what became of them."""
    change = text.find("\n@@ ", begin, end)
    head = text[begin : change if change >= 0 else min(begin + _HEAD_CHARS, end)]
    added = text.count("\n+", change, end) if change >= 0 else 0
    removed = text.count("\n-", change, end) if change >= 0 else 0
    kind = next((word for sign, word in _KINDS if sign in head), "")
    return f"{_path(head)[:_PATH_CHARS]}: +{added:,} -{removed:,}{kind}"


_KINDS = (
    ("\nnew file mode", ", new"),
    ("\ndeleted file mode", ", deleted"),
    ("\nrename from ", ", renamed"),
    ("\nBinary files ", ", binary"),
    ("\nGIT binary patch", ", binary"),
    ("\nold mode ", ", another mode"),
    ("--- /dev/null", ", new"),
    ("\n+++ /dev/null", ", deleted"),
)


def _path(head: str) -> str:
    """Return the name of the new file; of the old one if it is deleted."""
    named = {
        line[:4]: line[4:].partition("\t")[0] for line in head.split("\n") if line[:4] in ("--- ", "+++ ")
    }
    for sign, prefix in (("+++ ", "b/"), ("--- ", "a/")):
        if (path := named.get(sign, "/dev/null")) != "/dev/null":
            return path.removeprefix(prefix)
    first = head.partition("\n")[0].removeprefix("diff --git ")
    return first[len(first) // 2 + 1 :].removeprefix("b/")  # no change of content: `a/PATH b/PATH`
