"""The plan of a task: which changes of it are taken, when one of its steps has failed, and its words for the model.

All of it is about values: `told` records what comes of a call of `update_plan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import msgspec
from msgspec.structs import replace

from holdfast.protocol.counts import counted
from holdfast.protocol.plan import MAX_STEPS, Plan, PlanUpdate, Step

SHOWN_CHARS = 80
"""How much of a step a sentence quotes."""
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]", "dropped": "[-]"}
_LEGEND = "[x] done, [>] in progress, [ ] pending, [-] dropped"

TWO_AT_ONCE = (
    "Steps {first} and {second} are both in_progress. Only one step may be; make the other one pending."
)
SAME_ID = "Two steps have the id {id}. Give each step its own id, or none."
NO_WORDS = "A step has no text. Say what is to be done in it."
LOST = (
    "Step {id} ({text}) is done, and must stay in the plan with status done. Send the whole plan, with every done "
    "step; what has to be done again is a new step."
)
TOO_OFTEN = (
    "The plan was revised {times} without a step done, and that is the limit. Carry out a step of the plan as it is "
    "and mark it done, ask the user, or say in your answer what keeps you from it."
)
DROPPED = (
    "Step {id} of the plan ({text}) was dropped. Is the goal still reached without it? If not, revise the plan with "
    "update_plan."
)
FAILED = (
    "{calls} in a row failed while step {id} of the plan ({text}) was in progress. Revise the plan with update_plan: "
    "another way to do this step, other steps in its place, or drop it."
)


class Planned(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The plan of a session, and how its execution goes."""

    plan: Plan | None = None
    is_earlier: bool = False
    """It was made for an earlier task, and has steps left."""
    revisions: int = 0
    """How often its open steps were changed since a step was done or a person spoke."""
    asked: int = 0
    """How often Holdfast asked for a revision since then."""
    is_asked: bool = False
    """Holdfast asked, and the plan has not changed since."""
    failures: int = 0
    """How many calls in a row failed since its step came in progress, or since Holdfast asked for a revision."""
    dropped: str = ""
    """The id of a step that was dropped without anything in its place, until Holdfast asks about it."""
    waiting: tuple[tuple[str, str], ...] = ()
    """The approvals that a person has yet to decide, each with the id of the step that waits for it."""

    @property
    def is_made(self) -> bool:
        """Whether the run has a plan."""
        return self.plan is not None and not self.is_earlier


# --- changes --------------------------------------------------------------------------------------


def revised(planned: Planned, update: PlanUpdate, max_replans: int) -> Plan | str:
    """Return the plan after a call of `update_plan`, or why the call is refused. The same plan: nothing changes."""
    # The plan of an earlier task is replaced whole: what was done for that task has no place in a new plan.
    before = planned.plan if planned.is_made else None
    known = before.steps if before is not None else ()
    steps = _recognised(known, update.steps)
    if problem := _problem(known, steps):
        return problem
    goal = before.goal if before is not None and update.goal is None else _one_line(update.goal or "")
    if before is None:
        return Plan(steps, goal)
    if (steps, goal) == (before.steps, before.goal):
        return before
    is_stalled = planned.revisions >= max_replans and not _newly_done(before, steps)
    if is_stalled and _is_revision(before, steps):
        return TOO_OFTEN.format(times=counted(planned.revisions, "time"))
    return Plan(steps, goal, before.revision + 1)


def _recognised(known: Sequence[Step], given: Sequence[Step]) -> tuple[Step, ...]:
    """Return the given steps, each with an id: its own, that of a known step with the same text, or a new one."""
    # An example: steps 1 and 2 are known, and the model sends "Look." without an id, and "Tell.". If step 1 is
    # "Look.", it is step 1 again, and "Tell." becomes step 3: the number of a step that is gone is not used for
    # other work while the plan still knows it.
    steps = [replace(s, id=_one_line(s.id), text=_one_line(s.text), note=_one_line(s.note)) for s in given]
    taken = {step.id for step in steps if step.id}
    by_text = {step.text.casefold(): step.id for step in reversed(known) if step.id not in taken}
    fresh = (str(n) for n in count(1) if str(n) not in taken and str(n) not in {step.id for step in known})
    return tuple(_identified(known, step, by_text, fresh) for step in steps)


