"""What the table calls harmless is run: the real programs change nothing then, and start nothing."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from holdfast.policy.programs import PROGRAMS_THAT_LOOK, uses_of
from holdfast.policy.programs_languages import is_plain_awk, is_plain_sed
from holdfast.policy.simple import SimpleCommand, Word

NEVER_END = {"sleep", "tail", "wait", "arch", "hostname"}
RUNNABLE = sorted(name for name in PROGRAMS_THAT_LOOK if shutil.which(name) and name not in NEVER_END)
VALUES = ("a.txt", "out", "./x", "1", "sub", "list", "out/../out2", "s/a/b/", ".")
GIT = (
    "status",
    "diff",
    "log",
    "show",
    "grep",
    "blame",
    "ls-files",
    "branch",
    "tag",
    "shortlog",
    "ls-tree",
    "rev-parse",
)


@cache
def options(program: str) -> tuple[str, ...]:
    """The options that the program itself tells, with values."""
    words = ["git", program.partition(" ")[2], "-h"] if program.startswith("git ") else [program, "--help"]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        stdin=subprocess.DEVNULL,
        errors="replace",
    )
    names = sorted(set(re.findall(r"(?<![\w-])--?[A-Za-z0-9][A-Za-z0-9-]*", done.stdout + done.stderr)))
    return tuple(each for name in names for each in _forms(name))


def _forms(name: str) -> Iterator[str]:
    yield name
    for value in VALUES[:4]:
        yield f"{name}={value}" if name.startswith("--") else f"{name}{value}"
    if name.startswith("--"):
        yield name[:5]
        yield f"{name[:6]}=./x"


def words_of(program: str) -> st.SearchStrategy[list[str]]:
    pool = [*options(program), *VALUES, *VALUES, *VALUES]
    return st.lists(st.sampled_from(pool), max_size=5)


COMMANDS = st.sampled_from([*RUNNABLE, *(f"git {name}" for name in GIT)]).flatmap(
    lambda program: words_of(program).map(lambda words: [*program.split(), *words])
)


def is_harmless(words: Sequence[str]) -> bool:
    found = uses_of(SimpleCommand(tuple(map(Word, words))))
    is_alone = not (found.inner or found.scripts or found.sends or found.asks or found.denies)
    return is_alone and all(use.access == "read" for use in found.files)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a program that leaves a mark when it runs."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "sub").mkdir()
    (folder / "a.txt").write_text("a b\nb c\nTODO\n")
    (folder / "list").write_text("a.txt\n")
    (folder / "sub" / "b.py").write_text("print(1)\n")
    (folder / "x").write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    (folder / "x").chmod(0o755)
    for words in (["init", "-q"], ["add", "a.txt"], ["commit", "-qm", "first"]):
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t.example", *words],
            cwd=folder,
            check=True,
            timeout=60,
        )
    return folder


def seen(folder: Path) -> dict[str, bytes]:
    """Every file with its content. git may refresh its index."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
        if path.name != "index"
    }


def run(words: Sequence[str], folder: Path) -> None:
    try:
        subprocess.run(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=2,
            check=False,
            env={"PATH": os.environ["PATH"], "HOME": str(folder / "sub"), "LANG": "C.UTF-8"},
        )
    except (subprocess.TimeoutExpired, ValueError):
        assume(False)


def runs_without_a_trace(words: Sequence[str], folder: Path) -> None:
    before = seen(folder)
    run(words, folder)
    assert seen(folder) == before, words


@pytest.mark.requirement("C12")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
@given(words=COMMANDS)
def test_a_command_that_only_looks_leaves_no_trace(folder: Path, words: list[str]) -> None:
    assume(is_harmless(words))
    runs_without_a_trace(words, folder)


