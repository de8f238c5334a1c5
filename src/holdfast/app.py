"""The composition root: the one file that names concrete classes, as "module:name", loaded when first needed.

It passes values of the configuration and the environment to the rooms below, which read neither.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.notices import notices
from holdfast.config.paths import (
    HOME_VARIABLE,
    LOCAL_TIME,
    Home,
    admin_files,
    expanded,
    find_home,
    is_folder,
    is_text,
)
from holdfast.config.settings import Config
from holdfast.errors import UsageError, clearing_up
from holdfast.protocol.fence import Finding, Sandbox
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.ports import Clock, Hooks, Notifier, Provider, Store, Tool, Tools
from holdfast.protocol.settings import Conduct, Context, Settings, settings_with
from holdfast.protocol.tools import ToolSpec
from holdfast.protocol.zone import UTC, Zone
from holdfast.redact import Redactor
from holdfast.runtime.acceptance import before_sending

if TYPE_CHECKING:
    from holdfast.access.provider_pool import ProviderPool
    from holdfast.access.stored import StoredSecrets
    from holdfast.extensions.factories import Factories
    from holdfast.runtime.controller import SessionController
    from holdfast.runtime.ports import Ports
    from holdfast.runtime.undo import Workshop
    from holdfast.tools.checking import Checker
    from holdfast.tools.secret_files import SecretFiles

_DURABLE_STORE = "holdfast.storage.sqlite:SqliteStore"
_VOLATILE_STORE = "holdfast.storage.volatile:VolatileStore"
_PORTS = "holdfast.runtime.ports:Ports"
_CONTROLLER = "holdfast.runtime.controller:SessionController"
_TOOLS = "holdfast.tools.builtin:make_tools"
_WEB = "holdfast.tools.web:Web"
_BUILT_IN = "holdfast.tools.builtin:built_in"
_SCHEMA_TEXT = "holdfast.tools.answers:schema_text"
_JUDGE = "holdfast.tools.answers:verdict"
_GUIDANCE = "holdfast.tools.guidance:guidance"
_ZONE_AT = "holdfast.runtime.zones:zone_at"
_IS_ZONE = "holdfast.runtime.zones:is_zone"
_UTC_NAMES = ("UTC", "Etc/UTC", "Zulu", "Etc/Zulu", "UCT", "Etc/UCT", "Universal", "Etc/Universal")
_NOTIFIER = "holdfast.extensions.notify:ConfiguredNotifier"
_HOOKS = "holdfast.extensions.hooks:ConfiguredHooks"
_FACTORIES = "holdfast.extensions.factories:Factories"
_SECTIONS = "holdfast.extensions.sections:package_sections"
_IMAGES = "holdfast.storage.images:Images"
_OWN = "holdfast.policy.protected:Own"
_OWN_ON_DISK = "holdfast.tools.own:own_places"
_UNFIT = "holdfast.tools.unfit:unfit_in"
_WORKSHOP = "holdfast.runtime.undo:Workshop"
_CHECKER = "holdfast.tools.checking:Checker"
_GATES = "holdfast.tools.gates:gates_of"
_REGISTRY = "holdfast.tools.registry:Registry"
_OFFERED = "holdfast.tools.dispatcher:offered_of"
_ROOMS = "holdfast.tools.builtin:Rooms"
_KNOWN_TO = "holdfast.access.known:known_to"
_PROVIDER_POOL = "holdfast.access.provider_pool:ProviderPool"
_RATE_FINDER = "holdfast.config.services:rate_finder"
_CREDENTIALS = "holdfast.access.credentials:Credentials"
_SECRET_FILES = "holdfast.tools.secret_files:SecretFiles"
_OWN_PLACES = "holdfast.tools.own:OwnPlaces"
_BACKGROUND = "holdfast.tools.background:Background"
_MAY_START = "holdfast.tools.fencing:may_start"
_ENCLOSED = "holdfast.tools.fencing:enclosed"
_FENCES = "holdfast.tools.fencing:Fences"
_TRACES = "holdfast.tools.traces:Traces"
_SANDBOX = "holdfast.sandbox.choice:opened"
_SANDBOXES = "holdfast.sandbox.choice:findings"
_HTTP_POOL = "holdfast.providers.http:HttpPool"
_PROVIDERS = "holdfast.providers.registry:PROVIDERS"
_ENTRY = "holdfast.providers.registry:Entry"
_PACKAGE = "package"
_PROVIDER_ENTRY = "holdfast.providers.registry:entry_of"
_FACTS = "holdfast.providers.catalog:facts"

_OWN_FACTORIES = {
    "hooks": {"command": "holdfast.extensions.hook_commands:CommandHook"},
}
"""What Holdfast itself makes by name, beside what packages add."""
_RUN_FOLDER = "run"
_SCRIPT = "script"


@cache
def factory(target: str) -> Any:
    """Return what is at "module:name"."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


