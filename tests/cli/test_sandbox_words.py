"""What people read and expect of the sandbox: postures that stay, a server of a command, what cannot run."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from tests.cli.processes import Cli, calls, says
from tests.cli.test_sandbox import WALLS, results, rows


@pytest.mark.requirement("L2")
def test_a_resumed_run_keeps_what_its_posture_said_about_unknown_programs(cli: Cli) -> None:
    cli.configure(WALLS)
    model = cli.model(
        calls("shell", command="rm -r gone"), calls("shell", command="bash try.sh"), says("Done.")
    )
    (cli.workspace / "gone").mkdir()
    (cli.workspace / "try.sh").write_text("echo tried > a.txt")
    waits = cli("run", "go", "-m", model, "--posture", "overnight", "--approve-by", "wait", "--budget", "0.1")
    assert waits.code == 5
    assert cli("approve", rows(cli, "approvals")[0]["id"]).code == 0
    assert cli("resume", "last").code == 0
    assert (cli.workspace / "a.txt").read_text() == "tried\n"
    assert "$0.1000" in cli("show", "last").out


@pytest.mark.requirement("L2")
def test_the_user_file_of_today_takes_back_what_a_posture_said(cli: Cli) -> None:
    cli.configure(WALLS)
    model = cli.model(
        calls("shell", command="rm -r gone"), calls("shell", command="bash try.sh"), says("Done.")
    )
    (cli.workspace / "gone").mkdir()
    (cli.workspace / "try.sh").write_text("echo tried > a.txt")
    assert cli("run", "go", "-m", model, "--posture", "overnight", "--approve-by", "wait").code == 5
    assert cli("approve", rows(cli, "approvals")[0]["id"]).code == 0
    cli.configure(f'{WALLS}[policy]\nsandboxed = "ask"\n')
    assert cli("resume", "last").code == 5
    assert not (cli.workspace / "a.txt").exists()


@pytest.mark.requirement("L2")
def test_an_empty_home_counts_as_none(cli: Cli) -> None:
    cli.configure(WALLS)
    cli.environ["HOME"] = ""
    model = cli.model(calls("shell", command="echo written > a.txt"), says("Done."))
    assert cli("run", "go", "-m", model, "--autonomy", "full").code == 0
    assert (cli.workspace / "a.txt").read_text() == "written\n"


@pytest.mark.requirement("L2")
def test_a_command_reaches_the_server_that_it_starts_as_the_documentation_says(cli: Cli) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    cli.configure(f'{WALLS}[network]\nallow = ["{address}"]\n')
    (cli.workspace / "served.txt").write_text("brought")
    serve = f"python3 -m http.server {address.partition(':')[2]} & sleep 1"
    fetch = f"from urllib.request import urlopen; print(urlopen('http://{address}/served.txt').read())"
    model = cli.model(
        calls("shell", command=f"{serve}; curl -sS --noproxy '*' http://{address}/served.txt"),
        calls("shell", command=f"{serve}; no_proxy='*' python3 -c \"{fetch}\""),
        says("Done."),
    )
    assert cli("run", "go", "-m", model, "--autonomy", "full").code == 0
    assert ["brought" in each for each in results(cli)] == [True, True], results(cli)


@pytest.mark.requirement("L2")
def test_a_run_says_at_once_that_no_command_runs_in_such_a_workspace(cli: Cli) -> None:
    cli.configure(WALLS)
    model = cli.model(calls("shell", command="echo written > a.txt"), says("Done."))
    done = cli("run", "go", "-m", model, "--autonomy", "full", "-w", str(cli.folder))
    assert (
        f"workspace: Holdfast's own files are in it ({cli.home}). Work in a smaller folder (-w DIR)"
        in " ".join(done.err.split())
    )
    assert "Commands run in a sandbox" not in done.err
    assert not (cli.folder / "a.txt").exists()


@pytest.mark.requirement("L2", "H4")
@pytest.mark.parametrize("mode", ["bubblewrap", "landlock"])
def test_a_run_and_doctor_say_which_hosts_commands_reach(cli: Cli, mode: str) -> None:
    cli.configure(f'[sandbox]\nmode = "{mode}"\n[network]\nallow = ["a.example"]\n')
    done = cli("run", "go", "-m", cli.model(says("Done.")))
    assert f"Commands run in a sandbox ({mode}), and reach a.example." in " ".join(done.err.split())
    [egress] = [row for row in rows(cli, "doctor") if row["id"] == "egress"]
    assert egress["severity"] == "ok", egress


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(("mode", "is_alone"), [("bubblewrap", True), ("unsafe", False)])
def test_the_model_reads_that_a_server_in_the_background_is_not_reached(
    cli: Cli, mode: str, is_alone: bool
) -> None:
    cli.configure(f'[sandbox]\nmode = "{mode}"\n')
    model = cli.model(calls("shell", command="sleep 60", background=True), says("Done."))
    assert cli("run", "go", "-m", model, "--autonomy", "full").code == 0
    assert ("no other command reaches a server" in results(cli)[0]) is is_alone


@pytest.mark.requirement("L2")
def test_a_home_is_not_refused_because_of_what_is_not_in_it(cli: Cli) -> None:
    cli.configure(WALLS)
    home = cli.folder / "person"
    home.mkdir()
    cli.environ["HOME"] = str(home)
    done = cli("run", "go", "-m", cli.model(says("Done.")), "-w", str(home))
    told = f"No command runs in a sandbox in this workspace: it is, or holds, the home folder {home}."
    assert told in " ".join(done.err.split())
