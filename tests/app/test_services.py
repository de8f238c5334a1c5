"""Runs that call a real server over HTTP, by circuits and rates that all sessions of a home share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import App, open_app
from holdfast.clock import SystemClock
from holdfast.config.load import load_only
from holdfast.config.paths import Home
from holdfast.core.state import State
from holdfast.core.summary import status
from holdfast.protocol import events as e
from holdfast.protocol.budgets import Bucket
from holdfast.protocol.codec import decode
from holdfast.protocol.commands import Continue, Send, owner
from holdfast.protocol.messages import Usage
from holdfast.storage.home import connect
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.invariants import check_session
from holdfast.testing.model_replies import Rendered, Reply, ReplyCall, render
from holdfast.testing.model_server import ModelServer, Received
from holdfast.views.replay import replay

ANN = owner("ann")
DOWN, HELLO = Reply(status=503), Reply(text="Hello.")
ONE, TWO = "a-key-" + "0001", "a-key-" + "0002"
MODEL = "openai:fake"
ONCE = {"circuits": {"failures": 1, "cooldown": "2m"}}
FREE = {"openai:*": {"input_usd_per_mtok": 0.0, "output_usd_per_mtok": 0.0}}
PRICED = {"openai:*": {"input_usd_per_mtok": 1.0, "output_usd_per_mtok": 1.0}}


class AheadClock(SystemClock):
    """The clock of the machine, and how much time has passed beside it."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def uptime_ms(self) -> int:
        return super().uptime_ms() + self.ahead_ms


class Place:
    """A home with a server for its model."""

    def __init__(self, app: App, clock: AheadClock, workspace: Path) -> None:
        self.app = app
        self._clock = clock
        self._workspace = workspace

    async def run(self, key: str) -> State:
        """Give a session a task, and drive it until it rests."""
        settings = self.app.settings(self._workspace).settings
        return await self.app.controller.run(key, ANN, Send("Go.", settings))

    async def go_on(self, *keys: str) -> list[State]:
        """Drive sessions whose wait is over, all at once."""
        ids = [(await self.app.store.find(key))[0] for key in keys]
        return await asyncio.gather(*[self.app.controller.drive(each) for each in ids])

    async def resume(self, key: str) -> State:
        (name,) = await self.app.store.find(key)
        await self.app.controller.submit(name, ANN, Continue())
        return await self.app.controller.drive(name)

    def pass_s(self, seconds: float) -> None:
        self._clock.ahead_ms += int(seconds * 1000)

    async def events(self, state: State) -> list[e.Event]:
        return [decode(each).event for each in await self.app.store.read(state.session)]

    async def circuits(self) -> dict[str, tuple[int, bool]]:
        """Return the failures of each circuit, and whether it is open. Without what distinguishes keys."""
        found = await self.app.store.circuits()
        return {each.name.partition("#")[0]: (each.failures, each.is_open) for each in found}


@asynccontextmanager
async def place(
    tmp_path: Path,
    server: ModelServer,
    config: dict[str, Any],
    keys: Sequence[str] = (),
    *,
    offers: bool = False,
) -> AsyncIterator[Place]:
    clock, workspace = AheadClock(), tmp_path / "work"
    workspace.mkdir(exist_ok=True)
    provider: dict[str, Any] = {"base_url": server.openai_url}
    provider |= {"api_key_env": [f"KEY_{number}" for number, _ in enumerate(keys)]} if keys else {}
    said = {"model": MODEL, "catalog": FREE, "providers": {"openai": provider}} | config
    environ = {f"KEY_{number}": key for number, key in enumerate(keys)}
    home = Home(tmp_path / "home", tmp_path / "home" / "config.toml")
    tools = (lambda name: name == "list_dir") if offers else None
    async with open_app(load_only(said), home, offers=tools, environ=environ, clock=clock) as app:
        yield Place(app, clock, workspace)
        for row in await app.store.sessions():
            records = tuple([decode(each) for each in await app.store.read(row.session)])
            await check_session(app.store, row.session, records)
            assert replay(row.session, row.key, records).differences == ()


def kinds(events: Sequence[e.Event]) -> list[str]:
    return [type(each).__name__ for each in events]


def changes(events: Sequence[e.Event]) -> list[str]:
    return [each.state for each in events if isinstance(each, e.CircuitChanged)]


