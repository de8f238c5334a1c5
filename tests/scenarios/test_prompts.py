"""The system prompt is a fact: what was recorded is sent, until another one is recorded for a stated reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from holdfast import prompt
from holdfast.context.requests import attached, body_of, requests
from holdfast.core.evolve import fold
from holdfast.prompt import texts
from holdfast.protocol import events as e
from holdfast.protocol.commands import Resolve, Send, owner
from holdfast.protocol.limits import Limits
from holdfast.protocol.ports import Store, Tool
from holdfast.protocol.settings import Settings, changed
from holdfast.providers.script import ScriptWire
from holdfast.redact import make_redactor
from holdfast.runtime.enclosing import contents_of
from holdfast.testing.clock import JumpingClock
from holdfast.testing.scenarios import MODEL, Scenario, World, controller_of, records_of, settings_of
from holdfast.tools.function import tool
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage

ASKING = Scenario(
    "asking",
    [calls(call("ask_user", question="Which?")), words("First."), words("Second."), words("Third.")],
)
ME = owner("tester")


class Life:
    """A session, and the runtimes that drive it one after the other."""

    def __init__(
        self, store: Store, clock: JumpingClock, workspace: Path, scenario: Scenario = ASKING
    ) -> None:
        self.store = store
        self.workspace = workspace
        self.settings: Settings = settings_of(scenario, workspace)
        self._clock = clock
        self._scenario = scenario
        self._session = ""
        self.redact = make_redactor()

    async def __call__(self, *bodies: Send | Resolve) -> None:
        """Another runtime takes the commands and works until the session rests."""
        world = World(self.workspace)
        async with controller_of(self._scenario, self.store, self._clock, world, self.redact) as controller:
            self._session = await controller.open("a:b")
            for body in bodies:
                await controller.submit(self._session, ME, body)
            await controller.drive(self._session)

    async def say(self, text: str = "Go.", settings: Settings | None = None) -> None:
        await self(Send(text, settings or self.settings))

    async def answer(self) -> None:
        (asked,) = await self.store.approvals(self._session)
        await self(Resolve(asked.id, "answer", "This."))

    async def records(self) -> tuple[e.Record, ...]:
        return await records_of(self.store, self._session)

    async def built(self) -> list[e.PromptBuilt]:
        return [each.event for each in await self.records() if isinstance(each.event, e.PromptBuilt)]

    async def bodies(self) -> list[bytes]:
        """Every request as it was sent."""
        records = await self.records()
        sent = requests(records, await contents_of(self.store.blobs, attached(records)))
        return [body_of(each, await self.store.blobs.get(each.started.request.base)) for each in sent]

    async def prompts(self) -> list[str]:
        """The system prompt of every request."""
        return [msgspec.json.decode(body)["system"] for body in await self.bodies()]


Play = Callable[[Callable[[Life], Awaitable[None]]], None]


@pytest.fixture
def live(volatile: Stage) -> Play:
    """Live with a session in a store that is empty."""

    def run(play: Callable[[Life], Awaitable[None]]) -> None:
        async def main(clock: JumpingClock, store: Store, workspace: Path) -> None:
            await play(Life(store, clock, workspace))

        volatile.run(main)

    return run


@pytest.mark.requirement("C5", "S9")
def test_another_version_sends_the_recorded_bytes_until_the_next_run_opens(
    live: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(life: Life) -> None:
        await life.say()
        monkeypatch.setattr(texts, "IDENTITY", "You are a newer version.")
        monkeypatch.setattr(prompt, "SECTIONS", prompt.SECTIONS[::-1])
        await life.answer()
        first, second = await life.bodies()
        assert second.startswith(first.partition(b'"messages":[')[0])
        assert len(await life.built()) == 1
        await life.say("More.")
        before, after = (await life.prompts())[1:]
        assert "newer version" not in before
        assert "newer version" in after
        assert (await life.built())[1].reason == "a run opened: identity changed"

    live(play)


@pytest.mark.requirement("C5", "S9")
def test_a_version_that_encodes_a_prompt_otherwise_sends_the_recorded_bytes(
    live: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = ScriptWire.base

    async def play(life: Life) -> None:
        await life.say()
        monkeypatch.setattr(ScriptWire, "base", lambda *given: b" " + encode(*given))
        await life.answer()
        first, second = await life.bodies()
        assert second.startswith(first.partition(b'"messages":[')[0])

    live(play)


@pytest.mark.requirement("C5", "S9")
def test_an_edited_file_has_no_effect_until_the_next_run(live: Play) -> None:
    async def play(life: Life) -> None:
        (life.workspace / "AGENTS.md").write_text("Use tabs.")
        await life.say()
        (life.workspace / "AGENTS.md").write_text("Use spaces.")
        await life.say("This. And a raised limit.", changed(life.settings, limits=Limits(turns=9)))
        assert ["Use tabs." in text for text in await life.prompts()] == [True, True]
        await life.say("More.")
        assert ["Use tabs." in text for text in await life.prompts()] == [True, True, False]
        first, second = await life.built()
        assert (first.reason, second.reason) == (
            "the first prompt",
            "a run opened: workspace (AGENTS.md) changed",
        )
        (file,) = [each for each in first.sections if each.source == "AGENTS.md"]
        assert (file.section, file.trust) == ("workspace", "data")

    live(play)


@pytest.mark.requirement("C5")
def test_a_change_of_settings_builds_the_prompt_again_only_if_the_prompt_says_it(live: Play) -> None:
    async def play(life: Life) -> None:
        await life.say()
        await life.say("This.", changed(life.settings, autonomy="supervised"))
        assert [each.reason for each in await life.built()] == [
            "the first prompt",
            "the settings changed: safety changed",
        ]
        assert ["need a person's approval" in text for text in await life.prompts()] == [False, True]

    live(play)


@pytest.mark.requirement("C5", "C9")
def test_a_compaction_takes_in_what_has_changed_and_records_nothing_otherwise(volatile: Stage) -> None:
    @tool(effect="read")
    async def look(name: str) -> str:
        """Look at it."""
        if name == "last":
            (place[0] / "AGENTS.md").write_text("Use spaces.")
        return "x" * 4_000

    place: list[Path] = []
    lines = [calls(call("look", name=str(turn))) for turn in range(12)]
    lines += [calls(call("look", name="last")), *lines, words("Done.")]
    scenario = Scenario(
        "full", lines, lambda _: (look,), settings={"facts": replace(MODEL, context_tokens=16_000)}
    )

    async def main(clock: JumpingClock, store: Store, workspace: Path) -> None:
        place.append(workspace)
        (workspace / "AGENTS.md").write_text("Use tabs.")
        life = Life(store, clock, workspace, scenario)
        await life.say()
        kinds = [type(each.event) for each in await life.records()]
        assert kinds.count(e.ContextCompacted) >= 2
        assert [each.reason for each in await life.built()] == [
            "the first prompt",
            "a compaction landed: workspace (AGENTS.md) changed",
        ]
        before = kinds.index(e.PromptBuilt, kinds.index(e.PromptBuilt) + 1) - 1
        assert kinds[before] is e.ContextCompacted

    volatile.run(main)


@pytest.mark.requirement("C5")
def test_runs_with_the_same_inputs_have_one_prompt(live: Play) -> None:
    async def play(life: Life) -> None:
        await life.say()
        await life.answer()
        await life.say("More.")
        await life.say("And more.")
        assert len(await life.built()) == 1
        assert len(set(await life.prompts())) == 1

    live(play)


@pytest.mark.requirement("C5")
def test_the_specs_of_the_tools_are_inputs_and_count_when_a_run_opens(volatile: Stage) -> None:
    def tools_with(about: str) -> Callable[[World], tuple[Tool]]:
        async def look(name: str) -> str:
            return name

        look.__doc__ = about
        return lambda _: (tool(effect="read")(look),)

    async def main(clock: JumpingClock, store: Store, workspace: Path) -> None:
        old = Scenario("old", ASKING.lines, tools_with("Look at it."))
        await Life(store, clock, workspace, old).say()
        new = Life(store, clock, workspace, Scenario("new", ASKING.lines, tools_with("Look closely at it.")))
        await new()
        await new.answer()
        assert len(await new.built()) == 1
        await new.say("More.")
        first, second = await new.built()
        assert second.reason == "a run opened: the specs of the tools changed"
        assert first.blob == second.blob
        for event, about in ((first, b"Look at it."), (second, b"Look closely at it.")):
            assert about in await store.blobs.get(event.tools)

    volatile.run(main)


@pytest.mark.requirement("C5", "C14")
def test_a_secret_in_a_file_is_masked_before_the_prompt_is_stored(live: Play) -> None:
    secret = "hunter2-" * 3 + "99"

    async def play(life: Life) -> None:
        life.redact = make_redactor([secret])
        (life.workspace / "AGENTS.md").write_text(f"The password is {secret}.")
        await life.say()
        (event,) = await life.built()
        assert secret.encode() not in await life.store.blobs.get(event.blob)
        assert b"The password is [redacted:" in await life.store.blobs.get(event.blob)
        assert not [body for body in await life.bodies() if secret.encode() in body]

    live(play)


def test_what_the_files_of_a_workspace_say_is_a_source_of_data(live: Play) -> None:
    async def play(life: Life) -> None:
        (life.workspace / "AGENTS.md").write_text("Use tabs.")
        await life.say()
        assert ("prompt", "data") in [
            (each.origin, each.trust) for each in fold(list(await life.records())).labels
        ]

    live(play)
