"""The lists of what is allowed: paths of the workspace, and hosts. This reads and compares them.

A list is within another one if it allows nothing that the other does not. `policy` applies them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

Address = IPv4Address | IPv6Address

EVERYWHERE = "."
READ_ONLY = ":ro"
WEB_PORTS = (80, 443)
"""The ports of an entry that names none."""
_ACCESS = re.compile(r"(?::[rwxo]{1,3})+\Z", re.IGNORECASE)
_READS = re.compile(r":(?:r|ro|rx)\Z", re.IGNORECASE)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)", re.ASCII)
_HOST_MAX_CHARS = 253
_OF_KERNEL = ("proc", "sys", "dev")
_PATH_MAX_CHARS = 4_096


class WrongEntry(ValueError):
    """The text is not an entry of such a list. The message says why, and names the nearest one."""


# --- paths ----------------------------------------------------------------------------------------


class AllowedPath(NamedTuple):
    """A path of the workspace with everything under it."""

    path: str
    """Relative, without `.` in it; `.` for the workspace."""
    is_read_only: bool

    @property
    def text(self) -> str:
        return self.path + READ_ONLY * self.is_read_only


def allowed_path_of(text: str) -> AllowedPath:
    """Read one entry.

    Raises:
        WrongEntry: it is not a path inside the workspace.
    """
    path = text.removesuffix(READ_ONLY)
    names = [name for name in path.split("/") if name not in ("", ".")]
    near = "/".join(name for name in names if name not in ("..", "~")) or EVERYWHERE
    near += READ_ONLY if text.endswith(READ_ONLY) else ""
    if not path:
        raise WrongEntry(f"is empty; the nearest one is {near}")
    if path.startswith(("/", "~")) or ".." in names:
        raise WrongEntry(
            "does not lie in the workspace, where tools work (choose another one with -w DIR);"
            f" the nearest one is {near}"
        )
    if len(path) > _PATH_MAX_CHARS or not path.isprintable():
        raise WrongEntry("is not the path of a file")
    return AllowedPath("/".join(names) or EVERYWHERE, text.endswith(READ_ONLY))


def listed_path_of(text: str) -> AllowedPath:
    """Read one entry of a configuration: no pattern, and nothing else than `:ro` after the path.

    Raises:
        WrongEntry: it is not a path inside the workspace, or surely not the one that was meant.
    """
    path = text.removesuffix(READ_ONLY)
    plain = _ACCESS.sub("", path)
    kept = [*itertools.takewhile(lambda name: "*" not in name and "?" not in name, plain.split("/"))]
    is_read_only = text.endswith(READ_ONLY) or _READS.search(text) is not None
    near = "/".join(name for name in kept if name not in ("", ".", "..", "~")) or EVERYWHERE
    near += READ_ONLY if is_read_only else ""
    if plain != path:
        raise WrongEntry(f"ends with something else than {READ_ONLY}; the nearest one is {near}")
    if len(kept) < len(plain.split("/")):
        raise WrongEntry(
            f"is a pattern, and an entry is a file, or a folder with everything in it; the nearest one is {near}"
        )
    return allowed_path_of(text)


def folder_of(text: str) -> str:
    """Read one entry of what commands may use beside the workspace: an absolute path, or one that begins with `~/`.

    Raises:
        WrongEntry: it is not such a path, or is all of the machine or of a home.
    """
    names = [name for name in text.split("/") if name not in ("", ".")]
    near = "/" + "/".join(name for name in names if name not in ("..", "~"))
    if len(text) > _PATH_MAX_CHARS or not text.isprintable():
        raise WrongEntry("is not the path of a file")
    if not (text == "~" or text.startswith(("/", "~/"))) or ".." in names:
        nearest = f"; the nearest one is {near}" if near != "/" else ""
        raise WrongEntry(f"must begin with / or ~/ and have no .. in it{nearest}")
    if len(names) < (2 if text.startswith("~") else 1):
        raise WrongEntry("is everything; name the folders that commands need, like ~/.pyenv")
    if is_of_kernel("/" + "/".join(names)):
        raise WrongEntry("is a way to the kernel, of which a sandbox shows no more than a program needs")
    return text


def is_of_kernel(path: str) -> bool:
    """Return whether an absolute path lies in a folder of the kernel. Memory that processes share is plain files."""
    names = path.split("/")[1:3]
    return names[0] in _OF_KERNEL and names != ["dev", "shm"]


def access_to(path: str, allowed: Sequence[AllowedPath]) -> int:
    """Return what a list allows at a path: 0 nothing, 1 reading, 2 writing. The entry nearest to it counts."""
    above = [
        each
        for each in allowed
        if each.path == EVERYWHERE or f"{path}/".startswith(f"{each.path.rstrip('/')}/")
    ]
    if not above:
        return 0
    nearest = max(above, key=lambda each: (each.path != EVERYWHERE and len(each.path), each.is_read_only))
    return 1 if nearest.is_read_only else 2


def paths_are_within(new: Sequence[str], old: Sequence[str]) -> bool:
    """Return whether a list of paths allows no more than another one."""
    return all(ours <= theirs for _, ours, theirs in _compared(new, old))


def common_paths(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """Return the list that allows what both lists allow."""
    return tuple(
        AllowedPath(path, min(accesses) == 1).text
        for path, *accesses in _compared(one, other)
        if min(accesses)
    )


def _compared(one: Sequence[str], other: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return what two lists allow at each path that one of them names. Between these, nothing changes."""
    left, right = [allowed_path_of(text) for text in one], [allowed_path_of(text) for text in other]
    paths = dict.fromkeys(each.path for each in (*left, *right))
    return [(path, access_to(path, left), access_to(path, right)) for path in paths]


