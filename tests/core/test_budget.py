"""Budgets are proofs: what a call may cost at the worst is reserved before it is sent, and never breaks the limit."""

from __future__ import annotations

import random
from bisect import bisect_left
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core import budget
from holdfast.core.budget import Grant
from holdfast.core.causes import Outcome
from holdfast.core.measure import (
    MOST_BYTES_PER_TOKEN,
    OVERHEAD_TOKENS,
    Measure,
    worst_tokens,
)
from holdfast.core.state import open_run, phase
from holdfast.core.summary import summary
from holdfast.protocol import events as e
from holdfast.protocol.failures import Failure
from holdfast.protocol.kinds import Kinds
from holdfast.protocol.limits import ModelFacts, Tier, cost_microusd
from holdfast.protocol.messages import Estimated, ModelReply, Text, Usage
from holdfast.protocol.outcomes import ModelCut, ModelFailure, Unaffordable
from tests.core.adversary import AROUND_BYTES, Dice, Game, a_model, afford, reserve
from tests.core.stories import FACTS, Story, a_turn, call, calling, kinds, only, opened, words
from tests.seeds import many

BOTH = "another model call and a last answer after it"
NUMBERS = st.lists(st.integers(0, 2**20), max_size=300)


@st.composite
def facts(draw: st.DrawFn) -> ModelFacts:
    return a_model(Dice(draw(NUMBERS)))


def usable(story: Story, size_bytes: int, fresh_bytes: int | None = None) -> Grant | Unaffordable:
    """What an ordinary call may cost, all of it fresh or as much as is said."""
    fresh = size_bytes if fresh_bytes is None else fresh_bytes
    return afford(story.state, size_bytes, fresh, is_last_pass=False)


@pytest.mark.untraced
@pytest.mark.requirement("H3", "L2-07", "B8")
@examples(max_examples=many(120), deadline=None)
@given(NUMBERS)
def test_however_a_provider_counts_what_is_spent_and_held_never_exceeds_the_limits(
    numbers: list[int],
) -> None:
    Game(Dice(numbers), may_lie=False).play(15)


@pytest.mark.untraced
@pytest.mark.requirement("H3", "L2-07", "B8")
@examples(max_examples=many(120), deadline=None)
@given(NUMBERS)
def test_a_provider_that_lies_ends_the_run_with_the_call_that_exceeds_the_limit(numbers: list[int]) -> None:
    Game(Dice(numbers), may_lie=True).play(15)


@pytest.mark.parametrize("may_lie", [False, True])
def test_long_games_meet_everything_that_can_happen(may_lie: bool) -> None:
    met: set[str] = set()
    granted = 0
    for seed in range(60):
        game = Game(Dice(random.Random(seed).choices(range(2**20), k=600)), may_lie=may_lie)
        game.play(30)
        granted += game.granted
        met |= {type(record.event).__name__ for record in game.story.records}
        met |= {game.story.run.reason, *(("held",) if game.totals.held_tokens else ())}
    happens = {"Responded", "ModelCallFailed", "ModelCallCut", "ModelCallAbandoned", "RunLanding"}
    assert met >= happens | {"cost", "tokens", "held"}
    assert granted > 100