@pytest.mark.requirement("A2", "H5")
async def test_nobody_calls_a_dead_service_and_after_its_cooldown_one_call_finds_out(tmp_path: Path) -> None:
    slow = Reply(text="I am back.", delay_s=0.2)
    async with ModelServer([DOWN, slow, HELLO, HELLO]) as server, place(tmp_path, server, ONCE) as here:
        first = await here.run("a:1")
        others = [await here.run(f"a:{number}") for number in (2, 3)]
        assert [status(each) for each in (first, *others)] == ["parked"] * 3
        assert len(server.requests) == 1
        assert await here.circuits() == {MODEL: (1, True)}
        told = await here.events(others[0])
        assert kinds(told)[-2:] == ["CircuitChanged", "ModelCallUnready"]
        assert "ModelCallStarted" not in kinds(told), "no attempt is recorded"
        assert others[0].models.failed_attempts == 0, "and none is used up"
        unready = told[-1]
        assert isinstance(unready, e.ModelCallUnready)
        assert unready.waits_for.startswith(f"{MODEL}#")
        assert "openai could not answer now." in unready.failure.message
        here.pass_s(121)
        work = asyncio.create_task(here.go_on("a:1", "a:2", "a:3"))
        await server.until(lambda _: len(server.requests) == 2)
        await asyncio.sleep(0.1)  # the others have asked by now
        assert len(server.requests) == 2, "exactly one probe"
        ended = await work
        back = [each for each in ended if status(each) == "done"]
        assert back
        assert await here.circuits() == {MODEL: (0, False)}
        probe = [each for each in back if "half_open" in changes(await here.events(each))]
        assert [changes(await here.events(each)) for each in probe] == [["open", "half_open", "closed"]]
        for number, each in enumerate(ended, 1):
            if status(each) == "parked":
                here.pass_s(121)
                assert status(await here.resume(f"a:{number}")) == "done"


@pytest.mark.requirement("A2")
async def test_refusals_and_bad_requests_say_nothing_about_a_service(tmp_path: Path) -> None:
    refused = [Reply(status=each, message="No.") for each in (400, 401, 404, 422)]
    async with ModelServer([*refused, HELLO]) as server, place(tmp_path, server, ONCE) as here:
        for number in range(len(refused)):
            assert status(await here.run(f"a:{number}")) == "failed"
        assert status(await here.run("a:last")) == "done"
        assert await here.circuits() == {}


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("fault", ["wrong_shape", "html", "cut", "reset", "bad_json"])
async def test_a_response_that_is_broken_counts_as_a_failure(tmp_path: Path, fault: Any) -> None:
    replies = [Reply(text="Hello.", fault=fault), HELLO]
    async with ModelServer(replies) as server, place(tmp_path, server, ONCE) as here:
        assert status(await here.run("a:1")) == "parked"
        assert await here.circuits() == {MODEL: (1, True)}


@pytest.mark.requirement("A13")
async def test_circuit_timeout_protection(tmp_path: Path) -> None:
    """A server that says nothing is left after its limit, and counts as failed."""
    limits = {"idle": 1, "request": 1}
    silent = Reply(text="Hello.", delay_s=60)
    async with ModelServer([silent]) as server, place(tmp_path, server, {**ONCE, "limits": limits}) as here:
        async with asyncio.timeout(10):
            assert status(await here.run("a:1")) == "parked"
        assert await here.circuits() == {MODEL: (1, True)}
        assert status(await here.run("a:2")) == "parked"
        assert len(server.requests) == 1


@pytest.mark.requirement("A2", "L7")
@pytest.mark.parametrize("status_code", [429, 503])
async def test_what_a_service_asks_for_counts_for_all_sessions(tmp_path: Path, status_code: int) -> None:
    busy = Reply(status=status_code, headers={"retry-after": "120"})
    async with ModelServer([busy, HELLO, HELLO]) as server, place(tmp_path, server, {}) as here:
        assert [status(await here.run(f"a:{number}")) for number in (1, 2)] == ["parked"] * 2
        assert len(server.requests) == 1
        here.pass_s(150)  # with the time in which they come back
        assert [status(each) for each in await here.go_on("a:1", "a:2")] == ["done"] * 2


@pytest.mark.requirement("A2", "L7")
async def test_a_limit_that_a_good_response_has_used_up_counts_too(tmp_path: Path) -> None:
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2m0s"}
    last = Reply(text="The last one.", headers=headers)
    async with ModelServer([last, HELLO]) as server, place(tmp_path, server, {}) as here:
        assert [status(await here.run(f"a:{number}")) for number in (1, 2)] == ["done", "parked"]
        assert len(server.requests) == 1


class ByKey(ModelServer):
    """Answers by the key of a request."""

    def __init__(self, first: Reply) -> None:
        super().__init__([])
        self._first = first
        self.keys: list[str] = []

    def answer(self, request: Received) -> tuple[Reply, Rendered]:
        self.keys.append(request.headers["authorization"].removeprefix("Bearer "))
        reply = self._first if self.keys[-1] == ONE else HELLO
        return reply, render(reply, "openai", len(self.keys), is_streaming=reply.status == 200)


@pytest.mark.requirement("A2", "C16")
@pytest.mark.parametrize(
    "first", [Reply(status=401, message="No."), Reply(status=429, headers={"retry-after": "3600"})]
)
async def test_a_key_that_is_refused_or_has_to_wait_gives_way_to_the_next(
    tmp_path: Path, first: Reply
) -> None:
    async with ByKey(first) as server, place(tmp_path, server, {}, (ONE, TWO)) as here:
        assert status(await here.run("a:1")) == "done"
        assert status(await here.run("a:2")) == "done"
        assert server.keys == [ONE, TWO, TWO]


