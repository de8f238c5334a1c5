"""`holdfast policy check`: one verdict for each question, and a sentence for everything else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.conftest import Holdfast
from tests.cli.processes import Cli, calls, says


@pytest.fixture
def holdfast(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Holdfast:
    """With its home and settings outside of the workspace: no command runs where these are in it."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("HOLDFAST_HOME", str(elsewhere / "no-home"))
    monkeypatch.setenv("HOLDFAST_ADMIN_CONFIG", str(elsewhere / "no-admin.toml"))
    return holdfast


@pytest.mark.requirement("C12", "C13")
@pytest.mark.parametrize(
    ("question", "verdict", "rule"),
    [
        (("--command", "ls -la"), "allow", "proved"),
        (("--command", "./x"), "ask", "autonomy:supervised"),
        (("--command", "rm -rf /"), "deny", "hard-floor"),
        (("--read", "a.txt"), "allow", "autonomy:supervised"),
        (("--read", ".env"), "deny", "secret-path"),
        (("--read", "../a.txt"), "deny", "workspace"),
        (("--read", ""), "deny", "schema"),
        (("--write", "holdfast.toml"), "ask", "steering:holdfast.toml"),
        (("--write", ".git/hooks/pre-commit"), "deny", "steering:.git/hooks"),
        (("--tool", "write_file", "--args", '{"path": "a", "content": "b"}'), "allow", "autonomy:supervised"),
        (("--tool", "read_file", "--args", '{"path": "a", "limit": "5"}'), "allow", "autonomy:supervised"),
        (("--tool", "write_file", "--args", '{"pth": "a"}'), "deny", "schema"),
        (("--tool", "write_file", "--args", "{"), "deny", "schema"),
        (("--tool", "read_file", "--args", '{"path": "a", "path": "b"}'), "deny", "schema"),
        (("--url", "https://example.com/"), "deny", "egress"),
        (("--url", "file:///etc/hostname"), "deny", "workspace"),
        (("--tool", "ask_user", "--args", '{"question": "Which one?"}'), "allow", "autonomy:supervised"),
    ],
)
def test_a_question_is_answered_with_a_verdict_its_rule_and_a_reason(
    holdfast: Holdfast, question: tuple[str, ...], verdict: str, rule: str
) -> None:
    ended = holdfast("policy", "check", *question, "--json")
    (row,) = ended.rows
    assert (ended.code, row["verdict"], row["rule"]) == (0, verdict, rule)
    assert row["reason"].endswith((".", "?"))
    told = holdfast("policy", "check", *question).out
    assert told.startswith(f"{verdict}  {rule}")


@pytest.mark.requirement("C12")
def test_the_settings_of_the_folder_count(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "holdfast.toml").write_text('autonomy = "read-only"\n')
    strict = holdfast("policy", "check", "--write", "a", "-w", str(tmp_path / "project"), "--json").rows
    assert (strict[0]["verdict"], strict[0]["rule"]) == ("deny", "autonomy:read-only")
    assert holdfast("policy", "check", "--write", "a", "--json").rows[0]["verdict"] == "allow"


@pytest.mark.requirement("A4", "L9")
def test_the_rules_of_a_project_file_tighten_at_once_and_loosen_after_trust(
    holdfast: Holdfast, tmp_path: Path
) -> None:
    def verdict(command: str) -> tuple[str, str]:
        (row,) = holdfast("policy", "check", "--command", command, "--json").rows
        return row["verdict"], row["rule"]

    file = tmp_path / "holdfast.toml"
    file.write_text('[policy]\nallow = ["shell(gzip *)"]\ndeny = ["shell(git push *)"]\n')
    assert verdict("cd x && git -C y push") == ("deny", "deny:shell(git push *)")
    assert verdict("gzip -9 a")[0] == "ask"
    assert holdfast("trust", "--yes").code == 0
    assert verdict("gzip -9 a") == ("allow", "allow:shell(gzip *)")
    file.write_text(file.read_text() + "\n")
    assert verdict("gzip -9 a")[0] == "ask"


@pytest.mark.requirement("C13", "L9")
def test_the_hosts_and_paths_of_a_project_file_may_only_narrow_before_trust(
    holdfast: Holdfast, tmp_path: Path
) -> None:
    def verdict(*question: str) -> tuple[str, str]:
        (row,) = holdfast("policy", "check", *question, "--json").rows
        return row["verdict"], row["rule"]

    (tmp_path / "src").mkdir()
    url, file = ("--url", "http://127.0.0.1:8080/"), tmp_path / "holdfast.toml"
    file.write_text('[network]\nallow = ["127.0.0.1:8080"]\n[policy]\nallowed_paths = ["src", ".:ro"]\n')
    assert verdict(*url) == ("deny", "egress")
    assert verdict("--write", "a") == ("deny", "allowed-path")
    assert verdict("--write", "src/a")[0] == verdict("--read", "a")[0] == "allow"
    assert holdfast("trust", "--yes").code == 0
    assert verdict(*url) == ("allow", "egress")


