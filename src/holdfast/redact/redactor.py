"""Finds and masks the secrets of a whole text.

`shapes`, `assigned` and `credentials` find them. `stream` masks text that arrives in pieces.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from threading import Lock
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from holdfast.redact.likely import GATE, Part, around, find_likely, open_parts
from holdfast.redact.spans import Span, apart, places
from holdfast.redact.sure import without_sure

KNOWN_SECRET_MIN_CHARS = 8
"""A shorter value is probably a word."""

KNOWN = "known"
"""The kind of a known secret's value. All other kinds only look like secrets."""
LIKELY = "secret"

EVER_LEARNT_MAX = 20_000
"""How many forms of secrets without a name a process remembers after nobody looks for them."""

_TELLING_MIN_CHARS = 5

_PASSES_MAX = 8
"""Masking one secret may uncover the beginning of the next, if two follow each other directly."""


class _Needle(NamedTuple):
    """A form of a secret, as it may be in a text."""

    text: str
    kind: str
    name: str


class _Ever:
    """All known secrets that any redactor of a process has had, by their forms."""

    def __init__(self) -> None:
        self.named: dict[str, _Needle] = {}
        self.learnt: dict[str, _Needle] = {}
        """Those without a name, the newest last."""

    def add(self, needles: Iterable[_Needle]) -> None:
        new = {each.text: each for each in needles if each.text not in self.named}
        self.named |= {text: each for text, each in new.items() if each.name}
        learnt = self.learnt | {text: each for text, each in new.items() if not each.name}
        self.learnt = dict(islice(learnt.items(), max(len(learnt) - EVER_LEARNT_MAX, 0), None))


@cache
def _ever() -> _Ever:
    """Return what this process remembers."""
    return _Ever()


class _Known:
    """The known secrets that a redactor shares with the ones that were made from it."""

    def __init__(self, needles: tuple[_Needle, ...]) -> None:
        self.needles: tuple[_Needle, ...] = ()
        self.take(needles)
        self.named = needles
        """Those that `known_in` finds."""
        self.learnt: dict[str, frozenset[str]] = {}
        """The forms of the values that were learnt, by where they are from."""
        self.lock = Lock()

    def take(self, needles: tuple[_Needle, ...]) -> None:
        """Look for these from now on. The process remembers them for ever (`ever_known`)."""
        if needles:
            _ever().add(needles)
        self.needles = needles


