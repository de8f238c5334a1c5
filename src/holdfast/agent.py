"""The library: an `Agent` works on tasks in sessions, with the same loop and journal as the command line.

    async with Agent(model="openai:gpt-5.5", tools=[add]) as agent:
        result = await agent.run("What is 17 + 25?")

This only puts things together. `core` and `runtime` make sessions work; `config` checks limits.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar, Unpack, overload

from holdfast.app import App
from holdfast.config.limits import Limits
from holdfast.config.load import UNSAFE
from holdfast.config.settings import Config
from holdfast.core.state import State, open_run
from holdfast.core.summary import status
from holdfast.errors import ConfigError, UsageError
from holdfast.library.following import (
    Event,
    Session,
    SessionInfo,
    event_of,
    found,
    listed_sessions,
    watch,
)
from holdfast.library.isolating import in_copy, settings_of_copy, workshop_of
from holdfast.library.runtime import SENDER, Runtime, owned
from holdfast.library.sections import custom_sections
from holdfast.library.tools import built_in_names, check_deps, distinct, lent
from holdfast.protocol.commands import Continue, Resolve, Send
from holdfast.protocol.ids import is_session_id, is_session_key
from holdfast.protocol.ports import Delta, Tool
from holdfast.protocol.rows import Approval, Sought
from holdfast.protocol.settings import Settings, changed
from holdfast.runtime.isolate import Accepted, accept, discard
from holdfast.runtime.report import report
from holdfast.tools.context import Context
from holdfast.tools.fencing import starts
from holdfast.tools.function import tool
from holdfast.tools.output import OutputType, output_type
from holdfast.views.report import Result

__all__ = [
    "Agent", "Approval", "Context", "Delta", "Event", "Limits", "Result", "Runtime", "Session", "SessionInfo", "tool",
]  # fmt: skip

Instructions = str | Callable[[Any], str | Awaitable[str]]
"""Words for the system prompt, or a function that takes the deps of a run and returns them."""
OnApproval = Callable[[Approval], bool | str | Awaitable[bool | str]]
"""Decides about a call: True approves it once, False denies it, and text denies it with a reason for the model. For a
question, text is the answer.
"""
T = TypeVar("T")
U = TypeVar("U")
_NAMES = 'Use CHANNEL:CHAT, like "cli:docs": each with 1 to 64 letters, digits, dots, dashes, underscores.'
_UNUSED = object()
"""No function will run, so no deps are needed."""
_END_S = 5.0
"""How long a running loop waits for the end of a stream that is collected in it."""
_log = logging.getLogger("holdfast")


class AgentOptions(TypedDict, total=False):
    """The parameters of an `Agent` beside `output`, for type checkers."""

    model: str
    tools: Iterable[Tool | str]
    instructions: Instructions
    sections: Mapping[str, str]
    home: str | Path | None
    limits: Limits | None
    config: str | Path | Mapping[str, Any] | None
    runtime: Runtime | None
    workspace: str | Path | None
    isolate: bool
    on_approval: OnApproval | None


class Agent(Generic[T]):
    """An agent: a model, tools and instructions. It can work in many sessions at once.

    Its first use opens it. Close it with `aclose`, or use it with `async with`. A closed agent cannot be used
    again: this raises `UsageError`. If a run is cancelled, its session stays as recorded, and `resume` continues
    it, here or in another process. An agent works in one event loop at a time: when that is closed, it works in the
    next one. In a second loop or thread it raises `UsageError`.

    Args:
        model: PROVIDER:MODEL. The default is the configuration's.
        tools: The only tools that it may use: functions decorated with `@tool`, and globs on the names of built-in
            tools: `["read_*", "grep", "shell"]`. The same tool twice counts once.
        instructions: Added to Holdfast's own system prompt. A function of the deps, sync or async, is called whenever
            a run opens, and what it returns is recorded.
        sections: Further sections of the system prompt by name, at its end: `{"team": "Ann reviews."}`.
        home: The folder of the sessions. None keeps them in memory until the agent is closed.
        limits: The limits of each run. They override the configuration's.
        config: A file or a dict with the keys of config.toml. Without it, no file and no `HOLDFAST_*` variable
            is read; keys and addresses come from the providers' variables.
        runtime: Shared with other agents. It has `home` and `config` then.
        workspace: The folder of the built-in tools. The default is the session's last one, or the current folder.
        isolate: Each session works in a copy of the workspace. `accept` takes over what changed in it, `discard`
            removes it. This needs a home.
        output: The type of the answers: a dataclass, a TypedDict, a msgspec Struct, a pydantic model, a `list[...]`
            of one of them, or a JSON Schema as a dict. Each request contains the schema, and the model may repair a
            wrong answer at most twice. The default is words.
        on_approval: Called for each call that needs approval, and for each question: return True, False, or text for
            the model. It may be async. Without it, such a run ends as `waiting`.

    The caller chose the tools in code. So, unless the configuration sets `autonomy`, calls need no approval, within
    the hard rules of `policy`. With `config={"autonomy": "supervised"}`, calls that run commands or use the network
    wait for `approve` or `deny`. With `on_approval`, `supervised` is the default: who wants to be asked is asked.

    Raises:
        ConfigError: limits or configuration are wrong. Lists every problem.
        UsageError: arguments contradict each other, something is not a tool, two tools have the same name, or the
            output type has no JSON Schema.
    """

    @overload
    def __init__(self: Agent[str], *, output: None = None, **options: Unpack[AgentOptions]) -> None: ...
    @overload
    def __init__(self, *, output: type[T], **options: Unpack[AgentOptions]) -> None: ...
    @overload
    def __init__(self: Agent[Any], *, output: Mapping[str, Any], **options: Unpack[AgentOptions]) -> None: ...
    def __init__(  # noqa: PLR0913 - the main class of the library: each parameter is needed
        self,
        *,
        model: str = "",
        tools: Iterable[Tool | str] = (),
        instructions: Instructions = "",
        sections: Mapping[str, str] | None = None,
        home: str | Path | None = None,
        limits: Limits | None = None,
        config: str | Path | Mapping[str, Any] | None = None,
        runtime: Runtime | None = None,
        workspace: str | Path | None = None,
        isolate: bool = False,
        output: type[T] | Mapping[str, Any] | None = None,
        on_approval: OnApproval | None = None,
    ) -> None:
        if runtime is not None and (home is not None or config is not None):
            raise UsageError("home and config belong to the shared runtime: pass them to Runtime(...).")
        named = list(tools)
        self._tools = distinct(each for each in named if not isinstance(each, str))
        self._offered = (
            *built_in_names([each for each in named if isinstance(each, str)]),
            *(each.spec.name for each in self._tools),
        )
        self._is_own = runtime is None
        self._runtime = runtime or owned(home, config, self._tools, self._offered, isolate)
        self._on_approval = on_approval
        self._config = self._configured(model, limits or Limits())
        if not (isinstance(instructions, str) or callable(instructions)):
            raise UsageError(f"instructions = {instructions!r:.80}: must be text, or a function of the deps.")
        self._instructions = instructions
        self._sections = custom_sections(sections or {})
        self._output = output_type(output)
        self._workspace = None if workspace is None else Path(workspace)
        self._isolates = isolate
        self._told: set[str] = set()
        self._is_closed = False

    @classmethod
    def from_config(cls, path: str | Path) -> Agent[str]:
        """Return an agent from a file with the keys of config.toml. It may use every built-in tool."""
        return Agent(config=path, tools=["*"])

    async def __aenter__(self) -> Agent[T]:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop what still runs (its runs end as `interrupted`) and close everything. A shared runtime stays open, and
        other agents' runs continue there.
        """
        self._is_closed = True
        if self._is_own:
            await self._runtime.aclose()

    # --- working --------------------------------------------------------------------------------

    @overload
    async def run(self, text: str, session: str = "", *, deps: object = None) -> Result[T]: ...
    @overload
    async def run(
        self, text: str, session: str = "", *, output: type[U], deps: object = None
    ) -> Result[U]: ...
    @overload
    async def run(
        self, text: str, session: str = "", *, output: Mapping[str, Any], deps: object = None
    ) -> Result[Any]: ...
    async def run(
        self, text: str, session: str = "", *, output: Any = None, deps: object = None
    ) -> Result[Any]:
        """Work on a task until the run rests.

        A message to a session with an open run joins that run. The result is then that run's.

        Args:
            session: CHANNEL:CHAT, which is created if it is new, or the id of a session. Empty means a new session.
            output: The type of this answer, as in `Agent`; `str` for words. None means the agent's type.
            deps: What the functions among the tools get as `Context.deps`: connections, clients, whose request it is.
                It stays in the memory of this process: the model does not see it, and nothing of it is recorded.
                A message that joins an open run needs the same object, because the calls of the run share it.

        Raises:
            UsageError: there is no model, no key, or no such provider; the text is empty; the session's name is not
                valid; `deps` is not what a tool needs, or a run of this runtime works in the session with another
                object; or the agent is closed.
            NoSuchSession: there is no session with that id.
            Overloaded: too many commands wait for the session. Nothing was accepted.
            StorageError: the home cannot be used.
        """
        app = await self._open(deps)
        known = await self._known(app, session)
        wanted = self._output if output is None else output_type(output)
        words = await self._words(app, known, text, wanted, deps)
        with lent(app, (session, known), deps), ExitStack() as working:

            def on_begun(name: str) -> None:
                working.enter_context(self._runtime.working(name))
                if not known:
                    working.enter_context(lent(app, (name,), deps))

            if known:
                await app.controller.give(known, SENDER, words)
                on_begun(known)
                state = await app.controller.drive(known)
            else:
                state = await app.controller.run(session, SENDER, words, on_begun)
            return wanted.typed(await report(app.store, await self._decided(app, state)))

    async def stream(
        self, text: str, session: str = "", *, deps: object = None
    ) -> AsyncGenerator[Event | Delta | Result[T], None]:
        """Like `run`, but yield each record and each `Delta` as it arrives, until the run rests, and at the end the
        `Result`.

        Raises:
            HoldfastError: as `run`.
        """
        app = await self._open(deps)
        known = await self._known(app, session)
        cursor = await app.store.last_seq(known) if known else 0
        words = await self._words(app, known, text, self._output, deps)
        with lent(app, (session, known), deps):
            if known:
                await app.controller.give(known, SENDER, words)
            name = known or await app.controller.begin(session, SENDER, words)

            async def work() -> State:
                return await self._decided(app, await app.controller.drive(name))

            with lent(app, (name,), deps):
                async with aclosing(watch(app, self._runtime, name, cursor, work)) as items:
                    async for item in items:
                        match item:
                            case State() as state:
                                yield self._output.typed(await report(app.store, state))
                            case Delta():
                                yield item
                            case _:
                                yield event_of(item)

    @overload
    def run_sync(self, text: str, session: str = "", *, deps: object = None) -> Result[T]: ...
    @overload
    def run_sync(
        self, text: str, session: str = "", *, output: type[U], deps: object = None
    ) -> Result[U]: ...
    @overload
    def run_sync(
        self, text: str, session: str = "", *, output: Mapping[str, Any], deps: object = None
    ) -> Result[Any]: ...
    def run_sync(
        self, text: str, session: str = "", *, output: Any = None, deps: object = None
    ) -> Result[Any]:
        """Do what `run` does, for programs without an event loop.

        Raises:
            UsageError: an event loop runs in this thread; or as `run`.
            HoldfastError: as `run`.
        """
        _check_no_loop("run_sync", "await agent.run(...)")
        return asyncio.run(self.run(text, session, output=output, deps=deps))

    def stream_sync(
        self, text: str, session: str = "", *, deps: object = None
    ) -> Generator[Event | Delta | Result[T], None, None]:
        """Do what `stream` does, for programs without an event loop. The work only continues while an item is asked
        for.

        Raises:
            UsageError: an event loop runs in this thread; or as `run`.
            HoldfastError: as `run`.
        """
        _check_no_loop("stream_sync", "async for item in agent.stream(...): ...")
        return _iterated(self.stream(text, session, deps=deps))

    @overload
    async def resume(self, session: str, text: str | None = None, *, deps: object = None) -> Result[T]: ...
    @overload
    async def resume(
        self, session: str, text: str | None = None, *, output: type[U], deps: object = None
    ) -> Result[U]: ...
    @overload
    async def resume(
        self, session: str, text: str | None = None, *, output: Mapping[str, Any], deps: object = None
    ) -> Result[Any]: ...
    async def resume(
        self, session: str, text: str | None = None, *, output: Any = None, deps: object = None
    ) -> Result[Any]:
        """Continue a session with the settings of this agent: after a crash, a limit, a pause, an approval.

        For a run that is done, without text, return its result again and do nothing.

        Args:
            output: The type of the answer, as in `run`.
            deps: As in `run`.

        Raises:
            NoSuchSession: there is no such session.
            UsageError: as `run`; or the session has no run.
        """
        app = await self._open(deps)
        if text is not None:
            _check_text(text)
        wanted = self._output if output is None else output_type(output)
        name = await found(app, session)
        past = await app.controller.prospect(name)
        if text is None and past.ahead.run is not None and past.ahead.run.status == "done":
            return wanted.typed(await report(app.store, past.now))
        settings = await self._settings(app, name, wanted, deps)
        with lent(app, (name,), deps), self._runtime.working(name):
            if text is None:
                await app.controller.submit(name, SENDER, Continue(settings))
            else:
                await app.controller.give(name, SENDER, Send(text, settings))
            state = await self._decided(app, await app.controller.drive(name))
            return wanted.typed(await report(app.store, state))

    # --- looking --------------------------------------------------------------------------------

    async def result(self, session: str) -> Result[T]:
        """Return the result of the newest run, or its status now. This does not drive the session.

        Raises:
            NoSuchSession: there is no such session.
            UsageError: the session has no run.
        """
        app = await self._open()
        state = await app.controller.state(await found(app, session))
        return self._output.typed(await report(app.store, state))

    async def sessions(self, *, status: str = "", before: str = "", limit: int = 1_000) -> list[SessionInfo]:
        """Return the sessions of the home, the one that changed last first.

        Args:
            status: Only those with this status: `done`, `waiting`, `running` ...
            before: The id of the last session of a page: only those after it.
            limit: The most that are returned.
        """
        return await listed_sessions(await self._open(), Sought(status=status, before=before), limit)

    def session(self, name: str) -> Session:
        """Return one session, to read it: `[event async for event in agent.session("cli:demo").events()]`.

        Args:
            name: Its id, the beginning of one, or CHANNEL:CHAT.
        """
        return Session(name, self._open)

    # --- approvals ------------------------------------------------------------------------------

    async def approvals(self, session: str = "") -> list[Approval]:
        """Return what waits for a decision, oldest first, in one session or in all."""
        app = await self._open()
        return await app.store.approvals(await found(app, session) if session else "")

    async def approve(self, approval: str, note: str = "") -> None:
        """Approve a call, or answer a question with the note. Then call `resume` to continue.

        Raises:
            UsageError: there is no such approval, or it was already decided. Says by whom.
        """
        await self._resolve(Resolve(approval, "approve", note))

    async def deny(self, approval: str, note: str = "") -> None:
        """Deny a call, and tell the model, with the note. Raises what `approve` raises."""
        await self._resolve(Resolve(approval, "deny", note))

    async def _decided(self, app: App, state: State) -> State:
        """Ask `on_approval` while the session waits for a decision, and continue. Return the state at rest."""
        while self._on_approval is not None and status(state) == "waiting":
            asked = await app.store.approvals(state.session)
            for row in asked:
                body = _resolution(row, await _awaited(self._on_approval(row)))
                await app.controller.decide_now(row.session, SENDER, body)
            if not asked:
                return state
            state = await app.controller.drive(state.session)
        return state

    async def _resolve(self, body: Resolve) -> None:
        app = await self._open()
        row = await app.store.approval(body.approval_id)
        if row is None:
            raise UsageError(f"There is no approval {body.approval_id}.")
        if not row.decision:
            await app.controller.decide_now(row.session, SENDER, body)
            row = await app.store.approval(body.approval_id) or row
        is_ours = row.decided_by == SENDER.label and (row.decision == "deny") == (body.decision == "deny")
        if not is_ours:
            raise UsageError(f"{row.id} was already decided: {row.decision}, by {row.decided_by}.")

    async def accept(self, session: str, *, allow: Iterable[str] = (), skip: Iterable[str] = ()) -> Accepted:
        """Take over what a session changed in its copy of the workspace: all files, or none.

        Args:
            session: Its id, or CHANNEL:CHAT.
            allow: Files that are accepted although they control other programs, or were put aside in the copy.
            skip: Files and folders that stay as they are.

        Raises:
            NoSuchSession: there is no such session.
            UsageError: it does not work in a copy.
            Conflict, Unfinished: its run is open; or an undo could not be completed.
        """
        app = await self._open()
        workshop, home = workshop_of(app)
        return await accept(workshop, home, await found(app, session), SENDER, [*allow], [*skip])

    async def discard(self, session: str) -> bool:
        """Remove the copy in which a session worked. Return whether there was one. Raises what `accept` raises."""
        app = await self._open()
        workshop, home = workshop_of(app)
        return (await discard(workshop, home, await found(app, session), SENDER)).is_copy

    # --- setting up -----------------------------------------------------------------------------

    def _configured(self, model: str, limits: Limits) -> Config:
        """The values set here, over the runtime's configuration."""
        if not isinstance(limits, Limits):
            raise ConfigError(f"limits = {limits!r}: must be Limits, like Limits(turns=50)")
        said: dict[str, object] = {"limits": limits.given} | ({"model": model} if model else {})
        if self._runtime.config.settings["autonomy"].layer == "default" and self._on_approval is None:
            said["autonomy"] = "full"
        return self._runtime.config_with(said)

    async def _open(self, deps: object = _UNUSED) -> App:
        """Return the app, opened on first use. Check that the functions can use these deps."""
        if self._is_closed:
            hint = "Create another Agent. With the same home or runtime it continues the same sessions."
            raise UsageError("This agent is closed.", hint=hint)
        if deps is not _UNUSED:
            check_deps(self._tools, self._instructions, deps)
        app = await self._runtime.app()
        for each in self._tools:
            app.tools.add(each)
        if self._isolates or starts(self._offered, self._tools):
            await app.confine()
        return app

    async def _known(self, app: App, name: str) -> str:
        """Return the id of the existing session with a name; empty if a new one is to begin."""
        if not isinstance(name, str):
            raise UsageError(f"session = {name!r}: must be text.", hint=_NAMES)
        if not name:
            return ""
        if is_session_key(name):
            ids = await app.store.find(name)
            return ids[0] if ids else ""
        if is_session_id(name):
            return await found(app, name)
        raise UsageError(f"{name!r} is not a valid name for a session.", hint=_NAMES)

    async def _words(self, app: App, known: str, text: str, output: OutputType, deps: object = None) -> Send:
        """Return the words for the known session, or for a new one (empty), with the settings of this agent."""
        _check_text(text)
        return Send(text, await self._settings(app, known, output, deps))

    async def _settings(self, app: App, session: str, output: OutputType, deps: object) -> Settings:
        """Return the settings of this agent in the session, or in a new one (empty). Log warnings once."""
        if not self._config.model:
            hint = 'Pass it, as in Agent(model="openai:gpt-5.5"). The library reads a file only if config= names it.'
            raise UsageError("No model was given.", hint=hint)
        row = await app.store.session(session) if session else None
        recorded = row.workspace if row is not None else ""
        last = await settings_of_copy(app, session, recorded)
        workspace = self._workspace or Path(
            (last.tools.copy_of if last is not None else recorded) or Path.cwd()
        )
        chosen = replace(app, config=self._config).settings(
            workspace,
            instructions=await self._instructed(app, session, deps),
            allow_tools=self._offered,
            deny_tools=() if self._offered else ("*",),
            schema=output.schema,
        )
        for warning in chosen.warnings:
            if warning == UNSAFE or warning not in self._told:
                self._told.add(warning)
                _log.warning(warning)
        await app.resolve(chosen.settings.model.facts.name)  # a model that cannot be called gets no task
        settings = changed(chosen.settings, sections=self._sections)
        return await in_copy(app, last, settings) if self._isolates or last is not None else settings

    async def _instructed(self, app: App, session: str, deps: object) -> str:
        """Return the instructions of the run: those that were recorded when it opened, if it is open."""
        if isinstance(self._instructions, str):
            return self._instructions
        ahead = (await app.controller.prospect(session)).ahead if session else None
        if ahead is not None and open_run(ahead) is not None and ahead.settings is not None:
            return ahead.settings.prompt.instructions
        written = await _awaited(self._instructions(deps))
        if not isinstance(written, str):
            raise UsageError(
                f"The function for the instructions returned {written!r:.80}: it must return text."
            )
        return written