def _identified(known: Sequence[Step], step: Step, by_text: dict[str, str], fresh: Iterator[str]) -> Step:
    step = step if step.id else replace(step, id=by_text.pop(step.text.casefold(), "") or next(fresh))
    # What is done stays as it was said: its words can no longer be changed.
    same = next((each for each in known if each.id == step.id and each.status == "done"), None)
    return replace(step, text=same.text) if same is not None and step.status == "done" else step


def _problem(known: Sequence[Step], steps: Sequence[Step]) -> str:
    """Return why the steps cannot be the plan; empty if they can."""
    ids = [step.id for step in steps]
    twice = next((each for each in ids if ids.count(each) > 1), "")
    active = [step.id for step in steps if step.status == "in_progress"]
    done = {step.id for step in steps if step.status == "done"}
    texts = {step.text.casefold() for step in steps if step.status == "done"}
    lost = [s for s in known if s.status == "done" and s.id not in done and s.text.casefold() not in texts]
    # A long task needs more steps than a plan may have. An example: 50 steps are known, 40 of them done, and 4 are
    # new. So 4 that are done may go, and the plan has 50 again.
    may_go = max(len(steps) + len(lost) - MAX_STEPS, 0)
    if any(not step.text for step in steps):
        return NO_WORDS
    if twice:
        return SAME_ID.format(id=twice)
    if len(active) > 1:
        return TWO_AT_ONCE.format(first=active[0], second=active[1])
    return LOST.format(id=lost[may_go].id, text=_quoted(lost[may_go].text)) if len(lost) > may_go else ""


def _is_revision(before: Plan, steps: Sequence[Step]) -> bool:
    """Whether other work is planned: steps were added, dropped, reworded or put into another order. A step that
    begins or is done changes nothing about that."""
    done = {step.id for step in steps if step.status == "done"}
    left = [(step.id, step.text) for step in before.steps if step.is_open and step.id not in done]
    return left != [(step.id, step.text) for step in steps if step.is_open]


# --- the fold -------------------------------------------------------------------------------------


def after_change(planned: Planned, plan: Plan) -> Planned:
    """The plan was recorded."""
    before = planned.plan if planned.is_made else None
    if before is None:
        return Planned(plan)
    is_step_done = _newly_done(before, plan.steps)
    is_revision = _is_revision(before, plan.steps)
    return Planned(
        plan,
        revisions=0 if is_step_done else planned.revisions + is_revision,
        asked=0 if is_step_done else planned.asked,
        failures=planned.failures if in_progress(plan) == in_progress(before) and not is_revision else 0,
        # To drop the step is one answer to the request for a revision, and needs no other request.
        dropped="" if planned.is_asked else _dropped(before, plan),
        waiting=planned.waiting,
    )


def _newly_done(before: Plan, steps: Sequence[Step]) -> bool:
    was_done = {step.id for step in before.steps if step.status == "done"}
    return any(step.status == "done" and step.id not in was_done for step in steps)


def _dropped(before: Plan, plan: Plan) -> str:
    """The first open step that is no longer to be done, unless other work was planned instead."""
    # If the same call drops a step and plans another one, the plan is revised already. To ask for it again would
    # only cost a turn.
    was_open = {step.id: step.text for step in before.steps if step.is_open}
    status = {step.id: step.status for step in plan.steps}
    gone = [each for each in was_open if status.get(each, "dropped") == "dropped"]
    is_replaced = any(step.is_open and was_open.get(step.id) != step.text for step in plan.steps)
    return "" if is_replaced or not gone else gone[0]


def after_call(planned: Planned, *, is_ok: bool) -> Planned:
    """A call that does something ended, or was refused."""
    if planned.plan is None or (is_ok and not planned.failures):  # of most calls
        return planned
    # A failure counts against the step at work. Calls without one (the model looks around first) say nothing
    # about the plan.
    if is_ok or not planned.is_made or in_progress(planned.plan) is None:
        return replace(planned, failures=0)
    return replace(planned, failures=planned.failures + 1)


