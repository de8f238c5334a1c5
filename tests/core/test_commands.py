"""What may be asked of a session: words, going on, pausing, stopping; by its driver, or by a visitor."""

from __future__ import annotations

from hashlib import sha256

import pytest

from holdfast.core.causes import Attach, Due, Outcome
from holdfast.core.state import Proposed, phase
from holdfast.core.summary import summary
from holdfast.core.wanted import CallModel, PrepareRequest, RunTool, Wait, wanted
from holdfast.protocol import events as e
from holdfast.protocol.codec import encode_json
from holdfast.protocol.commands import SCOPES, Pause, Resolve, Send, Stop
from holdfast.protocol.messages import ModelReply, Usage
from holdfast.protocol.settings import groups_of, ref_of
from tests.core.stories import (
    HEAD,
    Story,
    a_turn,
    acting,
    asking,
    call,
    calling,
    kinds,
    only,
    opened,
    proposing,
    settings,
    steps,
    words,
)  # fmt: skip

# --- words --------------------------------------------------------------------------------------


def test_words_open_a_run_and_a_request_is_wanted() -> None:
    story = Story()
    story.attach()
    assert kinds(story.send("  Mend\nit.  ")) == ["MessageReceived", "SettingsStored", "RunStarted"]
    (step,) = steps(story.state)
    assert isinstance(step, PrepareRequest)
    assert (step.key, step.is_last_pass) == ("m1", False)
    assert story.state.title == "Mend it."


def test_words_for_an_open_run_join_it_and_are_answered_before_it_ends() -> None:
    story = calling()
    assert kinds(story.send("Also this.")) == ["MessageReceived"]
    assert kinds(story.answered(words())) == ["Responded"]
    story.prepared()
    assert only(e.RunStopped, story.answered(words())).status == "done"


def test_words_after_a_run_open_the_next_one_with_fresh_limits() -> None:
    story = calling()
    story.answered(words(), usage=Usage(100, 10))
    assert only(e.RunStarted, story.send("More.")).run == 2
    assert story.run.totals.usage == Usage()
    assert story.state.before.usage == Usage(100, 10)
    story.prepared()
    assert story.state.turn.number == 2, "turns are numbered through the session"


def test_other_settings_that_come_with_words_are_recorded_once() -> None:
    story = calling()
    story.settings = settings(turns=3)
    assert kinds(story.send("Quickly.")) == ["SettingsStored", "SettingsChanged", "MessageReceived"]
    assert kinds(story.send("Please.")) == ["MessageReceived"]
    assert story.state.settings == story.settings


def test_every_group_of_settings_is_stored_once_and_referred_to_by_its_hash() -> None:
    story = Story()
    stored = only(e.SettingsStored, story.send())
    assert stored.groups == groups_of(story.settings)
    assert list(stored.groups) == [sha256(encode_json(group)).hexdigest() for group in stored.groups.values()]
    story.settings = other = settings(autonomy="full", turns=3)
    stored = only(e.SettingsStored, story.send("Quickly."))
    assert list(stored.groups.values()) == [other.limits, other.posture], "the other groups are the same"
    story.settings = settings()
    assert kinds(story.send("As before.")) == ["SettingsChanged", "MessageReceived"]
    assert story.state.settings == settings()


def test_settings_whose_record_was_erased_leave_those_in_force() -> None:
    story = calling()
    before = story.state.settings
    story.given(e.SettingsChanged(ref_of(settings(turns=3))))
    assert story.state.settings == before


def test_going_on_opens_a_new_run_after_one_that_was_not_done() -> None:
    story = calling(turns=1)
    story.failed("provider_fatal")
    events = story.go_on()
    assert kinds(events) == ["RunStarted", "NoteAdded"]
    assert only(e.RunStarted, events).is_continuation
    assert only(e.RunStarted, events).settings == ref_of(story.settings)


def test_going_on_after_a_run_that_was_done_means_nothing() -> None:
    story = calling()
    story.answered(words())
    assert story.go_on() == []
    assert Story().go_on() == []


def test_going_on_may_change_the_settings_of_the_open_run() -> None:
    story = calling()
    assert kinds(story.go_on(turns=7)) == ["SettingsStored", "SettingsChanged"]
    assert story.go_on() == []