# --- hosts ----------------------------------------------------------------------------------------


class AllowedHost(NamedTuple):
    """A host, or all hosts under a name."""

    host: str
    """In lower case; an address in its usual form."""
    port: int
    """0: those of the web."""
    is_wild: bool
    """Whether it stands for every name under the host, and not for the host."""


def allowed_host_of(text: str) -> AllowedHost:
    """Read one entry: HOST, HOST:PORT, *.HOST, ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT.

    Raises:
        WrongEntry: it has another form, or is a private address without its port.
    """
    plain = text.strip().casefold()
    bare = re.sub(r"^[a-z]+://", "", plain).partition("/")[0].rpartition("@")[2]
    if bare != text.casefold():
        raise WrongEntry(f"is not a host{_near(bare)}")
    found = _split(bare)
    if found is None:
        raise WrongEntry(f"is not HOST, HOST:PORT or *.HOST{_near(*_meant(bare))}")
    return found if not (problem := _problem_of(found)) else _refuse(problem)


def _refuse(problem: str) -> AllowedHost:
    raise WrongEntry(problem)


def _problem_of(entry: AllowedHost) -> str:
    if is_local_name(entry.host):
        return f"names this machine; the nearest one is 127.0.0.1:{entry.port or 8080}"
    address = address_of(entry.host)
    if address is not None and embeds(address):
        return "is an address inside another one; name the address itself"
    if address is not None and is_special(address) and not entry.port:
        shown = f"[{address}]" if address.version == 6 else str(address)
        return f"is a private or special address, which needs its port; the nearest one is {shown}:80"
    return ""


def _near(*meant: str) -> str:
    for each in meant:
        found = _split(each)
        if found is not None and not _problem_of(found):
            return f"; the nearest one is {each}"
    return "; write it like api.github.com, *.example.net or 127.0.0.1:8080"


def _meant(wrong: str) -> Iterator[str]:
    """Yield what somebody may have meant: a host without its `*`, its port or what is before its last `*`, an address
    of IPv6 in brackets, and the form of a name that goes over the network."""
    yield wrong.removeprefix("*").removeprefix(".")
    yield f"[{wrong}]:80"
    yield wrong.rpartition(":")[0]
    yield f"*.{wrong.rpartition('*.')[2]}"
    if len(wrong) <= _HOST_MAX_CHARS:
        with suppress(UnicodeError):
            yield wrong.encode("idna").decode()


def _split(text: str) -> AllowedHost | None:
    is_wild = text.startswith("*.")
    host, port = split_port(text[2:] if is_wild else text)
    host = plain_host(host) or ""
    if not host or port is None or (is_wild and address_of(host) is not None):
        return None
    return AllowedHost(host, port, is_wild)


