"""Which calls are the same call, and which commands only look."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.protocol.evidence import Likeness
from holdfast.sandbox.process import Processes
from holdfast.tools.background import Background
from holdfast.tools.fencing import Fences
from holdfast.tools.own import OwnPlaces
from holdfast.tools.sameness import PARSED_CHARS, is_answer, likeness_of
from holdfast.tools.search import Grep
from holdfast.tools.shell import Shell

WORKSPACE = "/w/space"
SHELL, GREP = Shell(Background(), Fences(OwnPlaces(), "/")).spec, Grep(Processes(), OwnPlaces()).spec


def of(command: str, workspace: str = WORKSPACE, **values: Any) -> Likeness:
    return likeness_of(SHELL, {"command": command, **values}, workspace)


SAME = {
    "spaces": ("make  test", " make test\n"),
    "comments": ("make test # once more", "make test"),
    "lines of comments": ("# try it\nmake test", "make test"),
    "dots before paths": ("cat ./a/b.txt", "cat a/b.txt"),
    "the workspace": (f"cat {WORKSPACE}/a.txt", "cat a.txt"),
    "naps": ("sleep 1; cat a", "sleep 2.5; cat a"),
    "empty lines": ("a\n\n\nb", "a\nb"),
}
OTHER = {
    "spaces in quotes": ("echo 'a  b'", "echo 'a b'"),
    "spaces in double quotes": ('echo "a  b"', 'echo "a b"'),
    "a number sign in a word": ("echo a#b", "echo a#c"),
    "a number sign in quotes": ("echo '# a'", "echo '# b'"),
    "documents": ("cat <<X\n a\nX", "cat <<X\n  a\nX"),
    "lines": ("a\nb", "a b"),
    "folders above": ("cat ../a", "cat a"),
}


@pytest.mark.requirement("C4", "B3")
@pytest.mark.parametrize("commands", SAME.values(), ids=SAME.keys())
def test_spellings_of_a_command_are_the_same_call(commands: tuple[str, str]) -> None:
    assert of(commands[0]) == of(commands[1], timeout_s=5)


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("commands", OTHER.values(), ids=OTHER.keys())
def test_commands_that_mean_something_else_are_other_calls(commands: tuple[str, str]) -> None:
    assert of(commands[0]).digest != of(commands[1]).digest


@pytest.mark.parametrize(
    "command",
    ["ls -la", "cat a | grep b | head -5", "cd x && git status", "git log --oneline", "find . -name x",
     "grep -rn x . 2>/dev/null || true", "sleep 3; tail -n 5 log", "[ -s a ]", "echo hello"],
)  # fmt: skip
def test_a_command_of_programs_that_read_only_looks(command: str) -> None:
    assert of(command).only_looks


@pytest.mark.parametrize(
    "command",
    ["make", "cat a > b", "echo x >> log", "find . -delete", "find . -fprint out", "find . -exec rm {} +",
     "ls $(touch x)", "ls `touch x`", "git commit", "git", "touch a", "sort -o a a", "cat <(touch x)", "xargs rm < a",
     "python3 -c ''", "sh -c 'touch x'", "", "ls; rm a",
     "cat " + "a" * 5_000],
)  # fmt: skip
def test_a_command_that_may_write_does_not_only_look(command: str) -> None:
    assert not of(command).only_looks


@pytest.mark.requirement("C4")
def test_a_search_is_compared_by_where_it_searches(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()
    place = str(tmp_path)
    one, two, elsewhere = (
        of(f"grep -n {word} {name}", place) for word, name in [("x", "a.py"), ("y", "a.py"), ("x", "b.py")]
    )
    assert one.place == two.place != elsewhere.place
    assert one.digest != two.digest
    tool = [
        likeness_of(GREP, {"pattern": word, "path": path}, place)
        for word, path in [("x", "a.py"), ("y", "./a.py"), ("x", "b.py")]
    ]
    assert tool[0].place == tool[1].place != tool[2].place
    assert tool[0].digest != tool[1].digest


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(
    ("command", "exit_code", "is_so"),
    [
        ("grep -n x a", 1, True),
        ("cat a | grep x", 1, True),
        ("diff a b", 1, True),
        ("test -s a", 1, True),
        ("grep -n x a", 2, False),
        ("make && grep x a", 1, False),
        ("cat a", 1, False),
        ("grep x a | sh", 1, False),
        ("python3 -m pytest", 1, False),
    ],
)
def test_an_exit_code_that_is_an_answer_is_no_failure(command: str, exit_code: int, is_so: bool) -> None:
    assert is_answer(command, exit_code) == is_so


def test_a_command_that_may_run_in_hundreds_of_folders_is_not_looked_through_in_each() -> None:
    command = "".join(f"cd d{number}; cat f; " for number in range(230))
    looked: list[object] = []
    sys.setprofile(lambda *_: looked.append(None))
    try:
        likeness = likeness_of(SHELL, {"command": command}, "/w")
    finally:
        sys.setprofile(None)
    assert len(command) < PARSED_CHARS
    assert not likeness.only_looks
    assert len(looked) < 500_000
