"""The driver: turns causes into commits, and keeps the actions in flight that the state wants.

There is one per session. It decides nothing (`core`) and runs nothing itself (`runner`). While it has the lease,
only it appends. Resume, timer, approval, cancel and a late response are all the same step.

Causes are decided one after the other, under a lock. An attempt commits its own outcome, and then runs what follows
from it: in a run whose calls come one by one, one task goes from call to call, and nobody has to be woken in between.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.core.causes import Attach, Cause, Commanded, Due, Finding, Found, Outcome
from holdfast.core.decide import decision
from holdfast.core.state import Proposed, State, phase, started_calls
from holdfast.core.wanted import (
    Action,
    Admit,
    Attempt,
    CallModel,
    Notify,
    Prepare,
    PrepareRequest,
    PrepareSide,
    RunHook,
    RunTool,
    Wait,
    wanted,
)
from holdfast.errors import Fenced
from holdfast.protocol import notify
from holdfast.protocol.circuits import CallEnded
from holdfast.protocol.events import Event, Record, RunStopped, Trigger
from holdfast.protocol.ports import Tools
from holdfast.protocol.rows import InboxEntry
from holdfast.runtime.apart import Apart
from holdfast.runtime.bus import Bus
from holdfast.runtime.exchange import Exchange
from holdfast.runtime.fold import Fold, waiting_command
from holdfast.runtime.heard import heard
from holdfast.runtime.heartbeat import renew
from holdfast.runtime.holder import LiveLease
from holdfast.runtime.hooked import key_of
from holdfast.runtime.mailbox import Mailbox
from holdfast.runtime.originals import Originals
from holdfast.runtime.ports import Ports
from holdfast.runtime.prepare import Planner
from holdfast.runtime.runner import Runner

AT_ONCE_S = 0.05
"""How long a decision waits for a prepare step. Then it is committed without it."""
LATE_S = 1.0
"""A timer that fires so much too late is set again."""
CLOSE_S = 5.0
"""How long a driver that ends waits for what it cancelled."""


class _Over(NamedTuple):
    """A slow prepare step has ended."""

    key: str
    task: asyncio.Task[Finding | None]


class _Begun(msgspec.Struct, frozen=True, gc=False):
    """An attempt whose intent is committed, with what it runs on."""

    action: Attempt
    state: State
    body: bytes


class Driver:
    """Drives one session under one lease, from attaching until there is nothing left to do now."""

    def __init__(self, ports: Ports, bus: Bus, lease: LiveLease, originals: Originals, key: str = "") -> None:
        self._ports = ports
        self._bus = bus
        self._lease = lease
        self._session = lease.row.session
        self._epoch = lease.row.epoch
        self._begun_ms = ports.clock.awake_ms()
        self._fold = Fold(self._session, key, is_limited=ports.budgets.is_set)
        self._originals = originals
        self._apart = Apart()
        self._exchange = Exchange(ports, self._session, self._epoch)
        self._planner = Planner(ports, originals, self._apart, lease.check, self._exchange)
        self._runner = Runner(
            ports,
            bus,
            lease.check,
            originals,
            self._apart,
            self._planner.is_as_allowed,
            self._exchange,
        )
        self._ended_calls: list[CallEnded] = []
        """What the next commit says about services."""
        self._causes: Mailbox[Cause | _Over | None] = Mailbox()
        """What comes in beside the outcomes of attempts: causes, finished prepare steps, and doorbell rings."""
        self._deciding = asyncio.Lock()
        """Held while a cause is decided and committed, so that causes are taken one at a time."""
        self._running: dict[str, asyncio.Task[None] | None] = {}
        """Every attempt until its outcome is committed, so that none starts twice; None once it has its outcome."""
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks that run attempts and commit their outcomes."""
        self._preparing: dict[str, asyncio.Task[Finding | None]] = {}
        """The slow prepare steps, until their findings are decided."""
        self._wanted: list[Action] = []
        """What the state wanted at the last commit."""
        self._armed: Wait | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.failure: BaseException | None = None
        self._is_closing = False
        self._has_put_off = False
        """Commands wait in the inbox until the run has stopped."""

    @property
    def state(self) -> State:
        """The fold of all committed records."""
        return self._fold.state

    def ring(self) -> None:
        """The inbox may have commands."""
        self._causes.put(None)

    @property
    def is_rung(self) -> bool:
        """Whether somebody rang when the driver no longer looked."""
        return bool(self._causes)

    async def drive(self) -> State:
        """Attach, and continue until the session rests. Nothing is in flight when this ends.

        Raises:
            Fenced: another driver has the session. Nothing more was written or started here.
            StorageError: acknowledged records are safe, and no more can be written.
        """
        self._lease.on_lost = self.fail
        try:
            first = self._lease.first
            waiting = (first,) if first else await self._fold.open(self._ports.store)
            async with self._deciding:
                await self._attach(waiting)
            # Resting means: nothing runs, and nothing is due within a minute. Before the driver leaves, it
            # looks into the inbox once more. A command that arrives even later finds a free lease, and gets a
            # driver of its own.
            while not self._lease.is_over:
                if not self._is_at_rest():
                    await self._step()
                elif not await self._look():
                    break
            return self.state
        finally:
            await self._close()

    # --- taking over ----------------------------------------------------------------------------

    async def _attach(self, waiting: Sequence[InboxEntry]) -> None:
        """End what a dead driver left running, then record the attach and take the waiting commands."""
        known = [each.id for each in self.state.background]
        still = set(self._ports.tools.in_background(self._session)).intersection(known) if known else ()
        gone = [each for each in known if each not in still]
        await end_orphans(self._ports.tools, self.state, self._lease, gone)
        holder = self._lease.row.holder
        attach = Attach(
            self._epoch,
            f"{holder.host}:{holder.pid}",
            self._lease.has_rival(self._fold.epoch),
            tuple([each for each in known if each in still]),
            self._ports.redact(await self._ports.tools.put_aside(self._session, is_first=True)),
        )
        await self._advance(attach, *self._commanded(waiting), opening=self._fold.opening())

    # --- the loop -------------------------------------------------------------------------------

    def _is_at_rest(self) -> bool:
        """Return whether nothing is in flight, and nothing is due soon."""
        settings = self.state.settings
        patience_ms = settings.model.patience_s * 1000 if settings is not None else 0
        for action in self._wanted:
            if type(action) is not Wait or self._left_ms(action) <= patience_ms:
                return False
        return not (self._running or self._preparing or self._causes)

    async def _step(self) -> None:
        """Wait for a cause, or until an attempt has committed its own outcome. Decide the cause. None is a ring."""
        await self._causes.ready()
        async with self._deciding:
            if self.failure is not None:
                raise self.failure
            if self._lease.is_over or not self._causes:
                return
            cause = self._causes.take()
            if cause is None:
                await self._read_inbox()
            elif isinstance(cause, _Over):
                await self._prepared(cause)
            else:
                await self._advance(cause)

    async def _prepared(self, over: _Over) -> None:
        """A step that took its time is over: decide what it found, or render the request that it made ready.

        The core drops a stale finding; the step is then still wanted, and taken again.
        """
        if self._preparing.get(over.key) is not over.task:
            return
        del self._preparing[over.key]
        found = None if over.task.cancelled() else over.task.result()
        await self._advance(*([found] if found is not None else []))

    async def _look(self) -> bool:
        """Handle the commands in the inbox while nothing else is to be done. Return whether there were any."""
        async with self._deciding:
            return await self._read_inbox()

    async def _read_inbox(self) -> bool:
        """Handle the commands in the inbox, and return whether there were any. A run that is stopping comes first."""
        if phase(self.state) == "stopping":
            self._has_put_off = True
            return False
        waiting = await self._ports.store.inbox(self._session)
        if waiting:
            await self._advance(*self._commanded(waiting))
        return bool(waiting)

    def _commanded(self, waiting: Sequence[InboxEntry]) -> list[Commanded]:
        return [heard(self._ports, self.state, waiting_command(each), self._epoch) for each in waiting]

    # --- causes ---------------------------------------------------------------------------------

    async def _advance(
        self, *causes: Cause, opening: tuple[Event, ...] = (), by: asyncio.Task[None] | None = None
    ) -> _Begun | None:
        """Decide the causes and their prepare steps, commit everything as one, and act on it. Return an attempt that
        begins for the task `by` to run; None without such a task, or where no attempt begins.

        A step waits for the last of the causes, because each of them may change it. If a run begins to stop, the
        remaining commands stay in the inbox.
        """
        # An example: read_file has returned, and its outcome is the cause. `decision` brings ToolCallFinished.
        # Now the state wants the next request. Rendering it is quick, so it happens here, and its finding
        # brings ModelCallStarted. Both events are one commit. If the process dies before it, the result is lost
        # and the read runs again. If it dies after it, the next driver finds an open model call. Nothing in
        # between can be seen on disk.
        fold, now_ms, awake_ms = self._fold, self._ports.clock.now_ms(), self._awake_ms()
        batch = [fold.note(event, now_ms, self._epoch, Trigger("attach"), awake_ms) for event in opening]
        acknowledged: list[str] = []
        for cause in causes:
            if type(cause) is Commanded:
                if phase(fold.state) == "stopping":
                    self._has_put_off = True
                    break
                acknowledged.append(cause.command.id)
            batch += await self._take(cause, now_ms, awake_ms)
        self._wanted = wanted(fold.state)
        prepared_at: dict[str, int] = {}
        while (step := self._next_step()) is not None:
            # A finding must change the state or take its step from the list. Otherwise this loop would never
            # end.
            assert prepared_at.get(step.key) != fold.state.seq, f"{step.key} has no effect"
            prepared_at[step.key] = fold.state.seq
            found = await self._prepare(step, batch, now_ms)
            if found is not None:
                batch += await self._take(found, now_ms, awake_ms)
                self._wanted = wanted(fold.state)
        if batch or acknowledged:
            await self._commit(batch, tuple(acknowledged), now_ms)
        # The run has stopped, so the commands that waited for that are read now.
        if self._has_put_off and phase(fold.state) != "stopping":
            self._has_put_off = False
            self.ring()
        return await self._sync(by)

    async def _take(self, cause: Cause, now_ms: int, awake_ms: int) -> Sequence[Record]:
        """Decide a cause, and fold and return its records. If it ends the run, end the processes in the background.

        A run ends after its processes, whose changes are put right by then: if this process is killed meanwhile, the
        run is still open, and its next driver goes on with that.
        """
        fold, tools = self._fold, self._ports.tools
        decided = decision(fold.state, cause, now_ms, awake_ms)
        if _is_end(decided.records):
            had_some = bool(tools.in_background(self._session))
            await tools.end_background(self._session)  # and forget those that ended by themselves
            told = await tools.put_aside(self._session, is_first=False) if had_some else ""
            if told:
                aside = "\n".join(filter(None, (cause.aside, self._ports.redact(told))))
                decided = decision(fold.state, replace(cause, aside=aside), now_ms, awake_ms)
        return fold.take(decided)

    def _next_step(self) -> Prepare | None:
        """Return a prepare step that is wanted and not in progress."""
        for action in self._wanted:
            # `isinstance` takes ten times as long to say no to a struct.
            if (
                type(action) is Admit or type(action) is PrepareRequest or type(action) is PrepareSide
            ) and action.key not in self._preparing:
                return action
        return None

    async def _prepare(self, step: Prepare, batch: list[Record], now_ms: int) -> Finding | None:
        """Return the finding of the step; None if it is slow, and its finding comes as its own cause."""
        state = self._fold.state
        if not self._planner.is_quick(step, state):
            task = asyncio.create_task(self._planner.make_ready(step, state))
            self._preparing[step.key] = task
            # Most "slow" steps take a few milliseconds. Waiting for those saves a commit and a wake-up for each
            # call; the others must not keep the session from hearing a stop.
            await asyncio.wait({task}, timeout=AT_ONCE_S)
            if not task.done():
                over = _Over(step.key, task)
                task.add_done_callback(lambda _: self._causes.put(over))
                return None
            del self._preparing[step.key]
            found = task.result()
            if found is not None:
                return found
        return await self._planner.finding(step, state, self._found(step, batch, now_ms))

    async def _found(self, step: Prepare, batch: list[Record], now_ms: int) -> Found:
        fold = self._fold
        if type(step) is Admit:
            return await self._planner.admission(step, fold.state)
        if type(step) is PrepareRequest:
            wire = self._planner.wire(fold.state)
            if fold.wire not in ("", wire.name) or fold.conversation.is_stale:
                await fold.rewrite(self._ports.store, batch)
            return await self._planner.request(step, fold.state, fold.conversation, wire, now_ms)
        assert isinstance(step, PrepareSide)
        return await self._planner.side_request(step, fold, now_ms)

    async def _commit(self, batch: list[Record], acknowledged: tuple[str, ...], now_ms: int) -> None:
        """Commit the batch, then publish it. The last commit before a rest gives the lease back."""
        commit = self._fold.commit(
            batch, self._epoch, now_ms, acknowledged, releases_lease=self._is_at_rest()
        )
        if self._ended_calls:
            commit = replace(commit, ended=tuple(self._ended_calls))
            self._ended_calls.clear()
        # The order matters. Only what is on disk may be shown to followers or cause an effect. `_lease.commit`
        # fails if another driver has taken the session, so nothing of this batch exists then.
        await self._lease.commit(self._ports.store, commit)
        self._originals.note(self._session, batch)
        self._bus.committed(self._session, batch)

    # --- what is in flight ----------------------------------------------------------------------

    async def _sync(self, by: asyncio.Task[None] | None) -> _Begun | None:
        """Cancel what is no longer wanted, and begin what is wanted and does not run yet: its intent is committed
        by now. Return the first attempt that begins, if a task is there to run it."""
        if self._running or self._preparing:
            keys = {action.key for action in self._wanted}
            if self._running.keys() - keys:
                await asyncio.sleep(0)  # an attempt that has not begun could not say that it was cancelled
                _cancel(task for key, task in self._running.items() if task is not None and key not in keys)
            _cancel(task for key, task in self._preparing.items() if key not in keys)
        first: _Begun | None = None
        if self.failure is not None:  # it came during the commit
            return None
        for action in self._wanted:
            if (
                type(action) is CallModel
                or type(action) is RunTool
                or type(action) is RunHook
                or type(action) is Notify
            ) and action.key not in self._running:
                # The machine may have slept since the commit. If nobody took the session meanwhile, the lease
                # is renewed and the attempt begins. Otherwise the other driver has closed it already.
                if self._lease.is_lapsed and await renew(self._ports.store, self._ports.clock, [self._lease]):
                    raise Fenced()
                body = b""
                if type(action) is CallModel:
                    body = self._planner.take_body(action.model_call.purpose)
                begun = _Begun(action, self._fold.state, body)
                if by is not None and first is None:
                    first, self._running[action.key] = begun, by
                else:
                    self._begin(begun)
        self._arm([action for action in self._wanted if type(action) is Wait])
        return first

    def _begin(self, begun: _Begun) -> None:
        task = _started(self._run(begun))
        self._running.setdefault(begun.action.key, task)  # it may have its outcome already
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """What ends a task of ours ends the driving."""
        self._tasks.discard(task)
        if task.cancelled():
            if not self._is_closing:
                self.fail(RuntimeError("somebody else cancelled the task of an attempt"))
        elif (failure := task.exception()) is not None:
            self.fail(failure)

    async def _run(self, first: _Begun) -> None:
        """Run an attempt and commit its outcome, then the attempt that follows from it, as long as one does."""
        self._running[first.action.key] = asyncio.current_task()
        begun: _Begun | None = first
        while begun is not None:
            assert begun.state.settings is not None
            outcome = await self._runner.run(begun.action, begun.state, begun.body, begun.state.settings)
            begun = await self._take_outcome(outcome)

    async def _take_outcome(self, outcome: Outcome) -> _Begun | None:
        """Decide and commit an outcome. Return the next attempt for the same task, unless that task was cancelled."""
        task, self._running[outcome.key] = self._running[outcome.key], None
        assert task is not None, f"{outcome.key} has two outcomes"
        # The key stays in `_running` until here, so that a step in between does not start the same attempt
        # again.
        async with self._deciding:
            del self._running[outcome.key]
            if self._is_closing or self.failure is not None or self._lease.is_over:
                return None
            ended = self._exchange.ended(outcome.key, outcome.result)
            if ended is not None:
                self._ended_calls.append(ended)
            try:
                following = await self._advance(outcome, by=None if task.cancelling() else task)
            except BaseException as failure:  # before another attempt builds on what was not committed
                self.fail(failure)
                raise
        if following is None:
            self._causes.wake()  # the session may rest
        return following

    def fail(self, failure: BaseException) -> None:
        """End the driver as soon as possible."""
        self.failure = failure
        self.ring()

    def _arm(self, waits: list[Wait]) -> None:
        """Keep one timer for the wait that is due first. Most steps do not change it."""
        first = min(waits, key=self._left_ms) if len(waits) > 1 else waits[0] if waits else None
        # Only the first timer is set: when it fires, the core decides, and the next one is set after that.
        if first == self._armed and not self._is_late(first):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed, self._timer = first, None
        if first is not None:
            self._timer = asyncio.get_running_loop().call_later(
                self._left_ms(first) / 1000, self._fire, first
            )

    def _is_late(self, armed: Wait | None) -> bool:
        """Return whether the timer fires too late: somebody set the calendar forward since it was set."""
        if armed is None or armed.is_driven or self._timer is None:
            return False
        fires_s = self._timer.when() - asyncio.get_running_loop().time()
        return fires_s > self._left_ms(armed) / 1000 + LATE_S

    def _left_ms(self, wait: Wait) -> int:
        now_ms = self._awake_ms() if wait.is_driven else self._ports.clock.now_ms()
        return max(wait.at_ms - now_ms, 0)

    def _awake_ms(self) -> int:
        """Return how long this driver has worked, without the sleep of the machine."""
        return self._ports.clock.awake_ms() - self._begun_ms

    def _fire(self, wait: Wait) -> None:
        self._armed = self._timer = None
        if wait in self._wanted:
            self._causes.put(Due(wait.key))

    async def _close(self) -> None:
        """Stop everything that this driver started. From now on, nothing of it is recorded.

        A tool that ignores its cancellation cannot be ended from here, so the wait has a limit.
        """
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._tasks, *self._preparing.values()]
        _cancel(tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        self._apart.close()
        self._originals.keep_open(self._fold.state)


def _is_end(records: Iterable[Record]) -> bool:
    """Return whether a run ends with one of them."""
    return any(type(record.event) is RunStopped for record in records)


async def end_orphans(tools: Tools, state: State, lease: LiveLease, background: Sequence[str] = ()) -> None:
    """End what an earlier driver left running: its calls, and these processes in the background. A new driver records
    nothing before that.

    Raises:
        Lapsed: what runs may be another driver's.
    """
    keys = [f"{state.session}:{call.call_id}" for call, _ in started_calls(state)]
    keys += [notify.key_of(state.session, each.key) for each in state.notifications]
    keys += [f"{state.session}:{each}" for each in background]
    if (
        state.settings is not None and state.settings.policy.hooks
    ):  # a hook was asked about a call that has not begun
        keys += [
            f"{state.session}:{call.call_id}" for call in state.turn.calls if type(call.stage) is Proposed
        ]
        keys += [key_of(state.session, hook.name) for hook in state.settings.policy.hooks]
    if keys:
        lease.check()
        await tools.end_orphans(keys)


def _started(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task that has begun: from Python 3.12 on it does at once all that it need not wait for."""
    if sys.version_info >= (3, 12):
        return asyncio.eager_task_factory(asyncio.get_running_loop(), coroutine)
    return asyncio.create_task(coroutine)


def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel each task once: a second cancellation would disturb its cleanup."""
    for task in tasks:
        if not task.cancelling():
            task.cancel()
