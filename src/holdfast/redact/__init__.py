"""Replaces secrets in text with `[redacted:KIND]`, before it is stored, logged or shown.

It finds three kinds: values that are known to be secret (also in their common encodings), shapes that only a
credential has, and values in a secret's place (`password = ...`, an Authorization header, the user part of a URL).
Hashes, UUIDs and base64 alone are not secrets. Placeholders, and code that only names a secret, stay. A card number
needs the issuer's prefix, the length and the check digit: one random number in ten with such a prefix has them too,
and is masked.

The callers decide where to mask, and what to do with a text that contains a secret.
"""

from __future__ import annotations

from holdfast.redact.likely import GATE
from holdfast.redact.part import (
    AROUND_CHARS,
    begin_of,
    border_of,
    part_of,
    reach_bytes_of,
    reach_of,
    split_at,
    split_bytes_at,
)
from holdfast.redact.redactor import (
    KNOWN_SECRET_MIN_CHARS,
    Redactor,
    ever_known,
    make_redactor,
    spellings_of,
)
from holdfast.redact.spans import Span
from holdfast.redact.stream import STREAM_PENDING_MAX_CHARS, StreamRedactor

__all__ = [
    "AROUND_CHARS",
    "GATE",
    "KNOWN_SECRET_MIN_CHARS",
    "STREAM_PENDING_MAX_CHARS",
    "Redactor",
    "Span",
    "StreamRedactor",
    "begin_of",
    "border_of",
    "ever_known",
    "make_redactor",
    "part_of",
    "reach_bytes_of",
    "reach_of",
    "spellings_of",
    "split_at",
    "split_bytes_at",
]