def test_an_administrator_narrows_hosts_and_paths(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(
        '[network]\nallow = ["a.example", "b.example"]\n[policy]\nallowed_paths = ["src", "docs:ro"]\n'
    )
    (tmp_path / "admin.toml").write_text(
        '[network]\nallow = ["*.example", "b.example"]\n[policy]\nallowed_paths = [".:ro"]\n'
    )
    monkeypatch.setenv("HOLDFAST_ADMIN_CONFIG", str(tmp_path / "admin.toml"))
    rows = holdfast("config", "show", "--home", str(tmp_path / "home"), "--json").rows
    found = {row["key"]: (row["value"], row["origin"]) for row in rows}
    assert found["network.allow"] == (["a.example", "b.example"], f"{tmp_path}/home/config.toml:2")
    assert found["policy.allowed_paths"] == (["src:ro", "docs:ro"], f"{tmp_path}/admin.toml:4")


@pytest.mark.requirement("L2", "L9")
def test_an_empty_list_of_paths_allows_nothing(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("[policy]\nallowed_paths = []\n")
    for question in (("--read", "a"), ("--write", "a"), ("--command", "true")):
        (row,) = holdfast("policy", "check", *question, "--json").rows
        assert (row["verdict"], row["rule"]) == ("deny", "allowed-path")


@pytest.mark.requirement("L2", "L9")
def test_wrong_hosts_and_paths_are_reported_together(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(
        '[network]\nallow = ["https://a.example/", "*"]\n[policy]\nallowed_paths = ["..", "/"]\n'
    )
    ended = holdfast("config", "check")
    assert ended.code == 2
    assert ended.err.count("holdfast.toml:2: network.allow: ") == 2
    assert ended.err.count("holdfast.toml:4: policy.allowed_paths: ") == 2
    assert "the nearest one is a.example" in ended.err
    assert "'/' does not lie in the workspace" in ended.err
    assert "'..' does not lie in the workspace" in ended.err


def test_a_wrong_rule_is_a_configuration_error(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[policy]\nallow = ["shell(bash *)"]\ndeny = ["shel(x)"]\n')
    ended = holdfast("policy", "check", "--command", "ls", "--json")
    assert ended.code == 2
    for said in ("holdfast.toml:2: policy.allow", "holdfast.toml:3: policy.deny", "shell(x)"):
        assert said in ended.err


def test_a_secret_of_the_environment_is_found_in_the_arguments(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "tulip-" * 4)
    (row,) = holdfast("policy", "check", "--command", f"echo {'tulip-' * 4}", "--json").rows
    assert (row["verdict"], row["rule"]) == ("deny", "secret-value")
    assert "DEPLOY_TOKEN" in row["reason"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--tool", "wirte_file", "--args", "{}"), "Did you mean write_file?"),
        (("--tool", "read_file"), "go together"),
        (("--args", "{}", "--read", "a"), "go together"),
        ((), "exactly one"),
        (("--read", "a", "--write", "a"), "exactly one"),
        (("--batch", "no-such-file"), "does not exist"),
        (("--batch", "."), "is a folder"),
        (("--read", "a", "-w", "no-such-folder"), "is not a folder"),
    ],
)
def test_a_wrong_question_exits_2_and_says_what_to_do(
    holdfast: Holdfast, flags: tuple[str, ...], says: str
) -> None:
    ended = holdfast("policy", "check", *flags, "--json")
    assert (ended.code, "error" in ended.rows[0]) == (2, True)
    assert says in ended.err


def test_each_line_of_a_batch_has_its_verdict_or_its_error_in_place(
    holdfast: Holdfast, tmp_path: Path
) -> None:
    lines = [
        '{"command": "rm -rf /", "id": 7}',
        "not JSON",
        '{"read": "a", "write": "a"}',
        '{"tool": "read_file", "args": {"path": "a"}}',
        '{"tool": "read_file", "arguments": "{\\"path\\": \\".env\\"}"}',
        '{"tool": "wirte_file", "args": {}}',
        '{"tool": "read_file", "args": 7}',
        '{"read": 7}',
        '["read"]',
        "",
        '{"url": "x' + "x" * 1_000_000 + '"}',
        "[" * 5_000,
        '{"write": "a"}',
    ]
    (tmp_path / "batch").write_text("\n".join(lines))
    ended = holdfast("policy", "check", "--batch", "batch", "--json")
    found = [row.get("verdict", "error") for row in ended.rows]
    assert found == ["deny", "error", "error", "allow", "deny", *["error"] * 7, "allow"]
    assert ended.code == 1
    assert "Did you mean write_file?" in ended.rows[5]["error"]
    told = holdfast("policy", "check", "--batch", "batch")
    assert (told.code, len(told.out.splitlines())) == (1, len(lines))


def test_a_batch_of_good_lines_exits_0_and_may_come_from_stdin(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "batch").write_text('{"read": "a"}\n{"read": ".env"}\n')
    with (tmp_path / "batch").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        ended = holdfast("policy", "check", "--batch", "-", "--json")
    assert (ended.code, [row["verdict"] for row in ended.rows]) == (0, ["allow", "deny"])


_TEXTS = st.text(st.characters(exclude_categories=()), max_size=40)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["command", "read", "write", "url", "tool"]), _TEXTS, min_size=1, max_size=1
        ).map(json.dumps)
        | st.text(max_size=20).map(lambda text: text.replace("\n", " ")),
        max_size=8,
    )
)
def test_no_text_of_a_batch_causes_anything_but_a_verdict_or_an_error(
    holdfast: Holdfast, tmp_path: Path, lines: list[str]
) -> None:
    (tmp_path / "batch").write_text("".join(f"{line}\n" for line in lines))
    ended = holdfast("policy", "check", "--batch", "batch", "--json")
    assert ended.code in (0, 1)
    assert len(ended.rows) == len(lines)
    assert all(row.keys() in ({"verdict", "rule", "reason"}, {"error"}) for row in ended.rows)


