"""The keys about limits: what a run may use (`[limits]`), and what sessions, users and the home may spend
(`[budgets]`).

`keys` puts them into its table.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from holdfast.config.values import Kind, choice, dollars, duration, time_zone, whole
from holdfast.protocol.budgets import SCOPES, Budgets, Scope
from holdfast.protocol.limits import NO_TOOL_CALL_LIMIT, Limits

TURNS_MAX = 10_000
TOKENS_MAX = 1_000_000_000
COST_MAX_MICROUSD = 10_000_000_000
WALL_MAX_S = 30 * 86_400
IDLE_MAX_S = 86_400
BUDGETS = "budgets"
"""The section of budgets."""


class Row(NamedTuple):
    """A key of one of these sections."""

    name: str
    kind: Kind
    about: str
    default: Any = None
    flag: str = ""


LIMITS: tuple[Row, ...] = (
    Row("turns", whole(1, TURNS_MAX), "Model calls with their tool calls.", Limits().turns, "--max-turns"),
    Row(
        "tokens",
        whole(1, TOKENS_MAX),
        "Input and output of all model calls.",
        Limits().tokens,
        "--max-tokens",
    ),
    Row(
        "cost_usd",
        dollars(1, COST_MAX_MICROUSD),
        "Money. With a limit, a model of unknown price is refused.",
        Limits().cost_microusd,
        "--budget",
    ),
    Row(
        "wall",
        duration(1, WALL_MAX_S),
        "Driven time. Waiting for people does not count.",
        Limits().wall_s,
        "--timeout",
    ),
    Row(
        "idle",
        duration(1, IDLE_MAX_S),
        "The longest silence of a model or tool.",
        Limits().idle_s,
        "--idle-timeout",
    ),
    Row(
        "tool_calls",
        whole(1, NO_TOOL_CALL_LIMIT),
        "Tool calls that start. Default: as many as the turns make.",
        flag="--max-tool-calls",
    ),
    Row(
        "request",
        duration(1, IDLE_MAX_S),
        "The longest time for one whole model call.",
        Limits().request_s,
    ),
    Row(
        "call_usd",
        dollars(1, COST_MAX_MICROUSD),
        "The most that one model call may cost. Default: a quarter of cost_usd.",
    ),
)
"""What a run may use."""
_OF: dict[Scope, str] = {
    "home": "What may be spent in this home.",
    "month": "What may be spent in a month.",
    "day": "What may be spent in a day.",
    "user_month": "What each user may spend in a month.",
    "user_day": "What each user may spend in a day.",
    "session": "What a session may spend.",
}
SPENDING: tuple[Row, ...] = tuple(
    [Row(f"{scope}_usd", dollars(1, COST_MAX_MICROUSD), _OF[scope]) for scope in SCOPES]
)
"""What may be spent. Without a value there is no limit."""
PERIODS: tuple[Row, ...] = (
    Row("zone", time_zone(), "The time zone of days and months.", Budgets().zone),
    Row(
        "when_reached",
        choice("stop", "park"),
        "`stop`: the run answers and ends. `park`: it waits until the period ends.",
        Budgets().when_reached,
    ),
)
"""What counts for all of them."""


def less(value: Any) -> float:
    """Return how strict a limit is. Without one, nothing is looser."""
    return -math.inf if value is None else -float(value)


def never(value: Any) -> str:
    """Return why a project file may not set it, whatever it is."""
    return "may not set what may be spent"


def budgets_of(value: dict[str, Any]) -> Budgets:
    """Return the budgets among values by their dotted keys."""
    return Budgets(
        **{scope: value.get(f"{BUDGETS}.{scope}_usd") for scope in SCOPES},
        zone=value[f"{BUDGETS}.zone"],
        when_reached=value[f"{BUDGETS}.when_reached"],
    )
