"""The gate of addresses: hosts that are listed, and spellings that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.policy.rules import judge, strictest
from holdfast.policy.urls import url_problem
from holdfast.protocol.allowed import (
    WrongEntry,
    allowed_host_of,
    common_hosts,
    hosts_are_within,
)
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.settings import settings_with
from holdfast.protocol.tools import ToolSpec
from holdfast.tools.facts import facts_of
from holdfast.tools.own import OwnPlaces
from tests.growth import grows_in_line

ALLOWED = (
    "api.github.com", "packages.example.net", "*.files.example.net", "odd.example.net:8443", "127.0.0.1:8080",
    "[::1]:8080", "10.0.0.5:80", "93.184.215.14", "[2606:4700::1111]",
)  # fmt: skip


def rule(url: str, allowed: tuple[str, ...] = ALLOWED) -> str:
    found = url_problem(url, allowed)
    return found[0] if found else ""


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize(
    "url",
    [
        "https://api.github.com", "http://api.github.com/x?y=1#z", "HTTPS://API.GitHub.COM./a", "https://api.github.com:443/",
        "http://api.github.com:443/", "https://a.files.example.net/", "https://a.b.files.example.net/",
        "https://odd.example.net:8443/", "http://127.0.0.1:8080/x", "http://[::1]:8080/",
        "http://[0:0:0:0:0:0:0:1]:8080/", "http://10.0.0.5/", "https://93.184.215.14/",
        "https://[2606:4700:0:0:0:0:0:1111]/", "https://api.github.com/%41%20b", "https://api.github.com/日本",
    ],
)  # fmt: skip
def test_a_listed_host_is_allowed_in_every_usual_spelling(url: str) -> None:
    assert rule(url) == ""


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/", "https://api.github.com.evil.example/", "https://xapi.github.com/",
        "https://files.example.net/", "https://xfiles.example.net/", "https://api.github.com:8080/",
        "https://odd.example.net/", "http://127.0.0.1/", "http://127.0.0.1:8081/", "http://127.0.0.2:8080/",
        "http://localhost:8080/", "http://a.localhost:8080/", "http://[::1]/", "http://10.0.0.5:8080/",
        "http://169.254.169.254/latest", "http://100.64.0.1/", "http://[::ffff:127.0.0.1]:8080/",
        "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://[::127.0.0.1]/", "http://0.0.0.0/",
        "http://[fe80::1]/", "http://224.0.0.1/", "https://93.184.215.14:8443/",
    ],
)  # fmt: skip
def test_a_host_that_is_not_listed_is_denied(url: str) -> None:
    assert rule(url) == "egress"
    assert rule(url, ()) == "egress"


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize(
    "url",
    [
        "https://packages.example.net\\@evil.example/", "https://evil\\@packages.example.net/", "https://a@api.github.com/",
        "https://a:b@api.github.com/", "https://api.github.com@evil.example/", "https://@api.github.com/",
        "https://api.github.com\t/", "https://api.github.com/\n", "https://api.github.com/a b", " https://api.github.com/",
        "https://api.github.com/\u200b", "https://api.github.com/\u202e", "https://\u0430pi.github.com/",
        "https://api。github.com/", "https://①27.0.0.1:8080/", "https://api.github.com/%0d%0aHost:x",
        "https://api.github.com/%0A", "https://api.github.com/%250a", "https://api.github.com/%25250a",
        "https://api.github.com/%E2%80%A8", "https://api.github.com/%00", "ftp://api.github.com/", "file:///etc/passwd",
        "javascript:alert(1)", "//api.github.com/", "api.github.com", "https:/api.github.com/", "https:///api.github.com",
        "https://", "", "http://0251.0376.0251.0376/", "http://2130706433/", "http://127.1:8080/", "http://0x7f000001/",
        "http://0177.0.0.1/", "http://127.0.0.1.:8080/", "http://[::1%25eth0]:8080/", "http://[::1", "http://::1/",
        "http://[127.0.0.1]:8080/", "https://api.github.com:/", "https://api.github.com:0/", "https://api.github.com:99999/",
        "https://api.github.com:4e2/", "https://api.github.com:443:443/", "https://api%2egithub.com/", "https://a..b/",
        "https://-a.example/", "https://api.github.com../", "https://api.github.com/?k=ghp_" + "a1B2c3D4e5F6" * 3,
        "https://api.github.com/" + "a" * 9_000, "https://api.github.com/?k=%67hp_" + "a1B2c3D4e5F6" * 3,
    ],
)  # fmt: skip
def test_a_url_that_programs_may_misread_or_that_carries_a_secret_is_denied(url: str) -> None:
    assert rule(url) == "url"


def test_no_reason_shows_the_secret_that_a_url_carries() -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    found = url_problem(f"https://api.github.com/?k={token}", ALLOWED)
    assert found is not None
    assert token not in found[1]


EXAMPLES = "write it like api.github.com, *.example.net or 127.0.0.1:8080"


@pytest.mark.requirement("L9")
@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("https://api.github.com/x", "api.github.com"), ("API.github.com/x", "api.github.com"),
        ("https://u@api.github.com:8443", "api.github.com:8443"), ("*", EXAMPLES), ("*.", EXAMPLES),
        ("a b", EXAMPLES), ("*.*.x", "*.x"), ("a.*.x", "*.x"), ("*api.github.com", "api.github.com"), ("", EXAMPLES),
        ("api.github.com:http", "api.github.com"), ("api.github.com:99999", "api.github.com"),
        ("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80"), ("[::1]", "[::1]:80"),
        ("10.0.0.1", "10.0.0.1:80"), ("localhost:3000", "127.0.0.1:3000"), ("0177.0.0.1:80", EXAMPLES),
        ("[::ffff:127.0.0.1]:80", "name the address itself"), ("bücher.example", "xn--bcher-kva.example"),
        ("*.127.0.0.1:80", "127.0.0.1:80"), ("ü" * 9_000, EXAMPLES),
    ],
)  # fmt: skip
def test_a_wrong_host_is_an_error_with_the_nearest_one(text: str, near: str) -> None:
    with pytest.raises(WrongEntry) as raised:
        allowed_host_of(text)
    assert str(raised.value).endswith(near)


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("effect", ["read", "write", "exec", "network", "ask"])
def test_every_address_that_a_tool_declares_is_judged_whatever_the_tool_is_and_the_autonomy(
    effect: Any,
) -> None:
    spec = ToolSpec("mcp__x", "", {}, effect=effect, kinds={"where": "url"})

    def verdict(where: object) -> tuple[str, str]:
        settings = settings_with(ModelFacts("x", "x"), "/", autonomy="full", allowed_hosts=ALLOWED)
        decision = strictest(judge(facts_of(spec, {"where": where}, settings, OwnPlaces())))
        return decision.verdict, decision.rule

    assert verdict("https://api.github.com/")[0] == "allow"
    assert verdict(["https://api.github.com/", ["https://evil.example/"]]) == ("deny", "egress")


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    ("tool", "source", "autonomy", "verdict"),
    [
        ("web_fetch", "builtin", "supervised", "allow"),
        ("web_fetch", "builtin", "read-only", "deny"),
        ("web_fetch", "foreign", "supervised", "ask"),
        ("http_request", "builtin", "supervised", "ask"),
    ],
)
def test_only_reading_a_listed_host_with_the_tool_that_does_nothing_else_needs_no_approval(
    tool: str, source: str, autonomy: Any, verdict: str
) -> None:
    spec = ToolSpec(tool, "", {}, effect="network", source=source, kinds={"where": "url"})
    settings = settings_with(ModelFacts("x", "x"), "/", autonomy=autonomy, allowed_hosts=ALLOWED)
    for where, expected in (("https://api.github.com/", verdict), ("https://evil.example/", "deny")):
        found = facts_of(spec, {"where": where}, settings, OwnPlaces())
        assert strictest(judge(found)).verdict == expected


HOSTS = st.lists(
    st.sampled_from(
        ["a.example", "*.a.example", "*.b.a.example", "a.example:80", "b.a.example", "10.0.0.1:80"]
    ),
    max_size=4,
)


@given(HOSTS, HOSTS)
def test_what_two_lists_of_hosts_have_in_common_is_within_each(one: list[str], other: list[str]) -> None:
    common = common_hosts(one, other)
    assert hosts_are_within(common, one)
    assert hosts_are_within(common, other)
    for url in (
        "http://a.example",
        "https://a.example",
        "http://b.a.example",
        "http://c.b.a.example",
        "http://10.0.0.1",
    ):
        is_allowed = [rule(url, tuple(texts)) == "" for texts in (one, other, common)]
        assert is_allowed[2] == (is_allowed[0] and is_allowed[1])


@given(st.text(max_size=60) | st.text(max_size=60).map("https://".__add__))
def test_any_text_has_a_verdict(url: str) -> None:
    assert rule(url) in ("", "url", "egress")


@pytest.mark.parametrize("piece", ["a.", "%", "%25", "@", "[", ":", "/", "-", "1.", "%e2"])
def test_the_cost_of_a_url_grows_with_its_length(piece: str) -> None:
    def judge(chars: int) -> None:
        for _ in range(20):
            url_problem("https://" + piece * (chars // len(piece)), ALLOWED)

    assert grows_in_line(judge, 900)
