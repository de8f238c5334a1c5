"""`python -m benchmarks` has the sections that it names. What they measure is not looked at here."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest
from benchmarks import __main__ as benchmarks

FOLDER = Path(inspect.getfile(benchmarks)).parent
DOCS = FOLDER.parent / "docs" / "benchmarks.md"


def test_the_help_lists_each_section(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--help"])
    with pytest.raises(SystemExit) as ended:
        benchmarks.main()
    assert ended.value.code == 0
    listed = re.split(r"[\s,;]+", capsys.readouterr().out)
    assert {*benchmarks.SECTIONS} <= {*listed}


@pytest.mark.parametrize("name", benchmarks.SECTIONS)
def test_a_section_says_what_it_measures_and_its_module_exists(name: str) -> None:
    section = benchmarks.SECTIONS[name]
    assert (section.__doc__ or "").strip().endswith(".")
    modules = re.findall(r'fresh\("(\w+)"', inspect.getsource(section))
    assert [module for module in modules if not (FOLDER / f"{module}.py").is_file()] == []


def test_each_measurement_is_a_section_or_in_the_docs() -> None:
    said = (benchmarks.__doc__ or "") + DOCS.read_text("utf-8")
    files = [each for each in FOLDER.glob("[!_]*.py") if "\ndef main()" in each.read_text("utf-8")]
    assert files
    assert [each.stem for each in files if not re.search(rf"\b{each.stem}\b", said)] == []


def test_an_unknown_section_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "nosuch"])
    with pytest.raises(SystemExit):
        benchmarks.main()
    assert "no such section: nosuch" in capsys.readouterr().err
