"""What an answer may be: a call of `answer` with a confidence, or one JSON value in the words of a model.

`tools.answers` checks the value against the schema of the run.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.protocol.untrusted import decode_exact

ANSWER = "answer"
"""The tool, which only runs with calibrated answers have."""
MAX_REMARKS = 20
"""The most reasons, and the most caveats, of an answer."""
MAX_REMARK_CHARS = 1_000
_FENCE = "```"


class Answer(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a call of `answer` says."""

    text: str
    confidence: float
    """From 0 to 1."""
    reasons: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


def value_in(text: str) -> Any:
    """Return the JSON value that an answer is. It may stand inside the only code fence of the answer.

    Raises:
        msgspec.DecodeError: the answer is not a JSON value.
    """
    try:
        return decode_exact(text)
    except msgspec.DecodeError as error:
        fenced = _fenced(text)
        if len(fenced) != 1:
            raise error from None
        return decode_exact(fenced[0])


def _fenced(text: str) -> list[str]:
    """Return the content of each code fence. Reads every line once, however many fences begin and never end."""
    found: list[str] = []
    inside: list[str] | None = None
    for line in text.split("\n"):
        mark = line.strip()
        if inside is None:
            inside = [] if mark.startswith(_FENCE) else None
        elif mark == _FENCE:
            found.append("\n".join(inside))
            inside = None
        else:
            inside.append(line)
    return found
