"""The controller: accepts commands durably, and drives, follows and visits sessions.

Senders (the command line, the library, later gateways and channels) use only this class.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from msgspec.structs import replace

from holdfast.core.decide import decision
from holdfast.core.state import State, open_run
from holdfast.errors import (
    Fenced,
    Lapsed,
    NoSuchSession,
    Overloaded,
    StorageCorrupt,
    StorageError,
    clearing_up,
)
from holdfast.protocol.codec import encode_json
from holdfast.protocol.commands import Command, CommandBody, Continue, Principal, Resolve, Send
from holdfast.protocol.events import Trigger
from holdfast.protocol.ids import session_id
from holdfast.protocol.rows import Approval, InboxEntry, Lease, SessionRow, Situation
from holdfast.runtime.acceptance import accepted, accepting, name_of, refused, stored
from holdfast.runtime.border import check_name, storable
from holdfast.runtime.bus import Bus, Item
from holdfast.runtime.doorbell import Doorbell, ring
from holdfast.runtime.driver import Driver, end_orphans
from holdfast.runtime.fitting import check_fits
from holdfast.runtime.fold import Fold, Prospect, prospect_of, state_of, waiting_command
from holdfast.runtime.following import follow
from holdfast.runtime.heard import heard
from holdfast.runtime.heartbeat import Heartbeat
from holdfast.runtime.holder import LEASE_MS, LiveLease, is_dead, is_free, this_process
from holdfast.runtime.lookout import Lookout
from holdfast.runtime.originals import Originals
from holdfast.runtime.permission import check
from holdfast.runtime.ports import Ports

INBOX_CAPACITY = 100
"""The most commands that wait for one session. The next one is refused."""

_LISTING = "holdfast sessions"

AT_REST = frozenset({"new", "waiting", "paused", "parked", "done", "failed", "limit", "stuck", "interrupted"})


class SessionController:
    """The sessions of one runtime. Open it with `async with`."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._bus = Bus()
        self._originals = Originals(ports.redact)
        self._drivers: dict[str, Driver] = {}
        self._leased: dict[str, asyncio.Future[None]] = {}
        """The sessions whose lease a task of this controller has, or is taking, until the future."""
        self._is_closed = False
        self._heartbeat = Heartbeat(ports.store, ports.clock)
        self._lookout = Lookout(ports.store, self._bus, self._drivers)
        self._doorbell = Doorbell(self._on_ring)
        self._begun_ms = ports.clock.now_ms()
        self._holder = this_process()

    async def __aenter__(self) -> SessionController:
        if self._ports.run_folder is not None:
            self._doorbell.open(self._ports.run_folder, f"{os.getpid()}-{self._holder.nonce}")
            self._holder = replace(self._holder, doorbell=self._doorbell.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop everything that was started here. Drivers stop where they are, and their callers get an error."""
        self._doorbell.close()
        self._is_closed = True
        for driver in self._drivers.values():
            driver.fail(_closed())
        self._bus.wake_all()
        loop = asyncio.get_running_loop()
        # The loop of an abandoned controller may be closed. What belongs to it never ends.
        if leased := [each for each in self._leased.values() if each.get_loop() is loop]:
            await asyncio.wait(leased)
        await self._lookout.aclose()
        await self._heartbeat.aclose()

    # --- asking ---------------------------------------------------------------------------------

    async def open(self, key: str = "") -> str:
        """Return the id of the session with this CHANNEL:CHAT, or make one. Without a key, make one.

        Raises:
            UsageError: the name contains a secret.
        """
        check_name("The name of the session", key, self._ports.redact)
        now_ms = self._ports.clock.now_ms()
        return await self._ports.store.claim(session_id(now_ms, secrets.token_bytes(10)), key, now_ms)

    async def begin(self, key: str, principal: Principal, body: CommandBody) -> str:
        """Do `open` and `submit` in one commit: a new session always has its first command.

        Raises:
            Forbidden: the principal lacks a scope. Nothing was accepted.
            Overloaded: the session exists, and its inbox is full. Nothing was accepted.
            UsageError: the key, or a name in the command, contains a secret; or the task is too long for its model.
        """
        check_name("The name of the session", key, self._ports.redact)
        now_ms = self._ports.clock.now_ms()
        made = session_id(now_ms, secrets.token_bytes(10))
        entry = await self._allowed(made, principal, body)
        with accepting("task", _LISTING):
            session = await self._ports.store.claim(made, key, now_ms, entry)
        if session != made:
            await self.submit(session, principal, body, entry.command_id)
        return session

    async def submit(
        self, session: str, principal: Principal, body: CommandBody, command_id: str = ""
    ) -> str:
        """Send a command to a session and return its id. Then the command is durable. A command with an id that the
        session has seen counts as the same command.

        Raises:
            Forbidden: the principal lacks a scope. Nothing was accepted.
            NoSuchSession: there is no such session.
            Overloaded: its inbox is full. Nothing was accepted.
            UsageError: `command_id` is not valid, or a name in the command contains a secret.
        """
        entry = await self._allowed(session, principal, body, command_id)
        with accepting(name_of(body), f"holdfast show {session}"):
            posted = await self._ports.store.post(entry, INBOX_CAPACITY)
        if posted.outcome == "full":
            raise Overloaded(
                f"Session {session} has {INBOX_CAPACITY} waiting commands. Nothing was accepted.",
                hint="Send it again when the session has handled them.",
            )
        self._wake(session, posted.lease)
        return entry.command_id

    async def _allowed(
        self, session: str, principal: Principal, body: CommandBody, command_id: str = ""
    ) -> InboxEntry:
        """Return the command as it may be stored. Raises what `submit` raises."""
        command = Command(command_id or secrets.token_hex(16), session, principal, body)
        self.check_fits(body)
        await self._look(session, body)
        command = storable(command, self._ports.redact)
        await check(self._ports.store, command)
        return InboxEntry(command.id, session, self._ports.clock.now_ms(), encode_json(command))

    async def _look(self, session: str, body: CommandBody) -> None:
        """Look at the secret files of the workspace that a command with texts is about. A driver looks itself."""
        settings = body.settings if isinstance(body, Send | Continue) else None
        if settings is None and isinstance(body, Send | Resolve) and session not in self._drivers:
            with contextlib.suppress(NoSuchSession, StorageCorrupt):
                settings = (await state_of(self._ports.store, session)).settings
        if settings is not None:
            reading = self._ports.secret_files(settings.tools.workspace)
            if reading is not None:
                await reading

    def check_fits(self, body: CommandBody) -> None:
        """Check that a task is not too long for its model. Raises `UsageError` if it is."""
        check_fits(self._ports, body)

    async def give(self, session: str, principal: Principal, task: Send) -> str:
        """Do `submit`, but a repeat of a task that an earlier process left unread counts as the same task: it was
        killed before its first record, and its sender begins it again. The newer settings replace the task's.
        """
        await self._look(session, task)
        command = storable(Command(secrets.token_hex(16), session, principal, task), self._ports.redact)
        left = await self._left_unread(session)
        twin = next((each for each in left if _is_same_task(each, command)), None)
        if twin is None:
            return await self.submit(session, principal, task)
        if task.settings is not None:
            await self.submit(session, principal, Continue(task.settings))
        return twin.id

    async def _left_unread(self, session: str) -> list[Command]:
        """Return the commands of earlier processes that nobody reads, because nobody drives.

        A command with a time in the future is from before somebody set the clock back.
        """
        if not is_free((await self._situation(session)).lease):
            return []
        waiting = await self._ports.store.inbox(session)
        begun_ms, now_ms = self._begun_ms, self._ports.clock.now_ms()
        return [waiting_command(each) for each in waiting if not begun_ms <= each.posted_ms <= now_ms]

    async def decide_now(self, session: str, principal: Principal, body: CommandBody) -> str:
        """Submit a command, wait until its driver or our own visit has handled it, and return its id. Raises what
        `submit` raises.

        A visit records what the command means and starts nothing. The session continues when it is driven again.
        """
        command_id = await self.submit(session, principal, body)
        counts = "was accepted, and counts as soon as its session can be written"
        with accepted(f"The {name_of(body)} {counts}", session):
            await self._handled(session, command_id)
        return command_id

    async def _handled(self, session: str, command_id: str) -> None:
        """Wait until a driver or our own visit has handled a command."""
        with self._lookout.watching(is_hurried=True), self._bus.waiting(session) as change:
            await self._lookout.ready()
            while True:
                change.clear()
                if all(e.command_id != command_id for e in await self._ports.store.inbox(session)):
                    return
                situation = await self._situation(session)
                async with self._leasing(situation) as lease:
                    if lease is not None:
                        try:
                            await self._visit(lease, situation.row.key)
                        except Fenced as error:  # another driver took the session and handles it
                            await self._check_taken(lease, error)
                if lease is None:
                    await self._changed(change, situation)

    # --- driving --------------------------------------------------------------------------------

    async def run(
        self,
        key: str,
        principal: Principal,
        body: CommandBody,
        on_begun: Callable[[str], object] = lambda _: None,
    ) -> State:
        """Do `begin` and `drive`, with fewer commits: the first one of the driver makes the session. `on_begun` is
        called with its id when the command is durable.

        Raises:
            What `begin` raises: nothing was accepted. What `drive` raises.
        """
        # What a session reserves is freed by its next driver, and its calls count as long as it has its lease. So it
        # has to exist.
        if self._ports.budgets.is_set or self._ports.rate is not None:
            session = await self.begin(key, principal, body)
            on_begun(session)
            return await self.drive(session)
        check_name("The name of the session", key, self._ports.redact)
        clock = self._ports.clock
        made: str = session_id(clock.now_ms(), secrets.token_bytes(10))
        first = await self._allowed(made, principal, body)
        row, until_ms = Lease(made, 1, self._holder, LEASE_MS), clock.uptime_ms() + LEASE_MS
        lease = LiveLease(row, until_ms, clock, first=first, on_begun=on_begun)
        try:
            with self._lookout.watching():
                await self._lookout.ready()
                async with self._leasing(Situation(SessionRow(made, key), None, 1), lease):
                    state = await self._drive(lease, key)
        except StorageError as error:
            if lease.first is not None:
                raise refused(error, "task", _LISTING) from None
            raise stored(error, "The task was accepted", made) from None
        if lease.first is not None:  # somebody else has begun a session with that key
            made = await self.begin(key, principal, body)
            on_begun(made)
        elif state is not None and lease.is_over:
            return state
        return await self.drive(made)

    async def drive(self, session: str) -> State:
        """Drive the session until it rests, or follow its driver until then.

        Raises:
            NoSuchSession: there is no such session.
            StorageError: the store failed. Acknowledged records are safe.
        """
        with (
            accepted(f"What was sent to session {session} was accepted", session),
            self._lookout.watching(),
            self._bus.waiting(session) as change,
        ):
            await self._lookout.ready()
            while True:
                change.clear()
                situation = await self._situation(session)
                if self._is_at_rest(situation):
                    rested = await state_of(self._ports.store, session, situation.row.key)
                    if open_run(rested) is None:  # somebody else may have ended it
                        await self._ports.tools.end_background(session)
                    return rested
                had_rested = self._has_rested(situation)
                async with self._leasing(situation) as lease:
                    state = None
                    # Another driver may have brought it to rest between the look at it and the lease.
                    if lease is not None and (
                        had_rested or not self._has_rested(await self._situation(session))
                    ):
                        state = await self._drive(lease, situation.row.key)
                if lease is None:
                    await self._changed(change, situation)
                elif state is not None and (lease.is_over or not await self._ports.store.inbox(session)):
                    return state

    def _is_at_rest(self, situation: Situation) -> bool:
        """Return whether nobody drives the session and it has nothing to do now."""
        is_driven = situation.row.session in self._leased or not is_free(situation.lease)
        return self._has_rested(situation) and not is_driven

    def _has_rested(self, situation: Situation) -> bool:
        """Return whether the session has nothing to do now."""
        row, now_ms = situation.row, self._ports.clock.now_ms()
        return row.status in AT_REST and not 0 < row.due_ms <= now_ms and not situation.waiting

    async def _changed(self, change: asyncio.Event, situation: Situation) -> None:
        """Wait until something is committed, or until the lease may be free without a commit."""
        lease = situation.lease
        with self._lookout.minding(situation.row.session, lease.holder if lease is not None else None):
            await change.wait()

    async def _drive(self, lease: LiveLease, key: str) -> State | None:
        """Drive under the lease. Return None if another driver took over, or the bell rang at the very end."""
        session = lease.row.session
        if self._is_closed:
            raise _closed()
        driver = Driver(self._ports, self._bus, lease, self._originals, key)
        self._drivers[session] = driver
        try:
            state = await driver.drive()
            return None if driver.is_rung else state
        except Fenced as error:
            await self._check_taken(lease, error)
            await self._ports.tools.end_background(session)  # its next driver has told the model so
            return None
        finally:
            del self._drivers[session]
            # What was written meanwhile was taken for this driver's, and published by it.
            if not lease.is_over:
                self._bus.look(session)

    async def _check_taken(self, lease: LiveLease, error: Fenced) -> None:
        """Check after a refused commit that another driver has or had the session. Otherwise every commit would be
        refused.
        """
        if lease.first is not None:  # it never began: its key is taken
            return
        if lease.is_lapsed or isinstance(error, Lapsed):  # a lapsed lease may have been renewed since
            return
        row = (await self._situation(lease.row.session)).lease
        if row is not None and row.epoch == lease.row.epoch:
            raise StorageCorrupt(
                f"The row of session {lease.row.session} does not match the end of its journal.",
                hint="`holdfast fsck` lists all damage.",
            )

    async def _visit(self, lease: LiveLease, key: str) -> None:
        """Handle the waiting commands under our own epoch, without attaching."""
        store, now_ms, epoch = self._ports.store, self._ports.clock.now_ms(), lease.row.epoch
        session = lease.row.session
        fold = Fold(session, key)
        waiting = await fold.open(store)
        has_rival = lease.has_rival(fold.epoch)
        await end_orphans(self._ports.tools, fold.state, lease)
        for entry in waiting:
            command = waiting_command(entry)
            batch = [
                fold.note(event, now_ms, epoch, Trigger("command", command.id)) for event in fold.opening()
            ]
            cause = heard(
                self._ports, fold.state, command, epoch, is_contested=has_rival and entry is waiting[0]
            )
            batch += fold.take(decision(fold.state, cause, now_ms, 0))
            is_last = entry is waiting[-1]
            commit = fold.commit(batch, epoch, now_ms, (command.id,), releases_lease=is_last)
            await lease.commit(store, commit)
            self._originals.note(session, batch)
            self._bus.committed(session, batch)

    def can_run(self, row: Approval) -> bool:
        """Return whether this process has what an approval is about; with a masked copy, maybe another one has."""
        return not row.is_masked or self._originals.has(row.session, row.call_id)

    async def is_driven_elsewhere(self, session: str) -> bool:
        """Return whether another process drives the session now."""
        lease = (await self._situation(session)).lease
        return not (lease is None or self._is_ours(lease) or is_free(lease))

    # --- watching -------------------------------------------------------------------------------

    def follow(self, session: str, after_seq: int = 0) -> AsyncGenerator[Item, None]:
        """Yield every record after the cursor, in order and without a gap, and deltas as they arrive, forever."""
        return follow(self._ports.store, self._bus, self._lookout, session, after_seq)

    async def state(self, session: str) -> State:
        """Return the state of the session in the store.

        Raises:
            NoSuchSession: there is no such session.
        """
        return await state_of(self._ports.store, session, (await self._situation(session)).row.key)

    async def prospect(self, session: str) -> Prospect:
        """Return the same, with the state after the commands that wait in its inbox. Raises what `state` raises."""
        return await prospect_of(self._ports.store, session, (await self._situation(session)).row.key)

    # --- leases ---------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _leasing(
        self, situation: Situation, lease: LiveLease | None = None
    ) -> AsyncIterator[LiveLease | None]:
        """Yield the lease of a session, or None if it is not free. `lease`: the lease of a session that is begun."""
        session = situation.row.session
        if session in self._leased:
            yield None
            return
        if self._is_closed:
            raise _closed()
        ended = self._leased[session] = asyncio.get_running_loop().create_future()
        try:
            lease = lease or await self._acquire(situation)
            with self._heartbeat.keeping(lease) if lease is not None else contextlib.nullcontext():
                yield lease
        finally:
            del self._leased[session]
            if lease is not None:
                lease.until_ms = 0  # the check of the lease now stops every effect of what still runs
            try:
                if lease is not None and not lease.is_over:
                    with (
                        clearing_up("The lease"),
                        contextlib.suppress(StorageError),
                    ):  # then it lapses by itself
                        await self._ports.store.release(lease.row)
            finally:
                ended.set_result(None)
            if lease is not None:
                self._bus.wake(session)

    async def _acquire(self, situation: Situation) -> LiveLease | None:
        """Return a new lease if the session was free, or if an earlier task of this controller left it."""
        last, clock = situation.lease, self._ports.clock
        is_left = last is not None and self._is_ours(last)
        if not is_left and not is_free(last):
            return None
        until_ms = clock.uptime_ms() + LEASE_MS
        over = last if last is not None and last.left_ms else None
        row = await self._ports.store.lease(situation.row.session, self._holder, LEASE_MS, over)
        is_contested = last is not None and not is_left and not is_dead(last.holder)
        return LiveLease(row, until_ms, clock, is_contested) if self._is_ours(row) else None

    def _is_ours(self, lease: Lease) -> bool:
        return lease.holder.nonce == self._holder.nonce

    async def _situation(self, session: str) -> Situation:
        situation = await self._ports.store.situation(session)
        if situation is None:
            raise NoSuchSession(f"There is no session {session}.", hint="`holdfast sessions` lists them.")
        return situation

    def _wake(self, session: str, lease: Lease | None) -> None:
        """Ring the bell of the process that drives the session."""
        driver = self._drivers.get(session)
        if driver is not None:
            driver.ring()
        elif lease is not None:
            ring(lease.holder.doorbell, session)

    def _on_ring(self, session: str) -> None:
        driver = self._drivers.get(session)
        if driver is not None:
            driver.ring()


def _closed() -> StorageError:
    return StorageError("This runtime is closed; what is recorded goes on with `resume`.")


def _is_same_task(one: Command, other: Command) -> bool:
    """Whether both are the same words of the same sender."""
    if not (isinstance(one.body, Send) and isinstance(other.body, Send)):
        return False
    return (one.body.text, one.body.attachments, one.principal) == (
        other.body.text, other.body.attachments, other.principal,
    )  # fmt: skip