@cache
def factories() -> Factories:
    """Return the one registry of what a configuration names: Holdfast's own, and what packages add."""
    registry: Factories = factory(_FACTORIES)(_OWN_FACTORIES)
    return registry


class Chosen(NamedTuple):
    """The settings of a run, with warnings for the user as sentences, the most important one first."""

    settings: Settings
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class App:
    """What one process is made of, assembled by `open_app`."""

    config: Config
    home: Home | None
    """None: everything is in memory."""
    store: Store
    tools: Tools
    redact: Redactor
    clock: Clock
    environ: Mapping[str, str]
    http: Any
    """The pool of connections that all providers share."""
    secret_files: SecretFiles
    stored: StoredSecrets
    deps: dict[str, list[object]] = field(default_factory=dict)
    """What the program gave to the runs that it drives, by session, for its own functions. The last one counts."""
    hooks: Hooks | None = None
    notifier: Notifier | None = None
    sandboxes: list[Finding] = field(default_factory=list)
    """The sandbox of commands; none as long as nothing starts one, and where they run without."""

    async def confine(self) -> None:
        """Let programs begin only in the configured sandbox, which is opened now if it is not open yet.

        Raises:
            SandboxUnavailable: it does not keep a program inside its fence here.
        """
        if not self.sandboxes and (opened := await open_sandbox(self.config)):
            self.tools.confine(opened[0])
            self.sandboxes.append(opened[1])

    @cached_property
    def ports(self) -> Ports:
        """What all sessions share."""
        ports: Ports = factory(_PORTS)(
            store=self.store,
            clock=self.clock,
            resolve=self.resolve,
            tools=self.tools,
            redact=self.redact,
            hooks=self.hooks,
            notifier=self.notifier,
            judge=factory(_JUDGE),
            guidance=partial(factory(_GUIDANCE), factory(_OWN)(**own_places(self.home, self.environ))),
            sections=factory(_SECTIONS),
            budgets=self.config.budgets,
            zone=_zone,
            secret_files=self._look,
            run_folder=self.home.folder / _RUN_FOLDER if self.home else None,
            routes=self.providers.circuits,
            resolve_key=self.providers.resolve,
            circuits=self.config.circuits,
            rate=factory(_RATE_FINDER)(self.config.rates),
            deps=self.deps,
        )
        return ports

    def _look(self, workspace: str) -> Coroutine[Any, Any, None] | None:
        """Learn what was stored meanwhile, and return what `SecretFiles.look` returns."""
        self.stored.look()
        return self.secret_files.look(workspace)

    @cached_property
    def controller(self) -> SessionController:
        """The controller of the runtime. `open_app` has opened it."""
        controller: SessionController = factory(_CONTROLLER)(self.ports)
        return controller

    @cached_property
    def providers(self) -> ProviderPool:
        """The providers that this process speaks to."""
        pool: ProviderPool = factory(_PROVIDER_POOL)(
            self.config,
            self.environ,
            self.stored,
            self.http,
            entry_of,
            partial(factories().find, "providers"),
        )
        return pool

    async def resolve(self, name: str) -> Provider:
        """Return the provider of PROVIDER:MODEL, with its first key. Raises what `ProviderPool.resolve` raises."""
        return await self.providers.resolve(name)

    def facts(self, model: str) -> ModelFacts:
        """Return price and window of PROVIDER:MODEL. The user's own entries override others.

        Raises:
            UsageError: the name is not valid, or there is no such provider.
        """
        return facts_of(self.config, model, self.clock.now_ms())

    def settings(
        self,
        workspace: Path,
        *,
        model: str = "",
        instructions: str = "",
        allow_tools: tuple[str, ...] = (),
        deny_tools: tuple[str, ...] = (),
        schema: str = "",
        is_terminal: bool = False,
    ) -> Chosen:
        """Return the settings of a run in a workspace, with the configured model or another one.

        `is_terminal`: somebody can be asked, so approvals are asked for at the terminal, unless the configuration
        says otherwise.

        Raises:
            UsageError: no model is named, the workspace is not a folder, there is no such provider, or the cost has
                a limit and the model an unknown price.
        """
        config = self.config
        if not (name := model or config.model):
            hint = "Run `holdfast init` to choose one, or name it with -m PROVIDER:MODEL."
            ignored = next((each for each in self.config.ignored if each.key == "model"), None)
            why = f" {ignored.origin} does not count: a project file {ignored.why}." if ignored else ""
            raise UsageError("No model was given, and none is configured.", hint=hint + why)
        if not is_folder(workspace):
            raise UsageError(
                f"The workspace {workspace} is not a folder.", hint="Name another one with -w DIR."
            )
        folder = os.path.realpath(workspace)  # `resolve` does the same, and parses it again
        if not is_text(folder):
            raise UsageError(
                f"The name of the workspace {folder!r} is not UTF-8 text.",
                hint="Name another one with -w DIR.",
            )
        self.secret_files.look_now(folder)
        settings = settings_with(
            self.facts(name),
            folder,
            limits=config.limits,
            **_bounds(config),
            notify_on=config.notify_on,
            approve_by=config.approve_by or ("prompt" if is_terminal else "wait"),
            max_output_tokens=config.max_output_tokens,
            instructions=instructions,
            zone=zone_name(config.zone, self.environ),
            allow_tools=allow_tools,
            deny_tools=deny_tools,
            repeat_note=config.repeat_note,
            repeat_stop=config.repeat_stop,
            repairs=config.repairs,
            stall_turns=config.stall_turns,
            wait_s=config.wait_s,
            **config.retry,
            schema=schema,
            conduct=self._conduct(),
            context=self._context(),
        )
        sandbox, own = next(iter(self.sandboxes), None), own_places(self.home, self.environ)
        unfit = factory(_UNFIT)(settings, own, sandbox.backend) if sandbox else ""
        told = notices(settings, config.budgets, sandbox, unfit)
        return Chosen(settings, (*told, *config.left_out(settings.model.facts), *config.warnings))

    def _context(self) -> Context:
        facts = self._side_facts("compaction.model", self.config.compaction_model)
        return msgspec.structs.replace(self.config.context, compact_model=facts)

    def _conduct(self) -> Conduct:
        facts = self._side_facts("reflection.model", self.config.reflection_model)
        return msgspec.structs.replace(self.config.conduct, reflection_model=facts)

    def _side_facts(self, key: str, name: str) -> ModelFacts | None:
        """Return price and window of another model that the configuration names; an error says by which key."""
        try:
            return self.facts(name) if name else None
        except UsageError as error:
            raise UsageError(f"{key} = {name!r}: {error.message}", hint=error.hint) from error


