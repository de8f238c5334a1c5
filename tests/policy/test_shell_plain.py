"""Plain texts are read by a pattern: whatever it accepts, the syntax tree reads in the same way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.policy.shell import by_tree, read_script
from holdfast.policy.shell_plain import plain_script
from tests.seeds import many

ATOMS = [
    "ls", "cd", "cat", "-la", "src", "..", "/", "README.md", "'a b'", '"x y"', "' '", "''", '""', '"\'"', "'\"'",
    "'é$`'", '"é#;|&"', "echo", "rm", "-rf", "if", "then", "fi", "in", "do", "read", "x", "time", "-", "--", "test",
    "eval", "bash", "-c", "'*.py'", "2", "-1", "+", "%", "@", "x@y:z", ":", ",", ".", "./x", "a=b", "a:b", "b=", "=",
    "/bin/ls", "pushd", "popd", "command", "builtin", "printf", "-v", "function", "case", "set", "export", "A=1",
    "1a", "'1'", "--x=y", "--x='y'", "==", "2>&1", "2>/dev/null", ">/dev/null", "2> /dev/null", "2>&12", "2>&1x",
    "1>&2", ">/dev/null2", ">&2", "$x", "*", "~", "#", "\\", "`p`", "$(p)", "{a,b}", "(p)", "!", "\t", "é", "<",
]  # fmt: skip
BETWEEN = [
    " ",
    " ",
    " ",
    " ",
    "  ",
    "",
    " && ",
    " || ",
    "; ",
    " | ",
    "&&",
    "||",
    ";",
    "|",
    " & ",
    "\n",
    "|&",
    ";;",
]
TEXTS = st.lists(st.tuples(st.sampled_from(ATOMS), st.sampled_from(BETWEEN)), min_size=1, max_size=7).map(
    lambda parts: "".join([part for pair in parts for part in pair])
)


def check_plain(text: str) -> None:
    plain = plain_script(text, "/home/ann")
    if plain is None:
        return
    read = by_tree(text.encode(), "/home/ann", "/ws")
    assert read.unread or plain._replace(is_plain=False) == read


@pytest.mark.requirement("L2")
@settings(max_examples=many(600), deadline=None)
@given(TEXTS)
def test_a_plain_text_is_read_as_its_tree_is(text: str) -> None:
    check_plain(text)


@pytest.mark.long
@settings(max_examples=10_000, deadline=None)
@given(TEXTS)
def test_any_of_many_plain_texts_is_read_as_its_tree_is(text: str) -> None:
    check_plain(text)


@pytest.mark.parametrize(
    "text",
    ["ls", "ls -la;", "cd src && ls || cat 'a b' | wc -l; git log --oneline", "pytest -q 2>&1 | tail -5",
     "grep -rn \"def f\" . 2>/dev/null", "make >/dev/null 2>&1 && echo done", "cd && read x && cd && ls"],
)  # fmt: skip
def test_what_people_write_most_is_plain(text: str) -> None:
    plain = plain_script(text, "/home/ann")
    assert plain is not None
    assert plain._replace(is_plain=False) == by_tree(text.encode(), "/home/ann", "/ws")


@pytest.mark.parametrize(
    "text",
    ["ls $x", "ls *", "ls ~", "x=1 ls", "ls > out", "ls 2>&12", "ls >/dev/nullx", "ls 2>&1 -a", "time ls", "if a",
     "ls &", "ls\nls", "a&&&b", "ls;;", "! ls", "ls 'a", "ls a'b'", "&& ls", "ls | | wc", "ls" + " " * 300 + "rm x"],
)  # fmt: skip
def test_everything_else_is_left_to_the_tree(text: str) -> None:
    assert plain_script(text, "/home/ann") is None


def test_only_literal_words_may_be_allowed_by_a_rule() -> None:
    assert read_script("ls -la | wc -l").is_plain
    assert not read_script("ls -la 2>&1").is_plain