def _resolution(row: Approval, decided: bool | str) -> Resolve:
    """Return what `on_approval` decided about a call, or answered to a question."""
    match decided:
        case str() if row.question:
            return Resolve(row.id, "answer", decided)
        case True if not row.question:
            return Resolve(row.id, "approve")
        case str() | False:
            return Resolve(row.id, "deny", decided or "")
    wanted = "text, or False for a question" if row.question else "True, False, or text with a reason"
    raise UsageError(f"on_approval returned {decided!r:.80}: it must return {wanted}.")


async def _awaited(value: T | Awaitable[T]) -> T:
    return await value if inspect.isawaitable(value) else value


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise UsageError(f"text = {text!r:.80}: must be text: the task of the agent.")
    if not text.strip():
        raise UsageError("The task is empty.", hint="Say what the agent is to do.")


def _check_no_loop(name: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(f"{name} cannot work inside a running event loop. Write there: {instead}")


def _iterated(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Yield the items. Each is awaited in an event loop of its own, which rests meanwhile."""

    async def following() -> T:
        return await anext(items)

    runner = asyncio.Runner()
    try:
        while True:
            try:
                item = runner.run(following())
            except StopAsyncIteration:
                return
            yield item
    finally:
        _end(runner, items)


def _end(runner: asyncio.Runner, items: AsyncGenerator[Any, None]) -> None:
    """Close the items, then their loop. A generator that was dropped may be collected inside a running loop: a thread
    does it then.
    """

    def work() -> None:
        with runner:
            runner.run(items.aclose())

    if asyncio._get_running_loop() is None:
        work()
    else:
        ending = threading.Thread(target=work, name="holdfast-stream", daemon=True)
        ending.start()
        ending.join(_END_S)  # not for ever: who is interrupted here may own a lock that the thread needs
