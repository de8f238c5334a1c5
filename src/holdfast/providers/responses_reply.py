"""Reads responses of the Responses API, streamed or whole, into parts and usage.

A response is a list of items: reasoning, words, calls. An item counts as the server shows it when it is done; if it
never does, as it grew. Items of the server's own tools are skipped. `responses` writes requests.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.protocol.messages import Finish, ModelReply, Part, Reasoning, Text, ToolCall, Usage
from holdfast.protocol.ports import Delta, OnDelta
from holdfast.providers.errors import BadResponse, cut_short, from_error_object, wrong_shape
from holdfast.providers.objects import Objects, is_json, parse_object
from holdfast.providers.sse import Event, Heard
from holdfast.providers.usage import NOTHING_REPORTED, count, plain, reported

_INCOMPLETE: dict[str, Finish] = {"max_output_tokens": "length", "content_filter": "refusal"}
_GOES_BACK = ("id", "summary", "content", "encrypted_content")
"""The fields of a reasoning item that the service takes back."""

_Grown = Literal["text", "refusal", "thought", "arguments"]
_GROWS: dict[str, _Grown] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "thought",
    "response.reasoning_text.delta": "thought",
    "response.function_call_arguments.delta": "arguments",
}


class _Item:
    """One item as it grows: what it was at first or in the end, and what its deltas added."""

    def __init__(self, shown: dict[str, Any], *, is_done: bool) -> None:
        self.shown = shown
        self.is_done = is_done
        self._grown: dict[_Grown, list[str]] = {"text": [], "refusal": [], "thought": [], "arguments": []}

    def add(self, what: _Grown, piece: str) -> None:
        """Add a delta."""
        self._grown[what].append(piece)

    def end(self, shown: dict[str, Any]) -> None:
        """Take the whole item."""
        self.shown, self.is_done = shown, True

    @property
    def kind(self) -> str:
        return _text(self.shown.get("type"))

    @property
    def text(self) -> str:
        return self._joined("text", _texts(self.shown.get("content"), "output_text", "text"))

    @property
    def refusal(self) -> str:
        return self._joined("refusal", _texts(self.shown.get("content"), "refusal", "refusal"))

    @property
    def thought(self) -> str:
        """Return the summaries of a reasoning item, or its own words, which only open models show."""
        summaries = _texts(self.shown.get("summary"), "summary_text", "text", "\n\n")
        return self._joined(
            "thought", summaries or _texts(self.shown.get("content"), "reasoning_text", "text")
        )

    @property
    def arguments(self) -> str:
        return self._joined("arguments", _text(self.shown.get("arguments")))

    @property
    def size_bytes(self) -> int:
        """Return how much of it came. Asked while it grows, too."""
        return sum(len(text.encode()) for text in (self.text, self.refusal, self.thought, self.arguments))

    def _joined(self, what: _Grown, whole: str) -> str:
        return whole if self.is_done else "".join(self._grown[what])


class ResponseReader:
    """`native.Reader` for the Responses API."""

    def __init__(self, model: str, on_delta: OnDelta) -> None:
        self.reported = NOTHING_REPORTED
        self._model = model
        self._on_delta = on_delta
        self._objects = Objects()
        self._items: dict[int, _Item] = {}
        self._end: dict[str, Any] | None = None
        """The response as its last event shows it."""
        self._said_model = ""
        self._id = ""

    @property
    def is_whole(self) -> bool:
        """See `native.Reader`. Only an event that ends a response ends it."""
        return self._end is not None

    @property
    def received_bytes(self) -> int:
        """See `native.Reader`."""
        return sum(item.size_bytes for item in self._items.values())

    def take(self, event: Event) -> Heard:
        """See `native.Reader`. Skips unknown kinds of events: the service adds some now and then."""
        if event.data == "[DONE]":  # compatible servers end with it
            return Heard.END
        data = self._objects.read(event.data)
        kind = _text(data.get("type")) or event.type
        if (what := _GROWS.get(kind)) is not None:
            self._add(data, what)
            return Heard.SOMETHING
        match kind:
            case "response.output_item.added" | "response.output_item.done":
                self._take_item(data, is_done=kind.endswith("done"))
            case "response.created" | "response.in_progress" | "response.queued":
                self._take_head(_dict(data.get("response")))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._take_end(_response(data), _text(kind).removeprefix("response."))
                return Heard.END
            case "error":
                raise BadResponse(from_error_object(data.get("error") or data, self._model))
        return Heard.SOMETHING if kind.startswith("response.") else Heard.NOTHING

    def take_body(self, body: bytes) -> None:
        """See `native.Reader`."""
        response = parse_object(body)
        self._on_delta = _nobody
        output = response.get("output")
        if not response.get("error") and not isinstance(output, list):
            raise BadResponse(wrong_shape("a response without output", body.decode("utf-8", "replace")))
        self._take_end(response, "completed")

    def reply(self, request_ref: str) -> ModelReply:
        """See `native.Reader`."""
        if self._end is None:
            raise BadResponse(cut_short())
        items = [self._items[index] for index in sorted(self._items)]
        reason = _text(_dict(self._end.get("incomplete_details")).get("reason"))
        finish: Finish = "stop"
        if self._end.get("status") == "incomplete":
            finish = _INCOMPLETE.get(reason, "other")
        if finish == "length" and items and _may_be_half(items[-1]):
            items.pop()
        parts = [part for item in items for part in self._parts(item)]
        kinds = {type(part) for part in parts}
        if finish == "stop" and ToolCall in kinds:
            finish = "tool_calls"
        if finish == "stop" and any(item.refusal and not item.text for item in items):
            finish = "refusal"
        return ModelReply(
            tuple(parts),
            self.reported.usage,
            finish,
            self._said_model,
            request_ref or self._id,
            self.reported.estimated,
        )

    def _add(self, data: dict[str, Any], what: _Grown) -> None:
        index, piece = data.get("output_index"), data.get("delta")
        item = self._items.get(index) if isinstance(index, int) else None
        if item is None or not isinstance(piece, str):
            raise BadResponse(wrong_shape("a delta for an item that has not begun", str(data)))
        item.add(what, piece)
        if piece and what == "text":
            self._on_delta(Delta("text", piece))
        elif piece and what == "thought":
            self._on_delta(Delta("reasoning", piece))

    def _take_item(self, data: dict[str, Any], *, is_done: bool) -> None:
        index, shown = data.get("output_index"), data.get("item")
        if not isinstance(index, int) or not isinstance(shown, dict):
            raise BadResponse(wrong_shape("an item without an index", str(data)))
        known = self._items.get(index)
        if known is None:
            self._items[index] = _Item(shown, is_done=is_done)
        elif is_done:
            known.end(shown)

    def _take_head(self, response: dict[str, Any]) -> None:
        self._said_model = _text(response.get("model")) or self._said_model
        self._id = _text(response.get("id")) or self._id

    def _take_end(self, response: dict[str, Any], ended: str) -> None:
        """Take the whole response. Its output counts only for items that no event showed whole: what a person saw
        stays as it was.
        """
        self._take_head(response)
        self._take_usage(_dict(response.get("usage")))
        status = response.get("status") or ended
        if status in ("failed", "cancelled") or response.get("error"):
            raise BadResponse(
                from_error_object(response.get("error") or {"message": str(status)}, self._model)
            )
        if status in ("queued", "in_progress"):
            raise BadResponse(cut_short(str(status)))
        for index, shown in enumerate(_dicts(response.get("output"))):
            if index not in self._items:
                self._items[index] = _Item(shown, is_done=True)
            elif not self._items[index].is_done:
                self._items[index].end(shown)
        self._end = response

    def _take_usage(self, usage: dict[str, Any]) -> None:
        if not usage:
            return
        details = _dict(usage.get("input_tokens_details"))
        read, written = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
        from_cache = min(plain(details.get("cached_tokens")), read.tokens)
        self.reported = reported(
            Usage(
                input_tokens=read.tokens,
                output_tokens=written.tokens,
                cache_read_tokens=from_cache,
                cache_write_tokens=min(plain(details.get("cache_write_tokens")), read.tokens - from_cache),
                reasoning_tokens=plain(_dict(usage.get("output_tokens_details")).get("reasoning_tokens")),
            ),
            read,
            written,
        )

    def _parts(self, item: _Item) -> list[Part]:
        provider = self._model.partition(":")[0]
        match item.kind:
            case "reasoning":
                payload = sealed(item.shown) if item.is_done else ""
                thought = item.thought
                return [Reasoning(provider, thought, payload)] if thought or payload else []
            case "message":
                words, phase = item.text or item.refusal, item.shown.get("phase")
                marked: list[Part] = [Reasoning(provider, "", _phase(phase))] if phase else []
                return [*marked, Text(words)] if words else []
            case "function_call":
                shown = item.shown
                return [
                    ToolCall(_text(shown.get("call_id")), _text(shown.get("name")), item.arguments or "{}")
                ]
            case _:
                return []


def sealed(shown: dict[str, Any]) -> str:
    """Return what must go back of a reasoning item; empty if nothing could: the service keeps no items for us, and
    finds none by their id alone.
    """
    if not (shown.get("encrypted_content") or shown.get("content")):
        return ""
    return msgspec.json.encode({key: shown[key] for key in _GOES_BACK if shown.get(key) is not None}).decode()


def _phase(phase: object) -> str:
    """Return the mark of the words after it: they are a remark before a call, or the answer."""
    return msgspec.json.encode({"phase": phase}).decode()


def _may_be_half(item: _Item) -> bool:
    """Return whether the output cap may have cut this last item inside a call."""
    is_cut = item.shown.get("status") == "incomplete" or not is_json(item.arguments)
    return item.kind == "function_call" and is_cut


def _response(data: dict[str, Any]) -> dict[str, Any]:
    response = data.get("response")
    if not isinstance(response, dict):
        raise BadResponse(wrong_shape("the end of a response without the response", str(data)))
    return response


def _texts(parts: object, kind: str, key: str, between: str = "") -> str:
    return between.join(_text(part.get(key)) for part in _dicts(parts) if part.get("type") == kind)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _nobody(delta: Delta) -> None:
    """Ignores the deltas of a whole response."""
