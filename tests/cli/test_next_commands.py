"""Every command that Holdfast prints works when it is copied, from any folder and any shell."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Cli, calls, says
from tests.edge import nursery

PRINTED = re.compile(r"(?:^|  |: |`)((?:[^\s`]*/)?holdfast [a-z]+ [^\n`]*)", re.MULTILINE)


@pytest.fixture
def away(cli: Cli, tmp_path: Path) -> Cli:
    """A home that only a flag names, and a shell that does not find `holdfast`."""
    cli.environ |= {
        "HOLDFAST_HOME": "", "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "other"), "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    return cli


def copied(cli: Cli, command: str) -> subprocess.CompletedProcess[str]:
    """A printed command, run in another folder. Its words are split as a shell does, and the program is not loaded
    anew."""
    program, *words = shlex.split(command)
    assert program == shutil.which("holdfast", path=str(Path(sys.executable).parent)), command
    return nursery.run(words, text=True, timeout=60, **elsewhere(cli))


def pasted(cli: Cli, command: str) -> subprocess.CompletedProcess[str]:
    """A printed command, run by a shell in another folder."""
    return subprocess.run(
        ["/bin/sh", "-c", command], text=True, capture_output=True, timeout=60, check=False,
        stdin=subprocess.DEVNULL, **elsewhere(cli),
    )  # fmt: skip


def elsewhere(cli: Cli) -> dict[str, Any]:
    """Another folder, and a shell that does not find `holdfast`."""
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": cli.environ["HOME"],
        "HOLDFAST_ADMIN_CONFIG": "/nonexistent.toml",
    }
    return {"cwd": "/", "env": environ}


def test_the_commands_that_a_waiting_run_prints_take_it_to_its_end(away: Cli) -> None:
    model = away.model(calls("shell", command="kill -0 0; echo hello"), says("Done."))
    printed = PRINTED.findall(away("run", "x", "-m", model, "--home", "../home").err)
    assert [command.split("holdfast ")[1].split()[0] for command in printed] == ["approve", "deny", "resume"]
    allow, refuse, resume = printed
    assert pasted(away, allow).returncode == 0
    assert copied(away, refuse).returncode == 1, "it is decided already"
    assert copied(away, resume).stdout == "Done.\n"


def test_the_command_after_an_error_or_a_stop_works_too(away: Cli) -> None:
    flags = ("--home", str(away.home))
    away("run", "x", "-m", away.model(calls("shell", command="kill -0 0"), says("Done.")), *flags)
    for arguments, out in (
        (("show", "nobody:here"), "waiting"),
        (("show", "last"), "holdfast approve"),
        (("show", "last", "--request", "9"), "answered"),
        (("stop", "last"), "Done."),
    ):
        ended = away(*arguments, *flags)
        (command, *_) = PRINTED.findall(ended.out + ended.err)
        assert out in copied(away, command).stdout, command


def test_the_hints_of_a_branch_without_a_task_and_of_doctor_name_the_home_too(away: Cli) -> None:
    flags = ("--home", str(away.home))
    away("run", "x", "-m", away.model(says("Done.")), *flags)
    branch = away("fork", "last", "--at", "1", *flags).out.strip()
    for arguments, word in ((("resume", branch), f'resume {branch} "TASK"'), (("doctor",), "init")):
        ended = away(*arguments, *flags)
        (command,) = PRINTED.findall(ended.out + ended.err)
        assert f"holdfast {word} --home {away.home}" in command


def test_json_has_the_plain_command(away: Cli) -> None:
    ended = away(
        "run", "x", "-m", away.model(calls("shell", command="kill -0 0")), "--home", str(away.home), "--json"
    )
    assert ended.json["resume"] == f"holdfast resume {ended.json['session']}"


def test_where_the_shell_finds_it_a_command_is_printed_by_its_name(cli: Cli) -> None:
    ended = cli("run", "x", "-m", cli.model(calls("shell", command="kill -0 0")))
    assert f"  continue:  holdfast resume {cli('sessions', '--json').json['session']}\n" in ended.err


@pytest.mark.requirement("L4")
def test_the_command_that_trusts_a_project_file_trusts_it_in_the_home_that_was_named(away: Cli) -> None:
    (away.workspace / "holdfast.toml").write_text('model = "openai:dear"\n')
    flags = ("--home", str(away.home))
    model = away.model(says("Done."), says("Done."))
    (trust,) = [c for c in PRINTED.findall(away("run", "x", "-m", model, *flags).err) if " trust " in c]
    asked = copied(away, trust)
    assert asked.returncode == 2, "nobody can be asked"
    (agreed,) = [c for c in PRINTED.findall(asked.stderr) if c.endswith("--yes") or "--yes" in c]
    assert pasted(away, agreed).returncode == 0
    assert "is not trusted" not in away("run", "x", "-m", model, *flags).err