def _zone(name: str, now_ms: int) -> Zone:
    """Return a time zone at a time. Most machines of servers have UTC, for which nothing is loaded."""
    if name in _UTC_NAMES:
        return UTC
    zone: Zone = factory(_ZONE_AT)(name, now_ms)
    return zone


def zone_name(configured: str, environ: Mapping[str, str]) -> str:
    """Return the name of the configured zone, else that of this machine.

    Raises:
        UsageError: the configured one does not exist.
    """
    name = configured or environ.get("TZ", "").removeprefix(":") or _machine_zone()
    if name in _UTC_NAMES:
        return "UTC"
    if factory(_IS_ZONE)(name):
        return name
    if configured:
        hint = "Use a name like Europe/Berlin, or UTC."
        raise UsageError(f"prompt.zone = {configured!r}: this machine knows no such time zone.", hint=hint)
    return "UTC"


def _machine_zone() -> str:
    try:
        return str(LOCAL_TIME.readlink()).partition("zoneinfo/")[2] or "UTC"
    except OSError:
        return "UTC"


@asynccontextmanager
async def open_app(
    config: Config,
    home: Home | None,
    *,
    extra_tools: Iterable[Tool] = (),
    offers: Callable[[str], bool] | None = lambda name: True,
    environ: Mapping[str, str] = os.environ,
    clock: Clock = SYSTEM_CLOCK,
    memory: Store | None = None,
) -> AsyncIterator[App]:
    """Open everything, and close them in order at the end: controller, tools, connections, store.

    `memory` is the store of a caller who keeps its content, instead of the home's. `offers` returns whether runs may
    have a tool of this name; without it, nothing runs. Where no run starts a program, no sandbox is needed.

    Raises:
        StorageError: the home cannot be opened.
        UsageError: the name of an extra tool is taken or not valid.
    """
    redact, stored = factory(_KNOWN_TO)(config, home, environ)
    secret_files = factory(_SECRET_FILES)(redact, clock)
    async with AsyncExitStack() as open_rooms:
        with before_sending():
            store = memory if memory is not None else open_store(home, clock)
        open_rooms.push_async_callback(_close, "The store", store)
        http = factory(_HTTP_POOL)()
        open_rooms.push_async_callback(_close, "The connections to models", http)
        own = factory(_OWN)(**own_places(home, environ))
        images = factory(_IMAGES)(home.folder, clock, config.undo_keep_s) if home is not None else None
        extra_tools = [*tools_of_packages(config), *extra_tools]
        starts = offers is not None and (
            any(each.command for each in config.hooks)
            or factory(_MAY_START)(config.policy, extra_tools, offers)
        )
        sandbox, found = (await open_sandbox(config) if starts else None) or (None, None)
        hooks, credentials = None, factory(_CREDENTIALS)(config.secrets, stored.value)
        traces = factory(_TRACES)(home.folder if home is not None else None)
        if config.hooks:
            inside = (sandbox, own, config.policy.walls, credentials, traces)
            enclosed = factory(_ENCLOSED)(*inside) if sandbox else None
            hooks = factory(_HOOKS)(config.hooks, redact, environ, factories(), enclosed)
            open_rooms.push_async_callback(_close, "What hooks left", hooks)
        notifier = None
        if config.notify_command:
            place = (home.folder, _home_flag(home, environ)) if home is not None else (None, "")
            written = config.policy.walls.write
            notifier = factory(_NOTIFIER)(config.notify_command, *place, redact, environ, written)
            open_rooms.push_async_callback(_close, "What notifies you", notifier)
        tools = factory(_TOOLS)(
            extra_tools,
            secret_in=redact.known_in,
            secret_files=secret_files,
            own=own,
            rooms=factory(_ROOMS)(images, store, sandbox, traces),
            hooks=hooks,
            web=factory(_WEB)(
                keys=environ,
                now_ms=clock.uptime_ms,
                credentials=credentials,
            ),
        )
        open_rooms.push_async_callback(_close, "What tools left", tools)
        app = App(
            config,
            home,
            store,
            tools,
            redact,
            clock,
            environ,
            http,
            secret_files,
            stored,
            hooks=hooks,
            notifier=notifier,
            sandboxes=[found] if found else [],
        )
        open_rooms.push_async_callback(_close_providers, app)
        await open_rooms.enter_async_context(app.controller)
        yield app