@pytest.mark.requirement("L9", "L12")
def test_a_resumed_session_follows_the_rules_of_today_and_records_them(cli: Cli) -> None:
    model = cli.model(calls("shell", command="kill -0 0; touch made"), says("Done."))
    assert cli("run", "go", "-m", model, "-s", "a:b").code == 5
    cli.configure('[policy]\ndeny = ["shell(touch *)"]\n')
    (asked,) = [json.loads(line) for line in cli("approvals", "--json").out.splitlines()]
    cli("approve", asked["id"])
    assert cli("resume", "a:b").code == 0
    assert not (cli.workspace / "made").exists()
    events = [json.loads(line) for line in cli("show", "a:b", "--events", "--json").out.splitlines()]
    stored = [event["body"] for event in events if event["type"] == "SettingsStored"]
    assert "shell(touch *)" in json.dumps(stored)
    assert "deny:shell(touch *)" in json.dumps(events)


@pytest.mark.requirement("C12", "S6")
def test_an_allowed_command_runs_without_anybody_being_asked(cli: Cli) -> None:
    cli.configure('[policy]\nallow = ["shell(touch *)"]\n')
    model = cli.model(calls("shell", command="touch made"), calls("shell", command="touch $A"), says("Done."))
    assert cli("run", "go", "-m", model).code == 5
    assert (cli.workspace / "made").exists()


@pytest.mark.requirement("C12")
def test_a_question_may_name_the_posture_of_the_run(holdfast: Holdfast) -> None:
    asked = ("policy", "check", "--command", "make test", "--json")
    assert holdfast(*asked).rows[0]["verdict"] == "ask"
    with_it = holdfast(*asked, "--posture", "overnight").rows[0]
    assert "sandboxed" in with_it["rule"] + with_it["reason"]
    assert holdfast(*asked, "--posture", "overnite").code == 2


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("workspace", ["/", "home"])
def test_where_no_command_runs_the_answer_is_that_of_the_sandbox(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workspace: str
) -> None:
    """As in a run, where the sandbox is asked before the gates."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    def verdict(*question: str) -> tuple[str, str, str]:
        folder = str(tmp_path / workspace)
        (row,) = holdfast("policy", "check", *question, "-w", folder, "--json").rows
        return row["verdict"], row["rule"], row["reason"]

    found = verdict("--command", "touch a; ls")
    assert found[:2] == ("deny", "sandbox")
    assert found[2].startswith("No command runs in a sandbox in this workspace: ")
    assert verdict("--write", "a")[1] != "sandbox", "file tools work"
    monkeypatch.setenv("HOLDFAST_SANDBOX_MODE", "unsafe")
    assert verdict("--command", "ls -la")[1] != "sandbox"
