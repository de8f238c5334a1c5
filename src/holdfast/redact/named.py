"""Finds secrets by the exact name of a field, and in connection strings: what they look like does not matter there.

`assigned` judges values behind names that only contain a secret's name. `credentials` has the headers and URLs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from holdfast.redact.assigned import is_placeholder

COMMAND_CHARS = 4096
HINT_REACH_CHARS = 48
"""More than there may be between a hint and the line of the value."""


class Place(NamedTuple):
    """A place that shows a secret."""

    hints: tuple[str, ...]
    """Every text that has the place has one of them in small letters, in the line where the place begins."""
    pattern: re.Pattern[str]
    """The group `s` is the value."""
    kind: str
    is_real: Callable[[str], bool]
    """Whether it is a value, and no placeholder."""
    sign: str = ""
    """What the gate looks for instead of the pattern, if the pattern begins with what every text has."""
    before: int | None = None
    """How many characters before its hint the place begins; none if that differs."""
    command: str = ""
    """The name of a command that comes before its options, at most `COMMAND_CHARS` before."""


_OWNERS = (
    "client|api|app|access|refresh|auth|session|bearer|consumer|webhook|signing|shared|encryption|private"
    "|secret"
)
_FIELD = (
    rf"(?:(?:{_OWNERS})[_-]?(?:secret|token|key)|(?:secret|private)[_-]?access[_-]?key|passwords?|passphrase)"
)
_VALUE = r"""(?P<s>[^\s"'\\\x5b][^\s"'\\]{3,511})"""
_JSON_FIELD = re.compile(rf"""(?i)["']{_FIELD}\\?["'][ \t]{{0,2}}:\s{{0,8}}\\?["']{_VALUE}\\?["']""")
_JSON_LIST = re.compile(
    rf"""(?i)["']{_FIELD}s?\\?["'][ \t]{{0,2}}:\s{{0,8}}\x5b\s{{0,16}}"""
    r"""(?P<s>\\?["'][^"'\\\]]{1,64}\\?["'](?:\s{0,16},\s{0,16}\\?["'][^"'\\\]]{1,64}\\?["']){0,15})"""
)
_SCHEMES = (
    "postgres", "postgresql", "mysql", "mariadb", "mongodb", "mongodb+srv", "redis", "rediss", "amqp", "amqps",
    "mssql", "sqlserver", "clickhouse", "cockroachdb", "oracle", "ldap", "ldaps", "smtp", "smtps", "ftp", "ftps",
    "sftp", "nats", "neo4j", "bolt",
)  # fmt: skip
_BEFORE = "|".join(f"(?<={re.escape(scheme)}://)" for scheme in _SCHEMES)
_DATABASE_URL = re.compile(
    rf"""://(?:{_BEFORE})[^\s/?#:@"'<>]{{0,256}}:"""
    r"""(?!\d{1,5}/)(?P<s>[^\s"'<>\x5b][^\s"'<>]{2,511})@(?=[\w\x5b])"""
)
"""A password with `/`, `?` or `#`, which a URL may not have unescaped. Databases take it."""
_GO_DATABASE = re.compile(r"""(?<![\w.-])(?!redacted:)[\w.-]{1,64}:(?P<s>[^\s"'`]{3,256})@(?:tcp|unix)\(""")
_ORACLE = re.compile(
    r"""(?i)(?:jdbc:oracle:(?:thin|oci8?):|sqlplus[ \t]{1,4}(?:-\w{1,8}[ \t]{1,4}){0,4}["']?)"""
    r"""[\w$#]{1,64}/(?P<s>[^\s@"'/]{3,256})@"""
)
_BRACED = re.compile(
    r"""(?i);[ ]{0,4}(?:pwd|password)[ ]{0,4}=[ ]{0,4}(?P<s>\{(?:[^}\n]|\}\}){2,256}\})(?=[ ]{0,4}[;"'\s])"""
)
_BRACED_SIGN = r"(?i);[ ]{0,4}(?:pwd|password)[ ]{0,4}=[ ]{0,4}\{[^}\n]"
_SIGNATURE = re.compile(
    r"""(?i)(?:[?&;]|\bsharedaccesssignature[ ])(?:[\w%+/=.:-]{1,64}&){0,16}sig=(?P<s>[\w%+/=-]{20,})"""
)
_ART_HEADER = re.compile(
    r"""(?i)x-jfrog-art-api\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?(?P<s>[^\s"'\\,<>\x5b][^\s"'\\,<>]{7,})"""
)
_TEMPLATE = re.compile(r"\{\{?[A-Za-z_][\w.]*\}?\}")
"""`{password}` in a string that a program fills in."""


def _is_value(value: str) -> bool:
    return not is_placeholder(value) and not value.startswith(("/", "./", "~/", "http://", "https://"))


def _is_list(value: str) -> bool:
    return any(_is_value(item) for item in re.findall(r"""[^"'\\,\s][^"'\\]*""", value))


def _is_given(value: str) -> bool:
    return (
        not is_placeholder(value) and "${" not in value and "{{" not in value and not _TEMPLATE.search(value)
    )


def _is_braced(value: str) -> bool:
    return not _TEMPLATE.fullmatch(value)


def _is_signature(value: str) -> bool:
    return not is_placeholder(value) and any(map(str.isdigit, value))


_COLONS = ('":', '" :', "':", "' :")

PLACES: tuple[Place, ...] = (
    Place(_COLONS, _JSON_FIELD, "secret", _is_value),
    Place(_COLONS, _JSON_LIST, "secret", _is_list),
    Place(("://",), _DATABASE_URL, "url-credentials", _is_given, before=0),
    Place(("@tcp(", "@unix("), _GO_DATABASE, "password", _is_given, sign=r"@(?:tcp|unix)\("),
    Place(("racle:", "sqlplus"), _ORACLE, "password", _is_given),
    Place(("={", "= {"), _BRACED, "password", _is_braced, sign=_BRACED_SIGN),
    Place(("sig=",), _SIGNATURE, "azure", _is_signature, sign=r"(?i)sig=[\w%+/=-]{20,}"),
    Place(("-art-api",), _ART_HEADER, "artifactory", _is_value, before=7),
)
