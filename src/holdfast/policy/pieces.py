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
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{1,2})|u\{?([0-9a-f]{1,6})\}?|0?([0-7]{2,3}))", re.ASCII)
"""A character as languages and `printf` write it."""
_JOINT = re.compile(r"""(?<=[\w.])(["'])\s{0,8}[+.~&]{0,2}\s{0,8}\1(?=[\w.])""")
"""What joins two texts of most languages."""
_WHOLE = re.compile("(?<![\\w.-])(?:" + "|".join(map(re.escape, _NAMES)) + r")(?![\w-])", re.ASCII)


def _spelled_out(text: str) -> str:
    """Return the usual name of a secret that a text has when its escapes and joints are gone, and not before."""
    plain = _JOINT.sub("", _ESCAPE.sub(_character, text) if "\\" in text else text)
    if plain == text or not (found := _WHOLE.findall(plain)):
        return ""
    before = _WHOLE.findall(text)
    return next((name for name in found if found.count(name) > before.count(name)), "")


def _character(found: re.Match[str]) -> str:
    hexadecimal, octal = found[1] or found[2], found[3]
    code = int(hexadecimal, 16) if hexadecimal else int(octal, 8)
    return chr(code).casefold() if 0x20 < code < 0x7F else " "


def secret_in_pieces(text: str) -> str:
    """Return the usual name of a secret that the words of a text make if they are put together; empty if there is no
    such name.
    """
    folded = text.casefold()
    if found := _spelled_out(folded):
        return found
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
