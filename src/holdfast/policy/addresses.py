"""Judges the address that a connection goes to, whatever name led to it.

`urls` judged the name before. A name can resolve to anything, and to something else each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address

from holdfast.protocol.allowed import Address, address_of, allowed_host_of, is_special

_MAPPED = int(IPv6Address("::ffff:0:0")) >> 32
_NAT64 = int(IPv6Address("64:ff9b::")) >> 32
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
"""The third quarter of an address whose last quarter is an IPv4 address."""
_MASK_32 = (1 << 32) - 1


def address_problem(address: str, port: int, allowed: Sequence[str]) -> str:
    """Return why nothing may connect to an address, as the end of a sentence about it; empty if it may be.

    Args:
        address: As the resolver gives it.
        port: Where the connection goes.
        allowed: The hosts that the call may reach. Only an entry with exactly this address and port allows a special
            one.
    """
    found = address_of(address)
    if found is None:
        return "is not an address"
    plain = _plain(found)
    if not any(map(is_special, (plain, *_inside(plain)))) or _is_listed(plain, port, allowed):
        return ""
    return "is a private or special address, which has to be listed itself, with its port"


def refusal(name: str, addresses: Iterable[str], port: int, allowed: Sequence[str]) -> str:
    """Return why nothing may connect to what a name leads to, as a sentence; empty if it may be.

    One address that is refused refuses all: somebody wants to get in between.
    """
    for address in addresses:
        if problem := address_problem(address, port, allowed):
            leads = "" if name == address else f" leads to {address}, which"
            return f"{name}{leads} {problem}."
    return ""


def _plain(address: Address) -> Address:
    """Return the IPv4 address that the machine or a NAT64 gateway makes of an address; else the address."""
    if isinstance(address, IPv6Address) and int(address) >> 32 in (_MAPPED, _NAT64):
        return IPv4Address(int(address) & _MASK_32)
    return address


def _inside(address: Address) -> Iterator[IPv4Address]:
    """Return the address of a tunnel's end in an address that looks like any other. `is_special` knows the prefixes
    of all other tunnels.
    """
    if isinstance(address, IPv6Address) and int(address) >> 32 & _MASK_32 in _ISATAP:
        yield IPv4Address(int(address) & _MASK_32)


def _is_listed(address: Address, port: int, allowed: Sequence[str]) -> bool:
    entries = map(allowed_host_of, allowed)
    return any(not each.is_wild and (each.host, each.port) == (str(address), port) for each in entries)
