"""Every way in which a run ends, by name, each told from the first word to the terminal record."""

from __future__ import annotations

import pytest

from holdfast.core.causes import Due, Outcome
from holdfast.core.state import next_key, open_run, started_calls
from holdfast.protocol import events as e
from holdfast.protocol.commands import Stop
from holdfast.protocol.failures import Failure
from holdfast.protocol.messages import Reasoning, Text, Usage
from holdfast.protocol.outcomes import ModelCut, Unaffordable
from holdfast.protocol.tools import Decision, Refused
from tests.core.stories import Story, a_turn, acting, call, calling, kinds, only, opened, settings, words


def ending(events: list[e.Event]) -> tuple[str, str]:
    stopped = only(e.RunStopped, events)
    return stopped.status, stopped.reason


def distinct(number: int) -> str:
    return f"result {number}"


@pytest.mark.requirement("L1")
def test_an_answer_ends_the_run_done() -> None:
    story = calling()
    events = story.answered(words())
    assert kinds(events) == ["Responded", "RunStopped"]
    assert ending(events) == ("done", "answer")
    assert story.run.totals.turns == 1


@pytest.mark.requirement("L1")
def test_a_text_cut_at_the_output_limit_is_continued_three_times_and_then_ends_done_and_says_length() -> None:
    story = calling()
    for _ in range(3):
        events = story.answered(words("It is"), finish="length")
        assert kinds(events) == ["Responded", "NoteAdded"]
        assert only(e.NoteAdded, events).about == "length"
        story.prepared()
    events = story.answered(words("It is"), finish="length")
    assert ending(events) == ("done", "length")
    assert "output limit" in only(e.RunStopped, events).message
    assert (len(story.run.cut), story.run.totals.turns) == (3, 4)


@pytest.mark.requirement("L1", "B8")
def test_an_answer_is_all_of_its_parts_and_a_model_with_nothing_to_add_has_answered() -> None:
    for last in ((words("world."),), ()):
        story = calling()
        story.answered(words("Hello, "), finish="length")
        first = story.state.seq - 1
        story.prepared()
        events = story.answered(*last)
        assert ending(events) == ("done", "answer")
        assert story.run.cut == (first,)
        assert (story.run.answer_seq == first) is not last


@pytest.mark.requirement("L1")
def test_a_half_written_call_never_runs_and_what_follows_a_call_is_another_text() -> None:
    story = calling()
    story.answered(words("I write the file: "), finish="length")
    story.prepared()
    assert "RunStopped" not in kinds(story.answered(words("now."), call()))
    assert story.run.cut == ()


@pytest.mark.requirement("L1")
def test_words_of_a_person_and_a_call_of_answer_begin_another_text() -> None:
    story = calling()
    story.answered(words("First, "), finish="length")
    story.send("Stop that. What is the time?")
    assert story.run.cut == ()
    story.prepared()
    assert ending(story.answered(words("Noon."))) == ("done", "answer")
    told = calling()
    told.send("And be short.")
    assert kinds(told.answered(words("First, "), finish="length")) == ["Responded"], "the words come first"


@pytest.mark.requirement("L1", "H3")
@pytest.mark.parametrize("limits", [{"turns": 1}, {"turns": 2}])
def test_a_text_is_not_continued_beyond_the_turns(limits: dict[str, int]) -> None:
    story = calling(**limits)
    for _ in range(limits["turns"] - 1):
        story.answered(words("It is"), finish="length")
        story.prepared()
    assert ending(story.answered(words("It is"), finish="length")) == ("done", "length")


@pytest.mark.requirement("H3", "L1")
def test_a_continuation_that_is_too_dear_leaves_the_answer_as_it_is() -> None:
    story = calling()
    story.answered(words("It is"), finish="length")
    events = story.found(next_key(story.state), Unaffordable("cost", "Too dear.", 900, 100))
    assert ending(events) == ("done", "length")


@pytest.mark.requirement("L1")
@pytest.mark.parametrize("parts", [(), (Text("I will not."),)])
def test_a_refusal_fails_the_run_and_says_what_to_do(parts: tuple[Text, ...]) -> None:
    events = calling().answered(*parts, finish="refusal")
    assert ending(events) == ("failed", "refusal")
    assert "another model" in only(e.RunStopped, events).message


@pytest.mark.requirement("L1", "C15")
def test_no_call_of_a_refused_response_is_taken() -> None:
    events = calling().answered(words("I will"), call(), call(), finish="refusal")
    responded = only(e.Responded, events)
    assert (responded.parts, responded.calls_refused) == ((words("I will"),), 2)
    assert kinds(events) == ["Responded", "RunStopped"]


