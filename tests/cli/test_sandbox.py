"""Commands in a sandbox, as a person meets it: the choice, the warning, and what happens where it does not work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Cli, calls, says

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

WALLS = '[sandbox]\nmode = "bubblewrap"\n'
BAIT = "a-bait-that-nobody-may-read"
TRIES = "cat ../outside.txt .env; ls -A ~; echo written > a.txt; nosuchprogram"


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
    assert "[exit code 127; commands run in a sandbox without network" in text
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
    done = cli("run", "go", "-m", model, "--autonomy", "full")
    assert done.code == 8
    assert why in done.err
    assert 'With mode = "unsafe"' in done.err
    assert not (cli.workspace / "a.txt").exists()
    found = {row["id"]: row for row in rows(cli, "doctor")}
    assert found["sandbox.mode"]["severity"] == "fault"
    assert why in found["sandbox.bubblewrap"]["message"]


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
    cli.configure('[sandbox]\nmode = "unsafe"\n')
    assert told()["sandbox.mode"] == ("ok", "commands run with your own permissions, as you chose")
    cli.configure(WALLS)
    assert told()["sandbox.mode"] == ("ok", "commands run in bubblewrap")


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
