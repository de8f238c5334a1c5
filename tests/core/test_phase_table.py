"""The table of phases in ARCHITECTURE.md says what the code does."""

from __future__ import annotations

from tests.core.phases import BEGIN, END, IN_PHASE, PAGE, table


def test_the_committed_table_of_phases_is_fresh() -> None:
    _, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    assert rest.partition(END)[0] == table(), "run: python -m tests.core.phases"


def test_the_table_has_a_row_for_each_phase_and_names_what_is_wanted() -> None:
    rows = table().splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == list(IN_PHASE)
    assert "| preparing | PrepareRequest |" in table()
    assert "| idle | - |" in table()
