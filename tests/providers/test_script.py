"""The scripted model: its lines, how one is chosen, and what it says about a wrong one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.causes import Outcome
from holdfast.errors import UsageError
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import (
    Message,
    ModelReply,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    calls_of,
    text_of,
)
from holdfast.protocol.outcomes import ModelCut, ModelFailure
from holdfast.protocol.ports import Delta, ModelAttempt
from holdfast.providers.script import ScriptProvider, script_from_file, script_from_lines
from holdfast.testing.clock import never_over
from holdfast.testing.conformance_provider import QUESTION, written_request
from tests.core.stories import opened

FACTS = ModelFacts("script", "demo.jsonl")
CALL = Message("assistant", (ToolCall("c", "read", "{}", "t1.c0"),))
RESULT = Message("tool", (ToolResult("t1.c0", "c", "read", 'found "it"\n],'),))


async def ask(
    provider: ScriptProvider,
    outcomes: int,
    *messages: Message,
    shown: list[Delta] | None = None,
    idle_s: float = 1,
) -> ModelReply | ModelFailure:
    body = written_request(provider.wire, FACTS, messages or (QUESTION,))
    watch = [] if shown is None else shown
    return await provider.respond(
        ModelAttempt(
            FACTS,
            body,
            is_streaming=True,
            idle_s=idle_s,
            outcomes=outcomes,
            on_delta=watch.append,
            on_cut=lambda cut: None,
            check=never_over,
        )
    )


@pytest.mark.requirement("C21")
async def test_the_line_is_chosen_by_what_the_journal_answered_and_not_by_the_process() -> None:
    script = script_from_lines(
        [{"text": "one"}, {"error": {"status": 503}}, {"text": "last", "repeat": True}]
    )
    for answered, said in ((2, "last"), (0, "one"), (0, "one"), (9, "last")):
        reply = await ask(script, answered)
        assert isinstance(reply, ModelReply)
        assert text_of(reply.parts) == said
    failed = await ask(script, 1)
    assert isinstance(failed, ModelFailure)
    assert failed.failure.code == "provider_transient"


@pytest.mark.requirement("C21")
async def test_a_script_that_is_used_up_fails_for_good_and_names_the_line() -> None:
    failed = await ask(script_from_lines([{"text": "one"}], "demo.jsonl"), 1)
    assert isinstance(failed, ModelFailure)
    assert failed.failure.code == "provider_fatal"
    assert "demo.jsonl" in failed.failure.message
    assert "2" in failed.failure.message


@pytest.mark.requirement("C21")
@pytest.mark.parametrize(
    ("messages", "pattern"),
    [
        ([QUESTION], "capital of .*[?]"),
        ([QUESTION, CALL, RESULT], '^found "it"\n\\],$'),
        ([QUESTION, CALL, RESULT, Message("assistant", (Text("hm\n]"),))], "found"),
    ],
    ids=["user", "tool", "not the assistant's"],
)
async def test_when_is_looked_for_in_the_last_user_or_tool_message(
    messages: list[Message], pattern: str
) -> None:
    assert isinstance(await ask(script_from_lines([{"when": pattern}]), 0, *messages), ModelReply)
    failed = await ask(script_from_lines([{"when": "never said"}], "demo.jsonl"), 0, *messages)
    assert isinstance(failed, ModelFailure)
    assert failed.failure.code == "provider_fatal"
    assert "demo.jsonl, line 1" in failed.failure.message


@pytest.mark.requirement("L1", "L2-06")
async def test_chunks_calls_and_malformed_arguments_come_as_written() -> None:
    calls: list[dict[str, Any]] = [
        {"name": "read", "arguments": {"a": 1}},
        {"name": "x", "arguments": "{oops"},
    ]
    shown: list[Delta] = []
    script = script_from_lines([{"text": "abcdefg", "tool_calls": calls, "chunks": 3, "repeat": True}])
    reply = await ask(script, 4, shown=shown)
    assert isinstance(reply, ModelReply)
    assert [delta.text for delta in shown] == ["abc", "def", "g"]
    assert calls_of(reply.parts) == (
        ToolCall("call_4_0", "read", '{"a":1}'),
        ToolCall("call_4_1", "x", "{oops"),
    )


@pytest.mark.requirement("L9")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"text": ', ["line 2", "JSON"]),
        ('{"txt": "x"}', ["line 2", "txt"]),
        ('{"delay_s": "soon"}', ["line 2", "delay_s = 'soon'", "float"]),
        ('{"chunks": 0}', ["line 2", "chunks = 0"]),
        ('{"chunks": 20000000}', ["line 2", "chunks = 20000000"]),
        ('{"tool_calls": ' + "[" * 500 + "]" * 500 + "}", ["line 2", "nested deeper"]),
        ('{"error": {"status": 200}}', ["line 2", "error"]),
        ('{"usage": {"tokens": 1}}', ["line 2", "usage"]),
        ('{"when": "("}', ["line 2", "when = '('"]),
        ('{"tool_calls": [{"arguments": {}}]}', ["line 2", "tool_calls", "name"]),
        ("[]", ["line 2"]),
    ],
)
def test_a_wrong_line_is_told_with_file_line_key_and_value(
    tmp_path: Path, line: str, words: list[str]
) -> None:
    path = tmp_path / "demo.jsonl"
    path.write_text(f'{{"text": "fine"}}\n{line}\n')
    with pytest.raises(UsageError) as caught:
        script_from_file(path)
    for word in (str(path), *words):
        assert word in caught.value.message


@pytest.mark.requirement("C21")
async def test_a_line_is_used_up_by_a_recorded_outcome_and_by_nothing_else() -> None:
    script = script_from_lines(
        [{"error": {"status": 503}}, {"text": "late", "delay_s": 30}, {"text": "one", "repeat": True}]
    )
    story = opened(wall_s=60)
    for said in ("error", "silence"):
        story.prepared()
        failed = await ask(script, story.state.models.outcomes, idle_s=0.001)
        assert isinstance(failed, ModelFailure)
        assert ("silent" in failed.failure.message) is (said == "silence")
        story.when(Outcome(story.model_call.key, failed))
        story.due("retry")
    assert story.state.models.outcomes == 2
    story.prepared()
    story.attach()  # the process was killed while the line answered
    assert story.state.models.outcomes == 2
    story.prepared()
    story.due("wall")
    story.when(Outcome(story.model_call.key, ModelCut("I was", Usage(100, 3))))
    assert story.state.models.outcomes == 2


@pytest.mark.requirement("L9")
def test_a_script_that_is_missing_or_empty_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        script_from_file("/nowhere/demo.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(UsageError, match="no line"):
        script_from_file(tmp_path / "empty.jsonl")


@pytest.mark.requirement("C18")
async def test_a_file_and_lines_in_memory_mean_the_same(tmp_path: Path) -> None:
    lines = [{"text": "one", "usage": {"input_tokens": 3}}, {"text": "two\u2028", "repeat": True}]
    path = tmp_path / "demo.jsonl"
    path.write_text("\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines), "utf-8")
    for answered in range(3):
        assert await ask(script_from_file(path), answered) == await ask(script_from_lines(lines), answered)
