"""Which grant a question offers, and which calls a grant covers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from holdfast.protocol.grants import Grant, grant_in
from holdfast.protocol.ports import Proposal
from holdfast.protocol.rules import PolicyRule
from holdfast.protocol.settings import changed
from holdfast.protocol.tools import Admission, Allowed, Asked, Offer
from holdfast.protocol.trust import Mark, Taint
from holdfast.tools.function import tool
from tests.tools.conftest import Bench

NOW_MS = 1_750_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def supervised(bench: Bench) -> Bench:
    bench.settings = changed(bench.settings, autonomy="supervised")
    return bench


async def asked(bench: Bench, name: str, /, text: str, **changes: Any) -> Asked:
    admission = await bench.tools.admit(proposal(bench, name, text, **changes))
    assert isinstance(admission, Asked)
    return admission


def proposal(bench: Bench, name: str, text: str, **changes: Any) -> Proposal:
    return msgspec.structs.replace(bench.proposal(name, text), now_ms=NOW_MS, **changes)


def command(text: str) -> str:
    return msgspec.json.encode({"command": text}).decode()


def grant_of(bench: Bench, name: str, found: Asked, **changes: Any) -> Grant:
    """The grant that an approval of the question makes."""
    assert found.offer is not None, found.no_offer
    plain = Grant(
        "s-g1",
        name,
        found.offer,
        NOW_MS + HOUR_MS,
        5,
        found.source,
        str(bench.workspace),
        found.reach.programs,
    )
    return msgspec.structs.replace(plain, **changes)


async def judged(bench: Bench, name: str, text: str, *grants: Grant, **changes: Any) -> Admission:
    return await bench.tools.admit(proposal(bench, name, text, grants=grants, **changes))


@pytest.mark.requirement("S6")
async def test_the_narrowest_rule_is_offered_for_a_command(supervised: Bench) -> None:
    found = await asked(supervised, "shell", command("mv 'a b' c"))
    assert found.offer == Offer("shell(mv 'a b' c)")


@pytest.mark.requirement("S6")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("python3 -c 'print(1)'", "runs whatever it is given"),
        ("python3 x.py", "runs whatever it is given"),
        ("bash -c ./x", "runs whatever it is given"),
        ("env mv a b", "runs whatever it is given"),
        ("nice mv a b", "runs whatever it is given"),
        ("find . -delete", "runs whatever it is given"),
        ("mv a b > c", "literal words"),
        ("mv $A b", "literal words"),
        ("mv a* b", "literal words"),
        ("mv a b && mv c d", "a single command"),
        ("mv a b | cat", "a single command"),
        ("mv 'a*' b", "No rule has exactly these words"),
        ("no-such-program a", "not a program"),
        ("mv " + "a" * 600 + " b", "No rule has exactly these words"),
    ],
)
async def test_no_grant_is_offered_for_what_could_run_anything_or_has_no_exact_rule(
    supervised: Bench, text: str, why: str
) -> None:
    found = await asked(supervised, "shell", command(text))
    assert found.offer is None
    assert why in found.no_offer


@pytest.mark.requirement("S6")
async def test_a_plain_name_that_leads_into_the_workspace_is_offered_no_grant(
    supervised: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = supervised.workspace / "mv-here"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{supervised.workspace}:/usr/bin:/bin")
    assert "not a program outside" in (await asked(supervised, "shell", command("mv-here a"))).no_offer
    assert (await asked(supervised, "shell", command("./mv-here a"))).offer == Offer("shell(./mv-here a)")


@pytest.mark.requirement("S6", "C14")
@pytest.mark.parametrize("name", ["shell", "post", "fetch"])
async def test_after_untrusted_text_nothing_that_may_send_is_offered_a_grant_or_covered_by_one(
    supervised: Bench, name: str
) -> None:
    add_tools(supervised)
    supervised.settings = changed(supervised.settings, allowed_hosts=("a.example",))
    texts = {"shell": command("mv a b"), "post": '{"text":"a"}', "fetch": '{"url":"https://a.example/"}'}
    text = texts[name]
    before = await asked(supervised, name, text)
    grant = grant_of(supervised, name, before)
    assert isinstance(await judged(supervised, name, text, grant), Allowed)
    taint = Taint(untrusted=Mark(3, "web_fetch"))
    after = await judged(supervised, name, text, grant, taint=taint)
    assert isinstance(after, Asked)
    assert after.offer is None
    assert after.no_offer


@pytest.mark.requirement("S6")
async def test_a_grant_covers_the_same_words_and_no_others(supervised: Bench) -> None:
    grant = grant_of(supervised, "shell", await asked(supervised, "shell", command("mv a b")))
    for text in ("mv a b", " mv  a 'b'"):
        allowed = await judged(supervised, "shell", command(text), grant)
        assert isinstance(allowed, Allowed), text
        assert grant_in(allowed.decisions) == "s-g1"
    for text in ("mv a b c", "mv a", "mv b a", "mv a b; mv a b", "env mv a b", "mv a $B", "CP a b"):
        assert isinstance(await judged(supervised, "shell", command(text), grant), Asked), text


@pytest.mark.requirement("S6", "H5")
async def test_a_grant_covers_a_program_only_with_the_content_that_was_approved(supervised: Bench) -> None:
    program = supervised.workspace / "run"
    program.write_text("#!/bin/sh\necho one\n")
    program.chmod(0o755)
    grant = grant_of(supervised, "shell", await asked(supervised, "shell", command("./run")))
    assert isinstance(await judged(supervised, "shell", command("./run"), grant), Allowed)
    program.write_text("#!/bin/sh\necho two\n")
    assert isinstance(await judged(supervised, "shell", command("./run"), grant), Asked)


@pytest.mark.requirement("S6")
@pytest.mark.parametrize(
    "changes", [{"workspace": "/elsewhere"}, {"source": "foreign"}, {"until_ms": NOW_MS}, {"uses": 0}]
)
async def test_a_grant_of_elsewhere_or_one_that_has_ended_covers_nothing(
    supervised: Bench, changes: dict[str, Any]
) -> None:
    question = await asked(supervised, "shell", command("mv a b"))
    grant = grant_of(supervised, "shell", question, **changes)
    found = await judged(supervised, "shell", command("mv a b"), grant)
    assert isinstance(found, Asked)
    has_ended = not grant.is_live(NOW_MS)
    assert found.lapsed == ("s-g1" if has_ended else "")


@pytest.mark.requirement("S6")
async def test_a_grant_for_another_tool_covers_exactly_the_same_arguments(supervised: Bench) -> None:
    add_tools(supervised)
    question = await asked(supervised, "deploy", '{"path":"site","to":"prod"}')
    assert question.offer is not None
    assert question.offer.rule == "deploy(site)"
    grant = grant_of(supervised, "deploy", question)
    assert isinstance(await judged(supervised, "deploy", '{"to":"prod","path":"site"}', grant), Allowed)
    for other in ('{"path":"site","to":"test"}', '{"path":"sites","to":"prod"}'):
        assert isinstance(await judged(supervised, "deploy", other, grant), Asked)


@pytest.mark.requirement("S6")
async def test_a_grant_answers_for_the_autonomy_alone(supervised: Bench) -> None:
    text = command("mv a b")
    grant = grant_of(supervised, "shell", await asked(supervised, "shell", text))
    supervised.settings = changed(supervised.settings, ask=(PolicyRule("shell(mv *)"),))
    found = await judged(supervised, "shell", text, grant)
    assert isinstance(found, Asked)
    assert "ask:shell(mv *)" in found.no_offer
    supervised.settings = changed(supervised.settings, ask=(), deny=(PolicyRule("shell(mv *)"),))
    assert not isinstance(await judged(supervised, "shell", text, grant), Allowed | Asked)
    supervised.settings = changed(supervised.settings, deny=(), autonomy="read-only")
    assert not isinstance(await judged(supervised, "shell", text, grant), Allowed | Asked)
    secret = command("mv ~/.ssh/id_rsa b")
    forged = msgspec.structs.replace(grant, offer=Offer("shell(mv ~/.ssh/id_rsa b)"))
    assert not isinstance(await judged(supervised, "shell", secret, forged), Allowed | Asked)


@pytest.mark.requirement("S6")
async def test_a_session_that_started_too_many_calls_asks_and_no_grant_answers(supervised: Bench) -> None:
    text = command("mv a b")
    grant = grant_of(supervised, "shell", await asked(supervised, "shell", text))
    supervised.settings = changed(supervised.settings, actions_per_hour=3)
    assert isinstance(await judged(supervised, "shell", text, grant, started=2), Allowed)
    found = await judged(supervised, "shell", text, grant, started=3)
    assert isinstance(found, Asked)
    assert found.decisions[-1].by == "rate"
    supervised.settings = changed(supervised.settings, autonomy="full")
    listing = await judged(supervised, "list_dir", "{}", started=3)
    assert isinstance(listing, Asked)
    approved = await judged(supervised, "list_dir", "{}", started=3, is_approved=True)
    assert isinstance(approved, Allowed)
    assert isinstance(await judged(supervised, "list_dir", "{}", started=2), Allowed)


def add_tools(bench: Bench) -> None:
    @tool(effect="exec")
    def deploy(path: Annotated[str, "path"], to: str) -> None:
        """Deploy."""

    @tool(effect="network")
    def post(text: str) -> None:
        """Post."""

    @tool(effect="network")
    def fetch(url: Annotated[str, "url"]) -> None:
        """Fetch."""

    bench.tools.add(fetch)
    bench.tools.add(deploy)
    bench.tools.add(post)