def split_port(authority: str) -> tuple[str, int | None]:
    """Return the host of HOST:PORT, and the port; 0 if it names none, None if it is not a port."""
    end = authority.rfind("]") + 1
    host, colon, digits = authority[:end], *authority[end:].partition(":")[1:]
    if not end:
        host, colon, digits = authority.partition(":")
    elif authority[end : end + 1] not in ("", ":"):
        return authority, None
    if not colon:
        return host, 0
    is_port = re.fullmatch(r"[1-9][0-9]{0,4}", digits, re.ASCII) and int(digits) <= 65_535
    return host, int(digits) if is_port else None


def plain_host(host: str) -> str | None:
    """Return the usual form of a host as it is written in an address; None if it is not written as one."""
    if host.startswith("["):
        return _address_text(host[1:-1]) if host.endswith("]") and ":" in host else None
    name = host.removesuffix(".").casefold()
    if not name or not host.isascii() or len(name) > _HOST_MAX_CHARS:
        return None
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):  # a resolver reads it as an address, whatever its form
        return _address_text(name) if host == name else None
    return name if all(_LABEL.fullmatch(label) for label in labels) else None


def _address_text(text: str) -> str | None:
    found = address_of(text) if "%" not in text else None
    return str(found) if found is not None else None


def address_of(host: str) -> Address | None:
    """Return the address that a host is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_local_name(host: str) -> bool:
    """Return whether a name stands for this machine."""
    return host == "localhost" or host.endswith(".localhost")


_EMBEDDING = (
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "2002::/16",
    "2001::/32",
    "::ffff:0:0/96",
    "::/96",
    "fec0::/10",
)


def embeds(address: Address) -> bool:
    """Return whether an address leads to another one that is written inside it."""
    if isinstance(address, IPv4Address) or int(address) < 2:  # `::` and `::1` are only themselves
        return False
    return any(int(address) >> (128 - bits) == prefix for prefix, bits in _PREFIXES)


def is_special(address: Address) -> bool:
    """Return whether an address does not belong to one host of the internet: private, loopback, shared, multicast."""
    if not address.is_global or address.is_multicast or address.is_reserved or embeds(address):
        return True
    if isinstance(address, IPv4Address):
        return any(address in network for network in _SPECIAL_4)
    return address not in _UNICAST_6 or any(address in network for network in _SPECIAL_6)


def _prefix(text: str) -> tuple[int, int]:
    network, _, bits = text.partition("/")
    return int(IPv6Address(network)) >> (128 - int(bits)), int(bits)


_PREFIXES = tuple(map(_prefix, _EMBEDDING))

# The library's own tables differ between versions of Python, so these ranges are named here too.
_SPECIAL_4 = tuple(
    map(
        IPv4Network,
        ("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
         "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
         "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    )
)  # fmt: skip
_UNICAST_6 = IPv6Network("2000::/3")
"""All that is assigned to hosts of the internet."""
_SPECIAL_6 = tuple(
    map(
        IPv6Network,
        ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    )
)


def host_is_allowed(host: str, port: int, allowed: Sequence[str]) -> bool:
    """Return whether a list allows a host, in its usual form, at a port."""
    asked = AllowedHost(host, port, is_wild=False)
    return any(_covers(allowed_host_of(text), asked) for text in allowed)


def hosts_are_within(new: Sequence[str], old: Sequence[str]) -> bool:
    """Return whether a list of hosts allows no more than another one."""
    theirs = [allowed_host_of(text) for text in old]
    return all(any(_covers(entry, allowed_host_of(text)) for entry in theirs) for text in new)


def common_hosts(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """Return the entries of two lists that the other list allows too."""
    kept = [text for text in one if hosts_are_within([text], other)]
    return tuple(dict.fromkeys([*kept, *(text for text in other if hosts_are_within([text], one))]))


def _covers(entry: AllowedHost, other: AllowedHost) -> bool:
    is_port = other.port == entry.port or (not entry.port and other.port in WEB_PORTS)
    if not entry.is_wild:
        return is_port and not other.is_wild and other.host == entry.host
    is_under = other.host.endswith(f".{entry.host}")
    return is_port and (is_under or (other.is_wild and other.host == entry.host))