class Redactor:
    """Masks the secrets of a text. Applied to its own output it changes nothing.

    Args:
        known: The values of known secrets by name. A value with fewer than 8 characters is ignored.
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        names = {value: name for name, value in (known or {}).items() if len(value) >= KNOWN_SECRET_MIN_CHARS}
        forms = {form: name for value, name in names.items() for form in _forms(value)}
        self._known = _Known(_sorted(_Needle(form, KNOWN, name) for form, name in forms.items()))
        self._likely: tuple[_Needle, ...] = ()
        self._merged = (self._known.needles, self._known.needles)

    @property
    def _needles(self) -> tuple[_Needle, ...]:
        known, merged = self._merged
        if known is not self._known.needles:
            known = self._known.needles
            merged = _sorted([*known, *self._likely])
            self._merged = (known, merged)
        return merged

    def know(self, known: Mapping[str, str]) -> None:
        """Know these secrets too, by name, from now on and in every redactor that was made from this one."""
        named = {
            form: _Needle(form, KNOWN, name) for name, value in known.items() for form in forms_of(value)
        }
        with self._known.lock:
            self._known.named = _sorted(({each.text: each for each in self._known.named} | named).values())
            learnt = [each for each in self._known.needles if not each.name and each.text not in named]
            self._known.take(_sorted([*self._known.named, *learnt]))

    def learn(self, values: Iterable[str], source: str) -> None:
        """Mask these values too, from now on and in every redactor that was made from this one. They take the place
        of what was learnt from the same source, and have no name, so `known_in` does not find them."""
        forms = frozenset(form for value in values for form in forms_of(value))
        with self._known.lock:
            self._known.learnt[source] = forms
            learnt = set().union(*self._known.learnt.values()) - {each.text for each in self._known.named}
            needles = [*self._known.named, *(_Needle(form, KNOWN, "") for form in learnt)]
            self._known.take(_sorted(needles))

    def also(self, values: Iterable[str]) -> Redactor:
        """Return a redactor that masks these values everywhere: what only looked like a secret in one place is masked
        in all places, unless it is probably a word.
        """
        written = {form for value in values if _is_telling(value) for form in _written(value)}
        other = Redactor()
        other._known = self._known
        other._likely = (*self._likely, *(_Needle(form, LIKELY, "") for form in written))
        other._merged = ((), other._likely)
        return other

    @property
    def longest_known(self) -> int:
        """Return the length of the longest form of a known secret, in characters."""
        needles = self._needles
        return len(needles[0].text) if needles else 0

    def known_in(self, text: str) -> str:
        """Return the name of a known secret in the text, plain or in a common encoding; empty if it has no secret."""
        for needle in self._needles:
            if needle.name and needle.text in text:
                return needle.name
        return ""

    def find(self, text: str, *, is_cut: bool = False) -> list[Span]:
        """Return the secret spans in order, without overlaps. If a text was cut off, the beginning of a known secret
        at its end counts too.
        """
        return self._find(text, open_parts(text), is_cut=is_cut)

    def _find(self, text: str, parts: list[Part], *, is_cut: bool) -> list[Span]:
        found: list[Span] = []
        known, needles = self._merged  # without the call of `_needles`, because this is often asked
        for needle, kind, _ in needles if known is self._known.needles else self._needles:
            if needle in text:
                found += [Span(at, at + len(needle), kind) for at in places(text, needle)]
            if is_cut:
                found += _begun_at_end(text, needle)
        if parts:
            found += find_likely(text, parts)
        return apart(found) if found else found

    def for_all(self, texts: Iterable[str]) -> Redactor:
        """What masks exactly these texts: one that does not look at any of them again, where `finds_none`."""
        return _SEEN if self.finds_none(texts) else self

    def finds_none(self, texts: Iterable[str]) -> bool:
        """Return whether one look at all the texts together tells that none contains a secret. What a line of its own
        may contain, a gate sees between other lines."""
        joined = "\n".join(texts)
        return not self._has_known(joined) and GATE.is_shut(joined)

    def _has_known(self, text: str) -> bool:
        known, needles = self._merged  # without the call of `_needles`, because this is often asked
        needles = needles if known is self._known.needles else self._needles
        return any(needle.text in text for needle in needles) if needles else False

    def __call__(self, text: str, *, is_cut: bool = False) -> str:
        parts = open_parts(text)
        if parts and not is_cut and not self._has_known(text):
            text, parts = without_sure(text, parts)
        spans = self._find(text, parts, is_cut=is_cut)
        for _ in range(_PASSES_MAX):
            if not spans:
                break
            text, lines = _masked(text, spans)
            spans = self.find(text, is_cut=is_cut) if self.find(lines, is_cut=is_cut) else []
        return text


def ever_known() -> Redactor:
    """Return a redactor for all that any redactor of this process has known until now: an old value may still stand
    in an error, although the store has another one now.
    """
    found = Redactor()
    found._known.take(_sorted([*_ever().named.values(), *_ever().learnt.values()]))
    found._known.named = found._known.needles
    return found


def make_redactor(known: Iterable[str] = ()) -> Redactor:
    """Return a redactor that also knows these values of 8 characters or more. Shorter ones are ignored."""
    return Redactor({f"secret {number}": value for number, value in enumerate(known, start=1)})


def _masked(text: str, spans: list[Span]) -> tuple[str, str]:
    """Return the masked text, and of its lines those that have a mark and those beside them.

    What a mark uncovers is there.
    """
    pieces: list[str] = []
    marks: list[tuple[int, int]] = []
    at = length = 0
    for start, end, kind in spans:
        mark = f"[redacted:{kind}]"
        pieces += (text[at:start], mark)
        begin = length + start - at
        at, length = end, begin + len(mark)
        marks.append((begin, length))
    masked = "".join(pieces) + text[at:]
    lines: list[str] = []
    shown = -1
    for begin, end in marks:
        if end > shown:
            first, shown = around(masked, begin, end)
            lines.append(masked[first:shown])
    return masked, "\n".join(lines)


def _begun_at_end(text: str, needle: str) -> Iterator[Span]:
    first = max(len(text) - len(needle) + 1, 0)
    at = text.find(needle[:KNOWN_SECRET_MIN_CHARS], first)
    while at >= 0:
        if needle.startswith(text[at:]):
            yield Span(at, len(text), KNOWN)
            return
        at = text.find(needle[:KNOWN_SECRET_MIN_CHARS], at + 1)


def _sorted(needles: Iterable[_Needle]) -> tuple[_Needle, ...]:
    return tuple(sorted(needles, key=lambda needle: len(needle.text), reverse=True))


def _is_telling(value: str) -> bool:
    """Return whether the value is certainly the same secret elsewhere: `admin` may just be the word."""
    return len(value) >= KNOWN_SECRET_MIN_CHARS or (
        len(value) >= _TELLING_MIN_CHARS and not value.isalpha() and not value.isdigit()
    )


_GO = {ord(each): f"\\u{ord(each):04x}" for each in "&<>"}
_DOTNET = {ord(each): f"\\u{ord(each):04X}" for each in "&<>+'\"`"}
"""How the usual JSON encoders of these languages write characters that mean something in HTML."""


def _written(value: str) -> Iterator[str]:
    """Return the value plain, JSON-escaped and HTML-escaped, as servers of several languages write it."""
    short, plain = json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
    yield from (value, short, plain, short.translate(_GO), value.translate(_DOTNET))
    yield from (
        html.escape(value),
        html.escape(value).replace("&#x27;", "&#39;"),
        html.escape(value, quote=False),
    )


def forms_of(value: str) -> Iterator[str]:
    """Return a value in all forms in which it is looked for; none if it is too short."""
    return _forms(value) if len(value) >= KNOWN_SECRET_MIN_CHARS else iter(())


def _forms(value: str) -> Iterator[str]:
    """Return the value plain, JSON-escaped, URL-encoded, in hex, and in base64 at each of three alignments."""
    raw = value.encode("utf-8", "surrogatepass")
    urls = [quote(raw), quote(raw, safe=""), quote_plus(raw)]
    lower = [re.sub("%..", lambda code: code[0].lower(), url) for url in urls]
    forms = [*_written(value), raw.hex(), raw.hex().upper(), *urls, *lower]
    for shift in range(3):
        plain = base64.b64encode(bytes(shift) + raw).decode("ascii")
        core = plain[-(-shift * 8 // 6) : (shift + len(raw)) * 8 // 6]
        forms += [core, core.replace("+", "-").replace("/", "_")]
    forms += [form.replace("/", "\\/") for form in forms]  # so PHP writes JSON
    yield from (form for form in dict.fromkeys(forms) if len(form) >= KNOWN_SECRET_MIN_CHARS)


class _Seen(Redactor):
    """A redactor for texts that another one has read already."""

    def find(self, text: str, *, is_cut: bool = False) -> list[Span]:
        return []

    def __call__(self, text: str, *, is_cut: bool = False) -> str:
        return text


_SEEN = _Seen()
