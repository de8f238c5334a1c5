"""Reads the words of a command by the row of its program: which options and operands read, write, run or send.

A row is data: lists of options as their manual writes them, and what the operands are. An option ends with `=` if it
takes a value, with `==` if it takes two, and with `?` if it takes one only when it is attached. An option that the
row does not have makes a person look, so a row need not be complete. It must be complete in one respect: an option of
the row may be abbreviated only to what no other option of the program begins with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from holdfast.policy.protected import WILDCARDS
from holdfast.policy.simple import Word
from holdfast.policy.uses import NOTHING, Depth, Use, Uses, merged, unknown
from holdfast.redact import begin_of

Meaning = Literal["plain", "read", "write", "list", "run", "ask", "deny"]

_PLAIN_PATTERN = re.compile(r"[\w.+*?-]+", re.ASCII)
"""A pattern of names that programs read alike."""
_MOST_PATTERNS = 16
"""With more, every name counts: to compare each with so many takes long."""
HARMLESS_DEVICES = frozenset(
    {
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/stdin",
        "/dev/stdout",
        "/dev/stderr",
    }
)
_READ_SHAPES = frozenset({"text", "text*", "read", "read*", "rev*"})
_DIGITS = " ".join(f"-{digit}" for digit in "0123456789")


class Program(NamedTuple):
    """A row of the table: what the options and operands of a program do."""

    operands: str = "read*"
    """What the operands are, in order; `*` repeats one as often as there is room. An operand too many makes a person
    look.

    `text` is only text. `read`. `write`: it is replaced. `make`: it is made, added to or deleted. `tree`: a write to
    everything under it. `rev`: a version, with a path after its colon. `format`: only text if it
    begins with `+`. `ask`: nobody knows.
    """
    plain: str = ""
    """Options that only change how it works or what it prints."""
    reads: str = ""
    writes: str = ""
    lists: str = ""
    """Options whose value is a file with names of more files."""
    runs: str = ""
    """Options that run another program."""
    asks: str = ""
    """Options for which a person must look."""
    denies: str = ""
    """Options that lead around the list of hosts."""
    stands_in: str = ""
    """Options that take the place of the first operand."""
    without: str = ""
    """What it reads if no operand is a path."""
    walks: str = ""
    """Options with which `without` counts; empty: it always counts."""
    searches: Depth = ""
    """What it reads of a folder, if `without` counts."""
    is_listing: bool = False
    """Whether it only prints the names of what it finds in a folder."""
    links: str = ""
    """Options with which it also reads what links in a folder lead to."""
    everything: str = ""
    """Options with which it reads all files of a folder."""
    picks: str = ""
    """Options whose values are patterns of the names that it reads. `!` before one leaves them out."""
    drops: str = ""
    """Options that leave files out. Before the first that picks some, they let it read all others."""
    is_ordered: bool = False
    """Whether its options end at the first operand."""
    risk: str = ""
    """Why a person must always look, as a part of a sentence: `changes who may use a file`."""
    has_numbers: bool = False
    """Whether `-20` is an option."""
    at_files: bool = False
    """Whether `@FILE` stands for the words in a file."""

    def also(
        self, plain: str = "", reads: str = "", writes: str = "", runs: str = "", asks: str = ""
    ) -> Program:
        """Return the row with more options."""
        return self._replace(
            plain=f"{self.plain} {plain}",
            reads=f"{self.reads} {reads}",
            writes=f"{self.writes} {writes}",
            runs=f"{self.runs} {runs}",
            asks=f"{self.asks} {asks}",
        )


class Option(NamedTuple):
    """An option of a row."""

    name: str
    meaning: Meaning
    values: int
    """How many words follow it as its values."""
    is_attached: bool
    """Whether it takes a value only as a part of its own word."""


class Given(NamedTuple):
    """An option as a command gives it."""

    option: Option
    values: tuple[Word, ...] = ()


class Reading(msgspec.Struct, frozen=True):
    """The words of a command, sorted by the row of its program."""

    given: tuple[Given, ...]
    operands: tuple[Word, ...]
    strange: str = ""
    """The first option that the row does not have, or that could be several; empty if there is no such option."""

    def has(self, *names: str) -> bool:
        """Return whether one of the options is given."""
        return any(each.option.name in names for each in self.given)

    def values(self, *names: str) -> tuple[Word, ...]:
        """Return the values of these options, in order."""
        return tuple([word for each in self.given if each.option.name in names for word in each.values])


_KINDS: tuple[tuple[str, Meaning], ...] = (
    ("plain", "plain"), ("reads", "read"), ("writes", "write"), ("lists", "list"), ("runs", "run"), ("asks", "ask"),
    ("denies", "deny"),
)  # fmt: skip


class _Row(msgspec.Struct, frozen=True):
    """A row with its lists read."""

    options: Mapping[str, Option]
    shape: tuple[str, ...]
    """What the operands are."""
    stands_in: tuple[str, ...]
    walks: tuple[str, ...]
    links: tuple[str, ...]
    everything: tuple[str, ...]
    picks: tuple[str, ...]
    chooses: tuple[str, ...]
    """What picks files, and what leaves them out."""
    is_harmless: bool
    """Whether no word can make the program do more than print."""
    may_run: bool
    """Whether an option runs another program."""


@lru_cache(maxsize=1_024)
def _row(program: Program) -> _Row:
    options: dict[str, Option] = {}
    extra = "--help --version " + (_DIGITS if program.has_numbers else "")
    for kind, meaning in _KINDS:
        written = getattr(program, kind) + (f" {extra}" if kind == "plain" else "")
        for text in written.split():
            name = text.rstrip("=?")
            options[name] = Option(name, meaning, text.count("="), text.endswith("?"))
    only_prints = {option.meaning for option in options.values()} == {"plain"}
    return _Row(
        options,
        tuple(program.operands.split()),
        tuple(program.stands_in.split()),
        tuple(program.walks.split()),
        tuple(program.links.split()),
        tuple(program.everything.split()),
        tuple(program.picks.split()),
        tuple(f"{program.picks} {program.drops}".split()),
        only_prints and program.operands == "text*" and not program.risk,
        bool(program.runs),
    )


def reading_of(program: Program, words: Sequence[Word]) -> Reading:
    """Sort the words after the name of a program."""
    row = _row(program)
    options = row.options
    given: list[Given] = []
    operands: list[Word] = []
    strange = ""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        text = word.text
        if text[:1] != "-" or len(text) < 2 or not word.is_known:
            operands.append(word)
            if not program.is_ordered:
                continue
            break
        if text == "--":
            break
        long = text.partition("=")[0]
        is_long = text.startswith("--") or (len(long) > 2 and long in options)
        found = _long(options, word) if is_long else _short(options, word)
        strange = strange or _strange(found, word, row)
        most = 0
        for each in found:
            missing = each.option.values - len(each.values)
            if missing > 0:
                most = max(most, missing)
                each = each._replace(values=(*each.values, *words[at : at + missing]))
            given.append(each)
        if most and not strange:
            strange = next((each.text for each in words[at : at + most] if each.is_glob or each.found), "")
        at += most
    return Reading(tuple(given), (*operands, *words[at:]), strange)


def _long(options: Mapping[str, Option], word: Word) -> list[Given]:
    """Return every option that a long one may be: an abbreviation may be several."""
    name, equals, value = word.text.partition("=")
    exact = options.get(name)
    found = [exact] if exact else [each for key, each in options.items() if key.startswith(name)]
    values = (word._replace(text=value),) if equals else ()
    return [Given(option, values) for option in found]


_UNKNOWN = Given(Option("", "ask", 0, is_attached=False))


def _short(options: Mapping[str, Option], word: Word) -> list[Given]:
    text, found = word.text, list[Given]()
    for at in range(1, len(text)):
        option, is_last = options.get(f"-{text[at]}"), at + 1 == len(text)
        # After a number, a letter may be its unit and take no value: `head -5c FILE`.
        if option is None or (option.values and is_last and text[1].isdecimal() and at > 1):
            return [*found, _UNKNOWN]
        if (option.values or option.is_attached) and not is_last:
            return [*found, Given(option, (word._replace(text=text[at + 1 :]),))]
        found.append(Given(option))
    return found


def _strange(found: Sequence[Given], word: Word, row: _Row) -> str:
    if not found or "" in [each.option.name for each in found]:
        return word.text
    if word.is_glob and not _stays_option(found, word, row):
        return word.text
    is_several = len(found) > 1 and word.text.startswith("--")
    return word.text if is_several and len({each.option[1:] for each in found}) > 1 else ""


def _stays_option(found: Sequence[Given], word: Word, row: _Row) -> bool:
    """Return whether a word stays an option that picks files, whatever names it matches: `--include=*.py`."""
    name, equals, _ = word.text.partition("=")
    is_named = bool(equals) and word.is_known and WILDCARDS.isdisjoint(name)
    return is_named and all(
        each.option.name in row.chooses and each.option.meaning == "plain" for each in found
    )


# --- what the words do ----------------------------------------------------------------------------


def uses_by_row(name: str, program: Program, words: Sequence[Word]) -> Uses:
    """Return what a command does by the row of its program.

    Args:
        name: The program, for people.
        program: Its row.
        words: The words after the name.
    """
    reading = reading_of(program, words)
    by_option = [_by_option(name, each) for each in reading.given if each.option.meaning != "plain"]
    return merged([doubts(name, program, words, reading), *by_option, by_operands(name, program, reading)])


def doubts(name: str, program: Program, words: Sequence[Word], reading: Reading) -> Uses:
    """Return why the words of a command cannot be relied on: what is asked, and the files that its patterns name."""
    files = tuple([Use("read", word) for word in words if word.is_glob and word.is_known])
    if program.risk:
        return Uses(files, asks=f"`{name}` {program.risk}.")
    if reading.strange:
        is_matched = any(word.is_glob and word.text == reading.strange for word in words)
        why = "needs quotes, or the shell may replace it by names of files" if is_matched else "is not known"
        what = f"`{shown(reading.strange)}`" if is_matched else f"The option `{shown(reading.strange)}`"
        return Uses(files, asks=f"{what} of `{name}` {why}.")
    if _row(program).is_harmless:
        return Uses(files)
    if any(not (word.is_known or (word.found and _only_reads(program))) for word in words):
        is_unknown = not program.writes and _READ_SHAPES.issuperset(_row(program).shape)
        return Uses(files, asks=f"A word of `{name}` is known only when it runs.", is_unknown=is_unknown)
    files += tuple([Use("read", word) for word in words if word.found])
    if program.at_files and any(word.text.startswith("@") for word in words):
        return Uses(files, asks=f"`{name}` reads more words from a file.")
    return Uses(files) if files else NOTHING


def _only_reads(program: Program) -> bool:
    """Return whether every operand is a text or a file that is read, however many there are."""
    shape = _row(program).shape
    return "read*" in shape and {"text", "read", "read*"}.issuperset(shape)


def _by_option(name: str, given: Given) -> Uses:
    option, words = given.option, given.values
    match option.meaning:
        case "read":
            return Uses(tuple(map(_read, words)))
        case "write":
            return Uses(
                tuple([Use("write", word, overwrites=True) for word in words if not _is_device(word)])
            )
        case "list":
            return Uses(
                tuple(map(_read, words)),
                asks=f"`{option.name}` of `{name}` reads files that another names.",
                is_unknown=True,
            )
        case "run":
            scripts = tuple([word for word in words if word.is_known and not word.is_glob])
            return unknown(f"`{option.name}` of `{name}` runs another program.")._replace(scripts=scripts)
        case "deny":
            return Uses(denies=f"`{option.name}` of `{name}` leads around the list of hosts.")
        case _:
            return Uses(asks=f"`{option.name or 'An option'}` of `{name}` needs approval.")


def by_operands(name: str, program: Program, reading: Reading) -> Uses:
    """Return what the operands of a command do."""
    row, operands = _row(program), reading.operands
    shape = row.shape
    if row.stands_in and reading.has(*row.stands_in):
        shape = shape[1:]
    if len(shape) > 1:
        shape = _spread(shape, len(operands))
    is_walking = not row.walks or reading.has(*row.walks)
    search = _search(program, row, reading) if is_walking else None
    found = [_by_operand(name, shape, at, word, search) for at, word in enumerate(operands)]
    wild = next((word.text for word in operands[: len(shape) - 1] if word.is_glob), "") if operands else ""
    if wild and not _READ_SHAPES.issuperset(shape):
        found.append(Uses(asks=f"`{shown(wild)}` may become several operands of `{name}`."))
    # A value of an option, or a part of a command, may be taken for a path.
    is_doubtful = bool(program.risk and reading.strange) or (program.is_listing and _runs(row, reading))
    if program.without and is_walking and (is_doubtful or len(operands) <= shape.count("text")):
        found.append(_searched(Uses((_read(Word(program.without)),)), search))
    return merged(found)


def _spread(shape: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Return a shape with an operand that is repeated before the last one, as often as there is room."""
    if not shape[-2].endswith("*"):
        return shape
    return (*shape[:-2], *[shape[-2].rstrip("*")] * (count - len(shape) + 1), shape[-1])


