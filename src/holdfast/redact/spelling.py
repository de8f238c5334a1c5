"""The spellings of a secret in which a text may have it: plain, with any mark of it escaped as JSON, HTML, URLs and
other languages do, in hex, and in Base64, also with line breaks.

`redactor` says which secrets are known. This finds the spellings of one.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache
from html.entities import html5

from holdfast.redact.gates import Gate
from holdfast.redact.spans import places

_PLAIN = re.compile(r"[A-Za-z0-9]+")
"""What nobody escapes."""
_PIECES = re.compile(r"\\+|.", re.DOTALL)
_ALWAYS = re.compile(r"[\x00-\x20]")
"""These have forms without a usual escape, as in `+` for a blank."""
_UNSEEN_CHARS = 32_768
_ESCAPES = Gate(
    [
        r"\\(?:[^A-Za-z0-9\r\n]|u[0-9A-Fa-f]|x[0-9A-Fa-f])",
        r"&(?:#|[A-Za-z]{2,6})",
        r"%[0-9A-Fa-f]{2}",
        r"=3[Dd]",
    ],
    _UNSEEN_CHARS,
)
_BREAKS = Gate([r"[A-Za-z0-9+/_-]{40}(?:\r|\n|\\|%|&)"], _UNSEEN_CHARS)
"""Closed for a text without escapes, and for one without line breaks in Base64."""
_SLASHES = r"\\{1,4}"
"""JSON within JSON doubles them."""
_AND = r"(?:&amp;|&|\\{1,2}u0026|%26)"
_NAME_MAX_CHARS = 6
_SHORT = {"\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r"}
_LONGEST_ASCII, _LONGEST = 14, 24
"""The longest spelling of one character."""
_BREAK = r"(?:(?:\r?\n|(?:\\{1,2}r)?\\{1,2}n|(?:%0[Dd])?%0[Aa]|&#10;)[ \t]{0,8})?"
_LONGEST_BREAK = 14
_LINE_CHARS = 60
"""No usual line of Base64 is shorter."""
_HEAD_CHARS = 8
"""So much of a secret at the end of a text that was cut off counts as one."""
_BEGUN = re.compile(
    r"\\{1,4}(?:u[0-9A-Fa-f]{0,3}|x[0-9A-Fa-f]?)?|(?:&|\\{1,2}u0026|%26)(?:amp;)?[#0-9A-Za-z]{0,9}|[%=][0-9A-Fa-f%]{0,19}|\r"
)
"""An escape that is not complete."""


class Spelling:
    """The spellings of a text.

    Args:
        text: As it is without escapes.
        edges: It is Base64: may there be line breaks, and does a bit of it stand in the character before or after?
    """

    def __init__(self, text: str, edges: tuple[bool, bool] | None = None) -> None:
        self.text = text
        self._edges = edges
        marks = _PLAIN.sub("", text)
        self.most = len(text) + sum(_longest(each) - 1 for each in marks)
        """The length of the longest spelling."""
        escaped: tuple[str, ...] = (_longest_plain(text),)
        broken = escaped
        if edges is not None:
            breaks = len(text) // _LINE_CHARS + 1
            self.most += sum(edges) * _LONGEST_ASCII + breaks * _LONGEST_BREAK
            size = -(-len(text) // (breaks + 1))
            broken = tuple({_longest_plain(text[at : at + size]) for at in range(0, len(text), size)})
        self.gates = (escaped if _ALWAYS.search(text) else (text,), escaped, broken)
        """A text with a spelling has one of these: a text without escapes, one with escapes, and any text."""
        self._is_literal = not marks

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where each spelling begins and ends."""
        if self._edges is None and self._is_literal:
            for begin in places(text, self.text):
                yield begin, begin + len(self.text)
            return
        found = self._pattern.search(text)
        while found:
            if found.end() - found.start() <= self.most:
                yield found.span()
            found = self._pattern.search(text, found.start() + 1)

    def is_in(self, text: str) -> bool:
        """Return whether the text has a spelling."""
        return next(self.places(text), None) is not None

    def begun(self, text: str) -> int | None:
        """Return where the beginning of a spelling starts that ends the text; None if nothing began."""
        first = max(len(text) - self.most + 1, 0)
        if text.find(self._head_gate, first) < 0:
            return None
        for found in self._head.finditer(text, first):
            at = found.end()
            for ways in map(_way, self._pieces[_HEAD_CHARS:]):
                if self._edges is not None and (broken := _broken().match(text, at)):
                    at = broken.end()
                if (step := ways.match(text, at)) is None:
                    break
                at = step.end()
            if at == len(text) or _BEGUN.fullmatch(text, at):
                return found.start()
        return None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        if self._edges is None:
            return re.compile("".join(map(_ways, self._pieces)))
        side = f"(?:[A-Za-z0-9_-]|{_ways('+')}|{_ways('/')})"
        before, after = (side if each else "" for each in self._edges)
        core = _BREAK.join(map(_ways, self.text))
        return re.compile(
            (f"(?:{before}{_BREAK})?" if before else "") + core + (f"(?:{_BREAK}{after})?" if after else "")
        )

    @cached_property
    def _head(self) -> re.Pattern[str]:
        return re.compile("".join(map(_ways, self._pieces[:_HEAD_CHARS])))

    @cached_property
    def _head_gate(self) -> str:
        return _longest_plain(self.text[:_HEAD_CHARS])

    @cached_property
    def _pieces(self) -> list[str]:
        """The characters, and backslashes that follow each other as one: else nobody could tell whose escape is
        which."""
        return _PIECES.findall(self.text)


