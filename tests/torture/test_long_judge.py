"""The judge finds nothing wrong with a long session that nobody tortured, and sees every forgery of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from holdfast.testing.model_replies import Reply
from tests.torture import effects as by
from tests.torture.calm import played_once
from tests.torture.evidence import RULE, SECRET, Evidence, Served, bodies, is_aside, journal
from tests.torture.judge import judge, leaks
from tests.torture.long_scene import LongScene, LongServer, long_scene
from tests.torture.rounds import calm_round, gather, own_view

CALM = 356
"""A seed whose session compacts with a summary, and meets no failure."""


class AtOnce(LongServer):
    """It answers side calls at once, so that their answers come while the run is open."""

    def aside(self, scene: LongScene, chance: Random, body: bytes) -> Reply:
        """As `LongServer.aside`."""
        return msgspec.structs.replace(super().aside(scene, chance, body), delay_s=0)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A long session that nobody tortured."""

    def play(folder: Path) -> Evidence:
        gathered = gather(calm_round, CALM, folder, AtOnce, long_scene)
        assert [*judge(gathered.evidence), *own_view(gathered)] == []
        return gathered.evidence

    return played_once(tmp_path_factory, "long", play)


def after_a_compaction(evidence: Evidence) -> int:
    """The first request of which a compaction left something out."""
    rows = journal(evidence.home)
    first = next(row["seq"] for row in rows if row["type"] == "ContextCompacted")
    later = {
        row["body"]["request"]["sha256"]
        for row in rows
        if row["type"] == "ModelCallStarted" and row["seq"] > first
    }
    return next(number for number, each in enumerate(evidence.served) if each.sha256 in later)


def changed(served: Sequence[Served], number: int, old: bytes, new: bytes) -> list[Served]:
    """The requests, with other bytes in one of them, which keeps its hash in the journal."""

    class Changed(Served):
        sha256 = served[number].sha256

    assert old in served[number].body
    other = Changed(served[number].body.replace(old, new), served[number].ref)
    return [*served[:number], other, *served[number + 1 :]]


def test_a_long_session_has_summaries_reflections_and_a_plan(calm: Evidence) -> None:
    rows = journal(calm.home)
    assert [body for body in bodies(rows, "ContextCompacted") if body.get("summary_by")]
    assert bodies(rows, "Reflected")
    assert len(bodies(rows, "PlanChanged")) > 1
    assert sum(is_aside(each.body) for each in calm.served) > 1


@pytest.mark.parametrize("what", [b"Do the work, please.", RULE.encode(), b"look after part"])
def test_a_request_that_has_lost_the_task_the_rule_or_the_open_step_is_seen(
    calm: Evidence, what: bytes
) -> None:
    served = changed(calm.served, after_a_compaction(calm), what, b"x")
    assert {fault.kind for fault in by.kept(journal(calm.home), served)} == {"lost"}


def test_a_view_that_is_cut_without_a_record_is_seen(calm: Evidence) -> None:
    rows = [row for row in journal(calm.home) if row["type"] != "ContextCompacted"]
    assert {fault.kind for fault in by.conversation(rows, calm.served)} == {"lost"}


def test_a_side_call_that_does_not_begin_as_the_work_is_seen(calm: Evidence) -> None:
    number = next(number for number, each in enumerate(calm.served) if is_aside(each.body))
    served = changed(calm.served, number, b"please", b"now")
    assert {fault.kind for fault in by.conversation(journal(calm.home), served)} == {"lost"}


def test_a_side_call_that_is_not_charged_is_seen(calm: Evidence) -> None:
    rows = journal(calm.home)
    assert not list(by.money(rows, calm.served))
    bodies(rows, "SideCallEnded")[0]["cost_microusd"] = 0
    assert {fault.kind for fault in by.money(rows, calm.served)} == {"unreported"}


def test_a_side_call_without_an_outcome_and_one_with_two_are_seen(calm: Evidence) -> None:
    rows = journal(calm.home)
    ended = next(row for row in rows if row["type"] == "SideCallEnded")
    without = [row for row in rows if row is not ended]
    assert "lost" in {fault.kind for fault in by.requests(without, calm.served)}
    assert "doubled" in {fault.kind for fault in by.requests([*rows, ended], calm.served)}


def test_a_secret_in_the_home_or_in_a_request_is_seen(calm: Evidence) -> None:
    assert not list(leaks(calm))
    body = calm.served[-1].body + SECRET.encode()
    sent = replace(calm, served=[*calm.served, replace(calm.served[-1], body=body)])
    assert {fault.kind for fault in leaks(sent)} == {"leaked"}
    left = calm.home / "left"
    left.write_text(SECRET)
    assert {fault.kind for fault in leaks(calm)} == {"leaked"}
    left.unlink()
