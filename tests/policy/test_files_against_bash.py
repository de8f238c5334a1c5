"""Bash writes no other file than the one that the reader of commands names as the target of a redirection."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.policy.shell import read_script

BEFORE = ("", "x=b; ", "x='b c'; ", "x=~; ", "x='*'; ", "export x=b; ", "x=b y=c; ", "x={d..d}; ", "cd s; ",
          "x=$'\\x62'; ")  # fmt: skip
PIECES = ("a", "b", "{c..c}", "{d,d}", "{e}", "'f'", '"g"', "$'\\x68'", "\\i", "~", "$x", "${x}", '"$x"', "${x:-z}",
          "-", "=", "{", "}", "[a]", "?", "$(echo q)", "#", "%", "+", "@", ":", "^", "!", "{1..1}", "{j..j..2}", "$y",
          "'{k..k}'", "\\{l..l}", ",", "..", "${x}{m..m}", "$'\\''")  # fmt: skip
OPERATORS = (">", ">>", ">|", "&>", "2>", ">&", "1>", "3>")


def check(folder: Path, seed: int, count: int) -> int:
    """Run random texts. Return how many of them the reader understood."""
    chance, understood = random.Random(seed), 0
    home = folder / "home"
    for _ in range(count):
        target = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 4)))
        text = f"{chance.choice(BEFORE)}echo hi {chance.choice(OPERATORS)}{chance.choice(('', ' '))}{target}"
        script = read_script(text, str(home), str(folder))
        named = [(each.folders, to.target) for each in script.commands for to in each.redirections]
        if script.unread or not all(target.is_known for _, target in named):
            continue
        understood += 1
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "s").mkdir(parents=True)
        home.mkdir()
        subprocess.run(
            ["bash", "-c", text],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(home)},
            capture_output=True,
            timeout=20,
            check=False,
        )
        made = {str(path) for path in folder.rglob("*") if path.is_file()}
        told = {
            os.path.normpath(folder / each / target.text) for folders, target in named for each in folders
        }
        assert made <= told, text
    return understood


@pytest.mark.requirement("C12")
def test_bash_writes_only_the_files_that_a_text_names(tmp_path: Path) -> None:
    assert check(tmp_path / "work", 7, 300) > 20


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_bash_writes_only_the_files_that_many_texts_name(tmp_path: Path, seed: int) -> None:
    assert check(tmp_path / "work", seed, 5_000) > 400