def after_asking(planned: Planned) -> Planned:
    """Holdfast asked for a revision."""
    return replace(planned, asked=planned.asked + 1, is_asked=True, failures=0, dropped="")


def after_asking_people(planned: Planned, approval: str, step: str) -> Planned:
    """A person was asked, and a step waits for the answer."""
    return replace(planned, waiting=(*planned.waiting, (approval, step))) if step else planned


def after_deciding(planned: Planned, approval: str) -> Planned:
    """A person decided, or nobody did in time."""
    left = tuple([each for each in planned.waiting if each[0] != approval])
    return replace(planned, waiting=left) if left != planned.waiting else planned


def without_waiting(planned: Planned) -> Planned:
    """No step waits for a person: a branch has no approvals."""
    return replace(planned, waiting=()) if planned.waiting else planned


def is_waiting(planned: Planned, step: Step) -> bool:
    """Whether the step waits for a person."""
    return step.is_open and any(each == step.id for _, each in planned.waiting)


def after_words(planned: Planned) -> Planned:
    """A person spoke: what they say may change the plan."""
    return replace(planned, revisions=0, asked=0) if planned.revisions or planned.asked else planned


def of_next_run(planned: Planned, *, is_continuation: bool) -> Planned:
    """A run opened. Another task begins without a plan. What is left of the last one is kept for a person who only
    said that the work should go on."""
    plan = planned.plan
    if plan is None or (not is_continuation and not any(step.is_open for step in plan.steps)):
        return Planned()
    return Planned(plan, is_earlier=planned.is_earlier or not is_continuation)


def in_progress(plan: Plan) -> Step | None:
    """The step at work."""
    return next((step for step in plan.steps if step.status == "in_progress"), None)


# --- words ----------------------------------------------------------------------------------------


def failure_of(planned: Planned, after_failures: int, max_replans: int) -> str:
    """Return how a step of the plan has failed, with the request for a revision; empty if none has, or if Holdfast
    has asked often enough."""
    plan = planned.plan
    if plan is None or planned.is_earlier or max(planned.asked, planned.revisions) >= max_replans:
        return ""
    if planned.dropped:
        text = next((step.text for step in plan.steps if step.id == planned.dropped), "")
        return DROPPED.format(id=planned.dropped, text=_quoted(text) if text else "it is gone")
    step = in_progress(plan)
    if step is None or planned.failures < after_failures:
        return ""
    return FAILED.format(calls=counted(planned.failures, "call"), id=step.id, text=_quoted(step.text))


def done_of(plan: Plan) -> tuple[int, int]:
    """Return how many steps are done, of how many. A dropped step is not one of them."""
    statuses = [step.status for step in plan.steps if step.status != "dropped"]
    return statuses.count("done"), len(statuses)


def progress_of(plan: Plan) -> str:
    """Return how far the plan is: `2 of 5 steps done, step 3 in progress`."""
    done, count = done_of(plan)
    step = in_progress(plan)
    return f"{done} of {counted(count, 'step')} done" + (f", step {step.id} in progress" if step else "")


def text_of(planned: Planned) -> str:
    """Return the plan in words for the model; empty without a plan."""
    plan = planned.plan
    if plan is None:
        return ""
    whose = "What is left of the plan of an earlier task" if planned.is_earlier else "The plan"
    goal = [f"Goal: {plan.goal}"] if plan.goal else []
    steps = [
        f"{_MARKS[step.status]} {step.id}. {step.text}"
        + (f" ({step.note})" if step.note else "")
        + (" (waits for a person)" if is_waiting(planned, step) else "")
        for step in plan.steps
    ]
    return "\n".join([f"{whose}, revision {plan.revision} ({_LEGEND}):", *goal, *steps])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _quoted(text: str) -> str:
    return f'"{text}"' if len(text) <= SHOWN_CHARS else f'"{text[:SHOWN_CHARS]}..."'
