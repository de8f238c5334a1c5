"""No tool cuts the detail of a failure, and no decision or refusal cuts what it quotes: that is masked later, and
nothing finds a part of a value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "src" / "holdfast" / "tools"
RESULTS = ("RawResult", "NoResponse")


def cuts_in(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Slice) for each in ast.walk(node)
    )


def cut_details(tree: ast.Module) -> Iterator[int]:
    """The lines where the detail of a result is cut, also one that is made before."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in RESULTS:
            details = [each.value for each in call.keywords if each.arg == "detail"]
            details += call.args[1:] if call.func.id == "NoResponse" else call.args[2:3]
            yield from (each.lineno for each in details if cuts_in(each))
        if isinstance(call, ast.Assign) and cuts_in(call.value):
            for target in call.targets:
                name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
                if name == "detail":
                    yield call.lineno


def test_no_tool_cuts_the_detail_of_a_failure_before_it_is_masked() -> None:
    found = {
        f"{path.name}:{line}"
        for path in TOOLS.glob("*.py")
        if path.name != "dispatcher.py"  # lines of code, without their values
        for line in cut_details(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set()


def test_a_cut_detail_is_seen() -> None:
    for code in (
        'RawResult("error", "x", detail=a[-9:])',
        'RawResult("error", "x", a[:9])',
        "detail = a[:9]",
    ):
        assert [*cut_details(ast.parse(code))] == [1]
    assert not [*cut_details(ast.parse('RawResult("error", a[:9], detail=a)'))]


def cut_quotations(tree: ast.Module) -> Iterator[int]:
    """The lines where the beginning of something is written into a sentence."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Subscript):
            part = node.value.slice
            upper = part.upper if isinstance(part, ast.Slice) else None
            if isinstance(upper, ast.Constant) and isinstance(upper.value, int) and upper.value >= 20:
                yield node.lineno


def test_nothing_that_decides_or_refuses_cuts_what_it_quotes() -> None:
    found = {
        f"{path.name}:{line}"
        for room in (TOOLS, TOOLS.with_name("policy"))
        for path in room.glob("*.py")
        for line in cut_quotations(ast.parse(path.read_text(encoding="utf-8")))
        if path.name not in ("checking.py", "read_output.py")  # what a person types, and hashes
    }
    assert found == set()
