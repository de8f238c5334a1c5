"""Mutations of how a run goes about its task: its plan."""

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
)
