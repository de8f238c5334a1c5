"""Rates, as pure decisions: nothing goes faster than it may, and everybody has a turn."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.rates import LATE_MS, corrected, decide_draw, full, refilled
from holdfast.protocol.circuits import Caller, Later
from holdfast.protocol.moments import Moment
from holdfast.protocol.rates import MINUTE_MS, Allowance, Draw, Place, Rate

START = Moment(1_790_000_000_000, 5_000_000)
LIMIT_MS = 600_000
SIXTY = Rate(requests_per_minute=60)


class Home:
    """The allowances and places of a home, as a store has them."""

    def __init__(self, **rates: Rate) -> None:
        self.rates = rates
        self.ms = 0
        self.step_ms = 0
        """How far the calendar was set."""
        self.allowances: dict[str, Allowance] = {}
        self.places: dict[tuple[str, str], Place] = {}
        self.dead: set[Caller] = set()
        self.drawn: list[tuple[int, str, int]] = []
        """When which call drew how many tokens, and from which allowance."""

    @property
    def now(self) -> Moment:
        return Moment(START.now_ms + self.ms + self.step_ms, START.uptime_ms + self.ms)

    def ask(self, session: str, tokens: int = 0, key: str = "m1", *names: str) -> Later | None:
        caller = Caller(session, key, 1)
        wanted = tuple((name, self.rates[name]) for name in names or self.rates)
        draw = Draw(caller, tokens, LIMIT_MS, wanted)
        places = [*self.places.values()]
        drawn = decide_draw(draw, self.allowances, places, self.now, lambda each: each not in self.dead)
        for each in drawn.gone:
            del self.places[each.session, each.key]
        self.places |= {(each.caller.session, each.caller.key): each for each in drawn.places}
        self.allowances |= {each.name: each for each in drawn.allowances}
        if drawn.later is None:
            self.drawn += [(self.ms, name, tokens) for name, _ in wanted]
            assert not self.places[session, key].is_waiting
        else:
            assert drawn.later.wait_ms > 0
            assert self.places[session, key].is_waiting
        return drawn.later

    def end(self, session: str, used: int | None = None, key: str = "m1") -> None:
        place = self.places.pop((session, key))
        if used is not None:
            for name in place.names:
                self.allowances[name] = corrected(self.allowances[name], place.tokens, used)

    def waits(self, session: str, tokens: int = 0, key: str = "m1", *names: str) -> int:
        """Return how long a call has to wait; 0: it may be made."""
        later = self.ask(session, tokens, key, *names)
        return later.wait_ms if later is not None else 0


def test_a_full_allowance_goes_at_once_and_the_rest_at_the_rate() -> None:
    home = Home(home=SIXTY)
    assert [home.waits(f"s{number}") for number in range(10)] == [0] * 10
    assert [home.waits("late"), home.waits("later")] == [1_000, 2_000]
    home.ms = 1_000
    assert [home.waits("late"), home.waits("later")] == [0, 1_000]


def test_who_waits_is_ahead_of_who_comes_later() -> None:
    home = Home(home=Rate(requests_per_minute=60, burst_ms=1_000))
    home.ask("a")
    assert [home.waits(each) for each in ("b", "c")] == [1_000, 2_000]
    home.ms = 1_500
    assert home.waits("d") == 2_000, "there is enough for one now, but b and c have their turn"
    assert home.waits("b") == 0


def test_sessions_take_turns_however_many_calls_one_of_them_has() -> None:
    home = Home(home=Rate(requests_per_minute=60, burst_ms=1_000))
    home.ask("busy", key="m0")
    calls = [("busy", f"m{number}") for number in range(1, 4)] + [("calm", "m1"), ("other", "m1")]
    for session, key in calls:
        home.ask(session, key=key)
    served = []
    for seconds in range(1, 6):
        home.ms = seconds * 1_000
        order = [(session, key) for session, key in reversed(calls) if (session, key) not in served]
        served += [call for call in order if home.waits(call[0], 0, call[1]) == 0]
    assert served == [("busy", "m1"), ("calm", "m1"), ("other", "m1"), ("busy", "m2"), ("busy", "m3")]


def test_the_second_call_of_a_session_is_behind_the_first_ones_of_others() -> None:
    home = Home(home=Rate(requests_per_minute=60, burst_ms=1_000))
    home.ask("busy", key="m0")
    assert [home.waits("busy", key="m1"), home.waits("busy", key="m2")] == [1_000, 2_000]
    assert [home.waits("calm"), home.waits("busy", key="m2")] == [2_000, 3_000]


def test_who_is_first_for_one_allowance_stays_first_while_it_waits_for_another() -> None:
    one_a_second = Rate(requests_per_minute=60, burst_ms=1_000)
    home = Home(model=one_a_second, user=one_a_second)
    assert home.waits("other", 0, "m1", "model") == 0
    assert home.waits("first") == 1_000
    home.ms = 1_000
    assert home.waits("other", 0, "m2", "user") == 0
    assert home.waits("first") == 1_000
    assert home.waits("other", 0, "m3", "model") == 1_000, "there is one, but it is for the first"
    home.ms = 2_000
    assert home.waits("first") == 0


def test_a_call_larger_than_a_full_allowance_waits_until_it_is_full_and_then_takes_more_than_there_is() -> (
    None
):
    home = Home(home=Rate(tokens_per_minute=6_000))
    assert home.waits("small", 1) == 0
    assert home.waits("large", 5_000) == 10
    home.ms = 10
    assert home.waits("large", 5_000) == 0
    assert home.allowances["home"].tokens == (1_000 - 5_000) * MINUTE_MS
    assert home.waits("small", 1, "m2") == 40_010


def test_what_the_provider_counts_replaces_what_was_expected() -> None:
    home = Home(home=Rate(tokens_per_minute=6_000))
    home.ask("a", 1_000)
    assert home.waits("b", 500) == 5_000
    home.end("a", 100)
    assert home.waits("b", 500) == 0
    home.end("b", 2_000)
    assert home.waits("c", 100) == 12_000
    home.end("c")
    home.ms = 100 * MINUTE_MS
    home.ask("d", 0)
    home.end("d", -5_000)
    assert home.waits("e", 1_000) == 0
    assert home.waits("f", 1_000) == 10_000, "an allowance is never more than full"


def test_so_many_calls_are_in_progress_and_one_of_a_dead_process_is_not() -> None:
    home = Home(home=Rate(concurrent=2))
    assert [home.waits("a"), home.waits("b")] == [0, 0]
    later = home.ask("c")
    assert later is not None
    assert later.why == "concurrent"
    assert later.wait_ms >= 1_000
    home.end("a")
    assert home.waits("d") > 0, "c is ahead"
    assert home.waits("c") == 0
    home.dead.add(Caller("b", "m1", 1))
    assert home.waits("d") == 0
    home.ms = LIMIT_MS
    assert [home.waits("e"), home.waits("f")] == [0, 0], "the time of the others is up"


def test_a_call_draws_from_all_its_allowances_or_from_none() -> None:
    home = Home(home=SIXTY, slow=Rate(requests_per_minute=6))
    assert home.waits("a") == 0
    assert home.waits("b") == 10_000
    assert home.waits("c", 0, "m1", "home") == 0
    assert refilled(home.allowances["home"], SIXTY, home.now).requests == 8 * MINUTE_MS


def test_a_call_that_is_prepared_again_draws_once() -> None:
    home = Home(home=Rate(requests_per_minute=60, tokens_per_minute=6_000))
    assert home.waits("a", 900) == 0
    assert home.waits("a", 1_000) == 0
    assert home.allowances["home"] == Allowance("home", home.now, 9 * MINUTE_MS, 0)
    assert home.waits("b", 1) == 10
    assert home.waits("a", 2_000) == 10, "it gives back what it had, and is behind who waits"
    assert home.allowances["home"] == Allowance("home", home.now, 10 * MINUTE_MS, 1_000 * MINUTE_MS)


def test_those_that_wait_for_a_slow_model_keep_nobody_from_another_one() -> None:
    home = Home(home=Rate(requests_per_minute=600, burst_ms=1_000), slow=Rate(requests_per_minute=6))
    home.ask("first")
    for number in range(30):
        assert home.waits(f"s{number}") > 0
    assert [home.waits(f"t{number}", 0, "m1", "home") for number in range(9)] == [0] * 9


def test_who_does_not_come_back_loses_the_place() -> None:
    home = Home(home=Rate(requests_per_minute=60, burst_ms=1_000))
    home.ask("a")
    assert home.waits("dead") == 1_000
    home.ms = 2_000
    assert home.waits("b") == 1_000
    home.ms = 1_000 + LATE_MS
    assert home.waits("b") == 0


@pytest.mark.parametrize("step_ms", [-5 * 3_600_000, 5 * 3_600_000])
def test_setting_the_calendar_neither_fills_an_allowance_nor_stops_it(step_ms: int) -> None:
    home = Home(home=SIXTY)
    for number in range(10):
        home.ask(f"s{number}")
    home.step_ms, home.ms = step_ms, 500
    assert home.waits("late") == 500
    home.step_ms, home.ms = 0, 1_000
    assert home.waits("late") == 0


def test_after_a_boot_with_a_wrong_calendar_the_rate_goes_on() -> None:
    allowance = replace(full("home", SIXTY, START), requests=0)
    booted = Moment(START.now_ms - 10**10, 0)
    assert refilled(allowance, SIXTY, booted) == Allowance("home", booted, 0, 0)


# --- any schedule ---------------------------------------------------------------------------------

NAMES = ("home", "model", "user")
RATES = st.builds(
    Rate,
    st.one_of(st.none(), st.integers(1, 600)),
    st.one_of(st.none(), st.integers(1, 60_000)),
    st.one_of(st.none(), st.integers(1, 3)),
    st.sampled_from([1, 1_000, 10_000]),
)


class Call(NamedTuple):
    session: int
    tokens: int
    names: frozenset[str]
    begins_ms: int
    lasts_ms: int
    step_ms: int


CALLS = st.lists(
    st.builds(
        Call,
        st.integers(0, 3),
        st.integers(0, 5_000),
        st.frozensets(st.sampled_from(NAMES), min_size=1),
        st.integers(0, 5_000),
        st.integers(0, 5_000),
        st.integers(-(10**7), 10**7),
    ),
    max_size=10,
)


def played(rates: dict[str, Rate], calls: list[Call]) -> Home:
    """Return the home after all calls had their turn. Each asks again when it was asked to."""
    home = Home(**rates)
    due = [(call.begins_ms, number) for number, call in enumerate(calls)]
    ends: list[tuple[int, int]] = []
    looks = 0
    while due:
        looks += 1
        assert looks < 500, "somebody starves"
        home.ms, number = min(due)
        due.remove((home.ms, number))
        for at_ms, other in [each for each in ends if each[0] <= home.ms]:
            home.end(f"s{calls[other].session}", key=f"m{other}")
            ends.remove((at_ms, other))
        call = calls[number]
        home.step_ms += call.step_ms
        names = [name for name in NAMES if name in call.names]
        later = home.ask(f"s{call.session}", call.tokens, f"m{number}", *names)
        if later is not None:
            due.append((home.ms + later.wait_ms, number))
        else:
            ends.append((home.ms + call.lasts_ms, number))
        for name, rate in rates.items():
            in_use = sum(not each.is_waiting and name in each.names for each in home.places.values())
            assert rate.concurrent is None or in_use <= rate.concurrent
    return home


@settings(max_examples=40)
@given(st.fixed_dictionaries(dict.fromkeys(NAMES, RATES)), CALLS)
def test_no_allowance_lets_more_through_than_its_rate_and_its_burst_and_nobody_starves(
    rates: dict[str, Rate], calls: list[Call]
) -> None:
    _check_schedule(rates, calls)


@pytest.mark.long
@settings(max_examples=5_000)
@given(st.fixed_dictionaries(dict.fromkeys(NAMES, RATES)), CALLS)
def test_over_thousands_of_schedules_nothing_goes_too_fast_and_nobody_starves(
    rates: dict[str, Rate], calls: list[Call]
) -> None:
    _check_schedule(rates, calls)


def _check_schedule(rates: dict[str, Rate], calls: list[Call]) -> None:
    home = played(rates, calls)
    for name, rate in rates.items():
        drawn = [(at_ms, tokens) for at_ms, of, tokens in home.drawn if of == name]
        assert len(drawn) == sum(name in call.names for call in calls)
        for limit, amounts in (
            (rate.requests_per_minute, [(at_ms, 1) for at_ms, _ in drawn]),
            (rate.tokens_per_minute, drawn),
        ):
            if limit is not None:
                _check(amounts, limit, rate.burst_ms)


def _check(amounts: list[tuple[int, int]], a_minute: int, burst_ms: int) -> None:
    """In no stretch of time, more goes through than the rate and a full allowance; but the last call may be larger
    than a full allowance."""
    most = a_minute * burst_ms
    for first, (from_ms, _) in enumerate(amounts):
        before = 0
        for at_ms, amount in amounts[first:]:
            through = before + min(amount * MINUTE_MS, most)
            assert through <= a_minute * (at_ms - from_ms) + most
            before += amount * MINUTE_MS
