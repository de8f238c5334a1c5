"""`[policy] allowed_paths`: what of the workspace tools may use, and what they may only read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.policy.rules import judge, strictest
from holdfast.protocol.allowed import (
    WrongEntry,
    access_to,
    allowed_path_of,
    common_paths,
    listed_path_of,
    paths_are_within,
)
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.settings import settings_with
from holdfast.protocol.tools import ToolSpec
from holdfast.tools.facts import facts_of
from holdfast.tools.own import OwnPlaces


def verdict(
    workspace: Path, tool: str, value: str, allowed: list[str], effect: Any = "write"
) -> tuple[str, str]:
    kind: Any = "command" if tool == "shell" else "path"
    spec = ToolSpec(tool, "", {}, effect=effect, kinds={"it": kind})
    settings = settings_with(
        ModelFacts("x", "x"), str(workspace), allowed_paths=tuple(allowed), autonomy="full"
    )
    decision = strictest(judge(facts_of(spec, {"it": value}, settings, OwnPlaces())))
    return decision.verdict, decision.rule


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name in ("src/deep", "docs", "Docs2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "README.md").write_text("")
    (tmp_path / "docs" / "a.md").write_text("")
    (tmp_path / "src" / "way").symlink_to("../docs")
    return tmp_path


@pytest.mark.requirement("L2", "C12")
@pytest.mark.parametrize(
    ("allowed", "tool", "effect", "named", "is_allowed"),
    [
        (["."], "write_file", "write", "README.md", True),
        ([], "read_file", "read", "README.md", False),
        ([], "list_dir", "read", ".", False),
        (["src"], "write_file", "write", "src/deep/new/x", True),
        (["src"], "list_dir", "read", "src", True),
        (["src"], "list_dir", "read", ".", False),
        (["src"], "write_file", "write", "src2/x", False),
        (["src"], "write_file", "write", "src/../docs/x", False),
        (["src"], "write_file", "write", "src/way/x", False),
        (["src", "docs:ro"], "read_file", "read", "docs/a.md", True),
        (["src", "docs:ro"], "write_file", "write", "docs/a.md", False),
        (["src", "docs:ro"], "write_file", "write", "src/way/a.md", False),
        ([".", "docs:ro"], "write_file", "write", "README.md", True),
        ([".", "docs:ro"], "write_file", "write", "docs/b.md", False),
        ([".", "docs:ro"], "write_file", "write", "DOCS/b.md", False),
        ([".:ro", "src"], "write_file", "write", "src/x", True),
        ([".:ro", "src"], "write_file", "write", "x", False),
        (["./src/"], "write_file", "write", "src/x", True),
    ],
)
def test_a_tool_uses_only_the_allowed_paths_wherever_a_link_leads(
    workspace: Path, allowed: list[str], tool: str, effect: str, named: str, is_allowed: bool
) -> None:
    expected = ("allow", "autonomy:full") if is_allowed else ("deny", "allowed-path")
    assert verdict(workspace, tool, named, allowed, effect) == expected


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("allowed", "command", "is_allowed"),
    [
        ([], "true", False),
        (["src"], "ls src", True),
        (["src"], "cat docs/a.md", False),
        (["src"], "cat src/way/a.md", False),
        ([".", "docs:ro"], "cat docs/a.md", True),
        ([".", "docs:ro"], "echo x > docs/a.md", False),
        ([".", "docs:ro"], "cd docs && rm a.md", False),
        ([".", "docs:ro"], "rm -r .", False),
        ([".", "docs:ro"], "mv docs away", False),
    ],
)
def test_the_paths_that_a_command_names_are_judged_alike(
    workspace: Path, allowed: list[str], command: str, is_allowed: bool
) -> None:
    assert verdict(workspace, "shell", command, allowed, "exec")[0] == ("allow" if is_allowed else "deny")


@pytest.mark.parametrize(
    ("text", "near"),
    [("/", "."), ("/etc", "etc"), ("..", "."), ("../x:ro", "x:ro"), ("a/../b", "a/b"), ("~", "."), ("~/a", "a"),
     ("", "."), (":ro", ".:ro"), ("/work/x:ro", "work/x:ro")],
)  # fmt: skip
def test_an_entry_that_is_not_inside_the_workspace_is_an_error_with_the_nearest_one(
    text: str, near: str
) -> None:
    for read in (allowed_path_of, listed_path_of):
        with pytest.raises(WrongEntry) as raised:
            read(text)
        assert str(raised.value).endswith(f"the nearest one is {near}")


@pytest.mark.parametrize(
    ("text", "near"),
    [("*", "."), ("**", "."), ("src/**", "src"), ("src/*.py:ro", "src:ro"), ("src/a?/b", "src"), ("./src/**", "src"),
     ("src:rw", "src"), ("src:r", "src:ro"), ("src:RO", "src:ro"), ("src:ro:ro", "src:ro"), ("src:w:ro", "src:ro"),
     ("../*:rw", "."), ("src/*:rw", "src")],
)  # fmt: skip
def test_an_entry_that_no_file_has_as_its_name_is_an_error_with_the_nearest_one(text: str, near: str) -> None:
    with pytest.raises(WrongEntry) as raised:
        listed_path_of(text)
    assert str(raised.value).endswith(f"the nearest one is {near}")
    assert allowed_path_of(text if near != "." else "a") is not None, "a recorded entry is still read"


@pytest.mark.parametrize("text", ["app/[id]", "a:b", "a:port", "src:ro", ".", ".:ro", "x(1)"])
def test_an_entry_with_unusual_characters_is_the_path_that_it_says(text: str) -> None:
    assert listed_path_of(text) == allowed_path_of(text)


ENTRIES = st.lists(
    st.tuples(st.sampled_from([".", "a", "a/b", "a/b/c", "d"]), st.sampled_from(["", ":ro"])).map("".join),
    max_size=4,
)


@given(ENTRIES, ENTRIES)
def test_what_two_lists_have_in_common_is_what_both_allow_and_is_within_each(
    one: list[str], other: list[str]
) -> None:
    common = common_paths(one, other)
    assert paths_are_within(common, one)
    assert paths_are_within(common, other)
    read = [[*map(allowed_path_of, texts)] for texts in (one, other, common)]
    for path in (".", "a", "a/x", "a/b", "a/b/c", "a/b/c/d", "d", "e", "ab"):
        left, right, both = [access_to(path, entries) for entries in read]
        assert both == min(left, right)
    assert paths_are_within(one, other) == all(
        access_to(path, read[0]) <= access_to(path, read[1]) for path in (".", "a", "a/b", "a/b/c", "d")
    )
