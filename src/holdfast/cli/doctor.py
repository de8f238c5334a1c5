"""`holdfast doctor`: checks this installation, and says what to do about each problem.

Each check returns findings. Scripts rely on their ids. Nothing is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shlex
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from holdfast.access.sealing import KEY_FILE_VARIABLE, key_file, keyring_name
from holdfast.access.store import SecretStore
from holdfast.app import factories, factory, facts_of, open_sandbox, open_store, probed_sandboxes
from holdfast.cli.copied import told_copies
from holdfast.cli.found import find_providers
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.reading import reading
from holdfast.cli.terminal import say, say_json, with_commands
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import UNSAFE, load
from holdfast.config.notices import unknowns
from holdfast.config.paths import Home
from holdfast.config.settings import Config
from holdfast.core.circuits import state_of
from holdfast.depths import walked
from holdfast.errors import ConfigError, HoldfastError, SandboxUnavailable, StorageError, UsageError
from holdfast.protocol.circuits import Circuit
from holdfast.protocol.counts import counted
from holdfast.protocol.fence import Undone
from holdfast.protocol.hooks import HookSource
from holdfast.protocol.search import KEY_VARIABLES, engine_of
from holdfast.storage.errors import storage_errors
from holdfast.storage.home import DATABASE, was_used
from holdfast.tools.aside import not_put_back
from holdfast.tools.moved import is_elsewhere
from holdfast.tools.traces import Traces
from holdfast.views.lines import Line, Span, neutral
from holdfast.views.services import when_called

_NO_GROUPS = "limits hold for each process, and Holdfast counts processes; it uses no groups of the kernel"
_PROXY_PROBE = "holdfast.sandbox.proxy_probing:attempt"
_OLDEST_PYTHON = (3, 11)
_DISK_FAULT_BYTES = 100 << 20
_DISK_WARNING_BYTES = 1 << 30
_LISTED_FILES = 5
Severity = Literal["ok", "warning", "fault"]
_MARKS: Mapping[Severity, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "fault": ("✗", "red"),
}


class Finding(msgspec.Struct, frozen=True):
    """The result of a check."""

    id: str
    severity: Severity
    message: str
    hint: str = ""


Check = Callable[[Home], Iterator[Finding]]


def doctor(
    is_fixing: Annotated[bool, typer.Option("--fix", help="Close the home to others.")] = False,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> int:
    """Check this installation. Exits 1 on a fault.

    --fix takes the permissions of others away from the home and from what is in it.

    \b
    holdfast doctor
    holdfast doctor --json
    holdfast doctor --fix
    """
    if is_fixing:
        close_to_others(home_of(home).folder)
    findings = [finding for check in CHECKS for finding in check(home_of(home))]
    if is_json:
        for finding in findings:
            say_json(finding)
    else:
        say(line for finding in findings for line in _lines(finding))
    return int(any(finding.severity == "fault" for finding in findings))


def _lines(finding: Finding) -> Iterator[Line]:
    mark, style = _MARKS[finding.severity]
    for at, text in enumerate(neutral(finding.message).split("\n")):
        yield [Span(mark if at == 0 else " ", style), f" {finding.id if at == 0 else '':<10} {text}"]
    if finding.hint:
        hint = (span._replace(style=span.style or "dim") for span in with_commands(finding.hint))
        yield [" " * 13, *hint]


def check_python(home: Home) -> Iterator[Finding]:
    """Check that Python is new enough."""
    found = f"Python {platform.python_version()}"
    if sys.version_info >= _OLDEST_PYTHON:
        yield Finding("python", "ok", found)
    else:
        yield Finding("python", "fault", f"{found} is too old", "Install Python 3.11 or newer.")


def check_home(home: Home) -> Iterator[Finding]:
    """Check that the home is writable, and closed to others."""
    folder = home.folder
    if not os.path.lexists(folder):
        ground = _nearest(folder)
        if os.access(ground, os.W_OK):
            yield Finding("home", "ok", f"{folder} will be created on first use")
        else:
            hint = "Name another home with --home or HOLDFAST_HOME."
            yield Finding("home", "fault", f"{folder} cannot be created: {ground} is not writable", hint)
        return
    if not (folder.is_dir() and os.access(folder, os.R_OK | os.W_OK | os.X_OK)):
        yield Finding("home", "fault", f"{folder} is not writable", "Check its owner and permissions.")
        return
    top = folder.resolve()  # what lies in a home counts, also where a link leads to it
    inside = [path for path in sorted(top.iterdir()) if not path.is_symlink()]
    open_to_others = [path for path in (top, *inside) if _is_open(path)]
    if not open_to_others:
        yield Finding("home", "ok", f"{folder} is closed to others")
        return
    listed = ", ".join(str(path) for path in open_to_others[:_LISTED_FILES])
    hint = f"`holdfast doctor --fix` closes it, or: chmod -R go-rwx {shlex.quote(str(top))}"
    yield Finding("home", "fault", f"others may read or write {listed}", hint)


def close_to_others(folder: Path) -> None:
    """Take the permissions of others away from a home, and from all files and folders in it. Links in it are left
    alone, and what cannot be changed stays for the check to find.
    """
    for parent, entries in walked(str(folder.resolve())):
        for path in (parent, *(entry.path for entry in entries or ())):
            with contextlib.suppress(OSError):  # a socket, a link, another user's file
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) & 0o700)
                finally:
                    os.close(fd)


def _is_open(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def check_database(home: Home) -> Iterator[Finding]:
    """Check that the database opens and answers. `fsck` checks the records."""
    path = home.folder / DATABASE
    try:
        with storage_errors(path):
            if was_used(home.folder):
                asyncio.run(_ask(home))
            size = path.stat().st_size if path.exists() else None
    except StorageError as error:
        yield Finding("database", "fault", error.message, error.hint)
    else:
        told = "there is no database yet" if size is None else f"{path} opens, {size / (1 << 20):.1f} MiB"
        yield Finding("database", "ok", told)


def check_circuits(home: Home) -> Iterator[Finding]:
    """Check whether services fail, or want no calls for a while."""
    try:
        found = asyncio.run(_circuits(home)) if was_used(home.folder) else []
    except (StorageError, OSError):  # the check of the database says it
        return
    waiting = [each for each in found if each.is_open or each.asked_ms]
    for each in waiting:
        told = f"{each.name} is {state_of(each, each.at).replace('_', ' ')}; calls: {when_called(each)}"
        told += f"; it was: {each.reason}" if each.reason else ""
        hint = f"When it works again: `holdfast circuits reset {shlex.quote(each.name)}`."
        yield Finding("circuits", "warning", told, hint)
    if not waiting:
        yield Finding("circuits", "ok", "every service may be called")


async def _circuits(home: Home) -> Sequence[Circuit]:
    async with reading(home) as store:
        return await store.circuits()


async def _ask(home: Home) -> None:
    async with aclosing(open_store(home)) as store:
        await store.approvals()
        for row in await store.sessions(limit=1):
            await store.recover(row.session)


def check_config(home: Home) -> Iterator[Finding]:
    """Check that the configuration is valid and names a model."""
    try:
        config = load(home, Path.cwd(), {}, os.environ)
    except ConfigError as error:
        yield Finding("config", "fault", error.message, error.hint)
        return
    if config.model:
        yield Finding("config", "ok", f"the model is {config.model}")
    else:
        yield Finding("config", "warning", "no model is configured", "Run `holdfast init`.")
    for warning in (*config.warnings, *_unknowns(config)):
        if warning != UNSAFE:  # the check of the sandbox says it
            yield Finding("config", "warning", warning)


def _unknowns(config: Config) -> Iterable[str]:
    """Return what is not known about the configured model."""
    if not config.model:
        return ()
    try:
        return unknowns(facts_of(config, config.model, SYSTEM_CLOCK.now_ms()))
    except UsageError as error:
        return (error.message,)


def check_keys(home: Home) -> Iterator[Finding]:
    """Check that a model can be used."""
    try:
        config = load(home, Path.cwd(), {}, os.environ)
    except ConfigError:
        return
    try:
        providers = find_providers(config, home, os.environ)
    except StorageError:  # the check of secrets says it
        return
    usable = [found for found in providers if found.is_usable]
    if usable:
        told = ", ".join(f"{found.provider} ({found.why})" for found in usable)
        yield Finding("keys", "ok", told)
    else:
        hint = "Set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY, or start a local server."
        yield Finding("keys", "warning", "no provider has a key, and no local server answers", hint)


def check_sandbox(home: Home) -> Iterator[Finding]:
    """Check how commands are confined, and whether the sandbox keeps anything out here."""
    found = asyncio.run(probed_sandboxes())
    for name, each in found.items():
        told = each.fault or f"it works; it does not stop {'; '.join(each.leaves_open)}"
        yield Finding(f"sandbox.{name}", "warning" if each.fault else "ok", told, each.hint)
    yield Finding("sandbox.cgroups", "ok", _NO_GROUPS)
    with contextlib.suppress(ConfigError):
        mode = load(home, Path.cwd(), {}, os.environ).settings["sandbox.mode"].value
        working = [name for name, each in found.items() if not each.fault and mode in ("auto", name)]
        if mode == "unsafe":
            hint = "Give Holdfast only tasks that may do what you may do."
            yield Finding("sandbox.mode", "warning", UNSAFE, hint)
        elif working:
            yield Finding("sandbox.mode", "ok", f'commands run in {working[0]}, as mode = "{mode}" says')
        else:
            hint = "Runs with tools that start a program, such as `shell` and `grep`, exit with 8."
            yield Finding("sandbox.mode", "fault", f'no sandbox works for mode = "{mode}"', hint)


def check_shell(home: Home) -> Iterator[Finding]:
    """Check that commands can run."""
    if bash := shutil.which("bash"):
        yield Finding("shell", "ok", f"commands run in {bash}")
    else:
        yield Finding(
            "shell", "warning", "there is no bash, so the tool `shell` runs nothing", "Install bash."
        )


def check_hooks(home: Home) -> Iterator[Finding]:
    """Check that the programs of the hooks exist."""
    try:
        config = load(home, Path.cwd(), {}, os.environ)
    except ConfigError:
        return
    missing = [source for source in config.hooks if not _exists(source)]
    for source in missing:
        what = f"program {source.command[0]}" if source.command else f"entry point {source.python}"
        message = f"[hooks.{source.hook.name}]: there is no {what}"
        yield Finding("hooks", "fault", message, f"Install it, or correct {source.origin}.")
    if config.hooks and not missing:
        yield Finding("hooks", "ok", ", ".join(source.hook.name for source in config.hooks))


def check_egress(home: Home) -> Iterator[Finding]:
    """Check what tools may reach, and that search engines have their keys."""
    try:
        config = load(home, Path.cwd(), {}, os.environ)
    except ConfigError:
        return
    hosts, engines = config.policy.allowed_hosts, config.policy.search
    listed = ", ".join(hosts[:_LISTED_FILES]) + (", ..." if len(hosts) > _LISTED_FILES else "")
    told = f"tools reach {listed}" if hosts else "tools reach no host"
    if config.policy.walls.backend == "unsafe":
        yield Finding("egress", "ok", f"{told}; commands, without a sandbox, reach everything")
    elif hosts and (fault := asyncio.run(_fault_of_proxy(config))):
        hint = "Until this is mended, commands have no network."
        yield Finding("egress", "fault", f"{told}; commands do not: {fault}", hint)
    else:
        yield Finding("egress", "ok", f"{told}, and so do commands, through the proxy" if hosts else told)
    for name in [KEY_VARIABLES.get(engine_of(entry).name) for entry in engines]:
        if name and not os.environ.get(name, "").strip():
            hint = f"Set {name}, or leave its engine out of [search] engines."
            yield Finding(
                "egress", "warning", f"{name} is not set, so its search engine does not answer", hint
            )


def check_secrets(home: Home) -> Iterator[Finding]:
    """Check that the stored secrets can be read, and where their key is."""
    store = SecretStore(home.folder, os.environ)
    try:
        content = store.content()
        values = store.values()
        config = load(home, Path.cwd(), {}, os.environ)
    except ConfigError:
        return
    except HoldfastError as error:
        yield Finding("secrets", "fault", error.message, error.hint)
        return
    if content is None:
        yield Finding("secrets", "ok", "none are stored")
    else:
        where = "the environment" if content.key == "environment" else f"the keyring ({keyring_name()})"
        told = f"{counted(len(values), 'secret')} in {store.path}; the key is in {where}"
        yield Finding("secrets", "ok", told)
    for path in filter(Path.exists, map(Path, filter(None, [key_file(os.environ)]))):
        if _is_open(path):
            hint = f"Close it with: chmod go-rwx {shlex.quote(str(path))}"
            yield Finding("secrets", "warning", f"others may read the key file {path}", hint)
        walls = config.policy.walls
        shown = (Path.cwd(), *(Path(each).expanduser() for each in (*walls.read, *walls.write)))
        if any(path.resolve().is_relative_to(folder.resolve()) for folder in shown):
            hint = (
                f"Move it, and set {KEY_FILE_VARIABLE}. In the sandbox landlock a command can read what lies in the "
                "workspace, and without a sandbox everything."
            )
            yield Finding("secrets", "warning", f"the key file {path} lies where commands work", hint)
    for name in sorted({*config.secrets} - {*values}):
        hint = f"Store it: `holdfast secret set {name}`."
        yield Finding(
            "secrets", "warning", f"[secrets.{name}] is configured, and no such secret is stored", hint
        )


async def _fault_of_proxy(config: Config) -> str:
    """Return why commands in the sandbox do not get to the proxy; empty if they do."""
    try:
        opened = await open_sandbox(config)
    except SandboxUnavailable:
        return "the sandbox does not work."
    fault: str = await factory(_PROXY_PROBE)(opened[0]) if opened is not None else ""
    return fault


def _exists(source: HookSource) -> bool:
    if source.python:
        return factories().has("hooks", source.python)
    return shutil.which(source.command[0]) is not None


def check_disk(home: Home) -> Iterator[Finding]:
    """Check the free disk space."""
    free = shutil.disk_usage(_nearest(home.folder)).free
    told = f"{free / (1 << 30):.1f} GiB free"
    if free < _DISK_FAULT_BYTES:
        yield Finding("disk", "fault", told, "Free some space. Holdfast stops when it cannot write.")
    else:
        yield Finding("disk", "ok" if free >= _DISK_WARNING_BYTES else "warning", told)


def check_copies(home: Home) -> Iterator[Finding]:
    """Check for copies of workspaces that wait for long, or are gone."""
    try:
        for is_due, message, hint in told_copies(home):
            yield Finding("copies", "warning" if is_due else "ok", message, hint)
    except StorageError:  # the check of the database says it
        return


def check_commands(home: Home) -> Iterator[Finding]:
    """Check for commands whose changes an error keeps from being undone."""
    traces = Traces(home.folder)
    for path, why in traces.unreadable().items():
        hint = "If it cannot be mended, look yourself for what that command left, and remove the file."
        told = f"what a command left cannot be read: {path} ({why}). Until it can be, no command runs"
        yield Finding("commands", "fault", told, hint)
    for trace in traces.left_stuck():
        what = not_put_back(Undone(stuck=trace.stuck, why=trace.why), trace.writable[0])
        told = f"what a command of session {trace.session} changed in {trace.writable[0]} is not put back: {what}"
        hint = "Holdfast tries again before the next command there."
        yield Finding("commands", "fault", told, hint)
    for trace in traces.faulty().values():
        resume = f"`holdfast resume {trace.session}`"
        elsewhere = f"When that folder is back, run {resume}. `holdfast delete {trace.session}` forgets it."
        yield Finding(
            "commands",
            "fault",
            f"what a killed command of session {trace.session} changed in {trace.writable[0]} cannot be put right "
            f"({trace.fault})",
            elsewhere
            if is_elsewhere(trace)
            else f"Until it is, no command runs there. {resume} tries again.",
        )


CHECKS: tuple[Check, ...] = (
    check_python, check_home, check_database, check_config, check_keys, check_circuits, check_shell, check_sandbox,
    check_egress, check_secrets, check_hooks, check_copies, check_commands, check_disk,
)  # fmt: skip


def _nearest(folder: Path) -> Path:
    """Return the folder, or the nearest parent that exists."""
    return next(path for path in (folder, *folder.parents) if os.path.lexists(path))
