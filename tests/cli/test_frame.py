"""The frame of the command line: what it costs, and how commands end that cannot do what was asked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from holdfast.cli import commands
from holdfast.cli.commands import COMMANDS, Row
from tests.cli.broken import SECRET
from tests.cli.conftest import Filled, Holdfast
from tests.edge import nursery

MOST_MODULES = 300
"""How many a page of help may load; 227 today. `benchmarks.imports` measures the time."""
NOBODY = 65_534
CALLED_AS = """
import os, sys
from holdfast.cli.root import run
user, home, *command = sys.argv[1:]
run([*command, "--home", home])
os.chmod(home, 0)
os.seteuid(int(user))
sys.exit(run([*command, "--home", home]))
"""
"""The first call loads all that the second needs: the interpreter's files may be as private as the home."""

HEAVY = ("aiohttp", "genai_prices", "jsonschema_rs", "sqlite3", "rich", "asyncio")
LOADED = """
import sys
sys.argv = ["holdfast", "--help"]
from holdfast.cli.main import main
try:
    main()
except SystemExit as end:
    assert end.code == 0
print(*sys.modules, file=sys.stderr)
"""


def test_help_loads_no_heavy_library_and_not_many_modules() -> None:
    command = [sys.executable, "-c", LOADED]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    loaded = set(child.stderr.split())
    assert loaded.isdisjoint(HEAVY)
    assert "typer" in loaded
    assert len(loaded) <= MOST_MODULES


def test_help_lists_every_command_under_its_heading(holdfast: Holdfast) -> None:
    out = holdfast("--help").out
    for heading, rows in COMMANDS.items():
        assert not rows or f"{heading}:" in out
        assert all(re.search(rf"^  {row.name} +{re.escape(row.about)}", out, re.MULTILINE) for row in rows)
    assert holdfast().out == out, "no command at all asks for the same"


@pytest.mark.parametrize("row", [row for rows in COMMANDS.values() for row in rows], ids=lambda row: row.name)
def test_every_command_is_there_and_shows_an_example(holdfast: Holdfast, row: Row) -> None:
    module, _, name = row.target.partition(":")
    assert hasattr(import_module(module), name)
    answer = holdfast(row.name, "--help")
    assert answer.code == 0
    assert f"  holdfast {row.name}" in answer.out
    assert "--home DIR" in answer.out or "Commands:" in answer.out


@pytest.mark.requirement("C15", "A14")
@pytest.mark.parametrize("command", [["sessions"], ["show", "last"], ["fsck"]])
def test_a_home_of_somebody_else_is_exit_9(home: Filled, command: list[str]) -> None:
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    words = [str(user), str(home.folder), *command]
    child = nursery.run(words, code=CALLED_AS, text=True, timeout=120, cwd=home.folder, env={"HOME": "/"})
    home.folder.chmod(0o700)
    assert child.returncode == 9, child.stderr
    assert re.search(rf"^holdfast: {home.folder}\S* cannot be", child.stderr, re.MULTILINE)
    assert "Traceback" not in child.stderr


@pytest.mark.parametrize("arguments", [["sessions"], ["run", "x", "-m", "openai:any"], ["doctor"]])
def test_a_home_that_is_a_file_is_exit_2(holdfast: Holdfast, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "file").write_text("")
    answer = holdfast(*arguments, "--home", str(tmp_path / "file"))
    assert (answer.code, answer.out) == (2, "")
    assert f"The home {tmp_path / 'file'} is not a folder." in answer.err


NOWHERE = ["~nobody-has-this-name/x", "x" * 300, "x/" * 3_000]


