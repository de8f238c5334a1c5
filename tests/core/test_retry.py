"""A failed model call is tried again when that may help: after a backoff with jitter, never before it is allowed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.causes import Outcome
from holdfast.core.retry import retry_at_ms
from holdfast.core.state import next_key, phase
from holdfast.core.summary import summary
from holdfast.core.wanted import Wait, wanted
from holdfast.protocol import events as e
from holdfast.protocol.commands import Stop
from holdfast.protocol.failures import LONGEST_WAIT_S, RETRYABLE, Failure
from holdfast.protocol.messages import Usage
from holdfast.protocol.outcomes import ModelFailure, Unready
from tests.core.stories import START_MS, a_turn, calling, kinds, only, opened, settings, words

TRANSIENT = Failure("provider_transient", "HTTP 500")


@pytest.mark.requirement("C15")
@pytest.mark.parametrize("code", sorted(RETRYABLE))
def test_what_may_pass_by_itself_is_tried_again_after_a_wait(code: str) -> None:
    story = calling()
    events = story.failed(code)  # type: ignore[arg-type]
    assert kinds(events) == ["ModelCallFailed"]
    due = only(e.ModelCallFailed, events).retry_at_ms
    assert phase(story.state) == "backing_off"
    assert wanted(story.state) == [Wait("retry", due)]
    assert (summary(story.state).status, summary(story.state).due_ms) == ("parked", due)
    assert kinds(story.due("retry")) == ["RunResumed"]
    started = only(e.ModelCallStarted, story.prepared())
    assert (started.key, started.turn, started.attempt) == ("m2", 1, 2)


def test_after_the_last_attempt_the_run_fails_and_can_be_continued() -> None:
    story = opened(model_attempts=3)
    for attempt in (1, 2, 3):
        story.prepared()
        assert story.model_call.attempt == attempt
        events = story.failed("provider_transient")
        if attempt < 3:
            story.due("retry")
    assert only(e.RunStopped, events).reason == "provider_transient"
    story.go_on()
    story.prepared()
    assert story.model_call.attempt == 1


def test_a_response_counts_attempts_anew() -> None:
    story = calling()
    story.failed("provider_transient")
    story.due("retry")
    a_turn(story)
    story.prepared()
    assert (story.model_call.attempt, story.state.turn.number) == (1, 2)
    assert story.run.totals.turns == 1
    assert story.run.totals.model_calls == 3


def test_somebody_who_goes_on_does_not_wait_for_the_next_attempt() -> None:
    story = calling()
    story.failed("rate_limited", retry_after_s=3_600)
    assert kinds(story.go_on()) == ["RunResumed"]
    assert phase(story.state) == "preparing"


@pytest.mark.requirement("B4")
def test_a_run_that_waits_to_try_again_can_be_stopped_at_once() -> None:
    story = calling()
    story.failed("rate_limited")
    assert kinds(story.command(Stop())) == ["RunStopped"]
    assert summary(story.state).due_ms == 0


@pytest.mark.requirement("H5")
def test_the_wait_survives_a_restart() -> None:
    story = calling()
    due = only(e.ModelCallFailed, story.failed("rate_limited", retry_after_s=3_600)).retry_at_ms
    story.later(60).attach()
    assert wanted(story.state) == [Wait("retry", due)]


def test_what_a_provider_charged_for_a_failed_attempt_is_spent() -> None:
    story = calling()
    story.when(Outcome(story.model_call.key, ModelFailure(TRANSIENT, Usage(1_000, 100))))
    assert story.run.totals.usage == Usage(1_000, 100)
    assert story.run.totals.cost_microusd == 1_000 + 400
    assert story.run.totals.held_microusd == 0


def test_the_wait_doubles_up_to_a_minute() -> None:
    waits = [retry_at_ms(TRANSIENT, attempt, 99, "seed", START_MS) - START_MS for attempt in range(1, 12)]
    lowest = [min(500 << (attempt - 1), 60_000) // 2 for attempt in range(1, 12)]
    assert all(low <= wait <= 2 * low for wait, low in zip(waits, lowest, strict=True))


def test_the_jitter_differs_between_sessions_and_is_the_same_for_a_replay() -> None:
    waits = {retry_at_ms(TRANSIENT, 5, 99, f"session {n} m1", START_MS) for n in range(50)}
    assert len(waits) > 40
    assert retry_at_ms(TRANSIENT, 5, 99, "s", 0) == retry_at_ms(TRANSIENT, 5, 99, "s", 0)


@given(st.floats(0, LONGEST_WAIT_S), st.integers(1, 100), st.text(max_size=20))
def test_nobody_is_asked_again_before_the_time_that_they_named(
    after_s: float, attempt: int, seed: str
) -> None:
    failure = Failure("rate_limited", "", retry_after_s=after_s)
    at = retry_at_ms(failure, attempt, 101, seed, START_MS)
    assert at - START_MS >= int(after_s * 1000)
    assert at > START_MS


@pytest.mark.requirement("A3", "C16")
@given(st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 2.5e11]), st.integers(1, 100))
def test_whatever_wait_is_named_the_next_attempt_is_a_day_away_at_most(after_s: float, attempt: int) -> None:
    failure = Failure("rate_limited", "", retry_after_s=after_s)
    assert START_MS < retry_at_ms(failure, attempt, 101, "s", START_MS) <= START_MS + 86_400_000


@given(st.sampled_from(["provider_fatal", "provider_refused", "context_overflow", "storage", "cancelled"]))
def test_what_does_not_pass_by_itself_is_never_waited_for(code: str) -> None:
    assert retry_at_ms(Failure(code, ""), 1, 99, "s", START_MS) == 0  # type: ignore[arg-type]


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("until_ms", [1, START_MS, START_MS + 10**15])
def test_a_provider_that_is_never_ready_is_asked_a_bounded_number_of_times(until_ms: int) -> None:
    story = opened(park_s=1e9)
    attempts = 0
    while story.run.status == "":
        before_ms = story.now_ms
        found = Unready(Failure("provider_transient", "Not yet."), until_ms)
        story.found(next_key(story.state), found)
        attempts += 1
        if story.run.status == "":
            story.due("retry")
            assert 250 <= story.now_ms - before_ms <= 86_400_000
    assert (story.run.status, story.run.reason) == ("failed", "provider_transient")
    assert attempts == settings().model.model_attempts


def test_an_answer_after_a_failure_ends_the_run_done() -> None:
    story = calling()
    story.failed("provider_transient")
    story.due("retry")
    story.prepared()
    assert only(e.RunStopped, story.answered(words())).status == "done"


@pytest.mark.requirement("H1")
def test_a_request_that_cannot_be_made_ends_the_run_with_its_reason() -> None:
    story = opened()
    failure = Failure("provider_unready", "No key is set.")
    events = story.found("m1", Unready(failure))
    assert events == [
        e.ModelCallUnready("m1", failure),
        e.RunStopped(1, "failed", "provider_unready", "No key is set."),
    ]
    assert kinds(story.go_on())[0] == "RunStarted", "another run may find a key"


@pytest.mark.requirement("H1")
def test_a_request_that_cannot_be_made_yet_parks_the_session_until_it_can() -> None:
    story = opened()
    due_ms = story.now_ms + 3_600_000
    events = story.found("m1", Unready(Failure("rate_limited", "Not before ten."), due_ms))
    assert kinds(events) == ["ModelCallUnready"]
    assert (summary(story.state).status, summary(story.state).due_ms) == ("parked", due_ms)
    assert wanted(story.state) == [Wait("retry", due_ms)]
    story.due("retry")
    assert kinds(story.prepared()) == ["ModelCallStarted"]


HOUR_MS = 3_600_000


@pytest.mark.requirement("C16", "B5")
def test_a_run_tries_model_calls_again_only_so_often() -> None:
    story = opened(run_retries=2)
    for _ in range(2):
        story.prepared()
        assert only(e.ModelCallFailed, story.failed("provider_transient")).retry_at_ms
        story.due("retry")
    a_turn(story)  # what is answered counts attempts anew, and not these
    story.prepared()
    stopped = only(e.RunStopped, story.failed("provider_transient"))
    assert (stopped.status, stopped.reason) == ("failed", "provider_transient")
    assert "tried model calls again 2 times, as often as [retry] per_run allows" in stopped.message


@pytest.mark.requirement("C16", "H5")
def test_a_wait_beyond_the_rest_of_the_parked_time_ends_the_run_at_once_and_names_the_time() -> None:
    story = opened(park_s=10_800.0)
    for _ in range(2):
        story.prepared()
        assert only(e.ModelCallFailed, story.failed("rate_limited", retry_after_s=5_400.0)).retry_at_ms
        story.due("retry")
    story.prepared()
    assert only(e.ModelCallFailed, story.failed("rate_limited", retry_after_s=59.0)).retry_at_ms, (
        "within patience"
    )
    story.due("retry")
    story.prepared()
    stopped = only(e.RunStopped, story.failed("rate_limited", retry_after_s=5_400.0))
    assert (stopped.status, stopped.reason) == ("failed", "rate_limited")
    assert "called again in 1 h 30 min, and [retry] park leaves 0 s" in stopped.message


@pytest.mark.requirement("H5")
def test_only_the_time_counts_that_a_run_was_parked() -> None:
    """A person may go on before the time, and the provider may still ask to wait."""
    story = opened(park_s=7_200.0)
    for _ in range(4):
        story.prepared()
        assert only(e.ModelCallFailed, story.failed("rate_limited", retry_after_s=3_600.0)).retry_at_ms
        story.now_ms += HOUR_MS // 4
        story.go_on()
    assert story.run.waited.parked_ms == HOUR_MS
    story.prepared()
    assert only(e.ModelCallFailed, story.failed("rate_limited", retry_after_s=3_601.0)).retry_at_ms == 0


@pytest.mark.requirement("H5", "H3")
def test_a_wait_for_a_budget_is_no_parked_time() -> None:
    story = opened(park_s=0.0, patience_s=0.0, run_retries=0)
    found = Unready(Failure("budget_exhausted", "The day is spent."), story.now_ms + 20 * HOUR_MS)
    story.found(next_key(story.state), found)
    assert (story.run.status, story.run.waited.parked_ms, phase(story.state)) == ("", 0, "backing_off")


@pytest.mark.requirement("H5")
def test_a_wait_for_a_circuit_or_a_rate_counts_as_parked_and_not_as_a_retry() -> None:
    story = opened(park_s=7_200.0, run_retries=0)
    held = Unready(Failure("rate_limited", "It asked to wait."), story.now_ms + HOUR_MS, waits_for="openai:x")
    story.found(next_key(story.state), held)
    assert (story.run.waited.retries, story.run.waited.parked_ms, story.run.status) == (0, HOUR_MS, "")
    story.due("retry")
    longer = Unready(Failure("rate_limited", "Again."), story.now_ms + 2 * HOUR_MS, waits_for="openai:x")
    assert only(e.RunStopped, story.found(next_key(story.state), longer)).reason == "rate_limited"
