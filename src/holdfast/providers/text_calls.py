"""Reads the tool calls that a model wrote into its text, as it arrives or whole.

A call counts only where the model itself makes one: not in a quotation, a fence, its thinking, or what it repeats
from a tool. A block counts only when it is whole. The text that is left has no part of a block.

The cost grows with the length of the text and not faster, whatever it is: a block that is not whole yet is read again
only when the text has doubled, and nothing else is read twice.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.protocol.text_formats import AUTO
from holdfast.providers.text_blocks import (
    Block,
    Broken,
    Cut,
    MayGoOn,
    NoCall,
    RawCall,
    calls_of,
    fenced_json_at,
)
from holdfast.providers.text_formats import AFTER_THOUGHTS, ECHOES, THOUGHTS, Family, form_of

Reason = Literal["quoted", "fenced", "echoed", "thinking", "truncated", "malformed", "skipped", "bare_json"]

_MEANT = ("truncated", "malformed", "skipped")
MAX_REJECTED = 64
"""The most rejected blocks of a text that are named: those that were meant as calls, and those that were not."""
_EXCERPT_CHARS = 400
_INFO_CHARS = 200
"""The longest line that opens a fence."""
_RETRY_CHARS = 64
_QUOTES = "\"'“‘«"
_QUOTE_ENDS = "\"'”’»"
_UNCLOSED = "it comes after the beginning of a quotation that is not closed ({kind})"
_KINDS = {"fence": "a fence", "code": "a backtick", "echo": "a tag"}
_QUOTED: dict[str, Reason] = {"fence": "fenced", "code": "quoted", "echo": "echoed", "thinking": "thinking"}
_A_QUOTATION = "the call is a quotation"
_A_THOUGHT = "the call is a part of the model's thinking"


class Rejected(msgspec.Struct, frozen=True):
    """A block that looks like a call and does not count."""

    reason: Reason
    why: str
    excerpt: str
    """The beginning of what was written."""


class Reading(msgspec.Struct, frozen=True):
    """What a text says."""

    calls: tuple[RawCall, ...]
    text: str
    rejected: tuple[Rejected, ...] = ()
    blocks: tuple[str, ...] = ()
    """The block of each call, as it was written."""


class _Quote(msgspec.Struct, frozen=True):
    """A part of the text in which nothing is a call."""

    kind: Literal["fence", "code", "thinking", "echo"]
    ends: tuple[str, ...]


class TextReader:
    """Reads one response. Feed it the pieces in order, then close it. The pieces may have any size."""

    def __init__(self, format_name: str = AUTO, *, is_wrapped: bool = False) -> None:
        """With `is_wrapped`, nothing without a wrapper is a call, whatever the format."""
        self._form = form_of(format_name, is_wrapped=is_wrapped)
        self._text = ""
        """What waits for more."""
        self._at = 0
        self._is_final = False
        self._later: list[str] = []
        self._later_chars = 0
        self._retry_chars = 0
        """A block was not whole: do nothing before so many characters came."""
        self._shown: list[str] = []
        self._kept: list[str] = []
        self._calls: list[RawCall] = []
        self._blocks: list[str] = []
        self._rejected: list[Rejected] = []
        self._room = {True: MAX_REJECTED, False: MAX_REJECTED}
        self._is_broken = False
        """A block could not be read. No later call runs: it may rely on what did not happen."""
        self._quote: _Quote | None = None
        self._quoted_from = 0
        """How many blocks were rejected when the quotation began."""
        self._inside: Family | None = None
        """How the quoted block that began is written. Up to its end, nothing is another block."""
        self._is_after_opener = False
        self._is_after_quoted = False
        """A quoted block ended, and no word came after it: the next block is quoted with it."""
        self._has_words = False
        self._is_line_start = True
        """Only spaces came since the last line break."""
        self._is_cited = False
        """The line begins with >."""
        self._last = ""

    def feed(self, piece: str) -> str:
        """Take the next piece. Return the text that can be shown by now."""
        self._later.append(piece)
        self._later_chars += len(piece)
        return "" if self._later_chars < self._retry_chars else self._advance()

    def close(self) -> Reading:
        """Return what the whole text says."""
        self._is_final = True
        self._advance()
        self._give_up_quote()
        text = "".join(self._kept)
        if not self._calls:
            self._name_bare(text)
        return Reading(tuple(self._calls), text, tuple(self._rejected), tuple(self._blocks))

    def _advance(self) -> str:
        self._text = "".join([self._text[self._at :], *self._later])
        self._later, self._later_chars, self._retry_chars, self._at = [], 0, 0, 0
        self._shown = []
        while self._at < len(self._text) and self._step():
            pass
        return "".join(self._shown)

    def _step(self) -> bool:
        """Read up to the end of the next token. Return whether there may be another one."""
        found = self._form.tokens.search(self._text, self._at)
        if found is None:
            self._pass_to(len(self._text) if self._is_final else self._held())
            return False
        self._pass_to(found.start())
        if not self._is_final and self._may_go_on(found.start(), found.end()):
            return False
        token = found[0]
        if token == "\n":
            self._line_break()
            return True
        if token[0] in "`~" and token not in self._form.families:
            return self._ticks(token)
        return self._token(token)

    def _held(self) -> int:
        """Return where a token may have begun at the end of the text."""
        begin = max(self._at, len(self._text) - self._form.longest)
        for at in range(begin, len(self._text)):
            if self._text[at:] in self._form.prefixes:
                return at
        return len(self._text)

    def _may_go_on(self, begin: int, end: int) -> bool:
        """Whether the token at the end of the text may be the beginning of a longer one."""
        if self._text[begin] in "`~" and end == len(self._text) and end - begin < _INFO_CHARS:
            return True
        return len(self._text) - begin < self._form.longest and self._text[begin:] in self._form.prefixes

    @property
    def last(self) -> str:
        """What the last step showed."""
        return "".join(self._shown)

    # --- text ---

    def _pass_to(self, end: int) -> None:
        """Move on to a position, over plain text."""
        chunk, self._at = self._text[self._at : end], end
        if not chunk:
            return
        if self._inside is not None and self._is_after_opener and chunk[0] in _QUOTE_ENDS:
            self._inside = None  # only the tag is quoted
        self._is_after_opener = False
        self._is_after_quoted = self._is_after_quoted and chunk.isspace()
        if self._quote is not None and self._quote.kind == "thinking":
            return
        self._shown.append(chunk)
        self._kept.append(chunk)
        self._last = chunk[-1]
        self._has_words = self._has_words or not chunk.isspace()
        line = chunk[chunk.rfind("\n") + 1 :]
        if "\n" in chunk:
            self._is_line_start, self._is_cited = True, False
        if self._is_line_start:
            words = line.lstrip()
            self._is_line_start, self._is_cited = not words, self._is_cited or words.startswith(">")

    def _line_break(self) -> None:
        if self._is_line_start and self._quote is None:
            self._inside, self._is_after_quoted = None, False
        if self._is_line_start and self._quote is not None and self._quote.kind == "code":
            self._give_up_quote()  # an empty line ends a paragraph, and what was quoted in it
        self._pass_to(self._at + 1)

    def _ticks(self, run: str) -> bool:
        """Read backticks or tildes: the beginning or the end of a fence, or of words of code."""
        after = self._at + len(run)
        is_fence = self._is_line_start and len(run) >= 3
        end_of_line = self._text.find("\n", after, after + _INFO_CHARS)
        if is_fence and end_of_line < 0 and not self._is_final and len(self._text) - after < _INFO_CHARS:
            return False
        rest = self._text[after : end_of_line if end_of_line >= 0 else after + _INFO_CHARS]
        if self._quote is None:
            if is_fence and "`" not in rest:
                self._begin_quote(_Quote("fence", (run,)))
            elif run[0] == "`":
                self._begin_quote(_Quote("code", (run,)))
        elif self._quote.kind == "code":
            self._quote = None if run in self._quote.ends else self._quote
        elif self._quote.kind == "fence" and is_fence and not rest.strip():
            self._quote = None if run.startswith(self._quote.ends) else self._quote
        self._pass_to(after)
        return True

    def _begin_quote(self, quote: _Quote) -> None:
        self._quote, self._quoted_from, self._inside = quote, len(self._rejected), None

    def _give_up_quote(self) -> None:
        """End a quotation that nothing closed. Perhaps it was none, and the blocks in it were meant as calls."""
        if self._quote is not None and self._quote.kind != "thinking":
            why = _UNCLOSED.format(kind=_KINDS[self._quote.kind])
            for at in range(self._quoted_from, len(self._rejected)):
                self._rejected[at] = Rejected("malformed", why, self._rejected[at].excerpt)
        self._quote = self._inside = None

    # --- tokens ---

    def _token(self, token: str) -> bool:
        after = self._at + len(token)
        family = self._form.families.get(token)
        if self._quote is not None:
            return self._quoted(token, family)
        if self._goes_on_inside(token):
            self._pass_to(after)
            self._is_after_quoted = self._inside is None and not self._is_cited
            return True
        if family is not None:
            is_in_marks = self._is_after_quoted or (self._last in _QUOTES and self._last)
            if self._is_cited or (is_in_marks and not family.is_bare):
                self._cite(family, "quoted", _A_QUOTATION, after)
                return True
            if not family.is_whole or not (self._has_words or self._calls):
                return self._block(family, after)
        elif token in THOUGHTS:
            self._quote = _Quote("thinking", THOUGHTS[token])
            self._at = after
            return True
        elif token in AFTER_THOUGHTS:
            self._forget()
            self._at = after
            return True
        elif token in ECHOES:
            self._begin_quote(_Quote("echo", (ECHOES[token],)))
        elif token in self._form.noise and not self._is_cited:
            self._at = after
            return True
        self._pass_to(after)
        return True

    def _goes_on_inside(self, token: str) -> bool:
        """Return whether the token is a part of the quoted block that began."""
        if self._inside is None:
            return False
        if token == self._inside.closer:
            self._inside = None
            return True
        if token == self._inside.opener or not (token in self._form.families or token in self._form.noise):
            self._inside = None  # it never ended
            return False
        return True

    def _cite(self, family: Family, reason: Reason, why: str, after: int) -> None:
        """Pass over the opener of a quoted block, and keep in mind how it ends."""
        if not family.is_bare:
            self._reject(reason, why, family.opener)
        self._pass_to(after)
        if family.closer and not family.is_bare:
            self._inside, self._is_after_opener = family, True

    def _quoted(self, token: str, family: Family | None) -> bool:
        """Read a token where nothing is a call."""
        quote, after = self._quote, self._at + len(token)
        if quote is not None and token in quote.ends and quote.kind in ("thinking", "echo"):
            if quote.kind == "echo":
                self._pass_to(after)
            self._quote = self._inside = None
            self._at = self._at if family is not None else after
            return True
        if quote is not None and not self._goes_on_inside(token) and family is not None:
            self._cite(
                family, _QUOTED[quote.kind], _A_THOUGHT if quote.kind == "thinking" else _A_QUOTATION, after
            )
        else:
            self._pass_to(after)
        return True

    def _forget(self) -> None:
        """All before was thinking, although nothing said so."""
        for call in self._calls:
            self._reject("thinking", _A_THOUGHT, call.name)
        self._calls, self._blocks, self._kept, self._last = [], [], [], ""
        self._has_words, self._is_line_start, self._is_cited = False, True, False

    # --- blocks ---

    def _block(self, family: Family, after: int) -> bool:
        """Read the block of an opener."""
        begin = self._at
        try:
            block = family.read(self._text, begin if family.is_bare and family.opener in "{[" else after)
        except NoCall:
            self._pass_to(after)
            return True
        except Cut:
            return self._not_whole(family)
        except MayGoOn as more:
            if not self._is_final:
                return self._wait()
            block = more.block
        except Broken as broken:
            return self._not_readable(family, after, broken)
        if family.is_whole and (not self._is_final or self._text[block.end :].strip()):
            if not self._is_final:
                return self._wait()
            self._pass_to(after)
            return True
        self._take(block)
        return True

    def _take(self, block: Block) -> None:
        if self._is_broken:
            for call in block.calls:
                self._reject(
                    "skipped", "it follows a call that cannot be read, and may rely on it", call.name
                )
        else:
            self._calls.extend(block.calls)
            self._blocks.extend([self._text[self._at : block.end]] * len(block.calls))
        self._at, self._last = block.end, ""
        if block.hides_until:
            self._quote = _Quote("thinking", block.hides_until)

    def _not_whole(self, family: Family) -> bool:
        if not self._is_final:
            return self._wait()
        if family.is_bare:
            self._pass_to(len(self._text))
        else:
            self._reject("truncated", "the text ends inside the call", self._text[self._at :])
            self._at = len(self._text)
        return True

    def _not_readable(self, family: Family, after: int, broken: Broken) -> bool:
        if not self._is_final:
            return self._wait()
        looked = max(after, min(broken.at, len(self._text)))
        if family.is_bare:
            self._pass_to(looked)
            return True
        end = self._text.find(family.closer, looked) if family.closer else -1
        end = end + len(family.closer) if end >= 0 else len(self._text)
        self._reject("malformed", str(broken), self._text[self._at : end])
        self._is_broken = True
        self._at = end
        return True

    def _wait(self) -> bool:
        self._retry_chars = max(_RETRY_CHARS, len(self._text) - self._at)
        return False

    def _reject(self, reason: Reason, why: str, written: str) -> None:
        # Quotations never use up the room of what the model must hear about.
        is_meant = reason in _MEANT
        if self._room[is_meant]:
            self._room[is_meant] -= 1
            self._rejected.append(Rejected(reason, why, written[:_EXCERPT_CHARS]))

    def _name_bare(self, text: str) -> None:
        """Reject a text that consists of a call in JSON."""
        if not text.lstrip().startswith(("{", "[", "```")):
            return
        try:
            value, end = fenced_json_at(text, 0)
            calls_of(value, end, needs_arguments=True)
        except (Cut, Broken):
            return
        if not text[end:].strip():
            self._reject("bare_json", "JSON without a wrapper is never a call", text)


def read_text(text: str, format_name: str = AUTO, *, is_wrapped: bool = False) -> Reading:
    """Return what a whole text says. See `TextReader`."""
    reader = TextReader(format_name, is_wrapped=is_wrapped)
    reader.feed(text)
    return reader.close()
