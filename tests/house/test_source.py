"""What no source file may hold, as far as its syntax tree can show it."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.commands import COMMANDS
from tests.house.trees import FILES, SOURCE, nodes, trees

MAY_ASK_THE_TIME = ("clock.py", "testing/clock.py", "providers/errors.py")
"""All other files get the time as an argument. A date in a Retry-After header is compared with this machine's
clock."""
LONGEST_SLEEP_S = 60
ABSOLUTE = re.compile(r"/(?:etc|home|usr|var|tmp|root|opt|mnt|work|Users)(?:/|$)")
NAMES_PATHS_TO_GUARD = ("policy/", "config/paths.py", "sandbox/", "tools/unfit.py", "tools/workspace.py")
"""Rooms whose subject is the machine's own folders."""

CHANGING = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem", "remove",
     "setdefault", "update"}
)  # fmt: skip
"""What changes a collection."""
MUTABLE = frozenset({"list", "dict", "set", "deque", "defaultdict", "OrderedDict", "Counter", "bytearray"})
TAKES_A_PATH = frozenset(
    {"Path", "open", "mkdir", "makedirs", "unlink", "remove", "rename", "replace", "stat", "lstat", "exists", "isdir",
     "isfile", "listdir", "scandir", "rmtree", "symlink", "readlink"}
)  # fmt: skip
BOUNDED = {
    "app.py:factory": "one entry for each name in the code, and each that the configuration has",
    "cli/commands.py:command_of": "the commands of the table",
    "cli/editor.py:deque": "what a person typed during one turn",
    "context/clip_json.py:deque": "the parts of one value, whose size has a bound",
    "core/rules.py:_rules_at": "one entry for each moment of a turn",
    "runtime/mailbox.py:deque": "what one session does at once, and the commands that its inbox holds",
    "sandbox/process.py:deque": "cut to `kept_bytes` with each chunk",
    "sandbox/system.py:deque": "the folders below one place, whose names are counted",
    "sandbox/system.py:secrets_at": "one system",
    "storage/sqlite.py:deque": "one connection for each thread that reads",
    "storage/writer.py:SimpleQueue": "filled up to `capacity`; then senders wait",
    "storage/writer.py:deque": "senders that wait, each in a task of its own",
    "tools/background.py:deque": "cut to `KEPT_CHARS` with each piece",
    "tools/folders.py:deque": "the folders of one workspace, whose names are counted",
    "tools/workspace.py:deque": "the folders of one workspace, whose names are counted",
    "tools/led.py:deque": "what is followed, up to a number of folders and of configurations",
    "tools/other_names.py:deque": "folders, whose names are counted",
    "tools/pool.py:deque": "the sessions with calls that wait, while places are given away",
    "tools/repository.py:sweep": "one folder of the machine",
}
"""What bounds each collection that has no bound of its own."""
COUNTS_TESTS = "core/evidence.py"
"""Looks in outputs for the last line of a test program, like `3 passed, 1 error`."""


@functools.cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """All calls: file, dotted name and node."""
    return [(file, ast.unparse(node.func), node) for file, node in nodes() if isinstance(node, ast.Call)]


def found(wrong: object) -> list[str]:
    """The places, as FILE:LINE, where the predicate on (file, node) holds."""
    assert callable(wrong)
    return [f"{file}:{getattr(node, 'lineno', 0)}" for file, node in nodes() if wrong(file, node)]


def is_docstring_free(tree: ast.Module) -> bool:
    return not ast.get_docstring(tree)


def written(piece: ast.expr) -> str:
    return str(piece.value) if isinstance(piece, ast.Constant) else "X"


def texts() -> Iterator[tuple[str, str]]:
    """Every text that is not a docstring, with its FILE:LINE. Values in it are written as X."""
    others = {id(node.value) for _, node in nodes() if isinstance(node, ast.Expr)}
    others |= {id(piece) for _, node in nodes() if isinstance(node, ast.JoinedStr) for piece in node.values}
    for file, node in nodes():
        if id(node) in others:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f"{file}:{node.lineno}", node.value
        elif isinstance(node, ast.JoinedStr):
            yield f"{file}:{node.lineno}", "".join(map(written, node.values))


