"""Reads calls between special tokens: DeepSeek, Kimi, Mistral, Harmony, Gemma, PLaMo and their relatives."""

from __future__ import annotations

import html
import re
from typing import Any

from holdfast.providers.text_blocks import (
    MAX_NAME_CHARS,
    Block,
    Broken,
    Cut,
    NoCall,
    RawCall,
    Reader,
    calls_of,
    expect,
    json_at,
    name_in,
    object_at,
    refuse_depth,
    skip_space,
    until,
    value_of,
)

# --- DeepSeek ------------------------------------------------------------------------------------

_SEP, _CALL_END = "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"


def deepseek(text: str, at: int) -> Block:
    """Read `function<sep>NAME`, fenced JSON; or `NAME<sep>JSON`. The opener is `<｜tool▁call▁begin｜>`."""
    end = until(text, at, _SEP)
    first, at = text[at:end].strip(), end + len(_SEP)
    begin = skip_space(text, at)
    if text.startswith("{", begin):
        arguments, at = object_at(text, begin)
        return Block(expect(text, at, _CALL_END), (RawCall(name_in(first, end), arguments),))
    if first != "function":
        if begin == len(text):
            raise Cut
        raise Broken(begin, "the call is not a function")
    end = until(text, at, "\n")
    name = name_in(text[at:end], at)
    at = expect(text, end, "```json")
    arguments, at = object_at(text, at)
    return Block(expect(text, expect(text, at, "```"), _CALL_END), (RawCall(name, arguments),))


# --- Kimi ----------------------------------------------------------------------------------------

_KIMI_ARGUMENTS, _KIMI_END = "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_KIMI_ID = re.compile(r"\s*(?:functions\.)?(\S+?):\d+\s*")
_K3_SEP, _K3_OPEN, _K3_CLOSE = "<|sep|>", "<|open|>", "<|close|>"
_K3_ATTRIBUTE = re.compile(r'\s*(\w+)="([^"]*)"')


def kimi(text: str, at: int) -> Block:
    """Read `functions.NAME:0<begin>JSON`. The opener is `<|tool_call_begin|>`."""
    end = until(text, at, _KIMI_ARGUMENTS)
    found = _KIMI_ID.fullmatch(text[at:end]) if end - at < 300 else None
    if found is None:
        raise Broken(end, "the call has no name with a number")
    name = name_in(found[1], at)
    arguments, at = object_at(text, end + len(_KIMI_ARGUMENTS))
    return Block(expect(text, at, _KIMI_END), (RawCall(name, arguments),))


def kimi3(text: str, at: int) -> Block:
    """Read `call tool="NAME"` and its arguments. The opener is `<|open|>call `."""
    end = until(text, at, _K3_SEP)
    name = name_in(_k3_attributes(text[at:end]).get("tool", ""), end)
    at = end + len(_K3_SEP)
    values: dict[str, Any] = {}
    strings: set[str] = set()
    while True:
        at = expect(text, at, _K3_OPEN, _K3_CLOSE)
        if text.startswith("call", at) and text.startswith(_K3_CLOSE, at - len(_K3_CLOSE)):
            at = expect(text, at + len("call"), _K3_SEP)
            loose = frozenset(values) - strings
            return Block(at, (RawCall(name, values, loose, frozenset(strings)),))
        end = until(text, expect(text, at, "argument "), _K3_SEP)
        attributes = _k3_attributes(text[at:end])
        key = attributes.get("key", "")
        if not key or key in values:
            raise Broken(end, "an argument has no name of its own")
        at = end + len(_K3_SEP)
        end = until(text, at, f"{_K3_CLOSE}argument{_K3_SEP}")
        values[key], at = text[at:end], end + len(f"{_K3_CLOSE}argument{_K3_SEP}")
        if attributes.get("type") == "string":
            strings.add(key)


def _k3_attributes(text: str) -> dict[str, str]:
    return {found[1]: html.unescape(found[2]) for found in _K3_ATTRIBUTE.finditer(text[:1000])}


# --- Mistral -------------------------------------------------------------------------------------

_MISTRAL_NAME = re.compile(r"\s*([^\s\[\]{}]{1,128})(?:\[CALL_ID\][\w\-]{1,64})?(?:\[ARGS\])?\s*(?=\{)")
_MISTRAL_BARE = re.compile(r"\s*[^\s\[\]{}]{0,128}(?:\[CALL_ID\][\w\-]{0,64})?(?:\[[A-Z_]{0,8}\]?)?\s*")


def mistral(text: str, at: int) -> Block:
    """Read a list of calls as JSON, or `NAME{...}`, or `NAME[ARGS]{...}`. The opener is `[TOOL_CALLS]`."""
    begin = skip_space(text, at)
    if text.startswith(("[", "{"), begin):
        value, end = json_at(text, begin)
        return Block(end, calls_of(value, end))
    found = _MISTRAL_NAME.match(text, at)
    if found is None:
        bare = _MISTRAL_BARE.match(text, at)
        if bare is not None and bare.end() == len(text):
            raise Cut
        raise NoCall
    arguments, end = object_at(text, found.end())
    return Block(end, (RawCall(name_in(found[1], at), arguments),))


# --- Functionary ---------------------------------------------------------------------------------

_FUNCTIONARY_NAME = re.compile(r"([^\W\d][\w.\-]{0,127})\n(?=\{)")


