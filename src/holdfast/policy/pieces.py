"""Finds the name of a secret that a text has only in pieces: `a=(.en v); cat ${a[0]}v`, `".en" "v"`.

Nobody follows arrays, `read`, or the languages of other programs. But what they put together, the text must have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_NAMES = (
    ".env", ".env.local", ".env.production", ".netrc", "_netrc", ".pgpass", ".git-credentials", ".npmrc", ".pypirc",
    "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", ".ssh", ".aws", ".azure", ".kube", ".gnupg",
)  # fmt: skip
"""The usual names of secrets."""
_LEAST = 2
"""How long the first piece has to be: a dot alone is in most texts."""


def _beginnings(name: str) -> Iterator[str]:
    return (name[:end] for end in range(_LEAST, len(name)))


_COMMON = {".py", ".git"}
"""They begin names of secrets, and are in most texts."""
_FIRST = frozenset(piece for name in _NAMES for piece in _beginnings(name)) - _COMMON
_MAY = re.compile("(?:" + "|".join(map(re.escape, sorted(_FIRST))) + r")(?![\w.-])", re.ASCII)
"""What a first piece ends with. It tells most texts quickly from the others."""
_BETWEEN = re.compile(r"\\[nrt0]|\$\{?[!#]?(?:[A-Za-z_]\w*|[0-9@*#?!$-])|[^\w.-]|(?<![\w.])-+", re.ASCII)
"""What is between two pieces: the name of a variable, or what no usual name of a file has."""


def secret_in_pieces(text: str) -> str:
    """Return the usual name of a secret that the words of a text make if they are put together; empty if there is no
    such name.
    """
    folded = text.casefold()
    if not _MAY.search(folded):
        return ""
    pieces = {*_BETWEEN.split(folded)}
    first = tuple(_FIRST & pieces)
    pieces.discard("")
    return next((name for name in _NAMES if name.startswith(first) and _is_made_of(pieces, name)), "")


def _is_made_of(pieces: set[str], name: str) -> bool:
    """Return whether two pieces or more, one after the other, are the whole name."""
    reached = {end for end in range(_LEAST, len(name)) if name[:end] in pieces}
    for start in range(_LEAST, len(name)):
        if start in reached:
            reached.update(end for end in range(start + 1, len(name) + 1) if name[start:end] in pieces)
    return len(name) in reached
