"""Notices speak to the person who watches, not to the model, and keep back nothing that they need."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from holdfast.core.rules import EMPTY_NOTE, REPEAT_NOTE
from holdfast.protocol.circuits import CircuitState
from holdfast.protocol.events import (
    ApprovalRequested,
    ApprovalResolved,
    CircuitChanged,
    Event,
    ModelCallFailed,
    ModelCallUnready,
    NoteAdded,
    Record,
    SideCallEnded,
    Trigger,
)
from holdfast.protocol.failures import Failure, FailureCode
from holdfast.views.notices import decided, notice


def said(event: Event) -> str:
    return notice(Record("S", 1, 0, 1, Trigger("attach"), event), {})


@pytest.mark.parametrize(
    "event",
    [
        NoteAdded("repeat", REPEAT_NOTE.format(count=3)),
        NoteAdded("empty", EMPTY_NOTE),
        NoteAdded("continue", "Go on."),
    ],
)
def test_what_the_model_is_told_to_do_is_not_told_to_the_person(event: NoteAdded) -> None:
    assert said(event)
    assert event.text not in said(event)
    assert "Your last response" not in said(event)


@pytest.mark.parametrize("code", get_args(FailureCode))
def test_a_failed_call_is_described_in_words_and_never_by_its_code(code: FailureCode) -> None:
    failure = Failure(code, "The model is overloaded.", said="Try later")
    ended, again = ModelCallFailed("t1.m1", failure), ModelCallFailed("t1.m1", failure, retry_at_ms=2_500)
    is_long = code == "context_overflow"
    assert said(ended) == ("the request was too long for the model" if is_long else "the model call failed")
    assert said(again).startswith("The model is overloaded. It said: Try later. Next attempt in 2.5s, at ")
    assert code not in said(again)


def test_a_circuit_is_told_by_its_service_without_the_mark_of_its_key() -> None:
    for state in get_args(CircuitState):
        told = said(CircuitChanged("openai:m#3f9a1c", state, "It is down."))
        assert "openai:m " in told
        assert "3f9a1c" not in told


def test_a_call_beside_the_work_that_cannot_be_made_is_told_with_what_is_missing() -> None:
    missing = Failure("provider_unready", "There is no API key for anthropic.")
    for purpose, follows in (
        ("summary", "there is no summary"),
        ("reflection", "the model was not asked how"),
    ):
        assert said(ModelCallUnready("s1", missing, purpose=purpose)).startswith(follows)
        assert missing.message in said(ModelCallUnready("s1", missing, purpose=purpose))
    failed = SideCallEnded("s1", "summary", "failed", failure=missing)
    assert said(failed) == "there is no summary: There is no API key for anthropic."


def test_a_question_is_shown_with_its_options() -> None:
    asked = ApprovalRequested(
        "S-1", "t1.c1", "ask_user", "{}", "0" * 64, 9, question="Which?", options=("red", "blue")
    )
    assert said(asked) == "ask_user asks: Which? One of: red, blue. (S-1)"


def test_every_decision_has_its_words() -> None:
    for decision in get_args(get_type_hints(ApprovalResolved)["decision"]):
        assert decided(decision, "cli:ann")