@pytest.mark.parametrize("name", NOWHERE, ids=["user", "name", "path"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "x", "-m", "script:m", "-w"],
        ["run", "x", "-m", "script:m", "--attach"],
        ["run", "x", "-m", "script:m", "--system"],
        ["run", "x", "-m", "script:m", "--output-schema"],
        ["config", "show", "-w"],
        ["trust"],
        ["import"],
        ["fsck", "--repair"],
        ["replay", "last", "--with"],
        ["sessions", "--home"],
        ["doctor", "--home"],
    ],
    ids=lambda arguments: " ".join(arguments[::3]),
)
def test_a_path_that_cannot_be_is_no_bug(
    holdfast: Holdfast, home: Filled, tmp_path: Path, arguments: list[str], name: str
) -> None:
    (tmp_path / "m").write_text("")
    more = [] if "--home" in arguments else ["--home", str(home.folder)]
    answer = holdfast(*[each.replace("script:m", f"script:{tmp_path}/m") for each in arguments], name, *more)
    assert answer.code in ((0, 1, 2, 9) if "--home" in arguments else (2, 9)), answer.err
    assert "This is a bug" not in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "x", "-m", "script:m"],
        pytest.param(["sessions", "--home", "h"], marks=pytest.mark.long),
        pytest.param(["trust"], marks=pytest.mark.long),
    ],
)
def test_a_folder_that_was_removed_under_the_command_is_exit_2(tmp_path: Path, arguments: list[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'rmdir "$1"; shift; exec "$@"'
    answer = subprocess.run(
        ["sh", "-c", script, "sh", str(gone), sys.executable, "-m", "holdfast", *arguments],
        cwd=gone, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "HOLDFAST_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert (answer.returncode, answer.stdout) == (2, ""), answer.stderr
    assert (
        answer.stderr == "holdfast: The current folder no longer exists.\n  Change to another one with cd.\n"
    )


@pytest.mark.parametrize("arguments", [["-h"], ["run", "-h"]])
def test_help_has_a_short_flag(holdfast: Holdfast, arguments: list[str]) -> None:
    answer = holdfast(*arguments)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("Usage: holdfast")


def test_version_is_told_alone(holdfast: Holdfast) -> None:
    assert re.fullmatch(r"holdfast \d+\.\d+\.\d+\n", holdfast("--version", "sessions").out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sessons"], "no command 'sessons'. Did you mean sessions?"),
        (["fix the test's bug"], """To run a task, type `holdfast run 'fix the test'"'"'s bug'`."""),
        (["run", "fix", "the", "test"], "Unexpected argument: the test. Put a text with spaces in quotes."),
        (["version"], "There is no command 'version'.\n"),
        (["--bogus"], "No such option: --bogus"),
        (["fsck", "--repair"], "Option '--repair' requires an argument"),
        (["doctor", "--mend"], "No such option: --mend"),
        (["show"], "Missing argument 'SESSION'"),
        (["config"], "Missing command"),
        (["sessions", "--limit", "101"], "Invalid value for '--limit': it must be at most 100"),
        (["sessions", "--status", "odd"], "'--status': 'odd' is not one of"),
        (["show", "last", "--request", "0"], "Invalid value for '--request': it must be at least 1"),
    ],
)
@pytest.mark.requirement("A5", "C15")
def test_a_wrong_call_is_exit_2_in_plain_words(holdfast: Holdfast, arguments: list[str], said: str) -> None:
    answer = holdfast(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert said in answer.err
    assert (
        f"--help` lists {'the commands' if 'no command' in said + answer.err else 'its options'}"
        in answer.err
    )
    assert not re.search("[│╭─]|Traceback", answer.err)


@pytest.mark.requirement("C15")
def test_with_json_a_refusal_is_one_object_on_stdout(holdfast: Holdfast, home: Filled) -> None:
    answer = holdfast("show", "nobody", "--home", str(home.folder), "--json")
    assert answer.code == 2
    message, hint = "There is no session 'nobody' in this home.", "`holdfast sessions` lists all sessions."
    assert answer.rows == [{"error": {"code": "not_found", "message": message, "hint": hint}}]
    assert message in answer.err
    assert holdfast("sessions", "--limit", "x", "--json").rows[0]["error"]["code"] == "usage"


@pytest.mark.requirement("C15")
@pytest.mark.parametrize("command", [["sessions"], ["show", "last"], ["approvals"], ["fsck"]])
def test_a_file_that_is_no_database_is_exit_9_and_untouched(
    holdfast: Holdfast, tmp_path: Path, command: list[str]
) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    file = folder / "holdfast.db"
    file.write_bytes(b"a letter to my mother " * 100)
    file.chmod(0o600)
    answer = holdfast(*command, "--home", str(folder), "--json")
    assert answer.code == 9
    assert answer.rows[0]["error"]["code"] == "storage_corrupt"
    assert "Traceback" not in answer.err
    assert file.read_bytes() == b"a letter to my mother " * 100


@pytest.mark.requirement("C15", "A12", "A4")
def test_a_bug_is_a_sentence_with_a_trace_id_and_a_log(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = Row("broken", "tests.cli.broken:broken", "Fail.")
    monkeypatch.setattr(commands, "_ROWS", {"broken": row})
    monkeypatch.setenv("ODD_API_KEY", "as odd as can be")
    folder = tmp_path / "fresh"
    answer = holdfast("broken", "--home", str(folder))
    assert answer.code == 1
    assert "Traceback" not in answer.err
    found = re.search(r"trace ([0-9a-f]{32})\); the details are in (\S+)\.", answer.err)
    assert found is not None
    log = Path(found[2])
    entry = json.loads(log.read_text("utf-8"))
    assert entry["trace_id"] == found[1]
    assert "ZeroDivisionError" in entry["details"]
    assert SECRET not in entry["details"], "no secret is written into a log"
    assert "[redacted:known]" in entry["details"]
    assert log.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700

    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    assert "Traceback" in holdfast("broken", "--home", str(folder)).err


def test_the_home_may_stand_before_the_command(holdfast: Holdfast, home: Filled) -> None:
    after = holdfast("sessions", "--json", "--home", str(home.folder))
    assert holdfast("--home", str(home.folder), "sessions", "--json") == after
    assert len(after.rows) == 2


def test_looking_makes_no_home(holdfast: Holdfast, tmp_path: Path) -> None:
    folder = tmp_path / "fresh"
    assert holdfast("sessions", "--home", str(folder)).code == 0
    assert holdfast("approvals", "--home", str(folder)).code == 0
    last = holdfast("show", "last", "--home", str(folder))
    assert (last.code, "holdfast run" in last.err) == (2, True)
    assert not folder.exists()


@pytest.mark.parametrize(
    "arguments", [["tools", "--json"], pytest.param(["show", "nobody", "--json"], marks=pytest.mark.long)]
)
def test_a_reader_that_leaves_early_is_no_error(home: Filled, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "holdfast", *arguments, "--home", str(home.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert b"Traceback" not in (said := child.stderr.read())
        assert b"BrokenPipe" not in said
        assert child.wait(timeout=120) == 141


def test_an_answer_that_finds_no_space_is_told(home: Filled) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    command = [sys.executable, "-m", "holdfast", "tools", "--json"]
    with full.open("wb") as nowhere:
        child = subprocess.run(command, stdout=nowhere, stderr=subprocess.PIPE, timeout=120, check=False)
    assert child.returncode == 9
    assert child.stderr == b"holdfast: The output could not be written: no space is left on the device.\n"


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.long)])
def test_any_text_can_be_shown_whatever_the_locale(home: Filled, encoding: str) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "holdfast", "show", "cli:demo", "--timeline", "--home", str(home.folder)],
        env={"PYTHONIOENCODING": encoding, "PATH": ""},
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert "█" in child.stdout.decode("utf-8")


def test_a_module_in_the_current_folder_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text('raise SystemExit("planted")')
    command = [sys.executable, "-m", "holdfast", "--version"]
    child = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr
