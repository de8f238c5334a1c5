"""What bash runs for random texts, beside what the reader says: nothing may run that it does not name."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path

import pytest

from holdfast.policy.shell import read_script
from holdfast.policy.simple import Script, Word

BASH = shutil.which("bash")
NUMBERS = count()
RECORDS = """\
FUNCNEST=6
command_not_found_handle() {
    local line
    printf -v line '%s\\037' "$PWD" "$@"
    printf '%s\\036' "$line" >> "$LOG"
    return $RC
}
"""
"""Bash calls this for each program that it does not find, and it finds none."""
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
    lines = log.read_bytes().decode("utf-8", "replace").split("\036")
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


def is_named(script: Script, workspace: Path, folder: str, words: Sequence[str]) -> bool:
    for command in script.commands:
        after = command.words[1:] if command.words and command.words[0].text == "time" else command.words
        if fits(command.words, words) or fits(after, words):
            folders = [os.path.realpath(workspace / each) for each in command.folders]
            if not command.is_folder_known or folder in folders:
                return True
    return False


def compare(folder: Path, seed: int, texts: int) -> int:
    """Compare so many texts that are understood, and return how many programs ran."""
    chance, ran = random.Random(seed), 0
    (folder / "ws" / "x" / "y").mkdir(parents=True)
    (folder / "home").mkdir()
    (folder / "records.sh").write_text(RECORDS)
    workspace = (folder / "ws").resolve()
    while texts:
        text = text_of(chance)
        script = read_script(text, str(folder / "home"), str(workspace))
        if script.unread or script.hidden:
            continue
        texts -= 1
        for place, *words in what_runs(folder, text, chance.randint(0, 1)):
            assert is_named(script, workspace, place, words), (text, place, words)
            ran += 1
    return ran


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.requirement("C12")
def test_nothing_runs_that_the_reader_does_not_name(tmp_path: Path) -> None:
    assert compare(tmp_path, 1, 60) > 30


@pytest.mark.long
@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_nothing_runs_that_the_reader_does_not_name_in_many_texts(tmp_path: Path) -> None:
    assert compare(tmp_path, 2, 20_000) > 10_000
