"""Puts secrets into requests in place of what stands for them, and hides them in what comes back: functions of heads
and bytes, and nothing else.

A command in a sandbox has a mark instead of a secret. Only the proxy knows both.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from holdfast.policy.urls import may_have_secret, target_of
from holdfast.protocol.allowed import host_is_allowed
from holdfast.protocol.traffic import StandIn
from holdfast.redact import spellings_of
from holdfast.sandbox.proxy_heads import Head
from holdfast.sandbox.whole import asking_for_all, same

_BASIC = "basic "
_NO_PASSWORDS = ("", "x-oauth-basic")
"""What programs send as the password when the secret is the user."""
_ALONE = re.compile(r'(?:[A-Za-z][A-Za-z-]{0,30}[ \t]+)?(?:[A-Za-z][A-Za-z_-]{0,30}=)?("?)\{\}\1')
"""What may be around a mark: the name of a scheme, and the name of a parameter."""


class Misplaced(Exception):
    """A request has a mark where no secret goes. The message is a sentence."""

    def __init__(self, stand_in: StandIn) -> None:
        super().__init__(
            f"The placeholder of the secret {stand_in.name} only goes into the header {stand_in.header}, after a "
            f"scheme or as a password, to {', '.join(stand_in.hosts)}, over https or where the port is listed."
        )


def with_secrets(head: Head, stand_ins: Sequence[StandIn]) -> tuple[Head, tuple[StandIn, ...]]:
    """Return the head with secrets in place of their marks, and all secrets of the host that it goes to: the host may
    know their values, from this request or from another one.

    To the host of a secret, a header of its name goes on only with its mark, also without TLS. Else a program could
    use somebody else's account there.

    Raises:
        Misplaced: a mark is somewhere else, or something else is beside it.
    """
    target = target_of(head.url)
    at_home = [each for each in stand_ins if host_is_allowed(target.host, target.port, each.hosts)]
    going = [each for each in at_home if not head.is_tunnel and may_have_secret(each.hosts, head.url)]
    headers = list[tuple[str, str]]()
    for name, value in head.headers:
        mine = [each for each in at_home if same(each.header) == same(name)]
        filled = next(
            (_filled(value, each) for each in mine if each in going and each.mark in _plain(value)), ""
        )
        if filled:
            headers.append((name, filled))
        elif not mine or any(each.mark in _plain(value) for each in mine):
            headers.append((name, value))
    text = "\n".join(
        [head.url, head.path, head.host, *(f"{name}: {_plain(value)}" for name, value in headers)]
    )
    for each in stand_ins:
        if each.mark in text:
            raise Misplaced(each)
    if at_home and not head.is_tunnel:
        headers = [*asking_for_all(headers)]
    return replace(head, headers=tuple(headers)), tuple(at_home)


def _filled(value: str, stand_in: StandIn) -> str:
    """Return what a header says with the secret; empty if anything is in it that could count instead."""
    plain, mark = _plain(value), stand_in.mark
    if plain != value:
        user, _, password = plain.partition(":")
        if plain.count(mark) != 1 or (password != mark and (user != mark or password not in _NO_PASSWORDS)):
            return ""
        return value[: len(_BASIC)] + base64.b64encode(plain.replace(mark, stand_in.value).encode()).decode()
    is_alone = _ALONE.fullmatch(value.replace(mark, "{}", 1)) is not None
    return value.replace(mark, stand_in.value) if is_alone or value == stand_in.said else ""


def _plain(value: str) -> str:
    """Return what a header says: of Basic authentication, the user with the password."""
    if not value.lower().startswith(_BASIC):
        return value
    try:
        return base64.b64decode(value[len(_BASIC) :].strip(), validate=True).decode()
    except ValueError:
        return value


class Hiding:
    """Hides values in bytes, plain or in a common encoding, under as many stars.

    What is shown depends on whole values alone. So who chooses the bytes learns nothing of a part of a value: not
    from what is hidden, and not from what comes late.

    Args:
        values: What nobody may see.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._forms = tuple(form for each in values for form in spellings_of(each))
        self._kept = max((form.most for form in self._forms), default=1) - 1
        self._tail = b""
        """What is not shown yet."""
        self._hidden = 0
        """So many bytes of it belong to a value that begins before it."""

    def take(self, data: bytes) -> bytes:
        """Return what can be shown now: all but the last bytes, in which a value may begin."""
        text = self._tail + data
        return self._shown(text, max(len(text) - self._kept, 0))

    def rest(self) -> bytes:
        """Return what was held back: the text has ended. If it only broke off, nobody may see the rest."""
        return self._shown(self._tail, len(self._tail))

    def whole(self, text: bytes) -> bytes:
        """Return a whole text as it may be shown."""
        return self._stars(text, len(text))[0]

    def _shown(self, text: bytes, end: int) -> bytes:
        shown, hidden = self._stars(text, end, self._hidden)
        self._tail, self._hidden = text[end:], hidden
        return shown

    def _stars(self, text: bytes, end: int, hidden: int = 0) -> tuple[bytes, int]:
        """Return the text up to an end, and how many bytes behind it belong to what begins before."""
        places, chars = [(0, hidden)], text.decode("latin-1")
        for form in self._forms:
            if any(gate in chars for gate in form.gates[-1]):
                places += [place for place in form.places(chars) if place[0] < end]
        shown = bytearray(text[:end])
        for begin, stop in places:
            shown[begin:stop] = b"*" * (min(stop, end) - begin)
        return bytes(shown), max(max(stop for _, stop in places) - end, 0)


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
