"""Configuration from all its sources: precedence, origins, what a project may say, every bad value named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from holdfast.config.keys import KEYS
from holdfast.config.load import load, load_only
from holdfast.config.paths import find_home
from holdfast.config.schema import json_schema, shown
from holdfast.config.settings import CatalogEntry, Config, ProviderSettings
from holdfast.errors import ConfigError
from holdfast.protocol.limits import Limits
from holdfast.protocol.settings import Repairs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


def loaded(
    home: Path, workspace: Path | None = None, flags: dict[str, object] | None = None, **environ: str
) -> Config:
    environ.setdefault("HOLDFAST_ADMIN_CONFIG", str(home / "no-admin.toml"))
    return load(find_home(str(home), environ), workspace, flags or {}, environ)


def problems(home: Path, workspace: Path | None = None, **rest: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(home, workspace, **rest)
    assert caught.value.exit_code == 2
    return caught.value.problems


@pytest.mark.requirement("L9", "B2")
def test_no_file_at_all_means_the_documented_defaults(home: Path) -> None:
    config = loaded(home)
    assert config.limits == Limits(
        turns=25,
        tokens=5_000_000,
        cost_microusd=2_000_000,
        wall_s=7200,
        idle_s=300,
        tool_calls=1_000_000,
        request_s=600,
        call_microusd=0,
    )
    assert (config.autonomy, config.approve_by, config.model) == ("supervised", None, "")
    assert not config.limits.is_cost_set
    assert config.policy.walls.backend == "auto"
    assert not config.warnings


@pytest.mark.requirement("C3", "L9", "S6")
def test_no_file_at_all_means_the_documented_defaults_of_the_gates(home: Path) -> None:
    config = loaded(home)
    policy = config.policy
    assert (policy.deny, policy.ask, policy.allow, policy.allowed_hosts) == ((), (), (), ())
    assert (policy.allowed_paths, policy.sandboxed, policy.actions_per_hour) == ((".",), "ask", 600)
    assert (policy.unknown_arguments, policy.offered, policy.withheld) == ("reject", ("*",), ())
    assert (policy.is_workspace_untrusted, policy.grants_last_s) == (False, 12 * 3600)
    assert config.repairs == Repairs(5, 5, 5, 5, 20, 50)


BAD_LINES = [
    ("[limits]\nturns = 0", 2, "limits.turns = 0", "from 1 to 10,000"),
    ("[limits]\nturns = 1_000_000", 2, "limits.turns = 1000000", "from 1 to 10,000"),
    ("[limits]\nturns = -3", 2, "limits.turns = -3", "from 1 to 10,000"),
    ("[limits]\nturns = true", 2, "limits.turns = True", "a whole number"),
    ("[limits]\nturns = 2.5", 2, "limits.turns = 2.5", "a whole number"),
    ("\n[limits]\nwall = 0", 3, "limits.wall = 0", "from 1s to 30d"),
    ("[limits]\nwall = -1", 2, "limits.wall = -1", "from 1s to 30d"),
    ('[limits]\nwall = "2 hours"', 2, "limits.wall = '2 hours'", "like"),
    ('[limits]\nwall = ""', 2, "limits.wall = ''", "like"),
    ('[limits]\nidle = "0s"', 2, "limits.idle = '0s'", "from 1s to 1d"),
    ("[limits]\nidle = nan", 2, "limits.idle = nan", "from 1s"),
    ("[limits]\ntokens = 0", 2, "limits.tokens = 0", "from 1"),
    ("[limits]\ncost_usd = 0", 2, "limits.cost_usd = 0", "dollars from"),
    ('[limits]\ncost_usd = "free"', 2, "limits.cost_usd = 'free'", "dollars from"),
    ("[limits]\ncost_usd = inf", 2, "limits.cost_usd = inf", "dollars from"),
    ("[limits]\nmax_turns = 5", 2, "limits.max_turns", "did you mean limits.turns?"),
    ("[limits]\nturns = '3'", 2, "limits.turns = '3'", "a whole number from 1"),
    ("\n[limts]\n# a\nturns = 5", 2, "[limts]", "there is no section [limts]; did you mean [limits]?"),
    ("limts.turns = 5", 1, "[limts]", "did you mean [limits]?"),
    ("a = 1\nlimts = { turns = 5 }", 2, "[limts]", "did you mean [limits]?"),
    ("[limit]", 1, "limit", "there is no section [limit]; did you mean [limits]?"),
    ("[postures.mine.limit]\nturns = 5", 1, "[postures.mine.limit]", "did you mean [postures.mine.limits]?"),
    ("[posture.mine]\n[posture.mine.limits]\nturns = 5", 1, "posture is a value", "not a section"),
    (
        "[weather]\nwind = 5",
        1,
        "[weather]",
        "there is no section [weather]; the sections are answers, budgets, catalog, circuits, compaction,",
    ),
    ("[model]\nname = 'a:b'", 1, "model", "model is a value, not a section"),
    ("[limits.daily]\nturns = 5", 1, "[limits.daily]", "there is no section [limits.daily]"),
    ("limits = 5", 1, "limits", "is a section"),
    ("allowed_paths = []", 1, "allowed_paths", "it belongs to the section [policy]"),
    ('allowed_paths = ["/"]', 1, "allowed_paths", "it belongs to the section [policy]"),
    ('model = "gpt-5"', 1, "model = 'gpt-5'", "PROVIDER:MODEL"),
    ('autonomy = "yolo"', 1, "autonomy = 'yolo'", "read-only"),
    ('posture = "overnite"', 1, "posture = 'overnite'", "did you mean overnight?"),
    (
        '[sandbox]\nmemory = "2GB"',
        2,
        "sandbox.memory = '2GB'",
        'a size from 64MiB to 16TiB, like "512MiB" or "2GiB"',
    ),
    ("[sandbox]\nfile_size = 0", 2, "sandbox.file_size = 0", "a size from 1MiB to 1024TiB"),
    ("[sandbox]\nprocesses = 2", 2, "sandbox.processes = 2", "8"),
    ("[sandbox]\ncpu = 0", 2, "sandbox.cpu = 0", "a duration from 1s"),
    ('[sandbox]\nread = ["tools", "/", "~"]', 2, "sandbox.read", "must begin with / or ~/"),
    ('[sandbox]\nread = ["~"]', 2, "sandbox.read", "is everything; name the folders"),
    ('[sandbox]\nwrite = ["/srv", "/proc"]', 2, "sandbox.write", "is a way to the kernel"),
    ('[sandbox]\nread = ["//sys/./kernel"]', 2, "sandbox.read", "is a way to the kernel"),
    ('[sandbox]\nmode = "docker"', 2, "sandbox.mode = 'docker'", "one of bubblewrap, auto, landlock, unsafe"),
    ("[circuits]\nfailures = 0", 2, "circuits.failures = 0", "a whole number from 1 to 1,000"),
    ("[circuits]\nfailures = 1001", 2, "circuits.failures = 1001", "a whole number from 1 to 1,000"),
    ('[circuits]\ncooldown = "0s"', 2, "circuits.cooldown = '0s'", "from 1s to 1d"),
    ('[rates."openai:*"]\nrequests_per_minute = 0', 2, "requests_per_minute = 0", "a whole number from 1"),
    ("[rates.home]\ntokens_per_minute = -5", 2, "rates.home.tokens_per_minute = -5", "a whole number from 1"),
    ("[rates.home]\nconcurrent = 1.5", 2, "rates.home.concurrent = 1.5", "a whole number from 1"),
    ('[rates."user:ann"]\nburst = 0', 2, "burst = 0", "from 1s to 1h"),
    ("[rates.home]\nrequests_per_min = 5", 2, "rates.home.requests_per_min", "requests_per_minute"),
    ("[rates.hom]\nconcurrent = 5", 2, "rates.hom.concurrent", "'hom' can match nothing: use PROVIDER:MODEL"),
    ("[providers.openai]\napi_key_env = []", 2, "api_key_env = []", "the name of an environment variable"),
    ('[providers.openai]\napi_key_env = ["A", "b c"]', 2, "api_key_env", "or a list"),
    ("[repeat]\nnote = 9", 2, "repeat.note = 9", "less than repeat.stop = 8"),
    ("[compaction]\nto = 0.8", 2, "compaction.to = 0.8", "less than compaction.at = 0.75"),
    ("[compaction]\nat = 0.96", 2, "compaction.at = 0.96", "0.95"),
    ("[compaction]\nturns = 0", 2, "compaction.turns = 0", "from 1"),
    ("max_output_tokens = 0", 1, "max_output_tokens = 0", "from 1"),
    ('providers.openai.base_url = "file:///etc"', 1, "providers.openai.base_url", "http://"),
    ('[catalog."openai:my-*"]\n# a\ncontxt_tokens = 5', 3, "contxt_tokens", "context_tokens"),
    ("turns = 5", 1, "turns", "did you mean limits.turns?"),
    ("timeout = 0", 1, "timeout", "did you mean limits.wall?"),
    ('text = """\na = 1\n"""\nturnz = 1', 4, "turnz", "there is no such key"),
    ("limits = { turns = 0 }", 1, "limits.turns = 0", "from 1 to 10,000"),
]


@pytest.mark.requirement("L9", "A5")
@pytest.mark.parametrize(("content", "line", "key", "told"), BAD_LINES)
def test_a_bad_value_is_named_by_file_line_key_and_range(
    home: Path, content: str, line: int, key: str, told: str
) -> None:
    file = home / "config.toml"
    file.write_text(content)
    found = [problem for problem in problems(home) if problem.startswith(f"{file}:{line}: ")]
    assert any(key in problem and told in problem for problem in found), found


@pytest.mark.requirement("L9")
def test_an_unknown_section_is_told_once_and_not_for_each_of_its_keys(home: Path) -> None:
    (home / "config.toml").write_text("[limit]\nturns = 0\nwall = 0\n[limits]\nidle = 0\n")
    section, key = problems(home)
    assert section == f"{home}/config.toml:1: there is no section [limit]; did you mean [limits]?"
    assert key.startswith(f"{home}/config.toml:5: limits.idle = 0")


@pytest.mark.requirement("L9")
def test_all_problems_of_all_sources_are_told_at_once(home: Path, workspace: Path) -> None:
    (home / "config.toml").write_text("modle = 'a:b'\n[limits]\nturns = 0\n")
    (workspace / "holdfast.toml").write_text("[limits]\nwall = 0\n")
    told = problems(home, workspace, flags={"limits.turns": 0}, HOLDFAST_LIMITS_TOKENS="many")
    assert [problem.split(": ")[0] for problem in told] == [
        f"{home}/config.toml:1",
        f"{home}/config.toml:3",
        f"{workspace}/holdfast.toml:2",
        "HOLDFAST_LIMITS_TOKENS",
        "--max-turns",
    ]


@pytest.mark.requirement("L9")
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[limits]\nturns = = 3\n", ":2: is not valid TOML"),
        (b"[limits\n", ":1: is not valid TOML"),
        (b'model = "a:b"\n\nx = "\xff"\n', ":3: is not UTF-8"),
        (b"a = 1\na = 2\n", ":2: is not valid TOML"),
    ],
)
def test_a_file_that_is_no_toml_is_told_with_its_line(home: Path, content: bytes, told: str) -> None:
    (home / "config.toml").write_bytes(content)
    (problem,) = problems(home)
    assert problem.startswith(f"{home}/config.toml{told}")


@pytest.mark.requirement("L9")
def test_a_folder_in_the_files_place_is_told(home: Path) -> None:
    (home / "config.toml").mkdir()
    assert problems(home) == [f"{home}/config.toml: is a folder, not a file"]


@pytest.mark.requirement("L9")
@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_is_told(home: Path) -> None:
    (home / "config.toml").write_text("")
    (home / "config.toml").chmod(0)
    assert problems(home) == [f"{home}/config.toml: cannot be read: permission denied"]


@pytest.mark.requirement("L9")
def test_an_empty_file_and_empty_sections_are_fine(home: Path) -> None:
    (home / "config.toml").write_text("\ufeff[limits]\n[providers]\n[providers.openai]\n")
    assert loaded(home).limits == Limits()


@pytest.mark.requirement("A4", "L9")
def test_a_literal_key_is_refused_without_being_repeated(home: Path) -> None:
    secret = "sk-" + "a1B2" * 12
    (home / "config.toml").write_text(f'[providers.openai]\napi_key = "{secret}"\napi_key_env = "{secret}"\n')
    told = problems(home)
    assert len(told) == 2
    assert "api_key_env = " in told[0]
    assert secret not in "".join(told)


@pytest.mark.requirement("L9", "A16")
def test_flags_beat_the_environment_which_beats_the_project_the_user_and_the_default(
    home: Path, workspace: Path
) -> None:
    (home / "config.toml").write_text(
        '[limits]\nturns = 20\ntokens = 2000\nwall = "1h30m"\n[repeat]\nstop = 20\n'
    )
    (workspace / "holdfast.toml").write_text('[limits]\nturns = 10\ntokens = 1000\nwall = "90s"\n')
    config = loaded(
        home, workspace, {"limits.turns": 30, "limits.idle": None}, HOLDFAST_LIMITS_TOKENS="3_000"
    )
    assert (config.limits.turns, config.limits.tokens, config.limits.wall_s) == (30, 3000, 90.0)
    origins = {row["key"]: (row["value"], row["origin"]) for row in shown(config)}
    assert origins["limits.turns"] == (30, "--max-turns")
    assert origins["limits.tokens"] == (3000, "HOLDFAST_LIMITS_TOKENS")
    assert origins["limits.wall"] == ("1m30s", f"{workspace}/holdfast.toml:4")
    assert origins["repeat.stop"] == (20, f"{home}/config.toml:6")
    assert origins["limits.idle"] == ("5m", "default")


@pytest.mark.requirement("L9")
def test_a_project_file_may_make_the_agent_less_free(home: Path, workspace: Path) -> None:
    (workspace / "holdfast.toml").write_text('autonomy = "read-only"\napprove_by = "deny"\n')
    config = loaded(home, workspace)
    assert (config.autonomy, config.approve_by) == ("read-only", "deny")


@pytest.mark.requirement("L9")
def test_the_admin_file_caps_even_flags_and_never_loosens(home: Path, tmp_path: Path) -> None:
    admin = tmp_path / "admin.toml"
    admin.write_text('model = "a:b"\nautonomy = "supervised"\n[limits]\nturns = 50\ntokens = 900_000_000\n')
    flags: dict[str, object] = {"limits.turns": 400, "autonomy": "full"}
    config = loaded(home, flags=flags, HOLDFAST_ADMIN_CONFIG=str(admin))
    assert (config.limits.turns, config.autonomy, config.model) == (50, "supervised", "")
    assert config.limits.tokens == Limits().tokens
    assert f"--max-turns: limits.turns is capped at 50 by {admin}:4." in config.warnings


@pytest.mark.requirement("B1", "B2")
def test_a_posture_stands_under_the_values_of_the_layer_that_names_it(home: Path) -> None:
    (home / "config.toml").write_text("[limits]\nturns = 30\nidle = 60\n")
    config = loaded(home, flags={"posture": "overnight", "limits.wall": "3h"})
    assert (config.limits.turns, config.limits.wall_s, config.limits.idle_s) == (500, 10_800.0, 60.0)
    assert config.settings["limits.turns"].origin == "posture overnight (--posture)"


@pytest.mark.requirement("C12")
def test_overnight_lets_unknown_programs_run_in_a_sandbox_unless_the_administrator_asks(
    home: Path, tmp_path: Path
) -> None:
    flags, admin = {"posture": "overnight"}, tmp_path / "admin.toml"
    config = loaded(home, flags=flags)
    assert config.policy.sandboxed == "allow"
    assert config.settings["policy.sandboxed"].origin == "posture overnight (--posture)"
    assert loaded(home).policy.sandboxed == "ask"
    admin.write_text('[policy]\nsandboxed = "ask"\n')
    config = loaded(home, flags=flags, HOLDFAST_ADMIN_CONFIG=str(admin))
    assert config.policy.sandboxed == "ask"
    admin.write_text('[policy]\nsandboxed = "allow"\n')
    assert loaded(home, HOLDFAST_ADMIN_CONFIG=str(admin)).policy.sandboxed == "ask"


def test_a_user_may_name_postures_of_their_own(home: Path) -> None:
    (home / "config.toml").write_text(
        '[postures.careful]\nautonomy = "read-only"\napprove_by = "deny"\nlimits = { turns = 5 }\n'
    )
    assert loaded(home).limits.turns == 25
    config = loaded(home, flags={"posture": "careful"})
    assert (config.autonomy, config.approve_by, config.limits.turns) == ("read-only", "deny", 5)


@pytest.mark.requirement("C18")
def test_providers_and_catalog_are_read_by_name(home: Path) -> None:
    (home / "config.toml").write_text(
        '[providers.openai]\nbase_url = "http://127.0.0.1:8000/v1"\napi_key_env = "MY_KEY"\n'
        '[catalog."openai:my-*"]\ninput_usd_per_mtok = 1\ncontext_tokens = 128000\n'
    )
    config = loaded(home)
    assert config.providers == {"openai": ProviderSettings("http://127.0.0.1:8000/v1", ("MY_KEY",))}
    assert config.catalog == {"openai:my-*": CatalogEntry(input_usd_per_mtok=1.0, context_tokens=128_000)}


@pytest.mark.requirement("S1")
def test_the_library_reads_exactly_what_it_is_given(home: Path, workspace: Path) -> None:
    (workspace / "holdfast.toml").write_text("[limits]\nturns = 3\n")
    assert load_only({"limits": {"turns": 7}, "model": "a:b"}).limits.turns == 7
    assert load_only(workspace / "holdfast.toml").limits.turns == 3
    with pytest.raises(ConfigError, match="no such file"):
        load_only(home / "missing.toml")
    with pytest.raises(ConfigError, match=r"config: limits\.turns = 0"):
        load_only({"limits": {"turns": 0}})
    both = load_only({"limits": {"turns": 7, "tokens": 9}}, {"limits": {"turns": 8}})
    assert both.limits == Limits(8, 9)
    with pytest.raises(ConfigError, match="in code: there is no section"):
        load_only({}, {"limts": {"turns": 1}})


def test_the_home_of_the_flag_beats_the_environments(tmp_path: Path) -> None:
    environ = {"HOLDFAST_HOME": str(tmp_path / "b")}
    assert find_home(str(tmp_path / "a"), environ).folder == tmp_path / "a"
    assert find_home(None, environ).user_file == tmp_path / "b" / "config.toml"
    assert find_home(None, {}).folder.name == "holdfast"


@pytest.mark.requirement("A16")
def test_the_schema_knows_every_key_its_default_and_nothing_else() -> None:
    schema = json_schema()
    validator = jsonschema_rs.validator_for(schema)
    good = {"model": "a:b", "limits": {"turns": 5}, "catalog": {"a:*": {"context_tokens": 5000}}}
    assert validator.is_valid(good)
    assert not validator.is_valid({"limits": {"turns": 0}})
    assert not validator.is_valid({"limits": {"turnz": 1}})
    assert not validator.is_valid({"providers": {"x": {"api_key": "y"}}})
    assert schema["properties"]["limits"]["properties"]["wall"]["default"] == "2h"


@pytest.mark.requirement("A16")
def test_every_default_is_a_value_that_its_key_allows() -> None:
    for key in KEYS:
        if key.default is not None:
            assert key.kind.read(key.kind.write(key.default)) == key.default, key.path
