"""Commands in a sandbox, as a person meets it: the choice, the warning, and what happens where it does not work."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from holdfast.protocol.traffic import SHOWN_LINES
from tests.cli.processes import Cli, calls, says
from tests.edge import nursery
from tests.edge.machine import Finished

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

WALLS = '[sandbox]\nmode = "bubblewrap"\n'
BAIT = "a-bait-that-nobody-may-read"
TRIES = "cat ../outside.txt .env; ls -A ~; echo written > a.txt; nosuchprogram"


WITHOUT_LANDLOCK = """
import ctypes, struct, sys
lines = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x50026), (6, 0, 0, 0x7FFF0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
program = ctypes.create_string_buffer(struct.pack("=H6xQ", len(lines), ctypes.addressof(text)))
libc = ctypes.CDLL(None)
assert not libc.prctl(38, 1, 0, 0, 0) and not libc.prctl(22, 2, ctypes.byref(program), 0, 0)
sys.argv[0] = "holdfast"
from holdfast.cli.main import main
main()
"""
"""Runs the command where the kernel says that it knows no Landlock."""


def without_landlock(cli: Cli, *words: str) -> subprocess.CompletedProcess[str]:
    return nursery.run(
        words, code=WITHOUT_LANDLOCK, cwd=cli.workspace, env=cli._environ(), text=True, timeout=100
    )


TRUSTING = """
import sys
from holdfast.cli.main import main
from holdfast.sandbox import system
system.PROGRAMS = {sys.argv.pop(1)}
main()
"""
"""As if a folder belonged to the system."""


def trusting(cli: Cli, folder: Path, *words: str) -> Finished:
    done = nursery.run(
        [str(folder), *words], code=TRUSTING, cwd=cli.workspace, env=cli._environ(), text=True, timeout=100
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def rows(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    """What a command prints as JSON, an object a line."""
    return [json.loads(line) for line in cli(*arguments, "--json").out.splitlines()]


def results(cli: Cli) -> list[str]:
    return [row["text"] for row in rows(cli, "show", "last", "--tools")]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("autonomy", ["supervised", "full"])
def test_a_command_runs_inside_and_the_person_reads_what_that_does_not_stop(cli: Cli, autonomy: str) -> None:
    cli.configure(WALLS)
    (cli.folder / "outside.txt").write_text(BAIT)
    for name, content in ((".env", BAIT), ("try.sh", TRIES)):
        (cli.workspace / name).write_text(content)
    model = cli.model(calls("shell", command="bash try.sh"), says("Done."))
    done = cli("run", "go", "-m", model, "--autonomy", autonomy, "--approve-by", "wait")
    if autonomy == "supervised":
        assert done.code == 5  # a sandbox does not loosen what asks
        (asked,) = rows(cli, "approvals")
        done = cli("approve", asked["id"])
        done = cli("resume", "last")
    assert done.code == 0, done.err
    assert "sandbox (bubblewrap), without network. It does not stop" in done.err
    (text,) = results(cli)
    assert BAIT not in text
    assert "[exit code 127; commands run in a sandbox without the folders" in text
    assert (cli.workspace / "a.txt").read_text() == "written\n"
    (row,) = rows(cli, "show", "last", "--tools")
    assert (row["walled"]["backend"], len(row["walled"]["digest"])) == ("bubblewrap", 64)
    assert "bubblewrap" in cli("show", "last").out


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 1", "It could not run a program"),
        (
            'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
            "It let a program do what its fence forbids",
        ),
        ("", "bwrap is not installed"),
    ],
    ids=["broken", "lying", "missing"],
)
def test_where_the_sandbox_does_not_work_nothing_runs_and_the_exit_code_is_8(
    cli: Cli, script: str, why: str
) -> None:
    folder = cli.folder / "bin"
    folder.mkdir()
    for program in ("bash", "sh", "git"):
        (folder / program).symlink_to(str(shutil.which(program)))
    if script:
        (folder / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bwrap").chmod(0o755)
    cli.environ["PATH"] = str(folder)
    cli.configure(WALLS)
    model = cli.model(calls("shell", command="echo x > a.txt"), says("Done."))
    done = trusting(cli, folder, "run", "go", "-m", model, "--autonomy", "full", "--json")
    assert (done.code, done.json["error"]["code"]) == (8, "sandbox_unavailable")
    assert why in done.json["error"]["message"]
    assert why in done.err
    assert 'With mode = "unsafe"' in done.err
    assert not (cli.workspace / "a.txt").exists()
    told = trusting(cli, folder, "doctor", "--json").out.splitlines()
    found = {row["id"]: row for row in map(json.loads, told)}
    assert found["sandbox.mode"]["severity"] == "fault"
    assert why in found["sandbox.bubblewrap"]["message"]
    (here,) = [row["message"] for row in rows(cli, "doctor") if row["id"] == "sandbox.bubblewrap"]
    assert here == (
        f"{folder}/bwrap is not used: commands could have changed it."
        if script
        else "bwrap is not installed."
    )


def bin_without_bwrap(cli: Cli) -> Path:
    """Make a folder with the programs that a run needs, and no sandbox, the only one in which it looks."""
    folder = cli.folder / "bin"
    folder.mkdir()
    for program in ("bash", "sh", "git", "cat", "touch"):
        (folder / program).symlink_to(str(shutil.which(program)))
    cli.environ["PATH"] = str(folder)
    return folder


@pytest.mark.requirement("L2")
def test_by_default_a_command_runs_in_the_strictest_sandbox_that_works(cli: Cli) -> None:
    cli.environ["HOLDFAST_SANDBOX_MODE"] = "auto"
    (cli.folder / "outside.txt").write_text(BAIT)
    (cli.workspace / "try.sh").write_text("cat ../outside.txt; echo written > a.txt")
    model = cli.model(calls("shell", command="bash try.sh", repeat=True), says("Done."))
    told = []
    for make in (lambda _: None, bin_without_bwrap):
        make(cli)
        model = cli.model(calls("shell", command="bash try.sh"), says("Done."))
        done = cli("run", "go", "-m", model, "--autonomy", "full")
        assert done.code == 0, done.err
        assert BAIT not in results(cli)[0]
        told.append((rows(cli, "show", "last", "--tools")[0]["walled"]["backend"], done.err))
    assert [backend for backend, _ in told] == ["bubblewrap", "landlock"]
    assert "would stop more" not in told[0][1]
    assert (
        "bubblewrap would stop more: bwrap is not installed. Install bubblewrap: `apt install" in told[1][1]
    )
    assert (cli.workspace / "a.txt").read_text() == "written\n"


@pytest.mark.requirement("L2")
def test_with_auto_and_no_sandbox_nothing_runs_and_the_exit_code_is_8(cli: Cli) -> None:
    """Here the kernel is asked by a filter of system calls, as in many containers: it knows no Landlock."""
    cli.environ["HOLDFAST_SANDBOX_MODE"] = "auto"
    bin_without_bwrap(cli)
    model = cli.model(calls("shell", command="echo x > a.txt"), says("Done."))
    done = without_landlock(cli, "run", "go", "-m", model, "--autonomy", "full")
    assert done.returncode == 8, done.stderr
    assert (
        "No sandbox works here, so no command runs. bubblewrap: bwrap is not installed. landlock: "
        in done.stderr
    )
    assert 'With mode = "unsafe"' in done.stderr
    assert "Landlock needs Linux" in done.stderr
    files = without_landlock(cli, "run", "go", "-m", cli.model(says("Done.")), "--allow-tool", "*_file")
    assert ("--allow-tool '*_file'" in done.stderr, files.returncode) == (True, 0)
    assert not (cli.workspace / "a.txt").exists()


@pytest.mark.requirement("L2")
def test_exit_code_8_names_the_line_of_the_project_that_keeps_the_users_mode_from_counting(cli: Cli) -> None:
    bin_without_bwrap(cli)
    cli.configure('[sandbox]\nmode = "unsafe"\n')
    line = cli.workspace / "holdfast.toml"
    line.write_text('[sandbox]\nmode = "bubblewrap"\n')
    model = cli.model(calls("shell", command="echo x > a.txt"), says("Done."))
    done = cli("run", "go", "-m", model, "--autonomy", "full")
    assert done.code == 8
    assert f'mode = "bubblewrap" ({line}:2) cannot be used' in done.err
    assert f"{line}:2 sets this mode. Your own value counts only without that line. With mode" in done.err


@pytest.mark.requirement("L2")
def test_exit_code_8_names_the_line_of_the_user_with_the_mode(cli: Cli) -> None:
    bin_without_bwrap(cli)
    cli.configure(WALLS)
    done = cli("run", "go", "-m", cli.model(calls("shell", command="ls")), "--autonomy", "full")
    assert done.code == 8
    assert "config.toml:2) cannot be used" in done.err
    assert "Your own value counts only" not in done.err


@pytest.mark.requirement("L2", "S14")
def test_under_landlock_secrets_are_masked_and_protected_files_are_put_back(cli: Cli) -> None:
    cli.configure('[sandbox]\nmode = "landlock"\n')
    (cli.folder / "outside.txt").write_text(BAIT)
    secret = "-".join(("k7Fq2", "pL9xR4", "vT8mZ1"))
    (cli.workspace / ".env").write_text(f"API_TOKEN={secret}\n")
    (cli.workspace / ".envrc").write_text("use nix\n")
    tries = (
        "cat ../outside.txt .env; echo evil > .envrc; mkdir .vscode; echo {} > .vscode/tasks.json; echo x > a"
    )
    (cli.workspace / "try.sh").write_text(tries)
    model = cli.model(calls("shell", command="bash try.sh"), says("Done."))
    done = cli("run", "go", "-m", model, "--autonomy", "full")
    assert done.code == 0, done.err
    assert "sandbox (landlock), without network. It does not stop reading the secret files" in done.err
    (text,) = results(cli)
    assert BAIT not in text
    assert secret not in text
    assert "API_TOKEN=" in text
    assert ": .envrc, .vscode. Commands in a sandbox may not do that" in text
    assert "what was there before was put back" in text
    assert (cli.workspace / ".envrc").read_text() == "use nix\n"
    assert (cli.workspace / ".envrc.put-aside").read_text() == "evil\n"
    assert not (cli.workspace / ".vscode" / "tasks.json").exists()
    assert (cli.workspace / "a").read_text() == "x\n"
    (row,) = rows(cli, "show", "last", "--tools")
    assert row["walled"]["backend"] == "landlock"
    journal = b"".join(path.read_bytes() for path in cli.home.rglob("*") if path.is_file())
    assert secret.encode() not in journal


@pytest.mark.requirement("L2")
def test_where_no_tool_starts_a_program_no_sandbox_is_needed(cli: Cli) -> None:
    (cli.folder / "bin").mkdir()
    cli.environ["PATH"] = str(cli.folder / "bin")
    model = cli.model(calls("list_dir"), calls("shell", command="touch a.txt"), *[says("Done.")] * 3)
    for allow, code in (('"list_dir"', 0), ('"list_dir", "grep"', 8)):
        cli.configure(f"{WALLS}[tools]\nallow = [{allow}]\n")
        assert cli("run", "go", "-m", model, "--autonomy", "full").code == code
    cli.configure(WALLS)
    for flag, code in (("--allow-tool=*_file", 0), ("--allow-tool=list_dir", 0), ("--deny-tool=shell", 8)):
        done = cli("run", "go", "-m", model, "--autonomy", "full", flag)
        assert done.code == code
        assert ("sandbox" in done.err) == (code == 8)
    assert cli("resume", "last", "more", "--allow-tool=list_dir").code == 0
    assert cli("resume", "last", "more").code == 0, "what the run may have is recorded"
    cli.configure(f'{WALLS}[hooks.look]\non = ["before_tool"]\ncommand = ["true"]\n')
    assert cli("run", "go", "-m", model, "--allow-tool=list_dir").code == 8
    assert not (cli.workspace / "a.txt").exists()


@pytest.mark.requirement("L2", "S6")
def test_a_person_decides_without_a_sandbox(cli: Cli) -> None:
    model = cli.model(calls("shell", command="touch a.txt"), says("Done."))
    cli.configure('[policy]\nask = ["shell(touch *)"]\n')
    assert cli("run", "go", "-m", model, "--approve-by", "wait").code == 5
    cli.configure(WALLS)
    cli.environ["PATH"] = str(cli.folder / "bin")
    (asked,) = rows(cli, "approvals")
    assert cli("deny", asked["id"]).code == 0
    assert cli("stop", "last").code == 0


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize(("mode", "runs"), [("bubblewrap", True), ("unsafe", False)])
def test_an_unknown_program_runs_without_a_question_only_in_a_sandbox_and_without_network(
    cli: Cli, mode: str, runs: bool
) -> None:
    cli.configure(
        f'[sandbox]\nmode = "{mode}"\n[policy]\nsandboxed = "allow"\n[network]\nallow = ["a.example"]\n'
    )
    (cli.workspace / "try.py").write_text("import os; print('variables', 'HTTP_PROXY' in os.environ)")
    model = cli.model(calls("shell", command="python3 try.py"), says("Done."))
    ended = cli("run", "go", "-m", model, "--autonomy", "supervised", "--approve-by", "wait")
    assert ended.code == (0 if runs else 5), ended.err
    (checked,) = rows(cli, "policy", "check", "--command", "python3 try.py")
    assert (checked["verdict"], checked["rule"]) == (
        ("allow", "sandboxed") if runs else ("ask", "autonomy:supervised")
    )
    assert ("counts only in a sandbox" in checked["reason"]) != runs
    if runs:
        assert results(cli) == ["variables False\n"]
        (row,) = rows(cli, "show", "last", "--tools")
        assert (row["walled"]["backend"], row["walled"].get("network", "none")) == ("bubblewrap", "none")
        assert "Unknown programs run there without a question, and without network." in ended.err
        events = rows(cli, "show", "last", "--events")
        (started,) = [each["body"] for each in events if each["type"] == "ToolCallStarted"]
        assert "sandboxed" in [each.get("rule") for each in started["decisions"]]


@pytest.mark.requirement("C12", "L2")
def test_policy_check_says_that_no_run_can_do_what_it_answers_where_no_sandbox_works(cli: Cli) -> None:
    (cli.folder / "bin").mkdir()
    (cli.folder / "bin" / "bash").symlink_to(str(shutil.which("bash")))
    cli.environ["PATH"] = str(cli.folder / "bin")
    cli.configure(f'{WALLS}[policy]\nsandboxed = "allow"\n')
    checked = cli("policy", "check", "--command", "make")
    assert (checked.code, checked.out.startswith("allow  sandboxed")) == (0, True)
    assert "No command runs here, and a run ends with exit code 8." in checked.err
    assert "bwrap is not installed" in checked.err


@pytest.mark.requirement("C12", "L2")
def test_what_failed_without_network_tells_the_model_how_a_person_is_asked(cli: Cli) -> None:
    cli.configure(f'{WALLS}[policy]\nsandboxed = "allow"\n[network]\nallow = ["a.example"]\n')
    (cli.workspace / "get.py").write_text("print('Could not resolve host: a.example'); raise SystemExit(6)")
    model = cli.model(calls("shell", command="python3 get.py"), says("Done."))
    assert cli("run", "go", "-m", model, "--autonomy", "supervised").code == 0
    assert "because nobody approved it" in results(cli)[0]
    assert 'ask = ["shell(PROGRAM *)"] in [policy]' in results(cli)[0]


@pytest.mark.requirement("L2")
def test_a_process_in_the_background_is_inside_too(cli: Cli) -> None:
    cli.configure(WALLS)
    (cli.folder / "outside.txt").write_text(BAIT)
    model = cli.model(
        calls("shell", command="cat ../outside.txt; echo up; sleep 300", background=True),
        calls("process_output", id="t1.c1"),
        says("Done."),
    )
    assert cli("run", "go", "-m", model, "--autonomy", "full").code in (0, 5)
    assert BAIT not in json.dumps(results(cli))


def test_doctor_says_what_was_chosen_and_whether_it_works(cli: Cli) -> None:
    def told() -> dict[str, tuple[str, str]]:
        found = (row for row in rows(cli, "doctor") if "sandbox" in row["id"])
        return {row["id"]: (row["severity"], row["message"]) for row in found}

    assert told()["sandbox.bubblewrap"][0] == "ok"
    assert told()["sandbox.mode"][0] == "warning"
    for mode in ("auto", "bubblewrap"):
        cli.configure(f'[sandbox]\nmode = "{mode}"\n')
        assert told()["sandbox.mode"] == ("ok", f'commands run in bubblewrap, as mode = "{mode}" says')


def test_a_folder_that_the_configuration_names_can_be_read(cli: Cli, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "data.txt").write_text("useful")
    cli.configure(f'{WALLS}read = ["{tools}"]\n')
    (cli.workspace / "try.sh").write_text(f"cat {tools}/data.txt; echo x > {tools}/data.txt")
    model = cli.model(calls("shell", command="bash try.sh"), says("Done."))
    assert cli("run", "go", "-m", model, "--autonomy", "full").code == 0
    assert "useful" in results(cli)[0]
    assert (tools / "data.txt").read_text() == "useful"


@pytest.mark.requirement("L11")
def test_a_file_that_grows_too_long_ends_its_command_and_the_model_reads_why(cli: Cli) -> None:
    cli.configure(f'{WALLS}file_size = "1MiB"\n')
    model = cli.model(calls("shell", command="head -c 5000000 /dev/zero > long"), says("Done."))
    assert cli("run", "go", "-m", model, "--autonomy", "full").code == 0
    assert results(cli)[0].endswith("[exit code 153; it wrote a file longer than [sandbox] file_size allows]")
    assert (cli.workspace / "long").stat().st_size == 1 << 20


@pytest.mark.requirement("L2", "L12")
def test_a_hook_runs_inside_and_a_notification_does_not(cli: Cli) -> None:
    (cli.folder / "outside.txt").write_text(BAIT)
    hook = cli.folder / "hook.sh"
    hook.write_text(
        f"cat {cli.folder}/outside.txt >> seen; cp {hook} seen.sh; touch {cli.folder}/written; echo '{{}}'"
    )
    cli.configure(
        f'{WALLS}[hooks.look]\non = ["before_tool"]\ncommand = ["sh", "{hook}"]\n'
        f'[notify]\non = ["done"]\ncommand = ["touch", "{cli.folder}/heard"]\n'
    )
    model = cli.model(calls("list_dir"), says("Done."))
    assert cli("run", "go", "-m", model, "--autonomy", "full").code == 0
    assert (cli.workspace / "seen.sh").read_text() == hook.read_text()
    assert (cli.workspace / "seen").read_text() == ""
    assert not (cli.folder / "written").exists()
    assert (cli.folder / "heard").exists()


@pytest.fixture
def served() -> Iterator[int]:
    """The port of a server that says hello."""

    class Hello(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.requirement("L2", "H4")
def test_a_command_reaches_listed_hosts_and_the_journal_has_each_request(cli: Cli, served: int) -> None:
    token = "ghp_" + "a1B2" * 9
    (cli.workspace / "get.sh").write_text(
        f"curl -sS http://127.0.0.1:{served}/a; curl -sS http://127.0.0.1:{served}/?t={token}; "
        "curl -sS https://b.example/; curl -sS https://holdfast.invalid/\n"
    )
    cli.configure(f'{WALLS}[network]\nallow = ["127.0.0.1:{served}", "holdfast.invalid"]\n')
    many = f"curl -sS 'http://127.0.0.1:{served}/[1-30]'"
    (cli.workspace / "many.sh").write_text(many)
    model = cli.model(
        calls("shell", command="bash get.sh"), calls("shell", command="ls"), calls("shell", command="bash many.sh"),
        says("Done."),
    )  # fmt: skip
    done = cli("run", "go", "-m", model, "--autonomy", "full")
    assert done.code == 0, done.err
    assert f"sandbox (bubblewrap), and reach 127.0.0.1:{served}, holdfast.invalid. It" in done.err
    got, listed, more = rows(cli, "show", "last", "--tools")
    assert got["text"].startswith("hello")
    assert "[refused by the proxy: CONNECT b.example:443: b.example:443 is not listed" in got["text"]
    assert (
        "[failed in the proxy: CONNECT holdfast.invalid:443: The name holdfast.invalid cannot" in got["text"]
    )
    assert (got["walled"]["network"], got["traffic"]["requests"], got["traffic"]["refused"]) == (
        "proxy",
        4,
        2,
    )
    first, second, third, _ = got["traffic"]["exchanged"]
    assert first.startswith(f"GET http://127.0.0.1:{served}/a: 200, ")
    assert "looks like a secret" in second
    assert third.startswith("CONNECT b.example:443: refused, ")
    assert token not in json.dumps(got)
    assert "network" not in listed["walled"]  # it is proved to need none
    assert "CONNECT b.example:443: refused" in cli("show", "last", "--tools").out
    assert (more["traffic"]["requests"], len(more["traffic"]["exchanged"])) == (30, SHOWN_LINES)
    events = (
        row["body"] for row in rows(cli, "show", "last", "--events") if row["type"] == "ToolCallFinished"
    )
    whole = [*events][2]["result"]["traffic"]["full_text"].splitlines()
    assert [line.split(": ")[0] for line in whole] == [
        f"GET http://127.0.0.1:{served}/{n}" for n in range(1, 31)
    ]
    assert cli("fsck").code == 0


def test_a_program_that_finds_no_network_is_told_who_closed_it(cli: Cli) -> None:
    (cli.workspace / "get.sh").write_text("curl -sS https://b.example/")
    cli.configure(WALLS)
    model = cli.model(calls("shell", command="bash get.sh"), says("Done."))
    assert cli("run", "go", "-m", model, "--autonomy", "full").code == 0
    assert "A person can allow hosts with [network] allow" in results(cli)[0]


@pytest.mark.requirement("L2")
def test_doctor_tries_the_way_to_the_proxy(cli: Cli) -> None:
    def told() -> list[tuple[str, str]]:
        return [(row["severity"], row["message"]) for row in rows(cli, "doctor") if row["id"] == "egress"]

    cli.configure(f'{WALLS}[network]\nallow = ["a.example"]\n')
    assert told() == [("ok", "tools reach a.example, and so do commands, through the proxy")]
    folder = cli.folder / "bin"
    folder.mkdir()
    (folder / "bwrap").symlink_to(str(shutil.which("bwrap")))
    cli.environ["PATH"] = str(folder)
    why = "It could not be tried: bash is not installed."
    assert told() == [("fault", f"tools reach a.example; commands do not: {why}")]


@pytest.mark.requirement("L2")
def test_what_a_command_makes_that_controls_other_programs_is_put_aside_and_told(cli: Cli) -> None:
    cli.configure(WALLS)
    (cli.workspace / "real").mkdir()
    (cli.workspace / ".idea").symlink_to("real")
    (cli.workspace / "try.sh").write_text(
        "echo evil > .envrc; mkdir -p a/.vscode; rm .idea; mkdir .idea\n"
        "git init -q b && echo x > b/.git/hooks/pre-push"
    )
    model = cli.model(calls("shell", command="bash try.sh"), calls("shell", command="true"), says("Done."))
    assert cli("run", "go", "-m", model, "--autonomy", "full").code == 0
    first, second = results(cli)
    assert (
        "files came or changed that control other programs: .envrc, .idea, a/.vscode, b/.git/hooks. " in first
    )
    assert "put aside" not in second
    assert not (cli.workspace / ".envrc").exists()
    assert (cli.workspace / ".envrc.put-aside").read_text() == "evil\n"
    assert (cli.workspace / ".idea").readlink() == Path("real")
    assert not (cli.workspace / "b" / ".git" / "hooks").exists()


@pytest.mark.requirement("L2")
def test_a_process_in_the_background_that_makes_a_controlling_file_says_so_when_it_has_ended(
    cli: Cli,
) -> None:
    cli.configure(WALLS)
    (cli.workspace / "try.sh").write_text("echo evil > .envrc; sleep 0.5")
    model = cli.model(
        calls("shell", command="bash try.sh", background=True),
        calls("shell", command="sleep 2"),
        calls("process_output", id="t1.c1"),
        says("Done."),
    )
    assert cli("run", "go", "-m", model, "--autonomy", "full").code == 0
    assert "control other programs: .envrc" in results(cli)[-1]
    assert not (cli.workspace / ".envrc").exists()


@pytest.mark.requirement("L2")
def test_a_command_commits_as_the_user_and_reads_why_its_sandbox_refused_something(cli: Cli) -> None:
    home = cli.folder / "user"
    home.mkdir()
    (home / ".gitconfig").write_text('[user]\n\tname = "Ann \\"A\\" Ö"\n\temail = ann@example.com\n')
    cli.environ["HOME"] = str(home)
    cli.configure(f'{WALLS}read = ["{sys.base_prefix}", "{sys.prefix}"]\n')
    for name, script in (
        ("commit.sh", "git init -q . && git commit -q --allow-empty -m one; git log --format='%an <%ae>'"),
        ("write.sh", "echo x > /usr/x"),
        ("fill.sh", f"{sys.executable} -c 'bytearray(3 << 30)' 2>&1 | grep MemoryError; exit 1"),
    ):
        (cli.workspace / name).write_text(script)
    commands = [calls("shell", command=f"bash {name}.sh") for name in ("commit", "write", "fill")]
    model = cli.model(*commands, says("Done."))
    assert cli("run", "go", "-m", model, "--autonomy", "full").code == 0
    who, read_only, memory = results(cli)
    assert who.startswith('Ann "A" Ö <ann@example.com>\n')
    assert "with [sandbox] write" in read_only
    assert "[sandbox] memory" in memory


FAILING = (
    ("bash", "printf '#!/root/.pyenv/bin/python\\n' > x; chmod +x x; ./x", "[sandbox] read"),
    (
        "make",
        "printf 'all:\\n\\t@bash -c \"nosuch; exit 3\"\\n' > Makefile; make || exit 2",
        "[sandbox] read",
    ),
    ("fallocate", "fallocate -l 1100M /tmp/x", "large files belong in the workspace"),
    ("bash", "PYTHON -c 'import urllib.request as u; u.urlopen(\"http://a.example\")'", "[network] allow"),
    ("curl", "curl -sS http://a.example", "[network] allow"),
    ("curl", "curl -sS http://a.example 2>&1 | tail -3", "[network] allow"),
    ("curl", "curl -sS http://192.0.2.1", "[network] allow"),
    ("git", "git clone -q https://a.example/y", "[network] allow"),
)
"""What a command needs, what it does, and what the model must read."""


@pytest.mark.requirement("L2")
def test_the_model_reads_that_its_sandbox_made_a_command_fail_and_what_a_person_could_allow(cli: Cli) -> None:
    cli.configure(f'{WALLS}read = ["{sys.base_prefix}", "{sys.prefix}"]\n')
    commands, whys = [], []
    for number, (program, script, why) in enumerate(FAILING):
        if shutil.which(program) is not None:
            path = cli.workspace / f"try{number}.sh"
            path.write_text(script.replace("PYTHON", sys.executable))
            commands.append(f"bash {path.name}{' | tail -5' if 'tail' in script else ''}")
            whys.append(why)
    model = cli.model(*[calls("shell", command=command) for command in commands], says("Done."))
    cli("run", "go", "-m", model, "--autonomy", "full", "--quiet")
    texts = results(cli)
    assert [(why, text) for why, text in zip(whys, texts, strict=True) if why not in text] == []
