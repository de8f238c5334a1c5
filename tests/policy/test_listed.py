"""The rules that a configuration lists: what they match, and what they never lift."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.app import built_in_specs
from holdfast.policy.commands import parsed
from holdfast.policy.rules import judge, strictest
from holdfast.protocol.known_rules import WITH_PATHS, allow_rule_of, objecting_rule_of
from holdfast.protocol.launchers import LAUNCHERS, RUNNERS
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.rules import BUILT_IN, PolicyRule, WrongRule, rule_of
from holdfast.protocol.settings import Policy, name_of, ref_of, settings_with
from holdfast.protocol.tools import Decision, ToolSpec
from holdfast.tools.facts import facts_of
from holdfast.tools.own import OwnPlaces
from tests.growth import grows_in_line

SHELL = ToolSpec("shell", "", {}, effect="exec", kinds={"command": "command"})


def rules(*texts: str) -> tuple[PolicyRule, ...]:
    return tuple(map(PolicyRule, texts))


def verdict_of(
    workspace: Path, spec: ToolSpec, values: dict[str, Any], autonomy: str, **listed: Any
) -> Decision:
    policy = Policy(**{name: rules(*texts) for name, texts in listed.items()})
    settings = settings_with(ModelFacts("x", "x"), str(workspace), policy=policy, autonomy=autonomy)
    return strictest(judge(facts_of(spec, values, settings, OwnPlaces())))


def command(workspace: Path, text: str, autonomy: str = "full", **listed: Any) -> Decision:
    return verdict_of(workspace, SHELL, {"command": text}, autonomy, **listed)


def path(workspace: Path, tool: str, named: str, effect: Any = "write", **listed: Any) -> Decision:
    spec = ToolSpec(tool, "", {}, effect=effect, kinds={"path": "path"})
    return verdict_of(workspace, spec, {"path": named}, "supervised", **listed)


@pytest.mark.requirement("C12", "L12")
@pytest.mark.parametrize(
    "text",
    ["gzip -9 a", "/usr/bin/gzip a", "/bin/gzip a", "./gzip a", "ls && gzip a", "ls | gzip", "ls; gzip a",
     "ls\ngzip a",
     "bash -c 'gzip a'", "bash -c gzip", "sh -c 'bash -c \"gzip a\"'", "env X=1 gzip a", "timeout 5 gzip a",
     "X=1 gzip a", "find . -exec gzip {} +", "xargs -n 1 gzip",
     "(gzip a)", "env -S 'gzip a'",
     "'gzip' a", "gz\"ip\" a", "\\gzip a", "packer a", "gzip", "if true; then gzip a; fi",
     "gzip a > b", "ls & gzip a", "echo $(gzip a)", 'echo "$(gzip a)"', "echo `gzip a`", 'echo "x`gzip`"',
     'echo "$(echo "$(gzip a)")"'],
)  # fmt: skip
def test_a_denied_program_is_found_anywhere_in_a_command_under_every_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "packer").symlink_to("/usr/bin/gzip")
    text = text.replace("packer", "./packer")
    for verdict in ("deny", "ask"):
        found = command(tmp_path, text, **{verdict: ["shell(gzip *)"]})
        assert (found.verdict, found.rule) == (verdict, f"{verdict}:shell(gzip *)")
        assert "The user's configuration" in found.reason


@pytest.mark.parametrize("text", ["ls gzip", "echo 'gzip a'", "grep -n gzip a", "zip a", "gzip2 a"])
def test_a_word_that_is_not_the_program_is_not_taken_for_it(tmp_path: Path, text: str) -> None:
    assert command(tmp_path, text, deny=["shell(gzip *)"]).verdict == "allow"


@pytest.mark.parametrize(
    ("rule", "text", "is_denied"),
    [
        ("shell(git push *)", "git push origin", True),
        ("shell(git push *)", "git -C x push --force", True),
        ("shell(git push *)", "git -c a=b --git-dir=y push", True),
        ("shell(git push *)", "git commit -m push", False),
        ("shell(git push *)", "git log push", False),
        ("shell(git push)", "git push", True),
        ("shell(git push)", "git push -f", True),
        ("shell(git push)", "git push origin", False),
        ("shell(git *)", "git", True),
        ("shell(git)", "git", True),
        ("shell(git)", "git status", False),
    ],
)
def test_the_words_of_a_denying_rule_are_found_among_options(
    tmp_path: Path, rule: str, text: str, is_denied: bool
) -> None:
    assert (command(tmp_path, text, deny=[rule]).verdict == "deny") == is_denied


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "text",
    ["gzip a b", "gzip -k --best a", "gzip 'a b' \"c\"", "gzip", "gzip a && gzip b", "gzip a; gzip b | gzip"],
)
def test_an_allowed_command_of_literal_words_runs_without_asking(tmp_path: Path, text: str) -> None:
    found = command(tmp_path, text, "supervised", allow=["shell(gzip *)"])
    assert (found.verdict, found.rule) == ("allow", "allow:shell(gzip *)")


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "text",
    ["gzip $A", "gzip $(id)", "gzip `id`", "gzip *", "gzip ~+", "gzip {a,b}", "gzip a > b", "gzip < a", "gzip a &",
     "X=1 gzip a", "gzip a; ls", "gzip a && ls", "gzip a\nls", "gzip \"$A\"", "gzip a |& gzip",
     "(gzip a)", "gzip a #",
     "/usr/bin/gzip a", "./gzip a", "decoy a", "gzip\ta", "gzip\ra", "gzip a\u00a0b",
     "gzip 'a", "gzip a\\",
     "! gzip a", "bash -c 'gzip a'", "env gzip a", "command gzip a", "gzip a;;", "&& gzip a",
     "gzip <(id)", "gzip2 a"],
)  # fmt: skip
def test_an_allowing_rule_matches_nothing_but_literal_words(tmp_path: Path, text: str) -> None:
    assert command(tmp_path, text, "supervised", allow=["shell(gzip *)", "shell(decoy *)"]).verdict == "ask"


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("git push origin main", True),
        ("git -c core.pager=./x -p log", False),
        ("git --exec-path=. push", False),
        ("git push --receive-pack=./x", False),
        ("git push --rec ./x", False),
        ("git bisect run ./x", False),
        ("git bisect start", True),
        ("git rebase -x ./x", False),
        ("tar -xf a.tar", True),
        ("tar -xf a.tar --to-command=./x", False),
        ("tar -xIf ./x a.tar", False),
    ],
)
def test_the_open_end_of_an_allowing_rule_never_chooses_what_runs(
    tmp_path: Path, text: str, is_allowed: bool
) -> None:
    found = command(tmp_path, text, "supervised", allow=["shell(git *)", "shell(tar *)"])
    assert (found.verdict == "allow") == is_allowed, found


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "launch", ["tmux new", "docker run x", "uv run", "kubectl exec p --", "java -cp x", "git -c x=y"]
)
def test_a_denied_program_is_found_behind_programs_that_run_what_they_are_given(
    tmp_path: Path, launch: str
) -> None:
    assert command(tmp_path, f"{launch} gzip a", deny=["shell(gzip *)"]).verdict == "deny"


def test_a_program_that_the_workspace_brought_is_allowed_by_its_path_and_not_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoy = tmp_path / "gzip"
    decoy.write_text("#!/bin/sh\n")
    decoy.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command(tmp_path, "gzip a", "supervised", allow=["shell(gzip *)"]).verdict == "ask"
    assert command(tmp_path, "./gzip a", "supervised", allow=["shell(./gzip *)"]).verdict == "allow"
    decoy.unlink()
    decoy.symlink_to("/bin/sh")
    assert command(tmp_path, "./gzip a", "supervised", allow=["shell(./gzip *)"]).verdict == "ask"


@pytest.mark.requirement("C12", "L9")
@pytest.mark.parametrize(
    ("text", "verdict", "rule"),
    [
        ("rm -rf /", "deny", "hard-floor"),
        ("rm .env", "deny", "secret-path"),
        ("rm .git/hooks/x", "deny", "steering:.git/hooks"),
        ("rm holdfast.toml", "ask", "steering:holdfast.toml"),
    ],
)
def test_an_allowing_rule_lifts_no_other_rule(tmp_path: Path, text: str, verdict: str, rule: str) -> None:
    found = command(tmp_path, text, "supervised", allow=["shell(rm *)"])
    assert (found.verdict, found.rule) == (verdict, rule)
    assert command(tmp_path, "rm a", "read-only", allow=["shell(rm *)"]).verdict == "deny"
    assert (
        command(tmp_path, "rm a", "supervised", allow=["shell(rm *)"], ask=["shell(rm *)"]).verdict == "ask"
    )
    assert command(tmp_path, "rm a", ask=["shell(rm *)"], deny=["shell"]).verdict == "deny"


@pytest.mark.requirement("L2", "C12")
@pytest.mark.parametrize(
    ("rule", "tool", "named", "is_denied"),
    [
        ("write_file(docs/**)", "write_file", "docs/a/b.md", True),
        ("write_file(docs/**)", "write_file", "docs", True),
        ("write_file(docs/**)", "write_file", "link/a.md", True),
        ("write_file(docs/**)", "write_file", "x/../DOCS/a.md", True),
        ("write_file(docs/**)", "write_file", "docs2/a.md", False),
        ("write_file(docs/**)", "read_file", "docs/a.md", False),
        ("write_file(docs)", "write_file", "docs/a.md", True),
        ("*(docs/**)", "read_file", "docs/a.md", True),
        ("*(docs/**)", "grep", ".", True),
        ("*(docs/**)", "list_dir", ".", False),
        ("*_file(*.md)", "edit_file", "a.md", True),
        ("*_file(*.md)", "edit_file", "src/a.md", False),
        ("*_file(**/*.md)", "edit_file", "src/x/a.md", True),
        ("*_file(a?b[c])", "edit_file", "axbc", False),
        ("mcp__github__*", "mcp__github__create", "a", True),
        ("mcp__github__*", "mcp__gitlab__create", "a", False),
    ],
)
def test_a_rule_about_paths_matches_the_path_that_is_given_and_the_one_it_leads_to(
    tmp_path: Path, rule: str, tool: str, named: str, is_denied: bool
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "link").symlink_to("docs")
    assert (path(tmp_path, tool, named, deny=[rule]).verdict == "deny") == is_denied


def test_a_rule_about_paths_is_found_in_the_words_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for text in ("rm docs/a", "echo x > docs/a", "rm -r .", "cd docs && touch a", "mv docs away"):
        assert command(tmp_path, text, deny=["shell(x)", "*(docs/**)"]).verdict == "deny", text
    assert command(tmp_path, "rm other", deny=["*(docs/**)"]).verdict == "allow"


def test_a_tool_is_allowed_on_the_paths_of_its_rule_alone(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "link").symlink_to("docs")
    for named, verdict in (("docs/a", "allow"), ("src/a", "ask"), ("link/a", "ask"), ("Docs/a", "ask")):
        assert path(tmp_path, "mcp__x", named, "exec", allow=["mcp__x(docs/**)"]).verdict == verdict, named
    assert path(tmp_path, "mcp__x", "src/a", "exec", allow=["mcp__*"]).verdict == "allow"


@pytest.mark.requirement("L12")
def test_the_settings_record_the_policy_by_its_hash() -> None:
    plain = settings_with(ModelFacts("x", "x"), "/ws")
    ruled = settings_with(ModelFacts("x", "x"), "/ws", policy=Policy(deny=rules("shell")))
    assert ref_of(ruled).policy == name_of(ruled.policy) != ref_of(plain).policy


def test_the_known_names_exist_and_every_shell_and_wrapper_of_the_reader_is_a_launcher() -> None:
    assert set(BUILT_IN) == {spec.name for spec in built_in_specs()}
    assert {spec.name for spec in built_in_specs() if "path" in spec.kinds.values()} <= WITH_PATHS
    assert set(BUILT_IN) >= WITH_PATHS
    assert not LAUNCHERS & set(RUNNERS)
    assert {"sh", "bash", "sudo", "env", "xargs", "python", "find", "eval", "then"} <= LAUNCHERS


@given(st.text(max_size=60))
def test_any_text_is_a_rule_or_is_told_why_it_is_none(text: str) -> None:
    for read in (rule_of, objecting_rule_of, allow_rule_of):
        with suppress(WrongRule):
            assert read(text).tool


@given(st.text(alphabet="ab '\"\\$;&|<>()\n=*{},~", max_size=30))
def test_words_that_count_as_literal_have_nothing_that_a_shell_would_expand(text: str) -> None:
    for words in [command.texts for command in parsed(text).plain]:
        assert words
        assert all(word in text for word in words), "no quote or escape within it is taken away"


@pytest.mark.parametrize(
    "make",
    [
        lambda n: ("shell(git *)", "git " + "-a " * n),
        lambda n: ("shell(a b *)", "a " + "-x " * n),
        lambda n: ("shell(git *)", "env " * n + "git"),
        lambda n: ("shell(git *)", "echo " + "`$(" * n),
        lambda n: ("*(" + "**/" * 30 + "a)", "rm " + "b/" * n + "c"),
        lambda n: ("*(" + "*a" * 60 + ")", "rm " + "a" * n),
    ],
)
def test_the_cost_of_a_command_grows_with_its_length(tmp_path: Path, make: Any) -> None:
    def judge(count: int) -> None:
        rule, text = make(count)
        command(tmp_path, text, deny=[rule])

    judge(1)
    assert grows_in_line(judge, 400)


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("rule", ["write_file(Docs/**)", "write_file(docs/**)", "write_file(DOCS/a.md)"])
def test_a_rule_that_denies_a_path_denies_it_in_any_case(tmp_path: Path, rule: str) -> None:
    for named in ("docs/a.md", "Docs/A.MD"):
        assert path(tmp_path, "write_file", named, deny=[rule]).rule == f"deny:{rule}"
