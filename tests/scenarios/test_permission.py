"""Who may ask what of a session: a principal without the scope is refused, and nothing of it is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, get_args

import pytest
from msgspec.structs import replace

from holdfast.core.state import State, open_run
from holdfast.errors import Forbidden, UsageError
from holdfast.protocol import events as e
from holdfast.protocol.commands import (
    SCOPES,
    CommandBody,
    Compact,
    Continue,
    Pause,
    Principal,
    Resolve,
    Restore,
    Restored,
    Revoke,
    Scope,
    Send,
    Stop,
    owner,
)
from holdfast.protocol.ids import approval_id
from holdfast.protocol.ports import Store
from holdfast.protocol.settings import Settings, changed
from holdfast.runtime.controller import SessionController
from holdfast.testing.clock import JumpingClock
from holdfast.testing.scenarios import Scenario, World, controller_of, records_of, settings_of
from tests.scenarios.stage import Stage

STRANGER = Principal("stranger", "telegram", ("speak",))
APPROVAL, QUESTION = 1, 2
ASKS = Scenario(
    "asks",
    [
        {"tool_calls": [{"name": "shell", "arguments": {"command": "truncate -s 0 made"}}]},
        {"tool_calls": [{"name": "ask_user", "arguments": {"question": "Which?"}}]},
        {"text": "Done.", "repeat": True},
    ],
    settings={"autonomy": "supervised"},
)


class Door(NamedTuple):
    """A session that waits for somebody, and what it is reached by."""

    controller: SessionController
    store: Store
    session: str
    settings: Settings

    async def untouched(self) -> tuple[State, int]:
        """Return all that a refused command must not change."""
        return await self.controller.state(self.session), len(await self.store.inbox(self.session))

    async def refuses(self, principal: Principal, body: CommandBody) -> str:
        """Return the message of a refusal, which changed nothing."""
        before = await self.untouched()
        with pytest.raises(Forbidden) as caught:
            await self.controller.decide_now(self.session, principal, body)
        assert await self.untouched() == before
        assert (caught.value.code, caught.value.exit_code) == ("forbidden", 2)
        assert principal.label in caught.value.message
        return caught.value.message + caught.value.hint


async def waiting(
    controller: SessionController, store: Store, settings: Settings, until: int = APPROVAL
) -> Door:
    """A session that waits for a decision, or for an answer."""
    session = await controller.begin("a:b", owner("tester"), Send("Go.", settings))
    await controller.drive(session)
    for number in range(1, until):
        await controller.submit(session, owner("tester"), Resolve(approval_id(session, number), "deny"))
        await controller.drive(session)
    return Door(controller, store, session, settings)


@pytest.mark.requirement("A4", "C12")
def test_a_stranger_does_not_loosen_an_open_run(stage: Stage) -> None:
    async def talk(clock: JumpingClock, store: Store, workspace: Path) -> None:
        settings = settings_of(ASKS, workspace)
        async with controller_of(ASKS, store, clock, World(workspace)) as controller:
            door = await waiting(controller, store, settings)
            loose = changed(settings, autonomy="full")
            said = await door.refuses(STRANGER, Send("Now do it.", loose))
            assert "telegram:stranger may not change the settings" in said
            assert "configure" in said
            await door.refuses(STRANGER, Continue(loose))
            with pytest.raises(Forbidden):
                await controller.begin("a:b", STRANGER, Send("Now do it.", loose))
            await controller.submit(door.session, STRANGER, Send("Please do it."))
            state = await controller.drive(door.session)
            assert open_run(state) is not None
            assert state.settings == settings
            records = await records_of(store, door.session)
            words = [record.event for record in records if isinstance(record.event, e.MessageReceived)]
            assert replace(words[-1], head="") == e.MessageReceived(
                "Please do it.", "telegram:stranger", ("speak",)
            )
            assert not (workspace / "made").exists()

    stage.run(talk)


NEEDS: list[tuple[str, Callable[[Door], CommandBody], int, tuple[Scope, ...]]] = [
    ("words", lambda _: Send("x"), APPROVAL, ("speak",)),
    ("settings with words", lambda door: Send("x", door.settings), APPROVAL, ("speak", "configure")),
    ("go on", lambda _: Continue(), APPROVAL, ("speak",)),
    ("settings", lambda door: Continue(door.settings), APPROVAL, ("speak", "configure")),
    ("pause", lambda _: Pause(), APPROVAL, ("speak",)),
    ("stop", lambda _: Stop(), APPROVAL, ("speak",)),
    ("compact", lambda _: Compact(), APPROVAL, ("speak",)),
    ("approve", lambda door: Resolve(approval_id(door.session, APPROVAL), "approve"), APPROVAL, ("approve",)),
    ("deny", lambda door: Resolve(approval_id(door.session, APPROVAL), "deny"), APPROVAL, ("approve",)),
    ("revoke", lambda _: Revoke("nothing"), APPROVAL, ("approve",)),
    ("what is not there", lambda _: Resolve("nothing", "approve"), APPROVAL, ("approve",)),
    ("answer", lambda door: Resolve(approval_id(door.session, QUESTION), "answer"), QUESTION, ("answer",)),
    ("files put back", lambda _: Restore("undo", (1,), ()), APPROVAL, ("configure",)),
    ("revoke a grant", lambda _: Revoke("x-g1"), APPROVAL, ("approve",)),
    ("files were put back", lambda _: Restored("undo", ()), APPROVAL, ("configure",)),
    ("no answer", lambda door: Resolve(approval_id(door.session, QUESTION), "deny"), QUESTION, ("answer",)),
]


@pytest.mark.requirement("A4", "C12")
@pytest.mark.parametrize(
    ("body_of", "until", "needed"), [row[1:] for row in NEEDS], ids=[r[0] for r in NEEDS]
)
def test_every_command_needs_its_scopes_and_no_others(
    volatile: Stage, body_of: Callable[[Door], CommandBody], until: int, needed: tuple[Scope, ...]
) -> None:
    async def ask(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async with controller_of(ASKS, store, clock, World(workspace)) as controller:
            door = await waiting(controller, store, settings_of(ASKS, workspace), until)
            for scope in needed:
                others = tuple(each for each in SCOPES if each != scope)
                if not (scope == "speak" and until == QUESTION):
                    assert repr(scope) in await door.refuses(Principal("ann", scopes=others), body_of(door))
            await controller.submit(door.session, Principal("ann", scopes=needed), body_of(door))

    volatile.run(ask)


def test_every_command_is_in_the_table() -> None:
    asked = {type(body_of(Door(None, None, "s", None))) for _, body_of, _, _ in NEEDS}  # type: ignore[arg-type]
    assert asked == set(get_args(CommandBody))


@pytest.mark.requirement("A4")
def test_who_may_only_answer_speaks_while_there_is_a_question_and_not_else(stage: Stage) -> None:
    async def answer(clock: JumpingClock, store: Store, workspace: Path) -> None:
        who = Principal("ann", "chat", ("answer",))
        async with controller_of(ASKS, store, clock, World(workspace)) as controller:
            door = await waiting(controller, store, settings_of(ASKS, workspace))
            await door.refuses(who, Send("Red."))
            await controller.submit(
                door.session, owner("tester"), Resolve(approval_id(door.session, APPROVAL), "deny")
            )
            await controller.drive(door.session)
            await controller.decide_now(door.session, who, Send("Red."))
            records = await records_of(store, door.session)
            resolved = [r.event for r in records if isinstance(r.event, e.ApprovalResolved)]
            assert resolved[-1] == e.ApprovalResolved(
                approval_id(door.session, QUESTION), "answer", "chat:ann", "Red.", ("answer",)
            )

    stage.run(answer)


@pytest.mark.requirement("A4")
def test_the_name_of_who_asks_is_masked_and_has_a_bound(stage: Stage) -> None:
    secret = "ghp_" + "a1B2" * 9

    async def ask(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async with controller_of(ASKS, store, clock, World(workspace)) as controller:
            door = await waiting(controller, store, settings_of(ASKS, workspace))
            await controller.submit(door.session, Principal(secret, "chat", ("speak",)), Send("Hello."))
            inbox = b"".join(entry.body for entry in await store.inbox(door.session))
            assert secret.encode() not in inbox
            await controller.drive(door.session)
            senders = [
                r.event.sender
                for r in await records_of(store, door.session)
                if isinstance(r.event, e.MessageReceived)
            ]
            assert senders[-1].startswith("chat:[redacted:")
            with pytest.raises(UsageError, match="at most 128 characters"):
                await controller.submit(door.session, Principal("x" * 129, scopes=SCOPES), Stop())

    stage.run(ask)
