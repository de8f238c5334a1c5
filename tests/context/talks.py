"""A conversation in the making, told from the outside: records go in, requests come out and are recorded."""

from __future__ import annotations

import hashlib

from holdfast.context.conversation import Conversation, Edit, rewritten
from holdfast.context.requests import Sent, body_of, requests
from holdfast.core import compaction
from holdfast.core.compaction import Compaction
from holdfast.core.state import Run, State
from holdfast.protocol import events as e
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Part, Reasoning, Text, ToolCall, Usage
from holdfast.protocol.ports import Wire
from holdfast.protocol.request import Request
from holdfast.protocol.settings import settings_with
from holdfast.protocol.tools import CallResult
from holdfast.providers.anthropic import AnthropicWire
from holdfast.providers.openai import Dialect, OpenAIWire
from holdfast.providers.responses import ResponsesWire
from holdfast.runtime.compacting import compacted

OPENAI = OpenAIWire("openai", Dialect())
ANTHROPIC = AnthropicWire("anthropic", "blocks")
RESPONSES = ResponsesWire("openai-responses")
FACTS = ModelFacts("openai", "m")


BOUNDLESS = 1 << 62
"""A window that takes everything."""


class Talk:
    """The records of a session, its live conversation, and every body that was sent."""

    def __init__(self, wire: Wire = OPENAI) -> None:
        self.wire = wire
        self.records: list[e.Record] = []
        self.conversation = Conversation()
        self.sent: list[bytes] = []
        self.edits: list[Edit] = []
        self._turn = 0
        self.goal_seq = 0
        """Where the open run begins."""
        self.compaction = Compaction()

    @property
    def base(self) -> bytes:
        return self.wire.base(FACTS, "Be good.", ())

    def note(self, *events: e.Event) -> None:
        for event in events:
            record = e.Record("S", len(self.records) + 1, 1, 1, e.Trigger("command", "c"), event)
            self.records.append(record)
            self.conversation.add(record)
            if isinstance(event, e.ContextCompacted):
                self.compaction = compaction.after(self.compaction, record.seq, self._turn, event)

    def words(self, text: str) -> None:
        self.note(e.MessageReceived(text))

    def render(self, conversation: Conversation | None = None) -> Edit:
        """The next request."""
        return (conversation or self.conversation).render(self.wire, self.base)

    def fit(self, most_bytes: int) -> None:
        """Compact the view if the window does not take it, so that it is filled to 60 %."""
        if len(self.base) + self.conversation.size_bytes(self.wire) <= most_bytes:
            return
        run, settings = Run(1, started_ms=0, goal_seq=self.goal_seq), settings_with(FACTS, "/w")
        state = State(seq=len(self.records), run=run, settings=settings, compaction=self.compaction)
        found = compacted(
            "full",
            state,
            self.conversation,
            self.wire,
            int(most_bytes * 0.6) - len(self.base),
            most_bytes - len(self.base),
            (),
        )
        if found is not None:
            self.note(found)

    def send(self, most_bytes: int = BOUNDLESS) -> bytes:
        """Render, send, and record the intent."""
        self.fit(most_bytes)
        edit = self.render()
        tail = self.wire.tail(FACTS, 100, is_streaming=False, is_last_pass=False)
        edit.hasher.update(tail)
        body = edit.body(tail)
        self._turn += 1
        self.note(
            e.ModelCallStarted(
                key=f"m{self._turn}", epoch=1, turn=self._turn, attempt=1, model="openai:m",
                request=Request(
                    wire=self.wire.name, base=hashlib.sha256(self.base).hexdigest(), keep=edit.keep,
                    tail=tail.decode(), sha256=edit.hasher.hexdigest(), size_bytes=len(body),
                    expected_tokens=1, output_cap_tokens=1, reserved_microusd=0, reserved_tokens=0,
                    kinds=edit.kinds, rest=edit.rest, points=edit.points,
                ),
            )
        )  # fmt: skip
        self.sent.append(body)
        self.edits.append(edit)
        return body

    def respond(self, *parts: Part) -> None:
        """The response, with our ids on its calls."""
        named: list[Part] = []
        for part in parts:
            if isinstance(part, ToolCall):
                count = sum(isinstance(each, ToolCall) for each in named) + 1
                part = ToolCall(part.ref, part.name, part.arguments, f"t{self._turn}.c{count}")
            named.append(part)
        self.note(e.Responded(f"m{self._turn}", tuple(named), Usage(1, 1), 0, "stop"))

    def result(self, number: int, text: str) -> None:
        """What the call of that number in the last response came to."""
        self.note(e.ToolCallFinished(f"t{self._turn}.c{number}", CallResult("ok", text, trust="data")))

    def turn(self, result: str, words: str = "I look.", most_bytes: int = BOUNDLESS) -> bytes:
        """A request, a response with one call, its result."""
        body = self.send(most_bytes)
        self.respond(Text(words), call())
        self.result(1, result)
        return body

    def reload(self) -> Conversation:
        """The conversation as another process finds it in the journal."""
        found = Conversation()
        for record in self.records:
            found.add(record)
        return found

    def switch(self, wire: Wire) -> None:
        """Another provider goes on, as the engine has it written anew."""
        self.wire = wire
        self.conversation = rewritten(self.records, last_sent=self.conversation.last_sent())

    def told(self) -> list[Sent]:
        return list(requests(self.records, {}))

    def bodies(self) -> list[bytes]:
        """Every body as the journal has it, each proven by its hash."""
        bases = {
            hashlib.sha256(base).hexdigest(): base
            for base in (wire.base(FACTS, "Be good.", ()) for wire in (OPENAI, RESPONSES, ANTHROPIC))
        }
        return [body_of(sent, bases[sent.started.request.base]) for sent in self.told()]


def call(name: str = "grep", arguments: str = "{}") -> ToolCall:
    return ToolCall("ref", name, arguments)


def thought(text: str) -> Reasoning:
    return Reasoning("anthropic", text, '{"signature":"s"}')


def sealed(text: str) -> Reasoning:
    return Reasoning("openai-responses", text, '{"summary":[],"encrypted_content":"c2VhbGVk"}')
