"""Files that steer other programs, however their names are spelled, and Holdfast's own."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.policy.commands import parsed
from holdfast.policy.protected import (
    _FIRST,
    OPEN_IN_HOME,
    STEERING,
    may_be_fixed,
    may_have_fixed,
    own_problem,
    steering,
    steering_problem,
)
from holdfast.policy.rules import Facts, PathFact, judge, strictest
from holdfast.policy.words import words_of
from holdfast.protocol.settings import Autonomy

DENIED = [
    ".git/hooks/pre-commit", ".git/config", ".git/config.worktree", ".git/info/attributes", ".git/modules/a/config",
    ".git/worktrees/a/gitdir", ".git/rebase-merge/git-rebase-todo", ".git", "sub/.git", "sub/.git/hooks/x",
    "src/sitecustomize.py", "usercustomize.py", "sitecustomize/__init__.py", "sitecustomize.pyc", "usercustomize.pyd",
    ".emacs.elc", ".zshenv.zwc", ".nvim.lua",
    "src/__pycache__/sitecustomize.cpython-311.pyc",
    ".gitconfig", ".bashrc", ".profile", "home/.zshenv", ".config/fish/config.fish", ".envrc", ".mcp.json",
    ".vscode/tasks.json", ".vscode", ".idea/workspace.xml", ".agent/x", ".agents/x", ".claude/settings.json",
    ".codex/config.toml", ".cursor/rules", ".holdfast/skills/x", ".local/bin/ls", ".vimrc", ".config/nvim/init.lua",
    ".tmux.conf", ".gdbinit", ".pythonrc.py", ".ssh/config", ".hg/hgrc", ".hg", "sub/.hg/sharedpath",
    ".zed/tasks.json", ".gemini/settings.json", ".windsurf/hooks.json", ".aider.conf.yml",
    ".kiro/hooks/x", ".opencode/plugin/x.js",
]  # fmt: skip
ASKED = [
    "holdfast.toml",
    "sub/holdfast.toml",
    ".gitmodules",
    ".github/workflows/ci.yml",
    ".gitlab-ci.yml",
    "Jenkinsfile",
    ".husky/pre-commit",
    ".pre-commit-config.yaml",
    ".devcontainer/devcontainer.json",
    ".cargo/config.toml",
    "HEAD",
    "sub/HEAD",
    ".git/refs/heads/main",
    "sub/.git/index",
    "opencode.json",
]
PLAIN = [
    ".gitignore", ".gitattributes", ".git/COMMIT_EDITMSG", "git/refs/heads/main", "sub/heads", "head/x.py",
    ".hgignore", ".hg/cache/tags2", "src/zed", "gemini/x.py", ".aider.chat.history.md",
    "git/hooks/x", "docs/holdfast.toml.md", "sitecustomized.py", "my_usercustomize.py", ".zshrc.md",
    ".github/ISSUE_TEMPLATE.md", "src/profile", "bashrc", "config/fish.py", ".vscodeignore", "agents/x.py",
    "a/.env.example",
]  # fmt: skip
SPELLINGS = [
    lambda path: path,
    lambda path: path.upper(),
    lambda path: f"./x/..//{path}",
    lambda path: path.replace("/", "//") + "/",
    lambda path: path.replace(".", ".\u200b", 1),
    lambda path: path.replace("i", "i\ufe0f"),
    lambda path: path.translate({ord("g"): 0xFF47, ord("o"): 0xFF4F}),
    lambda path: path + ". .",
    lambda path: path + "::$INDEX_ALLOCATION",
    lambda path: path.replace("/", "\\"),
]


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("path", DENIED)
@pytest.mark.parametrize("spelled", SPELLINGS)
def test_a_file_that_makes_other_programs_run_something_is_not_written_however_it_is_spelled(
    path: str, spelled: Any
) -> None:
    for name in (spelled(path), f"/ws/{spelled(path)}"):
        problem = steering_problem(name, "", "/ws")
        assert problem is not None
        assert problem.verdict == "deny"


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("spelled", SPELLINGS)
def test_a_write_to_settings_submodules_and_build_servers_is_asked_about(path: str, spelled: Any) -> None:
    problem = steering_problem(spelled(path), f"/ws/{path}", "/ws")
    assert problem is not None
    assert problem.verdict == "ask"


@pytest.mark.parametrize("path", PLAIN)
def test_an_ordinary_file_is_written_unasked(path: str) -> None:
    assert steering_problem(path, f"/ws/{path}", "/ws") is None


def test_a_short_name_of_another_file_system_counts_as_what_it_stands_for() -> None:
    assert steering("GIT~1/config", "/ws") is not None


def test_what_lies_above_the_workspace_was_chosen_by_the_user_unless_it_is_a_git_folder() -> None:
    inside = "/home/ann/.claude/worktrees/a"
    assert steering(f"{inside}/src/x.py", inside) is None
    assert steering(f"{inside}/.claude/x", inside) is not None
    assert steering("/home/ann/.claude/settings.json", inside) is not None
    assert steering("/repo/.git/modules/a/hooks/x", "/repo/.git/modules/a") is not None
    for chosen in (".claude", ".config/nvim", ".config/fish"):
        assert steering(f"/home/ann/{chosen}/x", f"/home/ann/{chosen}") is None
        assert steering("x", f"/home/ann/{chosen}") is None


def test_a_folder_whose_name_differs_in_case_was_not_chosen() -> None:
    assert steering("/home/ann/.claude/w/f", "/home/ann/.CLAUDE/w") is not None
    assert steering("../../.claude/w/f", "/home/ann/.CLAUDE/w") is not None


@pytest.mark.parametrize(
    "spelled", ["{path}", "./{path}", "x/../{path}", "../{folder}/{path}", "{workspace}/{path}"]
)
@pytest.mark.parametrize(
    ("workspace", "path"),
    [
        ("/home/ann/.config", "fish/config.fish"),
        ("/home/ann/.config", "systemd/user/x.service"),
        ("/home/ann/.local", "bin/ls"),
        ("/home/ann/.local/share", "applications/x.desktop"),
        ("/repo/.github", "workflows/ci.yml"),
        ("/repo/.cargo", "config.toml"),
    ],
)
def test_a_file_that_a_folder_above_the_workspace_makes_a_controlling_one_is_one(
    workspace: str, path: str, spelled: str
) -> None:
    given = spelled.format(path=path, workspace=workspace, folder=workspace.rpartition("/")[2])
    assert steering(given, workspace) is not None
    assert steering("notes.md", workspace) is None


def test_a_link_to_a_file_that_is_asked_about_is_refused_so_that_a_person_sees_what_is_written() -> None:
    problem = steering_problem("notes.md", "/ws/.github/workflows/ci.yml", "/ws")
    assert problem is not None
    assert (problem.verdict, problem.rule) == ("deny", ".github/workflows")
    assert "by its own path" in problem.reason


@pytest.mark.parametrize("pattern", ["*", "*.json", "*.py", "?*", "src/*", "[a-z]*"])
def test_a_pattern_for_ordinary_names_matches_no_file_that_is_denied(pattern: str) -> None:
    assert steering(pattern, "/ws") is None


def test_the_strictest_rows_stand_first() -> None:
    assert [row.verdict for row in STEERING] == sorted(
        (row.verdict for row in STEERING), key=["deny", "ask"].index
    )


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("autonomy", get_args(Autonomy))
@pytest.mark.parametrize(
    ("own", "access", "is_denied"),
    [
        ("home", "read", True),
        ("home/holdfast.db", "read", True),
        ("home/holdfast.db", "write", True),
        ("home", "tree", True),
        ("settings", "write", True),
        ("settings", "tree", True),
        ("settings", "read", False),
    ],
)
def test_what_is_holdfasts_own_is_out_of_reach_under_every_autonomy(
    autonomy: Autonomy, own: str, access: Any, is_denied: bool
) -> None:
    path = PathFact("x", "/ws/x", access=access, own=own)
    for facts in (
        Facts("read_file", "read", autonomy, "/ws", paths=(path,)),
        Facts("shell", "read", autonomy, "/ws", words=(path,)),
    ):
        decision = strictest(judge(facts))
        assert (decision.verdict, decision.rule == "own") == (
            ("deny", True) if is_denied else ("allow", False)
        )


def test_a_folder_of_the_home_that_is_opened_by_name_may_be_read_and_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert OPEN_IN_HOME == (), "a change that opens a folder names it here"
    monkeypatch.setattr("holdfast.policy.protected.OPEN_IN_HOME", ("skills",))
    assert own_problem("x", "home/skills/a.md", "read") == ""
    assert own_problem("x", "home/skills/a.md", "write")
    assert own_problem("x", "home/skillset", "read")
    assert own_problem("x", "home", "read")


# --- words of commands ------------------------------------------------------------------------------


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("echo x > a", {"a"}),
        ("echo x >> a; ls", {"a"}),
        ("echo x &> a", {"a"}),
        ("echo x >| a", {"a"}),
        ("(echo x)>a;ls", {"a"}),
        ("echo x 2>&1 >/dev/null", set()),
        ("ls | tee -a a b", {"a", "b"}),
        ("rm -f a", {"a"}),
        ("sudo -E rm a", {"a"}),
        ("cp b a", {"a", "a/b"}),
        ("cp -t a b", {"a", "a/b"}),
        ("mv x/b a", {"a", "x/b", "a/b"}),
        ("install -m 755 b a", {"a", "a/b"}),
        ("dd if=b of=a", {"a"}),
        ("sed -i s/x/y/ a", {"a"}),
        ("sed -i.bak s/x/y/ a", {"a", "a.bak"}),
        ("sed -n 1p a", set()),
        ("curl -o a http://x", {"a"}),
        ("curl -oa http://x", {"a"}),
        ("sort --output=a b", {"a"}),
        ("tar xf b -C a", {"a"}),
        ("sh -c 'echo x > a'", {"a"}),
        ("cat a b", set()),
        ("git add a", set()),
        ("cat >a <<EOF\ndon't\nEOF", {"a"}),
    ],
)
def test_what_a_command_writes_is_seen_where_it_is_spelled_out(command: str, written: set[str]) -> None:
    assert {word.text for word in words_of(parsed(command)) if word.access != "read"} == written


@pytest.mark.parametrize(
    "command",
    ["rm -rf a", "rm -r -f a", "mv a b", "chmod -R 777 a", "find a -delete", "find -L a -exec x {} +"],
)
def test_what_takes_a_whole_folder_is_told_apart(command: str) -> None:
    assert ("a", "tree") in {(word.text, word.access) for word in words_of(parsed(command))}


def test_a_word_is_read_from_every_folder_in_which_the_command_may_stand() -> None:
    folders = {word.folder for word in words_of(parsed("cd x; cd y; (cd /z); cat a")) if word.text == "a"}
    assert folders == {"", "x", "y", "x/y"}, "a `cd` may fail, and one in a subshell ends with it"


@pytest.mark.parametrize("command", ["cat --file=a", "cat -fa", "scp host:a b", "curl -d @a x", "RC=a cat"])
def test_a_path_inside_a_word_is_read_too(command: str) -> None:
    assert "a" in {word.text for word in words_of(parsed(command))}


ODD_NAMES = ".gitconfig:~ \n[\u017f\u212aé\u200b"


@given(st.lists(st.sampled_from([*sorted(_FIRST), "a.py"]) | st.text(ODD_NAMES, max_size=8), max_size=4))
def test_the_names_of_a_folder_are_told_apart_at_once_as_they_are_one_by_one(names: list[str]) -> None:
    assert may_have_fixed(names) or not any(map(may_be_fixed, names))


def test_a_folder_with_usual_names_has_nothing_fixed() -> None:
    assert not may_have_fixed(["a.py", "README.md", ".gitignore", "my file.txt", "v1.2", "git"])
