"""The gate of addresses: judges a URL by its text alone.

It judges names. What a name resolves to is judged where the connection is made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from holdfast.protocol.allowed import (
    address_of,
    allowed_host_of,
    embeds,
    host_is_allowed,
    is_local_name,
    is_special,
    plain_host,
    split_port,
)
from holdfast.redact import make_redactor

URL_MAX_CHARS = 8_000
_SHOWN_CHARS = 200
_WEB = re.compile(r"(https?)://([^/?#]*)(?:[/?#].*)?", re.IGNORECASE | re.ASCII)
_PORTS = {"http": 80, "https": 443}
_DECODINGS = 3
"""How often an address may be decoded on its way. A line break that appears after any of them is refused."""
_redact = make_redactor()


class Target(NamedTuple):
    """Where a URL leads: what it allows nobody to misread."""

    host: str
    """In its usual form: lower case, without the root's dot."""
    port: int


class Misread(ValueError):
    """Programs may read the URL in different ways, or it carries what it should not. The message says what, as the
    end of a sentence.
    """


def target_of(url: str) -> Target:
    """Return where a URL leads.

    Raises:
        Misread: it is refused whatever host it names.
    """
    if len(url) > URL_MAX_CHARS:
        raise Misread(f"is longer than {URL_MAX_CHARS:,} characters")
    if not url.isprintable() or " " in url:
        raise Misread("contains a control character or a space")
    if "\\" in url:
        raise Misread("contains a backslash")
    found = _WEB.fullmatch(url)
    if found is None:
        raise Misread("is not an http:// or https:// address")
    scheme, authority = found[1].lower(), found[2]
    if "@" in authority:
        raise Misread("contains the name of a user")
    if not authority.isascii():
        raise Misread("has a host with other characters than ASCII")
    host, port = split_port(authority)
    plain = plain_host(host)
    if plain is None or port is None:
        raise Misread("has a host or port in an unusual spelling")
    _check_content(url)
    return Target(plain, port or _PORTS[scheme])


def _check_content(url: str) -> None:
    """Raises `Misread` for what is hidden in the text."""
    text = url
    for _ in range(_DECODINGS):
        if _redact(text) != text:
            raise Misread("contains what looks like a secret")
        decoded = unquote(text)
        if decoded == text:
            return
        text = decoded
        if any(char < " " or char in "\x7f\x85\u2028\u2029" for char in text):
            raise Misread("contains an encoded line break or control character")


def may_have_secret(hosts: Sequence[str], url: str) -> bool:
    """Return whether a secret for these hosts may be sent to a URL. Without TLS, only to a host that is listed with
    its port, which says that this is wanted.

    Raises:
        Misread: nothing may be sent there.
    """
    target, is_plain = target_of(url), url[:6].lower() != "https:"
    named = [host for host in hosts if not is_plain or allowed_host_of(host).port]
    return host_is_allowed(target.host, target.port, named)


def url_problem(url: str, allowed: Sequence[str]) -> tuple[str, str] | None:
    """Return the rule that denies a URL, and why as a sentence; None if it is allowed.

    Args:
        url: As the call names it.
        allowed: The hosts of `[network] allow`.
    """
    found = judged(url, allowed)
    return None if isinstance(found, Target) else found


def judged(url: str, allowed: Sequence[str]) -> Target | tuple[str, str]:
    """Return where a URL leads, if it is allowed; else what `url_problem` returns."""
    try:
        target = target_of(url)
    except Misread as error:
        shown = (
            _redact(url) if len(url) <= _SHOWN_CHARS else "The address"
        )  # a part of a secret is not masked
        return "url", f"{shown} {error}."
    if is_local_name(target.host):
        return (
            "egress",
            f"{target.host} is this machine. Name its address, which has to be listed with its port.",
        )
    address = address_of(target.host)
    if address is not None and embeds(address):
        return "egress", f"{target.host} is an address inside another one."
    if host_is_allowed(target.host, target.port, allowed):
        return target
    how = " with this port" if address is not None and is_special(address) else ""
    where = f"{target.host}:{target.port}"
    return (
        "egress",
        f"{where} is not listed in [network] allow{how}. Work without it, or tell the user that it is missing.",
    )
