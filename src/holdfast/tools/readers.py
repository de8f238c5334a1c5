"""The spec of a built-in tool that reads: it changes nothing, so it may run again after an interruption."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.protocol.tools import ParameterKind, ToolSpec


def reader(
    *,
    name: str,
    description: str,
    parameters: dict[str, Any],
    kinds: dict[str, ParameterKind] | None = None,
    timeout_s: float | None = None,
    is_private: bool | None = None,
    is_remote: bool = False,
) -> ToolSpec:
    """Return the spec.

    Args:
        timeout_s: The limit of a tool that ends by itself in time; None: of any other.
        is_private: As in `ToolSpec`.
        is_remote: What it reads comes from a network, and anybody may have written it.
    """
    spec = ToolSpec(
        name=name,
        description=description,
        parameters=parameters,
        effect="network" if is_remote else "read",
        on_interrupt="rerun",
        source="builtin",
        trust="untrusted" if is_remote else "data",
        is_private=is_private,
        kinds=kinds or {},
    )
    return spec if timeout_s is None else replace(spec, timeout_s=timeout_s, keeps_time=True)
