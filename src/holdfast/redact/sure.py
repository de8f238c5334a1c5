"""Masks the commonest secrets of a text where their form alone says what they are: passwords, keys and headers that
are all of a word or of a string.

All of these are found by the finders too. This saves the time of a text that is full of them: a search for a few
literal beginnings is ten times as fast as a gate, and most of what it finds needs no look around.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from holdfast.redact.assigned import find_passwords
from holdfast.redact.credentials import find_headers
from holdfast.redact.gates import Gate
from holdfast.redact.likely import GATE, Part, cut
from holdfast.redact.shapes import KEY_SIGN, find_beginning
from holdfast.redact.spans import Span, apart, mask, word_end

_UNSEEN_CHARS = 32_768
_PIECE_CHARS = 256
_HEADER = "uthorization: "
_KEYS = (
    "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "AKIA", "ASIA", "xoxb-", "xoxp-", "sk-ant-", "sk-proj-", "AIza",
    "npm_", "pypi-", "sk_live_", "eyJ", "hf_", "SG.",
)  # fmt: skip
_VALUE = (
    r"(?=[^\s\"]{4,64}[\s\"]|[^\s\"]{4,64}\Z)(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])"
    r"(?!(?i:your|change|placeholder|redacted|example|dummy|fake|goes|insert|replace|enter))"
    r"(?![^\s\"]*(?:[xX]{4}|EXAMPLE))[A-Za-z0-9]+(?:[!@#^+~?](?![ycprefdgiYCPREFDGI])[A-Za-z0-9]*)*"
)
_PASSWORDS = {
    name: re.compile(rf'({name}(?:{rest})?[Dd]"?[=:] ?(")?)({_VALUE})(?(2)(?=")|(?=\s|\Z))')
    for name, rest in (("passw", "or"), ("PASSW", "OR"))
}
"""A value behind such a name, in quotation marks or up to a blank."""
_MARKS = ("'", '"', "`")
_BEFORE = ("", " ", "\t", "\n", "=")
_KEYS_GATE = Gate(map(re.escape, _KEYS), _UNSEEN_CHARS)


def without_sure(text: str, parts: list[Part]) -> tuple[str, list[Part]]:
    """Return the text with the sure secrets of its open parts masked, and the parts that are open then."""
    if any(KEY_SIGN in text[begin:seen] for begin, _, seen in parts):
        return text, parts
    masked = [_masked_part(text, begin, end) for begin, end, _ in parts]
    if all(each == text[begin:end] for each, (begin, end, _) in zip(masked, parts, strict=True)):
        return text, parts
    done: list[str] = []
    left: list[tuple[int, int]] = []
    at = length = 0
    for each, (begin, end, _) in zip(masked, parts, strict=True):
        done += (text[at:begin], each)
        first = length + begin - at
        at, length = end, first + len(each)
        left.append((first, length))
    shown = "".join(done) + text[at:]
    seen = [(begin, end, cut(shown, end)[1]) for begin, end in left]
    return shown, [part for part in seen if GATE.is_open(shown[part[0] : part[2]])]


def _masked_part(text: str, begin: int, end: int) -> str:
    """Return the part with its sure secrets masked."""
    part = text[begin : end + 1]  # with the blank or the mark that ends it
    if _KEYS_GATE.is_open(part):
        part = _mask_sure(part, _keys(part))
    if _HEADER in part:
        part = _mask_sure(part, find_headers(part))
    for name, form in _PASSWORDS.items():
        if count := part.count(name):
            pieces = form.split(part)
            if len(pieces) > 1:
                count -= len(pieces) // 4
                pieces[2::4] = [""] * (len(pieces) // 4)
                pieces[3::4] = ["[redacted:password]"] * (len(pieces) // 4)
                part = "".join(pieces)
            if count:
                part = _mask_sure(part, find_passwords(part, name))
    return part[:-1] if end < len(text) else part


def _keys(part: str) -> Iterator[Span]:
    """Yield the keys of a part, which is looked at in pieces: most of them have none."""
    begin = 0
    while begin < len(part):
        end = word_end(part, begin + _PIECE_CHARS)
        piece = part[begin:end]
        if _KEYS_GATE.is_open(piece):
            yield from find_beginning(part, begin, end, [key for key in _KEYS if key in piece])
        begin = end


def _mask_sure(part: str, spans: Iterable[Span]) -> str:
    sure = [span for span in spans if _is_sure(part, span)]
    return mask(part, apart(sure)) if sure else part


def _is_sure(part: str, span: Span) -> bool:
    """Return whether the span is all of a string or of a word."""
    before, after = part[max(span.start - 1, 0) : span.start], part[span.end : span.end + 1]
    if before in _MARKS:
        return before == after
    return before in _BEFORE and (after.isspace() or not after)
