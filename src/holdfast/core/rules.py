"""The consequences of the state, as an ordered list of rules. To add a consequence, add a rule.

After each cause the first rule that applies adds its events. This repeats until no rule applies.
`python -m tests.core.phases` prints the list into ARCHITECTURE.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal

import msgspec

from holdfast.core import budget, plan, tool_calls
from holdfast.core.answers import CALL_NOTE, answer_problem, has_to_call, is_asked_again, is_going_on
from holdfast.core.approvals import close_decided
from holdfast.core.draft import Draft
from holdfast.core.ending import stop, stop_answered, stop_at_wall, wind_down
from holdfast.core.failing import WORDS
from holdfast.core.guard import STALL_NOTE, STALLED, is_stuck, longest, stalled, wants_note
from holdfast.core.state import (
    TIMER,
    Run,
    State,
    facts,
    is_complete,
    open_run,
    phase,
    rests_on_people,
    waits_for_people,
)
from holdfast.protocol import events as e
from holdfast.protocol.counts import counted
from holdfast.protocol.failures import LONGEST_WAIT_S
from holdfast.protocol.settings import Settings

MAX_EMPTY_REPLIES = 3

REFUSED = (
    "The model refused to answer, or its provider filtered the answer. Put the task in other words, or use another "
    "model."
)
MAX_REPAIRS = 2
"""How often a run asks the model to repair an answer that does not match the schema."""
REPAIR_NOTE = (
    "Your answer does not match the JSON Schema: {problem}. Answer again, with the whole JSON value and nothing "
    "else."
)
CALL_REPAIR_NOTE = (
    "The text of your answer does not match the JSON Schema: {problem}. Call answer again, with the whole JSON value "
    "as its text and nothing else in it."
)
NEVER_VALID = "The answer does not match the schema after {repairs}: {problem}."
NOT_REPAIRED = "The model {what} in {times} in a row. `{kind}` in [repair] of the configuration is the limit."

MAX_CONTINUED = 3
"""How often the model may go on with a text that reached the output limit."""
LENGTH_NOTE = (
    "Your last response reached its output limit. Go on exactly where it stops, and repeat nothing. If you were "
    "about to call a tool, call it now; write a large file in several parts."
)

EMPTY_NOTE = "Your last response was empty. Answer in words, or call a tool."
REPEAT_NOTE = (
    "You have made the same call with the same arguments {count} turns in a row, and its result did not "
    "change. Try something else, or say what keeps you from going on."
)

When = Literal["stopping", "between model calls", "all calls closed", "response in"]
"""stopping: the run is ending. between model calls: no model call is open. all calls closed: besides, every tool call
of the turn has a result. response in: besides, the model has answered the last request, and no limit is reached."""


class Rule(msgspec.Struct, frozen=True):
    """A consequence."""

    name: str
    when: When
    says: str
    follow: Callable[[Draft, Run, Settings], None]
    """Adds the events; none where the rule does not apply."""


def follow_up(draft: Draft) -> None:
    """Apply the rules until none adds an event."""
    # This ends: each event changes the state so that its own rule no longer applies. `Draft` never takes an
    # event back.
    while _follows(draft):
        pass


def _follows(draft: Draft) -> bool:
    """Apply the first rule that adds events. Return whether one did."""
    before = draft.state
    run, settings = open_run(before), before.settings
    if run is None or settings is None:
        return False
    # Only one rule per round: its events may change which rules apply, and earlier rules come first again. For
    # example the answer at the last turn of a run: "answer" ends the run, so "turns" is never asked.
    for rule in _rules_at(_moment(before, run)):
        rule.follow(draft, run, settings)
        if draft.state is not before:
            return True
    return False


@functools.cache
def _rules_at(moment: tuple[When, ...]) -> tuple[Rule, ...]:
    """Return the rules that may apply at this moment."""
    return tuple(rule for rule in RULES if rule.when in moment)


def _moment(state: State, run: Run) -> tuple[When, ...]:
    # This runs after every event, and most events are in the middle of a turn. Choosing the moment first leaves
    # only a few rules to ask.
    if run.stopping is not None:
        return ("stopping",)
    if state.models.open is not None:
        return ()
    if not is_complete(state.turn):
        return ("between model calls",)
    # After a limit is reached, the rules about a response must not judge the one before it. Only the last pass
    # counts.
    if run.landing or not run.reply:
        return ("between model calls", "all calls closed")
    return ("between model calls", "all calls closed", "response in")


# --- the rules, in the order of the list --------------------------------------------------------


def _wind_down(draft: Draft, run: Run, settings: Settings) -> None:
    wind_down(draft)


def _decisions(draft: Draft, run: Run, settings: Settings) -> None:
    close_decided(draft)


def _no_calls_in_last_pass(draft: Draft, run: Run, settings: Settings) -> None:
    if run.has_landed:
        tool_calls.refuse_all(draft)


def _warnings(draft: Draft, run: Run, settings: Settings) -> None:
    if not run.landing:
        for name, text in budget.warnings(run, facts(draft.state), settings.limits):
            draft.add(e.NoteAdded("cost" if name == "cost" else "tokens", text))


def _retry_wait(draft: Draft, run: Run, settings: Settings) -> None:
    # No wait is longer than LONGEST_WAIT_S. If one seems to be, the clock was ahead when it began, and was then
    # corrected.
    if draft.state.models.retry_at_ms > draft.now_ms + LONGEST_WAIT_S * 1000 and not run.is_paused:
        draft.add(e.RunResumed(TIMER))


def _landed(draft: Draft, run: Run, settings: Settings) -> None:
    if run.has_landed:
        stop(draft, "limit", run.landing, run.message)


def _not_repaired(draft: Draft, run: Run, settings: Settings) -> None:
    failing = run.failing
    if (
        run.reply == "calls"
        and failing.kind
        and failing.times >= getattr(settings.guard.repairs, failing.kind)
    ):
        times = counted(failing.times, "response")
        message = NOT_REPAIRED.format(what=WORDS[failing.kind], times=times, kind=failing.kind)
        stop(draft, "failed", f"repair:{failing.kind}", message)


def _stuck(draft: Draft, run: Run, settings: Settings) -> None:
    count = longest(draft.state.turn.repeats)
    if run.reply == "calls" and count >= settings.guard.repeat_stop:
        stop(draft, "stuck", "repeat", f"The same call brought the same result {count} turns in a row.")


def _repeat_note(draft: Draft, run: Run, settings: Settings) -> None:
    count = longest(draft.state.turn.repeats)
    is_new = run.reply == "calls" and "repeat" not in draft.state.unsaid.notes
    if is_new and count == settings.guard.repeat_note:
        draft.add(e.NoteAdded("repeat", REPEAT_NOTE.format(count=count)))


def _replan(draft: Draft, run: Run, settings: Settings) -> None:
    if run.reply != "calls" or "plan" in draft.state.unsaid.notes:
        return
    conduct = settings.conduct
    if problem := plan.failure_of(draft.state.plan, conduct.after_failures, conduct.max_replans):
        draft.add(e.NoteAdded("plan", problem))


def _stalled(draft: Draft, run: Run, settings: Settings) -> None:
    # The turn before may have changed the workspace. Until the next response brings the survey, `stalled` leaves
    # that turn out, so that no run ends for a change that nobody has seen yet.
    if run.reply == "calls" and draft.state.progress.stall and is_stuck(draft.state):
        stop(draft, "stuck", "stall", STALLED.format(turns=stalled(draft.state)))


def _stall_note(draft: Draft, run: Run, settings: Settings) -> None:
    if run.reply == "calls" and draft.state.progress.stall and wants_note(draft.state):
        draft.add(e.NoteAdded("stall", STALL_NOTE.format(turns=stalled(draft.state))))


def _nothing_said(draft: Draft, run: Run, settings: Settings) -> None:
    if run.reply == "empty" and run.empty_replies >= MAX_EMPTY_REPLIES:
        stop(draft, "failed", "empty_response", f"The model answered with nothing {run.empty_replies} times.")


def _empty_note(draft: Draft, run: Run, settings: Settings) -> None:
    is_new = run.reply == "empty" and "empty" not in draft.state.unsaid.notes
    if is_new and run.totals.turns < settings.limits.turns:
        draft.add(e.NoteAdded("empty", EMPTY_NOTE))


def _refusal(draft: Draft, run: Run, settings: Settings) -> None:
    # Words that arrived during the call are a new try: the next request carries them, and may be answered.
    if run.reply == "refusal" and not draft.state.unsaid.words_seq:
        stop(draft, "failed", "refusal", REFUSED)


def _calibration(draft: Draft, run: Run, settings: Settings) -> None:
    if has_to_call(draft, run, settings):
        draft.add(e.NoteAdded("answer", CALL_NOTE))


def _repair(draft: Draft, run: Run, settings: Settings) -> None:
    problem = answer_problem(run, settings)
    if not problem or run.reply not in ("answer", "cut_answer", "given") or draft.state.unsaid.words_seq:
        return
    if is_asked_again(draft):
        return
    # The note is recorded, but no request has carried it yet: the same answer must not be counted twice.
    if "output" in draft.state.unsaid.notes:
        return
    if run.repairs < MAX_REPAIRS:
        note = CALL_REPAIR_NOTE if run.reply == "given" else REPAIR_NOTE
        draft.add(e.NoteAdded("output", note.format(problem=problem)))
    else:
        repairs = f"{run.repairs} repairs"
        stop(draft, "failed", "output_schema", NEVER_VALID.format(repairs=repairs, problem=problem))


def _length(draft: Draft, run: Run, settings: Settings) -> None:
    # A value for a schema is repaired as a whole: of its parts none could be checked.
    if run.reply != "cut_answer" or settings.output.schema or draft.state.unsaid.words_seq:
        return
    if len(run.cut) < MAX_CONTINUED and run.totals.turns < settings.limits.turns and not is_going_on(draft):
        draft.add(e.NoteAdded("length", LENGTH_NOTE))


def _answer(draft: Draft, run: Run, settings: Settings) -> None:
    if run.reply in ("calls", "empty", "refusal") or draft.state.unsaid.words_seq:
        return
    if answer_problem(run, settings) or is_asked_again(draft) or is_going_on(draft):
        return
    # Of what was put aside, a person has yet to decide; or nobody did in time, and the model does not know it yet.
    if waits_for_people(draft.state) or "approval" in draft.state.unsaid.notes:
        return
    stop_answered(draft, run)


def _turns(draft: Draft, run: Run, settings: Settings) -> None:
    if run.totals.turns >= settings.limits.turns and not rests_on_people(draft.state):
        most = settings.limits.turns
        draft.land("turns", f"The limit of {counted(most, 'turn')} is reached.")


def _tool_calls(draft: Draft, run: Run, settings: Settings) -> None:
    most = settings.limits.tool_calls
    if run.reply == "calls" and run.totals.tool_calls >= most:
        draft.land("tool_calls", f"The limit of {counted(most, 'tool call')} is reached.")


def _wall(draft: Draft, run: Run, settings: Settings) -> None:
    if run.driven_ms >= settings.limits.wall_s * 1000 and phase(draft.state) in ("preparing", "admitting"):
        stop_at_wall(draft, settings)


RULES: tuple[Rule, ...] = (
    Rule("wind down", "stopping", "Calls that never started are closed; then the run ends.", _wind_down),
    Rule(
        "decisions", "between model calls", "A call that a person answered or denied is closed.", _decisions
    ),
    Rule(
        "no calls in the last pass",
        "between model calls",
        "A call that the last pass asks for is refused.",
        _no_calls_in_last_pass,
    ),
    Rule(
        "warnings", "all calls closed", "At 80 % of a limit, a note tells the model and the user.", _warnings
    ),
    Rule(
        "retry wait",
        "between model calls",
        "A wait beyond the longest allowed one is over: the clock was wrong when it began.",
        _retry_wait,
    ),
    Rule("landed", "all calls closed", "After the last pass the run ends at its limit.", _landed),
    Rule(
        "not repaired",
        "response in",
        "Too many responses in a row with a failed call of the same class end the run.",
        _not_repaired,
    ),
    Rule("stuck", "response in", "Too many turns with the same call and result end the run.", _stuck),
    Rule(
        "repeat note",
        "response in",
        "Before that, a note tells the model that it repeats itself.",
        _repeat_note,
    ),
    Rule("replan", "response in", "When a step of the plan has failed, a note asks for a revision.", _replan),
    Rule("stalled", "response in", "Too many turns in a row that bring nothing new end the run.", _stalled),
    Rule(
        "stall note",
        "response in",
        "After a third of them, a note tells the model that it makes no progress.",
        _stall_note,
    ),
    Rule("nothing said", "response in", "Three empty responses in a row end the run.", _nothing_said),
    Rule(
        "empty note", "response in", "After an empty response, a note asks the model for words.", _empty_note
    ),
    Rule(
        "refusal",
        "response in",
        "A refused or filtered response ends the run, unless a person said more.",
        _refusal,
    ),
    Rule(
        "calibration",
        "response in",
        "A run with calibrated answers asks once for the call of `answer`.",
        _calibration,
    ),
    Rule(
        "repair",
        "response in",
        "The model may repair an answer that does not match the schema, twice; the third such answer fails the run.",
        _repair,
    ),
    Rule(
        "length",
        "response in",
        "A text that reaches the output limit is continued, three times at most.",
        _length,
    ),
    Rule(
        "answer",
        "response in",
        "An answer ends the run, unless a person said more, or has yet to decide about a call.",
        _answer,
    ),
    Rule("turns", "response in", "Without a turn left, a last pass follows.", _turns),
    Rule("tool calls", "response in", "Without a tool call left, a last pass follows.", _tool_calls),
    Rule("wall", "between model calls", "When the time is used up, nothing starts.", _wall),
)