def functionary(text: str, at: int) -> Block:
    """Read a name and JSON in the lines that follow. The opener is `>>>`."""
    found = _FUNCTIONARY_NAME.match(text, at)
    if found is None:
        raise Cut if len(text) - at < 130 and "\n{" not in text[at:] else NoCall
    arguments, end = object_at(text, found.end())
    return Block(end, (RawCall(found[1], arguments),))


# --- Harmony -------------------------------------------------------------------------------------

_MESSAGE = "<|message|>"
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*([A-Za-z]+)")
_HEADER_CHARS = 400
_THOUGHT_ENDS = ("<|end|>", "<|start|>", "<|return|>", "<|call|>")


def harmony_reader(opener: str) -> Reader:
    """Return the reader of a message's header, and of its call if its recipient is a function."""

    def read(text: str, at: int) -> Block:
        end = text.find(_MESSAGE, at, at + _HEADER_CHARS)
        if end < 0:
            raise Cut if len(text) - at < _HEADER_CHARS else NoCall
        header, body = text[at - len(opener) : end], end + len(_MESSAGE)
        channels, recipients = _CHANNEL.findall(header), _RECIPIENT.findall(header)
        if recipients and recipients[-1].startswith("functions."):
            arguments, at = object_at(text, body)
            return Block(at, (RawCall(name_in(recipients[-1].removeprefix("functions."), at), arguments),))
        is_thought = bool(channels) and channels[-1] == "analysis"
        is_for_another = bool(recipients) and recipients[-1] not in ("assistant", "user", "all")
        return Block(body, hides_until=_THOUGHT_ENDS if is_thought or is_for_another else ())

    return read


# --- Gemma ---------------------------------------------------------------------------------------

_GEMMA_KEY = re.compile(r"\s*([^\s:{}\[\],<>]{1,128})\s*:")
_GEMMA_PLAIN = re.compile(r"\s*([^\s,{}\[\]<]{1,310})\s*(?=[,}\]])")
_GEMMA_CHARS = 310


class GemmaReader:
    """Reads `call:NAME{key:value}`, whose strings are between two of the same tokens."""

    def __init__(self, quote: str, closer: str) -> None:
        self._quote, self._closer = quote, closer

    def __call__(self, text: str, at: int) -> Block:
        """Read the block. See `text_blocks.Reader`."""
        at = expect(text, at, "call:")
        end = until(text, at, "{")
        name = name_in(text[at:end], end)
        arguments, at = self._members(text, end + 1, 0)
        return Block(expect(text, at, self._closer), (RawCall(name, arguments),))

    def _members(self, text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at = skip_space(text, at)
        if text.startswith("}", at):
            return found, at + 1
        while True:
            key, at = self._key(text, at)
            if key in found:
                raise Broken(at, "an argument comes twice")
            found[key], at = self._value(text, at, depth + 1)
            at = skip_space(text, at)
            if text.startswith("}", at):
                return found, at + 1
            at = expect(text, at, ",")

    def _key(self, text: str, at: int) -> tuple[str, int]:
        written = _GEMMA_KEY.match(text, at)
        if written is not None:
            return written[1], written.end()
        if len(text) - at < MAX_NAME_CHARS and ":" not in text[at:]:
            raise Cut
        raise Broken(at, "a key is not readable")

    def _value(self, text: str, at: int, depth: int) -> tuple[Any, int]:
        refuse_depth(depth, at)
        at = skip_space(text, at)
        if text.startswith(self._quote, at):
            end = until(text, at + len(self._quote), self._quote)
            return text[at + len(self._quote) : end], end + len(self._quote)
        if text.startswith("{", at):
            return self._members(text, at + 1, depth)
        if text.startswith("[", at):
            return self._items(text, at + 1, depth)
        plain = _GEMMA_PLAIN.match(text, at)
        if plain is None:
            raise Cut if len(text) - at < _GEMMA_CHARS else Broken(at, "a value is not readable")
        value = value_of(plain[1])
        if isinstance(value, str):
            raise Broken(at, "a value is not readable")
        return value, plain.end()

    def _items(self, text: str, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = skip_space(text, at)
        if text.startswith("]", at):
            return found, at + 1
        while True:
            item, at = self._value(text, at, depth + 1)
            found.append(item)
            at = skip_space(text, at)
            if text.startswith("]", at):
                return found, at + 1
            at = expect(text, at, ",")


# --- PLaMo ---------------------------------------------------------------------------------------


def plamo(text: str, at: int) -> Block:
    """Read a name and arguments between their tokens. The opener is `<|plamo:begin_tool_request:plamo|>`."""
    at = expect(text, at, "<|plamo:begin_tool_name:plamo|>")
    end = until(text, at, "<|plamo:end_tool_name:plamo|>")
    name = name_in(text[at:end], at)
    at = expect(text, end + len("<|plamo:end_tool_name:plamo|>"), "<|plamo:begin_tool_arguments:plamo|>")
    begin = until(text, at, "<|plamo:msg|>") + len("<|plamo:msg|>")
    arguments, at = object_at(text, begin)
    at = expect(text, at, "<|plamo:end_tool_arguments:plamo|>")
    return Block(expect(text, at, "<|plamo:end_tool_request:plamo|>"), (RawCall(name, arguments),))
