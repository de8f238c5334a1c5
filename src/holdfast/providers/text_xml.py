"""Reads calls that are written with tags: Qwen's functions, invocations with parameters, GLM's keys and values, and
elements inside one another.
"""

from __future__ import annotations

import html
import re
from typing import Any

from holdfast.providers.text_blocks import (
    Block,
    Broken,
    Cut,
    RawCall,
    Reader,
    expect,
    name_in,
    object_at,
    refuse_depth,
    skip_space,
    until,
)

_ATTRIBUTE = re.compile(r"""[\sĠ]*(name|key|tool|string|type|index|id)\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)')""")
_CDATA = "<![CDATA["


def _header(text: str, at: int, end: str = ">") -> tuple[dict[str, str], int]:
    """Return the attributes that follow, and the position after the end of the tag."""
    attributes: dict[str, str] = {}
    while found := _ATTRIBUTE.match(text, at):
        attributes[found[1]] = html.unescape(found[2] if found[2] is not None else found[3])
        at = found.end()
    if text.find(end, at, at + 200) < 0 and len(text) - at < 200:
        raise Cut
    return attributes, expect(text, at, end)


def _value_end(text: str, at: int, closer: str, *followers: str) -> tuple[int, int]:
    """Return where a value ends, and the position after its closing tag: the first one that something fitting
    follows. A value may contain its own closing tag.
    """
    while True:
        end = until(text, at, closer)
        after = end + len(closer)
        nxt = skip_space(text, after)
        if nxt == len(text):
            raise Cut
        if any(text.startswith(follower, nxt) for follower in followers):
            return end, after
        rest = text[nxt : nxt + 40]
        if len(rest) < 40 and any(follower.startswith(rest) for follower in followers):
            raise Cut
        at = after


def _call(name: str, arguments: dict[str, Any], texts: set[str], strings: set[str]) -> RawCall:
    return RawCall(name, arguments, frozenset(texts), frozenset(strings))


# --- <function=NAME><parameter=KEY>VALUE</parameter></function> ----------------------------------


def function_at(text: str, at: int) -> tuple[RawCall, int]:
    """Return the call whose `<function=` ends at the position, and the position after `</function>`."""
    end = until(text, at, ">")
    written = text[at:end]
    if "<" in written or "\n" in written:
        raise Broken(at, "the name of the function is not closed")
    name, at = name_in(written.strip().strip("\"'"), at), end + 1
    at = skip_space(text, at)
    if text.startswith("{", at):
        arguments, at = object_at(text, at)
        return RawCall(name, arguments), expect(text, at, "</function>")
    values: dict[str, Any] = {}
    while True:
        at = skip_space(text, at)
        if text.startswith("</function>", at):
            return _call(name, values, set(values), set()), at + len("</function>")
        at = expect(text, at, "<parameter=", "</function>")
        end = until(text, at, ">")
        key = name_in(text[at:end].strip().strip("\"'"), at)
        if key in values:
            raise Broken(end, "a parameter comes twice")
        begin = end + 1
        end, at = _value_end(text, begin, "</parameter>", "<parameter=", "</function>")
        if "<parameter=" in text[begin:end]:
            raise Broken(end, "a parameter is not closed")
        values[key] = _lines(text[begin:end])


def function_reader(text: str, at: int) -> Block:
    """Read one function on its own."""
    call, at = function_at(text, at)
    return Block(at, (call,))


def _lines(value: str) -> str:
    """Return a value without the line break that the format adds before and after it."""
    if value.startswith("\n"):
        return value[1:].removesuffix("\n")
    return value


# --- <invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke> ------------------------


