"""Which sandbox a process uses: the one that the configuration names, if it keeps anything out on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from holdfast.errors import SandboxUnavailable
from holdfast.protocol.fence import Backend, Finding, Sandbox
from holdfast.sandbox import bubblewrap, landlock

_MAKERS: Mapping[str, Callable[[], Sandbox | Finding]] = MappingProxyType(
    {"bubblewrap": bubblewrap.make, "landlock": landlock.make}
)
_WAY_OUT = 'With mode = "unsafe", commands run with your own permissions.'


async def opened(backend: Backend) -> tuple[Sandbox, Finding]:
    """Return the sandbox of this name, and what the probe found.

    Raises:
        SandboxUnavailable: it does not keep a program inside its fence here.
    """
    sandbox, found = await _probed(backend)
    if sandbox is None or found.fault:
        raise SandboxUnavailable(
            f'The sandbox of [sandbox] mode = "{backend}" cannot be used: {found.fault}',
            hint=" ".join(filter(None, (found.hint, _WAY_OUT))),
        )
    return sandbox, found


async def findings() -> Mapping[str, Finding]:
    """Return what the probe of each backend finds, the strictest first."""
    return {name: (await _probed(name))[1] for name in _MAKERS}


async def _probed(name: str) -> tuple[Sandbox | None, Finding]:
    """Return a sandbox, if this machine can have it, and whether it keeps anything out. It is probed once."""
    made = _MAKERS[name]()
    return (None, made) if isinstance(made, Finding) else (made, await made.probe())
