"""What every `Provider` must do, as checks for any test framework: run each of `CHECKS`.

A check says what the server must answer; `Prepare` sets up a provider whose server does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from holdfast.protocol.failures import FailureCode
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
from holdfast.protocol.ports import Delta, ModelAttempt, Provider, Wire
from holdfast.protocol.tools import ToolSpec
from holdfast.testing.clock import never_over
from holdfast.testing.model_replies import Reply, ReplyCall

LONG_S = 600.0
"""Longer than any check waits."""

QUESTION = Message("user", (Text("What is the capital of France? “é”"),))


class Subject(Protocol):
    """A provider whose server answers as a check wants."""

    provider: Provider
    facts: ModelFacts

    async def until_asked(self) -> None:
        """Return when the server has a request, or would have one."""
        ...

    async def until_left(self) -> None:
        """Return when the server saw that the connection of an unfinished reply was closed."""
        ...


Prepare = Callable[[Sequence[Reply]], AbstractAsyncContextManager[Subject]]
Check = Callable[[Prepare], Awaitable[None]]


def written_request(
    wire: Wire,
    facts: ModelFacts,
    messages: Sequence[Message],
    *,
    system: str = "",
    tools: Sequence[ToolSpec] = (),
    is_streaming: bool = True,
    is_last_pass: bool = False,
) -> bytes:
    """Return the whole body, assembled as the runtime does it."""
    fragments = [fragment for message in messages for fragment in wire.message(message)]
    tail = wire.tail(facts, 1_000, is_streaming=is_streaming, is_last_pass=is_last_pass)
    return wire.base(facts, system, tools) + b",".join(fragments) + tail


async def attempt(
    subject: Subject,
    *,
    is_streaming: bool = True,
    idle_s: float = LONG_S,
    outcomes: int = 0,
    on_delta: Callable[[Delta], None] = lambda delta: None,
    on_cut: Callable[[ModelCut], None] = lambda cut: None,
) -> ModelReply | ModelFailure:
    """Make one call with a short conversation."""
    body = written_request(subject.provider.wire, subject.facts, [QUESTION], is_streaming=is_streaming)
    return await subject.provider.respond(
        ModelAttempt(
            subject.facts,
            body,
            is_streaming=is_streaming,
            idle_s=idle_s,
            outcomes=outcomes,
            on_delta=on_delta,
            on_cut=on_cut,
            check=never_over,
        )
    )


async def says_the_text_and_shows_it_while_it_streams(prepare: Prepare) -> None:
    """The deltas of a stream add up to the text. A whole response has none."""
    text, usage = "Paris, “naturellement” 🎈", Usage(input_tokens=12, output_tokens=7)
    for is_streaming in (True, False):
        shown: list[Delta] = []
        async with prepare([Reply(text=text, pieces=5, usage=usage)]) as subject:
            reply = await attempt(subject, is_streaming=is_streaming, on_delta=shown.append)
        assert isinstance(reply, ModelReply), reply
        assert text_of(reply.parts) == text
        assert (reply.usage, reply.estimated, reply.finish) == (usage, (), "stop")
        assert "".join(delta.text for delta in shown) == (text if is_streaming else "")


async def asks_for_parallel_calls_in_order(prepare: Prepare) -> None:
    """Names, arguments and order stay the same, even if arguments are not JSON."""
    calls = (
        ReplyCall("read_file", {"path": "a/ü.txt"}),
        ReplyCall("read_file", {"path": "b", "limit": 3}),
        ReplyCall("list_dir"),
    )
    for is_streaming in (True, False):
        async with prepare([Reply(text="Let me look.", tool_calls=calls)]) as subject:
            reply = await attempt(subject, is_streaming=is_streaming)
        assert isinstance(reply, ModelReply), reply
        asked = [(call.name, msgspec.json.decode(call.arguments)) for call in calls_of(reply.parts)]
        assert asked == [(call.name, call.arguments) for call in calls]
        assert (text_of(reply.parts), reply.finish) == ("Let me look.", "tool_calls")
        refs = [call.ref for call in calls_of(reply.parts)]
        assert len(set(refs)) == len(refs)


async def says_that_the_usage_is_not_reported(prepare: Prepare) -> None:
    """Without a report, the runtime must estimate both numbers of the usage."""
    async with prepare([Reply(text="Paris", usage=None)]) as subject:
        reply = await attempt(subject)
    assert isinstance(reply, ModelReply), reply
    assert (reply.usage, reply.estimated) == (Usage(), ("input", "output"))


async def turns_a_status_into_a_class_of_failure(prepare: Prepare) -> None:
    """Key, limits, transient and permanent faults are distinguished. Retry-After is kept."""
    classes: dict[int, FailureCode] = {
        401: "provider_refused",
        402: "provider_refused",
        404: "provider_fatal",
        400: "provider_fatal",
        429: "rate_limited",
        500: "provider_transient",
        503: "provider_transient",
        529: "provider_transient",
    }
    for status, code in classes.items():
        async with prepare([Reply(status=status, headers={"retry-after": "7"})]) as subject:
            result = await attempt(subject)
        assert isinstance(result, ModelFailure), (status, result)
        assert result.failure.code == code, (status, result)
        if status == 429:
            assert result.failure.retry_after_s == 7.0


async def counts_silence_as_a_passing_failure(prepare: Prepare) -> None:
    """After `idle_s` without a byte the attempt ends."""
    async with prepare([Reply(text="late", delay_s=LONG_S)]) as subject:
        result = await attempt(subject, idle_s=0.05)
    assert isinstance(result, ModelFailure), result
    assert result.failure.code == "provider_transient"


async def lets_go_when_it_is_cancelled(prepare: Prepare) -> None:
    """A cancelled call ends at once, with its connection: long before its response would have come."""
    async with prepare([Reply(text="late", delay_s=LONG_S), Reply(text="again")]) as subject:
        async with asyncio.TaskGroup() as group:
            call = group.create_task(attempt(subject))
            await subject.until_asked()
            call.cancel()
        async with asyncio.timeout(LONG_S / 10):
            await subject.until_left()
        reply = await attempt(subject, outcomes=1)
    assert isinstance(reply, ModelReply), reply
    assert text_of(reply.parts) == "again"


async def writes_any_recorded_conversation_as_json(prepare: Prepare) -> None:
    """Every message can be encoded, also one with malformed arguments, invented names, repeated or missing ids, or an
    empty response. The same message always has the same bytes.
    """
    calls = (
        ToolCall("same", "read file!", '{"path": "a', "t1.c0"),
        ToolCall("same", "list_dir", "[1]", "t1.c1"),
        ToolCall("", "list_dir", "", "t1.c2"),
    )
    results = tuple(ToolResult(c.call_id, c.ref, c.name, 'no "such" file\n', is_error=True) for c in calls)
    messages = [QUESTION, Message("assistant", calls), Message("tool", results), Message("assistant", ())]
    tool = ToolSpec("list_dir", "Lists.", {"type": "object", "properties": {}})
    async with prepare([Reply(text="x")]) as subject:
        wire, facts = subject.provider.wire, subject.facts
        for system, tools in (("", ()), ("Be brief.", (tool,))):
            body = written_request(wire, facts, messages, system=system, tools=tools)
            assert isinstance(msgspec.json.decode(body), dict)
            assert body == written_request(wire, facts, messages, system=system, tools=tools)


CHECKS: tuple[Check, ...] = (
    says_the_text_and_shows_it_while_it_streams,
    asks_for_parallel_calls_in_order,
    says_that_the_usage_is_not_reported,
    turns_a_status_into_a_class_of_failure,
    counts_silence_as_a_passing_failure,
    lets_go_when_it_is_cancelled,
    writes_any_recorded_conversation_as_json,
)
"""All checks."""
