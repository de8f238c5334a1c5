"""`holdfast doctor`: looks at this installation and says what is wrong with it and what to do about that.

Each check is a function that answers with findings; their ids stay as they are, for scripts. Nothing is
mended here.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.app import open_store
from holdfast.cli.found import find_providers
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import say, say_json
from holdfast.config.load import load
from holdfast.config.paths import Home
from holdfast.errors import ConfigError, StorageError
from holdfast.storage.errors import storage_errors
from holdfast.storage.home import DATABASE, was_used
from holdfast.views.lines import Line, Span, neutral

_OLDEST_PYTHON = (3, 11)
_DISK_FAULT_BYTES = 100 << 20
_DISK_WARNING_BYTES = 1 << 30
_LISTED_FILES = 5
_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}


class Finding(msgspec.Struct, frozen=True):
    """What a check found."""

    id: str
    severity: Literal["ok", "warning", "fault"]
    message: str
    hint: str = ""


Check = Callable[[Home], Iterator[Finding]]


def doctor(home: HomeFlag = None, is_json: JsonFlag = False) -> int:
    """Check this installation. Exits 1 when something must be mended before it works.

    \b
    holdfast doctor
    holdfast doctor --json
    """
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
        yield [Span(f"{'':<13}{neutral(finding.hint)}", "dim")]


def check_python(home: Home) -> Iterator[Finding]:
    """The interpreter is new enough."""
    found = f"Python {platform.python_version()}"
    if sys.version_info >= _OLDEST_PYTHON:
        yield Finding("python", "ok", found)
    else:
        yield Finding("python", "fault", f"{found} is too old", "Python 3.11 or newer is needed.")


def check_home(home: Home) -> Iterator[Finding]:
    """The home can be written, and by its owner alone be read."""
    folder = home.folder
    if not folder.exists():
        ground = _nearest(folder)
        if os.access(ground, os.W_OK):
            yield Finding("home", "ok", f"{folder} will be made when it is first needed")
        else:
            hint = "Name another home with --home or HOLDFAST_HOME."
            yield Finding("home", "fault", f"{folder} cannot be made: {ground} cannot be written", hint)
        return
    if not (folder.is_dir() and os.access(folder, os.R_OK | os.W_OK | os.X_OK)):
        yield Finding("home", "fault", f"{folder} cannot be written", "Check its owner and rights.")
        return
    open_to_others = [path for path in (folder, *sorted(folder.iterdir())) if _is_open(path)]
    if not open_to_others:
        yield Finding("home", "ok", f"{folder} is yours alone")
        return
    listed = ", ".join(str(path) for path in open_to_others[:_LISTED_FILES])
    hint = f"Close it with: chmod -R go-rwx {shlex.quote(str(folder))}"
    yield Finding("home", "fault", f"others than you may read or write {listed}", hint)


def _is_open(path: Path) -> bool:
    return not path.is_symlink() and bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def check_database(home: Home) -> Iterator[Finding]:
    """The database opens and answers; whether every record is whole is for fsck."""
    path = home.folder / DATABASE
    try:
        with storage_errors(path):
            if was_used(home.folder):
                asyncio.run(_ask(home))
            size = path.stat().st_size if path.exists() else None
    except StorageError as error:
        yield Finding("database", "fault", error.message, error.hint)
    else:
        told = "there is none yet" if size is None else f"{path} opens, {size / (1 << 20):.1f} MiB"
        yield Finding("database", "ok", told)


async def _ask(home: Home) -> None:
    async with aclosing(open_store(home)) as store:
        await store.approvals()
        for row in await store.sessions(limit=1):
            await store.recover(row.session)


def check_config(home: Home) -> Iterator[Finding]:
    """All configuration that counts here is valid, and names a model."""
    try:
        config = load(home, Path.cwd(), {}, os.environ)
    except ConfigError as error:
        yield Finding("config", "fault", error.message, error.hint)
        return
    if config.model:
        yield Finding("config", "ok", f"the model is {config.model}")
    else:
        yield Finding("config", "warning", "no model is configured", "`holdfast init` picks one.")


def check_keys(home: Home) -> Iterator[Finding]:
    """Some model can be used."""
    try:
        config = load(home, Path.cwd(), {}, os.environ)
    except ConfigError:
        return
    usable = [found for found in find_providers(config, os.environ) if found.is_usable]
    if usable:
        told = ", ".join(f"{found.provider} ({found.why})" for found in usable)
        yield Finding("keys", "ok", told)
    else:
        hint = "Set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY, or start a local server."
        yield Finding("keys", "warning", "no provider has a key, and no local server answers", hint)


def check_sandbox(home: Home) -> Iterator[Finding]:
    """How tools are fenced in."""
    hint = "Do not give it work that you would not do on this account yourself."
    yield Finding("sandbox", "warning", "mode unsafe: commands run with your own rights", hint)


def check_disk(home: Home) -> Iterator[Finding]:
    """There is room for what is to be recorded."""
    free = shutil.disk_usage(_nearest(home.folder)).free
    told = f"{free / (1 << 30):.1f} GiB free"
    if free < _DISK_FAULT_BYTES:
        yield Finding("disk", "fault", told, "Free some space: what cannot be recorded is not done.")
    else:
        yield Finding("disk", "ok" if free >= _DISK_WARNING_BYTES else "warning", told)


CHECKS: tuple[Check, ...] = (
    check_python, check_home, check_database, check_config, check_keys, check_sandbox, check_disk,
)  # fmt: skip


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())
