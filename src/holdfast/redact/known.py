"""Which values of an environment are secret: those of variables that are named so, unless they plainly are none.

What a provider's own variables hold is known to be secret without a look at it; that is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from holdfast.redact.assigned import is_placeholder

_NAMES = re.compile(
    r"(?i)(?:.*_)?(?:token|secret|password|passwd|passphrase|pwd|credentials?"
    r"|(?:api|access|auth|account|private|signing|encryption|license|secret)_?key)|pgpassword|mysql_pwd"
)
_VAGUE_NAMES = re.compile(r"(?i)(?:.*_)?(?:key|pat)")
"""`SONAR_PROJECT_KEY` holds a name, `DATADOG_KEY` a key: the value tells."""
_DRAWN = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{16,}")
_PUBLIC = re.compile(r"(?i).*(?:public|publishable)_.*|(?:old)?pwd")
_PLAIN = re.compile(r"|[a-z]{1,11}|[A-Z]{1,11}|\d{1,11}|[~.]{0,2}/.*|[A-Za-z]:\\.*|[a-z+]+://[^@]*")
"""Nothing, a word, a number, a path, an address without a user: to mask these would harm ordinary text."""


def named_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that are secret by their name, and their values."""
    return dict(_found(environ))


def _found(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in environ.items():
        value = text.strip()
        is_named = _NAMES.fullmatch(name) or (_VAGUE_NAMES.fullmatch(name) and _DRAWN.fullmatch(value))
        if is_named and not (_PUBLIC.fullmatch(name) or _PLAIN.fullmatch(value) or is_placeholder(value)):
            yield name, value
