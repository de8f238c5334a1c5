"""Which sandbox a process uses: the one that the configuration names, if it keeps anything out on this machine."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from holdfast.errors import SandboxUnavailable
from holdfast.protocol.fence import Finding, Mode, Sandbox
from holdfast.sandbox import bubblewrap, landlock

_MAKERS: Mapping[str, Callable[[], Sandbox | Finding]] = MappingProxyType(
    {"bubblewrap": bubblewrap.make, "landlock": landlock.make}
)
"""The strictest first."""
_NONE = "No sandbox works here, so no command runs."
_NOT_LINUX = f"{_NONE} Holdfast has none for this system yet ({{system}})."
_NEEDLESS = "Without a sandbox, a run can have the tools that start no program: `--allow-tool '*_file'`."
_WAY_OUT = 'With mode = "unsafe", commands run with your own permissions.'
_WITHOUT = "Your own value counts only without that line."


async def opened(mode: Mode, origin: str = "", layer: str = "") -> tuple[Sandbox, Finding]:
    """Return the sandbox of this name, and what the probe found; with `auto`, the strictest that works.

    Args:
        mode: What the configuration says.
        origin: Where it says so.
        layer: The layer of that place. Only without the line of a project or an admin does another mode count.

    Raises:
        SandboxUnavailable: none does, or the one that was asked for does not.
    """
    way_out = f"{origin} sets this mode. {_WITHOUT} {_WAY_OUT}" if layer in ("project", "admin") else _WAY_OUT
    way_out = f"{_NEEDLESS} {way_out}"
    if mode == "auto":
        return await _strictest(way_out)
    sandbox, found = await _probed(mode)
    if sandbox is None or found.fault:
        where = f" ({origin})" if origin else ""
        raise SandboxUnavailable(
            f'The sandbox of [sandbox] mode = "{mode}"{where} cannot be used: {found.fault}',
            hint=" ".join(filter(None, (found.hint, way_out))),
        )
    return sandbox, found


async def _strictest(way_out: str) -> tuple[Sandbox, Finding]:
    if not sys.platform.startswith("linux"):
        raise SandboxUnavailable(_NOT_LINUX.format(system=platform.system()), hint=way_out)
    missed: list[Finding] = []
    for name in _MAKERS:
        sandbox, found = await _probed(name)
        if sandbox is not None and not found.fault:
            return sandbox, replace(found, hint=" ".join(map(_said, missed)))
        missed.append(found)
    told = " ".join(f"{each.backend}: {each.fault}" for each in missed)
    raise SandboxUnavailable(
        f"{_NONE} {told}", hint=" ".join(filter(None, (*(each.hint for each in missed), way_out)))
    )


def _said(missed: Finding) -> str:
    return " ".join(filter(None, (f"{missed.backend} would stop more: {missed.fault}", missed.hint)))


async def findings() -> Mapping[str, Finding]:
    """Return what the probe of each backend finds, the strictest first."""
    return {name: (await _probed(name))[1] for name in _MAKERS}


async def _probed(name: str) -> tuple[Sandbox | None, Finding]:
    """Return a sandbox, if this machine can have it, and whether it keeps anything out. It is probed once."""
    made = _MAKERS[name]()
    return (None, made) if isinstance(made, Finding) else (made, await made.probe())
