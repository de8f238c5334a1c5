"""The library: an `Agent` works on tasks in sessions, with the same loop and journal as the command line.

    async with Agent(model="openai:gpt-5.5", tools=[add]) as agent:
        result = await agent.run("What is 17 + 25?")

This only assembles parts. `core` and `runtime` make sessions work; `config` checks limits.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar, Unpack, overload

import msgspec

from holdfast.app import App, built_in_specs, open_app
from holdfast.config.limits import Limits
from holdfast.config.load import load_only
from holdfast.config.paths import find_home
from holdfast.config.settings import Config
from holdfast.errors import ConfigError, NoSuchSession, UsageError, clearing_up
from holdfast.protocol.commands import Continue, Resolve, Send, Stop, owner
from holdfast.protocol.events import Event as Fact
from holdfast.protocol.events import Record
from holdfast.protocol.ids import is_session_id, is_session_key
from holdfast.protocol.ports import Delta, Tool
from holdfast.protocol.rows import ApprovalRow
from holdfast.protocol.settings import Settings
from holdfast.runtime.bus import Item
from holdfast.runtime.report import report
from holdfast.tools.context import Context, fits, shown
from holdfast.tools.function import FunctionTool, tool
from holdfast.tools.output import OutputType, output_type
from holdfast.views.report import Result

__all__ = ["Agent", "Context", "Delta", "Event", "Limits", "Result", "Runtime", "tool"]

T = TypeVar("T")
U = TypeVar("U")
_SENDER = owner("agent", "library")
_STOP_S = 5.0
"""How long `aclose` waits for what it stopped."""
_NAMES = 'Use CHANNEL:CHAT, like "cli:docs": each with 1 to 64 letters, digits, dots, dashes, underscores.'
_UNUSED = object()
"""No function will run, so no deps are needed."""
_log = logging.getLogger("holdfast")


class Event(msgspec.Struct, frozen=True):
    """Something that happened in a session and is recorded."""

    session: str
    seq: int
    at: datetime
    """In UTC."""
    type: str
    """The name of the event: `Responded`, `ToolCallStarted`, `RunStopped` ..."""
    body: Fact


class Runtime:
    """What many agents share: one store, one pool of connections, one registry of tools, one runtime.

    Open it with `async with`, or let the first use of an agent open it, and call `aclose` at the end.

    Args:
        home: The folder of the sessions. None keeps them in memory until the runtime is closed.
        config: A file or a dict with the keys of config.toml. Without it, no file and no `HOLDFAST_*` variable
            is read; keys and addresses come from the providers' variables.
        tools: Functions decorated with `@tool`, or other `ports.Tool`s. Agents may add more.

    A closed runtime cannot be used again: this raises `UsageError`.

    Raises:
        ConfigError: the configuration is wrong. Lists every problem.
        UsageError: two tools have the same name.
    """

    def __init__(
        self,
        *,
        home: str | Path | None = None,
        config: str | Path | Mapping[str, Any] | None = None,
        tools: Iterable[Tool] = (),
    ) -> None:
        self._source = Path(config).expanduser() if isinstance(config, str | Path) else config or {}
        self.config = load_only(self._source)
        self._home = None if home is None else find_home(str(home), {})
        self._tools = _distinct(tools)
        self._rooms = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._app: App | None = None
        self._working: dict[asyncio.Future[None], str] = {}
        """The sessions in use, each by the future that ends with its drive; empty for readers."""
        self._is_closed = False

    async def __aenter__(self) -> Runtime:
        await self.app()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop what still runs (its runs end as `interrupted`) and close everything. Records in a home stay; sessions
        in memory are lost.
        """
        async with self._opening:  # what is opening now is closed too
            self._is_closed = True
            app, self._app = self._app, None
            if app is not None:
                await self._stop(app)
            await self._rooms.aclose()

    async def _stop(self, app: App) -> None:
        ending = {""}
        for session in set(self._working.values()) - ending:
            with clearing_up("What still ran"):
                await app.controller.submit(session, _SENDER, Stop("closed"))
                ending.add(session)
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                while waited := [ended for ended, session in self._working.items() if session in ending]:
                    await asyncio.wait(waited)  # who has read one item of a stream waits for the next

    @contextmanager
    def working(self, session: str = "") -> Iterator[None]:
        """Use the parts inside the block. `aclose` waits for it, and stops a session that is driven."""
        ended = asyncio.get_running_loop().create_future()
        self._working[ended] = session
        try:
            yield
        finally:
            del self._working[ended]
            ended.set_result(None)

    async def app(self) -> App:
        """Return the parts, opened on first use.

        Raises:
            UsageError: the runtime is closed.
        """
        async with self._opening:
            if self._is_closed:
                hint = "Create another Runtime. With the same home it continues the same sessions."
                raise UsageError("This runtime is closed.", hint=hint)
            if self._app is None:
                opening = open_app(self.config, self._home, extra_tools=self._tools, environ=os.environ)
                self._app = await self._rooms.enter_async_context(opening)
            return self._app

    def config_with(self, said: Mapping[str, Any]) -> Config:
        """The configuration, below the values set in code, with the same keys."""
        return load_only(self._source, said)


