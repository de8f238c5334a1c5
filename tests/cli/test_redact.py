"""`holdfast redact`: what a shell pipe gets, and a program with a batch."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.cli.processes import Cli
from tests.edge import nursery

TOKEN = "ghp_" + "0123456789abcdefghij" + "klmnopqrstuvwxyzAB"
KNOWN = "correct-horse-" + "battery"

pytestmark = pytest.mark.requirement("A4")


def piped(cli: Cli, content: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return nursery.run(
        ["redact", *arguments], input=content, timeout=60, cwd=cli.workspace, env=cli._environ()
    )


def test_secrets_are_masked_and_everything_else_leaves_as_it_came(cli: Cli) -> None:
    cli.environ["OPENAI_API_KEY"] = KNOWN
    text = f"a\r\n  {TOKEN} \n{KNOWN}\n".encode() + b"\xff\x00\xfe no text\nlast line without an end"
    done = piped(cli, text)
    expected = (
        b"a\r\n  [redacted:github] \n[redacted:known]\n" + b"\xff\x00\xfe no text\nlast line without an end"
    )
    assert (done.returncode, done.stdout) == (0, expected)
    assert piped(cli, b"").stdout == b""


def test_a_secret_that_arrives_in_two_pieces_is_masked(cli: Cli) -> None:
    for filler in (65_520, 65_530, 131_060):
        text = ("word " * (filler // 5) + TOKEN + " end\n").encode()
        assert TOKEN.encode()[:12] not in piped(cli, text).stdout


def test_the_beginning_of_a_text_without_end_is_shown_before_its_end(cli: Cli) -> None:
    reading, writing = os.pipe()
    with nursery.start(
        ["redact"], stdin=reading, stdout=subprocess.PIPE, cwd=cli.workspace, env=cli._environ()
    ) as process:
        os.close(reading)
        os.write(writing, f"key {TOKEN} is shown\nand more".encode())
        assert process.stdout is not None
        assert process.stdout.readline() == b"key [redacted:github] is shown\n"
        os.close(writing)
        assert process.stdout.read() == b"and more"
        assert process.wait(60) == 0


def test_a_batch_gives_a_line_for_each_line(cli: Cli) -> None:
    rows = [{"text": f"key {TOKEN}"}, {"text": "nothing é\ud83d"}, {"text": 5}, ["text"], {}]
    batch = (
        "\n".join(['{"text": "plain"}', *map(json.dumps, rows), "no json", '{"text": "' + "x" * 2_000_000])
        + "\n"
    )
    done = cli("redact", "--batch", "-", "--json", stdin=batch)
    told = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 1
    assert told[0] == {"text": "plain", "found": []}
    assert told[1] == {"text": "key [redacted:github]", "found": ["github"]}
    assert all(list(each) == ["error"] for each in told[3:])
    assert len(told) == len(batch.splitlines())
    (cli.workspace / "b.jsonl").write_text('{"text": "plain"}\n')
    assert cli("redact", "--batch", "b.jsonl", "--json").code == 0


@pytest.mark.parametrize("wrong", [("--json",), ("--batch", "missing.jsonl"), ("--batch", "."), ("text",)])
def test_a_wrong_call_is_refused_in_a_sentence(cli: Cli, wrong: tuple[str, ...]) -> None:
    ended = cli("redact", *wrong)
    assert ended.code == 2
    assert ended.err.startswith("holdfast: ")
