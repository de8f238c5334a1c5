"""The search engines that a configuration lists, each by its name, or with another address: NAME or NAME=ADDRESS."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import msgspec

from holdfast.protocol.allowed import WrongEntry, address_of, is_special, plain_host, split_port

WEB_SEARCH = "web_search"

ADDRESSES: Mapping[str, str] = {
    "exa": "https://api.exa.ai",
    "tavily": "https://api.tavily.com",
    "duckduckgo": "https://html.duckduckgo.com",
    "searxng": "",
}
"""The usual address of each engine; empty if everybody has their own."""
KEY_VARIABLES: Mapping[str, str] = {"exa": "EXA_API_KEY", "tavily": "TAVILY_API_KEY"}
"""The variable with the key of each engine that needs one."""
_ADDRESS = re.compile(r"(https?)://([^/?#\s@\\]+)((?:/[\w.~-]+)*)/?", re.ASCII)
_PORTS = {"http": 80, "https": 443}


class SearchEngine(msgspec.Struct, frozen=True):
    """One entry of the list."""

    name: str
    address: str
    """Where its requests begin, without a slash at the end."""
    host: str
    """As a list of allowed hosts names it, with its port."""


def engine_of(text: str) -> SearchEngine:
    """Read one entry.

    Raises:
        WrongEntry: it is not one, or its address could give away what is searched for.
    """
    name, equals, given = text.partition("=")
    if name not in ADDRESSES:
        raise WrongEntry(f"is not a search engine; {_nearest(name)}")
    address = given if equals else ADDRESSES[name]
    if not address:
        raise WrongEntry(f"needs an address; the nearest one is {name}=https://HOST")
    found = _ADDRESS.fullmatch(address)
    host, port = split_port(found[2].lower()) if found else ("", None)
    plain = plain_host(host)
    if found is None or plain is None or port is None:
        raise WrongEntry(f"has no plain http:// or https:// address; the nearest one is {name}=https://HOST")
    literal = address_of(plain)
    is_near = literal is not None and is_special(literal)
    if found[1] == "http" and not is_near:
        raise WrongEntry(f"would send queries in the clear; the nearest one is {name}=https://{found[2]}")
    shown = f"[{plain}]" if ":" in plain else plain
    return SearchEngine(name, f"{found[1]}://{found[2]}{found[3]}", f"{shown}:{port or _PORTS[found[1]]}")


def _nearest(name: str) -> str:
    if re.match(r"https?://", name):
        return f"the nearest one is searxng={name}"
    near = get_close_matches(name.strip().casefold(), ADDRESSES, n=1)
    return f"did you mean {near[0]}?" if near else f"they are {', '.join(ADDRESSES)}"


def engines_are_within(new: Sequence[str], old: Sequence[str]) -> bool:
    """Return whether a list of engines has no other than another one has."""
    return set(new) <= set(old)


def common_engines(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """Return the engines that both lists have, in the order of the first."""
    return tuple([text for text in one if text in other])