class AgentOptions(TypedDict, total=False):
    """The parameters of an `Agent` beside `output`, for type checkers."""

    model: str
    tools: Iterable[Tool | str]
    instructions: str
    home: str | Path | None
    limits: Limits | None
    config: str | Path | Mapping[str, Any] | None
    runtime: Runtime | None
    workspace: str | Path | None


class Agent(Generic[T]):
    """An agent: a model, tools and instructions. It can work in many sessions at once.

    Its first use opens it. Close it with `aclose`, or use it with `async with`. A closed agent cannot be used
    again: this raises `UsageError`. If a run is cancelled, its session stays as recorded, and `resume` continues
    it, here or in another process.

    Args:
        model: PROVIDER:MODEL. The default is the configuration's.
        tools: The only tools that it may use: functions decorated with `@tool`, and globs on the names of built-in
            tools: `["read_*", "grep", "shell"]`. The same tool twice counts once.
        instructions: Added to Holdfast's own system prompt.
        home: The folder of the sessions. None keeps them in memory until the agent is closed.
        limits: The limits of each run. They override the configuration's.
        config: A file or a dict with the keys of config.toml. Without it, no file and no `HOLDFAST_*` variable
            is read; keys and addresses come from the providers' variables.
        runtime: Shared with other agents. It has `home` and `config` then.
        workspace: The folder of the built-in tools. The default is the session's last one, or the current folder.
        output: The type of the answers: a dataclass, a TypedDict, a msgspec Struct, a pydantic model, a `list[...]`
            of one of them, or a JSON Schema as a dict. The model is told the schema, and a wrong answer goes back to
            it at most twice. The default is words.

    The caller chose the tools in code. So, unless the configuration sets `autonomy`, calls need no approval, within
    the hard rules of `policy`. With `config={"autonomy": "supervised"}`, calls that run commands or use the network
    wait for `approve` or `deny`.

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
        instructions: str = "",
        home: str | Path | None = None,
        limits: Limits | None = None,
        config: str | Path | Mapping[str, Any] | None = None,
        runtime: Runtime | None = None,
        workspace: str | Path | None = None,
        output: type[T] | Mapping[str, Any] | None = None,
    ) -> None:
        if runtime is not None and (home is not None or config is not None):
            raise UsageError("home and config belong to the shared runtime: pass them to Runtime(...).")
        given = list(tools)
        self._tools = _distinct(each for each in given if not isinstance(each, str))
        self._offered = (
            *_built_in_names([each for each in given if isinstance(each, str)]),
            *(each.spec.name for each in self._tools),
        )
        self._is_own = runtime is None
        self._runtime = runtime or Runtime(home=home, config=config)
        self._config = self._configured(model, limits or Limits())
        self._instructions = instructions
        self._output = output_type(output)
        self._workspace = None if workspace is None else Path(workspace)
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

        Raises:
            UsageError: there is no model, no key, or no such provider; the session's name is not valid; `deps` is not
                what a tool needs; or the agent is closed.
            NoSuchSession: there is no session with that id.
            Overloaded: too many commands wait for the session. Nothing was accepted.
            StorageError: the home cannot be used.
        """
        app = await self._open(deps)
        known = await self._known(app, session)
        wanted = self._output if output is None else output_type(output)
        words = await self._words(app, known, text, wanted)
        with ExitStack() as working:

            def on_begun(name: str) -> None:
                working.enter_context(self._runtime.working(name))
                working.enter_context(_lent(app, name, deps))

            if known:
                await app.controller.give(known, _SENDER, words)
                on_begun(known)
                state = await app.controller.drive(known)
            else:
                state = await app.controller.run(session, _SENDER, words, on_begun)
            return wanted.typed(await report(app.store, state))

    async def stream(
        self, text: str, session: str = "", *, deps: object = None
    ) -> AsyncIterator[Event | Delta]:
        """Like `run`, but yield each record and each `Delta` as it arrives, until the run rests.

        Raises:
            What `run` raises.
        """
        app = await self._open(deps)
        known = await self._known(app, session)
        cursor = await app.store.last_seq(known) if known else 0
        words = await self._words(app, known, text, self._output)
        if known:
            await app.controller.give(known, _SENDER, words)
        name = known or await app.controller.begin(session, _SENDER, words)
        with _lent(app, name, deps):
            async with aclosing(_watch(app, self._runtime, name, cursor)) as items:
                async for item in items:
                    yield item if isinstance(item, Delta) else _event(item)

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

        Raises:
            NoSuchSession: there is no such session.
            UsageError: as `run`; or the session has no run.
        """
        app = await self._open(deps)
        wanted = self._output if output is None else output_type(output)
        name = await _found(app, session)
        past = await app.controller.prospect(name)
        if text is None and past.ahead.run is not None and past.ahead.run.status == "done":
            return wanted.typed(await report(app.store, past.now))
        settings = await self._settings(app, name, wanted)
        if text is None:
            await app.controller.submit(name, _SENDER, Continue(settings))
        else:
            await app.controller.give(name, _SENDER, Send(text, settings))
        with self._runtime.working(name), _lent(app, name, deps):
            return wanted.typed(await report(app.store, await app.controller.drive(name)))

    async def result(self, session: str) -> Result[T]:
        """Return the result of the newest run, or its status now. This does not drive the session.

        Raises:
            NoSuchSession: there is no such session.
            UsageError: the session has no run.
        """
        app = await self._open()
        state = await app.controller.state(await _found(app, session))
        return self._output.typed(await report(app.store, state))

    # --- approvals ------------------------------------------------------------------------------

    async def approvals(self, session: str = "") -> list[ApprovalRow]:
        """Return what waits for a decision, oldest first, in one session or in all."""
        app = await self._open()
        return await app.store.approvals(await _found(app, session) if session else "")

    async def approve(self, approval: str, note: str = "") -> None:
        """Approve a call, or answer a question with the note. Then call `resume` to continue.

        Raises:
            UsageError: there is no such approval, or it was already decided. Says by whom.
        """
        await self._resolve(Resolve(approval, "approve", note))

    async def deny(self, approval: str, note: str = "") -> None:
        """Deny a call. The model is told, with the note. Raises what `approve` raises."""
        await self._resolve(Resolve(approval, "deny", note))

    async def _resolve(self, body: Resolve) -> None:
        app = await self._open()
        row = await app.store.approval(body.approval_id)
        if row is None:
            raise UsageError(f"There is no approval {body.approval_id}.")
        if not row.decision:
            await app.controller.decide_now(row.session, _SENDER, body)
            row = await app.store.approval(body.approval_id) or row
        is_ours = row.decided_by == _SENDER.label and (row.decision == "deny") == (body.decision == "deny")
        if not is_ours:
            raise UsageError(f"{row.id} was already decided: {row.decision}, by {row.decided_by}.")

    # --- setting up -----------------------------------------------------------------------------

    def _configured(self, model: str, limits: Limits) -> Config:
        """The values set here, over the runtime's configuration."""
        if not isinstance(limits, Limits):
            raise ConfigError(f"limits = {limits!r}: must be Limits, like Limits(turns=50)")
        said: dict[str, object] = {"limits": limits.given}
        if model:
            said["model"] = model
        if self._runtime.config.settings["autonomy"].layer == "default":
            said["autonomy"] = "full"
        if "shell" not in self._offered:  # without such tools a sandbox would confine nothing, so do not warn
            said["sandbox"] = {"mode": "unsafe"}
        return self._runtime.config_with(said)

    async def _open(self, deps: object = _UNUSED) -> App:
        """Return the parts, opened on first use. Check that the functions can use these deps."""
        if self._is_closed:
            hint = "Create another Agent. With the same home or runtime it continues the same sessions."
            raise UsageError("This agent is closed.", hint=hint)
        if deps is not _UNUSED:
            _check_deps(self._tools, deps)
        app = await self._runtime.app()
        for each in self._tools:
            app.tools.add(each)
        return app

    async def _known(self, app: App, name: str) -> str:
        """Return the id of the existing session with a name; empty if a new one is to begin."""
        if not isinstance(name, str):
            raise UsageError(f"session = {name!r}: must be text.", hint=_NAMES)
        if not name:
            return ""
        if is_session_key(name):
            found = await app.store.find(name)
            return found[0] if found else ""
        if is_session_id(name):
            return await _found(app, name)
        raise UsageError(f"{name!r} is not a valid name for a session.", hint=_NAMES)

    async def _words(self, app: App, known: str, text: str, output: OutputType) -> Send:
        """Return the words for the known session, or for a new one (empty), with the settings of this agent."""
        if not isinstance(text, str):
            raise UsageError(f"text = {text!r:.80}: must be text: the task of the agent.")
        return Send(text, await self._settings(app, known, output))

    async def _settings(self, app: App, session: str, output: OutputType) -> Settings:
        """Return the settings of this agent in the session, or in a new one (empty). Log warnings once."""
        row = await app.store.session(session) if session else None
        recorded = row.workspace if row is not None else ""
        workspace = self._workspace or Path(recorded or Path.cwd())
        chosen = replace(app, config=self._config).settings(
            workspace,
            instructions=self._instructions,
            allow_tools=self._offered,
            deny_tools=() if self._offered else ("*",),
            schema=output.schema,
        )
        for warning in chosen.warnings:
            if warning not in self._told:
                self._told.add(warning)
                _log.warning(warning)
        return chosen.settings


