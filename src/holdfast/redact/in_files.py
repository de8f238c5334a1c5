"""Finds the secret values in the text of a file that holds secrets: `.env`, `.netrc` and others.

What counts is the name of a value, or that it looks drawn at random. `DEBUG=true` and `PORT=8080` do not count.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from holdfast.redact.assigned import is_placeholder
from holdfast.redact.credentials import find_credentials
from holdfast.redact.known import is_plain, is_public, named_secrets
from holdfast.redact.likeness import is_drawn
from holdfast.redact.shapes import find_shapes

VALUES_MAX = 64
"""The most values of one file."""

_MIN_CHARS = 8
_MAX_CHARS = 4096
_DRAWN_MIN_CHARS = 20
_NAME_MAX_CHARS = 256
_TOLD_MAX_CHARS = 64
_DEPTH_MAX = 8
_LINES_MAX = 4096

_PAIR = re.compile(
    r"[ \t]*(?:export[ \t]+|-[ \t]+)?(?P<key>[^\s=#;]{1,256}?)[ \t]*(?:=|:[ \t])[ \t]*(?P<value>\S.*)"
)
_QUOTED = re.compile(r"""(?P<mark>["'])(?P<value>.*?)(?<!\\)(?P=mark)""")
_COMMENT = re.compile(r"(?<=\S)[ \t]+#.*")
_NETRC = re.compile(r"(?:^|\s)(?P<key>password|account)\s+(?P<value>\S+)")
_PASSWORD_LIST = re.compile(r"(?:(?:\\.|[^:\\]){0,256}:){4}(?P<value>.+)")
_USER_TOKEN = re.compile(r"://(?P<value>[^\s:@/]{16,512})@")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WHOLE_NAMES = re.compile(r"(?:.*_)?(?:pass|pw|auth|client_key_data)")
"""In such a file, these are names of secrets too."""
_WIDE_NAMES = re.compile(
    r".*(?:token|secret|passw|pwd|credential|(?:api|access|private|signing|encryption)_?key).*"
)
_HARMLESS_NAMES = re.compile(
    r".*certificate.*|.*(?:_|^)(?:id|ids|url|uri|host|name|user|username|email|region|type|path|file|dir|version|release|commit|sha"
    r"|hash|digest|checksum|fingerprint|expiry|expires|expiration|ttl|limit|length|algorithm|image|tag|zone)"
)
_BINARY = (".p12", ".pfx", ".jks", ".keystore")
"""Endings of files that have no text."""
_TOKEN = re.compile(r"[A-Za-z0-9+/_=.~!@$%^&*-]+")


def secrets_in(name: str, text: str) -> list[tuple[str, str]]:
    """Return the secret values with their keys, at most 64.

    Args:
        name: The name of the file, which says how it is written.
        text: Its content.
    """
    found: dict[str, str] = {}
    for key, value in _pairs(name.casefold(), text):
        for secret in _secrets_of(key, value):
            if _MIN_CHARS <= len(secret) <= _MAX_CHARS:
                found.setdefault(secret, _told(key))
        if len(found) >= VALUES_MAX:
            break
    return [(key, value) for value, key in list(found.items())[:VALUES_MAX]]


def _pairs(name: str, text: str) -> Iterator[tuple[str, str]]:
    if name.endswith(_BINARY):
        return
    if name in (".netrc", "_netrc"):
        yield from (("password", each["value"]) for each in _NETRC.finditer(text))
        return
    if name == ".pgpass":
        lines = (_PASSWORD_LIST.fullmatch(line) for line in text.splitlines() if not line.startswith("#"))
        yield from (("password", re.sub(r"\\(.)", r"\1", each["value"])) for each in lines if each)
        return
    if text.lstrip()[:1] in ("{", "["):
        try:
            yield from _leaves("", json.loads(text), 0)
            return
        except (ValueError, RecursionError):
            pass
    lines_of_text = text.splitlines()
    filled = [line.strip() for line in lines_of_text if line.strip()]
    if name.endswith((".key", ".pem")) and len(filled) == 1:
        yield "key", filled[0]
        return
    for line in lines_of_text[:_LINES_MAX]:
        pair = _PAIR.match(line) if not line.lstrip().startswith(("#", ";")) else None
        if pair is None:
            yield "", line.strip()
        else:
            yield pair["key"], _bare(pair["value"])


def _bare(value: str) -> str:
    """Return a value without its quotation marks or the comment after it."""
    quoted = _QUOTED.match(value)
    return quoted["value"] if quoted else _COMMENT.sub("", value).strip()


def _leaves(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEPTH_MAX:
        return
    match value:
        case str():
            yield key, value
        case dict():
            for name, each in value.items():
                yield from _leaves(name, each, depth + 1)
        case list():
            for each in value:
                yield from _leaves(key, each, depth + 1)


def _secrets_of(key: str, value: str) -> Iterator[str]:
    """Yield what is secret of a value: all of it, or the password in its address."""
    value = value.strip()
    if len(value) < _MIN_CHARS:
        return
    if _is_secret(_simple(key), value):
        yield value
        if _simple(key).endswith("auth"):
            yield from _password_of(value)
    for span in (*find_shapes(value[:_MAX_CHARS]), *find_credentials(value[:_MAX_CHARS])):
        secret = value[span.start : span.end]
        if span.kind != "card" and not is_plain(secret) and not secret.startswith("-----"):
            yield from (secret, unquote(secret))
    if (token := _USER_TOKEN.search(value)) and not is_placeholder(token["value"]):
        yield token["value"]


def _is_secret(name: str, value: str) -> bool:
    if not name or is_public(name) or is_plain(value) or is_placeholder(value):
        return False
    if named_secrets({name: value}) or _WHOLE_NAMES.fullmatch(name):
        return True
    if not _TOKEN.fullmatch(value) or _HARMLESS_NAMES.fullmatch(name):
        return False
    if _WIDE_NAMES.fullmatch(name) and any(map(str.isdigit, value)) and any(map(str.isalpha, value)):
        return True
    return len(value) >= _DRAWN_MIN_CHARS and is_drawn(value)


def _simple(key: str) -> str:
    """Return the last part of a key in small letters, with `_` between its words: `//registry/:_authToken`."""
    last = re.split(r"[/:.]", key[-_NAME_MAX_CHARS:].strip("\"'"))[-1]
    return _HUMP.sub("_", last).replace("-", "_").lower().strip("_")


def _told(key: str) -> str:
    """Return the key as a message may show it."""
    return re.sub(r"[^\w.-]+_*", "_", key).strip("_")[-_TOLD_MAX_CHARS:]


def _password_of(value: str) -> Iterator[str]:
    """Yield the password in the Base64 of `user:password`."""
    try:
        plain = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return
    yield plain.partition(":")[2]