async def open_sandbox(config: Config) -> tuple[Sandbox, Finding] | None:
    """Return the configured sandbox and what its probe found; None if commands run without one.

    Raises:
        SandboxUnavailable: it does not keep a program inside its fence here.
    """
    mode, *by = msgspec.structs.astuple(config.settings["sandbox.mode"])
    opened: tuple[Sandbox, Finding] | None = None if mode == "unsafe" else await factory(_SANDBOX)(mode, *by)
    return opened


async def probed_sandboxes() -> Mapping[str, Finding]:
    """Return whether the sandboxes keep anything out on this machine, by their names."""
    found: Mapping[str, Finding] = await factory(_SANDBOXES)()
    return found


def _home_flag(home: Home, environ: Mapping[str, str]) -> str:
    """Return what a command needs to find the home, unless it finds it without being told."""
    is_usual = find_home(None, {**environ, HOME_VARIABLE: ""}).folder == home.folder
    return "" if is_usual else f" --home {shlex.quote(str(home.folder))}"


async def _close_providers(app: App) -> None:
    for (name, _), provider in app.providers.made.items():
        await _close(f"The provider of {name}", provider)


async def _close(what: str, room: Store | Tools | Provider | Hooks | Notifier) -> None:
    with clearing_up(what):
        await room.aclose()