def _runs(row: _Row, reading: Reading) -> bool:
    return row.may_run and "run" in [each.option.meaning for each in reading.given]


class _Search(NamedTuple):
    """What a program reads of folders."""

    deep: Depth
    picked: tuple[str, ...]
    is_listed: bool


def _search(program: Program, row: _Row, reading: Reading) -> _Search | None:
    is_listing = program.is_listing and not _runs(row, reading)
    choosing = [each for each in reading.given if each.option.name in row.chooses] if row.chooses else []
    wanted = [word.text for each in choosing if each.option.name in row.picks for word in each.values]
    wanted = [text.casefold() for text in wanted if text[:1] != "!"]
    if wanted:  # what is named is read, hidden or not
        is_first = len(wanted) <= _MOST_PATTERNS and choosing[0].option.name in row.picks
        is_plain = is_first and all(map(is_plain_pattern, wanted))
        return _Search("all", tuple(wanted) if is_plain else (), is_listing)
    deep = program.searches
    if row.links and reading.has(*row.links):
        deep = "links"
    elif row.everything and reading.has(*row.everything):
        deep = "all"
    return _Search(deep, (), is_listing) if deep else None


def is_plain_pattern(text: str) -> bool:
    """Return whether programs read a pattern of names alike."""
    return bool(_PLAIN_PATTERN.fullmatch(text))


