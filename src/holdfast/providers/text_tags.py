"""Reads calls between an opener and its closer, whatever is between them: JSON, tags, a name with keys, or Python.

Also the smaller formats of this kind: fences, Perl's hashes, `<FunctionCall>`, and lists of calls with one opener.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from holdfast.providers.text_blocks import (
    Block,
    Broken,
    Cut,
    MayGoOn,
    NoCall,
    RawCall,
    Reader,
    call_of,
    calls_of,
    expect,
    fenced_json_at,
    in_whole,
    json_at,
    name_in,
    object_at,
    skip_space,
    until,
    value_of,
)
from holdfast.providers.text_python import call_at, calls_at
from holdfast.providers.text_xml import elements_at, function_at, invoke_reader, keyed_reader

_NAME = re.compile(r"[^\W\d][\w.\-:]{0,127}")
_ATTRIBUTE = re.compile(r'\s+([A-Za-z_]\w{0,63})="([^"]*)"')
_KEY_LINE = re.compile(r"\s*([A-Za-z_]\w{0,63})\s*:[ \t]*([^\n<]*)(?=\n|<)")
_WORDS: dict[str, Any] = {"yes": True, "no": False, "true": True, "false": False}
_INVOKE_NAME = re.compile(r'\s*<invoke name="([^"<>]{1,128})">')
_invoke = invoke_reader("")
_ifm = keyed_reader("</ifm|tool_call>", "ifm|")


# --- JSON between two tokens ---------------------------------------------------------------------


def json_reader(
    *closers: str, opens: tuple[str, ...] = ("{", "[", "`"), needs_arguments: bool = False
) -> Reader:
    """Return the reader of one value, or of several after one another, up to a closer. Without closers, the value
    itself is the block.
    """

    def read(text: str, at: int) -> Block:
        at = skip_space(text, at)
        if at == len(text):
            raise Cut
        if not text.startswith(opens, at):
            raise NoCall
        calls: tuple[RawCall, ...] = ()
        while True:
            value, at = fenced_json_at(text, at)
            calls += calls_of(value, at, needs_arguments=needs_arguments)
            if not closers:
                return Block(at, calls)
            at = skip_space(text, at)
            if not text.startswith("{", at):
                return Block(expect(text, at, *closers), calls)

    return read


def keyed_json_reader(closer: str) -> Reader:
    """Return the reader of a list like `[{"NAME": {...}}]`."""

    def read(text: str, at: int) -> Block:
        value, at = json_at(text, at)
        calls: list[RawCall] = []
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, dict) or len(item) != 1:
                raise Broken(at, "a call is not an object with one name")
            [(name, arguments)] = item.items()
            calls.append(call_of({"name": name, "arguments": arguments}, at))
        return Block(expect(text, at, closer), tuple(calls))

    return read


def openai(text: str, at: int) -> Block:
    """Read an object with the list `tool_calls`."""
    value, end = object_at(text, at)
    if not isinstance(value.get("tool_calls"), list):
        raise NoCall
    return Block(end, calls_of(value, end))


def separated_json(text: str, at: int) -> Block:
    """Read calls with semicolons between them. The opener is `<|python_tag|>`."""
    if not text.startswith("{", skip_space(text, at)):
        raise Cut if skip_space(text, at) == len(text) else NoCall
    calls: tuple[RawCall, ...] = ()
    while True:
        value, at = object_at(text, at)
        calls += (call_of(value, at, needs_arguments=True),)
        following = skip_space(text, at)
        if text.startswith(";", following):
            following = skip_space(text, following + 1)
            if text.startswith("{", following):
                at = following
                continue
        if following == len(text):
            raise MayGoOn(Block(at, calls))
        return Block(at, calls)


# --- a tag with anything in it -------------------------------------------------------------------


def after(words: str, read: Reader) -> Reader:
    """Return the reader of what follows these words. Without them there is no call."""

    def read_after(text: str, at: int) -> Block:
        if text.startswith(words, at):
            return read(text, at + len(words))
        raise Cut if words.startswith(text[at : at + len(words)]) else NoCall

    return read_after


def back(read: Reader, chars: int) -> Reader:
    """Return the reader that begins before the end of its opener: the opener has the beginning of what it reads."""
    return lambda text, at: read(text, at - chars)


class TagReader:
    """Reads a block that may have JSON, a function, an invocation or elements, and with `has_names` a name with its
    arguments in one of several ways.
    """

    def __init__(self, *closers: str, has_names: bool = True) -> None:
        self._closers = closers
        self._has_names = has_names
        self._keyed = keyed_reader(closers[0])

    def __call__(self, text: str, at: int) -> Block:
        """Read the block. See `text_blocks.Reader`."""
        begin = skip_space(text, at)
        if begin == len(text):
            raise Cut
        if text.startswith("<", begin):
            return self._tagged(text, begin)
        if text.startswith(("{", "[", "`"), begin):
            return self._listed(text, begin)
        found = _NAME.match(text, begin)
        if found is None or not self._has_names:
            raise NoCall
        if found.end() == len(text):
            raise Cut
        return self._named(text, begin, found.end())

    def _listed(self, text: str, at: int) -> Block:
        calls: tuple[RawCall, ...] = ()
        while True:
            value, at = fenced_json_at(text, at)
            calls += calls_of(value, at)
            at = skip_space(text, at)
            if text.startswith(("{", "["), at):
                continue
            if isinstance(value, list) and not text.startswith("<", at) and at < len(text):
                return Block(at, calls)  # Granite: a list is whole without a closer
            return Block(expect(text, at, *self._closers), calls)

    def _tagged(self, text: str, at: int) -> Block:
        calls: tuple[RawCall, ...] = ()
        while True:
            at = skip_space(text, at)
            if text.startswith("<function=", at):
                call, at = function_at(text, at + len("<function="))
                calls += (call,)
            elif text.startswith("<invoke", at):
                block = _invoke(text, at + len("<invoke"))
                calls, at = calls + block.calls, block.end
            elif calls:
                return Block(expect(text, at, *self._closers), calls)
            else:
                return self._nested(text, at)

    def _nested(self, text: str, at: int) -> Block:
        """One element per call: its name, and its arguments as elements or JSON."""
        if any(prefix.startswith(text[at : at + len(prefix)]) for prefix in ("<function=", "<invoke")):
            raise Cut
        elements, end = elements_at(text, at, self._closers[0])
        calls = [
            _element_call(name, each, end)
            for name, value in elements.items()
            for each in (value if isinstance(value, list) else [value])
        ]
        if not calls:
            raise Broken(end, "the block is empty")
        return Block(end, tuple(calls))

    def _named(self, text: str, begin: int, end: int) -> Block:
        """A name first: GLM's keys and values, its short forms, attributes, or a call like Python's."""
        mark = text[end]
        if mark == "(":
            call, at = call_at(text, begin)
            return Block(expect(text, at, *self._closers), (call,))
        if mark == ">":
            return _short(text, name_in(text[begin:end], end), end + 1, self._closers)
        if mark == " " and (attributes := _ATTRIBUTE.match(text, end)):
            return _attributes(text, name_in(text[begin:end], end), attributes.start(), self._closers)
        if mark in "\n<\r" or not text[end : end + 80].strip():
            return self._keyed(text, begin)
        if mark == " " and len(text) - end < 80 and "\n" not in text[end:]:
            raise Cut
        raise NoCall


def _element_call(name: str, value: Any, at: int) -> RawCall:
    arguments = value_of(value) if isinstance(value, str) and value.strip() else value or {}
    if not isinstance(arguments, dict):
        raise Broken(at, "the arguments are not an object")
    texts = (
        {key for key, each in arguments.items() if isinstance(each, str)}
        if isinstance(value, dict)
        else set()
    )
    return RawCall(name, arguments, frozenset(texts))


def _short(text: str, name: str, at: int, closers: tuple[str, ...]) -> Block:
    """`NAME>VALUE`, whose argument has the key "" until the tool is known; or `NAME>` and lines of `KEY: VALUE`."""
    end = until(text, at, closers[0])
    body = text[at:end]
    arguments: dict[str, Any] = {}
    if body.startswith("\n"):
        body = f"{body.strip()}\n"
        position = 0
        while position < len(body) and (line := _KEY_LINE.match(body, position)):
            value = line[2].strip()
            arguments[line[1]], position = _WORDS.get(value.casefold(), value), line.end()
            position = skip_space(body, position)
        if position < len(body) or not arguments:
            raise Broken(end, "the lines are not KEY: VALUE")
    elif body.strip():
        arguments[""] = body.strip()
    texts = frozenset(key for key, value in arguments.items() if isinstance(value, str))
    return Block(end + len(closers[0]), (RawCall(name, arguments, frozenset(), texts),))


def _attributes(text: str, name: str, at: int, closers: tuple[str, ...]) -> Block:
    values: dict[str, Any] = {}
    while found := _ATTRIBUTE.match(text, at):
        if found[1] in values:
            raise Broken(at, "an argument comes twice")
        values[found[1]], at = found[2], found.end()
    return Block(expect(text, at, "/>", *closers), (RawCall(name, values, frozenset(values)),))


# --- lists of calls around other readers ---------------------------------------------------------


def python_reader(*closers: str, is_bare: bool = False) -> Reader:
    """Return the reader of `[f(x=1)]`; with `is_bare`, of `f(x=1)` in lines. Without closers, the list is all."""

    def read(text: str, at: int) -> Block:
        at = skip_space(text, at)
        if at == len(text):
            raise Cut
        if not is_bare:
            if not text.startswith("[", at):
                raise NoCall
            calls, at = calls_at(text, at)
            return Block(expect(text, at, *closers) if closers else at, calls)
        if text.startswith(("<invoke", "<antml"), at):
            return Block(at)  # what is listed is read on its own
        found: list[RawCall] = []
        while not text.startswith(closers[0], skip_space(text, at)):
            call, at = call_at(text, at)
            found.append(call)
        return Block(expect(text, at, *closers), tuple(found))

    return read


def list_reader(closer: str) -> Reader:
    """Return the reader of a list of calls as JSON, or of invocations. What else follows is read on its own."""

    def read(text: str, at: int) -> Block:
        begin = skip_space(text, at)
        if begin == len(text):
            raise Cut
        if text.startswith(("[", "{"), begin):
            value, end = json_at(text, begin)
            return Block(expect(text, end, closer), calls_of(value, end))
        if not text.startswith("<", begin):
            raise NoCall
        if "<invoke".startswith(text[begin : begin + len("<invoke")]) and len(text) - begin < len("<invoke"):
            raise Cut
        calls: tuple[RawCall, ...] = ()
        while text.startswith("<invoke", begin):
            block = _invoke(text, begin + len("<invoke"))
            calls, begin = calls + block.calls, skip_space(text, block.end)
        return Block(expect(text, begin, closer), calls) if calls else Block(at)

    return read


def ifm_reader(text: str, at: int) -> Block:
    """Read a list of calls as JSON, or as names with keys and values. The opener is `<ifm|tool_calls>`."""
    calls: tuple[RawCall, ...] = ()
    while True:
        at = expect(text, at, "<ifm|tool_call>", "</ifm|tool_calls>")
        if text.startswith("</ifm|tool_calls>", at - len("</ifm|tool_calls>")):
            return Block(at, calls)
        if text.startswith("{", skip_space(text, at)):
            value, at = object_at(text, at)
            calls, at = (*calls, call_of(value, at)), expect(text, at, "</ifm|tool_call>")
        else:
            block = _ifm(text, at)
            calls, at = calls + block.calls, block.end


def prefixed_elements(prefix: str) -> Reader:
    """Return the reader of invocations whose every tag has a prefix, with elements inside one another."""

    def read(text: str, at: int) -> Block:
        last = f"{prefix}</tool_call>"
        end = until(text, at, last)
        body, calls, position = text[at:end].replace(prefix, ""), list[RawCall](), 0
        while found := _INVOKE_NAME.match(body, position):
            arguments, position = in_whole(partial(elements_at, body, found.end(), "</invoke>"), end)
            calls.append(RawCall(name_in(found[1], at), arguments, frozenset(arguments)))
        if body[position:].strip() or not calls:
            raise Broken(end, "the invocations are not readable")
        return Block(end + len(last), tuple(calls))

    return read


# --- fences, Perl, FunctionCall ------------------------------------------------------------------

_PERL = re.compile(r"\s*\{\s*tool\s*=>\s*\"([^\"]{1,128})\"\s*,\s*args\s*=>\s*\{")
_PERL_ARGUMENT = re.compile(
    r"\s*(?:--)?([A-Za-z_]\w{0,63})\s*(?:=>)?\s*(\"(?:[^\"\\]|\\.)*\"|[^\s\"{},]{1,300})\s*,?"
)
_KEY_VALUE = re.compile(r"\s*([A-Za-z_]\w{0,63})>([^\n<]*)(?=\n|<)")


def fence_json(text: str, at: int) -> Block:
    """Read the calls of a fence whose info word says so. The opener ends before the line break."""
    value, at = json_at(text, at)
    return Block(expect(text, at, "```", "</tool_call>"), calls_of(value, at))


def fence_named(text: str, at: int) -> Block:
    """Read the arguments of a fence with the info `tool NAME`. The opener ends before the name."""
    end = until(text, at, "\n")
    name = name_in(text[at:end], end)
    arguments, at = object_at(text, end)
    return Block(expect(text, at, "```"), (RawCall(name, arguments),))


def perl_reader(closer: str) -> Reader:
    """Return the reader of `{tool => "NAME", args => {--key "value"}}`."""

    def read(text: str, at: int) -> Block:
        begin = skip_space(text, at)
        if not text.startswith("{", begin):
            raise Cut if begin == len(text) else NoCall
        found = _PERL.match(text, at)
        if found is None:
            raise Broken(until(text, at, closer), "the hash is not readable")
        name, at = name_in(found[1], at), found.end()
        values: dict[str, Any] = {}
        while argument := _PERL_ARGUMENT.match(text, at):
            written = argument[2]
            if argument[1] in values:
                raise Broken(at, "an argument comes twice")
            at = argument.end()
            is_string = written.startswith('"')
            values[argument[1]] = in_whole(partial(json_at, written, 0), at)[0] if is_string else written
        at = expect(text, expect(text, at, "}"), "}")
        return Block(expect(text, at, closer), (RawCall(name, values, frozenset(values)),))

    return read


def function_call(text: str, at: int) -> Block:
    """Read a name and lines of `KEY>VALUE` in `<code>`. The opener is `<FunctionCall>`."""
    begin = skip_space(text, at)
    found = _NAME.match(text, begin)
    if found is None or found.end() == len(text):
        raise Cut if begin == len(text) or found is not None else NoCall
    at = expect(text, found.end(), "<code>")
    end = until(text, at, "</code>")
    body, position = f"{text[at:end].strip()}\n", 0
    values: dict[str, Any] = {}
    while line := _KEY_VALUE.match(body, position):
        if line[1] in values:
            raise Broken(end, "an argument comes twice")
        values[line[1]], position = line[2].strip(), line.end()
    if body[position:].strip():
        raise Broken(end, "the lines are not KEY>VALUE")
    at = expect(text, end + len("</code>"), "</FunctionCall>")
    return Block(at, (RawCall(name_in(found[0], at), values, frozenset(values)),))
