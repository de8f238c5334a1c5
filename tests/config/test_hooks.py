"""`[hooks.NAME]` in files: which hooks count, in which order, and what is said about one that is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.config.load import load, load_only, proposal
from holdfast.config.paths import PROJECT_FILE, Home, find_home
from holdfast.config.schema import shown
from holdfast.config.settings import Config
from holdfast.config.trust import trust
from holdfast.errors import ConfigError
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.settings import settings_with
from holdfast.tools.background import Background
from holdfast.tools.checking import Checker
from holdfast.tools.fencing import Fences
from holdfast.tools.files import ReadFile, WriteFile
from holdfast.tools.gates import gates_of
from holdfast.tools.own import OwnPlaces
from holdfast.tools.registry import Registry
from holdfast.tools.shell import Shell


class Files:
    """A home, a workspace and admin files."""

    def __init__(self, folder: Path) -> None:
        self.home: Home = find_home(str(folder / "home"), {})
        self.workspace, self.admin = folder / "ws", folder / "admin.toml"
        self.other_admin = folder / "other.toml"
        self.home.folder.mkdir()
        self.workspace.mkdir()
        self.project_file = self.workspace / PROJECT_FILE

    def trust(self) -> None:
        trust(self.home, self.project_file, self.proposal().sha256)

    def proposal(self):  # type: ignore[no-untyped-def]
        return proposal(self.home, self.project_file, {}, machine_file=self.admin)

    def load(self, **environ: str) -> Config:
        return load(self.home, self.workspace, {}, environ, machine_file=self.admin)

    def problems(self, content: str) -> list[str]:
        self.home.user_file.write_text(content)
        with pytest.raises(ConfigError) as raised:
            self.load()
        return str(raised.value).splitlines()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def hook(name: str, *lines: str, on: str = "before_tool", program: str = "true") -> str:
    return "\n".join([f"[hooks.{name}]", f'on = ["{on}"]', f'command = ["{program}"]', *lines, ""])


@pytest.mark.requirement("S4")
def test_the_hooks_of_all_layers_count_the_administrators_first_then_as_they_are_written(
    files: Files,
) -> None:
    files.home.user_file.write_text(hook("z") + hook("a", 'tools = ["shell"]', "timeout_s = 2"))
    files.admin.write_text(hook("m", 'on_failure = "allow"'))
    files.project_file.write_text(hook("b"))
    files.trust()
    config = files.load()
    assert [(each.hook.name, each.hook.layer) for each in config.hooks] == [
        ("m", "admin"), ("z", "user"), ("a", "user"), ("b", "project"),
    ]  # fmt: skip
    assert tuple(each.hook for each in config.hooks) == config.policy.hooks
    admin, z, a, _ = config.policy.hooks
    assert (admin.on_failure, a.tools, a.timeout_s) == ("allow", ("shell",), 2.0)
    assert (z.tools, z.timeout_s, z.on_failure) == (("*",), 5.0, "deny")


@pytest.mark.requirement("S4", "A4")
def test_hooks_of_a_project_wait_for_trust_which_ends_when_the_file_changes(files: Files) -> None:
    files.project_file.write_text(hook("b"))
    waiting = files.load()
    assert waiting.hooks == ()
    assert {each.key for each in waiting.ignored if each.needs_trust} == {"hooks.b.on", "hooks.b.command"}
    shown_first = {(change.key, change.counts) for change in files.proposal().changes}
    assert shown_first == {("hooks.b.on", "trusted"), ("hooks.b.command", "trusted")}
    files.trust()
    assert [each.hook.name for each in files.load().hooks] == ["b"]
    files.project_file.write_text(hook("b", program="other"))
    assert files.load().hooks == ()


@pytest.mark.requirement("S4", "A4")
def test_no_file_changes_a_hook_of_the_layers_before_it(files: Files) -> None:
    files.admin.write_text(hook("guard", program="admin"))
    files.other_admin.write_text(hook("guard", 'on_failure = "allow"', program="other"))
    files.home.user_file.write_text(hook("guard", 'on_failure = "allow"', program="mine") + hook("own"))
    files.project_file.write_text('[hooks.own]\non_failure = "allow"\n' + hook("guard", program="theirs"))
    with pytest.raises(ConfigError, match=r"\[hooks.own\] needs on and command"):
        files.load()
    files.project_file.write_text(hook("own", 'on_failure = "allow"') + hook("guard", program="theirs"))
    files.trust()
    config = files.load(HOLDFAST_ADMIN_CONFIG=str(files.other_admin))
    assert [(each.hook.name, each.command, each.hook.on_failure) for each in config.hooks] == [
        ("guard", ("admin",), "deny"), ("own", ("true",), "deny"),
    ]  # fmt: skip
    assert [warning for warning in config.warnings if "[hooks.guard] is ignored" in warning]
    changes = {change.key: change.counts for change in files.proposal().changes}
    assert set(changes.values()) == {"never"}


@pytest.mark.requirement("S4")
def test_all_that_is_wrong_with_hooks_is_said_at_once_with_the_nearest_valid_one(files: Files) -> None:
    problems = files.problems(
        '[hooks.one]\non = ["before_tol", "xyz"]\ncommand = []\ntimeout_s = 0\non_failure = "denny"\n'
        '[hooks.two]\non = []\ncommand = [""]\ntimeout = 3\ntools = ["a b"]\n'
        "[hooks.three]\ntools = []\n"
        '[hooks."a b"]\non = "before_tool"\ncommand = ["x"]\n'
    )
    text, file = "\n".join(problems), files.home.user_file
    for line, told in (
        (2, "hooks.one.on: 'before_tol' does not exist; did you mean before_tool?"),
        (2, "hooks.one.on: 'xyz' is not one of before_tool"),
        (3, "hooks.one.command = []: must be a program and its arguments"),
        (4, "hooks.one.timeout_s = 0: must be a number from 0.1 to 600"),
        (5, "hooks.one.on_failure = 'denny': must be one of deny, allow"),
        (7, "hooks.two.on = []: must be a list of some of"),
        (8, "hooks.two.command = ['']: must be"),
        (9, "hooks.two.timeout: there is no such key; did you mean hooks.two.timeout_s?"),
        (10, "hooks.two.tools: 'a b' is not the name of a tool"),
        (12, "hooks.three.tools = []: must be"),
        (14, "hooks.\"a b\".on = 'before_tool': must be a list"),
    ):
        assert f"{file}:{line}: {told}" in text
    assert "[hooks.one] needs" not in text
    assert '[hooks."a b"]: the name of a hook is made of' in text


def test_a_hook_without_events_or_program_is_named_with_its_line(files: Files) -> None:
    (problem,) = files.problems('[hooks.half]\ntools = ["shell"]\n')
    assert problem == f"{files.home.user_file}:2: [hooks.half] needs on and command"
    problems = files.problems("[hooks.a]\n[hooks.b]\n[hooks]\nc = {}\n")
    assert problems == [
        f"{files.home.user_file}:{line}: [hooks.{name}] needs on and command"
        for line, name in ((1, "a"), (2, "b"), (4, "c"))
    ]


def test_hooks_are_shown_with_their_origin_as_in_a_file(files: Files) -> None:
    files.home.user_file.write_text(hook("guard"))
    rows = {row["key"]: row for row in shown(files.load())}
    assert rows["hooks.guard.on"]["value"] == ["before_tool"]
    assert rows["hooks.guard.command"]["origin"] == f"{files.home.user_file}:3"


def test_a_program_may_set_hooks_too() -> None:
    table = {"hooks": {"guard": {"on": ["before_tool"], "command": ["true"]}}}
    assert [each.hook.name for each in load_only(table).hooks] == ["guard"]
    over = load_only(table, {"hooks": {"guard": {"timeout_s": 1}}})
    assert [each.hook.timeout_s for each in over.hooks] == [1.0]


@pytest.mark.requirement("S4", "C13")
def test_no_tool_changes_what_a_hook_runs(files: Files, tmp_path: Path) -> None:
    guard = files.workspace / "tools" / "guard.py"
    guard.parent.mkdir()
    guard.touch()
    other = files.workspace / "other.sh"
    other.touch()
    (files.workspace / "link").symlink_to(guard)
    files.home.user_file.write_text(
        f'[hooks.a]\non = ["run_end"]\ncommand = ["python3", "tools/guard.py", "no-file"]\n'
        f'[hooks.b]\non = ["run_end"]\ncommand = ["{other}"]\n'
        '[hooks.c]\non = ["run_end"]\ncommand = ["python3", "link"]\n'
    )
    policy = files.load().policy
    assert [hook.files for hook in policy.hooks] == [(str(each.resolve()),) for each in (guard, other, guard)]
    settings = settings_with(ModelFacts("x", "m"), str(files.workspace), autonomy="full", policy=policy)
    fences = Fences(OwnPlaces(), "/")
    tools = Registry([WriteFile(OwnPlaces()), ReadFile(OwnPlaces()), Shell(Background(), fences)])
    checker = Checker(tools, gates_of(lambda _: "", OwnPlaces()), settings, fences)

    async def verdict(tool: str, **arguments: str) -> str:
        decision = await checker.call(tool, arguments)
        return decision.rule if decision.verdict == "deny" else decision.verdict

    async def look() -> None:
        for path in ("tools/guard.py", "link"):
            assert await verdict("write_file", path=path, content="") == "hook-program"
            assert await verdict("read_file", path=path) == "allow"
        for command in ("echo x > tools/guard.py", "rm -r tools", "cp tools/x other.sh", "mv tools old"):
            assert await verdict("shell", command=command) == "hook-program", command
        assert await verdict("shell", command="cat tools/guard.py") == "allow"
        assert await verdict("write_file", path="tools/other.py", content="") == "allow"

    asyncio.run(look())