@pytest.mark.requirement("A2")
async def test_if_all_keys_are_refused_the_run_ends_and_the_next_one_asks_again(tmp_path: Path) -> None:
    refused = Reply(status=401, message="No.")
    async with (
        ModelServer([refused, refused, HELLO]) as server,
        place(tmp_path, server, {}, (ONE, TWO)) as here,
    ):
        state = await here.run("a:1")
        assert state.run is not None
        assert (state.run.status, state.run.reason) == ("failed", "provider_refused")
        assert len(server.requests) == 2
        assert status(await here.run("a:2")) == "done"


@pytest.mark.requirement("C17")
@pytest.mark.parametrize("name", [MODEL, "openai:*", "user:ann", "session:a:*", "home"])
async def test_a_call_larger_than_what_is_left_waits_and_uses_up_no_attempt(
    tmp_path: Path, name: str
) -> None:
    config = {"rates": {name: {"tokens_per_minute": 100, "burst": "1m"}}}
    large = Reply(text="Hello.", usage=Usage(input_tokens=220, output_tokens=5))
    async with ModelServer([large, HELLO]) as server, place(tmp_path, server, config) as here:
        key = "a:1"
        first = await here.run(key)
        assert status(first) == "done", "the first one finds it full"
        second = await here.run(key if name.startswith("session") else "a:2")
        assert (status(second), len(server.requests)) == ("parked", 1)
        assert second.models.failed_attempts == 0
        unready = (await here.events(second))[-1]
        assert isinstance(unready, e.ModelCallUnready)
        assert unready.failure.code == "rate_limited"
        here.pass_s(140)
        (ended,) = await here.go_on(key if name.startswith("session") else "a:2")
        assert status(ended) == "done"


@pytest.mark.requirement("A2", "H3")
async def test_a_call_that_has_to_wait_has_no_money_reserved(tmp_path: Path) -> None:
    config = {**ONCE, "catalog": PRICED, "budgets": {"day_usd": "5.00"}}
    async with ModelServer([DOWN, HELLO]) as server, place(tmp_path, server, config) as here:
        for key in ("a:1", "a:2"):
            assert status(await here.run(key)) == "parked"
        (home,) = await here.app.store.balances([Bucket("home")])
        kept = home.reserved
        here.pass_s(121)
        (ended,) = await here.go_on("a:2")
        assert status(ended) == "done"
        (home,) = await here.app.store.balances([Bucket("home")])
        assert home.reserved <= kept
        assert len(server.requests) == 2


async def test_a_script_has_no_circuit(tmp_path: Path) -> None:
    script = tmp_path / "story.jsonl"
    script.write_text('{"error": {"status": 503}}\n{"text": "Hello."}\n')
    async with (
        ModelServer([]) as server,
        place(tmp_path, server, {**ONCE, "model": f"script:{script}"}) as here,
    ):
        assert status(await here.run("a:1")) == "done"
        assert await here.circuits() == {}


@pytest.mark.requirement("C17")
async def test_calls_of_a_tool_wait_for_the_rate_of_the_tool(tmp_path: Path) -> None:
    looks = [Reply(tool_calls=(ReplyCall("list_dir"),)), HELLO]
    config = {"rates": {"tool:list_dir": {"requests_per_minute": 180, "burst": "1s", "concurrent": 1}}}
    config["rates"]["tool:grep"] = {"requests_per_minute": 1}
    async with ModelServer(looks * 4) as server, place(tmp_path, server, config, offers=True) as here:
        begun = asyncio.get_running_loop().time()
        for _ in range(4):
            assert status(await here.run("a:1")) == "done"
        assert asyncio.get_running_loop().time() - begun > 0.3, "after three at once, one each 0.33 s"
        store = here.app.store
        assert isinstance(store, SqliteStore)
        with connect(store.path, 1.0) as connection:
            left = connection.execute("SELECT count(*) FROM services WHERE name LIKE 'place:%'").fetchone()
        connection.close()
        assert left == (0,), "a call that has ended has no place"


@pytest.mark.requirement("A2", "L7")
async def test_a_person_who_resumes_is_not_kept_waiting_by_a_pause_that_is_over_by_then(
    tmp_path: Path,
) -> None:
    busy = Reply(status=429, headers={"retry-after": "3600"})
    look = Reply(tool_calls=(ReplyCall("list_dir"),))
    replies = [busy, busy, look, HELLO, HELLO]
    async with ModelServer(replies) as server, place(tmp_path, server, {}, offers=True) as here:
        assert status(await here.run("a:1")) == "parked"
        assert status(await here.run("a:2")) == "parked"
        assert len(server.requests) == 1, "another task has to wait"
        assert status(await here.resume("a:1")) == "parked"
        assert len(server.requests) == 2, "the service still wants no calls"
        assert status(await here.resume("a:1")) == "done"
        assert len(server.requests) == 4, "an answer ends the pause"
        assert status(await here.run("a:3")) == "done"