@pytest.mark.long
@settings(
    max_examples=800,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(words=COMMANDS)
def test_hundreds_of_commands_that_only_look_leave_no_trace(folder: Path, words: list[str]) -> None:
    assume(is_harmless(words))
    runs_without_a_trace(words, folder)


PIECES = [
    *(
        "s",
        "/",
        "|",
        "a",
        "e",
        "p",
        "g",
        "d",
        ";",
        "1",
        "$",
        ",",
        "!",
        "{",
        "}",
        "\\",
        "y",
        "[",
        "]",
        ":l",
        "w",
        "I",
    ),
    *(
        "q",
        "n",
        "0",
        "~",
        "+",
        "#",
        "i",
        "c",
        "./x",
        "s/a/b/",
        "s|a|./x|",
        "s/a/b/e",
        "s/a/b/p",
        " ",
        "\n",
        "w out",
    ),
]
SED = st.lists(st.sampled_from([*PIECES, "r list", "1e"]), max_size=9).map("".join)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(script=SED)
def test_a_plain_script_of_sed_leaves_no_trace(folder: Path, script: str) -> None:
    assume(is_plain_sed(script))
    runs_without_a_trace(["sed", "-n", script, "a.txt"], folder)


@pytest.mark.long
@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(script=SED)
def test_hundreds_of_plain_scripts_of_sed_leave_no_trace(folder: Path, script: str) -> None:
    assume(is_plain_sed(script))
    runs_without_a_trace(["sed", "-n", script, "a.txt"], folder)


AWK = st.lists(
    st.sampled_from(
        [*"{}();,!/#|><=&~$1\"\\ \n?:[]", "print ", "print", "printf ", "||", "&&", ">=", "<=", ">>", "|&", "BEGIN",
         '"out"', '"./x"', '"a > b"', "/a|b/", '"\\""', "x", "NR", " > ", " | ", '> "out"', '| "./x"', "{print}", "}",
         "{print $1 ", '"', ";", "if (", "/\"/", "a/", "# \"", "\\\n", "length", "$1", "else ", "while (", "in ",
         "END", "function f(a) "]
    ),
    max_size=9,
).map("".join)  # fmt: skip
AWKS = [name for name in ("awk", "mawk", "gawk", "original-awk") if shutil.which(name)]


@pytest.mark.parametrize("name", AWKS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(program=AWK)
def test_a_plain_program_of_awk_leaves_no_trace(folder: Path, name: str, program: str) -> None:
    assume(is_plain_awk(program))
    runs_without_a_trace([name, program, "a.txt"], folder)


@pytest.mark.long
@pytest.mark.parametrize("name", AWKS)
@settings(max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(program=AWK)
def test_thousands_of_plain_programs_of_awk_leave_no_trace(folder: Path, name: str, program: str) -> None:
    assume(is_plain_awk(program))
    runs_without_a_trace([name, program, "a.txt"], folder)


WRITES = st.sampled_from(
    [
        name
        for name in ("mkdir", "touch", "rm", "rmdir", "tee", "ln", "cp", "mv", "sed", "sort", "uniq")
        if shutil.which(name)
    ]
).flatmap(lambda program: words_of(program).map(lambda words: [program, *words]))


def writes_only_what_it_names(words: Sequence[str]) -> None:
    found = uses_of(SimpleCommand(tuple(map(Word, words))))
    assume(not (found.asks or found.denies))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "sub").mkdir()
        for name in ("a.txt", "list", "sub/b"):
            (folder / name).write_text(f"{name}\n")
        before = seen(folder)
        run(words, folder)
        after = seen(folder)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    named = [(posixpath.normpath(use.word.text), use.access) for use in found.files if use.access != "read"]
    for name in changed:
        # With `-p`, `mkdir` makes the folders above, and `mv` takes along what is below.
        assert any(
            path == name or path.startswith(f"{name}/") or (access == "tree" and name.startswith(f"{path}/"))
            for path, access in named
        ), (words, changed, named)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
@given(words=WRITES)
def test_a_command_that_writes_changes_only_what_the_table_names(words: list[str]) -> None:
    writes_only_what_it_names(words)


@pytest.mark.long
@settings(
    max_examples=800, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
@given(words=WRITES)
def test_hundreds_of_commands_that_write_change_only_what_the_table_names(words: list[str]) -> None:
    writes_only_what_it_names(words)


def test_what_the_table_does_not_call_harmless_does_leave_one(folder: Path) -> None:
    """The check can fail: it sees what a command wrote and what it ran."""
    for words in (
        ["sort", "-o", "out", "a.txt"],
        ["sed", "s/a/b/w out", "a.txt"],
        ["find", ".", "-exec", "./x", ";"],
    ):
        assert not is_harmless(words) or not is_plain_sed(words[1])
        with pytest.raises(AssertionError):
            runs_without_a_trace(words, folder)
        for name in ("out", "ran"):
            (folder / name).unlink(missing_ok=True)