@pytest.mark.untraced
@pytest.mark.requirement("H3", "L2-07")
@pytest.mark.parametrize("limit", ["cost_microusd", "tokens"])
@examples(max_examples=many(120), deadline=None)
@example([0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 110])
@given(NUMBERS)
def test_the_least_that_affords_a_call_affords_a_last_pass_over_its_answer_too(
    limit: str, numbers: list[int]
) -> None:
    dice = Dice(numbers)
    model, size = a_model(dice), 200 + dice.upto(20_000)
    ample = {"cost_microusd": 10**12, "tokens": 10**12}

    def a_session(most: int) -> Story:
        return opened(facts=model, **(ample | {limit: most}))

    session = a_session(0)
    plain = session.state.settings
    assert plain is not None

    def affords(most: int) -> bool:
        session.state = replace(
            session.state, settings=replace(plain, limits=replace(plain.limits, **{limit: most}))
        )
        return isinstance(usable(session, size), Grant)

    least = bisect_left(range(10**8), True, key=affords)
    story = a_session(least)
    if least < 10**8:
        assert isinstance(usable(story, size), Grant)
        assert not least or isinstance(usable(a_session(least - 1), size), Unaffordable)
    granted = reserve(story, size, size)
    assume(isinstance(granted, Grant))
    assert isinstance(granted, Grant)
    written = granted.output_cap_tokens
    # A count of more than a token a byte, or of more than the window, teaches nothing: after it no last pass is
    # promised. With such a count, an answer of 16 bytes per token would be read again at a token per byte.
    most_read = min(granted.reserved_tokens - written, size, model.context_tokens)
    read = max(size // MOST_BYTES_PER_TOKEN + 1, dice.pick((most_read, dice.upto(most_read))))
    text = "x" * (written * dice.pick((4, 1, 16)))
    cached = dice.upto(read)
    story.answered(Text(text), call(), usage=Usage(read, written, cached, read - cached))
    fresh = len(text) + 2 + dice.upto(AROUND_BYTES)
    last = afford(story.state, size + fresh, fresh, is_last_pass=True)
    assert isinstance(last, Grant) or last.reason == "context"


@pytest.mark.requirement("L2-07")
def test_a_dime_is_never_exceeded_however_much_the_model_writes() -> None:
    story = opened(cost_microusd=100_000, turns=100)
    size, fresh, calls = 4_000, 4_000, 0
    while open_run(story.state) is not None:
        granted = reserve(story, size, fresh)
        if isinstance(granted, Unaffordable):
            continue
        calls += 1
        worst = Usage(granted.reserved_tokens - granted.output_cap_tokens, granted.output_cap_tokens)
        text = Text("x" * 4 * worst.output_tokens)
        story.when(Outcome(story.model_call.key, ModelReply((text, call()), worst, "length")))
        for each in story.state.turn.calls:
            story.admitted(each.call_id)
            story.finished(each.call_id, str(calls))
        fresh = len(text.text) + 200
        size += fresh
    assert (story.run.status, story.run.reason) == ("limit", "cost")
    assert 0 < story.run.totals.cost_microusd <= 100_000
    assert story.run.has_landed, "it ended in an answer"
    assert calls >= 2


@pytest.mark.requirement("H3", "L2-07")
def test_a_provider_that_reports_negative_usage_gives_nothing_back() -> None:
    story = calling()
    story.answered(call(), usage=Usage(-5_000_000, -(10**9), -7, -7))
    assert story.run.totals.cost_microusd > 0
    assert story.run.totals.usage.input_tokens > 0
    assert budget.tokens_left(story.run, story.settings.limits) < story.settings.limits.tokens
    story = calling()
    story.when(Outcome(story.model_call.key, ModelFailure(Failure("provider_transient", ""), Usage(-5, -5))))
    assert story.run.totals.usage == Usage()


@pytest.mark.requirement("B2", "L2-07")
@pytest.mark.parametrize("limit", [{"cost_microusd": 10}, {"tokens": 10}])
def test_a_limit_that_was_lowered_during_a_call_is_no_fault_of_the_provider(limit: dict[str, int]) -> None:
    story = calling()
    story.go_on(**limit)
    stopped = only(e.RunStopped, story.answered(Text("Done."), usage=Usage(100, 10)))
    assert stopped.status == "limit"
    assert "exceeded" in stopped.message
    assert "provider" not in stopped.message


@pytest.mark.parametrize("most", [0, 1, 5])
def test_a_small_cap_on_the_output_is_no_reason_to_call_the_window_full(most: int) -> None:
    story = opened(max_output_tokens=most)
    for is_last_pass in (False, True):
        granted = afford(story.state, 1_000, 1_000, is_last_pass=is_last_pass)
        if most:
            assert isinstance(granted, Grant)
            assert granted.output_cap_tokens == most
        else:
            assert isinstance(granted, Unaffordable)


@pytest.mark.requirement("L2-07")
def test_at_80_percent_of_the_budget_model_and_user_are_told_once() -> None:
    story = opened(cost_microusd=10_000)
    story.prepared(reserved_microusd=1)
    events = story.answered(call(), usage=Usage(7_995, 1))
    assert "NoteAdded" not in kinds(events)
    story.admitted("t1.c1")
    assert kinds(story.finished("t1.c1")) == ["ToolCallFinished"]
    story.prepared(reserved_microusd=1)
    story.answered(call(), usage=Usage(1, 1))
    story.admitted("t2.c1")
    told = only(e.NoteAdded, story.finished("t2.c1"))
    assert (told.about, told.text) == ("cost", "80 % of the budget of $0.01 is used; $0.001996 is left.")
    assert kinds(a_turn(story, call("other"))) == ["ToolCallFinished"]


@pytest.mark.requirement("B2")
def test_at_80_percent_of_the_tokens_model_and_user_are_told_once() -> None:
    story = opened(tokens=1_000)
    story.prepared()
    story.answered(call(), usage=Usage(700, 100))
    story.admitted("t1.c1")
    assert only(e.NoteAdded, story.finished("t1.c1")).about == "tokens"
    assert kinds(a_turn(story, call("other"))) == ["ToolCallFinished"]


@pytest.mark.requirement("H3", "L2-07")
def test_what_is_held_after_crashes_counts_towards_the_warning() -> None:
    story = opened(cost_microusd=10_000)
    story.prepared(reserved_microusd=8_000)
    assert kinds(story.attach()) == ["Attached", "ModelCallAbandoned", "NoteAdded"]


@pytest.mark.requirement("L2-07")
def test_a_model_without_a_known_price_is_bound_by_tokens_and_its_cost_is_unknown() -> None:
    story = opened(
        facts=replace(FACTS, price="unknown", input_microusd_per_mtok=0, output_microusd_per_mtok=0)
    )
    granted = reserve(story, 4_000, 4_000)
    assert isinstance(granted, Grant)
    assert granted.reserved_microusd == 0
    assert summary(story.state).cost_microusd is None
    story.answered(words(), usage=Usage(1_000, 1_000))
    assert summary(story.state).cost_microusd is None


LONG = replace(
    FACTS,
    context_tokens=1_000_000,
    max_output_tokens=1_000,
    tiers=(Tier(10_000, 2_000_000, 6_000_000, 2_000_000, 2_000_000),),
)
"""A model whose price doubles for a call that reads more than 10,000 tokens."""


@pytest.mark.requirement("H3", "L2-07")
def test_a_call_is_settled_at_the_price_of_its_size() -> None:
    assert cost_microusd(LONG, Usage(10_000, 1_000)) == 14_000
    assert cost_microusd(LONG, Usage(10_001, 1_000, cache_read_tokens=9_000)) == 26_002


@pytest.mark.requirement("H3", "L2-07")
def test_the_dearer_price_is_reserved_when_a_call_may_grow_into_it() -> None:
    small, large = (
        afford(opened(facts=LONG).state, size, size, is_last_pass=True) for size in (9_700, 9_900)
    )
    assert isinstance(small, Grant)
    assert isinstance(large, Grant)
    assert small.expected_tokens < 10_000
    assert large.expected_tokens < 10_000, "at a byte for a token it is more"
    assert small.reserved_microusd == 9_700 + OVERHEAD_TOKENS + 1_000 * 4
    assert large.reserved_microusd == (9_900 + OVERHEAD_TOKENS) * 2 + 1_000 * 6


@pytest.mark.requirement("H3", "L2-07")
def test_a_last_pass_is_cut_to_the_cheaper_size_where_the_dearer_one_cannot_be_paid() -> None:
    story = opened(facts=LONG, cost_microusd=15_000)
    assert budget.affordable_bytes(story.state, story.settings) == 10_000 - OVERHEAD_TOKENS
    story = opened(facts=LONG, cost_microusd=40_000)
    assert budget.affordable_bytes(story.state, story.settings) > 10_000


@pytest.mark.untraced
@pytest.mark.requirement("H3", "L2-07")
@given(NUMBERS)
def test_a_request_that_is_cut_to_what_is_affordable_can_be_paid(numbers: list[int]) -> None:
    game = Game(Dice(numbers), may_lie=False)
    game.play(4)
    state, settings = game.story.state, game.story.settings
    if open_run(state) is None or phase(state) != "preparing":
        return
    size = budget.affordable_bytes(state, settings)
    last = afford(state, size, size, is_last_pass=True)
    assert size == 1 or isinstance(last, Grant)


def test_a_free_model_costs_nothing_and_that_is_known() -> None:
    story = opened(facts=replace(FACTS, price="free", input_microusd_per_mtok=0, output_microusd_per_mtok=0))
    assert isinstance(reserve(story, 4_000, 4_000), Grant)
    story.answered(words())
    assert summary(story.state).cost_microusd == 0


def test_the_cap_that_is_sent_is_the_least_of_setting_model_window_and_budget() -> None:
    def cap(**changes: Any) -> int:
        model = replace(FACTS, **{name: changes.pop(name) for name in list(changes) if hasattr(FACTS, name)})
        granted = usable(opened(facts=model, **changes), 1_000)
        assert isinstance(granted, Grant)
        return granted.output_cap_tokens

    assert opened().settings.model.max_output_tokens == cap()
    assert cap(max_output_tokens=500) == 500
    assert cap(context_tokens=4_096) < 4_096
    assert 256 <= cap(cost_microusd=20_000) < 5_000
    assert 256 <= cap(tokens=10_000) < 5_000


@pytest.mark.requirement("C15")
def test_a_conversation_that_leaves_no_room_for_an_answer_is_short_of_context() -> None:
    story = opened(facts=replace(FACTS, context_tokens=8_192))
    short = usable(story, 40_000)
    assert isinstance(short, Unaffordable)
    assert short.reason == "context"


@pytest.mark.requirement("B2")
@pytest.mark.parametrize(("limit", "reason"), [({"cost_microusd": 100}, "cost"), ({"tokens": 100}, "tokens")])
def test_a_limit_that_affords_no_call_says_which_one_it_is(limit: dict[str, int], reason: str) -> None:
    for is_last_pass in (False, True):
        short = afford(opened(**limit).state, 4_000, 4_000, is_last_pass=is_last_pass)
        assert isinstance(short, Unaffordable)
        assert short.reason == reason


@pytest.mark.requirement("B2", "L2-07")
@pytest.mark.parametrize(
    ("limit", "is_last_pass", "told"),
    [
        (
            {"cost_microusd": 5_100},
            False,
            f"With $0.0001 left of the budget of $0.0051, {BOTH} could cost more than that.",
        ),
        (
            {"cost_microusd": 5_100},
            True,
            "With $0.0001 left of the budget of $0.0051, a last answer could cost more than that.",
        ),
        ({"cost_microusd": 5_000}, True, "The budget of $0.005 is used up."),
        (
            {"tokens": 7_200},
            False,
            f"With 1,200 left of the limit of 7,200 tokens, {BOTH} could take more than that.",
        ),
        (
            {"tokens": 7_200},
            True,
            "With 1,200 left of the limit of 7,200 tokens, a last answer could take more than that.",
        ),
        ({"tokens": 6_000}, True, "The limit of 6,000 tokens is used up."),
    ],
)
def test_what_does_not_fit_any_more_is_told_with_what_is_left(
    limit: dict[str, int], is_last_pass: bool, told: str
) -> None:
    story = opened(**limit)
    story.prepared()
    story.answered(call(arguments=""), usage=Usage(5_000, 1_000 if "tokens" in limit else 0))
    short = afford(story.state, 4_000, 4_000, is_last_pass=is_last_pass)
    assert isinstance(short, Unaffordable)
    assert short.message == told


# --- what a call counts as ----------------------------------------------------------------------


def told(usage: Usage, estimated: Estimated = (), **changes: Any) -> Outcome:
    """A response of 700 bytes to the open call, whose input was likely to be 300 tokens."""
    reply = ModelReply((Text("x" * 698), call()), usage, estimated=estimated)
    return Outcome("m1", replace(reply, **changes))


@pytest.mark.requirement("C6", "H3", "L2-07")
@pytest.mark.parametrize(
    ("usage", "missing", "expected", "estimated"),
    [
        (Usage(500, 50), (), (500, 50), ()),
        (Usage(), ("input", "output"), (300, 200), ("input", "output")),
        (Usage(0, 50), ("input",), (300, 50), ("input",)),
        (Usage(500, 0), ("output",), (500, 200), ("output",)),
        (Usage(0, 50), (), (300, 50), ("input",)),
        (Usage(500, 0), (), (500, 200), ("output",)),
        (Usage(90, 9), ("input", "output"), (300, 200), ("input", "output")),
        (Usage(900, 900), ("input", "output"), (900, 900), ("input", "output")),
    ],
)
def test_what_a_provider_does_not_count_is_estimated_part_by_part(
    usage: Usage, missing: Estimated, expected: tuple[int, int], estimated: Estimated
) -> None:
    story = calling()
    responded = only(e.Responded, story.when(told(usage, missing)))
    assert (responded.usage, responded.estimated) == (Usage(*expected), estimated)
    assert responded.cost_microusd == expected[0] + 4 * expected[1]
    assert story.run.totals.usage == Usage(*expected)


@pytest.mark.requirement("C6", "L2-07")
def test_a_free_model_may_count_nothing() -> None:
    free = replace(FACTS, price="free", input_microusd_per_mtok=0, output_microusd_per_mtok=0)
    story = calling(facts=free)
    responded = only(e.Responded, story.when(told(Usage())))
    assert (responded.usage, responded.estimated) == (Usage(), ())
    story = calling(facts=free)
    responded = only(e.Responded, story.when(told(Usage(), ("input", "output"))))
    assert responded.usage == Usage(300, 200), "limits on tokens hold for it too"


@pytest.mark.requirement("C6")
def test_an_empty_response_that_is_counted_as_nothing_was_nothing() -> None:
    responded = only(e.Responded, calling().answered(usage=Usage(500, 0)))
    assert (responded.usage, responded.estimated) == (Usage(500), ())


@pytest.mark.requirement("C6", "H3")
def test_all_that_came_counts_and_not_only_what_could_be_kept() -> None:
    missing = ("input", "output")
    responded = only(e.Responded, calling().when(told(Usage(), missing, received_bytes=1_400)))
    assert responded.usage.output_tokens == 400
    many = tuple(call("read_file", "x" * 7) for _ in range(200))
    responded = only(e.Responded, calling().when(told(Usage(), missing, parts=many)))
    assert responded.usage.output_tokens == 200 * 7 / 3.5


@pytest.mark.requirement("H3", "L2-07")
@pytest.mark.parametrize(
    ("received", "tokens"), [(3_500, 1_000), (7_000, 1_000), (16_000, 1_000), (160_000, 10_000)]
)
def test_a_response_that_may_be_within_its_cap_is_estimated_as_being_so(received: int, tokens: int) -> None:
    story = calling()
    events = story.when(told(Usage(), ("input", "output"), received_bytes=received))
    assert only(e.Responded, events).usage.output_tokens == tokens
    assert ("cap" in [note.about for note in events if isinstance(note, e.NoteAdded)]) == (tokens > 1_000)


@pytest.mark.requirement("H3", "L2-07")
def test_a_response_over_its_cap_is_charged_and_told_once() -> None:
    story = calling()
    events = story.answered(call(), usage=Usage(100, 5_000))
    assert only(e.Responded, events).cost_microusd == 100 + 4 * 5_000
    assert only(e.NoteAdded, events).text.startswith(
        "Your last response has 5,000 tokens, more than the 1,000"
    )
    story.admitted("t1.c1")
    story.finished("t1.c1")
    story.prepared()
    assert kinds(story.answered(call(), usage=Usage(100, 5_000))) == ["Responded"]


@pytest.mark.requirement("B2", "H3", "L2-07")
@pytest.mark.parametrize(
    ("limit", "reason", "message"),
    [
        ({"cost_microusd": 8_000}, "cost", "The budget of $0.008 is exceeded: $0.0201 is used"),
        ({"tokens": 2_000}, "tokens", "The limit of 2,000 tokens is exceeded: 5,100 are used"),
    ],
)
@pytest.mark.parametrize("parts", [(call(),), (words(),)], ids=["calls", "answer"])
def test_a_response_that_exceeds_a_limit_ends_the_run_at_once(
    parts: tuple[Any, ...], limit: dict[str, int], reason: str, message: str
) -> None:
    story = calling(**limit)
    events = story.answered(*parts, usage=Usage(100, 5_000))
    stopped = only(e.RunStopped, events)
    assert (stopped.status, stopped.reason) == ("limit", reason)
    assert stopped.message.startswith(message)
    assert "ToolCallStarted" not in kinds(events)


@pytest.mark.requirement("C6", "H3")
def test_an_absurd_count_ends_the_run_and_teaches_nothing_about_the_next_one() -> None:
    story = calling()
    stopped = only(e.RunStopped, story.answered(call(), usage=Usage(999_999_999, 10)))
    assert (stopped.status, stopped.reason) == ("limit", "cost")
    story.send("Go on.")
    assert isinstance(reserve(story, 2_000, 1_000), Grant)


BROKEN = Failure("provider_transient", "It broke.")


@pytest.mark.requirement("H3", "L2-07")
@pytest.mark.parametrize(
    ("result", "expected", "estimated"),
    [
        (ModelFailure(BROKEN), (0, 0), ()),
        (ModelFailure(BROKEN, Usage(500, 50)), (500, 50), ()),
        (ModelFailure(BROKEN, Usage(), ("input", "output")), (300, 0), ("input", "output")),
        (ModelFailure(BROKEN, Usage(), ("input", "output"), 700), (300, 200), ("input", "output")),
        (ModelFailure(BROKEN, Usage(500), ("output",), 700), (500, 200), ("output",)),
        (ModelFailure(BROKEN, Usage(0, 50), ()), (300, 50), ("input",)),
        (ModelFailure(BROKEN, Usage(0, 0), ("output",), 700), (300, 200), ("input", "output")),
        (ModelFailure(BROKEN, Usage(500, 0), (), 700), (500, 200), ("output",)),
        (ModelFailure(BROKEN, Usage(), ("input", "output"), 10**9), (300, 1_000), ("input", "output")),
        (ModelCut("So", received_bytes=700), (300, 200), ("input", "output")),
        (ModelCut("So", Usage(500), ("output",), 10**9), (500, 1_000), ("output",)),
    ],
)
def test_a_stream_that_breaks_is_settled_at_what_it_may_have_cost(
    result: ModelFailure | ModelCut, expected: tuple[int, int], estimated: Estimated
) -> None:
    story = calling()
    reserved = story.model_call.reserved_microusd
    event = story.when(Outcome("m1", result))[0]
    assert isinstance(event, e.ModelCallFailed | e.ModelCallCut)
    assert (event.usage, event.estimated) == (Usage(*expected), estimated)
    assert story.run.totals.cost_microusd == event.cost_microusd == expected[0] + 4 * expected[1] <= reserved
    assert (story.run.totals.held_microusd, story.run.totals.held_tokens) == (0, 0)


@pytest.mark.requirement("H3")
def test_a_call_costs_what_the_model_costs_that_it_was_sent_to() -> None:
    story = calling()
    dear = replace(FACTS, model="dear", input_microusd_per_mtok=50_000_000)
    story.go_on(facts=dear)
    assert only(e.Responded, story.answered(call(), usage=Usage(500, 50))).cost_microusd == 700
    assert story.state.models.measure.tokens == 0, "the other model may count otherwise"


# --- estimates ----------------------------------------------------------------------------------


def measured(size_bytes: int, tokens: int, written: int = 1, text: str = "") -> Measure:
    story = opened(facts=replace(FACTS, price="free", context_tokens=10**7))
    story.prepared(size_bytes=size_bytes, fresh_bytes=size_bytes, kinds=Kinds(prose=size_bytes))
    story.answered(Text(text), call(arguments=""), usage=Usage(tokens, written))
    return story.state.models.measure


def test_before_a_provider_counted_every_byte_may_be_a_token() -> None:
    assert worst_tokens(Measure(), 2_000, 2_000) == 2_000 + OVERHEAD_TOKENS


@pytest.mark.requirement("H3")
@pytest.mark.parametrize(
    ("size", "fresh", "tokens"),
    [
        (4_000, 0, 1_150),
        (5_000, 1_000, 2_150),
        (3_000, 1_000, 2_150),  # a cut left 2,000 of the bytes that were counted, and any tokens of them
        (1_500, 1_000, 1_500),
        (900, 0, 900),
    ],
)
def test_each_byte_that_was_not_counted_may_be_a_token(size: int, fresh: int, tokens: int) -> None:
    assert worst_tokens(measured(4_000, 1_000, 0), size, fresh) == tokens + OVERHEAD_TOKENS


@pytest.mark.requirement("H3")
def test_what_the_model_wrote_costs_as_many_tokens_when_it_is_read_again() -> None:
    measure = measured(4_000, 1_000, written=200, text="x" * 700)
    assert worst_tokens(measure, 4_800, 800) == 1_380 + 100 + OVERHEAD_TOKENS


@pytest.mark.requirement("H3")
def test_what_was_sent_since_the_last_count_stays_uncounted() -> None:
    story = opened()
    story.prepared(size_bytes=4_000, fresh_bytes=4_000)
    story.answered(call(), usage=Usage(1_000, 1))
    story.admitted("t1.c1")
    story.finished("t1.c1")
    story.prepared(size_bytes=6_000, fresh_bytes=2_000)
    story.failed("provider_transient")
    assert worst_tokens(story.state.models.measure, 6_000, 0) == 1_152 + 2_000 - 2 + OVERHEAD_TOKENS


@pytest.mark.parametrize("tokens", [0, 249, 40_001, 999_999_999])
def test_a_count_that_cannot_be_does_not_calibrate(tokens: int) -> None:
    assert measured(4_000, tokens).tokens == 0


def test_an_estimated_usage_does_not_calibrate() -> None:
    story = calling()
    reply = ModelReply((call(),), Usage(500, 1), estimated=("input",))
    story.when(Outcome(story.model_call.key, reply))
    assert story.state.models.measure.tokens == 0


@given(facts(), st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_what_a_reservation_holds_covers_any_usage_within_it(
    model: ModelFacts, size: int, read: int, cached: int, written: int
) -> None:
    story = opened(facts=model, cost_microusd=10**12, tokens=10**9)
    granted = usable(story, size)
    assume(isinstance(granted, Grant))
    assert isinstance(granted, Grant)
    most = granted.reserved_tokens - granted.output_cap_tokens
    read %= most + 1
    cached %= read + 1
    usage = Usage(read, granted.output_cap_tokens, cached, written % (read - cached + 1))
    assert cost_microusd(model, usage) <= granted.reserved_microusd


@given(facts())
def test_what_fits_the_window_leaves_room_for_an_answer(model: ModelFacts) -> None:
    story = opened(facts=model)
    assert 1 <= budget.window_of(story.state, story.settings).room_tokens < model.context_tokens


def test_a_run_with_ten_cents_costs_what_the_worked_example_of_the_module_says() -> None:
    story = opened(cost_microusd=100_000)
    grants = []
    for size_bytes, fresh_bytes, counted in (
        (14_000, 14_000, 4_000),
        (35_000, 21_000, 10_000),
        (66_000, 31_000, 19_000),
    ):
        grant = reserve(story, size_bytes, fresh_bytes)
        if isinstance(grant, Unaffordable):
            assert story.run.landing == "cost"
            grant = reserve(story, size_bytes, fresh_bytes)
        assert isinstance(grant, Grant)
        grants.append((grant.output_cap_tokens, grant.reserved_microusd))
        if story.run.landing:
            story.answered(Text("It is done."), usage=Usage(counted, 300))
        else:
            asked = call("read_file", '"' + "x" * 998 + '"')
            story.answered(asked, finish="tool_calls", usage=Usage(counted, 300))
            call_id = story.state.turn.calls[0].call_id
            story.admitted(call_id)
            story.finished(call_id)
    assert grants == [(5_410, 35_832), (3_759, 40_173), (10_390, 83_597)]
    assert (story.run.status, story.run.totals.cost_microusd) == ("limit", 36_600)
