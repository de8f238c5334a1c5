"""What `xargs` gets from the commands before it: names that `find` or git prints, and that others leave out."""

from __future__ import annotations

import re

from holdfast.policy.programs_git import uses_of_git
from holdfast.policy.programs_options import Reading, is_plain_pattern
from holdfast.policy.programs_search import printed_by_find
from holdfast.policy.simple import Found, SimpleCommand, Word

_OPTIONS = frozenset({
    "-0", "--null", "-r", "--no-run-if-empty", "-t", "--verbose", "-x", "--exit", "-n", "--max-args", "-P",
    "--max-procs", "-I",
})  # fmt: skip
"""Options of `xargs` that change nothing about the words that it hands on."""
_OF_GREP = re.compile(r"-[vEFiwx]+")
_OF_SORT = re.compile(r"-[ur]+")
_PLACE = re.compile(r"(?!-)(?:(?!\.\.)[\w.]+/)*(?:(?!\.\.)[\w.]+|[\w.-]*\*[\w.*-]*)/?", re.ASCII)
"""A path of the folder, or a pattern that is only its last part."""
_COUNT = re.compile(r"-n?[0-9]+")


def words_from(command: SimpleCommand, reading: Reading) -> tuple[Word, ...]:
    """Return the words that `xargs` adds, as far as they are known; empty if nothing is known about them."""
    feeds = command.feeds
    if not feeds or any("<" in to.operator for each in (*feeds[1:], command) for to in each.redirections):
        return ()
    if not {each.option.name for each in reading.given} <= _OPTIONS or not all(map(_keeps_lines, feeds[1:])):
        return ()
    words = printed_by_find(feeds[0]) or printed_by_git(feeds[0])
    is_split = not reading.has("-0", "--null")
    if any(word.found is None or word.found.is_split != is_split for word in words):
        return ()
    return words if is_split or len(feeds) == 1 else ()


def printed_by_git(command: SimpleCommand) -> tuple[Word, ...]:
    """Return what `git ls-files` prints, as words; empty if it is another command, or lists other files."""
    if command.texts[:2] != ("git", "ls-files") or uses_of_git(command, "git").asks:
        return ()
    given = [text for text in command.texts[2:] if text != "--"]
    places = [text for text in given if text not in ("-z", "-c", "--cached")]
    if not all(map(_PLACE.fullmatch, places)) or any(word.is_glob for word in command.words):
        return ()
    return tuple([_below(text, is_split="-z" not in given) for text in places or ["."]])


def _below(place: str, *, is_split: bool) -> Word:
    """Return what git knows at a place, or in it, or under its name in any folder below."""
    folder, _, name = place.rpartition("/")
    if "*" not in place:
        folder, name = place, ""
    names = (name.casefold(),) if name and is_plain_pattern(name) else ()
    return Word(folder or ".", is_known=False, found=Found(names, is_split=is_split, is_bare=not folder))


def _keeps_lines(command: SimpleCommand) -> bool:
    """Return whether a command prints nothing but some of the lines that it reads from its input."""
    if command.assigned or not all(word.is_known and not word.is_glob for word in command.words):
        return False
    match command.texts:
        case ("sort", *options):
            return all(map(_OF_SORT.fullmatch, options))
        case ("grep", *options, pattern):
            return all(map(_OF_GREP.fullmatch, options)) and pattern[:1] != "-"
        case ("head" | "tail", "-n", count):
            return count.isdecimal()
        case ("head" | "tail", *counts):
            return len(counts) < 2 and all(map(_COUNT.fullmatch, counts))
    return False
