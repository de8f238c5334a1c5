"""Masks the arguments of a call for storage: valid JSON, with every secret masked, and a list of what was masked.

Known secrets and what only looks like one are masked alike. A gate refuses calls with known secrets; `originals`
keeps the originals.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.protocol.codec import encode_json
from holdfast.protocol.untrusted import decode_untrusted
from holdfast.redact import Redactor, Span
from holdfast.redact.deep import in_every_text

_NAMED_CHARS = 512
"""A longer text is not a secret just because of its name."""
_UNREADABLE = '{"arguments":"[redacted:secret]"}'


class Masked(msgspec.Struct, frozen=True):
    """A copy, and the secrets that it hides. Without any, the copy is the original text."""

    text: str
    values: tuple[str, ...]


def masked_copy(arguments: str, redact: Redactor) -> Masked:
    """Return the arguments as they may be stored. An escape (`\\u0070assword`) hides nothing, and a mask breaks no
    JSON.
    """
    if "\\" not in arguments and not redact.find(arguments):
        return Masked(arguments, ())
    try:
        value = decode_untrusted(arguments)
    except msgspec.DecodeError:  # it will not run, so nobody needs to read it as JSON
        return Masked(redact(arguments), _stretches(arguments, redact.find(arguments)))
    masking = _Masking(redact)
    masked = masking.masked(value)
    copy = arguments
    if masking.values:  # what was found in one place is also secret in another
        copy = encode_json(in_every_text(redact.also(masking.values), masked)).decode()
    # Some secrets show only across the borders of values, and escapes can look like secrets.
    spans = [] if "\\" in copy else redact.find(copy)
    if spans:
        masking.values += _stretches(copy, spans)
        copy = redact(copy)
    return Masked(copy if not spans or _is_json(copy) else _UNREADABLE, tuple(masking.values))


class _Masking:
    """Walks through a decoded value, and records what it masked."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self.values: list[str] = []

    def masked(self, value: Any, name: str = "") -> Any:
        """Return the value without its secrets, including those that are secret because of their name."""
        match value:
            case str():
                return self._text(value, name)
            case dict():
                return {self._text(key, ""): self.masked(each, key) for key, each in value.items()}
            case list():
                return [self.masked(each) for each in value]
            case bool() | None:
                return value
            case _:  # a number, which may be a card number
                written = str(value)
                masked = self._text(written, name)
                return value if masked == written else masked

    def _text(self, text: str, name: str) -> str:
        spans = self._redact.find(text)
        if spans:
            self.values += _stretches(text, spans)
            return self._redact(text)
        if not name or not text:
            return text
        head = f'"{name}":"'
        for span in self._redact.find(f'{head}{text[:_NAMED_CHARS]}"'):
            if span.end > len(head):
                self.values.append(text)
                return f"[redacted:{span.kind}]"
        return text


def _stretches(text: str, spans: list[Span]) -> tuple[str, ...]:
    return tuple(text[span.start : span.end] for span in spans)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True
