"""Holdfast: an agent runtime for work that lasts. Names load when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.agent import Agent as Agent
    from holdfast.agent import Approval as Approval
    from holdfast.agent import Context as Context
    from holdfast.agent import Delta as Delta
    from holdfast.agent import Event as Event
    from holdfast.agent import Limits as Limits
    from holdfast.agent import Result as Result
    from holdfast.agent import Runtime as Runtime
    from holdfast.agent import Session as Session
    from holdfast.agent import SessionInfo as SessionInfo
    from holdfast.agent import tool as tool
    from holdfast.errors import HoldfastError as HoldfastError
    from holdfast.errors import NoOutput as NoOutput
    from holdfast.errors import ToolError as ToolError
    from holdfast.errors import ToolUnavailable as ToolUnavailable

__version__ = "0.1.0"

_HOMES = {
    "Agent": "holdfast.agent",
    "Approval": "holdfast.agent",
    "Context": "holdfast.agent",
    "Delta": "holdfast.agent",
    "Event": "holdfast.agent",
    "Limits": "holdfast.agent",
    "Result": "holdfast.agent",
    "Runtime": "holdfast.agent",
    "Session": "holdfast.agent",
    "SessionInfo": "holdfast.agent",
    "tool": "holdfast.agent",
    "HoldfastError": "holdfast.errors",
    "NoOutput": "holdfast.errors",
    "ToolError": "holdfast.errors",
    "ToolUnavailable": "holdfast.errors",
}
"""The module of each public name. Importing `holdfast` loads none of them."""

__all__ = [
    "Agent", "Approval", "Context", "Delta", "Event", "HoldfastError", "Limits", "NoOutput", "Result", "Runtime",
    "Session", "SessionInfo", "ToolError", "ToolUnavailable", "__version__", "tool",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