def test_a_command_in_a_sentence_stands_in_backticks_so_that_it_is_made_copyable() -> None:
    commands = re.compile(
        rf"(?<!`)holdfast (?:{'|'.join(row.name for rows in COMMANDS.values() for row in rows)})\b"
    )
    wrong = [
        place
        for place, text in texts()
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
    assert [file for file, tree in trees().items() if is_docstring_free(tree)] == []


@pytest.mark.requirement("L11")
def test_no_except_is_bare() -> None:
    assert found(lambda _, n: isinstance(n, ast.ExceptHandler) and n.type is None) == []


@pytest.mark.requirement("L11")
def test_nothing_is_opened_twice_so_that_a_descriptor_stays_open_if_the_second_fails() -> None:
    """`opener=by(...)` of `holdfast.opening` does the same, and closes a folder that cannot be read."""
    given = ((file, call.args[0]) for file, name, call in calls() if name == "open" and call.args)
    opened = [(file, each) for file, each in given if isinstance(each, ast.Call)]
    assert [f"{file}:{each.lineno}" for file, each in opened if ast.unparse(each.func) == "os.open"] == []


@pytest.mark.requirement("L11")
def test_nothing_is_evaluated_or_executed_as_code() -> None:
    names = {"eval", "exec", "compile", "__import__", "os.system", "pickle.loads", "marshal.loads"}
    assert [f"{file}:{call.lineno}" for file, name, call in calls() if name in names] == []


@pytest.mark.requirement("L11")
def test_there_is_no_global_mutable_state() -> None:
    assert found(lambda _, n: isinstance(n, ast.Global)) == []
    mutable = (ast.List, ast.Set, ast.Dict)
    wrong = [
        f"{file}:{node.lineno}"
        for file, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, mutable)
        if not re.match(r"__all__|_?[A-Z][A-Za-z0-9_]* ?[:=]", ast.unparse(node))
    ]
    assert wrong == [], "what a module holds is constant, and named so"


@pytest.mark.requirement("L11")
def test_nothing_changes_what_a_module_holds() -> None:
    held = {file: set(held_by(tree)) for file, tree in trees().items()}
    assert found(lambda file, node: changed_by(node) in held[file]) == []


def held_by(tree: ast.Module) -> Iterator[str]:
    """The names that a module gives to values, at its top."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def changed_by(node: ast.AST) -> str:
    """The name of the collection that a piece of code changes; empty if it changes none."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return ast.unparse(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
        return ast.unparse(node.func.value)
    return ""


@pytest.mark.requirement("L11")
def test_no_default_is_mutable() -> None:
    def is_mutable(_: str, node: ast.AST) -> bool:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
        return any(isinstance(d, ast.List | ast.Dict | ast.Set) or made_by(d) in MUTABLE for d in defaults)

    assert found(is_mutable) == []


def made_by(node: ast.AST) -> str:
    """The last name of what is called; empty if nothing is."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


@pytest.mark.requirement("L11")
def test_no_path_is_put_together_as_text() -> None:
    def is_joined(argument: ast.expr) -> bool:
        pieces = [argument.left, argument.right] if isinstance(argument, ast.BinOp) else []
        if isinstance(argument, ast.JoinedStr):
            pieces = argument.values
        said = [str(each.value) for each in pieces if isinstance(each, ast.Constant)]
        return any("/" in each for each in said) or any(map(is_joined, pieces if not said else []))

    wrong = [
        f"{file}:{call.lineno}"
        for file, name, call in calls()
        if name.rpartition(".")[2] in TAKES_A_PATH and name != "plain.replace"
        if any(is_joined(each) and "/proc/" not in ast.unparse(each) for each in call.args)
    ]
    assert wrong == []


@pytest.mark.requirement("A6")
def test_nobody_looks_in_a_text_for_the_word_error_to_see_whether_something_failed() -> None:
    def looks(file: str, node: ast.AST) -> bool:
        if file == COUNTS_TESTS:
            return False
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            texts = [node.left]
        elif made_by(node) in ("startswith", "removeprefix", "find", "match", "search", "fullmatch"):
            assert isinstance(node, ast.Call)
            texts = node.args
        else:
            return False
        return any(isinstance(text, ast.Constant) and is_error_word(text.value) for text in texts)

    assert found(looks) == []


def is_error_word(value: object) -> bool:
    return isinstance(value, str) and re.match(r"\W*(?:error|exception|traceback)\b", value, re.I) is not None


@pytest.mark.requirement("A3")
def test_a_collection_without_a_bound_of_its_own_says_what_bounds_it() -> None:
    """The cache of a function with arguments, and a queue, grow with use."""
    unbounded = {
        f"{file}:{node.name}"
        for file, node in nodes()
        if isinstance(node, ast.FunctionDef) and node.args.args
        if {ast.unparse(each) for each in node.decorator_list} & {"cache", "functools.cache"}
    } | {
        f"{file}:{name}"
        for file, name, call in calls()
        if name.rpartition(".")[2] in ("Queue", "SimpleQueue", "deque", "lru_cache")
        if not {each.arg for each in call.keywords} & {"maxlen", "maxsize"}
        if len(call.args) < (2 if name.endswith("deque") else 1)
    }
    assert unbounded == set(BOUNDED)


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
        for file, name, call in calls()
        if name.endswith("sleep") and call.args and is_endless(call.args[0])
    ]
    assert wrong == []


@pytest.mark.requirement("L11")
def test_http_connections_come_from_one_pool_or_belong_to_one_call() -> None:
    """A pooled connection was judged for another call, so the tools of the web keep none."""
    makers = {file for file, name, _ in calls() if name.endswith("ClientSession")}
    assert makers <= {"providers/http.py", "tools/egress.py"}


def test_only_the_clock_asks_the_time() -> None:
    asked = {"time.time", "time.time_ns", "datetime.now", "datetime.datetime.now", "datetime.utcnow"}
    wrong = [
        f"{file}:{call.lineno}"
        for file, name, call in calls()
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
