"""The entries of lists in a configuration: rules, paths, hosts and search engines, and why others are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.protocol.allowed import WrongEntry, allowed_host_of, listed_path_of
from holdfast.protocol.known_rules import allow_rule_of, objecting_rule_of
from holdfast.protocol.rules import WrongRule
from holdfast.protocol.search import common_engines, engine_of, engines_are_within


@pytest.mark.requirement("L12")
@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("Bash(git push *)", "shell(git push *)"),
        ("Edit", "edit_file"),
        ("Read(./.env)", "read_file"),
        ("wirte_file", "write_file"),
        ("shell(cd x && git log)", "several commands"),
        ("shell(a | b)", "several commands"),
        ("shell(X=1 ls)", "never match"),
        ("shell(ls $HOME)", "never match"),
        ("shell", ""),
        ("", ""),
    ],
)
def test_a_rule_that_can_match_nothing_is_refused_with_the_nearest_one(text: str, near: str) -> None:
    if text == "shell":
        assert objecting_rule_of(text)
        return
    with pytest.raises(WrongRule) as refused:
        objecting_rule_of(text)
    assert near in str(refused.value)


@pytest.mark.requirement("L12")
@pytest.mark.parametrize(
    "text",
    [
        "shell(npm test)",
        "shell(make *)",
        "shell(docker ps *)",
        "shell(git *)",
        "write_file(docs/**)",
        "mcp__x",
    ],
)
def test_an_allowing_rule_may_leave_its_end_open_where_that_chooses_no_program(text: str) -> None:
    assert allow_rule_of(text)


@pytest.mark.requirement("L12")
@pytest.mark.parametrize(
    "text",
    ["*", "shell", "shell(bash *)", "shell(/usr/bin/python3 *)", "shell(env *)", "shell(docker *)", "shell(tmux *)",
     "shell(git -c *)", "shell(kubectl exec *)", "shell(uv run *)", "shell(java *)"],
)  # fmt: skip
def test_an_allowing_rule_whose_end_would_choose_what_runs_is_refused(text: str) -> None:
    with pytest.raises(WrongRule):
        allow_rule_of(text)


@pytest.mark.parametrize("text", ["src", "docs:ro", ".", "a b/c"])
def test_a_path_of_the_workspace_is_an_entry(text: str) -> None:
    assert listed_path_of(text)


@pytest.mark.parametrize("text", ["..", "/", "a/../b", "src/**", "*", "src:rw", "src:ro:ro", "~", ""])
def test_other_paths_are_refused(text: str) -> None:
    with pytest.raises(WrongEntry):
        listed_path_of(text)


@pytest.mark.parametrize("text", ["api.github.com", "*.files.example.net", "127.0.0.1:8080", "[::1]:8080"])
def test_a_host_is_an_entry(text: str) -> None:
    assert allowed_host_of(text)


@pytest.mark.parametrize(
    "text",
    ["", "*", "*.", "https://a.example", "a.example/x", "127.0.0.1", "a b", "a.example:0", "u@a.example"],
)
def test_other_hosts_are_refused(text: str) -> None:
    with pytest.raises(WrongEntry):
        allowed_host_of(text)


def test_an_engine_has_an_address_that_gives_nothing_away() -> None:
    assert engine_of("exa").address == "https://api.exa.ai"
    assert engine_of("searxng=http://127.0.0.1:8888").host == "127.0.0.1:8888"
    for text in ("searxng", "exa=http://example.com", "bing", "exa=ftp://a", "https://a.example"):
        with pytest.raises(WrongEntry):
            engine_of(text)


def test_a_project_may_only_narrow_the_engines() -> None:
    assert engines_are_within(["exa"], ["tavily", "exa"])
    assert not engines_are_within(["bing"], ["exa"])
    assert [*common_engines(["exa", "tavily"], ["tavily"])] == ["tavily"]


def _reasons(read: Callable[[str], object], text: str) -> str:
    try:
        read(text)
    except (WrongRule, WrongEntry) as why:
        return str(why)
    return ""


@pytest.mark.parametrize(
    "read", [objecting_rule_of, allow_rule_of, listed_path_of, allowed_host_of, engine_of]
)
def test_a_refusal_says_why(read: Callable[[str], object]) -> None:
    for text in ("\0", "a" * 5_000, "(", ")", "shell(", "shell()", "[", "\u202e", "x(y"):
        assert _reasons(read, text) or read(text)
