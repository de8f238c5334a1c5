"""What a project file may do, key by key: before it is trusted, once it is, and after it changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from holdfast.config.keys import KEYS
from holdfast.config.load import load, proposal
from holdfast.config.paths import PROJECT_FILE, Home, find_home
from holdfast.config.settings import Config
from holdfast.config.trust import is_trusted, trust
from holdfast.protocol.budgets import SCOPES
from holdfast.protocol.settings import Repairs

USER_FILE = """approve_by = "deny"
model = "anthropic:claude-sonnet-5"
policy.allowed_paths = ["src"]
network.allow = ["a.example"]
search.engines = ["exa"]
tools.allow = ["*_file", "shell"]
sandbox.mode = "landlock"
secrets.mine.hosts = ["a.example"]
"""
"""What holds before the project file says anything, where the default is not strict enough to be loosened."""


MODES = ("unsafe", "landlock", "auto", "bubblewrap")
"""The sandboxes, from the loosest to the strictest."""


class Row(NamedTuple):
    """One key of the schema: what an untrusted and a trusted file may do with it."""

    key: str
    looser: str
    """Lines that set it to something freer than what holds, or to something that is neither; empty: there is no such
    thing."""
    stricter: str = ""
    """Lines that tighten it; empty: there is no such thing."""
    trusted: Literal["may set it", "may only tighten it", "may not set it"] = "may only tighten it"
    """An untrusted file may tighten it where that means something, and do nothing else: for every key."""


def limit(name: str, looser: str, stricter: str) -> Row:
    loose = f"[limits]\n{name} = {looser}" if looser else ""
    return Row(f"limits.{name}", loose, f"[limits]\n{name} = {stricter}")


def budget(scope: str, value: str) -> Row:
    return Row(f"budgets.{scope}_usd", f"[budgets]\n{scope}_usd = {value}", trusted="may not set it")


def provider(name: str, value: str) -> Row:
    return Row(f"providers.*.{name}", f"[providers.openai]\n{name} = {value}", trusted="may set it")


def catalog(name: str, value: str) -> Row:
    return Row(f"catalog.*.{name}", f'[catalog."openai:*"]\n{name} = {value}', trusted="may set it")


def secret(name: str, looser: str, stricter: str = "") -> Row:
    lines = [f"[secrets.mine]\n{name} = {value}" if value else "" for value in (looser, stricter)]
    return Row(f"secrets.*.{name}", *lines, trusted="may only tighten it" if stricter else "may not set it")


def posture(name: str, value: str) -> Row:
    return Row(f"postures.*.{name}", f"[postures.mine]\n{name} = {value}", trusted="may not set it")


def hook(name: str, value: str) -> Row:
    lines = {"on": '["before_tool"]', "command": '["true"]'} | {name: value}
    said = "\n".join(f"{key} = {each}" for key, each in lines.items())
    return Row(f"hooks.*.{name}", f"[hooks.mine]\n{said}", trusted="may set it")


TABLE = [
    Row("model", 'model = "openai:gpt-5.5"', trusted="may set it"),
    Row("max_output_tokens", "max_output_tokens = 500_000", "max_output_tokens = 100"),
    Row("autonomy", 'autonomy = "full"', 'autonomy = "read-only"', trusted="may set it"),
    Row("approve_by", 'approve_by = "prompt"', ""),
    Row("posture", 'posture = "overnight"', trusted="may not set it"),
    limit("turns", "9_999", "3"),
    limit("tokens", "900_000_000", "1_000"),
    limit("cost_usd", "9_000", "0.01"),
    limit("wall", '"20d"', '"1m"'),
    limit("idle", '"20h"', '"1m"'),
    limit("tool_calls", "", "3"),
    limit("request", '"20h"', '"1m"'),
    limit("call_usd", "", '"0.01"'),
    *[budget(name, '"1000"') for name in SCOPES],
    Row("budgets.zone", '[budgets]\nzone = "Europe/Berlin"', trusted="may not set it"),
    Row("budgets.when_reached", '[budgets]\nwhen_reached = "park"', trusted="may not set it"),
    Row("circuits.failures", "circuits.failures = 9", trusted="may not set it"),
    Row("circuits.cooldown", 'circuits.cooldown = "1s"', trusted="may not set it"),
    Row("retry.attempts", "retry.attempts = 50", "retry.attempts = 2"),
    Row("retry.per_run", "retry.per_run = 5_000", "retry.per_run = 2"),
    Row("retry.patience", 'retry.patience = "2h"', 'retry.patience = "1s"'),
    Row("retry.park", 'retry.park = "30d"', 'retry.park = "1m"'),
    *[
        Row(f"rates.*.{name}", "", f"[rates.home]\n{name} = 5")
        for name in ("requests_per_minute", "tokens_per_minute", "concurrent", "burst")
    ],
    posture("autonomy", '"full"'),
    posture("approve_by", '"prompt"'),
    posture("limits.turns", "9_999"),
    posture("limits.tokens", "900_000_000"),
    posture("limits.cost_usd", "9_000"),
    posture("limits.wall", '"20d"'),
    posture("limits.idle", '"20h"'),
    posture("limits.tool_calls", "900_000"),
    posture("limits.request", '"20h"'),
    posture("limits.call_usd", '"900"'),
    Row("effort", 'effort = "high"', trusted="may set it"),
    Row("model_options.*.effort", '[model_options."openai:*"]\neffort = "high"', trusted="may set it"),
    Row("model_options.*.temperature", '[model_options."openai:*"]\ntemperature = 1', trusted="may set it"),
    provider("base_url", '"http://127.0.0.1:1"'),
    provider("api_key_env", '"AWS_SECRET_ACCESS_KEY"'),
    provider("api_key_secret", '"mine"'),
    provider("cache", '"off"'),
    provider("cache_ttl", '"1h"'),
    Row("providers.*.headers.*", '[providers.openai.headers]\nX-Team = "a"', trusted="may set it"),
    provider("proxy", '"http://127.0.0.1:1"'),
    provider("ca_file", '"/tmp/ca.pem"'),
    catalog("input_usd_per_mtok", "0"),
    catalog("output_usd_per_mtok", "0"),
    catalog("cache_read_usd_per_mtok", "0"),
    catalog("cache_write_usd_per_mtok", "0"),
    catalog("cache_write_1h_usd_per_mtok", "0"),
    catalog("context_tokens", "1_000_000"),
    catalog("max_output_tokens", "1_000_000"),
    catalog("tool_calls", '"text"'),
    catalog("images", "true"),
    Row("sandbox.mode", '[sandbox]\nmode = "unsafe"', '[sandbox]\nmode = "bubblewrap"'),
    Row("sandbox.read", '[sandbox]\nread = ["/srv"]', trusted="may not set it"),
    Row("sandbox.write", '[sandbox]\nwrite = ["/srv"]', trusted="may not set it"),
    Row("sandbox.memory", 'sandbox.memory = "4GiB"', 'sandbox.memory = "1GiB"'),
    Row("sandbox.file_size", 'sandbox.file_size = "4GiB"', 'sandbox.file_size = "1MiB"'),
    Row("sandbox.processes", "sandbox.processes = 500", "sandbox.processes = 20"),
    Row("sandbox.cpu", 'sandbox.cpu = "2h"', 'sandbox.cpu = "5m"'),
    Row("policy.deny", "", '[policy]\ndeny = ["shell"]'),
    Row("policy.ask", "", '[policy]\nask = ["shell"]'),
    Row("policy.allow", '[policy]\nallow = ["mcp__x"]', trusted="may set it"),
    Row(
        "policy.allowed_paths",
        '[policy]\nallowed_paths = ["lib"]',
        '[policy]\nallowed_paths = ["src/x", "src/y:ro"]',
        "may set it",
    ),
    Row("policy.sandboxed", '[policy]\nsandboxed = "allow"', trusted="may set it"),
    Row("policy.actions_per_hour", "policy.actions_per_hour = 900", "policy.actions_per_hour = 60"),
    Row("policy.grants_last", '[policy]\ngrants_last = "24h"', '[policy]\ngrants_last = "1h"'),
    Row(
        "network.allow",
        '[network]\nallow = ["b.example"]',
        "[network]\nallow = []",
        "may set it",
    ),
    secret("hosts", '["b.example"]', "[]"),
    secret("env", '"PATH"'),
    secret("header", '"X-Token"'),
    secret("format", '"{}"'),
    Row("tools.allow", '[tools]\nallow = ["*"]', '[tools]\nallow = ["write_file"]'),
    Row("tools.deny", "", '[tools]\ndeny = ["shell"]'),
    Row("tools.unknown_arguments", '[tools]\nunknown_arguments = "strip"'),
    Row("tools.packages", '[tools]\npackages = ["x"]', trusted="may set it"),
    Row("search.engines", '[search]\nengines = ["tavily"]', "[search]\nengines = []", "may set it"),
    Row("taint.workspace", '[taint]\nworkspace = "trusted"', '[taint]\nworkspace = "untrusted"'),
    Row("repeat.note", "[repeat]\nnote = 7", "[repeat]\nnote = 2"),
    Row("repeat.stop", "[repeat]\nstop = 1_000", "[repeat]\nstop = 4"),
    *(
        Row(f"repair.{name}", f"[repair]\n{name} = 1_000", f"[repair]\n{name} = 2")
        for name in Repairs.__struct_fields__
    ),
    Row("guard.stall_turns", "[guard]\nstall_turns = 100", "[guard]\nstall_turns = 12"),
    Row("guard.wait_s", "[guard]\nwait_s = 2", "[guard]\nwait_s = 60"),
    Row("context.max_messages", "[context]\nmax_messages = 9_000", "[context]\nmax_messages = 100"),
    Row("context.max_tokens", "[context]\nmax_tokens = 900_000_000", "[context]\nmax_tokens = 9_000"),
    Row("prompt.zone", '[prompt]\nzone = "Asia/Tokyo"', trusted="may set it"),
    Row("plan.max_replans", "[plan]\nmax_replans = 9", "[plan]\nmax_replans = 2"),
    Row("reflection.after_failures", "[reflection]\nafter_failures = 9", "[reflection]\nafter_failures = 1"),
    Row("answers.calibrated", "[answers]\ncalibrated = false", "[answers]\ncalibrated = true"),
    Row("answers.threshold", "[answers]\nthreshold = 0.25", "[answers]\nthreshold = 0.75"),
    Row("reflection.every_turns", "[reflection]\nevery_turns = 99", "[reflection]\nevery_turns = 2"),
    Row("reflection.max", "[reflection]\nmax = 9", "[reflection]\nmax = 0"),
    Row("reflection.model", '[reflection]\nmodel = "openai:gpt-x"', trusted="may set it"),
    Row("compaction.at", "[compaction]\nat = 0.9", trusted="may set it"),
    Row("compaction.to", "[compaction]\nto = 0.2", trusted="may set it"),
    Row("compaction.turns", "[compaction]\nturns = 20", trusted="may set it"),
    Row("compaction.model", '[compaction]\nmodel = "openai:gpt-x"', trusted="may set it"),
    Row("compaction.max_per_hour", "[compaction]\nmax_per_hour = 50", "[compaction]\nmax_per_hour = 0"),
    Row(
        "compaction.max_cost_share",
        "[compaction]\nmax_cost_share = 0.4",
        "[compaction]\nmax_cost_share = 0.01",
    ),
    Row("notify.on", 'notify.on = ["done"]', trusted="may set it"),
    Row("notify.command", 'notify.command = ["true"]', trusted="may set it"),
    hook("on", '["before_tool"]'),
    hook("tools", '["shell"]'),
    hook("command", '["false"]'),
    Row("hooks.*.python", '[hooks.mine]\non = ["before_tool"]\npython = "x"', trusted="may set it"),
    hook("timeout_s", "9"),
    hook("on_failure", '"allow"'),
    Row("undo.keep", '[undo]\nkeep = "400d"', trusted="may not set it"),
]


class Project(NamedTuple):
    """A home, and a workspace with a project file."""

    home: Home
    workspace: Path

    @property
    def file(self) -> Path:
        return self.workspace / PROJECT_FILE

    def says(self, content: str, *, is_trusted: bool = False) -> Config:
        self.file.write_text(content)
        if is_trusted:
            self.trust()
        return self.load()

    def load(self) -> Config:
        return load(self.home, self.workspace, {}, {}, machine_file=self.workspace / "no-admin.toml")

    def trust(self) -> None:
        trust(self.home, self.file, proposal(self.home, self.file, {}).sha256)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    workspace.mkdir()
    (home / "config.toml").write_text(USER_FILE)
    return Project(find_home(str(home), {}), workspace)


def counts(config: Config, project: Project) -> bool:
    """Whether the project file set anything."""
    return any(each.origin.startswith(f"{project.file}:") for each in config.settings.values())


@pytest.mark.requirement("L9", "A4")
def test_every_key_of_the_schema_has_a_row_in_the_table() -> None:
    assert [row.key for row in TABLE] == [key.path for key in KEYS]


@pytest.mark.requirement("L9", "A4")
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.key)
def test_an_untrusted_file_may_tighten_and_nothing_else(project: Project, row: Row) -> None:
    without = load(project.home, None, {}, {}, machine_file=project.file)
    if row.looser:
        loosened = project.says(row.looser)
        assert not counts(loosened, project)
        assert loosened.settings == without.settings
        assert {each.origin.partition(":")[0] for each in loosened.ignored} == {str(project.file)}
        assert len(loosened.warnings) == len(without.warnings) + 1
    if row.stricter:
        tightened = project.says(row.stricter)
        assert counts(tightened, project)
        assert tightened.warnings == without.warnings


@pytest.mark.requirement("L9", "A4")
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.key)
def test_a_trusted_file_sets_what_it_was_trusted_with_but_loosens_no_limit(
    project: Project, row: Row
) -> None:
    if row.looser:
        loosened = project.says(row.looser, is_trusted=True)
        assert counts(loosened, project) == (row.trusted == "may set it")
        assert bool(loosened.ignored) == (row.trusted != "may set it")
    if row.stricter:
        assert counts(project.says(row.stricter, is_trusted=True), project)


@pytest.mark.requirement("C12", "A4")
def test_a_project_file_may_ask_again_where_the_user_lets_a_sandbox_answer(project: Project) -> None:
    (project.home.folder / "config.toml").write_text('[policy]\nsandboxed = "allow"\n')
    assert project.says("").policy.sandboxed == "allow"
    assert project.says('[policy]\nsandboxed = "ask"\n').policy.sandboxed == "ask"


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("named", ["script:run.jsonl", "script:/etc/x", "SCRIPT:x"])
def test_a_project_file_never_names_a_script_as_the_model(project: Project, named: str) -> None:
    for trusted in (False, True):
        config = project.says(f'model = "{named}"\n', is_trusted=trusted)
        assert config.model == "anthropic:claude-sonnet-5"
        (ignored,) = config.ignored
        assert "script" in ignored.why
        assert not ignored.needs_trust


@pytest.mark.requirement("A4", "L9")
def test_a_changed_file_is_untrusted_again(project: Project) -> None:
    assert project.says('model = "openai:gpt-5.5"\n', is_trusted=True).model == "openai:gpt-5.5"
    assert project.says('model = "openai:gpt-5.5"\nautonomy = "full"\n').model == "anthropic:claude-sonnet-5"
    assert project.says('model = "openai:gpt-5.5"\n').model == "openai:gpt-5.5"


@pytest.mark.requirement("A4")
def test_trust_belongs_to_a_place_and_not_to_a_content(project: Project, tmp_path: Path) -> None:
    project.says('autonomy = "full"\n', is_trusted=True)
    copied, linked = tmp_path / "copied", tmp_path / "linked"
    copied.mkdir()
    linked.mkdir()
    (copied / PROJECT_FILE).write_bytes(project.file.read_bytes())
    (linked / PROJECT_FILE).symlink_to(project.file)
    for workspace in (copied, linked):
        assert project._replace(workspace=workspace).load().autonomy == "supervised"
    (tmp_path / "door").symlink_to(project.workspace)  # another way to the same folder
    assert project._replace(workspace=tmp_path / "door").load().autonomy == "full"


@pytest.mark.requirement("A4", "A16")
def test_all_that_waits_for_trust_is_told_in_one_warning_with_the_next_command(project: Project) -> None:
    config = project.says('autonomy = "full"\nmodel = "openai:gpt-5.5"\n[limits]\nturns = 9_999\n')
    (told,) = [warning for warning in config.warnings if "holdfast trust" in warning]
    assert f"holdfast trust {project.file}" in told
    assert "autonomy" in told
    assert "model" in told
    assert "limits" not in told
    (limits,) = [warning for warning in config.warnings if "limits.turns" in warning]
    assert "may only tighten, and 25 is already set" in limits


@pytest.mark.requirement("A4")
def test_the_record_of_trust_is_its_owners_alone_and_nothing_else_is_taken_for_one(project: Project) -> None:
    digest = "ab" * 32
    os.umask(0o022)
    assert not is_trusted(project.home, project.file, digest)
    trust(project.home, project.file, digest)
    assert is_trusted(project.home, project.file, digest)
    assert not is_trusted(project.home, project.file, "cd" * 32)
    folder = project.home.folder / "trust"
    (record,) = folder.iterdir()
    assert (stat.S_IMODE(folder.stat().st_mode), stat.S_IMODE(record.stat().st_mode)) == (0o700, 0o600)
    for spoiled in (b"", b"{}", b"\xff", record.read_bytes().replace(b"workspace", b"elsewhere")):
        record.write_bytes(spoiled)
        assert not is_trusted(project.home, project.file, digest)
    record.unlink()
    os.mkfifo(record)
    assert not is_trusted(project.home, project.file, digest)


@pytest.mark.requirement("L9", "A4")
def test_another_admin_file_lifts_no_restriction_of_the_machines(project: Project, tmp_path: Path) -> None:
    machine, named = tmp_path / "machine.toml", tmp_path / "named.toml"
    machine.write_text('autonomy = "read-only"\n[limits]\nturns = 50\ntokens = 900\n')
    named.write_text('autonomy = "supervised"\n[limits]\nturns = 10\n')
    flags: dict[str, object] = {"autonomy": "full", "limits.turns": 400, "limits.tokens": 4_000}
    for environ in ({}, {"HOLDFAST_ADMIN_CONFIG": str(tmp_path / "none.toml")}):
        config = load(project.home, None, flags, environ, machine_file=machine)
        assert (config.autonomy, config.limits.turns, config.limits.tokens) == ("read-only", 50, 900)
    environ = {"HOLDFAST_ADMIN_CONFIG": str(named)}
    config = load(project.home, None, flags, environ, machine_file=machine)
    assert (config.autonomy, config.limits.turns, config.limits.tokens) == ("read-only", 10, 900)


@pytest.mark.requirement("A4")
def test_a_proposal_tells_for_every_key_whether_it_counts(project: Project) -> None:
    project.file.write_text(
        'model = "script:x"\nautonomy = "full"\n'
        '[limits]\nturns = 3\nidle = "20h"\n[catalog."a:*"]\ncontext_tokens = 5000\n'
    )
    told = proposal(project.home, project.file, {}, machine_file=project.file.parent / "none")
    assert not told.is_trusted
    assert [(each.key, each.counts, each.now) for each in told.changes] == [
        ("model", "never", "anthropic:claude-sonnet-5"),
        ("autonomy", "trusted", "supervised"),
        ("limits.turns", "already", 25),
        ("limits.idle", "never", "5m"),
        ('catalog."a:*".context_tokens', "trusted", None),
    ]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("before", MODES)
@pytest.mark.parametrize("wanted", MODES)
def test_a_project_chooses_a_stricter_sandbox_and_no_looser_one(
    project: Project, before: str, wanted: str
) -> None:
    (project.home.folder / "config.toml").write_text(f'sandbox.mode = "{before}"\n')
    found = project.says(f'[sandbox]\nmode = "{wanted}"')
    stricter = wanted if MODES.index(wanted) > MODES.index(before) else before
    assert found.policy.walls.backend == stricter
