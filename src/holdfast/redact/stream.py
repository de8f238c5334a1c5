"""Masks text that arrives in pieces. It withholds what may become a secret until that is known.

Other modules decide what is secret.
"""

from __future__ import annotations

from holdfast.redact.begun import find_begun
from holdfast.redact.redactor import Redactor
from holdfast.redact.spans import Span, mask

STREAM_PENDING_MAX_CHARS = 65_536
"""The most that a stream withholds for a possible secret."""

_SLICE_CHARS = 16_384
_CONTEXT_CHARS = 200
_SKIP_MAX_CHARS = 16_384
"""How much may arrive between two searches. The cost of a search is then small for each character."""


class StreamRedactor:
    """Redacts text that arrives in pieces, and withholds the possible beginning of a secret.

    The results of all `feed`s and the final `flush` contain no known secret, wherever the pieces were cut.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._unsure_chars = max(redactor.longest_known - 1, 0)
        """How many of the last characters may be the beginning of a known secret."""
        self._context = ""
        """The text before, as far as it says what the pending text is."""
        self._pending = ""
        self._look_from = 0
        """How long the pending text must be for another search."""
        self._skipped: list[str] = []
        self._skipped_chars = 0

    def feed(self, piece: str) -> str:
        """Return what can be shown now: whole words; empty if everything is withheld."""
        if self._skipped:
            self._catch_up()
        return self._feed(piece)

    def skip(self, piece: str) -> None:
        """Take a piece that is shown to nobody. It still says what the next pieces are."""
        self._skipped.append(piece)
        self._skipped_chars += len(piece)
        if self._skipped_chars > _SKIP_MAX_CHARS:
            self._catch_up()

    def flush(self) -> str:
        """Return the rest. The text may have ended or been cut off here."""
        if self._skipped:
            self._catch_up()
        return self._show(len(self._pending), is_growing=False, is_cut=True)

    def _catch_up(self) -> None:
        piece, self._skipped, self._skipped_chars = "".join(self._skipped), [], 0
        self._feed(piece)

    def _feed(self, piece: str) -> str:
        # In slices, so that the most is pending only for a secret that may be as long, and not for a long piece that
        # ends within a short one.
        if len(piece) <= _SLICE_CHARS:
            return self._take(piece)
        slices = range(0, len(piece), _SLICE_CHARS)
        return "".join([self._take(piece[at : at + _SLICE_CHARS]) for at in slices])

    def _take(self, piece: str) -> str:
        self._pending += piece
        if len(self._pending) < self._look_from:
            return ""
        free = max(len(self._pending) - self._unsure_chars, 0)
        if len(self._pending) > STREAM_PENDING_MAX_CHARS:
            return self._show(free, is_growing=False)
        blank = max(self._pending.rfind(" ", 0, free), self._pending.rfind("\n", 0, free))
        shown = self._show(blank + 1, is_growing=True)
        # Otherwise each piece of a long secret would search all of it again.
        self._look_from = len(self._pending) * 9 // 8 if blank >= 0 and not shown else 0
        return shown

    def _show(self, upto: int, *, is_growing: bool, is_cut: bool = False) -> str:
        if not upto:
            return ""
        raw, begin = self._context + self._pending, len(self._context)
        end = begin + upto
        spans = self._redactor.find(raw, is_cut=is_cut)
        if is_growing:
            end = max(min(end, find_begun(raw)), begin)
        for span in spans:
            if span.start < end < span.end or (is_growing and span.start < end and span.end == len(raw)):
                end = max(span.start, begin) if is_growing else span.end
        shown = [span._replace(start=max(span.start, begin)) for span in spans if begin < span.end <= end]
        text = mask(raw[:end], shown)[begin:] if shown else raw[begin:end]
        self._context, self._pending = self._told(raw, end, spans), raw[end:]
        return text

    def _told(self, raw: str, end: int, spans: list[Span]) -> str:
        """Return what the text up to `end` says about the next text: its last characters, or the beginning of a
        secret that may not be complete.
        """
        start = end - max(_CONTEXT_CHARS, self._unsure_chars)
        if spans and spans[-1].end == end == len(raw):
            middle = spans[-1].start
            start, end = middle - _CONTEXT_CHARS // 2, min(middle + _CONTEXT_CHARS // 2, end)
        return raw[max(start, 0) : end]
