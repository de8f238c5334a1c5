"""Which model a call is for: one place says so, and a call stays its own model's when the settings change."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import holdfast
from holdfast.core.causes import Outcome
from holdfast.core.measure import Measure
from holdfast.core.state import State, facts, open_model_call
from holdfast.protocol import events as e
from holdfast.protocol.failures import Failure
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Usage
from holdfast.protocol.outcomes import ModelFailure
from tests.core.stories import FACTS, Story, calling, only, settings, words

DEAR = ModelFacts("openai", "dear", input_microusd_per_mtok=90_000_000, output_microusd_per_mtok=90_000_000)
FREE = ModelFacts("ollama", "free", context_tokens=8_000, price="free")
ROOMS = ("core", "context", "runtime")


def switched(to: ModelFacts) -> Story:
    """A model call is open, and from then on another model is to be used."""
    story = calling()
    story.settings = settings(facts=to)
    story.go_on(facts=to)
    return story


@pytest.mark.requirement("H3", "C18")
@pytest.mark.parametrize("to", [DEAR, FREE])
def test_a_call_is_charged_at_the_price_of_its_own_model(to: ModelFacts) -> None:
    story = switched(to)
    assert only(e.Responded, story.answered(words(), usage=Usage(1_000, 500))).cost_microusd == 3_000
    story = switched(to)
    failure = ModelFailure(Failure("provider_transient", "It failed."), Usage(1_000, 500))
    events = story.when(Outcome(story.model_call.key, failure))
    assert only(e.ModelCallFailed, events).cost_microusd == 3_000


def test_the_open_call_keeps_its_model_and_the_next_one_has_the_new() -> None:
    story = switched(DEAR)
    key = story.model_call.key
    assert (facts(story.state, key), facts(story.state), facts(story.state, "m9")) == (FACTS, DEAR, DEAR)
    assert (open_model_call(story.state, key), open_model_call(story.state, "m9")) == (story.model_call, None)
    assert facts(State()).name == ":"


@pytest.mark.requirement("C6")
def test_what_another_model_counted_does_not_measure_the_next_one() -> None:
    story = switched(DEAR)
    story.answered(words(), usage=Usage(500, 1))
    assert story.state.models.measure == Measure()


@pytest.mark.requirement("C6")
def test_a_window_that_another_model_refused_is_not_the_next_ones() -> None:
    story = switched(FREE)
    story.failed("context_overflow", tokens=3_000)
    assert story.state.models.learnt_window_tokens == 0
    assert story.run.overflows == 1


def test_one_place_reads_the_model_out_of_the_settings() -> None:
    source = Path(holdfast.__file__).parent
    reading = [
        path.relative_to(source).as_posix()
        for room in ROOMS
        for path in sorted((source / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "facts"
        if ast.unparse(node.value).endswith("settings") or ast.unparse(node.value).endswith("settings.model")
    ]
    assert reading == ["core/state.py", "runtime/border.py"], "the second looks for secrets in its name"
