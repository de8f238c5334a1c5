"""`holdfast parse-calls`: which calls a text has, for people, scripts and CI."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.cli.processes import Cli
from tests.edge import nursery

pytestmark = pytest.mark.requirement("S3")

TOOLS = [
    {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"at": {"type": "string"}, "depth": {"type": "integer"}},
            "required": ["at"],
        },
    },
    {"type": "function", "function": {"name": "stop"}},
]


def call(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def test_only_calls_of_known_tools_with_arguments_that_fit_count(cli: Cli) -> None:
    (cli.workspace / "tools.json").write_text(json.dumps(TOOLS))
    text = (
        "I look."
        + call("look", {"at": "a.py", "depth": "2"})
        + call("look", {"depth": 2})
        + call("erase", {})
        + call("stop", {"any": 1})
        + " `<tool_call>`"
    )
    done = cli("parse-calls", "--tools", "tools.json", "--json", stdin=text)
    told = json.loads(done.out)
    assert done.code == 0
    assert told["calls"] == [
        {"name": "look", "arguments": {"at": "a.py", "depth": 2}},
        {"name": "stop", "arguments": {"any": 1}},
    ]
    assert told["text"] == "I look. `<tool_call>`"
    assert [each["reason"] for each in told["rejected"]] == ["quoted", "schema", "unknown_tool"]
    assert told["rejected"][2]["name"] == "erase"
    shown = cli("parse-calls", "--tools", "tools.json", stdin=text)
    assert "look" in shown.out
    assert "unknown_tool" in shown.out


def test_the_format_may_be_declared(cli: Cli) -> None:
    bare = '{"name": "look", "arguments": {}}'
    assert json.loads(cli("parse-calls", "--json", stdin=bare).out)["calls"] == []
    declared = cli("parse-calls", "--format", "json", "--json", stdin=bare)
    assert json.loads(declared.out)["calls"] == [{"name": "look", "arguments": {}}]


def test_a_batch_gives_a_line_for_each_line(cli: Cli) -> None:
    wrong_tool = {"text": "x", "tools": [{"name": "a"}, {"name": "a"}, 5]}
    rows = [
        {"text": call("look", {"at": "a"}), "tools": TOOLS},
        {"text": "[look(at='a')]", "format": "pythonic"},
        {"text": "x", "format": "hermess"},
        wrong_tool,
        {"text": 5},
        ["text"],
    ]
    batch = "\n".join([*map(json.dumps, rows), "no json", '{"text": "x", "text": "y"}']) + "\n"
    done = cli("parse-calls", "--batch", "-", "--json", stdin=batch)
    told = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 1
    assert len(told) == len(rows) + 2
    assert [each["calls"] for each in told[:2]] == [[{"name": "look", "arguments": {"at": "a"}}]] * 2
    assert all(list(each) == ["error"] for each in told[2:])
    assert "hermes?" in told[2]["error"]
    assert "tool 2 has the name 'a' again; tool 3 has no name" in told[3]["error"]
    (cli.workspace / "b.jsonl").write_text(json.dumps(rows[0]))
    assert cli("parse-calls", "--batch", "b.jsonl", "--json").code == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--format", "llama3"), "Did you mean llama3_json?"),
        (("--format", "nothing-like-it"), "Known: auto, apertus"),
        (("--tools", "missing.json"), "missing.json"),
        (("--tools", "no.json"), "is not JSON"),
        (("--tools", "five.json"), "is not a list of tools"),
        (("--batch", "missing.jsonl"), "missing.jsonl"),
        (("text",), ""),
    ],
)
def test_a_wrong_call_is_refused_in_a_sentence(cli: Cli, wrong: tuple[str, ...], said: str) -> None:
    (cli.workspace / "no.json").write_text("{")
    (cli.workspace / "five.json").write_text("5")
    ended = cli("parse-calls", *wrong, stdin="x")
    assert ended.code == 2
    assert ended.err.startswith("holdfast: ")
    assert said in ended.err


def test_a_schema_that_cannot_be_used_lets_no_call_through(cli: Cli) -> None:
    row = {"text": call("f", {"a": 1}), "tools": [{"name": "f", "parameters": {"type": "wrong"}}]}
    done = cli("parse-calls", "--batch", "-", "--json", stdin=json.dumps(row))
    told = json.loads(done.out)
    assert (done.code, told["calls"]) == (0, [])
    assert told["rejected"][0]["reason"] == "schema"


def test_a_reader_that_goes_away_and_half_a_character_are_no_fault_of_the_file(cli: Cli) -> None:
    half = '<tool_call>{"name": "x", "arguments": {"a": "\\ud800"}}</tool_call>'
    rows = [{"text": half}, *[{"text": "plain"}] * 20_000]
    (cli.workspace / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["parse-calls", "--batch", "b.jsonl", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with nursery.start(command, cwd=cli.workspace, env=cli._environ(), **pipes) as process:
        first = process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert json.loads(first)["rejected"][0]["reason"] == "malformed"
    assert said == b""


def test_the_tools_may_be_what_holdfast_tools_prints(cli: Cli) -> None:
    (cli.workspace / "tools.json").write_text(cli("tools", "--json").out)
    text = call("read_file", {"path": "a.txt"}) + call("read_file", {"pth": "a.txt"})
    read = cli("parse-calls", "--tools", "tools.json", "--json", stdin=text).json
    assert [each["arguments"] for each in read["calls"]] == [{"path": "a.txt"}]
    assert [each["reason"] for each in read["rejected"]] == ["schema"]
