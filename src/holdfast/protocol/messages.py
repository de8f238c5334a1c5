"""What is said: messages made of typed parts, the same for every provider.

How a provider writes them on its wire is the provider's business (`ports.Wire`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.protocol.trust import Trust

MediaType = Literal["text/plain", "application/pdf", "image/png", "image/jpeg", "image/gif", "image/webp"]
Origin = Literal["stdin", "file", "tool"]


class Text(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="text"):
    """Words."""

    text: str


class Reasoning(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="kind", tag="reasoning"):
    """A model's thinking: shown to people, and given back to the provider that wrote it, and to no other."""

    provider: str
    text: str = ""
    payload: str = ""
    """What must be sent back unchanged (a signature, an encrypted block): JSON text, opaque to us."""


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="kind", tag="tool_call"):
    """A tool call that a model asks for."""

    ref: str
    """The provider's id of the call. In a record it is empty if the call has none of its own (`core.refs`), so the
    runtime never relies on it."""
    name: str
    arguments: str
    """The arguments as the model wrote them: JSON text, possibly malformed."""
    call_id: str = ""
    """Our id, `t12.c3`: given by the core when the response is recorded."""
    is_masked: bool = False
    """`arguments` is a copy in which a secret, or what looks like one, is masked: it is never run."""


class ToolResult(
    msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="kind", tag="tool_result"
):
    """What a tool call returned, as the model reads it."""

    call_id: str
    ref: str
    name: str
    text: str
    is_error: bool = False
    origin: str = ""
    """Where the text comes from: the tool, and what it read where that says more."""
    trust: Trust = "data"


class Media(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="media"):
    """An image or a PDF, as a request carries it. Records have an `Attachment` in its place."""

    name: str
    media_type: MediaType
    data: str
    """The content, in base64."""


Part = Text | Reasoning | ToolCall | ToolResult | Media


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What comes with the words of a person or with the result of a tool, as a part of its own. Its content is a
    blob.
    """

    origin: Origin
    name: str
    """The path, as the person wrote it, or the tool and its call; empty for stdin."""
    media_type: MediaType
    size_bytes: int
    """The size of the original."""
    blob: str
    """The SHA-256 of the content. A text is redacted before it is stored."""
    weight_bytes: int = 0
    """How many bytes of text an image or a PDF counts as; 0 for a text, which counts in full."""
    trust: Trust = "data"

    @property
    def head(self) -> str:
        """The line above the attachment in a request."""
        name = f" {self.name}," if self.name else ""
        return f"[{self.origin}:{name} {self.size_bytes} bytes]"


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One turn of speech: a user's words, a model's response, or the results of all calls of a turn."""

    role: Literal["user", "assistant", "tool"]
    parts: tuple[Part, ...]
    trust: Trust = "untrusted"
    """That of its least trusted part."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens of a model call, or of many: usages add up."""

    input_tokens: int = 0
    """Everything that was read, cached parts included."""
    output_tokens: int = 0
    """Everything that was written, reasoning included."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """The part of what was written to the cache that stays there for an hour, at a price of its own."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cache_write_1h_tokens + other.cache_write_1h_tokens,
        )

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


UsageSide = Literal["input", "output"]
Estimated = tuple[UsageSide, ...]
"""The sides of a usage that no provider counted, or not plainly."""

Finish = Literal["stop", "tool_calls", "length", "refusal", "cancelled", "other"]


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a check of an answer against the schema of its run found."""

    schema: str
    """The name of the settings with the schema (`settings.Output`)."""
    problem: str = ""
    """Where and why the answer does not match it; empty if it does."""


class ModelReply(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A whole response of a model. A half-received one never becomes a ModelReply with calls in it."""

    parts: tuple[Part, ...]
    usage: Usage
    """What the provider reported."""
    finish: Finish = "stop"
    model: str = ""
    """The model that the provider says it used."""
    request_ref: str = ""
    """The provider's id of the request, for its support."""
    estimated: Estimated = ()
    """The sides of the usage that the provider did not report as plain numbers. For each, the larger of the reported
    number and an estimate counts."""
    received_bytes: int = 0
    """How much came, where that is more than the parts have: half a tool call, say."""
    quiet_s: float = 0.0
    """How long the service wants no further calls: a limit is used up."""
    verdict: Verdict | None = None
    """Whether the answer matches the schema of its run. The runtime adds it; no provider does."""
    workspace: str = ""
    """The state of the workspace, looked at meanwhile. The runtime adds it too."""
    is_masked: bool = False
    """Whether the runtime masked a secret in the words of a side call."""


def text_of(parts: tuple[Part, ...]) -> str:
    """The words among the parts, joined."""
    return "".join([part.text for part in parts if type(part) is Text])


def calls_of(parts: tuple[Part, ...]) -> tuple[ToolCall, ...]:
    """The calls among the parts, in order."""
    return tuple([part for part in parts if type(part) is ToolCall])
