"""The journal gives the exact bytes of every request again, or the reader learns that it cannot."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from holdfast.context.conversation import Conversation
from holdfast.context.requests import body_of, fragment, requests
from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import json_text
from holdfast.protocol.events import (
    ContextCompacted,
    Event,
    MessageReceived,
    ModelCallCut,
    ModelCallStarted,
    NoteAdded,
    Record,
    Responded,
    RunLanding,
    ToolCallAbandoned,
    ToolCallFinished,
    ToolCallRefused,
    Trigger,
    ViewPart,
)
from holdfast.protocol.failures import Failure
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Text, ToolCall, Usage
from holdfast.protocol.request import Fresh, Request
from holdfast.protocol.tools import CallResult
from holdfast.providers.openai import Dialect, OpenAIWire

BASE, TAIL = b'{"messages":[', "]}"
ODD = 'quotes " and \\ and\nlines, \u2028, \x01, 日本語, 🙂 '


def recorded(*events: Event) -> list[Record]:
    return [Record("S", seq, seq, 1, Trigger("command", "c"), event) for seq, event in enumerate(events, 1)]


def started(body: bytes, **changes: Any) -> ModelCallStarted:
    values: dict[str, Any] = {
        "wire": "openai", "base": "b", "keep": 0, "tail": TAIL, "sha256": hashlib.sha256(body).hexdigest(),
        "size_bytes": len(body), "expected_tokens": 1, "output_cap_tokens": 1, "reserved_microusd": 0,
        "reserved_tokens": 0,
    }  # fmt: skip
    return ModelCallStarted("m1", 1, 1, 1, "openai:m", Request(**values | changes))


def fresh(*piece: str | int) -> Fresh:
    return Fresh("u", 1, piece)


def body(*fragments: str) -> bytes:
    return BASE + ",".join(fragments).encode() + TAIL.encode()


@pytest.mark.requirement("L8")
def test_every_attempt_is_an_edit_of_the_one_before() -> None:
    sent = [body("a", "b", "c"), body("a", "b", "c"), body("a", "b", "c", "d"), body("a", "e"), body("c")]
    records = recorded(
        started(sent[0], rest=(fresh("a"), fresh("b"), fresh("c"))),
        started(sent[1], keep=3),
        started(sent[2], keep=3, rest=(fresh("d"),)),
        started(sent[3], keep=1, rest=(fresh("e"),)),
        started(sent[4], rest=(fresh("c"),)),
    )
    told = list(requests(records, {}))
    assert [one.number for one in told] == [1, 2, 3, 4, 5]
    assert [body_of(one, BASE) for one in told] == sent


@pytest.mark.requirement("L8")
@pytest.mark.parametrize(
    "event",
    [
        MessageReceived(ODD),
        NoteAdded("budget", ODD),
        RunLanding("turns", ODD),
        ModelCallCut("t1", ODD, Usage(), 0),
        ToolCallFinished("t1.c1", CallResult("ok", ODD)),
        ToolCallRefused("t1.c1", "shell", Failure("policy_denied", ODD)),
        ToolCallAbandoned("t1.c1", ODD),
        ContextCompacted("full", (), 1, (ViewPart("head", ODD),), "data", 1, 1, 1, 1),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_quoted_text_is_escaped_as_it_was_sent(event: Event) -> None:
    expected = BASE + b'{"content":"' + json_text(ODD) + b'"}' + TAIL.encode()
    records = recorded(event, started(expected, rest=(fresh('{"content":"', 1, '"}'),)))
    (sent,) = requests(records, {})
    assert body_of(sent, BASE) == expected
    assert msgspec.json.decode(body_of(sent, BASE))["messages"] == [{"content": ODD}]


@pytest.mark.requirement("L8")
def test_what_a_conversation_renders_is_what_is_read_back() -> None:
    wire, conversation = OpenAIWire("openai", Dialect()), Conversation()
    base = wire.base(ModelFacts("openai", "m"), "be brief", ())
    records: list[Record] = []
    rendered: list[bytes] = []

    def record(event: Event) -> None:
        records.append(Record("S", len(records) + 1, 0, 1, Trigger("command", "c"), event))
        conversation.add(records[-1])

    record(MessageReceived(f"mend it: {ODD * 4}"))

    for turn in range(1, 13):
        if turn == 6:
            part = ViewPart("head", f"Some are left out. {ODD * 8}")
            record(ContextCompacted("full", ((3, 10),), 11, (part,), "data", 1, 1, 1, 1))
        edit = conversation.render(wire, base)
        rendered.append(edit.body(TAIL.encode()))
        record(started(rendered[-1], keep=edit.keep, rest=edit.rest))
        asked = ToolCall(f"c{turn}", "shell", '{"command":"ls"}', f"t{turn}.c1")
        record(Responded("t", (Text(f"turn {turn}"), asked), Usage(), 0, "tool_calls"))
        record(ToolCallFinished(f"t{turn}.c1", CallResult("ok", f"{turn}: {ODD * 8}")))
    assert [sent.started.request.keep for sent in requests(records, {})][4:7] == [7, 0, 6]
    assert [body_of(sent, base) for sent in requests(records, {})] == rendered


@pytest.mark.requirement("L7")
def test_bytes_that_do_not_have_the_recorded_hash_are_not_shown() -> None:
    (sent,) = requests(recorded(started(body("other"), rest=(fresh("a"),))), {})
    with pytest.raises(StorageCorrupt, match="request 1"):
        body_of(sent, BASE)


@pytest.mark.requirement("L7")
@pytest.mark.parametrize(
    "changes",
    [
        {"keep": 1},
        {"rest": (fresh("a", 9),)},
    ],
)
def test_a_request_that_refers_to_what_is_not_there_is_damage(changes: dict[str, Any]) -> None:
    with pytest.raises(StorageCorrupt) as caught:
        list(requests(recorded(started(b"", **changes)), {}))
    assert "fsck" in caught.value.hint


def test_a_piece_without_quotes_is_its_own_text() -> None:
    assert fragment(('{"a":', '"ü"}'), {}) == '{"a":"ü"}'.encode()
