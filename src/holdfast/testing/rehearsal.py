"""Tests an agent of your own: the real loop, with scripted replies instead of a model, and a crash at any commit.

    for played in rehearse_crashes(shop, "Charge 5.", REPLIES, tmp_path, deps=Bank):
        assert played.result.status == "done"
        assert len(played.deps.charges) <= 1

`scenarios` plays sessions on the ports of the runtime, and with a clock that jumps. Here tools take their real time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.agent import Agent, Event, Result, Runtime
from holdfast.app import App, open_app, open_store
from holdfast.library.following import event_of
from holdfast.protocol.ports import Store
from holdfast.testing.faults import Crash, Faults, FaultyStore
from holdfast.testing.invariants import check_session
from holdfast.testing.scenarios import records_of

SESSION = "test:rehearsal"
_NOTHING = Faults()


@dataclass(frozen=True)
class Rehearsed:
    """What came of a rehearsal."""

    result: Result[Any]
    events: tuple[Event, ...]
    """Everything that was recorded, by all processes."""
    deps: Any
    """What `deps` made for this rehearsal."""
    workspace: Path
    """The folder of the built-in tools. Each rehearsal has its own."""
    faults: Faults
    """What went wrong."""
    commits: int
    """The number of commits of the last process."""


def rehearse(
    make: Callable[..., Agent[Any]],
    text: str,
    replies: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    deps: Callable[[], object] | None = None,
    faults: Faults = _NOTHING,
) -> Rehearsed:
    """Let an agent work on a task, without a network. If a fault kills it, a new agent resumes its session, as a new
    process would. Cannot be called in a running event loop.

    Args:
        make: Your function that creates the agent. It passes `model`, `runtime` and `workspace` on to `Agent`.
        text: The task.
        replies: What the model says, one reply for each call: `{"text": "Done."}`, or
            `{"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}`.
        folder: Where files may be written, like the `tmp_path` of pytest.
        deps: Makes the deps of the run. They outlive a crash, like the systems that they stand for.
        faults: What goes wrong, and at which commit.

    Raises:
        AssertionError: the journal is not as it must be.
    """
    place = folder / f"rehearsal-{sum(1 for _ in folder.iterdir())}"
    workspace, script = place / "workspace", place / "replies.jsonl"
    workspace.mkdir(parents=True)
    script.write_text("\n".join(json.dumps(reply) for reply in replies))
    store, lent = open_store(None), deps() if deps is not None else None
    for fault in (faults, _NOTHING):
        stage = _Stage(FaultyStore(store, fault))
        agent = make(model=f"script:{script}", runtime=stage, workspace=workspace)
        with suppress(Crash):
            result = asyncio.run(_lived(stage, agent, text, store, lent))
            break
    else:
        raise AssertionError("it was killed without a fault")
    events = asyncio.run(_checked(store))
    return Rehearsed(result, events, lent, workspace, faults, stage.store.commits)


def rehearse_crashes(
    make: Callable[..., Agent[Any]],
    text: str,
    replies: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    deps: Callable[[], object] | None = None,
) -> Iterator[Rehearsed]:
    """Yield a rehearsal without a fault, and then one for a crash before each commit, and one for a crash after it.

    Takes and raises what `rehearse` does.
    """
    whole = rehearse(make, text, replies, folder, deps=deps)
    yield whole
    for number in range(1, whole.commits + 1):
        for faults in (Faults(crash_before_commit=number), Faults(crash_after_commit=number)):
            yield rehearse(make, text, replies, folder, deps=deps, faults=faults)


class _Stage(Runtime):
    """A runtime on a store that dies at a commit. No variable of the environment counts."""

    def __init__(self, store: FaultyStore) -> None:
        super().__init__()
        self.store = store

    def _opened(self) -> AbstractAsyncContextManager[App]:
        return open_app(self.config, None, environ={}, memory=self.store, offers=lambda _: False)


async def _lived(stage: _Stage, agent: Agent[Any], text: str, store: Store, deps: object) -> Result[Any]:
    """The life of one process. It begins the task, or resumes what the process before it left."""
    try:
        if await store.find(SESSION):
            return await agent.resume(SESSION, deps=deps)
        return await agent.run(text, SESSION, deps=deps)
    finally:
        with suppress(Crash):
            await stage.aclose()
        await _buried(store)


async def _buried(store: Store) -> None:
    """Take the lease from a process that is dead: nobody has to wait until it lapses."""
    for session in await store.find(SESSION):
        situation = await store.situation(session)
        if situation is not None and situation.lease is not None:
            await store.release(situation.lease)


async def _checked(store: Store) -> tuple[Event, ...]:
    """Check the journal, and return what is in it."""
    (session,) = await store.find(SESSION)
    records = await records_of(store, session)
    await check_session(store, session, records)
    return tuple(event_of(record) for record in records)
