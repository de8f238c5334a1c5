"""The judge finds nothing wrong with a session with hooks that nobody tortured, and sees every forgery of it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.torture.calm import played_once
from tests.torture.evidence import EFFECTS, HOOKS, LEDGER, Evidence, Fault, journal
from tests.torture.hands_judge import heard, judge_hands, marks, pace, permissions
from tests.torture.hands_scene import HandsServer, hands_scene
from tests.torture.rounds import calm_round, gather, own_view

pytestmark = pytest.mark.long  # as what it judges: `test_judge` shows every day that a judge sees forgeries
CALM = 35
"""A seed whose session patches files, runs commands, and is decided about later."""


def kinds(evidence: Evidence) -> set[str]:
    return {fault.kind for fault in judge_hands(evidence, is_hooked=True, most_actions=600)}


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A session that nobody tortured."""

    def play(folder: Path) -> Evidence:
        gathered = gather(calm_round, CALM, folder, HandsServer, hands_scene)
        assert [*own_view(gathered)] == []
        assert kinds(gathered.evidence) == set()
        return gathered.evidence

    return played_once(tmp_path_factory, "hands", play)


@pytest.fixture
def forged(calm: Evidence, tmp_path: Path) -> Evidence:
    """A copy of it, to be forged."""
    folder = shutil.copytree(calm.folder, tmp_path / "round", symlinks=True)
    return replace(calm, folder=folder, home=folder / "home", workspace=folder / "workspace")


def effects(evidence: Evidence) -> list[Fault]:
    return [*marks(journal(evidence.home), evidence, is_hooked=True)]


def test_a_file_of_a_patch_that_is_gone_is_lost_and_half_a_patch_is_damage(forged: Evidence) -> None:
    next((forged.workspace / "made").glob("*a.txt")).unlink()
    assert {fault.kind for fault in effects(forged)} == {"lost", "damaged"}


def test_a_line_of_a_patch_that_came_twice_is_doubled(forged: Evidence) -> None:
    ledger = forged.workspace / LEDGER
    ledger.write_text(ledger.read_text() * 2)
    assert "doubled" in {fault.kind for fault in effects(forged)}


def test_a_command_that_ran_twice_is_doubled(forged: Evidence) -> None:
    log = forged.workspace / EFFECTS
    log.write_text(log.read_text() + next(line for line in log.read_text().splitlines() if "begun" in line))
    assert [fault.kind for fault in effects(forged)] == ["doubled"]


def test_a_hook_that_heard_nothing_of_what_is_recorded_is_told_of(forged: Evidence) -> None:
    log = forged.folder / HOOKS / "hooks.log"
    log.write_text("")
    found = [*heard(journal(forged.home), log)]
    assert {fault.kind for fault in found} == {"unreported"}
    assert any("the hook was not asked" in fault.what for fault in found)


def test_what_was_recorded_of_no_hook_is_lost(calm: Evidence) -> None:
    rows = [row for row in journal(calm.home) if row["type"] != "HookEnded"]
    assert {fault.kind for fault in heard(rows, calm.folder / HOOKS / "hooks.log")} == {"lost"}


def test_a_call_that_nobody_approved_is_told_of(calm: Evidence) -> None:
    rows = [row for row in journal(calm.home) if row["type"] != "ApprovalResolved"]
    assert any(fault.kind == "unreported" for fault in permissions(rows))


def test_calls_beyond_the_limit_of_an_hour_are_told_of(calm: Evidence) -> None:
    assert any(fault.kind == "unreported" for fault in pace(journal(calm.home), 1))
