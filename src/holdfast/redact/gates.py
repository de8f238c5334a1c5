"""Gates before the patterns: one fast search that tells whether any pattern can match a text.

`re` needs many passes to know that a text has no secret. The engine of JSON Schema's `pattern` tries all
alternatives in one pass, in linear time and about fifty times as fast. But it has no look-around, and does not have
Python's idea of a word, a digit or a space. So a gate asks for less than its pattern, never for more: an open gate
proves nothing, a closed one proves that there is no match.

Loading the engine and making a gate costs as much as searching a hundred thousand characters with `re`. So a gate is
used only in a process that searches more than that.

Other modules decide what is secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property

_STATES_MAX_BYTES = 16 * 1024 * 1024
"""The engine builds its states as texts need them. Without room for them it would be slow."""
_LOOK_AROUND = re.compile(r"\(\?<?[=!][^()]*\)|\\b")
_GROUP_NAME = re.compile(r"\?P<\w+>")
_COUNT = re.compile(r"(?<!x)\{(\d+)(?:,(\d*))?\}")
_COUNT_MAX = 20
"""The engine has a state for each character that it counts, and is fast only while these are few."""
_CLASS = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\[wds]")
_WIDER = {
    r"\w": r"A-Za-z0-9_\x{80}-\x{10ffff}",
    r"\d": r"0-9\x{80}-\x{10ffff}",
    r"\s": r"\x00- \x7f-\x{10ffff}",
}
"""Classes that contain everything that Python's class does: letters, digits and spaces of every script."""
_NARROWER = {r"\w": "A-Za-z0-9_", r"\d": "0-9", r"\s": r" \t\n\r"}
"""Classes that contain nothing that Python's class does not, for what must not be in a place."""


class Gate:
    """Open for every text in which one of the patterns matches, and closed for nearly every other.

    Until it is made, texts of up to `unseen_chars` characters together pass without a search.
    """

    def __init__(self, patterns: Iterable[str], unseen_chars: int = 0) -> None:
        self._patterns = patterns
        self._unseen_chars = unseen_chars

    def is_open(self, text: str) -> bool:
        """Return whether a pattern may match the text."""
        if self._unseen_chars and len(text) <= self._unseen_chars:
            self._unseen_chars -= len(text)
            return True
        try:
            return self._matches(text)
        except UnicodeEncodeError:  # a lone surrogate, which the engine does not accept
            return True

    @property
    def is_made(self) -> bool:
        """Return whether texts are searched by now."""
        return not self._unseen_chars

    def is_shut(self, text: str) -> bool:
        """Return whether no pattern can match the text; False while texts pass without a search."""
        return len(text) > self._unseen_chars and not self.is_open(text)

    @cached_property
    def _matches(self) -> Callable[[str], bool]:
        import jsonschema_rs  # slow to import: loaded with the first text that is searched

        self._unseen_chars = 0
        pattern = "|".join(f"(?:{pattern})" for pattern in self._patterns)
        options = jsonschema_rs.RegexOptions(dfa_size_limit=_STATES_MAX_BYTES)
        return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options).is_valid


def unlike(
    words: Iterable[str], but: Callable[[str, int], str], end: Callable[[int], str], depth: int = 0
) -> str:
    """Return a gate's pattern for a value other than the words, up to where that is certain.

    Args:
        words: In small letters. Capitals count as small letters.
        but: Returns the pattern for any character except these letters, and for what has to follow at this depth.
        end: Returns the pattern for the end of a value of that length; nothing if such a value does not count.
    """
    known = set(words)
    heads = sorted({word[0] for word in known if word})
    ways = [but("".join(heads + [head.upper() for head in heads]), depth)]
    for head in heads:
        tails = {word[1:] for word in known if word.startswith(head)}
        ways.append(f"[{head}{head.upper()}]{unlike(tails, but, end, depth + 1)}")
    if "" not in known and (ended := end(depth)):
        ways.append(ended)
    return f"(?:{'|'.join(ways)})"


def widened(pattern: str) -> str:
    """Return the pattern for a gate: without look-around and names of groups, and with no narrower counts and
    classes.
    """
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
    # Adding the other cases of every letter takes the engine milliseconds. It changes nothing for a class
    # with all of them, and a negated class without them only contains more.
    return f"(?-i:{found})" if is_negated else found