def test_another_model_is_measured_anew_and_the_same_one_is_not() -> None:
    story = opened()
    a_turn(story)
    assert story.state.models.measure.tokens == 100
    story.go_on(turns=3)
    assert story.state.models.measure.tokens == 100
    story.settings = settings(facts=type(story.settings.model.facts)("openai", "other", price="unknown"))
    story.send()
    assert (story.state.models.measure.tokens, story.state.models.learnt_window_tokens) == (0, 0)
    assert summary(story.state).cost_microusd is None, "a model of unknown price took part"


# --- pause --------------------------------------------------------------------------------------


@pytest.mark.requirement("B4")
def test_a_pause_lets_what_runs_finish_and_starts_nothing_new() -> None:
    story = opened()
    story.prepared()
    story.answered(call("write_file"), call("write_file"))
    story.admitted("t1.c1")
    assert kinds(story.command(Pause())) == ["RunPaused"]
    assert [type(action) for action in wanted(story.state)] == [RunTool, Wait]
    story.finished("t1.c1")
    assert phase(story.state) == "paused"
    assert wanted(story.state) == []
    assert story.admitted("t1.c2") == []
    assert kinds(story.go_on()) == ["RunResumed"]
    assert kinds(story.admitted("t1.c2")) == ["ToolCallStarted"]


@pytest.mark.requirement("B4", "H5")
def test_a_paused_run_is_still_paused_after_a_restart_and_goes_on_when_told() -> None:
    story = calling()
    story.command(Pause())
    story.attach()
    assert phase(story.state) == "paused"
    assert wanted(story.state) == []
    assert summary(story.state).status == "paused"
    story.go_on()
    assert [type(action) for action in steps(story.state)] == [PrepareRequest]


@pytest.mark.requirement("B4")
def test_words_end_a_pause() -> None:
    story = opened()
    story.command(Pause())
    assert kinds(story.send()) == ["RunResumed", "MessageReceived"]


@pytest.mark.requirement("B4")
def test_an_answer_that_arrives_during_a_pause_ends_the_run() -> None:
    story = calling()
    story.command(Pause())
    assert only(e.RunStopped, story.answered(words())).status == "done"


@pytest.mark.requirement("B4")
def test_a_second_pause_and_a_pause_without_a_run_mean_nothing() -> None:
    story = opened()
    story.command(Pause())
    assert story.command(Pause()) == []
    assert Story().command(Pause()) == []


@pytest.mark.requirement("B4")
def test_a_paused_run_can_be_stopped() -> None:
    story = proposing()
    story.command(Pause())
    assert kinds(story.command(Stop())) == ["RunStopping", "ToolCallRefused", "RunStopped"]


# --- outcomes that nobody waits for ---------------------------------------------------------------


@pytest.mark.requirement("H1")
def test_an_outcome_whose_key_is_not_open_means_nothing() -> None:
    story = calling()
    late = Outcome(story.model_call.key, ModelReply((words(),), Usage(1, 1)))
    story.attach()
    assert story.when(late) == []
    assert story.when(Outcome("t9.c9#1", ModelReply((), Usage()))) == []


def test_a_timer_that_nobody_waits_for_or_that_is_early_means_nothing() -> None:
    story = acting(wall_s=60)
    assert story.when(Due("wall")) == [], "too early"
    assert story.when(Due("retry")) == []
    assert story.when(Due("approval nobody")) == []
    assert story.when(Due("grace")) == []


# --- drivers and visitors -------------------------------------------------------------------------


@pytest.mark.requirement("H1", "H3")
def test_a_new_driver_gives_up_the_model_call_of_a_dead_one_and_keeps_its_reservation_held() -> None:
    story = calling()
    events = story.attach()
    assert kinds(events) == ["Attached", "ModelCallAbandoned"]
    assert (story.run.totals.held_microusd, story.run.totals.held_tokens) == (5_000, 1_500)
    started = only(e.ModelCallStarted, story.prepared())
    assert (started.turn, started.attempt, started.epoch) == (1, 1, 2), "the same turn is tried again"
    assert [action.key for action in wanted(story.state) if isinstance(action, CallModel)] == ["m2"]


@pytest.mark.requirement("H3")
def test_a_loop_of_crashes_is_charged_until_the_budget_is_held() -> None:
    story = opened()
    for _ in range(5):
        story.prepared()
        story.attach()
    assert story.run.totals.held_microusd == 25_000
    assert story.run.totals.cost_microusd == 0
    assert summary(story.state).held_microusd == 25_000


@pytest.mark.requirement("H1")
def test_time_without_a_driver_is_not_driven_time() -> None:
    story = calling()
    story.later(5).send("x")
    assert story.run.driven_ms == 5_000
    story.later(3_600).attach()
    assert story.run.driven_ms == 5_000


