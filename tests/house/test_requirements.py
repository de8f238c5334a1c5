"""The page of requirements is generated, complete and fresh."""

from __future__ import annotations

from pathlib import Path

from tests.house.requirements import PAGE, is_known, load_rows, read_marks, render


def test_the_committed_page_of_requirements_is_fresh() -> None:
    assert PAGE.read_text("utf-8") == render(), "run: sh script/requirements"


def test_every_mark_names_a_row() -> None:
    rows = load_rows()
    assert [mark for mark in read_marks() if not is_known(mark, rows)] == []


def test_a_row_without_a_test_is_printed_as_missing() -> None:
    shown = read_marks()
    bare = [row for row in load_rows() if row not in shown]
    assert render().count("- **missing**") == len(bare)


def test_marks_are_read_from_functions_classes_and_modules(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_x.py").write_text(
        'import pytest\npytestmark = pytest.mark.requirement("A1")\n'
        '@pytest.mark.requirement("L6.3", "C2")\nasync def test_f(): ...\n'
        '@pytest.mark.requirement("C3")\nclass TestG:\n'
        '    @pytest.mark.requirement("C4")\n    def test_h(self): ...\n'
    )
    assert read_marks(tests) == {
        "A1": ["tests/test_x.py"],
        "L6": ["tests/test_x.py::test_f"],
        "C2": ["tests/test_x.py::test_f"],
        "C3": ["tests/test_x.py::TestG"],
        "C4": ["tests/test_x.py::TestG::test_h"],
    }
