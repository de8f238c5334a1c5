"""Secrets in what models and tools say: nobody sees them, whenever they look."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ProviderUnavailable
from holdfast.policy.protected import Own
from holdfast.protocol.codec import encode_json
from holdfast.protocol.commands import Send, Stop, owner
from holdfast.protocol.events import ModelCallCut, Record
from holdfast.protocol.messages import ModelReply, Part, Reasoning, Text, ToolCall, Usage
from holdfast.protocol.ports import Delta, ModelAttempt, Provider, Store
from holdfast.providers.script import script_from_lines
from holdfast.redact import make_redactor
from holdfast.runtime.controller import SessionController
from holdfast.runtime.ports import Ports
from holdfast.runtime.runner import MAX_SIDE_CHARS
from holdfast.testing.clock import JumpingClock
from holdfast.testing.scenarios import Scenario, World, controller_of, records_of, settings_of
from holdfast.tools.builtin import make_tools
from tests.scenarios.stage import Stage

BODY = "\n".join("".join(chr(97 + (i * i * 7 + i * j + 3 * j) % 26) for i in range(64)) for j in range(12))
KEY = f"-----BEGIN PRIVATE{' '}KEY-----\n{BODY}\n-----END PRIVATE{' '}KEY-----"
SPEECH = f"Here it is: {KEY}\nThat is all of it."
CHUNKS = 100


@pytest.mark.requirement("A4", "H5", "S15")
@pytest.mark.parametrize("after_s", [5, 20.5, 43.25, 60, 95.75, 97.5])
def test_who_joins_in_the_middle_of_a_secret_sees_nothing_of_it(volatile: Stage, after_s: float) -> None:
    scenario = Scenario("secret", [{"text": SPEECH, "chunks": CHUNKS, "delay_s": float(CHUNKS)}])

    async def watch(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            session = await controller.begin(
                "a:b", owner("tester"), Send("Show it.", settings_of(scenario, workspace))
            )
            driving = asyncio.create_task(controller.drive(session))
            await asyncio.sleep(after_s)
            heard: list[str] = []

            async def listen() -> None:
                async with aclosing(controller.follow(session)) as items:
                    async for item in items:
                        if isinstance(item, Delta):
                            heard.append(item.text)

            listening = asyncio.create_task(listen())
            await driving
            listening.cancel()
            await asyncio.wait([listening])
        shown = "".join(heard)
        assert not [at for at in range(len(BODY) - 8) if BODY[at : at + 8] in shown]
        assert shown.endswith("it.")

    volatile.run(watch)


KNOWN = "hush-" + "this-is-the-value-7f3a9c1e"


def knowing(store: Store, clock: JumpingClock, provider: Provider | Exception) -> SessionController:
    """A runtime that knows a secret, with a provider, or with the error that made one impossible."""
    redact = make_redactor([KNOWN])

    async def resolve(_: str) -> Provider:
        if isinstance(provider, Exception):
            raise provider
        return provider

    return SessionController(
        Ports(store, clock, resolve, make_tools((), secret_in=redact.known_in, own=Own()), redact)
    )


@pytest.mark.requirement("A4", "H5", "S15")
@pytest.mark.parametrize("after_s", [20.5, 25.5, 33.5, 45.5])
def test_words_that_were_stopped_in_the_middle_of_a_secret_hold_nothing_of_it(
    volatile: Stage, after_s: float
) -> None:
    text = f"It is the one: {KNOWN} and so on"
    line = {"text": text, "chunks": len(text), "delay_s": float(len(text))}

    async def cut(clock: JumpingClock, store: Store, workspace: Path) -> tuple[str, tuple[Record, ...]]:
        async with knowing(store, clock, script_from_lines([line])) as controller:
            settings = settings_of(Scenario("cut", [line]), workspace)
            session = await controller.begin("a:b", owner("tester"), Send("Say it.", settings))
            driving = asyncio.create_task(controller.drive(session))
            heard: list[str] = []

            async def listen() -> None:
                async with aclosing(controller.follow(session)) as items:
                    async for item in items:
                        if isinstance(item, Delta):
                            heard.append(item.text)

            listening = asyncio.create_task(listen())
            await asyncio.sleep(after_s)
            await controller.submit(session, owner("tester"), Stop())
            await driving
            listening.cancel()
            await asyncio.wait([listening])
            return "".join(heard), await records_of(store, session)

    shown, records = volatile.run(cut)
    said = "".join(each.event.text for each in records if isinstance(each.event, ModelCallCut))
    for words in (shown, said):
        assert words.startswith("It is the one: ")
        assert KNOWN[:8] not in words


class Spoken:
    """A model that gives a reply with these parts."""

    wire = script_from_lines([{"text": "unused"}]).wire

    def __init__(self, *parts: Part) -> None:
        self._parts = parts

    async def respond(self, attempt: ModelAttempt) -> ModelReply:
        return ModelReply(self._parts, Usage(1, 1), model=f"m {KNOWN}")

    async def aclose(self) -> None:
        """Nothing is open."""


async def told(
    clock: JumpingClock, store: Store, workspace: Path, provider: Provider | Exception, **changes: Any
) -> bytes:
    """All records of a run with the provider, as they are stored."""
    async with knowing(store, clock, provider) as controller:
        settings = settings_of(Scenario("told", [], settings=changes), workspace)
        session = await controller.begin("a:b", owner("tester"), Send("Go on.", settings))
        await controller.drive(session)
        return b"\n".join(encode_json(each.event) for each in await records_of(store, session))


@pytest.mark.requirement("A4", "H5")
def test_sealed_thoughts_with_a_secret_and_names_of_models_are_not_stored(volatile: Stage) -> None:
    sealed = Reasoning("script", "I think.", f'{{"summary":"{KNOWN}"}}')
    kept = Reasoning("script", "I think too.", '{"summary":"nothing"}')
    written = volatile.run(lambda *stage: told(*stage, provider=Spoken(sealed, kept, Text("Done."))))
    assert KNOWN.encode() not in written
    assert b"I think." not in written
    assert b"I think too." in written
    assert b"m [redacted:known]" in written


@pytest.mark.requirement("A4", "H5")
def test_what_a_broken_adapter_raises_is_stored_masked(volatile: Stage) -> None:
    class Broken(Spoken):
        async def respond(self, attempt: ModelAttempt) -> ModelReply:
            raise RuntimeError(f"the key {KNOWN} was refused")

    written = volatile.run(lambda *stage: told(*stage, provider=Broken()))
    assert b"the key [redacted:known] was refused" in written
    assert KNOWN.encode() not in written


@pytest.mark.requirement("A4", "H5")
def test_why_a_model_cannot_be_called_is_stored_masked(volatile: Stage) -> None:
    """Its sentence, its hint, and the traceback, which holds all of them."""
    error = ProviderUnavailable(f"The address {KNOWN} is wrong.", hint=f"Leave {KNOWN} out.")
    written = volatile.run(lambda *stage: told(*stage, provider=error))
    assert b"The address [redacted:known] is wrong. Leave [redacted:known] out." in written
    assert written.count(b"The address [redacted:known]") > 1
    assert KNOWN.encode() not in written


@pytest.mark.requirement("A4", "H5")
def test_the_answer_of_a_side_call_that_is_cut_within_a_secret_holds_nothing_of_it(volatile: Stage) -> None:
    half = 20
    said = "x " * ((MAX_SIDE_CHARS - half) // 2) + KNOWN + " and so on"
    assert said[:MAX_SIDE_CHARS].endswith(KNOWN[:half])

    class Aside(Spoken):
        async def respond(self, attempt: ModelAttempt) -> ModelReply:
            if attempt.purpose != "work":
                return ModelReply((Text(said),), Usage(1, 1))
            if not self.turns:
                return ModelReply((Text("Done."),), Usage(1, 1))
            self.turns -= 1
            call = ToolCall("", "read_file", f'{{"path":"{self.turns}"}}')
            return ModelReply((call,), Usage(1, 1), "tool_calls")

        turns = 3

    written = volatile.run(lambda *stage: told(*stage, provider=Aside(), reflect_turns=1))
    assert b"x x x" in written
    assert KNOWN[:half].encode() not in written
