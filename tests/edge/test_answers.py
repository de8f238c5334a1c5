"""What a model may answer: nothing, calls that cannot be, and over HTTP on both wires every kind of failure."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from holdfast.testing.model_replies import Reply, ReplyCall
from holdfast.testing.model_server import ModelServer
from tests.edge.machine import CUSTOMIZED, Finished, Machine, at_s, call, of_type

WIRES = {
    "openai": ("openai:gpt-5.5", "OPENAI_BASE_URL", "/v1", "OPENAI_API_KEY"),
    "anthropic": ("anthropic:claude-sonnet-5", "ANTHROPIC_BASE_URL", "", "ANTHROPIC_API_KEY"),
}
DONE = Reply(text="the answer")
WRITE = Reply(tool_calls=(ReplyCall("write_file", {"path": "made.txt", "content": "made\n"}),))

HURRIED = {"PYTHONPATH": str(CUSTOMIZED), "FIRST_DELAY_MS": "20"}
"""What is tried again is tried again soon."""

both_wires = pytest.mark.parametrize("wire", WIRES)


async def run(machine: Machine, wire: str, url: str, *arguments: str) -> Finished:
    """One run against a server on this wire."""
    model, address, path, key = WIRES[wire]
    environ = {address: url + path, key: "a-key-of-nobody", **HURRIED}
    command = ("run", "go", "-m", model, "--autonomy", "full", "--json", *arguments)
    return await asyncio.to_thread(machine.holdfast, *command, **environ)


def failures(machine: Machine) -> list[dict[str, object]]:
    """How the attempts of the last session failed."""
    return [body["failure"] for body in of_type(machine.events("last"), "ModelCallFailed")]


def deep_call(depth: int) -> dict[str, object]:
    """A call with lists inside lists."""
    return {"name": "write_file", "arguments": '{"path":"a","content":' + "[" * depth + "]" * depth + "}"}


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.requirement("L1")
def test_after_three_empty_responses_the_run_fails_and_says_so(machine: Machine) -> None:
    answer = machine.holdfast("run", "go", "-m", machine.script([{"text": ""}] * 3), "--json")
    assert (answer.code, answer.json["status"], answer.json["reason"]) == (1, "failed", "empty_response")
    assert answer.json["model_calls"] == 3
    assert f"holdfast resume {answer.json['session']}" == answer.json["resume"]


@pytest.mark.requirement("L1")
def test_one_empty_response_is_asked_again(machine: Machine) -> None:
    model = machine.script([{"text": ""}, {"text": "here", "when": "empty"}])
    answer = machine.holdfast("run", "go", "-m", model, "--json")
    assert (answer.code, answer.json["text"]) == (0, "here")


@pytest.mark.requirement("L1", "C15")
@pytest.mark.parametrize(
    ("wrong", "code", "told"),
    [
        (call("no_such_tool"), "unknown_tool", "no_such_tool.*write_file"),
        ({"name": "shell", "arguments": '{"command": '}, "invalid_json", "not valid JSON"),
        (call("shell", cmd="ls"), "tool_validation", "did you mean 'command'"),
        (call("write_file", path=7, content="x"), "tool_validation", "path"),
        (deep_call(100), "tool_validation", "must be string"),
        (deep_call(300), "invalid_json", "nested deeper"),
        (deep_call(100_000), "invalid_json", "nested deeper"),
    ],
)
def test_a_call_that_cannot_be_is_told_to_the_model_which_goes_on(
    machine: Machine, wrong: dict[str, object], code: str, told: str
) -> None:
    model = machine.script([{"tool_calls": [wrong]}, {"text": "mended", "when": f"(?s){told}"}])
    answer = machine.holdfast("run", "go", "-m", model, "--autonomy", "full", "--json")
    assert (answer.code, answer.json["text"], answer.json["tool_calls"]) == (0, "mended", 0)
    events = machine.events("last")
    assert [body["failure"]["code"] for body in of_type(events, "ToolCallRefused")] == [code]
    assert not of_type(events, "ToolCallStarted")


# --- over HTTP ----------------------------------------------------------------------------------


@pytest.mark.requirement("L7", "C15")
@both_wires
async def test_what_goes_wrong_in_passing_is_tried_again_until_the_work_is_done(
    machine: Machine, wire: str
) -> None:
    first = [Reply(status=500), Reply(text="half of it", fault="cut"), Reply(fault="wrong_shape")]
    then = [Reply(fault="html"), Reply(fault="empty"), Reply(text="half of it", fault="bad_json")]
    async with ModelServer([*first, WRITE, *then, DONE]) as server:
        answer = await run(machine, wire, server.url)
    assert (answer.code, answer.json["text"], answer.json["turns"]) == (0, "the answer", 2)
    assert (machine.workspace / "made.txt").read_text() == "made\n"
    assert [failure["code"] for failure in failures(machine)] == ["provider_transient"] * 6


@pytest.mark.requirement("L7")
@both_wires
async def test_a_call_that_arrived_by_half_never_runs(machine: Machine, wire: str) -> None:
    torn = [Reply(tool_calls=WRITE.tool_calls, fault=fault) for fault in ("cut", "reset")]
    async with ModelServer([*torn, DONE]) as server:
        answer = await run(machine, wire, server.url)
    assert (answer.code, answer.json["tool_calls"]) == (0, 0)
    assert not (machine.workspace / "made.txt").exists()


@pytest.mark.requirement("L1", "L7")
@both_wires
async def test_arguments_that_no_validator_gets_to_the_end_of_are_refused(
    machine: Machine, wire: str
) -> None:
    content: list[object] = []
    for _ in range(300):
        content = [content]
    deep = Reply(tool_calls=(ReplyCall("write_file", {"path": "a", "content": content}),))
    async with ModelServer([deep, WRITE, DONE]) as server:
        answer = await run(machine, wire, server.url)
    assert (answer.code, answer.json["text"], answer.json["tool_calls"]) == (0, "the answer", 1)
    assert [body["failure"]["code"] for body in of_type(machine.events("last"), "ToolCallRefused")] == [
        "invalid_json"
    ]


@pytest.mark.requirement("L7")
@both_wires
async def test_retry_after_is_waited_for(machine: Machine, wire: str) -> None:
    async with ModelServer([Reply(status=429, headers={"retry-after": "2"}), DONE]) as server:
        answer = await run(machine, wire, server.url)
    assert answer.code == 0
    events = machine.events("last")
    (failed,) = of_type(events, "ModelCallFailed")
    assert (failed["failure"]["code"], failed["failure"]["retry_after_s"]) == ("rate_limited", 2.0)
    answered_s, tried_s = (
        next(at_s(event) for event in reversed(events) if event["type"] == name)
        for name in ("ModelCallFailed", "ModelCallStarted")
    )
    assert tried_s - answered_s >= 2


@pytest.mark.requirement("L7", "C15")
@both_wires
async def test_a_refused_key_ends_the_run_at_once(machine: Machine, wire: str) -> None:
    async with ModelServer([Reply(status=401, message="invalid key a-key-of-nobody")]) as server:
        answer = await run(machine, wire, server.url)
        assert len(server.requests) == 1
    assert (answer.code, answer.json["status"], answer.json["reason"]) == (7, "failed", "provider_refused")
    assert "a-key-of-nobody" not in answer.out + answer.err
    assert answer.json["resume"]


@pytest.mark.requirement("L7")
@both_wires
async def test_a_model_that_the_server_does_not_know_fails_the_run(machine: Machine, wire: str) -> None:
    async with ModelServer([Reply(status=404, message="no such model")]) as server:
        answer = await run(machine, wire, server.url)
    assert (answer.code, answer.json["status"]) == (1, "failed")
    assert "no such model" in json.dumps(failures(machine))


SAYS = "Unsupported value: 'temperature' does not support 0.2 with this model."
WHAT_TO_DO = {400: "use another model", 401: "Put a valid key", 402: "Add credit", 403: "another key",
              404: "holdfast models --all", 422: "use another model"}  # fmt: skip


@pytest.mark.requirement("C15")
@pytest.mark.parametrize("status", WHAT_TO_DO)
@both_wires
async def test_what_the_server_says_about_a_refused_request_is_shown_with_what_to_do(
    machine: Machine, wire: str, status: int
) -> None:
    async with ModelServer([Reply(status=status, message=SAYS)]) as server:
        answer = await run(machine, wire, server.url)
    assert answer.code == (7 if status in (401, 402, 403) else 1)
    assert answer.err.count(f"It said: {SAYS}") == 1
    assert answer.err.count(WHAT_TO_DO[status]) == 1


@pytest.mark.requirement("C15", "C7")
async def test_what_the_server_says_is_shown_masked_and_in_five_hundred_characters(machine: Machine) -> None:
    secret = "sk-ant-" + "api03-" + "Zk3mQ8" * 14
    said = f"The key {secret} is not allowed. \x1b[31m" + "word " * 97 + secret + "more " * 200
    async with ModelServer([Reply(status=400, message=said)]) as server:
        answer = await run(machine, "openai", server.url)
    (shown,) = [line for line in answer.err.splitlines() if "It said: " in line]
    words = shown.partition("It said: ")[2]
    assert words.startswith("The key [redacted:")
    assert len(words) <= 500
    assert words.endswith("…")
    assert "Zk3mQ8" not in answer.err + answer.out
    assert "\x1b" not in words


@pytest.mark.requirement("L1", "C15")
@both_wires
async def test_a_filtered_response_without_text_fails_the_run_and_its_call_does_not_run(
    machine: Machine, wire: str
) -> None:
    async with ModelServer([Reply(tool_calls=WRITE.tool_calls, finish="refusal")]) as server:
        answer = await run(machine, wire, server.url)
    assert (answer.code, answer.json["status"], answer.json["reason"]) == (1, "failed", "refusal")
    assert (answer.json["tool_calls"], answer.json["text"]) == (0, "")
    assert not (machine.workspace / "made.txt").exists()
    assert "another model" in answer.err
    assert answer.json["resume"]


@pytest.mark.requirement("L1")
def test_the_words_of_a_refusal_are_shown_but_are_no_answer(machine: Machine) -> None:
    model = machine.script([{"text": "I will not do that.", "finish": "refusal"}])
    answer = machine.holdfast("run", "go", "-m", model)
    assert (answer.code, answer.out) == (1, "")
    assert "I will not do that." in answer.err


@pytest.mark.requirement("L7", "C15")
async def test_a_server_that_is_not_there_is_tried_again_then_the_provider_is_unavailable(
    machine: Machine,
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        answer = await run(machine, "openai", url)
    assert (answer.code, answer.json["status"], answer.json["reason"]) == (7, "failed", "provider_transient")
    assert len(failures(machine)) == answer.json["model_calls"] > 1
    model = machine.script([{"text": "from elsewhere", "repeat": True}])
    again = machine.holdfast("resume", "last", "-m", model, "--json")
    assert (again.code, again.json["text"]) == (0, "from elsewhere")


@pytest.mark.requirement("C15", "C7")
async def test_a_window_that_only_the_server_knows_is_told_in_the_servers_words(machine: Machine) -> None:
    said = "This model's maximum context length is 100 tokens"
    async with ModelServer([Reply(status=400, message=said, repeat=True)]) as server:
        answer = await run(machine, "openai", server.url)
    assert answer.code == 1
    assert answer.err.count(f"It said: {said}") == 1
    assert "larger window" in answer.err
    assert "1,024" not in answer.err


@pytest.mark.requirement("C15")
async def test_what_a_server_refuses_for_its_bytes_is_not_blamed_on_the_window(machine: Machine) -> None:
    async with ModelServer([Reply(status=413, message="Entity too big", repeat=True)]) as server:
        answer = await run(machine, "openai", server.url)
    assert "longer than the window" not in answer.err
    assert answer.err.count("refused the request as too large") == 1
    assert "It said: Entity too big" in answer.err