@pytest.mark.requirement("L1")
def test_words_that_came_during_a_refused_response_are_answered() -> None:
    story = calling()
    story.send("I mean the red one.")
    assert kinds(story.answered(finish="refusal")) == ["Responded"]
    assert story.state.run is not None
    assert not story.state.run.status


@pytest.mark.requirement("L1")
@pytest.mark.parametrize("nothing", [(), (Text("  \n"),), (Reasoning("openai", "hm"),)])
def test_two_empty_responses_are_told_to_the_model_and_the_third_ends_the_run(
    nothing: tuple[Text, ...],
) -> None:
    story = opened()
    for _ in range(2):
        story.prepared()
        events = story.answered(*nothing)
        assert kinds(events) == ["Responded", "NoteAdded"]
        assert only(e.NoteAdded, events).about == "empty"
    story.prepared()
    assert ending(story.answered(*nothing)) == ("failed", "empty_response")


@pytest.mark.requirement("L1")
def test_words_after_an_empty_response_count_empty_responses_anew() -> None:
    story = opened()
    for number in range(6):
        story.prepared()
        events = story.answered() if number % 2 == 0 else story.answered(call(arguments=f'{{"n":{number}}}'))
        if number % 2:
            story.admitted(f"t{number + 1}.c1")
            story.finished(f"t{number + 1}.c1")
        assert "RunStopped" not in kinds(events)
    assert story.run.empty_replies == 0


@pytest.mark.requirement("L1", "B2")
def test_a_run_that_answers_in_turn_19_of_20_is_done() -> None:
    story = opened(turns=20)
    for number in range(18):
        assert kinds(a_turn(story, result=distinct(number))) == ["ToolCallFinished"]
    story.prepared()
    assert ending(story.answered(words())) == ("done", "answer")
    assert story.run.totals.turns == 19


@pytest.mark.requirement("L1", "B2")
def test_a_run_that_answers_in_turn_20_of_20_is_done() -> None:
    story = opened(turns=20)
    for number in range(19):
        assert kinds(a_turn(story, result=distinct(number))) == ["ToolCallFinished"]
    story.prepared()
    assert not story.model_call.is_last_pass
    assert ending(story.answered(words())) == ("done", "answer")
    assert (story.run.totals.turns, story.run.totals.model_calls) == (20, 20)


@pytest.mark.requirement("L1", "B2")
def test_calls_of_turn_20_of_20_run_and_one_last_pass_without_tools_follows() -> None:
    story = opened(turns=20)
    for number in range(19):
        a_turn(story, result=distinct(number))
    assert kinds(a_turn(story)) == ["ToolCallFinished", "RunLanding"]
    events = story.prepared()
    assert only(e.ModelCallStarted, events).is_last_pass
    assert story.state.turn.repeats, "the guard has counted all the while"
    assert ending(story.answered(words("As far as I got."))) == ("limit", "turns")
    assert story.run.totals.tool_calls == 20
    assert (story.run.totals.turns, story.run.totals.model_calls) == (20, 21)


@pytest.mark.requirement("L1", "B2")
def test_calls_of_the_last_pass_are_refused_and_the_run_ends() -> None:
    story = opened(turns=1)
    a_turn(story)
    story.prepared()
    events = story.answered(words("One more."), call(), call("read_file"))
    assert kinds(events) == ["Responded", "ToolCallRefused", "ToolCallRefused", "RunStopped"]
    assert {r.failure.code for r in events if isinstance(r, e.ToolCallRefused)} == {"budget_exhausted"}
    assert ending(events) == ("limit", "turns")


def test_nothing_in_the_last_pass_still_ends_the_run_by_its_limit() -> None:
    story = opened(turns=1)
    a_turn(story)
    story.prepared()
    assert ending(story.answered()) == ("limit", "turns")


@pytest.mark.requirement("L1", "B2")
def test_an_empty_response_in_the_last_turn_does_not_buy_another_turn() -> None:
    story = opened(turns=1)
    story.prepared()
    assert kinds(story.answered()) == ["Responded", "RunLanding"]
    story.prepared()
    assert story.model_call.is_last_pass
    assert ending(story.answered(words())) == ("limit", "turns")
    assert story.run.totals.turns == 1


