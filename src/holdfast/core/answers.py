"""What a run with calibrated answers asks of its answer: a call of `answer`, and a second look at a doubtful one.

Also whether an answer is what the run asked for. `rules` says when a run ends.
"""

from __future__ import annotations

from holdfast.core.closing import will_not_run
from holdfast.core.draft import Draft
from holdfast.core.state import Call, Run, open_run
from holdfast.protocol import events as e
from holdfast.protocol.answers import ANSWER, Answer
from holdfast.protocol.failures import Failure
from holdfast.protocol.plan import UPDATE_PLAN
from holdfast.protocol.settings import Settings, name_of
from holdfast.protocol.tools import CallResult, Told

NOT_CHECKED = "it was asked for before this schema was set"
NOT_ALONE = (
    "An answer comes alone: the calls beside it have no results yet that it could rely on. Read their results, then "
    "call answer again."
)
NO_WORDS = "The text of the answer is empty. Call answer again with the answer in words."
TAKEN = "The answer is recorded."
DOUBTED = (
    "Your confidence of {confidence:g} is below {threshold:g}. Before this counts as the answer: verify it with a "
    "tool, ask the user, or say plainly that you do not know. Then call answer again."
)
CALL_NOTE = (
    "Give your answer by a call of answer: the whole answer as its text, your confidence that it is right from 0 to "
    "1, the reasons, and the caveats."
)


def take(draft: Draft, call: Call, told: Told, answer: Answer) -> None:
    """Take the answer, or tell the model once that it is doubtful."""
    run, settings = open_run(draft.state), draft.state.settings
    if run is None or settings is None:
        return
    # A model that calls a tool and answers in the same response has not seen what the tool says. To mark the last
    # step of the plan as done beside the answer is fine: nothing new can come of it.
    others = [each for each in draft.state.turn.calls if each.call_id != call.call_id]
    if any(each.name != UPDATE_PLAN for each in others):
        draft.add(will_not_run(call, Failure("tool_execution", NOT_ALONE), told.decisions))
        return
    if not answer.text.strip():
        draft.add(will_not_run(call, Failure("tool_execution", NO_WORDS), told.decisions))
        return
    # An answer that does not match the schema goes back anyway; its confidence is looked at when it matches.
    is_wrong = told.verdict is not None and bool(told.verdict.problem)
    is_doubted = not is_wrong and _is_doubtful(run, settings, answer)
    draft.add(e.ToolCallTold(call.call_id, call.name, told.decisions))
    draft.add(e.AnswerGiven(call.call_id, answer, told.verdict, is_doubted))
    text = TAKEN
    if is_doubted:
        text = DOUBTED.format(confidence=answer.confidence, threshold=settings.conduct.answer_threshold)
    draft.add(e.ToolCallFinished(call.call_id, CallResult("ok", text, trust="assistant")))


def _is_doubtful(run: Run, settings: Settings, answer: Answer) -> bool:
    # The second answer counts whatever its confidence is: a model that says honestly that it does not know is not
    # asked for ever. Without a turn left for a better answer, the first one counts.
    if run.was_doubted or run.totals.turns >= settings.limits.turns:
        return False
    return answer.confidence < settings.conduct.answer_threshold


def has_to_call(draft: Draft, run: Run, settings: Settings) -> bool:
    """Return whether the model is asked, for the first time, to give its words as a call of `answer`."""
    return (
        settings.conduct.is_calibrated
        and run.reply == "answer"
        and not run.was_asked_to_call
        and not is_asked_again(draft)
        and run.totals.turns < settings.limits.turns
        and not draft.state.unsaid.words_seq
    )


def is_asked_again(draft: Draft) -> bool:
    """Return whether a note that no request has carried yet asks for the answer in another form."""
    return ANSWER in draft.state.unsaid.notes


def is_going_on(draft: Draft) -> bool:
    """Return whether a note that no request has carried yet asks the model to go on with its text."""
    return "length" in draft.state.unsaid.notes


def is_answered_anyway(draft: Draft, run: Run, settings: Settings) -> bool:
    """Return whether the words that were to be given again, by a call, or continued, are an answer already."""
    # An example: 0.01 dollars are left, and the model answers in plain words. The request that asks for the call
    # costs more than that. Then the words are the answer, as they would be without a confidence.
    if draft.state.unsaid.words_seq or answer_problem(run, settings):
        return False
    return (run.reply, draft.state.unsaid.notes) in (("answer", (ANSWER,)), ("cut_answer", ("length",)))


def answer_problem(run: Run, settings: Settings) -> str:
    """Return why the last answer is not what the run was asked for; empty if it is."""
    if not settings.output.schema:
        return ""
    if run.verdict is None or run.verdict.schema != name_of(settings.output):
        return NOT_CHECKED
    return run.verdict.problem
