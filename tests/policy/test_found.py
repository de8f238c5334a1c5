"""What `find` hands on to a program that reads: it runs unasked if it can be nothing but plain files."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.policy.commands import parsed
from holdfast.policy.shell import by_tree
from holdfast.policy.shell_plain import plain_script
from tests.policy.reference import Reference

pytestmark = pytest.mark.requirement("C12")


@pytest.fixture
def tree(reference: Reference) -> Reference:
    """The workspace with a folder of plain files, and folders that have something else."""
    made = {
        "src/a.py": "", "src/b.txt": "", "src/deep/c.py": "",
        "links/a.py": "", "blank/a b.py": "", "quote/a'b.py": "",
        "my dir/a.py": "", "keys/server.key": "", "keys/a.py": "", "lines/a\nb.py": "",
    }  # fmt: skip
    for name in made:
        path = reference.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("words\n")
    (reference.workspace / "links" / "out.py").symlink_to("/etc/hostname")
    (reference.workspace / "links" / "out").symlink_to("/etc")
    return reference


READS = [
    "find src -name '*.py' -exec wc -l {} +",
    "find . -name '*.txt' -exec cat {} \\;",
    "find src ..data -type f -exec grep -n x {} +",
    "find src -type f -not -name '*.md' -exec head -5 {} \\;",
    "find links -name 'a.py' -exec cat {} +",
    "find links -type f -name '*.py' -exec cat {} +",
    "find blank -name '*.py' -exec wc -l {} +",
    "find lines -type f -exec wc -l {} +",
    "find src -name '*.py' -exec sed -n 1,5p {} \\;",
    "find src -name '*.py' -exec awk 'NR > 2' {} +",
    "find src -name '*.py' -exec timeout 5 md5sum {} +",
    "find src -name '*.py' | xargs wc -l",
    "find src -name '*.py' -print0 | xargs -0 wc -l",
    "find blank 'my dir' -name '*.py' -print0 | xargs -0 -n1 cat",
    "find src -name '*.py' | xargs -I{} head -3 {}",
    "find src -name '*.py' | grep -v deep | sort | head -n 5 | xargs -r wc -l",
    "cd src && find . -name '*.py' | xargs wc -l",
    "find src -name '*.py' 2>/dev/null | xargs wc -l",
    "for f in *.md; do wc -l < \"$f\"; done",
    "for f in src/*.py; do head $f; done",
    "for f in *.md; do head $f; done",
    "for f in src/deep/*; do head -5 $f; done",
    "git ls-files '*.txt' | xargs wc -l",
    "git ls-files src | xargs grep -n x",
    "git ls-files -z 'src/*.py' | xargs -0 wc -l",
]  # fmt: skip


@pytest.mark.parametrize("text", READS)
async def test_what_reads_nothing_but_plain_files_runs(tree: Reference, text: str) -> None:
    found = await tree.verdict("command", text)
    assert (found.verdict, found.rule) == ("allow", "proved"), found.reason


@pytest.mark.parametrize(
    "text",
    [
        # another file than those that are looked at, or an option
        "for f in links/*; do head $f; done",
        "for f in blank/*; do head $f; done",
        "for f in -*.md; do head $f; done",
        "for f in src/*.py; do cp $f ..data/y; done",
        "for f in src/*.py; do head -n $f; done",
        "git ls-files links | xargs cat",
        "git ls-files -o --exclude-standard src | xargs cat",
        "git ls-files 'blank/*.py' | xargs cat",
        "git ls-files ':!src' | xargs cat",
        "git ls-files '*.py' | xargs rm",
        "cd src && git ls-files . | xargs cat",
        "find links -name '*.py' -exec cat {} +",
        "find links -exec cat {} +",
        "find links -name 'a*' -o -exec cat {} \\;",
        "find links -not -name 'out*' -exec cat {} +",
        "find links ! -type f -exec cat {} +",
        "find links -exec cat {} + -name 'a.py'",
        "find links -exec echo -name a.py \\; -exec cat {} +",
        "find links -printf -name -exec cat {} +",
        "find links -newermt -name -exec cat {} +",
        "find links -not \\( -name 'x' \\) -exec cat {} +",
        "find -L src -name '*.py' -exec cat {} +",
        "find src -name '*.py' -execdir cat {} +",
        'find src -name "$X" -exec cat $Y {} +',
        "find blank -name '*.py' | xargs wc -l",
        "find quote -name '*.py' | xargs wc -l",
        "find lines -name '*.py' | xargs wc -l",
        "find 'my dir' -name '*.py' | xargs wc -l",
        "find src -name '*.py' -print0 | xargs wc -l",
        "find src -name '*.py' | xargs -0 wc -l",
        "find src -name '*.py' | xargs -d x wc -l",
        "find src -name '*.py' | xargs -a list.txt wc -l",
        "find src -name '*.py' | xargs wc -l < list.txt",
        "find src -name '*.py' 2>&1 | xargs wc -l",
        "find src -name '*.py' |& xargs wc -l",
        "find src -printf '%p -x\\n' | xargs wc -l",
        "find src -ls | xargs wc -l",
        "find src -exec cat a.txt \\; | xargs wc -l",
        "find src -name '*.py' | sed s/a/b/ | xargs wc -l",
        "find src -name '*.py' | grep -n a | xargs wc -l",
        "find src -name '*.py' | grep -r a | xargs wc -l",
        "find src -name '*.py' | grep 5 list.txt | xargs wc -l",
        "find src -name '*.py' | grep -e a list.txt | xargs wc -l",
        "find src -name '*.py' | grep a < list.txt | xargs wc -l",
        "find src -name '*.py' | head -c 5 | xargs wc -l",
        "find src -name '*.py' | sort list.txt | xargs wc -l",
        "find src -name '*.py' | (cat list.txt) | xargs wc -l",
        "find [l]inks -name '*.py' | xargs cat",
        "find [l]inks -name '*.py' -exec cat {} +",
        "find $X -name '*.py' | xargs cat",
        "for x in [l]inks; do find $x -name '*.py' | xargs cat; done",
        "x='links src'; find $x -name '*.py' | xargs cat",
        "cat list.txt | xargs wc -l",
        "find src -name '*.py'; cat list.txt | xargs wc -l",
        "find src -name '*.py' | while read x; do echo $x; done | xargs wc -l",
        "xargs wc -l",
        # a program that does more than read what it is given
        "find src -name '*.py' -exec sort -o {} a.txt \\;",
        "find src -name '*.py' -exec uniq {} +",
        "find src -name '*.py' -exec xxd {} +",
        "find src -name '*.py' -exec sed -i s/a/b/ {} +",
        "find src -name '*.py' -exec sed {} +",
        "find src -name '*.py' -exec awk {} +",
        "find src -name '*.py' -exec awk -f {} a.txt \\;",
        "find src -name '*.py' -exec jq {} +",
        "find src -name '*.py' -exec grep -e {} +",
        "find src -name '*.py' -exec grep -f {} +",
        "find src -name '*.py' -exec head -n {} +",
        "find src -name '*.py' -exec wc --files0-from={} \\;",
        "find src -name '*.py' -exec sh -c 'cat $1' x {} \\;",
        "find src -name '*.py' -exec sh -c 'cat {}' \\;",
        "find src -name '*.py' -exec {} \\;",
        "find src -name '*.py' -exec env {} \\;",
        "find src -name '*.py' -exec env X={} ls \\;",
        "find src -name '*.py' -exec python {} \\;",
        "find src -name '*.py' -exec tee {} +",
        "find src -name '*.py' -exec cp {} b \\;",
        "find src -name '*.py' -exec rm {} +",
        "find src -name '*.py' -exec touch {} +",
        "find src -name '*.py' -exec git log {} +",
        "find src -name '*.py' -exec test -v {} \\;",
        "find src -name '*.py' | xargs rm",
        "find src -name '*.py' | xargs sed",
        "find src -name '*.py' | xargs awk",
        "find src -name '*.py' | xargs env",
        "find src -name '*.py' | xargs sort -o a.txt",
        "find src -name '*.py' | xargs -I{} sh -c 'cat {}'",
    ],
)
async def test_what_may_read_or_do_something_else_asks(tree: Reference, text: str) -> None:
    (tree.workspace / "list.txt").write_text("/etc/hostname\n")
    assert (await tree.verdict("command", text)).verdict != "allow"


@pytest.mark.parametrize(
    "text",
    [
        "touch 'src/a -o a.txt'; find src | xargs sort",
        "mkdir 'src/a --compress-program=.' && find src | xargs sort",
        "echo x > 'src/a --files0-from=list.txt'; find src | xargs wc -l",
        "x='src/a b'; touch $x 'src/c d'; find src | xargs wc -l",
        "tee 'src/a -x' < a.txt; find src -name 'a*' | xargs wc -l",
        "ln -s ../src src/new; find src -exec cat {} +",
    ],
)
async def test_what_the_same_text_makes_may_be_found_too(tree: Reference, text: str) -> None:
    assert (await tree.verdict("command", text)).verdict == "ask"


async def test_a_plain_file_that_the_same_text_makes_does_no_harm(tree: Reference) -> None:
    for text in (
        "find src -name '*.py' | xargs wc -l > counts.txt",
        "mkdir src/new; find src -name '*.py' -exec wc {} +",
    ):
        assert (await tree.verdict("command", text)).rule == "proved"


async def test_a_folder_with_a_secret_file_is_not_read_unasked(tree: Reference) -> None:
    for text in ("find keys -type f -exec cat {} +", "find keys -type f | xargs cat", "find . -exec cat {} +",
                 "find keys -name '*.k*' -exec cat {} +", "find keys -exec grep -r x {} +"):  # fmt: skip
        assert (await tree.verdict("command", text)).verdict != "allow", text


async def test_a_name_that_git_prints_may_be_taken_for_an_option(tree: Reference) -> None:
    texts = ("git ls-files '*.txt' | xargs wc -l", "git ls-files src | xargs wc -l")
    (tree.workspace / "-x.txt").write_text("words\n")
    assert [(await tree.verdict("command", text)).verdict for text in texts] == ["ask", "allow"]


@pytest.mark.parametrize("name", ["-n.md", "a b.md", "link.md"])
async def test_a_name_that_a_loop_may_hand_on_as_something_else_asks(tree: Reference, name: str) -> None:
    place = tree.workspace / name
    place.symlink_to("/etc/hostname") if name == "link.md" else place.write_text("words\n")
    assert (await tree.verdict("command", "for f in *.md; do head $f; done")).verdict != "allow"


async def test_names_in_a_loop_are_secret_where_they_match_one(tree: Reference) -> None:
    texts = ("for f in keys/*; do cat $f; done", "for f in keys/*.key; do wc -l $f; done")
    assert [(await tree.verdict("command", text, "full")).verdict for text in texts] == ["deny", "deny"]


async def test_the_question_says_what_a_move_would_change(tree: Reference) -> None:
    (tree.workspace / "only").mkdir()
    for text, why in (
        ("mv MISSING x", "MISSING is not there yet."),
        ("mv src/a.py x", "src/a.py is a file that no file tool wrote."),
        ("mv only x", "only is a folder."),
    ):
        assert why in (await tree.verdict("command", text)).reason


async def test_a_folder_outside_of_the_workspace_stays_denied(tree: Reference) -> None:
    for text in ("find /etc -name hostname -exec cat {} +", "find link_out/ -name hostname | xargs cat"):
        assert (await tree.verdict("command", text)).verdict == "deny", text


def test_both_readers_of_texts_say_what_xargs_reads() -> None:
    for text in (
        "find a | xargs wc",
        "ls; find a | sort | xargs wc",
        "a | xargs b | xargs c",
        "a | b 2>/dev/null | xargs c",
    ):
        plain = plain_script(text, "")
        assert plain is not None
        assert plain.commands == by_tree(text.encode()).commands
        assert any(command.feeds for command in plain.commands)
    assert not any(step.command.feeds for step in parsed("find a 2>&1 | xargs wc").simple)


NAMES = [
    "a.py",
    "b.py",
    "x y.py",
    "-n.py",
    "q'.py",
    "d/e.py",
    "d f/g.py",
    "s\\t.py",
    "n\nl.py",
    "z.txt",
    "[i].py",
    "é.py",
]
FINDS = ["", "-name '*.py'", "-type f", "-name 'a*'", "! -name '*.txt'", "-name '*.py' -o -name '*.txt'",
         "-maxdepth 1", "-type f -name '*.py'", "-path '*d*'", "-prune", "-name d -prune -o -print"]  # fmt: skip
HANDS = ["-exec ./x {} +", "-exec ./x {} ';'", "| xargs ./x", "-print0 | xargs -0 ./x", "| sort -r | xargs ./x",
         "| grep -v z | xargs -n1 ./x", "| head -n 2 | xargs ./x", "| xargs -I{} ./x {}"]  # fmt: skip


def folders_with_commands(reference: Reference, seed: int, count: int) -> Iterator[tuple[Path, str]]:
    """Folders with strange names in them, each with a command that hands names on to a program."""
    chance = random.Random(seed)
    for number in range(count):
        folder = reference.workspace / f"t{number}"
        for name in chance.sample(NAMES, 4):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("words\n")
        if chance.random() < 0.3:
            (folder / "l.py").symlink_to("/etc/hostname")
        text = f"find {folder.name} {chance.choice(FINDS)} {chance.choice(HANDS)}"
        yield folder, text


def handed_on(text: str, folder: Path, told: Path) -> list[str]:
    """The words that a program gets which writes them to a file."""
    told.write_text("")
    subprocess.run(["bash", "-c", text], cwd=folder, timeout=20, check=False, capture_output=True)
    return [*filter(None, told.read_text().split("\0"))]


@pytest.mark.parametrize("count", [60, pytest.param(1_500, marks=pytest.mark.long)])
async def test_bash_hands_on_nothing_but_plain_files(reference: Reference, count: int) -> None:
    """A program that writes down its words runs in the place of one that reads and is proved."""
    told = reference.folder / "told"
    recorder = reference.workspace / "x"
    recorder.write_text(f'#!/bin/sh\nfor each; do printf "%s\\0" "$each" >> {told}; done\n')
    recorder.chmod(0o755)
    proved = 0
    for folder, text in folders_with_commands(reference, 3, count):
        found = await reference.checker("supervised").subject("command", text.replace("./x", "cat"))
        if found.verdict != "allow":
            continue
        proved += 1
        for each in handed_on(text, reference.workspace, told):
            assert each == folder.name or each.startswith(f"{folder.name}/"), text
            path = reference.workspace / each
            assert path.exists(), text
            assert not path.is_symlink(), text
    assert proved > count / 6