@pytest.mark.requirement("L1", "B2")
def test_words_that_arrive_in_the_last_turn_are_answered_in_the_last_pass() -> None:
    story = calling(turns=1)
    story.send("And another thing.")
    assert kinds(story.answered(words())) == ["Responded", "RunLanding"]
    story.prepared()
    assert story.model_call.is_last_pass
    assert ending(story.answered(words())) == ("limit", "turns")


@pytest.mark.requirement("L1", "B2")
def test_a_raised_limit_lets_a_run_go_on_that_was_about_to_land() -> None:
    story = opened(turns=1)
    a_turn(story)
    assert story.run.landing == "turns"
    story.go_on(turns=2)
    story.prepared()
    assert not story.model_call.is_last_pass
    assert kinds(story.answered(call())) == ["Responded"]
    story.admitted("t2.c1")
    assert kinds(story.finished("t2.c1", "other")) == ["ToolCallFinished", "RunLanding"]


@pytest.mark.requirement("L1", "B2")
def test_a_limit_that_is_raised_too_little_or_during_the_last_pass_still_ends_the_run() -> None:
    story = opened(turns=2)
    a_turn(story)
    a_turn(story, result="other")
    assert kinds(story.go_on(turns=1)) == ["SettingsStored", "SettingsChanged"]
    story.prepared()
    story.go_on(turns=9)
    assert ending(story.answered(words())) == ("limit", "turns")


@pytest.mark.requirement("B2")
def test_80_percent_of_a_raised_limit_are_told_again() -> None:
    story = opened(tokens=10_000)
    story.prepared()
    story.answered(call(), usage=Usage(7_995, 10))
    story.admitted("t1.c1")
    assert "NoteAdded" in kinds(story.finished("t1.c1"))
    assert story.run.warned == ("tokens",)
    story.go_on(tokens=20_000)
    assert story.run.warned == ()


def test_the_message_at_the_end_is_for_the_user_not_for_the_model() -> None:
    story = opened(turns=1)
    landing = only(e.RunLanding, a_turn(story))
    story.prepared()
    stopped = only(e.RunStopped, story.answered(words()))
    assert stopped.message == landing.message == "The limit of 1 turn is reached."


@pytest.mark.requirement("B2", "L2-07")
@pytest.mark.parametrize("reason", ["tokens", "cost"])
def test_a_request_that_cannot_be_afforded_leads_to_a_last_pass(reason: str) -> None:
    story = opened()
    a_turn(story)
    assert kinds(story_short(story, reason)) == ["ModelCallUnaffordable", "RunLanding"]
    story.prepared()
    assert story.model_call.is_last_pass
    assert ending(story.answered(words())) == ("limit", reason)


@pytest.mark.requirement("B2", "L2-07")
@pytest.mark.parametrize("reason", ["tokens", "cost"])
def test_a_last_pass_that_cannot_be_afforded_ends_the_run_at_once(reason: str) -> None:
    story = opened()
    story_short(story, reason)
    events = story_short(story, reason)
    assert ending(events) == ("limit", reason)


def story_short(story: Story, reason: str) -> list[e.Event]:
    too_much = Unaffordable(reason, "Too much.", 1_000, 1_000)  # type: ignore[arg-type]
    return story.found(next_key(story.state), too_much)


@pytest.mark.requirement("B2")
def test_the_time_limit_stops_a_model_call_and_keeps_its_words() -> None:
    story = calling(wall_s=60)
    assert kinds(story.due("wall")) == ["RunStopping"]
    events = story.when(Outcome(story.model_call.key, ModelCut("I was about", Usage(100, 3))))
    assert kinds(events) == ["ModelCallCut", "RunStopped"]
    assert ending(events) == ("limit", "wall")
    assert story.run.driven_ms == 60_000


@pytest.mark.requirement("B2")
def test_the_time_limit_counts_driven_time_over_turns_and_not_the_waits_between() -> None:
    story = calling(wall_s=60)
    story.later(59)
    story.answered(call())
    story.asked_for("t1.c1", decisions=(Decision("policy", "ask", reason="runs a command"),))
    story.later(3_600)
    story.resolve("approve")
    story.admitted("t1.c1")
    ((_, attempt),) = started_calls(story.state)
    assert attempt.timeout_s == 1.0
    assert kinds(story.due("wall")) == ["RunStopping"]
    assert story.run.driven_ms == 60_000


@pytest.mark.requirement("B2", "H5")
@pytest.mark.parametrize("hours", [-5, 5], ids=["set back", "asleep"])
def test_time_in_which_the_machine_sleeps_or_its_clock_is_set_is_no_driven_time(hours: int) -> None:
    story = calling(wall_s=60)
    story.later(20).asleep(3_600 * hours)
    story.send("x")
    assert story.run.driven_ms == 20_000
    assert kinds(story.later(39).when(Due("wall"))) == []
    assert kinds(story.later(1).when(Due("wall"))) == ["RunStopping"]
    assert story.run.driven_ms == 60_000


