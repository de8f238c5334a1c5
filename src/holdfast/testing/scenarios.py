"""Plays a session on a jumping clock: the model's responses, the tools, and what people do when.

`play` runs the real runtime on any store. `play_with_crash` kills it at a commit and starts the next runtime on
what is left, as often as needed. `invariants` has what must be true of the journals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from holdfast.core.state import State
from holdfast.errors import Overloaded, StorageFull
from holdfast.policy.protected import Own
from holdfast.protocol.budgets import Budgets
from holdfast.protocol.codec import decode
from holdfast.protocol.commands import CommandBody, Continue, Resolve, Send, owner
from holdfast.protocol.events import Record
from holdfast.protocol.limits import Limits, ModelFacts
from holdfast.protocol.ports import Hooks, Notifier, Provider, Store, Tool
from holdfast.protocol.settings import Settings, changed, settings_with
from holdfast.providers.script import script_from_lines
from holdfast.redact import Redactor, make_redactor
from holdfast.runtime.controller import SessionController
from holdfast.runtime.holder import LEASE_MS
from holdfast.runtime.ports import Ports
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Crash, Faults, FaultyStore
from holdfast.tools.answers import verdict
from holdfast.tools.builtin import Rooms, make_tools
from holdfast.tools.guidance import guidance

SESSION_KEY = "test:scenario"
MODEL = ModelFacts("script", "model", input_microusd_per_mtok=1_000_000, output_microusd_per_mtok=4_000_000)
_LOOK_S = 0.05
_MAX_RESTS = 20

Answer = Literal["approve", "deny"]


@dataclass
class World:
    """What the tools of a scenario change. It outlives every runtime."""

    workspace: Path
    called: list[tuple[str, str]] = field(default_factory=list)
    """(tool, key) for each start of a tool."""
    effects: list[str] = field(default_factory=list)
    """Effects without a key: a repeat shows."""
    by_key: dict[str, str] = field(default_factory=dict)
    """Effects under an idempotency key."""


@dataclass(frozen=True)
class Step:
    """A command, and when it is sent."""

    body: CommandBody
    on: str = "rest"
    """`rest`, or the name of an event: when the journal has `count` of them."""
    count: int = 1
    delay_s: float = 0.0


def say(text: str, settings: Settings, **when: Any) -> Step:
    """Words for the agent, as a step."""
    return Step(Send(text, settings), **when)


@dataclass(frozen=True)
class Scenario:
    """One session, as data, so that it can be played many times."""

    name: str
    lines: Sequence[Mapping[str, Any]]
    """The lines of the scripted model (`providers.script`)."""
    make: Callable[[World], Iterable[Tool]] = lambda _: ()
    steps: Callable[[Settings], Sequence[Step]] = lambda settings: (say("Do it.", settings),)
    """From the settings of the scenario: the commands in order."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the defaults of `Settings`. Autonomy is `full`."""
    limits: Limits = field(default_factory=Limits)
    others: Mapping[str, Provider] = field(default_factory=dict)
    """More models by PROVIDER:MODEL."""
    blobs: Sequence[bytes] = ()
    """The contents of what comes with messages."""
    is_timed: bool = False
    """Its conversation depends on timing: after a crash it may differ."""
    hooks: Callable[[], Hooks | None] = lambda: None
    """Asks the hooks of the settings."""
    budgets: Budgets = field(default_factory=Budgets)
    notifier: Callable[[World], Notifier | None] = lambda _: None
    """Notifies people."""


@dataclass(frozen=True)
class Played:
    """The result."""

    session: str
    records: tuple[Record, ...]
    state: State
    world: World
    commits: int
    """The number of commits of the last runtime."""
    left: tuple[tuple[Record, ...], ...] = ()
    """What each crash left in the journal."""


def controller_of(
    scenario: Scenario,
    store: Store,
    clock: JumpingClock,
    world: World,
    redact: Redactor | None = None,
) -> SessionController:
    """A runtime on the store, with the tools and models of the scenario."""
    script = script_from_lines(scenario.lines, scenario.name)
    models = {MODEL.name: script, **scenario.others}

    async def resolve(name: str) -> Provider:
        return models[name]

    hooks = scenario.hooks()
    tools = make_tools(
        scenario.make(world), secret_in=lambda _: "", own=Own(), rooms=Rooms(journals=store), hooks=hooks
    )
    ports = Ports(
        store,
        clock,
        resolve,
        tools,
        redact or make_redactor(),
        judge=verdict,
        hooks=hooks,
        notifier=scenario.notifier(world),
        budgets=scenario.budgets,
        guidance=partial(guidance, Own()),
    )
    return SessionController(ports)


