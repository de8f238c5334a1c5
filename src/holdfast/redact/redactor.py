"""Finds and masks the secrets of a whole text.

`shapes`, `assigned` and `credentials` find them. `stream` masks text that arrives in pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, islice
from threading import Lock
from typing import NamedTuple

from holdfast.redact.likely import GATE, Part, around, find_likely, open_parts
from holdfast.redact.spans import Span, apart
from holdfast.redact.spelling import Spelling, form_of, spellings
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
    """A form of a secret, which a text may have in several spellings."""

    spelling: Spelling
    kind: str
    name: str

    @property
    def text(self) -> str:
        return self.spelling.text


_Gates = tuple[tuple[str, _Needle], ...]
"""What to look for first, and what may be in a text that has it."""


class _Merged:
    """What a redactor looks for: the known secrets, and what only looked like one."""

    def __init__(self, known: tuple[_Needle, ...], needles: tuple[_Needle, ...]) -> None:
        self.known = known
        self.all = needles
        self.longest = max((each.spelling.most for each in needles), default=0)
        self._gates = [
            tuple((gate, each) for each in needles for gate in each.spelling.gates[form]) for form in range(3)
        ]

    def gates(self, text: str) -> _Gates:
        """Return what to look for in a text."""
        return self._gates[form_of(text)] if self.all else ()


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
        self.learnt: dict[str, dict[str, _Needle]] = {}
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
        self._known = _Known(_sorted(_needles_of(known or {}).values()))
        self._likely: tuple[_Needle, ...] = ()
        self._merged = _Merged(self._known.needles, self._known.needles)

    @property
    def _needles(self) -> _Merged:
        merged = self._merged
        if merged.known is not self._known.needles:
            known = self._known.needles
            merged = self._merged = _Merged(known, _sorted([*known, *self._likely]))
        return merged

    def know(self, known: Mapping[str, str]) -> None:
        """Know these secrets too, by name, from now on and in every redactor that was made from this one."""
        named = _needles_of(known)
        with self._known.lock:
            self._known.named = _sorted(({each.text: each for each in self._known.named} | named).values())
            learnt = [each for each in self._known.needles if not each.name and each.text not in named]
            self._known.take(_sorted([*self._known.named, *learnt]))

    def learn(self, values: Iterable[str], source: str) -> None:
        """Mask these values too, from now on and in every redactor that was made from this one. They take the place
        of what was learnt from the same source, and have no name, so `known_in` does not find them."""
        forms = {each.text: _Needle(each, KNOWN, "") for value in values for each in spellings_of(value)}
        with self._known.lock:
            self._known.learnt[source] = forms
            learnt = dict(chain.from_iterable(each.items() for each in self._known.learnt.values()))
            named = {each.text: each for each in self._known.named}
            self._known.take(_sorted((learnt | named).values()))

    def also(self, values: Iterable[str]) -> Redactor:
        """Return a redactor that masks these values everywhere: what only looked like a secret in one place is masked
        in all places, unless it is probably a word.
        """
        telling = {value for value in values if _is_telling(value)}
        other = Redactor()
        other._known = self._known
        other._likely = (*self._likely, *(_Needle(Spelling(value), LIKELY, "") for value in telling))
        other._merged = _Merged((), other._likely)
        return other

    @property
    def longest_known(self) -> int:
        """Return the length of the longest form of a known secret, in characters."""
        return self._needles.longest

    def known_in(self, text: str) -> str:
        """Return the name of a known secret in the text, plain or in a common encoding; empty if it has no secret."""
        for gate, needle in self._needles.gates(text):
            if needle.name and gate in text and needle.spelling.is_in(text):
                return needle.name
        return ""

    def find(self, text: str, *, is_cut: bool = False) -> list[Span]:
        """Return the secret spans in order, without overlaps. If a text was cut off, the beginning of a known secret
        at its end counts too.
        """
        return self._find(text, open_parts(text), is_cut=is_cut)

    def _find(self, text: str, parts: list[Part], *, is_cut: bool) -> list[Span]:
        found: list[Span] = []
        needles = self._needles
        for gate, needle in needles.gates(text):
            if gate in text:
                found += [Span(*place, needle.kind) for place in needle.spelling.places(text)]
        if is_cut:
            found += _begun_at_end(text, needles.all)
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
        gates = self._needles.gates(text)
        return any(gate in text and needle.spelling.is_in(text) for gate, needle in gates) if gates else False

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


def _begun_at_end(text: str, needles: Iterable[_Needle]) -> Iterator[Span]:
    for needle in needles:
        at = needle.spelling.begun(text)
        if at is not None:
            yield Span(at, len(text), KNOWN)


def _needles_of(known: Mapping[str, str]) -> dict[str, _Needle]:
    """Return the forms of secrets, which are given by name."""
    return {
        each.text: _Needle(each, KNOWN, name) for name, value in known.items() for each in spellings_of(value)
    }


def _sorted(needles: Iterable[_Needle]) -> tuple[_Needle, ...]:
    return tuple(sorted(needles, key=lambda needle: len(needle.text), reverse=True))


def _is_telling(value: str) -> bool:
    """Return whether the value is certainly the same secret elsewhere: `admin` may just be the word."""
    return len(value) >= KNOWN_SECRET_MIN_CHARS or (
        len(value) >= _TELLING_MIN_CHARS and not value.isalpha() and not value.isdigit()
    )


def spellings_of(value: str) -> Iterator[Spelling]:
    """Return a value in all forms in which it is looked for; none if it is too short."""
    return spellings(value) if len(value) >= KNOWN_SECRET_MIN_CHARS else iter(())


class _Seen(Redactor):
    """A redactor for texts that another one has read already."""

    def find(self, text: str, *, is_cut: bool = False) -> list[Span]:
        return []

    def __call__(self, text: str, *, is_cut: bool = False) -> str:
        return text


_SEEN = _Seen()
