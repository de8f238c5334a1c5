"""A failing k-th disk call, for every k, in every stage of a short run, in every way; a table is printed at the end.

Each slice takes a few minutes. A round is played again with the command that its fault names.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.torture.disk import STAGES, WAYS, Bench, Result, bench, table, told

PARTS = 3

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler for the shim"),
]


@pytest.fixture(scope="module")
def made() -> Iterator[Bench]:
    with bench() as made:
        yield made


@pytest.fixture(scope="module")
def results(pytestconfig: pytest.Config) -> Iterator[list[Result]]:
    """All that was played; told at the end."""
    results: list[Result] = []
    yield results
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and results:
        reporter.write_line(f"\n{table(results)}")


@pytest.mark.requirement("L7", "H1", "H3")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stage", STAGES)
def test_nothing_is_lost_doubled_or_unreported_when_a_disk_call_fails(
    made: Bench, results: list[Result], stage: str, way: str, part: int
) -> None:
    count = made.count(stage, way)
    assert count > PARTS, "the shim sees the calls"
    played = [made.play(stage, way, k) for k in range(1 + part, count + 1, PARTS)]
    results += played
    assert any(result.met and result.code == 9 for result in played), "the faults are felt"
    assert not [told(result) for result in played if result.faults]
