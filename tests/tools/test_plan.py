"""update_plan behind its gates: what the core gets of a call."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.protocol.plan import PlanUpdate, Step
from holdfast.protocol.tools import Refused, Told
from tests.tools.conftest import Bench


@pytest.mark.requirement("L2-02")
async def test_a_call_is_told_to_the_core_in_the_shape_of_a_plan(bench: Bench) -> None:
    steps = [
        {"id": 1, "text": "A", "status": "done"},
        {"id": "b", "text": "B", "status": "pending", "note": "n"},
    ]
    told = await bench.admit("update_plan", steps=steps, goal="G")
    assert isinstance(told, Told)
    assert told.said == PlanUpdate((Step("A", "done", "1"), Step("B", "pending", "b", "n")), "G")
    assert [each.by for each in told.decisions] == ["policy"]


@pytest.mark.requirement("L2-02")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"status": "finished"}, '"pending", "in_progress", "done", "dropped"'),
        ({"text": ""}, "steps[0].text"),
        ({"text": "A" * 301}, "steps[0].text"),
        ({"id": -1}, "steps[0].id"),
        ({"id": True}, "steps[0].id"),
        ({"note": "n" * 301}, "steps[0].note"),
        ({"owner": "me"}, "owner"),
    ],
)
async def test_a_step_that_does_not_fit_is_refused_with_its_place(
    bench: Bench, changes: dict[str, Any], why: str
) -> None:
    refused = await bench.admit("update_plan", steps=[{"text": "A", "status": "pending"} | changes])
    assert isinstance(refused, Refused)
    assert why in refused.failure.message


async def test_a_plan_has_one_to_fifty_steps(bench: Bench) -> None:
    for count, kind in ((0, Refused), (1, Told), (50, Told), (51, Refused)):
        assert isinstance(
            await bench.admit("update_plan", steps=[{"text": "A", "status": "pending"}] * count), kind
        )
