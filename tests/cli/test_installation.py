"""The commands about an installation: fsck, tools, doctor, models, init and config."""

from __future__ import annotations

import contextlib
import http.server
import json
import shlex
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.commands import COMMANDS
from holdfast.cli.doctor import CHECKS, check_home, close_to_others
from holdfast.config.paths import find_home
from holdfast.storage.home import DATABASE
from tests.cli.conftest import Filled, Holdfast
from tests.edge import nursery


class _Models(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"object": "list", "data": [{"id": "qwen3:8b"}, {"id": "llama3"}]}).encode()
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def local_server() -> Iterator[str]:
    """The address of a server on this machine that lists two models."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Models) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def damage(home: Filled, seq: int) -> None:
    """Change a record as no store would."""
    connection = sqlite3.connect(home.folder / DATABASE, isolation_level=None)
    connection.execute("UPDATE records SET at_ms = at_ms + 1 WHERE seq = ?", (seq,))
    connection.close()


# --- fsck and tools


@pytest.mark.requirement("L7", "L12")
def test_fsck_tells_a_whole_home_from_a_damaged_one(holdfast: Holdfast, home: Filled) -> None:
    flags = ("--home", str(home.folder))
    whole = holdfast("fsck", *flags)
    assert (whole.code, whole.out) == (0, f"{home.folder}: every record, row and blob is intact.\n")
    damage(home, 9)
    broken = holdfast("fsck", "--json", *flags)
    assert broken.code == 1
    told = broken.rows[0]
    assert told["ok"] is False
    assert [(one["kind"], one["session"], one["seq"]) for one in told["damage"]] == [
        ("changed", home.finished, 9)
    ]
    assert f"{home.finished} record 9" in holdfast("fsck", *flags).out


@pytest.mark.requirement("L7", "C15")
def test_a_damaged_session_is_exit_9_and_the_others_are_shown(holdfast: Holdfast, home: Filled) -> None:
    damage(home, 9)
    answer = holdfast("show", home.finished, "--home", str(home.folder))
    assert (answer.code, "record 9" in answer.err, "holdfast fsck" in answer.err) == (9, True, True)
    assert holdfast("show", home.waiting, "--home", str(home.folder)).code == 0


def test_fsck_of_no_home_is_exit_9(holdfast: Holdfast, tmp_path: Path) -> None:
    assert holdfast("fsck", "--home", str(tmp_path / "none")).code == 9


def test_the_built_in_tools_are_listed(holdfast: Holdfast) -> None:
    rows = holdfast("tools", "--json").rows
    assert [(row["name"], row["effect"], row["on_interrupt"]) for row in rows][:2] == [
        ("read_file", "read", "rerun"),
        ("write_file", "write", "probe"),
    ]
    assert all(row["parameters"]["type"] == "object" for row in rows)
    assert "shell" in holdfast("tools").out


@pytest.mark.requirement("S5")
def test_the_tools_that_are_shown_as_offered_are_those_that_a_run_gets(
    holdfast: Holdfast, tmp_path: Path
) -> None:
    (tmp_path / "holdfast.toml").write_text('[tools]\ndeny = ["shell", "write_*"]\n')
    rows = holdfast("tools", "--json").rows
    offered = [row["name"] for row in rows if row["offered"]]
    assert {"shell", "write_file", "web_fetch", "answer"}.isdisjoint(offered)
    shown = holdfast("tools").out
    assert "A run here does not have: write_file, shell, answer, web_fetch" in shown
    assert [line.partition(" ")[0] for line in shown.splitlines()[1:-1]] == offered
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "Done."}\n')
    assert holdfast("run", "go", "-m", f"script:{script}").code == 0
    request = json.loads(holdfast("show", "last", "--request", "1").out)
    assert request["tools"] == offered


# --- doctor


@pytest.mark.requirement("A14")
def test_doctor_finds_a_home_that_others_may_read(holdfast: Holdfast, home: Filled) -> None:
    def told() -> tuple[int, str]:
        answer = holdfast("doctor", "--json", "--home", str(home.folder))
        return answer.code, next(row["severity"] for row in answer.rows if row["id"] == "home")

    assert told() == (0, "ok")
    (home.folder / DATABASE).chmod(0o644)
    assert told() == (1, "fault")
    (home.folder / DATABASE).chmod(0o600)
    home.folder.chmod(0o755)
    assert told() == (1, "fault")


@pytest.mark.requirement("A14")
def test_doctor_closes_a_home_to_which_a_link_leads(tmp_path: Path) -> None:
    data, link = tmp_path / "data", tmp_path / "home"
    data.mkdir(mode=0o755)
    link.symlink_to(data)
    (data / "elsewhere").symlink_to(tmp_path)
    (data / DATABASE).touch(0o644)
    home = find_home(str(link), {})
    (found,) = check_home(home)
    assert (found.severity, str(data) in found.message, str(data / DATABASE) in found.message) == (
        "fault",
        True,
        True,
    )
    assert str(data) in found.hint
    before = tmp_path.stat().st_mode
    close_to_others(home.folder)
    assert [each.severity for each in check_home(home)] == ["ok"]
    assert (data.stat().st_mode & 0o777, tmp_path.stat().st_mode) == (0o700, before)


@pytest.mark.requirement("L9")
def test_doctor_tells_a_broken_configuration_and_a_broken_database(
    holdfast: Holdfast, tmp_path: Path
) -> None:
    folder = tmp_path / "bad"
    folder.mkdir(mode=0o700)
    for name, content in (("config.toml", "[limits]\nturns = 0\n"), (DATABASE, "no database " * 100)):
        (folder / name).write_text(content)
        (folder / name).chmod(0o600)
    answer = holdfast("doctor", "--json", "--home", str(folder))
    faults = {row["id"]: row["message"] for row in answer.rows if row["severity"] == "fault"}
    assert answer.code == 1
    assert set(faults) == {"database", "config"}
    assert f"{folder}/config.toml:2: limits.turns = 0: must be" in faults["config"]


@pytest.mark.requirement("A12", "L7")
@pytest.mark.parametrize("table", ["records", "inbox", "approvals"])
def test_doctor_tells_a_database_that_opens_and_does_not_answer(
    holdfast: Holdfast, home: Filled, table: str
) -> None:
    with contextlib.closing(sqlite3.connect(home.folder / DATABASE)) as connection:
        connection.execute(f"DROP TABLE {table}")
    answer = holdfast("doctor", "--json", "--home", str(home.folder))
    assert answer.code == 1
    (fault,) = [row for row in answer.rows if row["severity"] == "fault"]
    assert (fault["id"], fault["hint"]) == ("database", "`holdfast fsck` lists all damage.")
    assert table in fault["message"]


def test_doctor_has_a_finding_for_every_check_in_order(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SANDBOX_MODE", "unsafe")
    ids = list(dict.fromkeys(row["id"] for row in holdfast("doctor", "--json").rows))
    assert ids == [
        "python",
        "home",
        "database",
        "config",
        "keys",
        "circuits",
        "shell",
        "sandbox.bubblewrap",
        "sandbox.landlock",
        "sandbox.cgroups",
        "sandbox.mode",
        "egress",
        "secrets",
        "disk",
    ]
    # Hooks, copies and left commands are told of if there are any, and the sandbox four times.
    assert len(ids) == len(CHECKS) - 3 + 3
    plain = holdfast("doctor")
    assert plain.code == 0
    assert "! sandbox.mode" in plain.out


def test_doctor_says_that_without_bash_no_command_runs(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = [row for row in holdfast("doctor", "--json").rows if row["id"] == "shell"]
    assert (found["severity"], found["hint"]) == ("warning", "Install bash.")


def test_doctor_says_what_tools_may_reach_and_which_search_engine_has_no_key(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SANDBOX_MODE", "unsafe")
    monkeypatch.setenv("TAVILY_API_KEY", "t" * 20)
    monkeypatch.delenv("EXA_API_KEY", raising=False)
    (tmp_path / "home").mkdir(mode=0o700)
    config = tmp_path / "home" / "config.toml"
    config.write_text(
        '[network]\nallow = ["a.example"]\n[search]\nengines = ["exa", "tavily", "duckduckgo"]\n'
    )
    config.chmod(0o600)
    rows = holdfast("doctor", "--json", "--home", str(tmp_path / "home")).rows
    found = [(row["severity"], row["message"]) for row in rows if row["id"] == "egress"]
    missing = "EXA_API_KEY is not set, so its search engine does not answer"
    assert found == [
        ("ok", "tools reach a.example; commands, without a sandbox, reach everything"),
        ("warning", missing),
    ]


# --- models and init


@pytest.mark.requirement("A12")
def test_models_shows_what_is_configured_and_can_be_used_and_never_a_key(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, local_server: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key-0123456789")
    monkeypatch.setenv("OLLAMA_HOST", local_server)
    assert "No model is configured" in holdfast("models").out
    monkeypatch.setenv("HOLDFAST_MODEL", "anthropic:claude-sonnet-5")
    answer = holdfast("models", "--json")
    assert answer.rows[0]["model"] == "anthropic:claude-sonnet-5"
    assert (answer.rows[0]["role"], answer.rows[0]["origin"]) == ("configured", "HOLDFAST_MODEL")
    assert answer.rows[0]["context_tokens"] >= 200_000
    assert [row["provider"] for row in answer.rows if "provider" in row] == ["anthropic", "ollama"]
    served = [row["model"] for row in answer.rows[1:] if "model" in row]
    assert served == ["ollama:qwen3:8b", "ollama:llama3"]
    plain = holdfast("models").out
    assert "configured in HOLDFAST_MODEL" in plain
    assert "openai" not in plain
    assert "0123456789" not in answer.out + plain
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert "cannot be used now" in holdfast("models").out


@pytest.mark.requirement("A12")
def test_models_all_shows_the_catalogue_and_every_provider(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key-0123456789")
    rows = holdfast("models", "--all", "--json").rows
    providers = {row["provider"]: row["usable"] for row in rows if "provider" in row}
    assert (providers["anthropic"], providers["openai"]) == (False, True)
    models = {row["model"]: row["usable"] for row in rows if "model" in row}
    assert (models["anthropic:claude-sonnet-5"], models["openai:gpt-5.5"]) == (False, True)


@pytest.mark.requirement("A12")
def test_models_tells_what_larger_calls_cost(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key-0123456789")
    rows = {row["model"]: row for row in holdfast("models", "--all", "--json").rows if "model" in row}
    tiered = rows["openai:gpt-5.5"]
    (larger,) = tiered["larger_calls"]
    assert larger["above_tokens"] == 272_000
    assert larger["input_usd_per_mtok"] > tiered["input_usd_per_mtok"]
    monkeypatch.setenv("HOLDFAST_MODEL", "openai:gpt-5.5")
    (line,) = [line for line in holdfast("models").out.splitlines() if line.startswith("openai:gpt-5.5 ")]
    assert line.endswith("above 272.0k")


def test_init_prefers_a_key_and_writes_the_user_file_once(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, local_server: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key-0123456789")
    monkeypatch.setenv("OLLAMA_HOST", local_server)
    folder = tmp_path / "fresh"
    first = holdfast("init", "--home", str(folder))
    assert first.code == 0
    assert "holdfast run" in first.out
    file = folder / "config.toml"
    assert file.read_text() == 'model = "anthropic:claude-sonnet-5"\n'
    assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)

    second = holdfast("init", "-m", "openai:gpt-5.5", "--home", str(folder), "--json")
    assert second.rows[0]["written"] is False
    assert file.read_text() == 'model = "anthropic:claude-sonnet-5"\n'


def test_init_takes_a_local_server_when_there_is_no_key(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, local_server: str
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", local_server)
    row = holdfast("init", "--home", str(tmp_path / "fresh"), "--json").rows[0]
    assert (row["model"], row["written"]) == ("ollama:qwen3:8b", True)


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


def test_init_works_with_a_server_that_does_not_list_its_models(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, silent_server: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", silent_server)
    row = holdfast("init", "--home", str(tmp_path / "fresh"), "--json").rows[0]
    assert (row["model"], row["written"]) == ("openai:gpt-5.5", True)
    assert "does not list its models" in row["why"]


@pytest.mark.requirement("L2-07")
def test_init_declares_a_server_of_the_user_free_only_when_told(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, silent_server: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", silent_server)
    unpriced, free = tmp_path / "unpriced", tmp_path / "free"
    told = holdfast("init", "-m", "openai:mine", "--home", str(unpriced)).out
    assert "Its price is not known" in told
    assert '[catalog."openai:mine"]' in told
    assert (unpriced / "config.toml").read_text() == 'model = "openai:mine"\n'
    assert "price" not in holdfast("init", "-m", "openai:mine", "--free", "--home", str(free)).out
    (row, *_) = holdfast("models", "--json", "--home", str(free)).rows
    assert (row["input_usd_per_mtok"], row["output_usd_per_mtok"], row["price_source"]) == (0, 0, "catalog")
    (row, *_) = holdfast("models", "--json", "--home", str(unpriced)).rows
    assert (row["input_usd_per_mtok"], row["price_source"]) == (None, "")


# --- completion and names


def complete(*words: str) -> str:
    """What the completion script of bash would be told."""
    environ = {"PATH": "/usr/bin:/bin", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    environ["_HOLDFAST_COMPLETE"] = "complete_bash"
    done = nursery.run([], text=True, cwd="/", env=environ, timeout=60)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_a_shell_completes_commands_and_flags() -> None:
    show = f"{shlex.quote(sys.executable)} -m holdfast --show-completion; true"
    shown = subprocess.run(["bash", "-c", show], capture_output=True, text=True, timeout=60, check=True)
    assert "_HOLDFAST_COMPLETE=complete_bash" in shown.stdout
    assert complete("holdfast", "sess").split() == ["sessions"]
    assert complete("holdfast", "show", "--time").split() == ["--timeline"]


@pytest.mark.parametrize("flag", ["--allow-tool", "--deny-tool"])
@pytest.mark.requirement("L9")
def test_a_tool_flag_that_matches_nothing_names_the_nearest_tool(holdfast: Holdfast, flag: str) -> None:
    answer = holdfast("run", "x", "-m", "ollama:any", flag, "raed_file")
    assert answer.code == 2
    assert f"{flag} raed_file matches no tool" in answer.err
    assert "Did you mean read_file?" in answer.err
    assert holdfast("sessions").out == "" or "No session" in holdfast("sessions").out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "No provider has a key"),
        (("-m", "nonsense"), "PROVIDER:MODEL"),
        (("-m", "opnai:x"), "mean openai"),
    ],
)
@pytest.mark.requirement("L9")
def test_init_that_cannot_pick_writes_nothing(
    holdfast: Holdfast, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    answer = holdfast("init", *flags, "--home", str(tmp_path / "fresh"))
    assert answer.code == 2
    assert said in answer.err
    assert not (tmp_path / "fresh").exists()


# --- config


@pytest.mark.requirement("L9")
def test_config_shows_each_value_and_where_it_came_from(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "configured"
    folder.mkdir(mode=0o700)
    (folder / "config.toml").write_text('model = "openai:gpt-5.5"\n[limits]\nturns = 50\n')
    (tmp_path / "holdfast.toml").write_text("[limits]\nturns = 7\n")
    monkeypatch.setenv("HOLDFAST_LIMITS_TOKENS", "1000")
    rows = {row["key"]: row for row in holdfast("config", "show", "--json", "--home", str(folder)).rows}
    assert rows["model"]["origin"] == f"{folder}/config.toml:1"
    assert (rows["limits.turns"]["value"], rows["limits.turns"]["origin"]) == (
        7,
        f"{tmp_path}/holdfast.toml:2",
    )
    assert rows["limits.tokens"]["origin"] == "HOLDFAST_LIMITS_TOKENS"
    assert rows["limits.idle"] == {"key": "limits.idle", "value": "5m", "origin": "default"}
    assert "holdfast.toml:2" in holdfast("config", "show", "--home", str(folder)).out


@pytest.mark.requirement("L9", "C15")
def test_every_problem_of_a_configuration_is_told_at_once(holdfast: Holdfast, tmp_path: Path) -> None:
    folder = tmp_path / "configured"
    folder.mkdir(mode=0o700)
    (folder / "config.toml").write_text('modl = "x:y"\n[limits]\nturns = 0\nwall = -1\n')
    answer = holdfast("config", "check", "--json", "--home", str(folder))
    assert answer.code == 2
    error = answer.rows[0]["error"]
    assert error["code"] == "config"
    told = error["message"].split("\n")
    places = [
        f"{folder}/config.toml:{line}: {key}"
        for line, key in ((1, "modl"), (3, "limits.turns"), (4, "limits.wall"))
    ]
    assert [line.startswith(place) for line, place in zip(told, places, strict=True)] == [True] * 3


def test_config_names_its_files_and_prints_its_schema(holdfast: Holdfast, tmp_path: Path) -> None:
    folder = str(tmp_path / "fresh")
    assert holdfast("config", "path", "--home", folder).out == f"{folder}/config.toml\n"
    files = holdfast("config", "path", "--json", "--home", folder).rows[0]
    assert files["project"] == {"path": f"{tmp_path}/holdfast.toml", "exists": False}
    schema = json.loads(holdfast("config", "schema").out)
    assert schema["properties"]["limits"]["properties"]["turns"]["default"] == 25
    assert holdfast("config", "check", "--home", folder).out == "The configuration is valid.\n"


FIRST = """
import os, sys, holdfast.cli.root
for name in [name for name in sys.modules if name.partition(".")[0] == "holdfast"]:
    del sys.modules[name]
for module in sys.argv[1:]:
    if not (pid := os.fork()):
        __import__(module)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        print(module, flush=True)
"""
"""Loads each module in a process that has loaded other packages, but nothing of Holdfast."""


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
def test_the_module_of_each_command_can_be_the_first_that_is_loaded(every: int) -> None:
    modules = {row.target.partition(":")[0] for rows in COMMANDS.values() for row in rows}
    done = subprocess.run(
        [sys.executable, "-c", FIRST, *sorted(modules)[::every]],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == [], done.stderr
