"""Gates before the patterns: one fast look at a text that tells whether any of them can match it.

`re` needs many passes over a text to know that it holds nothing. The engine behind the `pattern` of a JSON
schema takes all alternatives in one pass, in linear time, some fifty times as fast, but it knows neither
look-around nor Python's idea of a word, a digit or a blank. So a gate asks for less than the pattern behind it
asks for, never for more: an open gate means nothing, a closed one that there is no match.

To load the engine and make a gate costs as much as looking through a hundred thousand characters with `re`, so a
gate looks only when a process has more than that to look through.

What is secret is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property

_STATES_MAX_BYTES = 16 * 1024 * 1024
"""The engine builds its states as texts need them; were it to run out of room, it would be slow."""
_LOOK_AROUND = re.compile(r"\(\?<?[=!][^()]*\)|\\b")
_GROUP_NAME = re.compile(r"\?P<\w+>")
_COUNT = re.compile(r"(?<!x)\{(\d+)(?:,(\d*))?\}")
_COUNT_MAX = 20
"""The engine has a state for each character that it counts, and is only fast while these are few."""
_CLASS = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\[wds]")
_WIDER = {
    r"\w": r"A-Za-z0-9_\x{80}-\x{10ffff}",
    r"\d": r"0-9\x{80}-\x{10ffff}",
    r"\s": r"\x00- \x7f-\x{10ffff}",
}
"""What holds all that the class holds in Python, which counts letters, digits and blanks of every script."""
_NARROWER = {r"\w": "A-Za-z0-9_", r"\d": "0-9", r"\s": r" \t\n\r"}
"""What holds nothing that the class does not hold, for what shall not stand somewhere."""


class Gate:
    """Open for every text in which one of the patterns matches, and shut for nearly every other.

    The first `unseen_chars` characters that it is asked about pass unseen.
    """

    def __init__(self, patterns: Iterable[str], unseen_chars: int = 0) -> None:
        self._patterns = patterns
        self._unseen_chars = unseen_chars

    def is_open(self, text: str) -> bool:
        """Whether a pattern may match the text."""
        if len(text) <= self._unseen_chars:
            self._unseen_chars -= len(text)
            return True
        try:
            return self._matches(text)
        except UnicodeEncodeError:  # a lone surrogate, which the engine cannot be given
            return True

    def is_shut(self, text: str) -> bool:
        """Whether no pattern can match the text: False as long as texts pass unseen."""
        return len(text) > self._unseen_chars and not self.is_open(text)

    @cached_property
    def _matches(self) -> Callable[[str], bool]:
        import jsonschema_rs  # heavy: loaded with the first text that is looked at

        pattern = "|".join(f"(?:{pattern})" for pattern in self._patterns)
        options = jsonschema_rs.RegexOptions(dfa_size_limit=_STATES_MAX_BYTES)
        return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options).is_valid


def widened(pattern: str) -> str:
    """The pattern as a gate takes it: no look-around, no names of groups, counts and classes no narrower."""
    pattern = _GROUP_NAME.sub("?:", _LOOK_AROUND.sub("", pattern))
    if pattern.startswith("(?i)"):  # Python alone takes these two for cases of the letter i
        pattern = "(?i)" + pattern[4:].replace("i", r"[i\x{130}\x{131}]").replace("a-z", r"a-z\x{130}\x{131}")
    return _CLASS.sub(_widened_class, _COUNT.sub(_widened_count, pattern))


def _widened_count(match: re.Match[str]) -> str:
    least, most = int(match[1]), match[1] if match[2] is None else match[2]
    return match[0] if most and int(most) <= _COUNT_MAX else f"{{{min(least, _COUNT_MAX)},}}"


def _widened_class(match: re.Match[str]) -> str:
    found = match[0]
    if found in _WIDER:
        return f"(?-i:[{_WIDER[found]}])"
    is_negated = found.startswith("[^")
    for name, wide in (_NARROWER if is_negated else _WIDER).items():
        found = found.replace(name, wide)
    # To add the other cases of every letter there is takes the engine milliseconds. It changes nothing for a
    # class that holds them all, and a negated class without them only holds more.
    return f"(?-i:{found})" if is_negated else found
