"""What a program in a sandbox made that controls other programs: people hear of it, also after a kill."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.sandbox.own_folder import new_name
from tests.cli.processes import Cli, calls, says
from tests.cli.test_sandbox import WALLS

pytestmark = [
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap"),
    pytest.mark.requirement("L2"),
]

MADE = "files came or changed that control other programs: .envrc. "


def scripted(cli: Cli, script: str) -> dict[str, Any]:
    """Call what no rule reads."""
    (cli.workspace / "try.sh").write_text(script)
    return calls("shell", command="bash try.sh")


def notes(cli: Cli) -> list[str]:
    rows: list[dict[str, Any]] = [
        json.loads(line) for line in cli("show", "last", "--events", "--json").out.splitlines()
    ]
    bodies = [row["body"] for row in rows if row["type"] == "NoteAdded"]
    return [body["text"] for body in bodies if body["about"] == "aside"]


def is_aside(cli: Cli) -> bool:
    return (cli.workspace / ".envrc.put-aside").exists() and not (cli.workspace / ".envrc").exists()


def test_the_terminal_says_what_was_put_aside_and_a_replay_decides_the_same(cli: Cli) -> None:
    cli.configure(WALLS)
    model = cli.model(scripted(cli, "printf x > .envrc"), says("Done."))
    done = cli("run", "go", "-m", model, "--autonomy", "full")
    assert done.code == 0, done.err
    assert MADE in done.err
    (note,) = notes(cli)
    assert MADE in note
    assert is_aside(cli)
    assert not [*(cli.home / "aside").iterdir()]
    assert cli("replay", "last").code == 0


def test_a_command_that_was_stopped_says_it_too(cli: Cli) -> None:
    cli.configure(WALLS)
    model = cli.model(scripted(cli, "printf x > .envrc; touch made; sleep 60"), says("Done."))
    with cli.working("run", "go", "-m", model, "--autonomy", "full") as working:
        working.until_type("ToolCallStarted")
        while not (cli.workspace / "made").exists():
            pass
        working.end(signal.SIGINT)
    (note,) = notes(cli)
    assert MADE in note
    assert is_aside(cli)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_the_end_of_a_run_ends_in_the_background_is_told_too(cli: Cli, is_stopped: bool) -> None:
    cli.configure(WALLS)
    call = scripted(cli, "printf x > .envrc; touch made; sleep 60")
    call["tool_calls"][0]["arguments"]["background"] = True
    waits = "touch waits; sleep 60" if is_stopped else "while [ ! -e made ]; do sleep 0.02; done"
    model = cli.model(call, calls("shell", command=waits), says("Done."))
    words = ("run", "go", "-m", model, "--autonomy", "full")
    if not is_stopped:
        assert MADE in cli(*words).err
    else:
        with cli.working(*words) as working:
            while not ((cli.workspace / "made").exists() and (cli.workspace / "waits").exists()):
                pass
            working.end(signal.SIGINT)
    (note,) = notes(cli)
    assert MADE in note
    assert is_aside(cli)
    assert not [*(cli.home / "aside").iterdir()]
    assert cli("replay", "last").code == 0


def test_what_a_killed_process_left_is_put_aside_when_its_session_goes_on(cli: Cli) -> None:
    cli.configure(WALLS)
    (cli.workspace / ".bashrc").write_text("mine")
    script = "printf x > .envrc; mkdir b; touch b/.login made; sleep 60"
    model = cli.model(scripted(cli, script), says("Done.", repeat=True))
    with cli.working("run", "go", "-m", model, "--autonomy", "full") as working:
        working.until_type("ToolCallStarted")
        while not (cli.workspace / "made").exists():
            pass
        working.end(signal.SIGKILL)
    assert (cli.workspace / ".envrc").exists()
    done = cli("resume", "last")
    assert done.code == 0, done.err
    (note,) = notes(cli)
    assert "control other programs: .envrc, b/.login. " in note
    assert is_aside(cli)
    assert (cli.workspace / ".bashrc").read_text() == "mine"
    assert not [*(cli.home / "aside").iterdir()]
    (cli.workspace / ".envrc").write_text("a person made this afterwards")
    assert cli("resume", "last", "go on").code == 0
    assert (cli.workspace / ".envrc").exists()
    assert len(notes(cli)) == 1


def test_what_a_hook_made_is_told(cli: Cli) -> None:
    hook = '[hooks.h]\non = ["before_tool"]\ncommand = ["/bin/sh", "-c", "printf x > .envrc; echo {}"]\n'
    cli.configure(WALLS + hook)
    model = cli.model(calls("shell", command="true"), says("Done."))
    done = cli("run", "go", "-m", model, "--autonomy", "full")
    assert done.code == 0, done.err
    assert MADE in done.err
    assert is_aside(cli)


@pytest.mark.requirement("C8")
def test_a_session_that_is_done_is_put_right_when_it_is_resumed(cli: Cli) -> None:
    """Its processes in the background were killed with their Holdfast after its end."""
    cli.configure(WALLS)
    assert cli("run", "go", "-m", cli.model(says("Done.")), "-s", "cli:done").code == 0
    session = json.loads(cli("sessions", "--json").out.splitlines()[0])["session"]
    code = (
        "import sys; from pathlib import Path; from holdfast.tools.trace import Trace; "
        "from holdfast.tools.traces import Traces; "
        "home, workspace, key = sys.argv[1:]; "
        "Traces(Path(home)).begin(key, Trace((workspace,), 0, {}, (), key=key))"
    )
    argv = [sys.executable, "-c", code, str(cli.home), str(cli.workspace), f"{session}:call"]
    subprocess.run(argv, check=True)
    (cli.workspace / ".envrc").write_text("evil")
    own = Path(new_name(f"{session}:call", ()))
    own.mkdir()
    done = cli("resume", "cli:done")
    assert (done.code, is_aside(cli), own.exists()) == (0, True, False)
    assert MADE in done.err
    assert not [*(cli.home / "aside").iterdir()]
    assert MADE not in cli("resume", "cli:done").err
