"""What no source file may hold, as far as its syntax tree can show it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.commands import COMMANDS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "holdfast"
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8")) for path in FILES}

MAY_ASK_THE_TIME = ("clock.py", "testing/clock.py", "providers/errors.py")
"""All other files get the time as an argument. A date in a Retry-After header is compared with this machine's
clock."""
LONGEST_SLEEP_S = 60
ABSOLUTE = re.compile(r"/(?:etc|home|usr|var|tmp|root|opt|mnt|work|Users)(?:/|$)")
NAMES_PATHS_TO_GUARD = ("policy/", "config/paths.py", "sandbox/", "tools/workspace.py")
"""Rooms whose subject is the machine's own folders."""


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call with its dotted name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def found(wrong: object) -> list[str]:
    """The places, as FILE:LINE, where the predicate on (file, node) holds."""
    assert callable(wrong)
    return [
        f"{file}:{getattr(node, 'lineno', 0)}"
        for file, tree in TREES.items()
        for node in ast.walk(tree)
        if wrong(file, node)
    ]


def is_docstring_free(tree: ast.Module) -> bool:
    return not ast.get_docstring(tree)


def written(piece: ast.expr) -> str:
    return str(piece.value) if isinstance(piece, ast.Constant) else "X"


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every text of a file that is not a docstring, with its line. Values in it are written as X."""
    nodes = list(ast.walk(tree))
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    pieces = {id(piece) for node in nodes if isinstance(node, ast.JoinedStr) for piece in node.values}
    for node in nodes:
        if id(node) in docs | pieces:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(map(written, node.values))


def test_a_command_in_a_sentence_stands_in_backticks_so_that_it_is_made_copyable() -> None:
    commands = re.compile(
        rf"(?<!`)holdfast (?:{'|'.join(row.name for rows in COMMANDS.values() for row in rows)})\b"
    )
    wrong = [
        f"{file}:{line}"
        for file, tree in TREES.items()
        for line, text in texts(tree)
        if (match := commands.search(text)) and match.start() and "\b" not in text
    ]
    # A line that is a list of pieces is shown as it is: only its spans can be commands.
    wrong += found(
        lambda _, n: (
            isinstance(n, ast.Yield)
            and isinstance(n.value, ast.List)
            and "`holdfast " in ast.unparse(n.value)
        )
    )
    assert wrong == []


def test_every_module_says_what_it_is_for() -> None:
    assert [file for file, tree in TREES.items() if is_docstring_free(tree)] == []


@pytest.mark.requirement("L11")
def test_no_except_is_bare() -> None:
    assert found(lambda _, n: isinstance(n, ast.ExceptHandler) and n.type is None) == []


@pytest.mark.requirement("L11")
def test_nothing_is_evaluated_or_executed_as_code() -> None:
    names = {"eval", "exec", "compile", "__import__", "os.system", "pickle.loads", "marshal.loads"}
    assert [f"{f}:{c.lineno}" for f, t in TREES.items() for name, c in calls(t) if name in names] == []


@pytest.mark.requirement("L11")
def test_there_is_no_global_mutable_state() -> None:
    assert found(lambda _, n: isinstance(n, ast.Global)) == []
    mutable = (ast.List, ast.Set, ast.Dict)
    wrong = [
        f"{file}:{node.lineno}"
        for file, tree in TREES.items()
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, mutable)
        if not re.match(r"__all__|_?[A-Z][A-Za-z0-9_]* ?[:=]", ast.unparse(node))
    ]
    assert wrong == [], "what a module holds is constant, and named so"


@pytest.mark.requirement("L11")
def test_no_default_is_mutable() -> None:
    def is_mutable(_: str, node: ast.AST) -> bool:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
        return any(isinstance(d, ast.List | ast.Dict | ast.Set) for d in defaults)

    assert found(is_mutable) == []


@pytest.mark.requirement("L11")
def test_nothing_is_left_to_be_done() -> None:
    words = re.compile(r"\b(?:TODO|FIXME|HACK)\b")
    assert [str(p) for p in FILES if words.search(p.read_text("utf-8"))] == []


@pytest.mark.requirement("L11")
def test_no_path_of_a_machine_is_written_into_the_code() -> None:
    def is_hard_coded(file: str, node: ast.AST) -> bool:
        return (
            not file.startswith(NAMES_PATHS_TO_GUARD)
            and isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and ABSOLUTE.match(node.value) is not None
        )

    assert found(is_hard_coded) == []


@pytest.mark.requirement("L11")
def test_no_sleep_is_unbounded() -> None:
    def is_endless(argument: ast.expr) -> bool:
        text = ast.unparse(argument)
        is_long = isinstance(argument, ast.Constant) and float(str(argument.value)) > LONGEST_SLEEP_S
        return is_long or "inf" in text

    wrong = [
        f"{file}:{call.lineno}"
        for file, tree in TREES.items()
        for name, call in calls(tree)
        if name.endswith("sleep") and call.args and is_endless(call.args[0])
    ]
    assert wrong == []


@pytest.mark.requirement("L11")
def test_http_connections_come_from_one_pool_or_belong_to_one_call() -> None:
    """A pooled connection was judged for another call, so the tools of the web keep none."""
    makers = {f for f, t in TREES.items() for name, _ in calls(t) if name.endswith("ClientSession")}
    assert makers <= {"providers/http.py", "tools/egress.py"}


def test_only_the_clock_asks_the_time() -> None:
    asked = {"time.time", "time.time_ns", "datetime.now", "datetime.datetime.now", "datetime.utcnow"}
    wrong = [
        f"{file}:{call.lineno}"
        for file, tree in TREES.items()
        for name, call in calls(tree)
        if name in asked and file not in MAY_ASK_THE_TIME
    ]
    assert wrong == []


@pytest.mark.requirement("A16")
def test_the_shape_of_the_code_stays_within_its_limits(shared: Path) -> None:
    tool = shared / "tools" / "style_metrics.py"
    told = subprocess.run(
        [sys.executable, tool, SOURCE, "--limits"], capture_output=True, text=True, timeout=120, check=False
    )
    assert told.returncode == 0, told.stderr
