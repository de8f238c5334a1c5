"""The reader of shell texts: what bash would run, word by word, or that it is not understood."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.policy.shell import read_script
from holdfast.policy.shell_text import MAX_COMMANDS, MAX_TEXT_BYTES
from holdfast.policy.simple import Script

HOME, HERE = "/home/ann", "/ws"


def read(text: str) -> Script:
    return read_script(text, HOME, HERE)


def words(text: str) -> list[list[str]]:
    """The words of each command of a text that is understood; `?` stands for one that is only known when it runs."""
    script = read(text)
    assert script.unread == "", (text, script.unread)
    return [
        [word.text if word.is_known else "?" for word in command.words]
        for command in script.commands
        if command.words
    ]


def folders(text: str) -> list[tuple[str, ...] | None]:
    """Where each command may run; None if that is not known."""
    return [command.folders if command.is_folder_known else None for command in read(text).commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls -la", [["ls", "-la"]]),
        ("  ls   -la  ", [["ls", "-la"]]),
        (r"cat a\ b 'c'd\"e\"", [["cat", "a b", 'cd"e"']]),
        (r"cat $'a\tb\x41\u00e9'", [["cat", "a\tbA\u00e9"]]),
        ('r""m -rf x', [["rm", "-rf", "x"]]),
        (r"\rm x", [["rm", "x"]]),
        ('echo "a \\"b\\" \\$c \\d" " " ""', [["echo", 'a "b" $c \\d', " ", ""]]),
        ('echo "100 $ each" "x$" a$', [["echo", "100 $ each", "x$", "a$"]]),
        ("echo ~ ~/x a~ '~'", [["echo", HOME, f"{HOME}/x", "a~", "~"]]),
        ('echo $HOME/x "${HOME}" $PWD', [["echo", f"{HOME}/x", HOME, HERE]]),
        ("echo '$HOME' \\$HOME", [["echo", "$HOME", "$HOME"]]),
        ("echo $x ${x} $1 $? $(ls) `ls` $((1+2))", [["ls"], ["ls"], ["echo", "?", "?", "?", "?", "?", "?", "?"]]),
        ("echo {a,b}c x{1..3} {a,{b,c}} {} {a} x{,y}", [["echo", "ac", "bc", "x1", "x2", "x3", "a", "b", "c", "{}",
                                                        "{a}", "x", "xy"]]),
        ("g{z,}ip a", [["gzip", "gip", "a"]]),
        ("echo '{a,b}' \\{a,b\\} \"{a,b}\"", [["echo", "{a,b}", "{a,b}", "{a,b}"]]),
        ("cat {cat,.env}", [["cat", "cat", ".env"]]),
        ("x=a; cat $x \"$x/b\"", [["cat", "a", "a/b"]]),
        ("x='a b'; cat $x \"$x\" c$x", [["cat", "a", "b", "a b", "?"]]),
        ("x=''; cat $x b", [["cat", "b"]]),
        ("x=a; x=$(ls); cat $x", [["ls"], ["cat", "?"]]),
        ("(x=a); cat $x", [["cat", "?"]]),
        ("x=a; read x; cat $x", [["read", "x"], ["cat", "?"]]),
        ("x=a; if true; then x=b; fi; cat $x", [["true"], ["cat", "?"]]),
        ("for i in a b; do cat $i/c; done", [["cat", "a/c"], ["cat", "b/c"]]),
        ("for i in a b; do for j in c d; do cat $i $j; done; done", [["cat", "?", "c"], ["cat", "?", "d"]]),
        ("while read i; do cat $i; done < list", [["read", "i"], ["cat", "?"]]),
        ("a && b || c; d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a\nb # c; d\ne", [["a"], ["b"], ["e"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("case $x in a|b) c;; *) d;; esac", [["c"], ["d"]]),
        ("{ a; b; }; (c; d)", [["a"], ["b"], ["c"], ["d"]]),
        ("! a && b", [["a"], ["b"]]),
        ("f() { a; }; f", [["f()"], ["a"], ["f"]]),
        ("echo > out a b", [["echo", "a", "b"]]),
        ("cat <<E | grep x && ls\nhi\nE\nwc", [["cat"], ["grep", "x"], ["ls"], ["wc"]]),
        ("cat <<'E'\n$(a) `b`\nE", [["cat"]]),
        ("git commit -m \"$(cat <<'E'\nIt's (done)\nE\n)\"", [["cat"], ["git", "commit", "-m", "?"]]),
        ("cat <<E\nx $(a) y\nE", [["a"], ["cat"]]),
        ("diff <(a) <(b)", [["a"], ["b"], ["diff", "/dev/fd/63", "/dev/fd/63"]]),
        ('echo "a $(b "c $(d)")"', [["d"], ["b", "?"], ["echo", "?"]]),
        ("[ -f x ] && [[ $y == a* ]]", [["[", "-f", "x", "]"], ["[[", "?", "==", "?", "]]"]]),
        ("ls\\\n -l", [["ls", "-l"]]),
        ("export A=b; echo $A", [["export", "A=b"], ["echo", "b"]]),
        ("find . -exec rm {} \\;", [["find", ".", "-exec", "rm", "{}", ";"]]),
        ("git stash apply stash@{0}", [["git", "stash", "apply", "stash@{0}"]]),
        ("HOME=/x; cat ~/y", [["cat", "/x/y"]]),
        ("cd sub; cat $PWD/y", [["cd", "sub"], ["cat", "?"]]),
    ],
)  # fmt: skip
def test_words_are_read_as_the_programs_get_them(text: str, expected: list[list[str]]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    "text",
    ["echo 'unclosed", 'echo "unclosed', "echo $(unclosed", "(ls", "ls)", "if a; then b",
     "echo ok\r\nls", "ls \\ foo",
     "l\\\ns", "ls\x0b-l", "a=1 >(", "{a,b} c", "{p", "{}", "echo $\"x\"", "echo {a,b", "echo {01..10}",
     "echo {1..99999}", "!\"a\"", "time x=1 ls", "cat <<E\nx", "cat <<E\nx\nE ", "cat <<A <<B\nx\nA\ny\nB",
     "echo `a \\`b\\``", "((a); b)",
     "[[ :<(p) ]]", "IFS=,; cat a", "a | x=1 > b c", "a $(b <<E\nx\nE\nc; d)", "a=(1)# b", "f() { ls; }; coproc f",
     "cd() { ls; }", "select x", "ls " + " " * 4_000 + "; x",
     "$HOME{a,b}", "x" * (MAX_TEXT_BYTES + 1), "echo \ud800", "echo $'\\xff'", "done", "ls; ; ls"],
)  # fmt: skip
def test_what_is_not_understood_completely_is_said(text: str) -> None:
    assert read(text).unread


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("ls\u200b", "U+200B"),
        ("echo \u202eabc", "U+202E"),
        ("echo a\u00adb", "U+00AD"),
        ("echo \x1b[2K", "U+001B"),
        ("echo \U000e0041", "U+E0041"),
        ("echo \u2066a\u2069", "U+2066, U+2069"),
        ("echo a\ufe0f", "U+FE0F"),
        ("echo \u2028", "U+2028"),
        ("echo \u2705\ufe0f Größe 文字 \U0001f468\u200d\U0001f4bb", ""),
        ("a\0b", "U+0000"),
        ("ls\ta\nb", ""),
    ],
)
def test_characters_that_do_not_show_are_spelled_out(text: str, hidden: str) -> None:
    assert read(text).hidden == hidden


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a; cd x && b; c", [("",), ("",), ("x",), ("x", "")]),
        ("cd x || b", [("",), ("",)]),
        ("(cd x; a); b", [("",), ("x", ""), ("",)]),
        ("cd x | a; b", [("",), ("",), ("",)]),
        ("cd x & a", [("",), ("",)]),
        ("cd /etc && true > /dev/null | true; a", [("",), ("/etc",), ("/etc",), ("/etc", "")]),
        ("cd x && cd y && a", [("",), ("x",), ("x/y",)]),
        ("cd; a", [("",), (HOME, "")]),
        ("cd $x; a", [("",), None]),
        ("cd -; a", [("",), None]),
        ("eval x; a", [("",), None]),
        ("for i in 1 2; do a; cd x; done; b", [("",), None, None, None]),
        ("command cd x && a", [("",), ("x",)]),
        ("time cd x && a", [("",), ("x",)]),
        ("if cd x; then a; fi", [("",), ("", "x")]),
        ("f() { a; }; cd x; f", [("",), None, None, None]),
    ],
)
def test_a_cd_counts_for_what_follows_it(text: str, expected: list[tuple[str, ...] | None]) -> None:
    assert folders(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > b", [(">", "b")]),
        ("a >> b < c", [(">>", "b"), ("<", "c")]),
        ("a 2>&1 >&- <&3", []),
        ("a &> b", [("&>", "b")]),
        ("a >& b", [(">&", "b")]),
        ("> b a", [(">", "b")]),
        ("{ a; } > b", [(">", "b")]),
        ("for i in 1; do a; done > b", [(">", "b")]),
        ("a <<< 'x y'", [("<<<", "x y")]),
        ("a <<E > b\nx\nE", [("<<", "x\n"), (">", "b")]),
    ],
)
def test_redirections_keep_their_targets(text: str, expected: list[tuple[str, str]]) -> None:
    script = read(text)
    assert not script.unread
    found = [
        (each.operator, each.target.text) for command in script.commands for each in command.redirections
    ]
    assert found == expected


def test_a_wildcard_counts_only_outside_of_quotes() -> None:
    (command,) = read("cat .e* 'a*' b\\* [c] \"d?\"").commands
    assert [word.is_glob for word in command.words] == [False, True, False, False, True, False]


@pytest.mark.parametrize("text", ["${x@P}", "$((x))", "${x:=1}", "${!x}", "((x=1))", "a[$(b)]=1", "${x[y]}"])
def test_what_may_run_something_that_does_not_show_is_a_program_that_is_not_known(text: str) -> None:
    assert any(
        command.words and not command.words[0].is_known for command in read(f"{text}; echo {text}").commands
    )


@given(st.text(max_size=60) | st.text(alphabet="ab '\"\\$`{}()[];&|<>\n\t#!=*~,.x", max_size=60))
def test_any_text_is_read_without_an_error(text: str) -> None:
    script = read(text)
    assert script.unread or all(isinstance(word.text, str) for each in script.commands for word in each.words)


def test_a_text_beyond_the_bounds_is_given_up() -> None:
    assert "too many" in read("a;" * (MAX_COMMANDS + 1)).unread
    assert read("a;" * 100).unread == ""
    assert [len(read("a;" * count).commands) for count in (10, 20)] == [10, 20]
