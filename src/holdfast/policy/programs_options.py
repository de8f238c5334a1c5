"""Reads the words of a command by the row of its program: which options and operands read, write, run or send.

A row is data: lists of options as their manual writes them, and what the operands are. An option ends with `=` if it
takes a value, with `==` if it takes two, and with `?` if it takes one only when it is attached. An option that the
row does not have makes a person look, so a row need not be complete. It must be complete in one respect: an option of
the row may be abbreviated only to what no other option of the program begins with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from holdfast.policy.simple import Word
from holdfast.policy.uses import Depth, Use, Uses, merged

Meaning = Literal["plain", "read", "write", "list", "run", "ask", "deny"]

_PLAIN_NAMES = re.compile(r"\*\.(?!env|pem|key)[a-z0-9+]{1,8}|[a-z]{1,10}")
"""A pattern or a type of files that picks no secret."""
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
_DIGITS = " ".join(f"-{digit}" for digit in "0123456789")


class Program(NamedTuple):
    """A row of the table: what the options and operands of a program do."""

    operands: str = "read*"
    """What the operands are, in order; `*` repeats the last one. An operand too many makes a person look.

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
    everything: str = ""
    """Options with which it reads all files of a folder."""
    picks: str = ""
    """Options whose values say which files it reads."""
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


@lru_cache(maxsize=1_024)
def _options(program: Program) -> Mapping[str, Option]:
    found: dict[str, Option] = {}
    extra = "--help --version " + (_DIGITS if program.has_numbers else "")
    for kind, meaning in _KINDS:
        written = getattr(program, kind) + (f" {extra}" if kind == "plain" else "")
        for text in written.split():
            name = text.rstrip("=?")
            found[name] = Option(name, meaning, text.count("="), text.endswith("?"))
    return found


@lru_cache(maxsize=1_024)
def _is_harmless(program: Program) -> bool:
    """Return whether no word can make the program do more than print."""
    meanings = {option.meaning for option in _options(program).values()}
    return meanings == {"plain"} and program.operands == "text*" and not program.risk


def reading_of(program: Program, words: Sequence[Word]) -> Reading:
    """Sort the words after the name of a program."""
    options = _options(program)
    given: list[Given] = []
    operands: list[Word] = []
    strange = ""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.is_known or len(word.text) < 2 or word.text[0] != "-":
            operands.append(word)
            if not program.is_ordered:
                continue
            break
        if word.text == "--":
            break
        found = tuple(_long(options, word) if word.text.startswith("--") else _short(options, word))
        strange = strange or _strange(found, word)
        most = 0
        for each in found:
            missing = max(each.option.values - len(each.values), 0)
            most = max(most, missing)
            given.append(each._replace(values=(*each.values, *words[at : at + missing])))
        strange = strange or next((value.text for value in words[at : at + most] if value.is_glob), "")
        at += most
    return Reading(tuple(given), (*operands, *words[at:]), strange)


def _long(options: Mapping[str, Option], word: Word) -> Iterator[Given]:
    """Return every option that a long one may be: an abbreviation may be several."""
    name, equals, value = word.text.partition("=")
    exact = options.get(name)
    found = [exact] if exact else [each for key, each in options.items() if key.startswith(name)]
    values = (word._replace(text=value),) if equals else ()
    for option in found:
        yield Given(option, values)


def _short(options: Mapping[str, Option], word: Word) -> Iterator[Given]:
    text = word.text
    for at in range(1, len(text)):
        option = options.get(f"-{text[at]}")
        if option is None:
            yield Given(Option("", "ask", 0, is_attached=False))
            return
        rest = text[at + 1 :]
        if (option.values or option.is_attached) and rest:
            yield Given(option, (word._replace(text=rest),))
            return
        yield Given(option)


def _strange(found: Sequence[Given], word: Word) -> str:
    if not found or any(not each.option.name for each in found):
        return word.text
    if word.text.startswith("--") and len({each.option[1:] for each in found}) > 1:
        return word.text
    return word.text if word.is_glob else ""


