"""After a crash each tool looks itself for what it planned, whatever that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.tools import (
    Allowed,
    ChildSession,
    Expectation,
    FileChange,
    Files,
    IdempotencyKey,
    ToolSpec,
)
from holdfast.tools.function import tool
from tests.tools.conftest import KEY, Bench
from tests.tools.test_files import sha256


class Pay:
    """A tool whose effect is known outside by the key of its call."""

    spec = ToolSpec("pay", "Pay.", {"type": "object"}, effect="network", on_interrupt="probe")

    def __init__(self) -> None:
        self.paid: set[str] = set()

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> Expectation | None:
        return IdempotencyKey(context.key)

    async def probe(self, expectation: Expectation, context: CallContext) -> Probed:
        match expectation:
            case IdempotencyKey(key=key):
                return Probed("yes" if key in self.paid else "no")
            case _:
                raise ValueError("never planned")

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        self.paid.add(context.key)
        return RawResult("ok", "paid")


@pytest.mark.requirement("H1")
async def test_a_tool_plans_and_looks_for_what_only_it_understands(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(Pay())
    allowed = await bench.admit("pay")
    assert isinstance(allowed, Allowed)
    assert allowed.expects == IdempotencyKey(KEY)
    assert await bench.probe("pay", allowed.expects) == Probed("no")
    await bench.run("pay")
    assert await bench.probe("pay", allowed.expects) == Probed("yes")


@pytest.mark.requirement("H1")
async def test_who_cannot_look_has_seen_nothing(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(Pay())
    assert await bench.probe("pay", ChildSession("s")) == Probed("unknown"), "its probe raises"
    assert await bench.probe("gone", IdempotencyKey("k")) == Probed("unknown")
    for name in ("write_file", "shell", "read_file"):
        assert await bench.probe(name, IdempotencyKey("k")) == Probed("unknown")


@pytest.mark.requirement("H1", "L2")
@pytest.mark.parametrize(
    ("first", "second", "happened"),
    [("new", "new", "yes"), ("old", "old", "no"), ("new", "old", "unknown"), ("else", "new", "unknown")],
)
async def test_several_files_are_all_as_planned_or_all_as_before_or_nobody_knows(
    bench_of: Callable[..., Bench], first: str, second: str, happened: str
) -> None:
    planned = Files(tuple(FileChange(name, sha256("old"), sha256("new")) for name in ("a", "b")))

    @tool(effect="write", on_interrupt="probe", plan=lambda: planned)
    def both() -> None:
        """Write both."""

    bench = bench_of(both)
    (bench.workspace / "a").write_text(first)
    (bench.workspace / "b").write_text(second)
    allowed = await bench.admit("both")
    assert isinstance(allowed, Allowed)
    assert allowed.expects == planned
    assert (await bench.probe("both", planned)).happened == happened
    assert (await bench.probe("write_file", planned)).happened == happened


async def test_a_plan_of_nothing_tells_nothing(bench_of: Callable[..., Bench]) -> None:
    assert (await bench_of().probe("write_file", Files(()))).happened == "unknown"
