"""What commands that are made to take long cost: twice the length costs at most about twice as much."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.policy.commands import catastrophe, parsed
from holdfast.policy.rules import judge
from holdfast.policy.shell import read_script
from holdfast.policy.shell_text import MAX_COMMANDS, MAX_PIPES, MAX_TEXT_BYTES, Unreadable, encoded, tree_of
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.rules import PolicyRule
from holdfast.protocol.settings import Policy, settings_with
from holdfast.protocol.tools import ToolSpec
from holdfast.tools.facts import facts_of
from holdfast.tools.own import OwnPlaces
from tests.growth import grows_in_line

SHELL = ToolSpec("shell", "", {}, effect="exec", source="builtin", kinds={"command": "command"})
UNITS = {
    "parentheses": "(", "double parentheses": "((", "substitutions": "$(", "nested commands": "echo $(",
    "back-ticks": "`", "braces": "{a,b}", "open braces": "{", "many braces": "{a,b}{a,b}{a,b} ",
    "ranges": "{1..9} ", "semicolons": ";", "commands": "a;", "quotes": "'", "double quotes": '"',
    "quoted substitutions": '"$(', "documents": "cat <<A\n", "documents on a line": "<<A ",
    "whole documents": "cat <<A\nx\nA\n", "arrays": "a=(", "redirections": "<", "files": ">a ",
    "subscripts": "a[", "pipes": "a|", "lists": "a&&", "tests": "[[ ( ", "closing": "a)", "dollars": "$",
    "words": "a ", "wildcards": "a* ", "folders above": "../", "loops": "for a in b; do ",
    "whole loops": "for a in b; do c; done; ", "functions": "f(){ ", "expansions": "${a:-",
    "wrappers": "env ", "scripts": "eval ", "folders": "cd a; ", "assignments": "a=b;", "backslashes": "\\",
    "escapes": "$'\\x41' ", "lines": "\n", "secrets": ".env ", "searches": "-exec a {} + ",
    "negations": "! a|", "letters": "a", "branches": "case a in a) ", "conditions": "if a; then ",
    "traps": "trap a 1; ", "patterns": "--include=a ", "attributes": "declare -r a=b; ",
}  # fmt: skip
BEFORE = {"searches": "find . ", "braces": "echo ", "patterns": "grep -r x "}


def text_of(name: str, length: int) -> str:
    return BEFORE.get(name, "") + UNITS[name] * (length // len(UNITS[name]))


def gate(workspace: Path, text: str) -> None:
    """Judge a command anew, with a rule that looks at each program."""
    parsed.cache_clear()
    policy = Policy(deny=(PolicyRule("shell(git push *)"),))
    settings = settings_with(ModelFacts("x", "x"), str(workspace), policy=policy, autonomy="supervised")
    judge(facts_of(SHELL, {"command": text}, settings, OwnPlaces()))


def calls(work: Callable[[], object]) -> int:
    """How many functions of Python and C are called."""
    count = 0

    def profile(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", UNITS)
def test_twice_the_length_of_a_hostile_command_needs_about_twice_the_calls(tmp_path: Path, name: str) -> None:
    gate(tmp_path, "ls")
    once, twice = (calls(lambda n=n: gate(tmp_path, text_of(name, n))) for n in (400, 800))
    assert twice <= 2.5 * once + 500


def is_read(text: str) -> bool:
    """Whether it is within the bounds: of a text that is not, each word is judged as well."""
    return not read_script(text).unread


@pytest.mark.long
@pytest.mark.parametrize("length", [4_000, 7_500, 15_000])
@pytest.mark.parametrize("name", UNITS)
def test_twice_the_length_of_a_long_hostile_command_needs_about_twice_the_calls(
    tmp_path: Path, name: str, length: int
) -> None:
    gate(tmp_path, "ls")
    texts = [text_of(name, n) for n in (length, 2 * length)]
    once, twice = (calls(lambda text=text: gate(tmp_path, text)) for text in texts)
    step = 1 if is_read(texts[0]) == is_read(texts[1]) else 2
    assert twice <= step * 2.5 * once + 500


@pytest.mark.long
@pytest.mark.parametrize("name", UNITS)
def test_the_cost_of_a_hostile_command_and_of_its_tree_grows_with_its_length(
    tmp_path: Path, name: str
) -> None:
    """The calls do not show the time of the parser."""

    def parse(length: int) -> None:
        with suppress(Unreadable):
            tree_of(encoded(text_of(name, length)))

    assert grows_in_line(parse, 3_750)
    assert grows_in_line(lambda length: gate(tmp_path, text_of(name, length)), 3_750)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a;" * (MAX_COMMANDS + 1), "too many commands"),
        ("a|" * (MAX_PIPES + 1), "too many pipes"),
        ("a" * (MAX_TEXT_BYTES + 1), "longer than"),
        ("x " * 20_001, "longer than"),
        ("echo " + "{a,b}" * 11, "too many words"),
        ("echo " + "{1..1000} " * 21, "too"),
        ("echo $(" * 30 + "a" + ")" * 30, "nested too deeply"),
        ("cd a; " * 20 + "cat b", ""),
    ],
)
def test_a_text_beyond_a_bound_is_not_read_further(text: str, why: str) -> None:
    assert why in read_script(text).unread
    assert bool(read_script(text).unread) == bool(why)


def test_the_cost_of_a_path_of_dots_grows_with_its_length() -> None:
    assert grows_in_line(lambda dots: catastrophe(parsed("rm -r /" + "." * dots + "x")), 1_000)
    assert catastrophe(parsed("rm -r /.././..//*"))


FAR_AWAY = """
from holdfast.policy.shell_text import tree_of
for code in range(0x10000, 0x110000, 0x4321):
    for text in ("{%c", "${%c", "a=(%c", "<<%c", "$((%c", "[[ %c"):
        tree_of((text % code).encode())
"""


@pytest.mark.parametrize("attempt", range(6))
def test_no_character_crashes_the_parser(attempt: int) -> None:
    """The grammar looks up characters in memory behind a table. What is there depends on where it was loaded."""
    subprocess.run([sys.executable, "-c", FAR_AWAY], check=True, timeout=60)


def test_the_tree_of_other_scripts_has_the_same_places() -> None:
    (command,) = read_script("cp 'caf\u00e9' \u65e5\u672c/\U0001f600.txt").commands
    assert [word.text for word in command.words] == ["cp", "caf\u00e9", "\u65e5\u672c/\U0001f600.txt"]
    for text in ("$\u00e9", "cat <<\u00e9\nx\n\u00e9", "cat <<ZZ\n\u00e9\nZZ", "\u00e9() { ls; }"):
        assert read_script(text).unread


@pytest.mark.parametrize("delimiter", ["\u00e9", "E\u00e9", "E'\u00e9'", '"\u00e9"'])
def test_a_document_does_not_end_at_a_line_that_looks_alike_to_the_parser(delimiter: str) -> None:
    """The quote would hide what the shell runs behind the true end."""
    end = delimiter.replace("'", "").replace('"', "")
    other = end.replace("\u00e9", "\u00e8")
    assert read_script(f"cat <<{delimiter}\n{other}\necho '\n{end}\n./x #'").unread