def test_what_the_next_driver_did_before_it_took_over_is_not_driven_time() -> None:
    story = calling()
    story.later(5).send("x")
    story.epoch, story.awake_ms = 2, 60_000  # by its own clock, when it says that it has begun
    story.when(Attach(2, "host:2"))
    assert story.run.driven_ms == 5_000


@pytest.mark.requirement("H5")
@pytest.mark.parametrize("body", [Pause(), Stop(), Send("x", settings()), Resolve("none", "approve")])
@pytest.mark.parametrize("make", [opened, calling, proposing, acting, asking])
def test_a_visitor_states_facts_and_starts_nothing(make: object, body: object) -> None:
    assert callable(make)
    story = make()
    events = story.visit(body)
    assert not {"ModelCallStarted", "ToolCallStarted", "Attached"} & set(kinds(events))
    attempts = [
        a.model_call if isinstance(a, CallModel) else a.attempt
        for a in wanted(story.state)
        if isinstance(a, CallModel | RunTool)
    ]
    assert all(attempt.epoch == 1 for attempt in attempts)


@pytest.mark.requirement("B4", "H1")
def test_a_visitors_stop_gives_up_what_a_dead_driver_left_open_and_ends_the_run() -> None:
    story = acting()
    events = story.visit(Stop())
    assert kinds(events) == ["RunStopping", "ToolCallAbandoned", "RunStopped"]
    story = calling()
    assert kinds(story.visit(Stop())) == ["RunStopping", "ModelCallAbandoned", "RunStopped"]


@pytest.mark.requirement("H5")
def test_words_that_a_visitor_finds_beside_an_ending_run_open_the_next_one() -> None:
    story = acting()
    story.command(Stop())
    events = story.visit(Send("More.", settings()))
    assert kinds(events) == ["ToolCallAbandoned", "RunStopped", "MessageReceived", "RunStarted"]
    assert phase(story.state) == "preparing"


@pytest.mark.requirement("H5")
def test_a_driver_goes_on_where_a_visitor_left_the_session() -> None:
    story = asking()
    story.visit(Resolve(story.asked().approval_id, "approve"))
    assert summary(story.state).status == "open"
    story.attach()
    assert kinds(story.admitted("t1.c1")) == ["ApprovalConsumed", "ToolCallStarted"]


def test_a_branch_starts_nothing_of_what_its_parent_had_in_flight() -> None:
    story = calling()
    story.given(e.SessionForked("branch", story.state.session, story.state.seq))
    assert story.state.session == "branch"
    assert [action for action in wanted(story.state) if isinstance(action, CallModel)] == []
    story.epoch = 0
    assert kinds(story.attach()) == ["Attached", "ModelCallAbandoned"], "also in an epoch of the same number"


def test_a_branch_asks_its_own_approvals() -> None:
    story = asking()
    story.given(e.SessionForked("branch", story.state.session, story.state.seq))
    assert phase(story.state) == "admitting"
    assert story.call("t1.c1").stage == Proposed()


@pytest.mark.requirement("C5")
def test_the_task_of_a_run_is_what_opened_it_and_a_continuation_keeps_the_task() -> None:
    story = opened()
    story.prepared()
    first = story.run.goal_seq
    assert story.records[first - 1].event == e.MessageReceived("Do it.", "cli:ann", SCOPES, head=HEAD)
    story.send("And this.")
    assert story.run.goal_seq == first, "words that join the run do not open it"
    story.answered(words())
    story.prepared()
    story.answered(words())
    story.send("Something else.")
    second = story.run.goal_seq
    assert story.records[second - 1].event == e.MessageReceived(
        "Something else.", "cli:ann", SCOPES, head=HEAD
    )
    story.prepared()
    story.failed("provider_fatal")
    story.go_on()
    assert (story.run.number, story.run.goal_seq) == (3, second)


@pytest.mark.requirement("B4")
def test_words_that_were_stopped_before_a_request_carried_them_are_no_part_of_the_next_task() -> None:
    story = Story()
    story.attach()
    story.send("first")
    story.command(Stop())
    story.send("second")
    said = [r.seq for r in story.records if isinstance(r.event, e.MessageReceived)]
    assert story.run.goal_seq == said[1]
    story.command(Stop())
    story.go_on()
    assert story.run.goal_seq == said[1], "who goes on goes on with what was stopped"
