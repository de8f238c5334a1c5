"""What bash runs for random texts, beside what the reader says: nothing may run that it does not name."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path

import pytest

from holdfast.policy.commands import Command, parsed
from holdfast.policy.programs import uses_of
from holdfast.policy.simple import SimpleCommand, Word

BASH = shutil.which("bash")
NUMBERS = count()
RECORDS = """\
FUNCNEST=6
command_not_found_handle() {
    local line
    printf -v line '%s\\037' "$PWD" "$@"
    line=${line//$'\\n'/$'\\035'}
    printf '%s\\036' "$line" >> "$LOG"
    return $RC
}
"""
"""Bash calls this for each program that it does not find, and it finds none. It writes a line at a time: a program of
several lines would be torn by one that runs beside it."""
TOKENS = [
    "p", "q", "a", "b", "-n", "x", "x/y", "*", "[a]", ".e*", "\\ ", "\\", "\\\\", "\n", "\\\n", " ", " ",
    " ", " ", ";", "&&", "||", "|", "|&", "&", "(", ")", "{ ", "}", "{", "{a,b}", "{1..3}", ",", "..", '"',
    "'", "$'", "`", "$(", "$((", "))", "$x", "${x}", "${x:-y}", "$HOME", "$PWD", "~", "~/", "x=1", "x=p",
    "a=(1 2)", "if ", "; then ", "; fi", "for i in a b; do ", "; done", "while false; do ", "case a in ",
    "a) ", ";; ", "esac", "f() ", "f", "cd x", "cd ..", "cd", ">", ">>", "<", "2>&1", ">o", "&>", "<<E\n",
    "<<'E'\n", "<<<", "\nE\n", "#", "! ", "[[ ", " ]]", "[ ", " ]", "-f ", "=", "\t", "$", '"$x"', '"$(p)"',
    "@", "%", "p a", "echo", "true", "export x=1", '"a b"', "'c d'", "<(p)", "$i", '"$i"', "é", "$@", "$1",
    "$#", "${x@P}", "((1))", "\\$",
]  # fmt: skip
SHAPES = [
    "p a; %s", "%s; p", "%s && p", 'p "%s"', "$(%s)", "`%s`", "p $(%s)", "(%s)", "{ %s; }",
    "if %s; then %s; fi", "for i in %s; do %s; done", "f() { %s; }; f", "%s | %s", "%s || %s",
    "p <<E\n%s\nE\nq", "case %s in a) %s;; esac", "%s\n%s", "cd x && %s; %s", "x=%s; p $x", 'p "$(%s)" %s',
    "p %s > o", "! %s", "[[ %s ]] && %s", "p {%s,%s}", "p '%s'", "p ${x:-%s}", "p <(%s)", "%s # c\n%s",
    'p %s"%s"',
]  # fmt: skip


STATEMENTS = [
    "p @W", "p @W @W", 'p $@N "$@N"', "p $@N/y ${@N}", "q ${@N}.md", "p > $@N", "@N=@W", "@N=@W p $@N",
    "@N=@W :", "@N+=@W",
    "@N=(@W @W)", "@N=([@W]=@W)", "@N=(@W [@W]+=@W)", "@N[@W]=@W", "for @N in @W @W; do @S; done",
    "for @N; do @S; done",
    "select @N in @W @W; do @S; break; done <<< 1", "for ((@N=1; @N<3; @N++)); do @S; done", "((@N=2))", "let @N=2",
    ": ${@N:=@W}", ": $((@N=3))", "read @N <<< @W", "read -r @N @N <<< '@W b'", "read -a @N <<< @W",
    "printf -v @N %s @W",
    "printf -v '@N[@W]' %s @W", "mapfile -t @N <<< @W", "getopts ab @N -a", "wait -n -p @N", "coproc @N { p; }",
    "export @N=@W", "export @N", "export -n @N", "export @N={@W,@W}", "declare @A @N", "declare @A @N=@W",
    "declare @A @N=(@W)", "typeset @A @N", "readonly @N=@W", "readonly @N", "readonly @N={@W,@W}",
    "command readonly @N=@W", "builtin declare @A @N", "f() { local @A @N=@W; @S; }; f", "f() { @S; }; @N=@W f",
    "unset @N", "unset '@N[@W]'", "exec {@N}>o", "p {@N}>o", "eval '@N=@W'", "eval @S", "trap '@N=@W' DEBUG",
    "trap '@S' EXIT", "set -- @W @W", "set -@W", "if @T; then @S; fi", "while @T; do @S; break; done", "@T && @S",
    "! @T || @S", "@T", "@T > o", "if @S; then @S; else @S; fi", "case @W in @W) @S;; @W|@W) @S;; esac",
    "(@S); @S", "{ @S; }", "@S | @S", "@S & @S", "bash -c '@S'", "x=@W; p $x", "test @W @W", "test -v @W",
    "cd x && @S && cd .. && @S", "time @S", "p $(@S)", "PATH=x @S", "for PATH in x; do @S; done", "x=@W; p $x$y",
]  # fmt: skip
PARTS: dict[str, list[str]] = {
    "@W": ["a", "b", "AB", "x", "y", "1", "x/y", "a,b", "'a b'", "$x", '"$y"', "${x}", "a$y", "{a,B}", "'a[$(p s)]'",
           "a[1]", "*", "$(p)", "-v", "~", '""', "[a]", "PATH=x", "'x[$(p t)]=1'", "\\[b", "]", "="],
    "@N": ["x", "y", "x", "y", "PATH", "IFS", "_", "HOME", "REPLY"],
    "@T": ["[ @W ]", "[ @W = @W ]", "[ @W || p @W ]", "[ @W | p @W ]", "[ @W & p @W ]", "[ @W > o ]", "[ @W > @W ]",
           "[ @W && @W || p ]", "[ -v @W ]", "[ ! @W >> o ]", "[ @W -a @W < x ]", "[ @W == @W* ]", "[ -n @W -o @W ]",
           "[ @W; p @W ]", "[ @W == b|p ]", "[ @W == b;p ]", "[[ @W ]]", "[[ @W == @W ]]", "[[ @W == b* ]]",
           "[[ @W || p ]]", "[[ @W && ! @W ]]", "[[ @W =~ ^(a|b)+$ ]]", "[[ @W =~ @W ]]", "[[ @W =~ b;p ]]",
           "[[ @W -eq @W ]]", "[[ -v @W ]]", "[[ @W < @W ]]", "[[ (@W) && @W ]]", "[[ @W == @(a|b) ]]",
           "[[ @W == b ]] > o", "((@N == 1))", "test @W = @W", "test @W || p @W"],
    "@S": ["p $x", 'p "$y"', "q $@N", "p @W > $x", "@N=@W", "p $x$y", "export @N=@W", "p ${x}/y", "p"],
    "@A": ["-l", "-u", "-i", "-r", "-n", "-a", "-A", "-x", "-g", "-lx", "+x", "--"],
}  # fmt: skip
"""Whatever gives a variable its value, and tests: the first of each ends the nesting."""
PROGRAM = """#!/bin/sh
printf '%s\\037' "$PWD" /from/a/folder "$@" >> "$LOG"
printf '\\036' >> "$LOG"
"""
"""What a changed PATH would find."""


def made_by(chance: random.Random) -> str:
    """Statements about a few variables and tests, which bash understands most of the time."""
    shapes = [chance.choice(STATEMENTS) for _ in range(chance.randint(1, 4))]
    return chance.choice(["; ", "\n", " && "]).join([*(filled(shape, chance) for shape in shapes), "p $x $y"])


def filled(shape: str, chance: random.Random, depth: int = 0) -> str:
    """A shape with its places filled: @W a word, @N a variable, @T a test, @S a statement, @A an attribute."""
    parts = re.split(r"(@[WNTSA])", shape)
    for at, part in enumerate(parts):
        if part in PARTS:
            chosen = PARTS[part][0] if depth > 2 else chance.choice(PARTS[part])
            parts[at] = filled(chosen, chance, depth + 1)
    return "".join(parts)


def text_of(chance: random.Random, depth: int = 0) -> str:
    if depth < 3 and chance.random() < 0.55:
        shape = chance.choice(SHAPES)
        return shape % tuple(text_of(chance, depth + 1) for _ in range(shape.count("%s")))
    return "".join(chance.choice(TOKENS) for _ in range(chance.randint(1, 6)))


def what_runs(folder: Path, text: str, code: int) -> list[list[str]]:
    """The folder and the words of each program that bash would run."""
    log = folder / f"log{next(NUMBERS)}"  # what runs in the background may still write to the one before
    log.write_bytes(b"")
    environ = {
        "PATH": "/nonexistent", "HOME": str(folder / "home"), "BASH_ENV": str(folder / "records.sh"), "LOG": str(log),
        "RC": str(code), "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        subprocess.run([str(BASH), "-c", text], cwd=folder / "ws", env=environ, timeout=3, **quiet)  # type: ignore[call-overload]
    except subprocess.TimeoutExpired:
        return []
    lines = log.read_bytes().decode("utf-8", "replace").replace("\035", "\n").split("\036")
    return [line.split("\037")[:-1] for line in lines if line.count("\037") > 1]


def fits(words: Sequence[Word], given: Sequence[str]) -> bool:
    """Whether a program may get these words. A word that is not known may be any words."""
    if not words:
        return not given
    first, rest = words[0], words[1:]
    if not first.is_known:
        return any(fits(rest, given[taken:]) for taken in range(len(given) + 1))
    if first.is_glob and given and fnmatchcase(given[0], first.text) and fits(words, given[1:]):
        return True
    is_it = bool(given) and (given[0] == first.text or (first.is_glob and fnmatchcase(given[0], first.text)))
    return is_it and fits(rest, given[1:])


def is_named(commands: Sequence[SimpleCommand], workspace: Path, folder: str, words: Sequence[str]) -> bool:
    for command in commands:
        after = command.words[1:] if command.words and command.words[0].text == "time" else command.words
        if fits(command.words, words) or fits(after, words):
            folders = [os.path.realpath(workspace / each) for each in command.folders]
            if not command.is_folder_known or folder in folders:
                return True
    return False


def is_proved(command: Command) -> bool:
    """Whether nothing but the programs, which are not known, makes a person look."""
    asking = (step.command for step in command.simple if step.uses.asks or step.uses.denies)
    return not command.unread and not command.hidden and all(map(is_only_unknown, asking))


def is_only_unknown(command: SimpleCommand) -> bool:
    variables = uses_of(command._replace(words=()))
    return command.words[:1] in ((Word("p"),), (Word("q"),)) and not variables.asks


def are_named(commands: Sequence[SimpleCommand], names: set[str]) -> bool:
    """Whether a redirection may make each of these files."""
    targets = [each.target for command in commands for each in command.redirections]
    return all(
        any(not target.is_known or Path(target.text).name == name for target in targets) for name in names
    )


def compare(
    folder: Path,
    seed: int,
    texts: int,
    made: Callable[[random.Random], str] = text_of,
    *,
    is_whole: bool = False,
) -> int:
    """Compare so many texts that are understood, and return how many programs ran.

    Args:
        folder: A place for files.
        seed: Where chance begins.
        texts: How many.
        made: Makes a text.
        is_whole: Whether a text counts only if nothing in it makes a person look. Then no file may be made that no
            redirection names.
    """
    chance, ran = random.Random(seed), 0
    (folder / "ws" / "x" / "y").mkdir(parents=True)
    (folder / "home").mkdir()
    (folder / "records.sh").write_text(RECORDS)
    for name in ("p", "q"):
        (folder / "ws" / "x" / name).write_text(PROGRAM)
        (folder / "ws" / "x" / name).chmod(0o700)
    workspace = (folder / "ws").resolve()
    programs = {workspace / "x" / "p", workspace / "x" / "q"}
    while texts:
        text = made(chance)
        command = parsed(text, str(folder / "home"), str(workspace))
        if command.unread or command.hidden or (is_whole and not is_proved(command)):
            continue
        texts -= 1
        commands = [step.command for step in command.simple]
        for place, *words in what_runs(folder, text, chance.randint(0, 1)):
            assert is_named(commands, workspace, place, words), (text, place, words)
            ran += 1
        if is_whole:
            new = {path for path in workspace.rglob("*") if path.is_file()} - programs
            assert are_named(commands, {path.name for path in new}), (text, new)
            for path in new:
                path.unlink()
    return ran


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.requirement("C12")
def test_nothing_runs_that_the_reader_does_not_name(tmp_path: Path) -> None:
    assert compare(tmp_path, 1, 60) > 30


@pytest.mark.long
@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_nothing_runs_that_the_reader_does_not_name_in_many_texts(tmp_path: Path) -> None:
    assert compare(tmp_path, 2, 20_000) > 10_000


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.requirement("C12")
def test_variables_and_tests_are_what_bash_makes_of_them(tmp_path: Path) -> None:
    assert compare(tmp_path, 3, 60, made_by, is_whole=True) > 30


@pytest.mark.long
@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_variables_and_tests_are_what_bash_makes_of_them_in_many_texts(tmp_path: Path) -> None:
    assert compare(tmp_path, 4, 20_000, made_by, is_whole=True) > 10_000