def form_of(text: str) -> int:
    """Return which of a spelling's gates count for a text."""
    return 2 if _BREAKS.is_open(text) else 1 if _ESCAPES.is_open(text) else 0


def spellings(value: str) -> Iterator[Spelling]:
    """Return a value plain, in hex, and in Base64 at each of three alignments, with all their spellings."""
    raw = value.encode("utf-8", "surrogatepass")
    yield Spelling(value)
    yield Spelling(raw.hex())
    if raw.hex() != raw.hex().upper():
        yield Spelling(raw.hex().upper())
    for shift in range(3):
        plain = base64.b64encode(bytes(shift) + raw).decode("ascii")
        bits = (shift + len(raw)) * 8
        core = plain[-(-shift * 8 // 6) : bits // 6]
        edges = (shift > 0, bits % 6 > 0)
        yield Spelling(core, edges)
        if (of_url := core.replace("+", "-").replace("/", "_")) != core:
            yield Spelling(of_url, edges)


def _longest_plain(text: str) -> str:
    return max(_PLAIN.findall(text), key=len, default="")


def _longest(char: str) -> int:
    return _LONGEST_ASCII if char.isascii() else _LONGEST


@cache
def _broken() -> re.Pattern[str]:
    return re.compile(_BREAK)


@lru_cache(1024)
def _way(char: str) -> re.Pattern[str]:
    return re.compile(_ways(char))


@lru_cache(1024)
def _ways(char: str) -> str:
    """Return a pattern of the ways to write a character, or several backslashes."""
    if char.startswith("\\"):
        count = len(char)
        return rf"(?:\\{{{count},{count * 4}}}|(?:{_numbered(char[0])}){{{count}}})"
    if _PLAIN.fullmatch(char):
        return char
    ways = [_numbered(char), rf"\\{{0,4}}{re.escape(char)}"]
    if char in _SHORT:
        ways.append(_SLASHES + _SHORT[char])
    if char == "\n":
        ways.append(r"\r\n")
    if char == " ":
        ways.append(r"\+")
    return f"(?:{'|'.join(ways)})"


def _numbered(char: str) -> str:
    """Return a pattern of the ways to write a character by its number or name."""
    code = ord(char)
    units = char.encode("utf-16-be", "surrogatepass").hex()
    octets = char.encode("utf-8", "surrogatepass").hex()
    ways = ["".join(f"{_SLASHES}u{_hex(units[at : at + 4])}" for at in range(0, len(units), 4))]
    ways += ["".join(f"%(?:25)?{_hex(octets[at : at + 2])}" for at in range(0, len(octets), 2))]
    if code < 256:
        ways.append(f"{_SLASHES}x{_hex(f'{code:02x}')}")
    if char == "=":
        ways.append("=3[Dd]")
    named = "|".join([f"#0{{0,2}}{code}", f"#[xX]0{{0,2}}{_hex(f'{code:x}')}", *_names().get(char, ())])
    return f"(?:{'|'.join(ways)}|{_AND}(?:{named});?)"


def _hex(digits: str) -> str:
    return "".join(f"[{each}{each.upper()}]" if each.isalpha() else each for each in digits)


@cache
def _names() -> dict[str, list[str]]:
    """Return the short names that HTML has for characters."""
    names: dict[str, list[str]] = {}
    for name, char in html5.items():
        if name.endswith(";") and len(name) <= _NAME_MAX_CHARS + 1:
            names.setdefault(char, []).append(name[:-1])
    return names
