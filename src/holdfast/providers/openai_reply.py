"""Reads responses of Chat Completions, streamed or whole. The one place that knows how compatible servers differ.

A whole response is read as a stream of one chunk, so there is one set of rules.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.protocol.messages import Finish, ModelReply, Part, Reasoning, Text, ToolCall, Usage
from holdfast.protocol.ports import Delta, OnDelta
from holdfast.providers.errors import BadResponse, cut_short, from_error_object, wrong_shape
from holdfast.providers.objects import Growing, Objects, is_json, parse_object
from holdfast.providers.sse import Event, Heard
from holdfast.providers.usage import NOTHING_REPORTED, count, plain, reported

_FINISH: dict[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
}

_REASONING_KEYS = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
_JOINED_KEYS = ("text", "summary", "data")
"""The fields of a `reasoning_details` entry that arrive in pieces."""


class _Call:
    """One tool call as it grows."""

    def __init__(self) -> None:
        self.ref = ""
        self.name = ""
        self.arguments = Growing()


class ChatReader:
    """`native.Reader` for Chat Completions."""

    def __init__(self, model: str, on_delta: OnDelta) -> None:
        self.reported = NOTHING_REPORTED
        self._model = model
        self._on_delta = on_delta
        self._objects = Objects()
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._calls: list[_Call] = []
        self._call_at: dict[int, _Call] = {}
        self._call_of: dict[str, _Call] = {}
        """The newest call of each id that the server gave."""
        self._finish = ""
        self._is_done = False
        self._said_model = ""
        self._id = ""

    @property
    def is_whole(self) -> bool:
        """See `native.Reader`. After a finish reason, usage or an error may still come."""
        return self._is_done or bool(self._finish and self.reported is not NOTHING_REPORTED)

    @property
    def received_bytes(self) -> int:
        """See `native.Reader`."""
        texts = (
            *self._text,
            *self._refusal,
            *self._reasoning,
            *(call.arguments.text for call in self._calls),
        )
        return sum(len(text.encode()) for text in texts)

    def take(self, event: Event) -> Heard:
        """See `native.Reader`."""
        if event.data == "[DONE]":
            self._is_done = True
            return Heard.END
        self._take_chunk(self._objects.read(event.data), is_error=event.type == "error")
        return Heard.SOMETHING

    def take_body(self, body: bytes) -> None:
        """See `native.Reader`."""
        chunk = parse_object(body)
        self._on_delta = _nobody
        self._take_chunk(chunk, is_error=False)
        if dict not in [type(choice.get("message")) for choice in _dicts(chunk.get("choices"))]:
            raise BadResponse(wrong_shape("a response without a message", body.decode("utf-8", "replace")))
        self._is_done = True

    def reply(self, request_ref: str) -> ModelReply:
        """See `native.Reader`."""
        # Some servers leave out the finish reason, some `[DONE]`. Without both, the response was cut.
        if not (self._finish or self._is_done):
            raise BadResponse(cut_short())
        calls = self._whole_calls()
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        refusal = "".join(self._refusal)
        parts: list[Part] = []
        payload = _payload(self._details)
        if reasoning or payload:
            parts.append(Reasoning(self._model.partition(":")[0], reasoning, payload))
        if text or refusal:
            parts.append(Text(text or refusal))
        parts += calls
        return ModelReply(
            tuple(parts),
            self.reported.usage,
            self._finished(has_calls=bool(calls), is_refused=bool(refusal and not text)),
            self._said_model,
            request_ref or self._id,
            self.reported.estimated,
        )

    def _take_chunk(self, chunk: dict[str, Any], *, is_error: bool) -> None:
        self._take_usage(chunk)
        if is_error or chunk.get("error"):
            raise BadResponse(from_error_object(chunk.get("error") or chunk, self._model))
        self._said_model = self._said_model or _text(chunk.get("model"))
        self._id = self._id or _text(chunk.get("id"))
        for choice in _dicts(chunk.get("choices")):
            if choice.get("index") in (0, None):
                self._take_choice(choice)

    def _take_choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, dict):
            raise BadResponse(wrong_shape("a message that is not an object", str(choice)))
        if content := delta.get("content"):
            self._take_content(content)
        if refusal := delta.get("refusal"):
            self._refusal.append(_text(refusal))
        if not _REASONING_KEYS.isdisjoint(delta):
            self._take_reasoning(delta)
        if calls := delta.get("tool_calls"):
            for call in _dicts(calls):
                self._take_call(call)
        if finish := choice.get("finish_reason"):
            if finish == "error":
                raise BadResponse(from_error_object(choice, self._model))
            self._finish = _text(finish)

    def _take_content(self, content: object) -> None:
        """Return words from a text, or from a list of typed pieces (Mistral's reasoning models)."""
        if isinstance(content, str):
            self._say(content)
            return
        if not isinstance(content, list):
            raise BadResponse(wrong_shape("content that is not text", str(content)))
        for piece in _dicts(content):
            if piece.get("type") == "thinking":
                self._think("".join(_text(thought.get("text")) for thought in _dicts(piece.get("thinking"))))
            else:
                self._say(_text(piece.get("text")))

    def _take_reasoning(self, delta: dict[str, Any]) -> None:
        details = _dicts(delta.get("reasoning_details"))
        self._details += details
        self._think(
            _text(delta.get("reasoning_content"))
            or _text(delta.get("reasoning"))
            or "".join(_text(entry.get("text")) or _text(entry.get("summary")) for entry in details)
        )

    def _take_call(self, piece: dict[str, Any]) -> None:
        function = piece.get("function")
        if not isinstance(function, dict):
            raise BadResponse(wrong_shape("a tool call without a function", str(piece)))
        name, arguments = _text(function.get("name")), function.get("arguments")
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        arguments = _text(arguments)
        ref = _text(piece.get("id"))
        call = self._call_for(piece.get("index"), ref, name, arguments)
        call.ref = call.ref or ref
        self._call_of[call.ref] = call
        call.name = call.name or name
        call.arguments.add(arguments)

    def _call_for(self, index: object, ref: str, name: str, arguments: str) -> _Call:
        """Return the call that a piece continues, or a new one.

        Calls have an index. But some servers send no index, or 0 for every call, or the same id twice. Then a piece
        with a function name begins a call if its id is another one, or if the call so far is whole.
        """
        known = self._call_at.get(index) if isinstance(index, int) else self._last_call(ref)
        if known is not None and name:
            is_other = bool(ref and known.ref and ref != known.ref)
            if is_other or self._is_over(known, name, arguments):
                known = None
        if known is None:
            known = _Call()
            self._calls.append(known)
        if isinstance(index, int):
            self._call_at[index] = known
        return known

    def _is_over(self, known: _Call, name: str, arguments: str) -> bool:
        if arguments:
            return known.arguments.is_whole()
        return name != known.name and (not known.arguments.chars or known.arguments.is_whole())

    def _last_call(self, ref: str) -> _Call | None:
        """Return the newest call with that id; for a piece without an id, or after a call without one, the newest of
        all.
        """
        newest = self._calls[-1] if self._calls else None
        return newest if newest is None or not (ref and newest.ref) else self._call_of.get(ref)

    def _take_usage(self, chunk: dict[str, Any]) -> None:
        usage = chunk.get("usage")
        if not usage and "x_groq" in chunk:
            usage = _dict(chunk["x_groq"]).get("usage")
        if not isinstance(usage, dict):
            return
        details = _dict(usage.get("prompt_tokens_details"))
        prompt, completion = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
        total = count(usage.get("total_tokens"))
        read = prompt.tokens or max(total.tokens - completion.tokens, 0)
        # Gemini and xAI do not count hidden reasoning in the completion, but in the total.
        written = max(completion.tokens, total.tokens - read)
        cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
        from_cache = min(plain(cached or usage.get("num_cached_tokens")), read)
        self.reported = reported(
            Usage(
                input_tokens=read,
                output_tokens=written,
                cache_read_tokens=from_cache,
                cache_write_tokens=min(plain(details.get("cache_write_tokens")), read - from_cache),
                reasoning_tokens=plain(_dict(usage.get("completion_tokens_details")).get("reasoning_tokens")),
            ),
            prompt,
            completion,
        )

    def _whole_calls(self) -> list[ToolCall]:
        """Return the calls that are complete. If the output cap or the end of the stream may have cut the last one,
        only those with whole arguments.
        """
        calls = [ToolCall(call.ref, call.name, call.arguments.text or "{}") for call in self._calls]
        if _FINISH.get(self._finish) == "length":
            return [
                call
                for call, grown in zip(calls, self._calls, strict=True)
                if call.name and is_json(grown.arguments.text)
            ]
        if not self._finish and any(not is_json(call.arguments) for call in calls):
            raise BadResponse(cut_short())
        return calls

    def _finished(self, *, has_calls: bool, is_refused: bool) -> Finish:
        finish = _FINISH.get(self._finish, "other") if self._finish else "stop"
        if finish == "stop" and is_refused:
            return "refusal"
        return "tool_calls" if has_calls and finish == "stop" else finish

    def _say(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._on_delta(Delta("text", text))

    def _think(self, text: str) -> None:
        if text:
            self._reasoning.append(text)
            self._on_delta(Delta("reasoning", text))


def _payload(details: list[dict[str, Any]]) -> str:
    """Return the reasoning entries to send back, with their pieces joined; empty if none is signed or encrypted,
    because plain reasoning need not be sent back.
    """
    if not any(entry.get("signature") or entry.get("data") for entry in details):
        return ""
    joined: list[dict[str, Any]] = []
    pieces: list[dict[str, list[str]]] = []
    for entry in details:
        last = joined[-1] if joined else {}
        if (last.get("type"), last.get("index")) != (entry.get("type"), entry.get("index")):
            joined.append({})
            pieces.append({})
        for key, value in entry.items():
            if key in _JOINED_KEYS and isinstance(value, str):
                pieces[-1].setdefault(key, []).append(value)
            if value is not None or key not in joined[-1]:
                joined[-1][key] = value
    whole = [
        entry | {key: "".join(texts) for key, texts in said.items()}
        for entry, said in zip(joined, pieces, strict=True)
    ]
    return msgspec.json.encode(whole).decode()


# --- values of decoded JSON, which are of exactly these types ---------------------------------------


def _text(value: object) -> str:
    return value if type(value) is str else ""


def _dict(value: object) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if type(entry) is dict] if type(value) is list else []


def _nobody(delta: Delta) -> None:
    """Ignores the deltas of a whole response."""
