"""What the model said in an event."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.protocol.events import AnswerGiven, Event, Record, Responded
from holdfast.protocol.messages import text_of


def words_of(event: Event | None) -> str | None:
    """Return the words of a whole response, or of a call of `answer`; None for other events."""
    match event:
        case Responded(parts=parts):
            return text_of(parts)
        case AnswerGiven(answer=answer):
            return answer.text
    return None


def last_words(records: Iterable[Record]) -> str:
    """Return the words of the last response; empty without any."""
    said = [words for record in records if (words := words_of(record.event)) is not None]
    return said[-1] if said else ""