def schema_text(schema: object) -> str:
    """Return a JSON Schema as settings store it.

    Raises:
        UsageError: it is not a JSON Schema, refers to something outside itself, or costs too much to check.
    """
    text: str = factory(_SCHEMA_TEXT)(schema)
    return text


def own_places(home: Home | None, environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return what no tool may change: this home, the user's usual one, all settings, and the key of the secrets."""
    homes = [each for each in (home, find_home(None, {})) if each is not None]
    settings = [*(each.user_file for each in homes), *admin_files(environ)]
    return {
        "keys": tuple(filter(None, [factory("holdfast.access.sealing:key_file")(environ)])),
        "homes": tuple(str(each.folder) for each in homes),
        "settings": tuple(str(file.absolute()) for file in settings),
    }


def open_workshop(
    home: Home, store: Store, config: Config, environ: Mapping[str, str], clock: Clock = SYSTEM_CLOCK
) -> Workshop:
    """Return what putting files back needs, in a home whose store is open."""
    own = factory(_OWN_ON_DISK)(factory(_OWN)(**own_places(home, environ)))
    images = factory(_IMAGES)(home.folder, clock, config.undo_keep_s)
    workshop: Workshop = factory(_WORKSHOP)(store, clock, images, own)
    return workshop


def open_store(home: Home | None, clock: Clock = SYSTEM_CLOCK) -> Store:
    """Return the store of a home, created if it is missing; without a home, one in memory. The caller closes it.

    Raises:
        StorageError: the home cannot be opened.
    """
    if home is None:
        volatile: Store = factory(_VOLATILE_STORE)(clock)
        return volatile
    durable: Store = factory(_DURABLE_STORE).open(home.folder, clock=clock)
    return durable


def open_store_to_read(home: Home) -> Store:
    """Open the store of a home only to read it, even if the home cannot be written. The caller closes it.

    Raises:
        StorageError: the home cannot be read.
    """
    store: Store = factory(_DURABLE_STORE).open_to_read(home.folder)
    return store


def facts_of(config: Config, model: str, now_ms: int) -> ModelFacts:
    """Return price and window of PROVIDER:MODEL at a time. The user's own entries override others.

    Raises:
        UsageError: the name is not valid, or there is no such provider.
    """
    provider, _, path = model.partition(":")
    if provider == _SCRIPT and path:
        model = f"{_SCRIPT}:{expanded(path).absolute()}"  # it may be resumed from any folder
    entry = entry_of(provider) if provider and path else None
    said: dict[str, Any] = {"overrides": config.catalog, "wished": config.options(model)}
    said["keeps_an_hour"] = config.keeps_an_hour(provider)
    facts: ModelFacts = factory(_FACTS)(model, now_ms=now_ms, entry=entry, **said)
    return facts


def entry_of(provider: str) -> Any:
    """Return what is known about a provider by its name: one of the registry, or one that a package adds.

    Raises:
        UsageError: there is no such provider. The message names the nearest one.
    """
    if provider in factory(_PROVIDERS) or not factories().has("providers", provider):
        return factory(_PROVIDER_ENTRY)(provider, factories().names("providers"))
    return factory(_ENTRY)(provider, wire=_PACKAGE, needs_key=False)


def tools_of_packages(config: Config) -> list[Tool]:
    """Return the tools of packages that the configuration names.

    Raises:
        UsageError: there is no such entry point, or it has no tools.
    """
    found: list[Tool] = []
    for name in config.tool_packages:
        where = f"{config.settings['tools.packages'].origin}: tools.packages"
        offered = factories().find("tools", name, where)
        made = offered if hasattr(offered, "spec") or not callable(offered) else offered()
        tools = [made] if hasattr(made, "spec") else made
        if not isinstance(tools, list | tuple) or not all(hasattr(each, "spec") for each in tools):
            raise UsageError(f"{where}: {name} has no tools.", hint="Mend or uninstall the package.")
        found += tools
    return found


def specs_of(config: Config) -> tuple[ToolSpec, ...]:
    """All tools, in the order in which a model sees them. Raises what `tools_of_packages` raises."""
    return (*built_in_specs(), *(tool.spec for tool in tools_of_packages(config)))


def offered_in(workspace: Path, config: Config) -> tuple[ToolSpec, ...]:
    """The tools of a run in a workspace, in the same order. Raises what `tools_of_packages` raises."""
    settings = _settings_of_gates(workspace, config)
    found: tuple[ToolSpec, ...] = factory(_OFFERED)(specs_of(config), settings)
    return found


def built_in_specs() -> tuple[ToolSpec, ...]:
    """The tools that come with Holdfast, in the order in which a model sees them."""
    return tuple(tool.spec for tool in factory(_BUILT_IN)(factory(_BACKGROUND)(), factory(_OWN_PLACES)()))


def open_checker(config: Config, home: Home, workspace: Path, environ: Mapping[str, str]) -> Checker:
    """Return what judges calls in a workspace as a run with this configuration would, without running any."""
    places = factory(_OWN_ON_DISK)(factory(_OWN)(**own_places(home, environ)))
    redact, _ = factory(_KNOWN_TO)(config, home, environ)
    files = factory(_SECRET_FILES)(redact, SYSTEM_CLOCK)
    files.read(os.path.realpath(workspace))
    settings = _settings_of_gates(workspace, config)
    tools = [*factory(_BUILT_IN)(factory(_BACKGROUND)(), places), *tools_of_packages(config)]
    gates = factory(_GATES)(redact.known_in, places, files)
    fences = factory(_FENCES)(places, str(Path.home()))
    checker: Checker = factory(_CHECKER)(factory(_REGISTRY)(tools), gates, settings, fences)
    return checker


def _settings_of_gates(workspace: Path, config: Config) -> Settings:
    facts = ModelFacts("none", "none", price="unknown")  # no rule looks at the model
    return settings_with(facts, os.path.realpath(workspace), **_bounds(config))


def _bounds(config: Config) -> dict[str, Any]:
    """Return the settings that the gates look at, by their single names."""
    return {"autonomy": config.autonomy, "policy": config.policy}


def redactor_for(
    config: Config, home: Home, environ: Mapping[str, str], workspaces: Iterable[str]
) -> Redactor:
    """Return what masks all known secrets, also those in the secret files of these workspaces."""
    redact: Redactor = factory(_KNOWN_TO)(config, home, environ)[0]
    files = factory(_SECRET_FILES)(redact, SYSTEM_CLOCK)
    for workspace in workspaces:
        files.read(os.path.realpath(workspace))
    return redact
