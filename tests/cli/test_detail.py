"""How much a run says on stderr: `-q`, the usual, `-v`, and one warning."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.testing.model_replies import Reply
from holdfast.testing.model_server import ModelServer
from tests.cli.processes import Cli, calls, says


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def a_model(cli: Cli) -> str:
    return cli.model(
        calls("write_file", path="a.txt", content="first\nsecond\n"),
        calls("read_file", path="a.txt"),
        calls("read_file", path="/etc/shadow"),
        says("Written."),
    )


def test_a_quiet_run_that_is_done_says_nothing_but_its_answer(cli: Cli) -> None:
    ended = cli("run", "x", "-m", a_model(cli), "-q")
    assert (ended.code, ended.out, ended.err) == (0, "Written.\n", "")


def test_a_quiet_run_still_tells_errors_and_questions(cli: Cli) -> None:
    failed = cli("run", "x", "-m", cli.model(calls("list_dir")), "-q")
    assert failed.code == 1
    assert "has no line for response 2" in failed.err
    assert "list_dir" not in failed.err
    asks = cli.model(calls("shell", command="kill -0 0; echo hello"), says("Done."), name="asks")
    waits = cli("run", "x", "-m", asks, "-q")
    assert waits.code == 5
    assert "Running commands needs approval" in waits.err
    assert "holdfast approve " in waits.err


def test_a_verbose_run_shows_arguments_and_results(cli: Cli) -> None:
    usual, verbose = (cli("run", "x", "-m", a_model(cli), *flags).err for flags in ((), ("-v",)))
    for text in ("content: first", "second", "Wrote 13 bytes", "/etc/shadow"):
        assert text in verbose
    assert "content: first" not in usual


def test_quiet_and_verbose_do_not_go_together(cli: Cli) -> None:
    ended = cli("run", "x", "-m", a_model(cli), "-q", "-v")
    assert (ended.code, ended.out) == (2, "")
    assert "--quiet and --verbose cannot be combined" in ended.err


@pytest.mark.requirement("L9")
def test_a_run_tells_one_warning_and_doctor_tells_all(cli: Cli) -> None:
    (cli.workspace / "holdfast.toml").write_text('autonomy = "full"\n')
    ended = cli("run", "x", "-m", a_model(cli))
    warnings = [line for line in ended.err.splitlines() if line.startswith("! ")]
    assert len(warnings) == 1
    assert "`holdfast doctor` shows 1 more" in warnings[0]
    told = cli("doctor").out
    assert told.count("no sandbox confines them") == 1
    assert "holdfast.toml" in told
    (cli.workspace / "holdfast.toml").unlink()
    assert cli("run", "x", "-m", a_model(cli)).err.count("! ") == 1


@pytest.mark.requirement("L2-07")
async def test_an_unknown_price_is_the_warning_that_is_told_first(cli: Cli) -> None:
    async with ModelServer([Reply(text="Here I am.")]) as server:
        cli.environ |= {"OPENAI_BASE_URL": server.openai_url}
        ended = await asyncio.to_thread(cli, "run", "x", "-m", "openai:not-yet-born")
    (warning,) = [line for line in ended.err.splitlines() if line.startswith("! ") and "ost unknown" in line]
    assert "`holdfast doctor` shows" in warning