# --- reading what was given ---------------------------------------------------------------------


def _distinct(tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools, each once.

    Raises:
        UsageError: one is not a tool, two have the same name, or one has a built-in tool's name.
    """
    known: dict[str, Tool] = {}
    built_in = {spec.name for spec in built_in_specs()}
    for each in tools:
        if not hasattr(each, "spec"):
            hint = "Put @tool above its def. Name built-in tools as text."
            raise UsageError(f"{each!r} is not a tool.", hint=hint)
        name = each.spec.name
        if known.setdefault(name, each) is not each:
            raise UsageError(f"there are two tools with the name {name!r}", hint="Rename one of them.")
        if name in built_in:
            hint = f"Rename yours. tools=[{name!r}] adds the built-in one."
            raise UsageError(
                f"there are two tools with the name {name!r}: one of them is built in", hint=hint
            )
    return list(known.values())


def _built_in_names(globs: Iterable[str]) -> tuple[str, ...]:
    """Return the built-in tools that the globs match, in the order in which a model sees them."""
    known = [spec.name for spec in built_in_specs()]
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in known):
            raise UsageError(
                f"There is no built-in tool {glob!r}.", hint=f"The built-in tools are: {', '.join(known)}."
            )
    return tuple(name for name in known if any(fnmatchcase(name, glob) for glob in globs))


def _check_deps(tools: Iterable[Tool], deps: object) -> None:
    """Check that the deps of a run are what each function needs.

    Raises:
        UsageError: they are missing, or of another class.
    """
    for each in tools:
        wanted = each.deps if isinstance(each, FunctionTool) else Any
        if not fits(deps, wanted):
            given = "there are none" if deps is None else f"they are a {type(deps).__name__}"
            raise UsageError(
                f"The tool {each.spec.name!r} needs deps of the class {shown(wanted)}, but {given}.",
                hint=f"Pass them: run(..., deps=...), with the annotation Context[{shown(wanted)}] in the tool.",
            )


@contextmanager
def _lent(app: App, session: str, deps: object) -> Iterator[None]:
    """Give the deps to the functions that run in the session, inside the block. Those of the newest block count."""
    if deps is None:
        yield
        return
    lent = app.deps.setdefault(session, [])
    lent.append(deps)
    try:
        yield
    finally:
        del lent[max(at for at, each in enumerate(lent) if each is deps)]  # equal ones may be different
        if not lent:
            del app.deps[session]


# --- telling what happened ----------------------------------------------------------------------


async def _found(app: App, name: str) -> str:
    found = await app.store.find(name)
    if not found:
        raise NoSuchSession(f"There is no session {name!r} here.")
    if len(found) > 1:
        raise UsageError(f"{name!r} matches {len(found)} sessions.", hint="Use a longer prefix.")
    return found[0]


async def _watch(app: App, runtime: Runtime, session: str, cursor: int) -> AsyncGenerator[Item, None]:
    """Drive the session, and yield what happens until it rests. If this is closed early, the drive is cancelled."""

    async def drive() -> int:
        with runtime.working(session):
            return (await app.controller.drive(session)).seq

    async def following() -> Item:
        return await anext(items)

    items = app.controller.follow(session, cursor)
    # The follower begins first: a driver may get far before it waits for anything.
    coming, driving = asyncio.create_task(following()), asyncio.create_task(drive())
    try:
        while not driving.done() or cursor < driving.result():
            waited = {coming} if driving.done() else {coming, driving}
            with runtime.working():  # but not while the reader handles an item, or is gone
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                item = coming.result()
                cursor = item.seq if isinstance(item, Record) else cursor
                yield item
                coming = asyncio.create_task(following())
    finally:
        driving.cancel()
        coming.cancel()
        await asyncio.gather(driving, coming, return_exceptions=True)
        await items.aclose()


def _event(record: Record) -> Event:
    at = datetime.fromtimestamp(record.at_ms / 1000, UTC)
    return Event(record.session, record.seq, at, type(record.event).__name__, record.event)