# --- what the words do ----------------------------------------------------------------------------


def uses_by_row(name: str, program: Program, words: Sequence[Word]) -> Uses:
    """Return what a command does by the row of its program.

    Args:
        name: The program, for people.
        program: Its row.
        words: The words after the name.
    """
    reading = reading_of(program, words)
    return merged(
        [
            doubts(name, program, words, reading),
            *(_by_option(name, each) for each in reading.given if each.option.meaning != "plain"),
            by_operands(name, program, reading),
        ]
    )


def doubts(name: str, program: Program, words: Sequence[Word], reading: Reading) -> Uses:
    """Return why the words of a command cannot be relied on: what is asked, and the files that its patterns name."""
    files = tuple([Use("read", word) for word in words if word.is_glob and word.is_known])
    if program.risk:
        return Uses(files, asks=f"`{name}` {program.risk}.")
    if reading.strange:
        return Uses(files, asks=f"The option `{shown(reading.strange)}` of `{name}` is not known.")
    if _is_harmless(program):
        return Uses(files)
    if any(not word.is_known for word in words):
        return Uses(files, asks=f"A word of `{name}` is known only when it runs.")
    if program.at_files and any(word.text.startswith("@") for word in words):
        return Uses(files, asks=f"`{name}` reads more words from a file.")
    return Uses(files)


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
                tuple(map(_read, words)), asks=f"`{option.name}` of `{name}` reads files that another names."
            )
        case "run":
            return Uses(asks=f"`{option.name}` of `{name}` runs another program.")
        case "deny":
            return Uses(denies=f"`{option.name}` of `{name}` leads around the list of hosts.")
        case _:
            return Uses(asks=f"`{option.name or 'An option'}` of `{name}` needs approval.")


def by_operands(name: str, program: Program, reading: Reading) -> Uses:
    """Return what the operands of a command do."""
    shape = program.operands.split()
    if program.stands_in and reading.has(*program.stands_in.split()):
        shape = shape[1:]
    is_walking = not program.walks or reading.has(*program.walks.split())
    deep = _depth(program, reading) if is_walking else ""
    found = [_by_operand(name, program, shape, at, word, deep) for at, word in enumerate(reading.operands)]
    is_path_given = len(reading.operands) > sum(each == "text" for each in shape)
    wild = next((word.text for word in reading.operands[: len(shape) - 1] if word.is_glob), "")
    if wild and not set(shape) <= {"text", "text*", "read", "read*", "rev*"}:
        found.append(Uses(asks=f"`{shown(wild)}` may become several operands of `{name}`."))
    if program.without and not is_path_given and is_walking:
        found.append(Uses((Use("read", Word(program.without), deep=deep),)))
    return merged(found)


def _depth(program: Program, reading: Reading) -> Depth:
    """Return what it reads of a folder. Nothing secret has a name that ends like that of a plain text or program."""
    picked = reading.values(*program.picks.split())
    if any(_PLAIN_NAMES.fullmatch(word.text) for word in picked) and all(
        _PLAIN_NAMES.fullmatch(word.text) or word.text.startswith("!") for word in picked
    ):
        return ""
    return "all" if reading.has(*program.everything.split()) else program.searches


def _by_operand(name: str, program: Program, shape: Sequence[str], at: int, word: Word, deep: Depth) -> Uses:
    last = shape[-1] if shape else ""
    meaning = shape[at] if at < len(shape) else last if last.endswith("*") else ""
    uses = operand_uses(name, meaning.rstrip("*"), word)
    return uses._replace(files=tuple([use._replace(deep=deep) for use in uses.files])) if deep else uses


def operand_uses(name: str, meaning: str, word: Word) -> Uses:
    """Return what one operand does."""
    if meaning == "text":
        return Uses()
    if meaning == "read":
        return Uses() if word.text == "-" or _is_device(word) else Uses((_read(word),))
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
    plain = "".join(char if char.isprintable() else "?" for char in text[:60])
    return plain + ("..." if len(text) > 60 else "")
