"""Finds credentials by their place in a protocol: headers, users in URLs and on command lines; and card numbers.

`assigned` finds values after a name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from holdfast.redact.assigned import is_placeholder
from holdfast.redact.gates import unlike, widened
from holdfast.redact.named import COMMAND_CHARS, HINT_REACH_CHARS, PLACES, Place
from holdfast.redact.spans import Span, lowered, places

_AUTHORIZATION = re.compile(
    r"""(?i)authorization\\?["']?\s{0,4}[:=,]\s{0,4}\\?["']?"""
    r"""(?:(?:bearer|basic|token|apikey|digest|aws4-hmac-sha256)\s{1,4})?(?P<s>[^\s"'\\,<>]{6,})"""
)


def _no_mark(letters: str, depth: int) -> str:
    return rf"""[^\s"'\\,<>\x5b{letters}][^\s"'\\,<>]{{{max(5 - depth, 0)}}}"""


_AUTHORIZATION_SIGN = (
    r"""(?i)authorization\\?["']?\s{0,4}[:=,]\s{0,4}\\?["']?(?:[A-Za-z0-9-]{5,20}\s{1,4})?"""
    + unlike(["bearer"], _no_mark, lambda _: "")
)
"""Without the marks of earlier redactions, whose value is the word `Bearer`."""
_BEARER = re.compile(r"\b[Bb](?:earer|EARER)\s{1,4}(?P<s>[\w.~+/=-]{16,})")
_API_HEADER = re.compile(
    r"""(?i)x-[a-z-]{0,30}(?:key|token|auth)\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?(?P<s>[^\s"'\\,<>\x5b][^\s"'\\,<>]{7,})"""
)
_URL_USER = re.compile(r"://[^\s/?#:@\"'<>]{0,256}:(?P<s>[^\s/?#\"'<>\x5b][^\s/?#\"'<>]{2,511})@(?=[\w\[])")
_CURL_USER = re.compile(
    r"""\s(?:-u|--user|--proxy-user)(?:[ \t]{1,4}|=)?"""
    r"""(?P<s>(?=[^\s]*:)(?:"[^"\n]{0,256}"|'[^'\n]{0,256}'|[^\s"'])+)"""
)
_USER_SIGN = r"""\s(?:-u|--user|--proxy-user)(?:[ \t]{1,4}|=)?(?:"[^\n]|'[^\n]|[^\s"'])"""
_INTERPOLATED = re.compile(r"(?i)\$[a-z0-9_{(]|[<{%\[]|x{3,}|\*{3,}|\.\.\.")
_CARD = re.compile(r"[2-6]\d{3}(?:[ -]?\d){8,15}(?![\w-]|\.\d)")
_CARD_NUMBER = re.compile(r"4\d{12}(?:\d{3}){0,2}|(?:5[1-5]|2[2-7]|35|6[045])\d{14}|3[47]\d{13}|3[068]\d{12}")


def find_credentials(
    text: str, begin: int = 0, end: int = sys.maxsize, seen: int = sys.maxsize
) -> Iterator[Span]:
    """Yield headers, users in URLs and on command lines, and card numbers that begin in that part of whole lines or
    words. Up to `seen`, the text shows what they are.
    """
    part = lowered(text[begin:seen])
    hinted: dict[Place, list[str]] = {}
    for hint, place in _HINTS:
        if hint in part:
            hinted.setdefault(place, []).append(hint)
    for place, hints in hinted.items():
        if place.command and place.command not in text[max(begin - COMMAND_CHARS, 0) : end]:
            continue
        for match in _matches(text, part, begin, seen, place, hints):
            if match.start() >= end:
                break
            if place.is_real(match["s"]):
                yield Span(*match.span("s"), place.kind)
    for found in _CARD.finditer(text, begin, seen):
        if found.start() >= end:
            break
        before = text[found.start() - 1 : found.start()]
        if not (before.isalnum() or before in ("_", ".", "+", "-")) and _is_card(found[0]):
            yield Span(*found.span(), "card")


def find_headers(text: str) -> Iterator[Span]:
    """Yield the values of Authorization headers."""
    for at in places(text, "uthorization"):
        match = _AUTHORIZATION.match(text, at - 1) if at else None
        if match and _is_header_value(match["s"]):
            yield Span(*match.span("s"), "authorization")


def _matches(
    text: str, part: str, begin: int, seen: int, place: Place, hints: list[str]
) -> Iterator[re.Match[str]]:
    """Yield what may be such a place, in order. Each may go on after the part that shows it."""
    if place.before is not None:
        done = begin
        for at in places(part, hints[0]):
            start = begin + at - place.before
            if start >= done and (match := place.pattern.match(text, start)):
                done = match.end()
                yield match
        return
    # Every match begins in the line of a hint, or right before it.
    first = begin + max(part.rfind("\n", 0, min(map(part.find, hints))), 0)
    last = text.find("\n", begin + max(map(part.rfind, hints)) + HINT_REACH_CHARS, seen)
    for found in place.pattern.finditer(text, first, last if last >= 0 else seen):
        if match := place.pattern.match(text, found.start()):
            yield match


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
    Place(
        ("uthorization",),
        _AUTHORIZATION,
        "authorization",
        _is_header_value,
        sign=_AUTHORIZATION_SIGN,
        before=1,
    ),
    Place(("earer",), _BEARER, "authorization", _is_header_value, before=1),
    Place(("x-",), _API_HEADER, "authorization", _is_header_value, before=0),
    Place(("://",), _URL_USER, "url-credentials", _is_user_password, before=0),
    Place(("-u",), _CURL_USER, "password", _is_user_password, sign=_USER_SIGN, command="curl"),
    *PLACES,
)
_HINTS = [(hint, place) for place in _PLACES for hint in place.hints]


def gate_patterns() -> Iterator[str]:
    """What a gate before `find_credentials` looks for."""
    yield from (widened(place.sign or place.pattern.pattern) for place in _PLACES)
    yield f"(?:^|[^A-Za-z0-9_.+-]){widened(_CARD.pattern)}"
