"""The taint rules: which calls could send something out, and which of them a person must decide about.

They look at what a session has read, and at what a tool declares. Nothing that allows a call lifts them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from holdfast.policy.urls import Misread, target_of
from holdfast.protocol.tools import Decision, ToolSpec
from holdfast.protocol.trust import Mark, Taint

BY = "taint"
SEARCH = "search"
"""What an approval of a web search covers: further searches."""
_SEARCHING = frozenset({"web_search"})
_ASKING = frozenset({"web_fetch", "http_request"})
"""Built-in tools that only ask for an address, if their request has no body."""
_READ_METHODS = frozenset({"GET", "HEAD"})
_WEB_PORTS = (80, 443)

What = Literal["query", "body", "command"]
"""What a call could send. `query`: an address, or words for the configured search engine. `body`: anything."""


class Sending(msgspec.Struct, frozen=True):
    """What a call could send, and where to if an approval may cover more than the call."""

    what: What
    covers: str = ""
    """As in `Decision.covers`."""


def objection(
    spec: ToolSpec,
    values: Mapping[str, Any],
    urls: Sequence[str],
    decisions: Sequence[Decision],
    taint: Taint,
    covered: Collection[str],
    *,
    is_proved: bool = False,
) -> Decision | None:
    """Return why a person must decide about a call; None if nobody has to.

    Args:
        spec: The tool.
        values: The arguments, after they passed the schema.
        urls: Every text in its declared addresses.
        decisions: Those of the gates before.
        taint: What the session has read.
        covered: What approvals of this run cover.
        is_proved: The policy proved that the command is local, whatever allowed it.
    """
    if taint.untrusted is None:
        return None
    sending = sends(spec, values, urls, is_proved=is_proved)
    if sending is None or (sending.what == "query" and taint.private is None):
        return None
    if sending.covers and sending.covers in covered:
        return None
    # What another gate asks about too is asked each time, so a wider approval would promise too much.
    covers = "" if any(each.verdict == "ask" for each in decisions) else sending.covers
    why = f"{_SENDS[sending.what].format(tool=spec.name)} {_read(taint)}{_wider(covers)}"
    return Decision(BY, "ask", f"{BY}:{sending.what}", why, covers)


def sends(
    spec: ToolSpec, values: Mapping[str, Any], urls: Sequence[str], *, is_proved: bool
) -> Sending | None:
    """Return what a call could send, as far as its tool declares; None if nothing."""
    kinds = spec.kinds.values()
    if spec.effect in ("ask", "tell"):
        return None
    if spec.effect == "exec":
        if spec.source == "builtin" and (is_proved or "command" not in kinds):
            return None
        return Sending("command")
    if spec.effect != "network" and "url" not in kinds:
        return None
    if spec.source == "builtin" and spec.name in _SEARCHING:
        return Sending("query", SEARCH)
    return Sending("query", _host_of(urls)) if _only_asks(spec, values) else Sending("body")


def _only_asks(spec: ToolSpec, values: Mapping[str, Any]) -> bool:
    """Return whether a request has nothing to send beside its address."""
    if spec.source == "builtin" and spec.name in _ASKING:
        return str(values.get("method", "GET")).upper() in _READ_METHODS and not values.get("body")
    if "url" not in spec.kinds.values() or spec.effect not in ("network", "read"):
        return False
    return not any(_has_text(value) for name, value in values.items() if spec.kinds.get(name) != "url")


def _has_text(value: object) -> bool:
    match value:
        case bool() | int() | float() | None:
            return False
        case list():
            return any(map(_has_text, value))
    return True


def _host_of(urls: Sequence[str]) -> str:
    """Return the one host that the addresses name, as an approval covers it; empty if they name several."""
    hosts = set(_hosts(urls))
    return f"host:{hosts.pop()}" if len(hosts) == 1 else ""


def _hosts(urls: Sequence[str]) -> Iterator[str]:
    for url in urls:
        try:
            target = target_of(url)
        except Misread:  # the policy denies it
            yield ""
        else:
            yield target.host if target.port in _WEB_PORTS else f"{target.host}:{target.port}"


_SENDS: Mapping[What, str] = {
    "query": "{tool} sends its address or query out,",
    "body": "{tool} could send anything out,",
    "command": "{tool} may run something that sends data out,",
}


def _read(taint: Taint) -> str:
    flags = [("untrusted text", taint.untrusted), ("private data", taint.private)]
    read = [f"{what} ({_named(mark)})" for what, mark in flags if mark is not None]
    return f"and this session has read {' and '.join(read)}."


def _named(mark: Mark) -> str:
    return f"{mark.origin}, record {mark.seq}" if mark.origin else f"record {mark.seq}"


def _wider(covers: str) -> str:
    if covers == SEARCH:
        return " A yes also covers the further searches of this run."
    return (
        f" A yes also covers further reads from {covers.removeprefix('host:')} in this run." if covers else ""
    )
