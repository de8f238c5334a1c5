"""`[policy]` in files: what each layer adds, and what is said about a rule that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.config.load import load, proposal
from holdfast.config.paths import PROJECT_FILE, Home, find_home
from holdfast.config.settings import Config
from holdfast.config.trust import trust
from holdfast.errors import ConfigError
from holdfast.protocol.launchers import LAUNCHERS
from holdfast.protocol.rules import PolicyRule


class Files:
    """A home, a workspace and an admin file."""

    def __init__(self, folder: Path) -> None:
        self.home: Home = find_home(str(folder / "home"), {})
        self.workspace, self.admin = folder / "ws", folder / "admin.toml"
        self.home.folder.mkdir()
        self.workspace.mkdir()

    def user(self, content: str) -> None:
        self.home.user_file.write_text(f"[policy]\n{content}\n")

    def project(self, content: str, *, is_trusted: bool = False) -> None:
        file = self.workspace / PROJECT_FILE
        file.write_text(f"[policy]\n{content}\n")
        if is_trusted:
            trust(self.home, file, proposal(self.home, file, {}, machine_file=self.admin).sha256)

    def load(self, environ: dict[str, str] | None = None) -> Config:
        return load(self.home, self.workspace, {}, environ or {}, machine_file=self.admin)

    def problems(self, content: str) -> tuple[str, ...]:
        self.user(content)
        with pytest.raises(ConfigError) as raised:
            self.load()
        return tuple(str(raised.value).splitlines())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.requirement("L9", "L12")
def test_the_rules_of_all_layers_add_up_with_the_administrators_first(files: Files) -> None:
    files.user('deny = ["shell(a)"]\nallow = ["shell(b)"]')
    files.project('deny = ["shell(c)", "shell(a)"]\nask = ["shell(d)"]')
    files.admin.write_text('[policy]\ndeny = ["shell(e)"]\nallow = ["shell(f)"]\n')
    config = files.load(
        {"HOLDFAST_POLICY_DENY": '["shell(g)", "shell(h)"]', "HOLDFAST_POLICY_ASK": "shell(i)"}
    )
    policy = config.policy
    assert policy.deny == (
        PolicyRule("shell(e)", "admin"),
        PolicyRule("shell(a)", "user"),
        PolicyRule("shell(g)", "user"),
        PolicyRule("shell(h)", "user"),
        PolicyRule("shell(c)", "project"),
    )
    assert policy.ask == (PolicyRule("shell(i)"), PolicyRule("shell(d)", "project"))
    assert policy.allow == (PolicyRule("shell(b)"),)
    assert [warning for warning in config.warnings if "policy.allow is ignored" in warning]
    origin = config.settings["policy.deny"].origin
    for source in ("config.toml:2", "holdfast.toml:2", "HOLDFAST_POLICY_DENY", "admin.toml:2"):
        assert source in origin


@pytest.mark.requirement("A4", "L9")
def test_a_project_file_loosens_only_once_it_is_trusted_and_until_it_changes(files: Files) -> None:
    files.project('allow = ["shell(make)"]\ndeny = ["shell(rm *)"]')
    before = files.load()
    assert (before.policy.allow, len(before.policy.deny)) == ((), 1)
    assert [each.key for each in before.ignored] == ["policy.allow"]
    told = proposal(files.home, files.workspace / PROJECT_FILE, {}, machine_file=files.admin)
    assert {change.key: change.counts for change in told.changes} == {
        "policy.allow": "trusted",
        "policy.deny": "already",
    }
    files.project('allow = ["shell(make)"]', is_trusted=True)
    assert files.load().policy.allow == (PolicyRule("shell(make)", "project"),)
    files.project('allow = ["shell(make *)"]')
    assert files.load().policy.allow == ()


def test_every_wrong_rule_is_told_with_its_file_line_key_and_the_nearest_valid_one(files: Files) -> None:
    found = files.problems(
        'deny = ["shell(rm", "wirte_file(docs/**)", "shell(git * push)", "shell()", "write_file(../x)"]\n'
        'ask = ["terraform apply", 7, "Shell(ls)", "shell(\'a)", "", "*", "mcp__*"]\nallow = "shell(ls)"'
    )
    text, file = "\n".join(found), files.home.user_file
    for line, key, near in (
        (2, "deny", "shell(rm)"),
        (2, "deny", "write_file(docs/**)"),
        (2, "deny", "shell(git *)"),
        (2, "deny", "shell"),
        (2, "deny", "write_file(x)"),
        (3, "ask", "7"),
    ):
        assert [each for each in found if f"{file}:{line}: policy.{key}: " in each and near in each], near
    assert f"{file}:4: policy.allow = 'shell(ls)': must be a list of" in text
    for near in ("shell(terraform apply)", "shell(ls)", "a quote that is not closed", "is not TOOL"):
        assert near in text


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "rule",
    ["*", "**", "*(docs/**)", "shell", "sh*", "s*(a)", "shell(*)", "shell(/bin/bash -c *)", "shell(python3.11 *)",
     "shell(PYTHON -c x)", "shell('!' ls)", *(f"shell('{name}' *)" for name in sorted(LAUNCHERS))],
)  # fmt: skip
def test_an_allow_rule_for_everything_is_an_error_and_a_denying_one_is_not(files: Files, rule: str) -> None:
    assert "policy.allow" in "\n".join(files.problems(f'allow = ["{rule}"]'))
    if rule != "shell(*)":
        files.user(f'deny = ["{rule}"]\nask = ["{rule}"]')
        assert files.load().policy.deny == (PolicyRule(rule),)


@pytest.mark.requirement("L9")
@pytest.mark.parametrize(
    ("rule", "near"),
    [
        ("Bash(git push *)", "shell(git push *)"),
        ("Bash(git push:*)", "shell(git push *)"),
        ("Bash(git:*)", "shell(git *)"),
        ("Bash(cd x && git log)", "shell(git log)"),
        ("Bash", "shell"),
        ("Bash(*)", "shell"),
        ("bash", "shell"),
        ("run_shell_command(rm *)", "shell(rm *)"),
        ("Edit", "edit_file"),
        ("MultiEdit(docs/**)", "edit_file(docs/**)"),
        ("Read(./.env)", "read_file(.env)"),
        ("Read(//etc/hosts)", "read_file(/etc/hosts)"),
        ("Write", "write_file"),
        ("WriteFile", "write_file"),
        ("WebFetch(domain:example.net)", "web_fetch"),
        ("web_fetch(example.net)", "web_fetch"),
        ("WebSearch", "web_search"),
        ("Grep(src/**)", "grep(src/**)"),
        ("Glob", "glob"),
        ("TodoWrite", "update_plan"),
        ("update_plan(a)", "update_plan"),
        ("shell(git:*)", "shell(git *)"),
        ("shell(npm run test:*)", "shell(npm run test *)"),
        ("shell(cd x && git log)", "shell(git log)"),
        ("shell(a | b)", "shell(a)"),
        ("shell(a -x > b)", "shell(a -x)"),
        ("shell(a 2>/dev/null)", "shell(a)"),
        ("shell(./x $Y)", "shell(./x *)"),
        ('shell(./x "$Y")', "shell(./x *)"),
        ("shell(./x `y`)", "shell(./x *)"),
        ("shell(X=1 ./x *)", "shell(./x *)"),
        ("shell(ls ~/x)", "shell(ls *)"),
        ("shell(ls {a,b})", "shell(ls *)"),
        ("shell(ls a?c)", "shell(ls *)"),
        ("shell(ls [ab].py)", "shell(ls *)"),
    ],
)
def test_a_rule_that_can_match_nothing_is_an_error_with_the_rule_that_was_meant(
    files: Files, rule: str, near: str
) -> None:
    """Somebody relies on a rule that denies. One that silently denies nothing is the worst answer."""
    for key in ("deny", "ask"):
        found = files.problems(f"{key} = [{json.dumps(rule)}]")
        assert [each for each in found if f"{files.home.user_file}:2: policy.{key}: " in each], found
        assert [each for each in found if each.endswith(f"; the nearest rule is {near}")], found


@pytest.mark.parametrize("rule", ["shell($X)", "shell(X=1 *)", "shell(> a)"])
def test_a_rule_that_can_match_nothing_and_means_nothing_is_an_error(files: Files, rule: str) -> None:
    assert "can never match" in "\n".join(files.problems(f'deny = ["{rule}"]'))


@pytest.mark.parametrize(
    "rule",
    ["shell(git commit -m 'a && b')", "shell(echo '$HOME')", 'shell("git" log)', "shell(ls a~ x#y)",
     "shell([ -f x ])", "mcp__github__*", "mcp__git__read", "*_file", "Ba*", "read_file(/etc/**)", "read_file(./a)",
     "shell(git commit -m a\\&b)"],
)  # fmt: skip
def test_a_rule_that_may_match_something_is_valid_and_nothing_is_said(files: Files, rule: str) -> None:
    files.user(f"deny = [{json.dumps(rule)}]\nask = [{json.dumps(rule)}]")
    config = files.load()
    assert config.policy.deny == (PolicyRule(rule),)
    assert not [each for each in config.warnings if "matches nothing" in each]


def test_a_rule_about_a_tool_that_is_not_there_is_valid_with_a_warning(files: Files) -> None:
    files.user('deny = ["deploy(prod/**)", "terraform"]')
    (first, second) = [each for each in files.load().warnings if "matches nothing" in each]
    assert first.startswith(f"{files.home.user_file}:2: policy.deny: deploy(prod/**) matches nothing")
    assert "a rule about a program is shell(terraform *)" in second
    files.user('deny = ["deploy"]\n[tools]\npackages = ["tickets"]')
    assert not [each for each in files.load().warnings if "matches nothing" in each]


@pytest.mark.parametrize("content", ['deny = ["Bash"]', 'allow = ["Read"]'])
def test_names_of_tools_are_checked_wherever_a_configuration_names_them(files: Files, content: str) -> None:
    near = "shell" if "Bash" in content else "read_file"
    found = "\n".join(files.problems(f"[tools]\n{content}"))
    assert f"is not a built-in tool; the nearest one is {near}" in found
    hook = f'[hooks.a]\non = ["before_tool"]\ncommand = ["x"]\ntools ={content.partition("=")[2]}'
    assert f"the nearest one is {near}" in "\n".join(files.problems(hook))


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "rule",
    ["docker *", "docker run *", "docker exec c *", "podman *", "docker -H x ps *", "tmux *", "tmux new *",
     "screen *", "at now", "batch", "java *", "uv run *", "uv tool run *", "uv run python *",
     "uv run --with x pytest *", "npx *", "npm exec *", "git -c *", "git rebase *", "kubectl *",
     "kubectl exec *", "ssh h *",
     "systemd-run *", "entr *", "script *", "expect *", "go run *", "rsync -e *", "psql *", "poetry run *",
     "python *"],
)  # fmt: skip
def test_an_allow_rule_whose_open_end_chooses_what_runs_is_an_error(files: Files, rule: str) -> None:
    assert "would allow everything" in "\n".join(files.problems(f'allow = ["shell({rule})"]'))
    files.user(f'deny = ["shell({rule})"]')
    assert files.load().policy.deny


@pytest.mark.parametrize(
    "rule",
    ["make *", "npm test", "npm run *", "docker ps *", "docker compose up -d", "tmux ls", "uv run pytest *", "uv *",
     "uv sync *", "git *", "git push *", "git -C sub log *", "kubectl get *", "go test *", "cargo *", "pytest *",
     "rsync *", "tar *"],
)  # fmt: skip
def test_an_allow_rule_whose_words_say_what_runs_is_valid(files: Files, rule: str) -> None:
    files.user(f'allow = ["shell({rule})"]')
    assert files.load().policy.allow
