"""Mutations of how a run goes about its task: its plan, and its calibrated answer."""

from __future__ import annotations

from tests.mutations.bench import Mutation

CONDUCT = (
    Mutation(
        "a second step in progress is taken",
        "core/plan.py",
        "if len(active) > 1:",
        "if len(active) > 2:",
        "tests/core/test_plan.py",
    ),
    Mutation(
        "a done step may be lost",
        "core/plan.py",
        'return LOST.format(id=lost.id, text=_quoted(lost.text)) if lost is not None else ""',
        'return ""',
        "tests/core/test_plan.py",
    ),
    Mutation(
        "a plan is revised without end",
        "core/plan.py",
        "if is_stalled and _is_revision(before, steps):",
        "if False:",
        "tests/core/test_plan.py",
    ),
    Mutation(
        "holdfast asks for a revision without end",
        "core/plan.py",
        "max(planned.asked, planned.revisions) >= max_replans",
        "False",
        "tests/core/test_plan.py",
    ),
    Mutation(
        "the plan of an earlier task counts for the next one",
        "core/plan.py",
        "return self.plan is not None and not self.is_earlier",
        "return self.plan is not None",
        "tests/core/test_plan.py",
    ),
    Mutation(
        "a cut of the view loses the plan",
        "runtime/compacting.py",
        "if planned := plan.text_of(state.plan):",
        'if planned := "":',
        "tests/scenarios/test_plans.py",
    ),
    Mutation(
        "an effect starts before the plan",
        "tools/gates.py",
        'effect in ("read", "ask", "tell"):',
        'effect in ("read", "ask", "tell", "write"):',
        "tests/scenarios/test_plans.py",
    ),
    Mutation(
        "the original of a call that tells something is used",
        "runtime/prepare.py",
        "call = replace(call, is_masked=False)",
        "pass",
        "tests/scenarios/test_plans.py",
    ),
    Mutation(
        "a doubtful answer is doubted for ever",
        "core/answers.py",
        "if run.was_doubted or run.totals.turns",
        "if run.totals.turns",
        "tests/core/test_answers.py",
    ),
    Mutation(
        "the threshold itself is not enough",
        "core/answers.py",
        "return answer.confidence < settings",
        "return answer.confidence <= settings",
        "tests/core/test_answers.py",
    ),
    Mutation(
        "an answer beside other calls counts",
        "core/answers.py",
        "if any(each.name != UPDATE_PLAN for each in others):",
        "if False:",
        "tests/core/test_answers.py",
    ),
    Mutation(
        "plain words are asked for the call without end",
        "core/answers.py",
        "        and not run.was_asked_to_call\n",
        "",
        "tests/core/test_answers.py",
    ),
    Mutation(
        "every run has the answer tool",
        "policy/rules.py",
        "return settings.conduct.is_calibrated\n",
        "return True\n",
        "tests/cli/test_calibrated.py",
    ),
    Mutation(
        "the text of an answer is not checked",
        "runtime/prepare.py",
        "return replace(told, verdict=await judge(output, told.said.text))",
        "return told",
        "tests/cli/test_calibrated.py",
    ),
)
