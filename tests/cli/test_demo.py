"""`holdfast demo` as a process: what it says, and that it fails when something is not as it says."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.cli.demo import Place, Step, _as_json, about_sandbox, prepared
from holdfast.cli.demo_checks import Check, Evidence, checks
from holdfast.cli.reading import read_session, reading
from holdfast.config.load import load
from holdfast.config.paths import find_home
from holdfast.config.settings import Config
from holdfast.errors import SandboxUnavailable
from holdfast.runtime.fold import Fold
from holdfast.runtime.report import report
from tests.cli.conftest import Holdfast
from tests.edge import nursery

KEY = "a-key-that-nobody-has"


def demo(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", "demo", *flags]
    environ = {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder), "HOME": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ, check=False)


@pytest.mark.long
@pytest.mark.requirement("L2-05", "H1", "B1", "S1")
def test_the_demo_tells_programs_what_it_claims(tmp_path: Path) -> None:
    done = demo(tmp_path, "--json", "--home", str(tmp_path / "home"))
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    check_json(told)
    assert 0 < float(told["cost_usd"]) < 0.5
    assert told["seconds"] > 0
    assert done.stderr == ""
    check_claims(asyncio.run(evidence(tmp_path / "home", Path(told["project"]), told["sandbox"])))


def check_json(told: dict[str, Any]) -> None:
    assert told["ok"] is True
    assert told["model"] == "scripted"
    assert "scripted" in told["about"]
    assert len(told["checks"]) == (12 if told["sandbox"] == "unsafe" else 13)
    assert all(check["ok"] for check in told["checks"])
    assert [step["exit"] for step in told["steps"]] == [-9, 5, 0, 0, 0, 0]


def check_claims(whole: Evidence) -> None:
    """Each claim holds, and would not if something was otherwise."""
    assert {check.ok for check in checks(whole)} == {True}
    cut = replace(whole, after=whole.after._replace(records=whole.after.records[:-1], stored=[]))
    assert {check.claim for check in broken(cut)} == {
        "No acknowledged record is lost.",
        "It was one run, and it is done.",
        "Replay decides the same again.",
    }
    leaks = (
        replace(whole, sent=(whole.key, "no key")),
        replace(whole, sent=()),
        replace(whole, key="It read no key"),
        replace(whole, sandbox="another"),
    )
    for leak in leaks if whole.sandbox != "unsafe" else ():
        assert [check.claim for check in broken(leak)] == [
            "A program that steals a key got nothing in the sandbox."
        ]
    file = whole.marker.with_name("fare.py")
    fixed = file.read_text()
    file.write_text("")
    assert [check.claim for check in broken(whole)] == ["The file was fixed exactly once."]
    file.write_text(fixed)


def broken(seen: Evidence) -> list[Check]:
    return [check for check in checks(seen) if not check.ok]


def test_where_no_sandbox_works_the_demo_runs_only_if_the_user_says_so_and_claims_nothing_of_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def refuse(config: Config) -> None:
        raise SandboxUnavailable(f"{config.policy.walls.backend} is not there.")

    monkeypatch.setattr("holdfast.cli.demo.open_sandbox", refuse)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("HOLDFAST_SANDBOX_MODE", raising=False)
    with pytest.raises(
        SandboxUnavailable, match=r"bubblewrap is not there\. landlock is not there\."
    ) as refused:
        prepared(None)
    assert "HOLDFAST_SANDBOX_MODE=unsafe" in refused.value.hint
    assert not [*tmp_path.iterdir()]
    monkeypatch.setenv("HOLDFAST_SANDBOX_MODE", "unsafe")
    place = prepared(None)
    assert (place.sandbox, place.why) == ("unsafe", "bubblewrap is not there. landlock is not there.")
    assert "sandbox" not in place.about
    assert load(place.home, None, {}, {}).policy.walls.backend == "unsafe"
    assert "status.py" not in place.script.read_text()
    (told,) = about_sandbox(place)
    assert "so commands run with your permissions" in str(told)


async def evidence(home: Path, project: Path, sandbox: str) -> Evidence:
    """What a visitor finds in the home afterwards."""
    async with reading(find_home(str(home), {})) as store:
        journal = await read_session(store, "demo:ferry")
        fold = Fold(journal.row.session, journal.row.key)
        fold.load(journal.stored)
        came_to = await report(store, fold.state)
    result: dict[str, Any] = {"status": came_to.status, "turns": came_to.turns, "cost_usd": "0.05"}
    killed = next(record for record in journal.records if type(record.event).__name__ == "ToolCallAbandoned")
    return Evidence(
        before=journal.stored[: killed.seq - 2],
        after=journal,
        killed_ms=killed.at_ms,
        marker=project / "check.pid",
        exits=(-9, 5, 0, 0, 0, 0),
        result=result,
        tests_exit=0,
        sandbox=sandbox,
        key=KEY,
        sent=(KEY,),
    )


@pytest.mark.requirement("L2-05", "H1", "B1", "S1")
def test_the_demo_survives_its_kill_and_its_claims_hold_and_its_commands_work_when_they_are_pasted(
    tmp_path: Path,
) -> None:
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The model is scripted" in done.stdout
    assert "killed with SIGKILL" in done.stdout
    assert "show last --timeline" in done.stdout
    assert "✗ It" not in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    (folder,) = tmp_path.glob("holdfast-demo-*")
    home = find_home(str(folder / "home"), {})
    sandbox = load(home, None, {}, {}).policy.walls.backend
    whole = asyncio.run(evidence(home.folder, folder / "ferry", sandbox))
    check_claims(whole)
    place = Place(folder, home, folder / "ferry", folder / "model.jsonl", sandbox, "")
    steps = [Step(["holdfast"], code) for code in whole.exits]
    check_json(msgspec.to_builtins(_as_json(place, whole, steps, checks(whole), 1.0)))
    printed = [line.split("$ ", 1)[1] for line in done.stdout.splitlines() if line.startswith("$ ")]
    looks = [
        line.strip() for line in done.stdout.splitlines() if line.startswith("    ") and " --home " in line
    ]
    assert (len(printed), len(looks)) == (6, 5)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    codes = [pasted(looks[0], elsewhere), *(split(line, elsewhere) for line in [*printed[1:], *looks[1:]])]
    # The run is over: `resume` prints its result, and the approval is decided already.
    assert codes == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert "waits for approval: shell: python3 -m unittest" in done.stdout


def pasted(line: str, folder: Path) -> int:
    """The exit code of a line that somebody pastes into a shell that does not find `holdfast`."""
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(["sh", "-c", line], capture_output=True, cwd=folder, env=environ, check=False)
    return done.returncode


def split(line: str, folder: Path) -> int:
    """The exit code of such a line whose words are split as a shell does. Only the program is not loaded anew."""
    environ, words = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}, shlex.split(line)
    assert Path(words[0]) == Path(sys.executable).with_name("holdfast"), line
    return nursery.run(words[1:], timeout=300, text=True, cwd=folder, env=environ).returncode


def test_the_demo_leaves_a_home_that_is_in_use_alone(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.toml").write_text("")
    answer = holdfast("demo", "--home", str(tmp_path / "mine"))
    assert answer.code == 2
    assert "not empty" in answer.err