async def finish(
    controller: SessionController,
    store: Store,
    clock: JumpingClock,
    session: str,
    decision: Answer = "approve",
) -> State:
    """Drive a session until nothing is left to do: answer what waits, continue what is paused, and wake what is
    parked when it is due.
    """
    for _ in range(_MAX_RESTS):
        state = await controller.drive(session)
        row = await store.session(session)
        assert row is not None
        match row.status:
            case "waiting":
                asked = await store.approvals(session)
                bodies: list[CommandBody] = [
                    Resolve(each.id, "answer" if each.question else decision, "as you like") for each in asked
                ]
                for body in bodies or [Continue()]:  # without an approval, the model asks in a reflection
                    await controller.submit(session, owner("tester"), body)
            case "paused":
                await controller.submit(session, owner("tester"), Continue())
            case "parked":
                await asyncio.sleep(max(row.due_ms - clock.now_ms(), 1) / 1000)
            case _:
                return state
    raise AssertionError(f"session {session} does not end")


def settings_of(scenario: Scenario, workspace: Path) -> Settings:
    """Return the settings that the scenario's steps send."""
    plain = settings_with(MODEL, str(workspace), limits=scenario.limits, autonomy="full")
    return changed(plain, **scenario.settings)


async def play(scenario: Scenario, clock: JumpingClock, inner: Store, workspace: Path) -> Played:
    """Play the scenario to its end without any fault."""
    return await play_with_crash(scenario, clock, inner, workspace)


async def play_with_crash(
    scenario: Scenario, clock: JumpingClock, inner: Store, workspace: Path, *faults: Faults
) -> Played:
    """Play the scenario with these faults, one for each runtime. After a crash or a full disk, the next runtime
    continues when the lease of the dead one has lapsed. The last one has no faults.

    Raises:
        AssertionError: it crashed without a fault.
    """
    world, player = World(workspace), _Player(scenario, settings_of(scenario, workspace))
    for blob in scenario.blobs:
        await inner.blobs.put(blob)
    left: list[tuple[Record, ...]] = []
    for life in (*faults, Faults()):
        store = FaultyStore(inner, life)
        clock.pause_while(lambda store=store: store.in_flight > 0)  # type: ignore[misc]
        try:
            await player.live(controller_of(scenario, store, clock, world), store, clock)
            break
        except (Crash, StorageFull):
            left.append(await records_of(inner, player.session))
            clock.advance(LEASE_MS / 1000 + 1)
    else:
        raise AssertionError(f"{scenario.name} does not end")
    records = await records_of(inner, player.session)
    assert player.state is not None
    return Played(player.session, records, player.state, world, store.commits, tuple(left))


async def records_of(store: Store, session: str) -> tuple[Record, ...]:
    """Return the journal, decoded."""
    return tuple(decode(stored) for stored in await store.read(session)) if session else ()


class _Player:
    """The senders. They outlive the runtime, and repeat a command if they do not know whether it arrived."""

    def __init__(self, scenario: Scenario, settings: Settings) -> None:
        self._steps = tuple(scenario.steps(settings))
        self._next = 0
        self.session = ""
        self.state: State | None = None

    async def live(self, controller: SessionController, store: Store, clock: JumpingClock) -> None:
        """The life of one runtime: send what is due, drive, and wake the session when it is due."""
        async with controller:
            self.session = await controller.open(SESSION_KEY)
            driving: asyncio.Task[State] | None = None
            try:
                while self._next < len(self._steps):
                    step = self._steps[self._next]
                    if step.on != "rest" and driving is None:
                        driving = asyncio.create_task(controller.drive(self.session))
                    if step.on == "rest":
                        await (driving or controller.drive(self.session))
                        driving = None
                    else:
                        await _until(store, self.session, step, driving)
                    await self._send(controller, step, store)
                    self._next += 1
                self.state = await (driving or controller.drive(self.session))
                await self._wake(controller, store, clock)
            finally:
                if driving is not None:
                    driving.cancel()
                    await asyncio.gather(driving, return_exceptions=True)

    async def _send(self, controller: SessionController, step: Step, store: Store) -> None:
        body = step.body
        if isinstance(body, Resolve) and not body.approval_id:
            waiting = await store.approvals(self.session)
            body = replace(body, approval_id=waiting[0].id if waiting else "nothing")
        while True:
            try:
                await controller.submit(self.session, owner("tester"), body, f"command-{self._next}")
            except Overloaded:
                await asyncio.sleep(_LOOK_S)
            else:
                return

    async def _wake(self, controller: SessionController, store: Store, clock: JumpingClock) -> None:
        """Keeps the timers of parked sessions: jumps to each due time and drives on."""
        while (row := await store.session(self.session)) is not None and row.due_ms:
            await asyncio.sleep(max(row.due_ms - clock.now_ms(), 1) / 1000)
            self.state = await controller.drive(self.session)


async def _until(store: Store, session: str, step: Step, driving: asyncio.Task[State] | None) -> None:
    """Wait until the journal has what the step waits for, or the drive ends."""
    while driving is not None and not driving.done():
        names = [record.type for record in await store.read(session)]
        if names.count(step.on) >= step.count:
            break
        await asyncio.sleep(_LOOK_S)
    if driving is not None and driving.done():
        await driving
    await asyncio.sleep(step.delay_s)
