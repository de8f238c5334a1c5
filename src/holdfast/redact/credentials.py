"""Finds credentials by their place in a protocol: headers, users in URLs and on command lines; and card numbers.

`assigned` finds values after a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.redact.assigned import is_placeholder
from holdfast.redact.gates import widened
from holdfast.redact.named import PLACES, Place
from holdfast.redact.spans import Span

_AUTHORIZATION = re.compile(
    r"""(?i)authorization\\?["']?\s{0,4}[:=,]\s{0,4}\\?["']?"""
    r"""(?:(?:bearer|basic|token|apikey|digest|aws4-hmac-sha256)\s{1,4})?(?P<s>[^\s"'\\,<>]{6,})"""
)
_BEARER = re.compile(r"\b[Bb](?:earer|EARER)\s{1,4}(?P<s>[\w.~+/=-]{16,})")
_API_HEADER = re.compile(
    r"""(?i)x-[a-z-]{0,30}(?:key|token|auth)\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?(?P<s>[^\s"'\\,<>]{8,})"""
)
_URL_USER = re.compile(r"://[^\s/?#:@\"'<>]{0,256}:(?P<s>[^\s/?#\"'<>]{3,512})@(?=[\w\[])")
_CURL_USER = re.compile(
    r"""\s(?:-u|--user|--proxy-user)(?:[ \t]{1,4}|=)?"""
    r"""(?P<s>(?=[^\s]*:)(?:"[^"\n]{0,256}"|'[^'\n]{0,256}'|[^\s"'])+)"""
)
_INTERPOLATED = re.compile(r"(?i)\$[a-z0-9_{(]|[<{%\[]|x{3,}|\*{3,}|\.\.\.")
_CARD = re.compile(r"[2-6]\d{3}(?:[ -]?\d){8,15}(?![\w-]|\.\d)")
_CARD_NUMBER = re.compile(r"4\d{12}(?:\d{3}){0,2}|(?:5[1-5]|2[2-7]|35|6[045])\d{14}|3[47]\d{13}|3[068]\d{12}")


def find_credentials(text: str, whole: str = "") -> Iterator[Span]:
    """Yield headers, users in URLs and on command lines, and card numbers.

    `whole`: what the text is a part of.
    """
    for place in _PLACES:
        hinted = whole if whole and place.is_far else text
        if any(hint in hinted for hint in place.hints):
            for match in place.pattern.finditer(text):
                if place.is_real(match["s"]):
                    yield Span(*match.span("s"), place.kind)
    for match in _CARD.finditer(text):
        before = text[match.start() - 1 : match.start()]
        if not (before.isalnum() or before in ("_", ".", "+", "-")) and _is_card(match[0]):
            yield Span(*match.span(), "card")


def _is_header_value(value: str) -> bool:
    return not is_placeholder(value)


def _is_user_password(value: str) -> bool:
    """Return whether `user:password`, or a password alone, has one. The word `password` may well be one."""
    user, _, password = value.replace('"', "").replace("'", "").partition(":")
    word = password or user
    is_interpolated = _INTERPOLATED.match(word) or _INTERPOLATED.match(user)
    return not is_interpolated and any(map(str.isalnum, word))


def _is_card(text: str) -> bool:
    digits = [int(character) for character in text if character.isdigit()]
    if not _CARD_NUMBER.fullmatch("".join(map(str, digits))) or len(set(digits)) < 2:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


_PLACES: tuple[Place, ...] = (
    Place(("uthorization", "UTHORIZATION"), _AUTHORIZATION, "authorization", _is_header_value),
    Place(("earer ", "EARER "), _BEARER, "authorization", _is_header_value),
    Place(
        ("-key", "-Key", "-token", "-Token", "-auth", "-Auth"), _API_HEADER, "authorization", _is_header_value
    ),
    Place(("://",), _URL_USER, "url-credentials", _is_user_password),
    Place(("curl",), _CURL_USER, "password", _is_user_password, is_far=True),
    *PLACES,
)


def gate_patterns() -> Iterator[str]:
    """What a gate before `find_credentials` looks for."""
    yield from (widened(place.pattern.pattern) for place in _PLACES)
    yield f"(?:^|[^A-Za-z0-9_.+-]){widened(_CARD.pattern)}"
