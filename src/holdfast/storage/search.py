"""The search of `sessions --grep`: words in titles, and in what people and models said.

This only says whether a record matches. The store decides which sessions to search, in which order.
"""

from __future__ import annotations

from holdfast.protocol.codec import UnreadableEvent, decode_event, json_text
from holdfast.protocol.events import AnswerGiven, MessageReceived, Responded
from holdfast.protocol.messages import text_of

SAID_IN = (MessageReceived.__name__, Responded.__name__, AnswerGiven.__name__)
"""The types of records with words of a conversation."""


def says(type_: str, v: int, body: bytes, text: str) -> bool:
    """Return whether a record of one of the types `SAID_IN` contains the text, ignoring case. Damaged ones do not."""
    try:
        encoded = json_text(text).decode().casefold()
    except UnicodeEncodeError:
        return False  # no record contains what cannot be encoded
    if encoded not in body.decode(errors="replace").casefold():
        return False  # most records: decided without decoding them
    try:
        event = decode_event(type_, v, body)
    except UnreadableEvent:
        return False
    match event:
        case MessageReceived():
            return is_in(text, event.text)
        case Responded():
            return is_in(text, text_of(event.parts))
        case AnswerGiven():
            return is_in(text, event.answer.text)
    return False


def is_in(text: str, words: str) -> bool:
    """Return whether the words contain the text, ignoring case."""
    return text.casefold() in words.casefold()
