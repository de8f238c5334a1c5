"""Decides whether a call may be made now by the limits of `[rates]`, and whose turn it is.

Every store asks this inside the transaction that writes the answer. Whether a service can be called at all is in
`circuits`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from holdfast.core.circuits import spread_ms
from holdfast.protocol.circuits import Caller, Later
from holdfast.protocol.moments import Moment, elapsed_ms
from holdfast.protocol.rates import MINUTE_MS, Allowance, Draw, Drawn, Place, Rate

LATE_MS = 10_000
"""A call that asks so much later than it was asked to has lost its place in the line."""
_WHY: tuple[Literal["concurrent", "tokens", "requests"], ...] = ("concurrent", "tokens", "requests")
"""Why a call waits, in the order in which reasons of the same length count."""
LOOK_AGAIN_MS = 1_000
"""Nobody knows when a call in progress ends, so those that wait for its end look again."""

# An example: 60 requests a minute and a burst of 10 s. A full allowance has 10 requests, and gets one each second. Of
# 12 sessions that call at once, 10 may. The other two wait in the line, for 1 and for 2 seconds. A session that comes
# meanwhile waits behind them.
#
# A call waits only for the allowances that are too small for it. It does not take its turn in others, so those that
# wait for a slow model keep nobody from another one. All wait in one line, and a call waits only for those ahead of
# it. So the first one in the line waits for nobody, and two calls never wait for each other.


def refilled(allowance: Allowance, rate: Rate, now: Moment) -> Allowance:
    """Return what an allowance has by now. It never has more than what the rate brings in its burst."""
    passed = elapsed_ms(allowance.at, now)
    requests, tokens = (
        min(parts + passed * (a_minute or 0), (a_minute or 0) * rate.burst_ms)
        for parts, a_minute in (
            (allowance.requests, rate.requests_per_minute),
            (allowance.tokens, rate.tokens_per_minute),
        )
    )
    return Allowance(allowance.name, now, requests, tokens)


def full(name: str, rate: Rate, now: Moment) -> Allowance:
    """Return a full allowance, as it is before its first call."""
    requests, tokens = (
        (a_minute or 0) * rate.burst_ms for a_minute in (rate.requests_per_minute, rate.tokens_per_minute)
    )
    return Allowance(name, now, requests, tokens)


def corrected(allowance: Allowance, expected_tokens: int, used_tokens: int) -> Allowance:
    """Return the allowance after a call of which its tokens are known."""
    return replace(allowance, tokens=allowance.tokens + (expected_tokens - used_tokens) * MINUTE_MS)


def decide_draw(
    draw: Draw,
    allowances: Mapping[str, Allowance],
    places: Sequence[Place],
    now: Moment,
    is_alive: Callable[[Caller], bool] = lambda _: True,
) -> Drawn:
    """Return whether a call may be made now: it draws from all its allowances, or gets a place in the line.

    Args:
        draw: What the call wants.
        allowances: What was left under these names. One that is not there is full.
        places: All calls that wait or are in progress.
        now: The time.
        is_alive: Whether the process of a call in progress still has its lease.
    """
    caller = draw.caller
    left = {
        name: refilled(allowances[name], rate, now) if name in allowances else full(name, rate, now)
        for name, rate in draw.rates
    }
    lost: list[Caller] = []
    others: list[Place] = []
    own: Place | None = None
    for each in places:
        if _is_of(each, caller):
            own = each if not _is_lost(each, now, is_alive) else None
        elif _is_lost(each, now, is_alive):
            lost.append(each.caller)
        else:
            others.append(each)
    given_back: tuple[str, ...] = ()
    if own is not None and not own.is_waiting:  # it is prepared again, and may need more or less now
        given_back = tuple([name for name in own.names if name in left])
        left |= {name: _taken(left[name], -own.tokens, -1) for name in given_back}
        own = None
    last = max([each.ticket for each in places], default=0)
    place = Place(caller, own.ticket if own is not None else last + 1, draw.tokens, (), False, now, 0)
    line = _ahead(place, others)
    ahead = {name: [each for each in line if name in each.names] for name in left}
    laters = {
        name: found
        for name, rate in draw.rates
        if (found := _later(draw, rate, left[name], ahead[name], others)) is not None
    }
    if laters:
        later = max(laters.values(), key=lambda each: each.wait_ms)
        # It stays first where it is first. Otherwise others could empty each allowance while it waits for the next.
        stays = [name for name in (own.names if own is not None else ()) if name in left and not ahead[name]]
        names = tuple(dict.fromkeys([*laters, *stays]))
        waits = replace(place, names=names, is_waiting=True, left_ms=later.wait_ms + LATE_MS)
        return Drawn(later, tuple([left[name] for name in given_back]), (waits,), tuple(lost))
    begins = replace(place, names=tuple(left), left_ms=draw.limit_ms)
    again = _to_the_end(caller.session, others, last + 1)
    drawn = tuple([_taken(each, draw.tokens, 1) for each in left.values()])
    return Drawn(None, drawn, (begins, *again), tuple(lost))


def _is_of(place: Place, caller: Caller) -> bool:
    # The next driver of a session may ask for the same attempt.
    return (place.caller.session, place.caller.key) == (caller.session, caller.key)


def _is_lost(place: Place, now: Moment, is_alive: Callable[[Caller], bool]) -> bool:
    is_late = elapsed_ms(place.at, now) >= place.left_ms
    # Who waits may be parked, and then has no lease.
    return is_late or not (place.is_waiting or is_alive(place.caller))


def _taken(allowance: Allowance, tokens: int, requests: int) -> Allowance:
    return replace(
        allowance,
        requests=allowance.requests - requests * MINUTE_MS,
        tokens=allowance.tokens - tokens * MINUTE_MS,
    )


def _ahead(place: Place, others: Sequence[Place]) -> list[Place]:
    """Return the calls that are ahead of this one in the line."""
    if not any(each.is_waiting for each in others):
        return []
    # The first calls of all sessions come before the second ones, and those before the third ones. With one call of
    # each session in the line, who came first is first.
    waiting = sorted([place, *[each for each in others if each.is_waiting]], key=lambda each: each.ticket)
    seen: Counter[str] = Counter()
    line: list[tuple[int, int]] = []
    for number, each in enumerate(waiting):
        line.append((seen[each.caller.session], number))
        seen[each.caller.session] += 1
    mine = line[waiting.index(place)]
    return [waiting[turn[1]] for turn in sorted(line) if turn < mine]


def _later(
    draw: Draw, rate: Rate, left: Allowance, ahead: Sequence[Place], others: Sequence[Place]
) -> Later | None:
    """Return how long the call has to wait for one allowance; None if it need not."""
    in_use = sum(not each.is_waiting and left.name in each.names for each in others)
    # The first one in the line may wait for something else. Until it asks again, there is no room behind it.
    first_ms = ahead[0].left_ms - LATE_MS - elapsed_ms(ahead[0].at, left.at) if ahead else 0
    before = sum([each.tokens for each in ahead])
    waits = (
        _wait_for_others_ms(rate, in_use, len(ahead), first_ms, draw.caller),
        _wait_ms(rate.tokens_per_minute, rate.burst_ms, left.tokens, draw.tokens, before, first_ms),
        _wait_ms(rate.requests_per_minute, rate.burst_ms, left.requests, 1, len(ahead), first_ms),
    )
    longest_ms = max(waits)
    return Later(_WHY[waits.index(longest_ms)], left.name, longest_ms) if longest_ms else None


def _wait_for_others_ms(rate: Rate, in_use: int, ahead: int, first_ms: int, caller: Caller) -> int:
    """Return when to look whether calls in progress have ended; 0 if there are not too many."""
    if rate.concurrent is None or in_use + ahead < rate.concurrent:
        return 0
    is_full = in_use >= rate.concurrent
    return max(0 if is_full else first_ms, LOOK_AGAIN_MS) + spread_ms(LOOK_AGAIN_MS, caller.session)


def _wait_ms(a_minute: int | None, burst_ms: int, left: int, wanted: int, ahead: int, first_ms: int) -> int:
    """Return how long it takes until there is enough for the call and for those ahead of it; 0 if there is."""
    if a_minute is None:
        return 0
    # What is larger than a full allowance waits until it is full, and then takes more than it has.
    most = a_minute * burst_ms
    needed = min(wanted * MINUTE_MS, most) + ahead * MINUTE_MS
    wait_ms = -(-max(needed - left, 0) // a_minute)
    return max(wait_ms, first_ms) if needed > most else wait_ms


def _to_the_end(session: str, others: Sequence[Place], last: int) -> list[Place]:
    """Return the places of the other waiting calls of a session that had its turn: behind everybody's."""
    waiting = sorted(
        [each for each in others if each.is_waiting and each.caller.session == session],
        key=lambda each: each.ticket,
    )
    return [replace(each, ticket=last + number) for number, each in enumerate(waiting, start=1)]
