"""The gates are a list of one kind of thing: each is awaited, sees what is asked, and says what it says as data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from holdfast.protocol.commands import NOBODY
from holdfast.protocol.failures import Failure
from holdfast.protocol.settings import changed
from holdfast.protocol.tools import Allowed, Asked, Decision, Refused, Resource
from holdfast.tools.background import Background
from holdfast.tools.dispatcher import Dispatcher
from holdfast.tools.fencing import Fences
from holdfast.tools.files import ReadFile, WriteFile
from holdfast.tools.gates import Case, Gate, Verdict, gates_of, refused
from holdfast.tools.own import OwnPlaces
from holdfast.tools.registry import Registry
from holdfast.tools.survey import Surveyor
from tests.tools.conftest import Bench

GatedBench = Callable[..., Bench]


@pytest.fixture
async def gated(tmp_path: Path) -> AsyncIterator[GatedBench]:
    """A bench with one more gate before the approval, as hooks and taint will stand there."""
    made: list[Bench] = []

    def make(gate: Gate, **settings: object) -> Bench:
        *before, approval = gates_of(lambda _: "", OwnPlaces())
        workspace = tmp_path / f"ws{len(made)}"
        workspace.mkdir()
        registry = Registry([ReadFile(OwnPlaces()), WriteFile(OwnPlaces())])
        bench = Bench(
            workspace,
            Dispatcher(
                registry,
                Background(),
                (*before, gate, approval),
                Surveyor(OwnPlaces()),
                Fences(OwnPlaces(), "/"),
            ),
        )
        bench.settings = changed(bench.settings, **settings)
        made.append(bench)
        return bench

    yield make
    for bench in made:
        await bench.tools.aclose()


def saying(*decisions: Decision) -> Callable[[Case], object]:
    async def judge(case: Case) -> Verdict:
        return msgspec.structs.replace(case, decisions=(*case.decisions, *decisions))

    return judge


def test_the_order_of_the_gates_is_data_and_all_that_there_are_are_quick() -> None:
    gates = gates_of(lambda _: "", OwnPlaces())
    assert [gate.name for gate in gates] == [
        "schema",
        "secrets",
        "policy",
        "plan",
        "taint",
        "rate",
        "approval",
    ]
    assert {gate.pace for gate in gates} == {"quick"}


@pytest.mark.requirement("C3")
async def test_a_gate_sees_what_is_asked_and_what_the_gates_before_it_found(gated: GatedBench) -> None:
    seen: list[Case] = []

    async def look(case: Case) -> Verdict:
        seen.append(case)
        return case

    bench = gated(Gate("look", look, "quick"))
    (bench.workspace / "link").symlink_to("a.txt")
    await bench.admit_text("read_file", '{ "path" : "link" }', is_approved=True)
    (case,) = seen
    assert (case.spec.name, case.values, case.canonical) == ("read_file", {"path": "link"}, '{"path":"link"}')
    assert case.resources == (Resource("read", f"{bench.workspace}/a.txt"),)
    assert case.proposal == bench.proposal("read_file", '{ "path" : "link" }', is_approved=True)
    assert (case.proposal.principal, case.proposal.labels, case.proposal.grants) == (NOBODY, (), ())
    assert [decision.by for decision in case.decisions] == ["policy"]
    with pytest.raises(AttributeError):
        case.canonical = "{}"  # type: ignore[misc]


@pytest.mark.requirement("C3", "C12")
async def test_a_gate_after_the_policy_can_tighten_and_not_loosen(gated: GatedBench) -> None:
    asks = Decision("taint", "ask", "tainted", "It read the web.")
    asking = await gated(Gate("taint", saying(asks), "quick")).admit("read_file", path="a")
    assert isinstance(asking, Asked)
    assert asking.decisions[-1] == asks
    allows = Decision("hook", "allow")
    bench = gated(Gate("hook", saying(allows), "quick"), autonomy="read-only")
    assert isinstance(await bench.admit("write_file", path="a", content=""), Refused)
    bench = gated(Gate("hook", saying(allows), "quick"))
    assert isinstance(await bench.admit("write_file", path="holdfast.toml", content=""), Asked)


@pytest.mark.requirement("H5")
async def test_a_yes_answers_every_gate_that_asks_and_none_that_refuses(gated: GatedBench) -> None:
    bench = gated(Gate("taint", saying(Decision("taint", "ask")), "quick"))
    approved = await bench.admit("write_file", is_approved=True, path="holdfast.toml", content="")
    assert isinstance(approved, Allowed)
    assert [(d.by, d.verdict) for d in approved.decisions][-2:] == [("taint", "ask"), ("approval", "allow")]

    async def refuse(case: Case) -> Verdict:
        return refused("hook", Failure("policy_denied", "Not today."))

    bench = gated(Gate("hook", refuse, "quick"))
    assert isinstance(await bench.admit("write_file", is_approved=True, path="a", content=""), Refused)


async def test_what_one_gate_refuses_the_next_never_sees(gated: GatedBench) -> None:
    async def stumble(case: Case) -> Verdict:
        raise AssertionError("it was asked")

    bench = gated(Gate("hook", stumble, "quick"))
    for arguments in ({"pth": "a"}, {"path": ".env"}):
        answer = await bench.admit("read_file", **arguments)
        assert isinstance(answer, Refused)
        assert "AssertionError" not in answer.failure.message


@pytest.mark.requirement("C3", "L1")
async def test_a_call_over_which_a_gate_stumbles_is_refused_and_says_nothing_of_its_values(
    gated: GatedBench,
) -> None:
    async def stumble(case: Case) -> Verdict:
        raise ValueError(f"what is {case.canonical}?")

    answer = await gated(Gate("hook", stumble, "quick")).admit("read_file", path="mine")
    assert isinstance(answer, Refused)
    assert answer.failure.code == "policy_denied"
    assert "ValueError" in answer.failure.message
    assert "stumble" in answer.failure.detail
    assert "mine" not in answer.failure.message + answer.failure.detail


@pytest.mark.requirement("L1")
async def test_a_slow_gate_makes_judging_slow_and_is_waited_for_and_can_be_stopped(gated: GatedBench) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def wait(case: Case) -> Verdict:
        asked.set()
        await answer.wait()
        return case

    bench = gated(Gate("hook", wait, "slow"))
    assert not bench.tools.is_quick("read_file", bench.settings)
    judging = asyncio.create_task(bench.admit("read_file", path="a"))
    await asked.wait()
    judging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await judging
    judging = asyncio.create_task(bench.admit("read_file", path="a"))
    answer.set()
    assert isinstance(await judging, Allowed)


@pytest.mark.requirement("L1")
async def test_without_a_slow_gate_only_what_has_a_plan_is_judged_slowly(gated: GatedBench) -> None:
    bench = gated(Gate("hook", saying(), "quick"))
    assert bench.tools.is_quick("read_file", bench.settings)
    assert bench.tools.is_quick("unknown", bench.settings)
    assert not bench.tools.is_quick("write_file", bench.settings)


@pytest.mark.requirement("H4")
async def test_a_yes_adds_no_host(bench: Bench) -> None:
    bench.settings = changed(bench.settings, allowed_hosts=("a.example",))
    for command in ("curl https://b.example/", "curl https://a.example/ https://b.example/"):
        refused_call = await bench.admit("shell", is_approved=True, command=command)
        assert isinstance(refused_call, Refused)
        assert "b.example:443 is not listed" in refused_call.failure.message
