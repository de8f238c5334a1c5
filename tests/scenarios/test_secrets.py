"""Secrets in what models and tools say: nobody sees them, whenever they look."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from holdfast.protocol.commands import Send
from holdfast.protocol.ports import Delta, Store
from holdfast.testing.clock import JumpingClock
from holdfast.testing.scenarios import Scenario, World, controller_of, settings_of
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
                "a:b", "tester", Send("Show it.", settings_of(scenario, workspace))
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