@pytest.mark.requirement("B2")
def test_the_time_limit_counts_slow_prepare_steps_and_gates_and_ends_them() -> None:
    story = opened(wall_s=60)
    story.later(30).prepared()
    story.answered(call())
    assert story.run.driven_ms == 30_000
    assert kinds(story.due("wall")) == ["RunStopping", "ToolCallRefused", "RunStopped"]
    assert story.run.driven_ms == 60_000
    story = opened(wall_s=60)
    assert kinds(story.due("wall")) == ["RunStopped"]


@pytest.mark.requirement("B2")
def test_no_call_is_started_when_the_time_is_used_up() -> None:
    story = calling(wall_s=60)
    events = story.later(60).answered(call())
    assert kinds(events) == ["Responded", "RunStopping", "ToolCallRefused", "RunStopped"]
    assert ending(events) == ("limit", "wall")


@pytest.mark.requirement("L1")
def test_the_same_call_with_the_same_result_is_told_at_the_3rd_and_stuck_at_the_8th() -> None:
    story = opened()
    for count in range(1, 8):
        events = a_turn(story, call("read_file", '{"path":"a"}'))
        noted = [event for event in events if isinstance(event, e.NoteAdded)]
        assert [note.about for note in noted] == (["repeat"] if count == 3 else [])
    assert ending(a_turn(story, call("read_file", '{"path":"a"}'))) == ("stuck", "repeat")


@pytest.mark.parametrize(
    "other",
    [
        lambda story: a_turn(story, call("read_file", '{"path":"b"}'), result="same"),
        lambda story: a_turn(story, call("read_file", '{"path":"a"}'), result="another"),
        lambda story: a_turn(story, call("grep", '{"path":"a"}'), result="same"),
    ],
    ids=["arguments", "result", "name"],
)
def test_another_call_in_between_counts_repeats_anew(other: object) -> None:
    assert callable(other)
    story = opened()
    for _ in range(7):
        a_turn(story, call("read_file", '{"path":"a"}'), result="same")
    other(story)
    assert "RunStopped" not in kinds(a_turn(story, call("read_file", '{"path":"a"}'), result="same"))
    assert max(count for _, count in story.state.turn.repeats) == 1


SPELLINGS = {
    "spaces": ('{"n":[1,2],"path":"a"}', '{ "n": [1, 2],\n\t"path": "a" }'),
    "order": ('{"n":[1,2],"path":"a"}', '{"path":"a","n":[1,2]}'),
    "escapes": ('{"path":"é/a"}', '{"path":"\\u00e9\\/a"}'),
    "numbers": ('{"limit":100}', '{"limit":1.0e2}'),
    "nothing": ("", " {} "),
}


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("spellings", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_the_same_call_spelled_in_another_way_is_the_same_call(spellings: tuple[str, str]) -> None:
    story = opened(repeat_note=2, repeat_stop=3)
    for count in range(2):
        a_turn(story, call("read_file", spellings[count % 2]))
    assert ending(a_turn(story, call("read_file", spellings[0]))) == ("stuck", "repeat")


@pytest.mark.requirement("C4")
def test_malformed_arguments_that_differ_in_spaces_are_the_same_call() -> None:
    story = opened(repeat_note=2, repeat_stop=3)
    for arguments in ('{"path": "a', '{ "path":\n"a', '{"path": "a'):
        story.prepared()
        story.answered(call("read_file", arguments), finish="tool_calls")
        failure = Failure("tool_validation", "It is not JSON.")
        events = story.judged(story.state.turn.calls[0].call_id, Refused(failure))
    assert ending(events) == ("stuck", "repeat")


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("other", ['{"path":"a b"}', '{"path":"A"}', '{"path":["a"]}', '{"path":"a","n":1}'])
def test_a_call_that_differs_in_what_it_means_is_another_call(other: str) -> None:
    story = opened(repeat_note=2, repeat_stop=3)
    for _ in range(2):
        a_turn(story, call("read_file", '{"path":"a"}'))
        a_turn(story, call("read_file", other))
    assert open_run(story.state) is not None


def test_repeats_and_their_limits_are_settings_and_the_same_call_twice_in_a_turn_counts_once() -> None:
    story = opened(repeat_note=2, repeat_stop=3)
    twice = (call("read_file"), call("read_file"))
    assert kinds(a_turn(story, *twice)) == ["ToolCallFinished"]
    assert kinds(a_turn(story, *twice)) == ["ToolCallFinished", "NoteAdded"]
    assert ending(a_turn(story, *twice)) == ("stuck", "repeat")


@pytest.mark.requirement("L1", "C15")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("provider_fatal", "provider_fatal"),
        ("provider_refused", "provider_refused"),
        ("storage", "storage"),
        ("cancelled", "provider_transient"),
    ],
)
def test_a_failure_that_waiting_does_not_mend_fails_the_run(code: str, reason: str) -> None:
    events = calling().failed(code)  # type: ignore[arg-type]
    assert kinds(events) == ["ModelCallFailed", "RunStopped"]
    assert ending(events) == ("failed", reason)
    assert only(e.RunStopped, events).message == "It failed."


