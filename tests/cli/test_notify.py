"""`[notify]`: a program of the user hears what a session waits for and how its run ended, once for each event."""

from __future__ import annotations

import json
import shlex
import signal
from typing import Any

import pytest

from tests.cli.processes import Cli, calls, says

COMMAND = "kill -0 0; touch made.txt"


def notifying(cli: Cli, script: str, on: str = "") -> None:
    path = cli.folder / "notify.sh"
    path.write_text(script)
    chosen = f"on = {on}\n" if on else ""
    cli.configure(f'[notify]\n{chosen}command = ["sh", "{path}"]\n')


def heard(cli: Cli) -> list[dict[str, Any]]:
    path = cli.folder / "heard"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def writing(cli: Cli) -> str:
    return f'cat >> "{cli.folder}/heard"; echo >> "{cli.folder}/heard"\n'


@pytest.mark.requirement("H5")
def test_who_is_notified_gets_the_exact_next_command(cli: Cli) -> None:
    notifying(cli, writing(cli))
    model = cli.model(calls("shell", command=COMMAND), says("Made."))
    asked = cli("run", "x", "-m", model, "--json")
    assert asked.code == 5
    (waiting,) = heard(cli)
    assert (waiting["event"], waiting["session"], waiting["reason"]) == (
        "waiting",
        asked.json["session"],
        "approval",
    )
    assert waiting["next"][0].startswith(f"holdfast approve {waiting['approvals'][0]}")
    assert cli(*shlex.split(waiting["next"][0])[1:]).code == 0
    assert cli("resume", "last").code == 0
    (_, done) = heard(cli)
    assert (done["event"], done["status"]) == ("done", "done")
    assert done["next"][0].startswith(f"holdfast show {done['session']}")
    assert cli("resume", "last").code == 0
    assert len(heard(cli)) == 2


@pytest.mark.requirement("H5", "A3")
def test_a_notification_whose_process_was_killed_is_not_repeated(cli: Cli) -> None:
    notifying(cli, f"{writing(cli)}sleep 60\n", '["waiting"]')
    model = cli.model(calls("shell", command=COMMAND), says("Made."))
    with cli.working("run", "x", "-m", model, "--stream-json") as working:
        working.until_type("NotificationDue")
        while not heard(cli):
            pass
        working.end(signal.SIGKILL)
    assert cli("resume", "last").code == 5
    assert len(heard(cli)) == 1
    records = [json.loads(line) for line in cli("show", "last", "--events", "--json").out.splitlines()]
    (ended,) = [each["body"] for each in records if each["type"] == "NotificationEnded"]
    assert ended["notified"]["status"] == "unknown"


@pytest.mark.requirement("H5")
def test_a_notification_that_fails_ends_no_run_and_is_told(cli: Cli) -> None:
    notifying(cli, "echo no line; exit 3\n")
    ended = cli("run", "x", "-m", cli.model(says("Made.")))
    assert (ended.code, ended.out) == (0, "Made.\n")
    assert "exit code was 3: no line" in cli("show", "last").out


@pytest.mark.requirement("H5", "A3")
def test_the_program_sees_a_clean_environment(cli: Cli) -> None:
    cli.environ["MY_API_TOKEN"] = "not-for-" + "anybody-else"
    notifying(cli, f'env > "{cli.folder}/env"\n')
    assert cli("run", "x", "-m", cli.model(says("Made."))).code == 0
    seen = (cli.folder / "env").read_text()
    assert "HOLDFAST_EVENT=done" in seen
    assert "HOLDFAST_NEXT=holdfast show " in seen
    assert "MY_API_TOKEN" not in seen


@pytest.mark.requirement("H5")
def test_a_project_file_that_nobody_trusts_notifies_nobody(cli: Cli) -> None:
    (cli.workspace / "holdfast.toml").write_text(f'[notify]\ncommand = ["touch", "{cli.folder}/heard"]\n')
    assert cli("run", "x", "-m", cli.model(says("Made."))).code == 0
    assert not (cli.folder / "heard").exists()
