"""Finds the secret values of an environment: variables with a secret's name, unless the value clearly is not one.

A provider's own variables are always secret; this does not decide about them.
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
"""`SONAR_PROJECT_KEY` is a name, `DATADOG_KEY` is a key: the value decides."""
_DRAWN = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{16,}")
_PUBLIC = re.compile(r"(?i).*(?:public|publishable)_.*|(?:old)?pwd")
_PLAIN = re.compile(r"|[a-z]{1,11}|[A-Z]{1,11}|\d{1,11}|[~.]{0,2}/.*|[A-Za-z]:\\.*|[a-z+]+://[^@]*")
"""Nothing, a word, a number, a path, an address without a user: masking these would damage ordinary text."""


def named_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are secret by their name, with their values."""
    return dict(_found(environ))


def _found(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in environ.items():
        value = text.strip()
        is_named = _NAMES.fullmatch(name) or (_VAGUE_NAMES.fullmatch(name) and _DRAWN.fullmatch(value))
        if is_named and not (_PUBLIC.fullmatch(name) or _PLAIN.fullmatch(value) or is_placeholder(value)):
            yield name, value


def is_public(name: str) -> bool:
    """Return whether the name says that its value is for everybody."""
    return _PUBLIC.fullmatch(name) is not None


def is_plain(value: str) -> bool:
    """Return whether a value is so ordinary that masking it would damage texts, whatever its name is."""
    return _PLAIN.fullmatch(value) is not None
