"""Judges how a value looks: random like a key, several words like a passphrase, or invented to show where a key
would be.

It does not look at the value's place.
"""

from __future__ import annotations

import re
from itertools import pairwise
from operator import ne

COUNTED_MIN_CHARS = 12
"""A run like `abcdef` or `123456` of this length is not random."""

_COUNTED = "".join(map(chr, range(128))) + " 567890123456789012345"
"""Whatever counts up, in ASCII."""
_SEEN_CHARS = 256
"""A longer value is judged by its beginning."""
_DISTINCT_MIN = 7
_SEPARATORS_SHARE = 0.15
_CHANGES_SHARE = 0.4
"""Neighbours of different kinds, if both cases are used: six of ten in random text, one or two in words."""
_DIGITS_SHARE = 0.1
"""The least share of digits, if only one case is used: three of ten in random text."""


_SAID = frozenset((
    "enter", "your", "you", "please", "must", "should", "may", "type", "choose", "pick", "set", "reset", "change",
    "changed", "forgot", "forgotten", "confirm", "repeat", "again", "new", "old", "current", "wrong", "invalid",
    "incorrect", "valid", "missing", "required", "optional", "empty", "blank", "none", "not", "the", "this", "that",
    "these", "for", "with", "and", "from", "into", "too", "short", "long", "weak", "strong", "least", "more",
    "than", "characters", "digits", "letters", "match", "matches", "does", "did", "cannot", "can", "could", "will",
    "has", "have", "been", "are", "was", "were", "per", "via", "all", "any", "some", "each", "password",
    "passwords", "passphrase", "passwd", "pass", "word", "words", "secret", "key", "token", "login", "log", "sign",
    "user", "users", "username", "name", "account", "email", "mail", "field", "value", "input", "string", "text",
    "hint", "label", "help", "show", "hide", "see", "visible", "hidden", "example", "sample", "default", "same",
    "only", "when", "where", "here", "there", "before", "after", "expired", "saved", "updated", "sent", "link",
    "code", "prompt", "hash", "hashed", "encrypted", "plain", "masked", "redacted", "passwort", "kennwort", "ihr",
    "bitte", "eingeben", "vergessen", "mot", "passe", "votre", "saisir", "oublie", "clave", "senha", "parola",
    "wachtwoord", "vergeten", "haslo", "heslo",
))  # fmt: skip
"""Words of labels, hints and errors. A text with one of them does not count as a passphrase."""
_WORDS = re.compile(r"[a-z]{3,24}(?: [a-z]{3,24}){1,11}")
_WORDS_MIN_CHARS = 10
_TEXT = re.compile(r"[^\W\d_]+(?:,? [^\W\d_]+){1,40}[.?!:…]{0,3}")


def is_passphrase(value: str) -> bool:
    """Return whether a value of several words may be a passphrase: small letters, and no word of a label, a hint or a
    sentence.
    """
    return (
        len(value) >= _WORDS_MIN_CHARS
        and _WORDS.fullmatch(value) is not None
        and _SAID.isdisjoint(value.split(" "))
    )


def is_sentence(value: str) -> bool:
    """Return whether a value is a label, a hint or an error in words."""
    is_text = _TEXT.fullmatch(value) is not None
    return is_text and not _SAID.isdisjoint(re.findall(r"\w+", value.lower()))


def is_specimen(value: str) -> bool:
    """Return whether the value only shows its shape."""
    lowered = value.lower()
    return "xxxx" in lowered or lowered.endswith("example") or "..." in value


def is_counted(value: str) -> bool:
    """Return whether a long part of the value only counts up."""
    lowered = value[:_SEEN_CHARS].lower()
    half = COUNTED_MIN_CHARS // 2
    if value.isascii() and not any(
        lowered[at : at + half] in _COUNTED for at in range(0, len(lowered), half)
    ):
        return False  # a whole half of such a run would be among these
    run = 1
    for one, next_one in pairwise(lowered):
        run = run + 1 if ord(next_one) - ord(one) == 1 or one + next_one == "90" else 1
        if run >= COUNTED_MIN_CHARS:
            return True
    return False


def is_drawn(value: str) -> bool:
    """Return whether the value may be random: not words, not a sample, nothing that counts up or repeats."""
    value = value[:_SEEN_CHARS]
    lowered = value.lower()
    if "example" in lowered or len(set(lowered)) < _DISTINCT_MIN or is_counted(value):
        return False
    length = len(value)
    separators = 0 if value.isalnum() else sum(not character.isalnum() for character in value)
    if separators > length * _SEPARATORS_SHARE:
        return False
    if value in (lowered, value.upper()):
        return sum(map(str.isdigit, value)) >= length * _DIGITS_SHARE
    kinds = value.translate(_KINDS)
    changes: int = sum(map(ne, kinds, kinds[1:]))
    return changes >= (length - 1) * _CHANGES_SHARE


def _kind(character: str) -> str:
    return str(character.isalpha() + 2 * character.isupper() + 4 * character.isdigit())


_KINDS = {code: _kind(chr(code)) for code in range(0x250)}
"""The kinds of letters in Latin scripts. Elsewhere, each character is a kind of its own."""