@pytest.mark.requirement("L1", "C15")
def test_a_request_too_long_for_the_model_is_shortened_three_times_and_then_fails() -> None:
    story = opened()
    windows = []
    for _ in range(3):
        story.prepared()
        assert kinds(story.failed("context_overflow")) == ["ModelCallFailed"]
        windows.append(story.state.models.learnt_window_tokens)
    assert windows == [89_600, 62_719, 43_903]
    story.prepared()
    assert (story.state.turn.number, story.model_call.attempt) == (1, 4)
    assert ending(story.failed("context_overflow")) == ("failed", "context_overflow")


def test_the_window_that_a_provider_names_is_believed_when_it_is_smaller() -> None:
    story = calling()
    story.failed("context_overflow", tokens=120_000)
    assert story.state.models.learnt_window_tokens == 120_000
    story.prepared()
    story.failed("context_overflow", tokens=8_192)
    assert story.state.models.learnt_window_tokens == 8_192


@pytest.mark.parametrize("named", [1, -5, 128_000, 10**15])
def test_no_refusal_teaches_a_window_in_which_nothing_can_be_done(named: int) -> None:
    story = calling()
    for _ in range(40):
        story.failed("context_overflow", tokens=named)
        assert 1_024 <= story.state.models.learnt_window_tokens < 128_000
        story.go_on()
        story.prepared()


@pytest.mark.requirement("L1", "C15")
def test_a_conversation_that_cannot_be_made_to_fit_fails_the_run() -> None:
    assert ending(story_short(opened(), "context")) == ("failed", "context_overflow")


@pytest.mark.requirement("L1", "B4")
def test_a_stop_ends_the_run_as_soon_as_the_call_in_flight_is_cut() -> None:
    story = acting()
    events = story.command(Stop())
    assert kinds(events) == ["RunStopping"]
    assert only(e.RunStopping, events).grace_until_ms == story.awake_ms + 1_000
    events = story.finished("t1.c1", "half", status="cancelled")
    assert kinds(events) == ["ToolCallFinished", "RunStopped"]
    assert ending(events) == ("interrupted", "stopped")


@pytest.mark.requirement("L1", "B4")
def test_a_stop_gives_up_after_its_grace_and_says_that_the_outcome_is_unknown() -> None:
    story = acting()
    story.command(Stop("shutdown"))
    events = story.due("grace")
    assert kinds(events) == ["ToolCallAbandoned", "RunStopped"]
    assert "unknown" in only(e.ToolCallAbandoned, events).text
    assert ending(events) == ("interrupted", "shutdown")


def test_a_stop_while_nothing_is_in_flight_ends_the_run_at_once() -> None:
    assert kinds(opened().command(Stop())) == ["RunStopped"]


def test_a_stop_without_a_run_means_nothing() -> None:
    story = calling()
    story.answered(words())
    assert story.command(Stop()) == []


@pytest.mark.requirement("B4")
def test_calls_that_never_started_are_refused_at_a_stop() -> None:
    story = opened()
    story.prepared()
    story.answered(call("write_file"), call("write_file"))
    story.admitted("t1.c1")
    events = [*story.command(Stop()), *story.finished("t1.c1", status="cancelled")]
    assert kinds(events) == ["RunStopping", "ToolCallRefused", "ToolCallFinished", "RunStopped"]
    assert only(e.ToolCallRefused, events).failure.code == "cancelled"


@pytest.mark.requirement("B2")
def test_every_limit_has_a_default_that_is_not_endless() -> None:
    limits = settings().limits
    assert all(
        0 < getattr(limits, name) < 10**9 for name in ("turns", "tokens", "cost_microusd", "wall_s", "idle_s")
    )