def _searched(uses: Uses, search: _Search | None) -> Uses:
    if search is None:
        return uses
    deep, picked, is_listed = search
    files = [Use(access, word, lost, deep, picked, False, is_listed) for access, word, lost, *_ in uses.files]
    return Uses(tuple(files), *uses[1:])


def _by_operand(name: str, shape: Sequence[str], at: int, word: Word, search: _Search | None) -> Uses:
    last = shape[-1] if shape else ""
    meaning = shape[at] if at < len(shape) else last if last.endswith("*") else ""
    return _searched(operand_uses(name, meaning.rstrip("*"), word), search)


def operand_uses(name: str, meaning: str, word: Word) -> Uses:
    """Return what one operand does."""
    if meaning == "text":
        return NOTHING
    if meaning == "read":
        return NOTHING if word.text == "-" or _is_device(word) else Uses((_read(word),))
    if meaning == "rev":
        _, colon, path = word.text.rpartition(":")
        versions = (_read(word._replace(text=path)),) if colon and path else ()
        return Uses((_read(word), *versions))
    if meaning == "format" and word.text.startswith("+"):
        return Uses()
    if meaning in ("write", "make", "tree"):
        if _is_device(word):
            return Uses()
        asks = f"`{name}` changes every file that `{shown(word.text)}` matches." if word.is_glob else ""
        access: Literal["write", "tree"] = "tree" if meaning == "tree" else "write"
        return Uses((Use(access, word, overwrites=meaning != "make"),), asks=asks)
    return Uses(asks=f"`{shown(word.text)}` as an operand of `{name}` needs approval.")


def _read(word: Word) -> Use:
    return Use("read", word)


def _is_device(word: Word) -> bool:
    return word.text in HARMLESS_DEVICES


def shown(text: str) -> str:
    """Return a word for a sentence: bounded, and on one line."""
    plain = "".join(char if char.isprintable() else "?" for char in begin_of(text, 60))
    return plain + ("..." if len(text) > 60 else "")
