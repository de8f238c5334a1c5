"""The keys about calls to services: when they stop (`[circuits]`), how fast they may be (`[rates]`), and how often
they are tried (`[retry]`).

`keys` puts them into its table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from holdfast.config.models import literal
from holdfast.config.money import Row
from holdfast.config.values import duration, whole
from holdfast.protocol.circuits import CircuitRules
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.rates import Rate
from holdfast.protocol.settings import ModelSettings

CIRCUITS, RATES, RETRY = "circuits", "rates", "retry"
HOME = "home"
"""The name of the rate of all calls of a home."""
FAILURES_MAX = 1_000
COOLDOWN_MAX_S = 86_400
A_MINUTE_MAX = 1_000_000_000
CONCURRENT_MAX = 100_000
BURST_MAX_S = 3_600
ATTEMPTS_MAX = 100
RETRIES_MAX = 10_000
PARK_MAX_S = 90 * 86_400
KNOWN_NAMES = 1_024
"""For so many names, the rate is not found anew with each call."""

_DEFAULT = ModelSettings(ModelFacts("", ""))
OPENING: tuple[Row, ...] = (
    Row(
        "failures",
        whole(1, FAILURES_MAX),
        "After so many failures in a row, nobody calls a service.",
        CircuitRules().failures,
    ),
    Row(
        "cooldown",
        duration(1, COOLDOWN_MAX_S),
        "For so long. Then one call finds out whether it is back.",
        CircuitRules().cooldown_ms / 1000,
    ),
)
SPEED: tuple[Row, ...] = (
    Row("requests_per_minute", whole(1, A_MINUTE_MAX), "The most calls in a minute."),
    Row("tokens_per_minute", whole(1, A_MINUTE_MAX), "The most input and output tokens in a minute."),
    Row("concurrent", whole(1, CONCURRENT_MAX), "The most calls at a time."),
    Row("burst", duration(1, BURST_MAX_S), "What was not used in this time may be used at once."),
)
TRIES: tuple[Row, ...] = (
    Row("attempts", whole(1, ATTEMPTS_MAX), "The most attempts of one model call.", _DEFAULT.model_attempts),
    Row(
        "per_run",
        whole(0, RETRIES_MAX),
        "The most attempts after the first ones of a run.",
        _DEFAULT.run_retries,
    ),
    Row(
        "patience",
        duration(0, PARK_MAX_S),
        "The longest wait in a process. A longer one parks the session.",
        _DEFAULT.patience_s,
    ),
    Row("park", duration(0, PARK_MAX_S), "All parked time of a run, at most.", _DEFAULT.park_s),
)
NAMES = (
    'PROVIDER:MODEL, user:NAME, session:CHANNEL:CHAT, tool:NAME or home, or a glob on one, like "openai:*"'
)


def wrong_names(names: Mapping[str, tuple[str, ...]], sections: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the names in `[rates]`, as sentences.

    Args:
        names: The segments of each key.
        sections: By key, where it is said.
    """
    told: set[str] = set()
    for key, segments in names.items():
        if segments[0] != RATES or len(segments) < 2 or key not in sections or segments[1] in told:
            continue
        told.add(name := segments[1])
        if name != HOME and not any(each in name for each in ":*?["):
            yield f"{sections[key]}: {key}: {name!r} can match nothing: use {NAMES}"


def circuits_of(value: Mapping[str, Any]) -> CircuitRules:
    """Return when circuits open, from values by their dotted keys."""
    cooldown_ms = round(value[f"{CIRCUITS}.cooldown"] * 1000)
    return CircuitRules(value[f"{CIRCUITS}.failures"], cooldown_ms)


def rate_finder(said: Mapping[str, Mapping[str, Any]]) -> Callable[[str], Rate | None] | None:
    """Return what finds the rate of a name: each value by the glob with the most literal characters that sets it.
    None: there are no rates.
    """
    if not said:
        return None

    @lru_cache(KNOWN_NAMES)
    def find(name: str) -> Rate | None:
        found: dict[str, Any] = {}
        for glob in sorted((each for each in said if fnmatchcase(name, each)), key=literal):
            found |= said[glob]
        if not found.keys() - {"burst"}:
            return None
        burst_ms = round(found.pop("burst") * 1000) if "burst" in found else Rate().burst_ms
        return Rate(burst_ms=burst_ms, **found)

    return find
