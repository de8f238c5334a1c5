"""What a provider read from its cache, and what it could have read: the share of each call, and a warning."""

from __future__ import annotations

from holdfast.protocol.counts import counted
from holdfast.protocol.events import ModelCallStarted, Record, Responded
from holdfast.protocol.messages import Estimated, Usage
from holdfast.protocol.request import Request
from holdfast.views.story import Attempt

LOW_CALLS = 3
"""After so many calls in a row whose share is below half of the possible one, the user reads a warning."""
LEAST_TOKENS = 1_024
"""No provider keeps a shorter prefix."""
WARNING = (
    "In {calls} in a row the provider read {read} of the input from its cache, where {possible} was possible, so the "
    "calls cost more than they have to. `holdfast show {session} --requests` shows it for each call."
)


def read_share(usage: Usage, estimated: Estimated = ()) -> float | None:
    """Return the share of the input that the provider read from its cache; None if it did not count its input."""
    if "input" in estimated or not usage.input_tokens:
        return None
    return min(usage.cache_read_tokens / usage.input_tokens, 1.0)


def possible_share(request: Request) -> float:
    """Return the share of the request that the provider had received before, from its first byte on."""
    return min(request.prefix_bytes / request.size_bytes, 1.0) if request.size_bytes else 0.0


def share_of(attempt: Attempt) -> float | None:
    """Return the share of an attempt, as in `read_share`."""
    return read_share(attempt.usage, getattr(attempt.outcome, "estimated", ()))


def percent(share: float | None) -> str:
    """Return a share for people; `?` if it is not known."""
    return "?" if share is None else f"{share:.0%}"


class CacheWatch:
    """Reads the records of a session as they come, and warns once."""

    def __init__(self) -> None:
        self._open: dict[str, Request] = {}
        self._low: list[tuple[float, float]] = []
        """The share and the possible share of the last calls in a row that stayed below half of it."""
        self._has_warned = False

    def add(self, record: Record) -> str:
        """Return the warning if this record is the reason for it; empty otherwise."""
        match record.event:
            case ModelCallStarted(key=key, request=request, model=model, purpose="work"):
                # A script has no cache that could miss.
                self._open = {} if model.startswith("script:") else {key: request}
            case Responded(key=key) as responded if key in self._open and not self._has_warned:
                self._judge(responded, self._open.pop(key))
        if self._has_warned or len(self._low) < LOW_CALLS:
            return ""
        self._has_warned = True
        read, possible = (sum(each) / LOW_CALLS for each in zip(*self._low, strict=True))
        calls = counted(LOW_CALLS, "call")
        return WARNING.format(
            calls=calls, read=percent(read), possible=percent(possible), session=record.session
        )

    def _judge(self, responded: Responded, request: Request) -> None:
        read, possible = read_share(responded.usage, responded.estimated), possible_share(request)
        is_short = possible * responded.usage.input_tokens < LEAST_TOKENS
        if read is None or is_short or not responded.cost_microusd:  # what costs nothing cannot cost too much
            return
        self._low = [*self._low, (read, possible)] if read < possible / 2 else []
