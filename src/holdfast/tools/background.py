"""The processes that go on after the call that started them, of all sessions of one runtime.

Each is named after that call. It ends when it is stopped, with its run, or with the runtime: nothing of it is left
then. What it printed is kept as it came, in memory only, and masked as a whole: so a secret is masked wherever
somebody begins to read.

`sandbox.process` runs them. `shell` starts them, and `process` has the tools that read and stop them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.protocol.fence import Backend, Launch
from holdfast.protocol.ports import CallContext
from holdfast.protocol.settings import Policy
from holdfast.protocol.traffic import MAX_EXCHANGES, Exchange, Requests
from holdfast.redact import AROUND_CHARS, Redactor, part_of, reach_of
from holdfast.sandbox.process import Ended, Processes
from holdfast.tools import aside
from holdfast.tools.blocking import Refused, in_thread
from holdfast.tools.unreached import cut_off
from holdfast.tools.within import LOOKED_AT_CHARS, failure, refused

MAX_RUNNING = 8
"""The most processes of one session that may run in the background. As many that have ended are known."""
KEPT_CHARS = 1 << 20
"""How much of the end of an output can be read."""
AT_ONCE_S = 0.3
"""Whatever ends so soon has probably failed, and the call that started it says so."""

CUT = "Its network ended: the session has read untrusted text, and no person approved the command."

_UNREAD_BYTES = 1
"""`Recent` keeps the output, so `sandbox.process` need not."""
_PIECE_CHARS = 4_096


class Recent:
    """The last part of a text that grows, and a little before it, which shows whether a secret lies where the part
    begins. Places in it are counted in characters of the whole text.
    """

    def __init__(self) -> None:
        self.begin = 0
        """The place of the first character that is kept."""
        self.end = 0
        self._pieces: deque[str] = deque()

    def add(self, piece: str) -> None:
        """Add to the end, and drop what is too much from the beginning."""
        # A process may print letter by letter. A million letters must not be a million pieces.
        if self._pieces and len(self._pieces[-1]) < _PIECE_CHARS:
            self._pieces[-1] += piece
        else:
            self._pieces.append(piece)
        self.end += len(piece)
        while self.end - self.begin - len(self._pieces[0]) >= KEPT_CHARS + AROUND_CHARS:
            self.begin += len(self._pieces.popleft())

    def whole(self) -> str:
        """Return what is kept."""
        return "".join(self._pieces)


class Page(NamedTuple):
    """A part of an output."""

    text: str
    """Masked."""
    first: int
    """Its place."""
    last: int
    """The place where the next page begins."""


def page_of(redact: Redactor, whole: str, begin: int, place: int, chars: int, *, is_growing: bool) -> Page:
    """Return a page of what is kept of an output, which begins at a place. If it is not the beginning of the output,
    the first characters are not shown: they may be the end of a secret.
    """
    readable = begin + reach_of(redact) if begin else 0
    first = min(max(place, readable), begin + len(whole))
    text, end = part_of(redact, whole, first - begin, first - begin + chars, is_growing=is_growing)
    return Page(text, first, begin + end)


class Process:
    """A process in the background, or what is known of it when it has ended."""

    def __init__(
        self,
        id_: str,
        launch: Launch,
        backend: Backend,
        redact: Redactor,
        policy: Policy,
        *,
        may_be_cut: bool,
    ) -> None:
        self.id = id_
        self.key = launch.key
        self.may_be_cut = may_be_cut
        """Whether untrusted text cuts off its network."""
        self.is_cut = False
        """Whether it did so."""
        self.command = launch.argv[-1]
        self.output = Recent()
        self.task: asyncio.Task[Ended]
        self._timeout_s = launch.timeout_s
        self._fence, self._backend = launch.fence, backend
        self._workspace, self._policy = launch.cwd, policy
        self._redact = redact
        self._news = asyncio.Event()
        self._exchanges: list[Exchange] = []
        self._more = 0

    @property
    def is_running(self) -> bool:
        return not self.task.done()

    @property
    def has_succeeded(self) -> bool:
        """Whether it has ended by itself with exit code 0."""
        is_over = self.task.done() and not self.task.cancelled() and self.task.exception() is None
        return is_over and self.task.result().exit_code == 0

    @property
    def how(self) -> str:
        """Return how it is, as half a sentence."""
        if self.is_running:
            return "still running"
        if self.task.cancelled():
            return "stopped"
        if (error := self.task.exception()) is not None:
            return f"could not be started: {error.strerror if isinstance(error, OSError) else error}"
        ended = self.task.result()
        if ended.how in ("timeout", "idle"):
            how = f"killed after {self._timeout_s:g} s"
        else:
            told = replace(ended, output=self.output.whole()[-LOOKED_AT_CHARS:])
            seen = told, self._fence, self._backend
            how = "; ".join(filter(None, (failure(*seen), refused(*seen))))
        return how + aside.told(ended.put_right, self._workspace)

    @property
    def unreached(self) -> str:
        """Return why it has no network, or has lost it, if that matters; empty otherwise."""
        if self.is_cut:
            return CUT
        said = Ended(
            "exited", 0 if self.has_succeeded else 1, self.output.whole()[-LOOKED_AT_CHARS:], self.output.end
        )
        return cut_off(said, self._fence, self._policy)

    async def news(self, seen: int, timeout_s: float | None = None) -> None:
        """Wait until it begins, has printed more than this, or ends, or for so long."""
        if self.output.end > seen:
            return
        self._news.clear()
        waits = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait({waits, self.task}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits.cancel()

    async def gone(self, timeout_s: float) -> None:
        """Wait until it has ended, or for so long."""
        await asyncio.wait({self.task}, timeout=timeout_s)

    def begin(self) -> None:
        """It is about to be started."""
        self._news.set()

    def hear(self, text: str) -> None:
        """Keep what it printed."""
        self.output.add(text)
        self._news.set()

    def ask(self, exchange: Exchange) -> None:
        """Keep what it asked of the network, until somebody reads it."""
        if len(self._exchanges) < MAX_EXCHANGES:
            self._exchanges.append(exchange)
        else:
            self._more += 1

    def asked(self) -> Requests:
        """Return what it asked of the network since the last time."""
        requests = Requests(tuple(self._exchanges), self._more)
        self._exchanges, self._more = [], 0
        return requests

    async def read(self, place: int, chars: int) -> Page:
        """Return what it printed from this place on, masked. While it runs, the last word is withheld."""
        begin, whole, is_growing = self.output.begin, self.output.whole(), self.is_running
        return await in_thread(
            lambda: page_of(self._redact, whole, begin, place, chars, is_growing=is_growing)
        )


class Background:
    """The processes in the background, by session, and what runs them and all others."""

    def __init__(self, processes: Processes | None = None) -> None:
        self.processes = processes or Processes()
        self._of: dict[str, dict[str, Process]] = {}

    async def start(self, launch: Launch, backend: Backend, context: CallContext) -> Process:
        """Start a process that goes on after this call, and see whether it ends at once.

        Raises:
            Refused: too many run.
            OSError: it could not be started.
            Lapsed: the launch's check failed, and nothing was started.
        """
        known = self._of.setdefault(context.session, {})
        _make_room(known)
        walled = context.walled
        may_be_cut = walled is not None and walled.network == "proxy" and not walled.is_approved
        redact = context.get(Redactor)
        process = Process(context.call_id, launch, backend, redact, context.policy, may_be_cut=may_be_cut)

        check_first = launch.check

        def check() -> int:
            until_ms = check_first()
            process.begin()
            return until_ms

        launch = replace(launch, check=check, kept_bytes=_UNREAD_BYTES, on_exchange=process.ask)
        process.task = task = asyncio.create_task(self.processes.run(launch, process.hear))
        # Retrieved, so that asyncio does not report it where nobody asks how the process is.
        task.add_done_callback(lambda over: over.cancelled() or over.exception())
        known[process.id] = process
        try:
            await process.news(0)  # after this call, the check of a launch that has not begun would fail
            await process.gone(AT_ONCE_S)
        except asyncio.CancelledError:
            await _end([process])
            del known[process.id]
            raise
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            del known[process.id]
            raise error
        return process

    def of(self, session: str) -> dict[str, Process]:
        """Return what is known of a session's processes, by their ids, oldest first."""
        return self._of.get(session, {})

    def running(self, session: str) -> list[str]:
        """Return the ids of those that run."""
        return [each.id for each in self.of(session).values() if each.is_running]

    def cut(self, session: str) -> None:
        """Cut off the network of the processes of a session that no person approved: it has read untrusted text."""
        for each in self.of(session).values():
            if each.may_be_cut and each.is_running:
                each.may_be_cut, each.is_cut = False, True
                each.ask(Exchange("", "", "refused", CUT))
                self.processes.cut(each.key)

    async def stop(self, process: Process) -> None:
        """End a process. Nothing of its tree is left when this returns."""
        await _end([process])

    async def end(self, session: str) -> None:
        """End all processes of a session, and forget them."""
        if session in self._of:
            await _end([*self._of.pop(session).values()])

    async def aclose(self) -> None:
        """End all that run."""
        for session in [*self._of]:
            await self.end(session)
        await self.processes.aclose()


def _make_room(known: dict[str, Process]) -> None:
    """Forget processes that have ended, if there are many.

    Raises:
        Refused: too many run.
    """
    running = [each.id for each in known.values() if each.is_running]
    if len(running) >= MAX_RUNNING:
        raise Refused(
            f"At most {MAX_RUNNING} processes of a session run in the background, and these do: "
            f"{', '.join(running)}. Stop one with process_stop first."
        )
    over = [each.id for each in known.values() if not each.is_running]
    for id_ in over[:-MAX_RUNNING]:
        del known[id_]


async def _end(processes: list[Process]) -> None:
    """Cancel their tasks, each of which ends its tree, and wait for them."""
    for each in processes:
        each.task.cancel()
    if tasks := [each.task for each in processes]:
        await asyncio.wait(tasks)
