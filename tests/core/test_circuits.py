"""Circuits, as pure decisions: exactly one probe, and no wait that ends early, whatever happens to callers."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.circuits import MOST_SPREAD_MS, after_call, aged, ask, spread_ms, state_of
from holdfast.protocol.circuits import CallEnded, Caller, Circuit, CircuitRules, Later, Verdict
from holdfast.protocol.failures import LONGEST_WAIT_S
from holdfast.protocol.moments import Moment, elapsed_ms

RULES = CircuitRules(failures=3, cooldown_ms=30_000)
LIMIT_MS = 600_000
START = Moment(1_790_000_000_000, 5_000_000)
HOUR_MS = 3_600_000


def after(ms: int) -> Moment:
    return Moment(START.now_ms + ms, START.uptime_ms + ms)


def a_caller(number: int = 1, key: str = "m1") -> Caller:
    return Caller(f"s{number}", key, 1)


def ended(
    circuit: Circuit, verdict: Verdict, ms: int, caller: Caller | None = None, asked: int = 0
) -> Circuit:
    told = CallEnded(caller or a_caller(), "p:m#k", verdict, asked, "HTTP 503" if verdict == "fails" else "")
    return after_call(circuit, told, after(ms))


def asks(
    circuit: Circuit, ms: int, caller: Caller | None = None, *, is_alive: bool = True
) -> tuple[Circuit, Later | None]:
    return ask(circuit, caller or a_caller(), after(ms), RULES, LIMIT_MS, is_probe_alive=is_alive)


def opened() -> Circuit:
    circuit = Circuit("p:m#k", START)
    for _ in range(3):
        circuit = ended(circuit, "fails", 0)
    return circuit


@pytest.mark.requirement("A13")
def test_circuit_state_transitions() -> None:
    circuit = Circuit("p:m#k", START)
    assert state_of(circuit, START) == "closed"
    for failures in (1, 2):
        circuit = ended(circuit, "fails", 0)
        assert (state_of(circuit, START), circuit.failures) == ("closed", failures)
    circuit = ended(circuit, "fails", 0)
    assert state_of(circuit, START) == "open"
    circuit, later = asks(circuit, 10_000)
    assert later == Later("open", "p:m#k", 20_000, "HTTP 503")
    assert state_of(circuit, after(29_999)) == "open"
    assert state_of(circuit, after(30_000)) == "half_open"
    circuit, later = asks(circuit, 30_000)
    assert later is None
    # The cooldown is constant: it does not grow with each probe that fails.
    circuit = ended(circuit, "fails", 31_000)
    assert (state_of(circuit, after(31_000)), circuit.cooldown_ms) == ("open", 30_000)
    circuit, later = asks(circuit, 61_000)
    assert later is None
    circuit = ended(circuit, "works", 62_000)
    assert (state_of(circuit, after(62_000)), circuit.failures) == ("closed", 0)


def test_failures_that_are_not_in_a_row_never_open_a_circuit() -> None:
    circuit = Circuit("p:m#k", START)
    for hours in range(20):
        circuit = ended(circuit, "fails", hours * HOUR_MS)
        circuit = ended(circuit, "fails", hours * HOUR_MS)
        circuit = ended(circuit, "works", hours * HOUR_MS)
        assert (state_of(circuit, after(hours * HOUR_MS)), circuit.failures) == ("closed", 0)


def test_what_is_not_the_services_fault_neither_counts_nor_clears() -> None:
    circuit = ended(ended(Circuit("p:m#k", START), "fails", 0), "fails", 0)
    for _ in range(10):
        circuit = ended(circuit, "neither", 0)
    assert (state_of(circuit, START), circuit.failures) == ("closed", 2)
    assert state_of(ended(circuit, "fails", 0), START) == "open"


def test_a_probe_that_says_nothing_about_the_service_leaves_the_next_one_to_others() -> None:
    circuit, _ = asks(opened(), 30_000, a_caller(1))
    assert asks(circuit, 30_001, a_caller(2))[1] is not None
    circuit = ended(circuit, "neither", 31_000, a_caller(1))
    assert state_of(circuit, after(31_000)) == "half_open"
    assert asks(circuit, 31_000, a_caller(2))[1] is None


def test_a_call_that_began_before_the_circuit_opened_changes_no_cooldown() -> None:
    late = ended(opened(), "fails", 20_000, a_caller(7))
    assert (aged(late, after(20_000)).cooldown_ms, late.failures) == (10_000, 3)
    probing, _ = asks(late, 30_000, a_caller(1))
    probing = ended(probing, "fails", 31_000, a_caller(7))
    assert asks(probing, 31_000, a_caller(2))[1] is not None, "the probe is still on its way"
    assert state_of(ended(probing, "works", 32_000, a_caller(7)), after(32_000)) == "closed"


def test_a_probe_that_is_prepared_again_is_still_the_probe() -> None:
    circuit, later = asks(opened(), 30_000, a_caller(1))
    again, later_again = asks(circuit, 40_000, a_caller(1))
    assert later is None
    assert later_again is None
    assert again.probe is not None
    assert again.probe.left_ms == LIMIT_MS


def test_a_probe_ends_when_its_process_dies_or_its_time_is_up() -> None:
    circuit, _ = asks(opened(), 30_000, a_caller(1))
    assert asks(circuit, 40_000, a_caller(2), is_alive=False)[1] is None
    circuit, later = asks(circuit, 30_000 + LIMIT_MS - 1, a_caller(2))
    assert later is not None
    assert later.why == "probing"
    circuit, later = asks(circuit, 30_000 + LIMIT_MS, a_caller(2))
    assert later is None
    assert circuit.probe is not None
    assert circuit.probe.caller == a_caller(2)


def test_a_retry_after_is_for_all_sessions_and_is_never_shortened() -> None:
    circuit = ended(Circuit("p:m#k", START), "neither", 0, asked=60_000)
    circuit = ended(circuit, "works", 1_000, asked=2_000)
    assert (circuit.asked_ms, state_of(circuit, after(1_000))) == (59_000, "closed")
    waits = set()
    for number in range(20):
        circuit, later = asks(circuit, 10_000, a_caller(number))
        assert later is not None
        assert later.why == "asked"
        assert 50_000 <= later.wait_ms < 55_000
        waits.add(later.wait_ms)
    assert len(waits) > 10, "they do not come back at once"
    assert asks(circuit, 59_999)[1] is not None
    assert asks(circuit, 60_000)[1] is None


def test_no_wait_is_longer_than_a_day_and_no_spread_longer_than_half_a_minute() -> None:
    circuit = ended(Circuit("p:m#k", START), "neither", 0, asked=90 * 24 * HOUR_MS)
    assert circuit.asked_ms == LONGEST_WAIT_S * 1000
    assert max(spread_ms(circuit.asked_ms, str(seed)) for seed in range(500)) < MOST_SPREAD_MS


@pytest.mark.parametrize("step_ms", [-5 * HOUR_MS, 5 * HOUR_MS])
def test_a_calendar_that_is_set_changes_no_wait(step_ms: int) -> None:
    circuit = ended(opened(), "neither", 0, asked=40_000)

    def stepped(ms: int) -> Moment:
        return Moment(START.now_ms + ms + step_ms, START.uptime_ms + ms)

    assert state_of(circuit, stepped(29_999)) == "open"
    assert state_of(circuit, stepped(30_000)) == "half_open"
    assert aged(circuit, stepped(39_999)).asked_ms == 1
    assert aged(circuit, stepped(40_000)).asked_ms == 0


def test_after_a_boot_the_calendar_counts_and_a_wrong_one_makes_no_wait_longer_than_it_was() -> None:
    circuit = ended(Circuit("p:m#k", START), "neither", 0, asked=5 * HOUR_MS)
    booted = Moment(START.now_ms + 4 * HOUR_MS, 1_000)
    assert aged(circuit, booted).asked_ms == HOUR_MS
    wrong = Moment(START.now_ms - 999 * HOUR_MS, 1_000)
    circuit, later = ask(circuit, a_caller(), wrong, RULES, LIMIT_MS)
    assert later is not None
    assert circuit.asked_ms == 5 * HOUR_MS
    later_on = Moment(wrong.now_ms + 5 * HOUR_MS, 1_000 + 5 * HOUR_MS)
    assert ask(circuit, a_caller(), later_on, RULES, LIMIT_MS)[1] is None


# --- any schedule ---------------------------------------------------------------------------------


class Step(NamedTuple):
    kind: str
    who: int
    verdict: Verdict
    ms: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["ask", "ask", "ask", "end", "end", "die", "wait", "set"]),
        st.integers(0, 3),
        st.sampled_from(["works", "fails", "fails", "fails", "neither"]),
        st.one_of(st.integers(0, 100_000), st.integers(-3 * HOUR_MS, 3 * HOUR_MS)),
    ),
    max_size=60,
)


class World:
    """Callers of a service in processes that die, and a machine whose calendar is set and that is booted again."""

    def __init__(self) -> None:
        self.circuit = opened()
        self.true_ms = 0
        self.calendar_ms = 0
        """How wrong the calendar is."""
        self.booted_ms = -START.uptime_ms
        self.epochs = [1] * 4
        self.calls: dict[Caller, int] = {}
        """Until when the calls in progress of living processes last."""
        self.probes: dict[Caller, int] = {}
        """The same of those that are probes."""
        self.quiet_until_ms = 0

    @property
    def now(self) -> Moment:
        return Moment(START.now_ms + self.true_ms + self.calendar_ms, self.true_ms - self.booted_ms)

    def caller(self, who: int) -> Caller:
        return Caller(f"s{who}", "m1", self.epochs[who])

    def ask(self, who: int) -> None:
        caller = self.caller(who)
        if caller in self.calls:
            return
        probe = self.circuit.probe
        is_alive = probe is not None and probe.caller.epoch == self.epochs[int(probe.caller.session[1:])]
        self.circuit, later = ask(self.circuit, caller, self.now, RULES, LIMIT_MS, is_probe_alive=is_alive)
        if later is not None:
            assert later.wait_ms > 0
            return
        assert self.true_ms >= self.quiet_until_ms, "the service asked for a longer wait"
        self.calls[caller] = self.true_ms + LIMIT_MS
        if self.circuit.is_open:
            living = [each for each, until_ms in self.probes.items() if until_ms > self.true_ms]
            assert not living, "two probes at once"
            self.probes[caller] = self.true_ms + LIMIT_MS

    def end(self, who: int, verdict: Verdict, ms: int) -> None:
        caller = self.caller(who)
        if caller not in self.calls:
            return
        asked_ms = ms if verdict == "neither" and ms > 0 else 0
        self.circuit = after_call(self.circuit, CallEnded(caller, "p:m#k", verdict, asked_ms), self.now)
        if asked_ms:
            self.quiet_until_ms = max(self.quiet_until_ms, self.true_ms + asked_ms)
        del self.calls[caller]
        self.probes.pop(caller, None)
        if verdict == "works":
            self.probes.clear()
            assert not self.circuit.is_open

    def die(self, who: int) -> None:
        self.calls.pop(self.caller(who), None)
        self.probes.pop(self.caller(who), None)
        self.epochs[who] += 1

    def wait(self, ms: int) -> None:
        self.true_ms += abs(ms)

    def boot(self, off_ms: int) -> None:
        for who in range(4):
            self.die(who)
        self.true_ms += abs(off_ms)
        self.booted_ms = self.true_ms

    def play(self, steps: list[Step], *, boots: bool) -> None:
        for step in steps:
            match step.kind:
                case "ask":
                    self.ask(step.who)
                case "end":
                    self.end(step.who, step.verdict, step.ms)
                case "die":
                    self.die(step.who)
                case "wait":
                    self.wait(step.ms)
                case "set" if boots:
                    self.boot(step.ms)
                case "set":
                    self.calendar_ms += step.ms


@given(STEPS, st.booleans())
def test_under_any_schedule_one_probe_is_on_its_way_and_no_asked_wait_ends_early(
    steps: list[Step], boots: bool
) -> None:
    World().play(steps, boots=boots)


@given(STEPS)
def test_after_any_schedule_a_service_that_is_back_is_called_again(steps: list[Step]) -> None:
    world = World()
    world.play(steps, boots=False)
    world.true_ms = max(world.true_ms, world.quiet_until_ms) + RULES.cooldown_ms + LIMIT_MS
    world.calls.clear()
    world.probes.clear()
    world.ask(0)
    assert world.caller(0) in world.calls
    world.end(0, "works", 0)
    for who in range(4):
        world.ask(who)
    assert len(world.calls) == 4


@given(st.integers(0, 10**9), st.integers(-(10**12), 10**12))
def test_the_time_between_two_moments_of_one_boot_is_that_of_the_uptime(passed: int, step: int) -> None:
    later = Moment(START.now_ms + passed + step, START.uptime_ms + passed)
    assert elapsed_ms(START, later) == passed