def invoke_reader(prefix: str, tag: str = "invoke", parameter: str = "parameter", space: str = "") -> Reader:
    """Return the reader of one invocation whose tags begin with a prefix. Its opener ends after the tag's name."""
    opening = f"<{prefix}{space}{parameter}"
    closing, last = f"</{prefix}{space}{parameter}>", f"</{prefix}{space}{tag}>"

    def read(text: str, at: int) -> Block:
        attributes, at = _header(text, at)
        name = name_in(attributes.get("name", ""), at)
        at = skip_space(text, at)
        if text.startswith("{", at):
            arguments, at = object_at(text, at)
            return Block(expect(text, at, last), (RawCall(name, arguments),))
        values: dict[str, Any] = {}
        texts: set[str] = set()
        strings: set[str] = set()
        while True:
            at = skip_space(text, at)
            if text.startswith(last, at):
                return Block(at + len(last), (_call(name, values, texts, strings),))
            attributes, begin = _header(text, expect(text, at, opening, last))
            key = attributes.get("name", "")
            if not key or key in values:
                raise Broken(begin, "a parameter has no name of its own")
            if text.startswith(_CDATA, begin):
                end = until(text, begin, "]]>")
                values[key], at = text[begin + len(_CDATA) : end], expect(text, end + 3, closing)
            else:
                end, at = _value_end(text, begin, closing, opening, last)
                values[key] = text[begin:end]
            is_structure = not prefix and values[key].lstrip().startswith(("{", "["))
            (strings if attributes.get("string") == "true" or is_structure else texts).add(key)

    return read


# --- NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value> -------------------------------------


def keyed_reader(closer: str, prefix: str = "") -> Reader:
    """Return the reader of GLM's calls. Its opener ends where the name begins."""
    key_tag, key_end = f"<{prefix}arg_key>", f"</{prefix}arg_key>"
    type_tag, type_end = f"<{prefix}arg_type>", f"</{prefix}arg_type>"
    value_tag, value_end = f"<{prefix}arg_value>", f"</{prefix}arg_value>"

    def read(text: str, at: int) -> Block:
        end = until(text, at, "<")
        name = name_in(text[at:end], at)
        at = skip_space(text, end)
        if text.startswith("<tool_sep>", at):
            at += len("<tool_sep>")
        values: dict[str, Any] = {}
        while True:
            at = skip_space(text, at)
            if text.startswith(closer, at):
                return Block(at + len(closer), (RawCall(name, values, frozenset(values)),))
            at = expect(text, at, key_tag, closer)
            end = until(text, at, key_end)
            key = name_in(text[at:end], at)
            if key in values:
                raise Broken(end, "an argument comes twice")
            at = skip_space(text, end + len(key_end))
            if text.startswith(type_tag, at):
                at = until(text, at, type_end) + len(type_end)
            begin = expect(text, at, value_tag)
            end, at = _value_end(text, begin, value_end, key_tag, closer)
            values[key] = text[begin:end]

    return read


# --- <KEY>VALUE</KEY>, inside one another --------------------------------------------------------

_ELEMENT = re.compile(r"<(/?)([A-Za-z_][\w.\-]{0,127})>")


def elements_at(text: str, at: int, closer: str, depth: int = 0) -> tuple[dict[str, Any], int]:
    """Return the elements up to the closing tag, and the position after it. An element has text, or elements."""
    refuse_depth(depth, at)
    members: dict[str, Any] = {}
    while True:
        at = skip_space(text, at)
        if text.startswith(closer, at):
            return members, at + len(closer)
        found = _ELEMENT.match(text, at)
        if found is None:
            raise (
                Cut
                if text.find(">", at, at + 130) < 0 and len(text) - at < 130
                else Broken(at, f"{closer} is missing")
            )
        key, own = found[2], f"</{found[2]}>"
        if found[1]:
            raise Broken(at, f"{found[0]} closes nothing")
        begin = found.end()
        if _ELEMENT.match(text, skip_space(text, begin)) and not text.startswith(
            own, skip_space(text, begin)
        ):
            value: Any
            value, at = elements_at(text, begin, own, depth + 1)
        else:
            end = until(text, begin, own)
            value, at = text[begin:end], end + len(own)
        if key in members:
            earlier = members[key]
            members[key] = [*earlier, value] if isinstance(earlier, list) else [earlier, value]
        else:
            members[key] = value
