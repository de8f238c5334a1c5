"""Which calls have a network in their sandbox: those that need one, and that a person may answer for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.policy.commands import parsed
from holdfast.policy.reaching import CUT, SANDBOXED, cut_instead, hosts_of
from holdfast.policy.rules import Facts
from holdfast.protocol.fence import Backend
from holdfast.protocol.grants import Grant, permission_of
from holdfast.protocol.settings import Policy, Walls
from holdfast.protocol.tools import APPROVAL, Decision, Offer
from holdfast.protocol.trust import CLEAN, Mark, Taint

HOSTS = ("a.example",)
UNTRUSTED = Taint(untrusted=Mark(4, "web_fetch"))
PERSON = Decision(APPROVAL, "allow")


def facts(
    command: str, tool: str = "shell", *, is_built_in: bool = True, hosts: tuple[str, ...] = HOSTS
) -> Facts:
    return Facts(
        tool,
        "exec",
        "full",
        "/ws",
        is_built_in,
        commands=(parsed(command),),
        policy=Policy(allowed_hosts=hosts),
    )


def test_a_command_that_may_need_it_reaches_the_listed_hosts() -> None:
    assert hosts_of(facts("make"), (), CLEAN) == HOSTS


def test_what_needs_no_network_has_none() -> None:
    assert hosts_of(facts("ls"), (), CLEAN) == ()
    assert hosts_of(facts("make", hosts=()), (), CLEAN) == ()
    assert hosts_of(facts("make", "web_fetch"), (), CLEAN) == ()
    assert hosts_of(replace(facts("make", is_built_in=False), effect="write"), (), CLEAN) == ()
    assert hosts_of(None, (), CLEAN) == ()


def test_what_runs_without_a_question_because_it_has_no_network_has_none() -> None:
    for rule in (SANDBOXED, CUT):
        assert hosts_of(facts("make"), (Decision("policy", "allow", rule), PERSON), CLEAN) == ()


def test_a_function_that_runs_something_or_needs_the_network_reaches_the_listed_hosts() -> None:
    function = facts("make", "deploy", is_built_in=False)
    assert hosts_of(function, (), CLEAN) == HOSTS
    assert hosts_of(function, (), UNTRUSTED) == ()
    assert (
        hosts_of(replace(function, effect="network"), (), UNTRUSTED) == HOSTS
    )  # the gate of taint judged it


@pytest.mark.requirement("C14")
def test_after_untrusted_text_only_what_a_person_approved_has_a_network() -> None:
    asked = Decision("taint", "ask", "taint:command")
    assert hosts_of(facts("make"), (), UNTRUSTED) == ()
    assert hosts_of(facts("make"), (asked, PERSON), UNTRUSTED) == HOSTS
    grant = Grant("g1", "shell", Offer("shell(make)"), until_ms=1, uses=1)
    assert hosts_of(facts("make"), (permission_of(grant),), UNTRUSTED) == ()
    assert hosts_of(facts("make"), (permission_of(grant),), CLEAN) == HOSTS


@pytest.mark.requirement("C14", "H4")
def test_neither_an_approval_nor_a_grant_adds_a_host() -> None:
    grant = permission_of(Grant("g1", "shell", Offer("shell(curl *)"), until_ms=1, uses=1))
    for command in ("curl https://b.example/", "curl $URL", "make"):
        for decision in (PERSON, grant):
            assert hosts_of(facts(command), (decision,), CLEAN) == HOSTS
            assert hosts_of(facts(command, hosts=()), (decision,), CLEAN) == ()


@pytest.mark.requirement("C14", "H4")
@pytest.mark.parametrize(
    ("command", "backend", "others", "is_cut"),
    [
        ("make", "bubblewrap", (), True),
        ("make", "unsafe", (), False),
        ("curl https://a.example/", "bubblewrap", (), False),
        ("make; git push https://a.example/x", "bubblewrap", (), False),
        ("make", "bubblewrap", (Decision("hook", "ask"),), False),
        ("make", "bubblewrap", (Decision("hook", "allow"),), True),
    ],
)
def test_a_sandbox_cuts_a_command_off_where_only_the_taint_would_ask(
    command: str, backend: Backend, others: tuple[Decision, ...], is_cut: bool
) -> None:
    asked, plain = Decision("taint", "ask", "taint:command", "It may send."), facts(command)
    walled = replace(plain, policy=replace(plain.policy, walls=Walls(backend)))
    decision = cut_instead(asked, walled, others)
    assert (decision.verdict, decision.rule) == (("allow", CUT) if is_cut else ("ask", "taint:command"))
    assert cut_instead(asked, replace(walled, tool="run_it", is_built_in=False), others) == asked
    assert cut_instead(asked, None, others) == asked
