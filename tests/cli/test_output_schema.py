"""`--output-schema`: stdout is the JSON value alone, or nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.model_replies import Reply
from holdfast.testing.model_server import ModelServer
from tests.cli.processes import SLOW, Cli, calls, says

SCHEMA = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]},
        }
    },
    "required": ["items"],
    "additionalProperties": False,
}
VALUE = {"items": [{"price": 1.5}, {"price": 2}]}
GOOD = json.dumps(VALUE)
WRONG = '{"items": [{"price": 1.5}, {"price": "two"}]}'
OPENAI = '[providers.openai]\nbase_url = "{url}/v1"\n'
ANTHROPIC = '[providers.anthropic]\nbase_url = "{url}"\n'


@pytest.fixture
def schema(cli: Cli) -> str:
    """The file with the schema."""
    return written(cli, SCHEMA)


def written(cli: Cli, content: Any) -> str:
    """A file with this JSON."""
    path = cli.folder / "schema.json"
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.requirement("S1", "B1")
def test_stdout_is_the_value_alone(cli: Cli, schema: str) -> None:
    model = cli.model(says("I look.", **calls("list_dir")), says(f"Here:\n```json\n{GOOD}\n```"))
    ended = cli("run", "list them", "-m", model, "--output-schema", schema)
    assert (ended.code, ended.out.count("\n"), json.loads(ended.out)) == (0, 1, VALUE)


@pytest.mark.requirement("S1")
def test_a_number_that_ends_at_the_output_limit_is_no_answer(cli: Cli) -> None:
    schema = written(cli, {"type": ["integer", "array"]})
    model = cli.model(says("12", finish="length"), says("1234"), says("[1]", finish="length"))
    for answer in ("1234\n", "[1]\n"):
        ended = cli("run", "count", "-m", model, "-s", "cli:a", "--output-schema", schema)
        assert (ended.code, ended.out) == (0, answer), ended.err


@pytest.mark.requirement("S1")
def test_json_has_the_value_beside_the_text(cli: Cli, schema: str) -> None:
    answer = cli("run", "go", "-m", cli.model(says(GOOD)), "--output-schema", schema, "--json").json
    assert (list(answer)[-1], answer["output"], answer["text"]) == ("output", VALUE, GOOD)


@pytest.mark.requirement("S1", "L1")
def test_a_wrong_answer_goes_back_with_its_path_and_each_repair_is_a_turn(cli: Cli, schema: str) -> None:
    told = r"(?s)\[holdfast\].*`items\[1\]\.price` must be number.*\"two\""
    model = cli.model(says("They cost 3.50."), says(WRONG, when="not one JSON value"), says(GOOD, when=told))
    ended = cli("run", "go", "-m", model, "--output-schema", schema, "--json")
    assert (ended.code, ended.json["output"], ended.json["turns"]) == (0, VALUE, 3)
    assert "does not match the schema" in ended.err


@pytest.mark.requirement("S1", "L1")
def test_an_answer_that_is_never_valid_fails_with_nothing_on_stdout(cli: Cli, schema: str) -> None:
    model = cli.model(says(WRONG, repeat=True))
    ended = cli("run", "go", "-m", model, "--output-schema", schema)
    assert (ended.code, ended.out) == (1, "")
    assert "`items[1].price`" in ended.err
    answer = cli("run", "go", "-m", model, "--output-schema", schema, "--json").json
    assert (answer["status"], answer["reason"], answer["output"]) == ("failed", "output_schema", None)
    assert (answer["turns"], answer["resume"]) == (3, f"holdfast resume {answer['session']}")


@pytest.mark.requirement("S1", "B2")
def test_at_a_limit_only_a_valid_answer_is_written(cli: Cli, schema: str) -> None:
    for answer, out in ((GOOD, GOOD), (WRONG, "")):
        model = cli.model(says("So far.", **calls("list_dir")), says(answer))
        ended = cli("run", "go", "-m", model, "--output-schema", schema, "--max-turns", "1")
        assert ended.code == 4
        assert ended.out.replace(" ", "").strip() == out.replace(" ", "")


@pytest.mark.requirement("S1")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"type": "strin"}', "`type`"),
        ('{"type": ', "is not JSON"),
        ("[1]", "an object"),
        ('{"$ref": "https://example.com/x.json"}', "not a JSON Schema"),
        ("\udcff", "is not UTF-8"),
    ],
)
def test_what_is_no_schema_is_a_usage_error_before_anything_begins(cli: Cli, content: str, said: str) -> None:
    path = cli.folder / "schema.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    ended = cli("run", "go", "-m", cli.model(says(GOOD)), "--output-schema", str(path), "--json")
    assert ended.code == 2
    assert said in ended.json["error"]["message"]
    assert str(path) in ended.json["error"]["message"]
    assert cli("sessions", "--json").out == ""


@pytest.mark.requirement("S1", "C5")
def test_a_schema_from_a_pipe_or_device_or_one_that_is_too_large_is_refused(cli: Cli) -> None:
    pipe, large = cli.folder / "pipe", cli.folder / "large.json"
    os.mkfifo(pipe)
    large.write_text('{"description": "' + "x" * 1_000_001 + '"}')
    for file in ("/dev/zero", str(pipe), str(large), str(cli.folder), "missing.json"):
        ended = cli("run", "go", "-m", cli.model(says(GOOD)), "--output-schema", file)
        assert (ended.code, ended.out) == (2, ""), file


@pytest.mark.requirement("S1", "A7")
def test_a_schema_with_a_secret_is_refused(cli: Cli) -> None:
    secret = "sk-ant-" + "api03-" + "Zk3mQ8" * 14
    file = written(cli, {"type": "string", "default": secret})
    ended = cli("run", "go", "-m", cli.model(says('"x"')), "--output-schema", file)
    assert ended.code == 2
    assert "contains a secret" in ended.err
    assert secret not in ended.err


@pytest.mark.requirement("S1", "H1")
def test_a_killed_run_repairs_on_with_its_schema(cli: Cli, schema: str) -> None:
    model = cli.model(says(WRONG), SLOW | says(GOOD))
    with cli.working("run", "go", "-m", model, "--output-schema", schema) as working:
        working.until(lambda row: row.get("type") == "NoteAdded" and row["about"] == "output")
        working.process.send_signal(signal.SIGKILL)
    Path(model.partition(":")[2]).write_text(
        "".join(json.dumps(says(t)) + "\n" for t in (WRONG, WRONG, GOOD))
    )
    ended = cli("resume", "last", "--json")
    assert (ended.code, ended.json["output"], ended.json["turns"]) == (0, VALUE, 3)


@pytest.mark.requirement("S1")
def test_the_schema_belongs_to_its_task(cli: Cli, schema: str) -> None:
    model = cli.model(says(GOOD), says("In words.", when="^And why"), says(GOOD))
    first = cli("run", "go", "-m", model, "-s", "cli:a", "--output-schema", schema, "--json")
    assert first.json["output"] == VALUE
    assert cli("resume", "cli:a").out == first.json["text"].replace(" ", "") + "\n"
    second = cli("run", "And why?", "-s", "cli:a", "--json")
    assert (second.code, second.json["text"], "output" in second.json) == (0, "In words.", False)
    third = cli("resume", "cli:a", "Again.", "--output-schema", schema)
    assert (third.code, json.loads(third.out)) == (0, VALUE)


@pytest.mark.requirement("S1")
def test_a_failed_task_goes_on_with_its_schema(cli: Cli, schema: str) -> None:
    model = cli.model(says(WRONG), says(WRONG), says(WRONG), says(GOOD))
    assert cli("run", "go", "-m", model, "--output-schema", schema).code == 1
    ended = cli("resume", "last")
    assert (ended.code, json.loads(ended.out)) == (0, VALUE)


@pytest.mark.requirement("S1", "C5")
@pytest.mark.parametrize(("model", "config"), [("openai:m", OPENAI), ("anthropic:m", ANTHROPIC)])
async def test_the_request_contains_the_schema_in_its_stable_part(
    cli: Cli, schema: str, model: str, config: str
) -> None:
    cli.environ |= {"OPENAI_API_KEY": "nobody's key", "ANTHROPIC_API_KEY": "nobody's key"}
    async with ModelServer([Reply(text=WRONG), Reply(text=GOOD)]) as server:
        cli.configure(config.format(url=server.url))
        ended = await asyncio.to_thread(cli, "run", "go", "-m", model, "--output-schema", schema)
        bodies = [request.body for request in server.requests]
    assert (ended.code, json.loads(ended.out)) == (0, VALUE)
    shown = json.dumps(json.dumps(SCHEMA, separators=(",", ":")))[1:-1].encode()
    heads = [body.partition(b'{"role":"user"')[0] for body in bodies]
    assert shown in heads[0]
    assert heads[0] == heads[1]


@pytest.mark.requirement("S1", "B1")
def test_at_a_terminal_the_value_is_written_once_and_as_it_is(cli: Cli) -> None:
    loose = written(
        cli, {"type": "object", "properties": {"a_b_c": {"type": "string"}}, "required": ["a_b_c"]}
    )
    model = cli.model(
        says("I *look*.", **calls("list_dir")), says("nothing"), says('{"a_b_c": "**x** __y__"}', chunks=9)
    )
    with cli.emulator("run", "go", "-m", model, "--output-schema", loose) as screen:
        screen.until("done · ")
        shown = screen.text
    assert shown.count('{"a_b_c":"**x** __y__"}') == 1
    assert shown.count("__y__") == 1
    assert "I look" in shown.replace("*", "")
    assert "nothing" not in shown
