"""The gate of connections: special addresses, in every form in which a name may lead to them."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.policy.addresses import address_problem

LISTED = ("example.net", "127.0.0.1:8080", "[::1]:8080", "10.0.0.5:443", "*.files.example.net")


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.1.2.3",
        "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.9", "192.0.2.1", "192.88.99.1",
        "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.2.3",
        "240.0.0.1", "255.255.255.255",
        "::", "::1", "fc00::1", "fd12::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "2001:db8::1", "100::1",
        "2001::1", "2001:2::1", "2001:10::1", "3fff::1", "5f00::1", "4000::1",
        # IPv4 inside of IPv6: mapped, compatible, NAT64, 6to4, Teredo, ISATAP
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::7f00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:c0a8:1::1", "2001:0:7f00:1::1", "2606:4700::5efe:7f00:1",
        "2606:4700::200:5efe:10.0.0.1",
        "not an address", "127.1", "2130706433",
    ],
)  # fmt: skip
def test_nothing_connects_to_a_special_address_however_it_is_written(address: str) -> None:
    assert address_problem(address, 443, LISTED)
    assert address_problem(address, 80, ())


@pytest.mark.parametrize(
    "address",
    ["93.184.215.14", "1.1.1.1", "2606:4700::1111", "2a00:1450:4001::1", "::ffff:93.184.215.14",
     "64:ff9b::5db8:d70e", "2606:4700::5efe:1.1.1.1"],
)  # fmt: skip
def test_an_address_of_the_internet_may_be_connected_to(address: str) -> None:
    assert address_problem(address, 443, LISTED) == ""


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    ("address", "port", "is_allowed"),
    [("127.0.0.1", 8080, True), ("::1", 8080, True), ("10.0.0.5", 443, True), ("::ffff:127.0.0.1", 8080, True),
     ("127.0.0.1", 80, False), ("127.0.0.2", 8080, False), ("10.0.0.5", 80, False), ("::127.0.0.1", 8080, False)],
)  # fmt: skip
def test_a_special_address_may_be_connected_to_if_exactly_it_is_listed_with_its_port(
    address: str, port: int, is_allowed: bool
) -> None:
    assert (address_problem(address, port, LISTED) == "") == is_allowed


@given(st.ip_addresses(v=4))
def test_an_address_is_judged_alike_in_each_form_that_leads_to_it(address: ipaddress.IPv4Address) -> None:
    plain = address_problem(str(address), 443, LISTED)
    for prefix in ("::ffff:", "64:ff9b::"):
        assert address_problem(f"{prefix}{address}", 443, LISTED) == plain
    for other in (f"::{address}", f"2002:{address.packed[:2].hex()}:{address.packed[2:].hex()}::"):
        assert address_problem(other, 443, LISTED)


@given(st.ip_addresses())
def test_only_what_python_calls_global_is_allowed(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if not address_problem(str(address), 443, ()):
        assert address.is_global
        assert not address.is_multicast
