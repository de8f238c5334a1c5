"""Puts secrets into requests in place of what stands for them, and hides them in what comes back: functions of heads
and bytes, and nothing else.

A command in a sandbox has a mark instead of a secret. Only the proxy knows both.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from holdfast.policy.urls import may_have_secret
from holdfast.protocol.traffic import StandIn
from holdfast.redact import KNOWN_SECRET_MIN_CHARS, forms_of
from holdfast.sandbox.proxy_heads import Head

_BASIC = "basic "
_DROPPED = frozenset({"accept-encoding", "range", "if-range"})
"""With these, a response could bring a secret back compressed or in pieces, where nobody finds it."""


class Misplaced(Exception):
    """A request has a mark where no secret goes. The message is a sentence."""

    def __init__(self, stand_in: StandIn) -> None:
        super().__init__(
            f"The placeholder of the secret {stand_in.name} only goes into the header {stand_in.header}, to "
            f"{', '.join(stand_in.hosts)}, over https or where the port is listed."
        )


def with_secrets(head: Head, stand_ins: Sequence[StandIn]) -> tuple[Head, tuple[StandIn, ...]]:
    """Return the head with secrets in place of their marks, and these secrets. On the way to the hosts of a secret,
    a header of its name goes on only with its mark: else a program could use somebody else's account there.

    Raises:
        Misplaced: a mark is somewhere else.
    """
    going = [each for each in stand_ins if not head.is_tunnel and may_have_secret(each.hosts, head.url)]
    headers = list[tuple[str, str]]()
    used = list[StandIn]()
    for name, value in head.headers:
        mine = [each for each in going if each.header.lower() == name.lower()]
        meant = [each for each in mine if each.mark in _plain(value)]
        if mine and not meant:
            continue
        headers.append((name, value))
        used += meant
    for each in used:
        headers = [(name, _filled(name, value, each)) for name, value in headers]
    text = "\n".join([head.url, head.path, head.host, *map(": ".join, headers)])
    for each in stand_ins:
        if each.mark in text:
            raise Misplaced(each)
    if used:
        headers = [(name, value) for name, value in headers if name.lower() not in _DROPPED]
    return replace(head, headers=tuple(headers)), tuple(used)


def _filled(name: str, value: str, stand_in: StandIn) -> str:
    if name.lower() != stand_in.header.lower():
        return value
    plain = _plain(value)
    filled = plain.replace(stand_in.mark, stand_in.value)
    if plain == value:
        return filled
    return value[: len(_BASIC)] + base64.b64encode(filled.encode()).decode()


def _plain(value: str) -> str:
    """Return what a header says: of Basic authentication, the user with the password."""
    if not value.lower().startswith(_BASIC):
        return value
    try:
        return base64.b64decode(value[len(_BASIC) :].strip(), validate=True).decode()
    except ValueError:
        return value


class Hiding:
    """Hides values in bytes that come in pieces, plain or in a common encoding, under as many stars.

    Args:
        values: What nobody may see.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._forms = sorted(
            {form.encode() for each in values for form in forms_of(each)}, key=len, reverse=True
        )
        self._pattern = re.compile(b"|".join(map(re.escape, self._forms)) or rb"(?!)")
        self._held = b""

    def take(self, data: bytes) -> bytes:
        """Return what can be shown now. What may be the beginning of a value is held back."""
        text = self._pattern.sub(lambda found: b"*" * len(found[0]), self._held + data)
        begins = [begin for form in self._forms if (begin := _begun(text, form)) >= 0]
        cut = min(begins, default=len(text))
        self._held = text[cut:]
        return text[:cut]

    def rest(self) -> bytes:
        """Return what was held back. Nothing follows: the beginning of a value is hidden too, unless it may as well
        be a word.
        """
        held, self._held = self._held, b""
        return b"*" * len(held) if len(held) >= KNOWN_SECRET_MIN_CHARS else held


class Finding:
    """Finds marks in bytes that come in pieces."""

    def __init__(self, stand_ins: Sequence[StandIn]) -> None:
        self._stand_ins = stand_ins
        self._tail = b""
        self._kept = max((len(each.mark) for each in stand_ins), default=1) - 1

    def check(self, data: bytes) -> None:
        """Raises `Misplaced` if a mark ends in these bytes."""
        if not self._stand_ins:
            return
        text = self._tail + data
        for each in self._stand_ins:
            if each.mark.encode() in text:
                raise Misplaced(each)
        self._tail = text[-self._kept :]


def _begun(text: bytes, form: bytes) -> int:
    """Return where a form may begin at the end of a text; -1 if it does not."""
    at = text.find(form[:1], max(len(text) - len(form) + 1, 0))
    while at >= 0 and not form.startswith(text[at:]):
        at = text.find(form[:1], at + 1)
    return at
