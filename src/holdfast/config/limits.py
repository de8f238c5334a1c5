"""The limits of a run as a program sets them. `load` checks them like those of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.config.load import load_only


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one run, with the keys and values of `[limits]`. None means the default.

    Raises:
        ConfigError: lists every unknown key and every value that is not allowed.
    """

    turns: int | None = None
    tokens: int | None = None
    """The limit of tokens: input and output of all model calls of the run."""
    cost_usd: str | float | None = None
    """The limit of money. If it is set, a model of unknown price is refused."""
    wall: str | float | None = None
    """`"2h"`, or seconds. Driven time; waiting for people does not count."""
    idle: str | float | None = None
    """The longest silence of a model or tool."""
    tool_calls: int | None = None
    """The tool calls that may start."""
    request: str | float | None = None
    """The longest time for one whole model call."""
    call_usd: str | float | None = None
    """The most that one model call may cost."""

    def __new__(cls, **values: object) -> Limits:  # unknown names do not reach __init__
        load_only({}, {"limits": _said(values)})
        return super().__new__(cls)

    @property
    def given(self) -> dict[str, object]:
        """The limits that are set."""
        return _said(vars(self))


def _said(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
