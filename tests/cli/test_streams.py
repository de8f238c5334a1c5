"""Streams that are closed, and readers that leave: the work goes on, and nothing fails because of them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.processes import Cli, calls, says
from tests.edge import nursery


def shell(cli: Cli, line: str, is_loaded_anew: bool = False) -> subprocess.CompletedProcess[str]:
    """A line of bash in the workspace, where `holdfast` is the command."""
    if not is_loaded_anew:
        return nursery.run_in_shell(line, cwd=cli.workspace, env=cli._environ())
    text = f'holdfast() {{ "{sys.executable}" -m holdfast "$@"; }}; set -o pipefail; {line}'
    return subprocess.run(
        ["bash", "-c", text],
        cwd=cli.workspace,
        env=cli._environ(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.requirement("H1", "L7")
@pytest.mark.parametrize("output", ["--stream-json", "--json", ""])
def test_a_reader_that_leaves_does_not_end_the_work(cli: Cli, output: str) -> None:
    model = cli.model(calls("shell", command="sleep 0.5; touch made"), says("It is made."))
    shell(
        cli, f"holdfast run go -m {model} --autonomy full {output} -s a:b 2>/dev/null | head -c 1 >/dev/null"
    )
    assert (cli.workspace / "made").exists()
    assert cli("resume", "a:b").out == "It is made.\n"


@pytest.mark.requirement("L7", "C15")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_keep_a_command_from_its_work(cli: Cli, closed: str) -> None:
    model = cli.model(says("Done."))
    ended = shell(cli, f"holdfast run go -m {model} -s a:b {closed}")
    assert ended.returncode == (9 if ">&-" in closed.removeprefix("2>&-") else 0)
    assert "Traceback" not in ended.stderr
    assert cli("resume", "a:b").out == "Done.\n"


@pytest.mark.parametrize("words", ["run go", "run go --json", "run go --stream-json", "tools", "--help"])
@pytest.mark.parametrize(("to", "why"), [(">&-", "stdout is closed"), (">/dev/full", "no space is left")])
def test_an_answer_that_cannot_be_written_is_an_error(cli: Cli, words: str, to: str, why: str) -> None:
    model = f"-m {cli.model(says('Done.'))}" if words.startswith("run") else ""
    # Python itself sees at its start that a stream is closed: one of the words shows that this is the same.
    ended = shell(cli, f"holdfast {words} {model} {to}", is_loaded_anew=(words, to) == ("run go", ">&-"))
    assert (ended.returncode, ended.stdout) == (9, "")
    assert f"The output could not be written: {why}" in ended.stderr
    assert "Traceback" not in ended.stderr
    if words in ("run go", "run go --json"):
        assert "The session is stored: `holdfast show " in " ".join(ended.stderr.split())


@pytest.mark.parametrize("to", [">&-", ">/dev/full"])
def test_an_error_keeps_its_exit_code_when_its_json_cannot_be_written(cli: Cli, to: str) -> None:
    ended = shell(cli, f"holdfast run --json {to}")
    assert ended.returncode == 2
    assert "Missing argument" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.requirement("H5")
def test_of_several_who_decide_at_once_only_one_is_told_that_it_decided(cli: Cli) -> None:
    model = cli.model(calls("shell", command="kill -0 0"), says("Done."))
    assert cli("run", "go", "-m", model, "-s", "a:b").code == 5
    (approval,) = (row["id"] for row in map(json.loads, cli("approvals", "--json").out.splitlines()))
    ended = shell(
        cli, f"for n in 1 2 3 4; do (holdfast approve {approval} >/dev/null 2>&1; echo $?) & done; wait"
    )
    assert sorted(ended.stdout.split()) == ["0", "1", "1", "1"]
