"""A workspace, the real tools over it, and short ways to call them."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.policy.protected import Own
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import ToolCall
from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import CallContext, Proposal, RawResult
from holdfast.protocol.settings import settings_with
from holdfast.protocol.tools import Admission, Allowed, Expectation, Refused
from holdfast.redact import make_redactor
from holdfast.testing.clock import never_over
from holdfast.tools.builtin import make_tools
from holdfast.tools.dispatcher import Dispatcher

SESSION = f"s{os.getpid()}"
"""Told apart from that of another test run on this machine: processes are ended by the call's key."""
KEY = f"{SESSION}:t1.c1"


class Bench:
    """One workspace and its tools; `admit` and `run` take plain keyword arguments."""

    def __init__(self, workspace: Path, tools: Dispatcher) -> None:
        self.workspace = workspace
        self.tools = tools
        self.heard: list[str] = []
        self.capabilities: tuple[object, ...] = (make_redactor(),)
        self.settings = settings_with(ModelFacts("script", "x"), str(workspace), autonomy="full")

    def context(self, **changes: Any) -> CallContext:
        plain = CallContext(
            SESSION,
            "t1.c1",
            KEY,
            str(self.workspace),
            600.0,
            600.0,
            self.heard.append,
            never_over,
            capabilities=self.capabilities,
        )
        return msgspec.structs.replace(plain, **changes)

    async def admit(self, name: str, /, is_approved: bool = False, **arguments: Any) -> Admission:
        return await self.admit_text(name, json.dumps(arguments), is_approved)

    async def admit_text(self, name: str, text: str, is_approved: bool = False) -> Admission:
        return await self.tools.admit(self.proposal(name, text, is_approved))

    async def probe(self, name: str, expectation: Expectation) -> Probed:
        return await self.tools.probe(self.proposal(name), expectation)

    def proposal(self, name: str, text: str = "{}", is_approved: bool = False) -> Proposal:
        call = ToolCall(ref="r", name=name, arguments=text, call_id="t1.c1")
        return Proposal(call, SESSION, self.settings, is_approved=is_approved)

    async def run(self, name: str, /, **arguments: Any) -> RawResult:
        return await self.tools.run(name, json.dumps(arguments), self.context())

    async def call(self, name: str, /, **arguments: Any) -> RawResult:
        """Admit, then run what was admitted, as the engine does; a refusal comes out as an error."""
        admission = await self.admit(name, **arguments)
        if isinstance(admission, Refused):
            return RawResult("error", admission.failure.message)
        assert isinstance(admission, Allowed)
        context = self.context(policy=self.settings.policy, walled=admission.walled)
        return await self.tools.run(name, admission.arguments, context)


@pytest.fixture
def own() -> Own:
    """What is Holdfast's own: nothing, unless a test says otherwise."""
    return Own()


@pytest.fixture
async def bench(tmp_path: Path, own: Own) -> AsyncIterator[Bench]:
    workspace = tmp_path / "ws"
    workspace.mkdir(exist_ok=True)
    tools = make_tools(secret_in=lambda text: "HUNTER" if "hunter2-hunter2" in text else "", own=own)
    yield Bench(workspace, tools)
    await tools.aclose()


@pytest.fixture
async def bench_of(tmp_path: Path) -> AsyncIterator[Callable[..., Bench]]:
    """A bench with further tools."""
    benches: list[Bench] = []

    def make(*extra: Any) -> Bench:
        workspace = tmp_path / f"ws{len(benches)}"
        workspace.mkdir()
        benches.append(Bench(workspace, make_tools(extra, secret_in=lambda _: "", own=Own())))
        return benches[-1]

    yield make
    for bench in benches:
        await bench.tools.aclose()
