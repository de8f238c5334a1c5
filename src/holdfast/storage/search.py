"""What `sessions --grep` looks for: words in titles and in what people and models said.

Only whether a record says something; which sessions are asked, and in which order, is the store's.
"""

from __future__ import annotations

from holdfast.protocol.codec import UnreadableEvent, decode_event, json_text
from holdfast.protocol.events import MessageReceived, Responded
from holdfast.protocol.messages import text_of

SAID_IN = (MessageReceived.__name__, Responded.__name__)
"""The types of records that hold words of a conversation."""


def says(type_: str, v: int, body: bytes, text: str) -> bool:
    """Whether a record of one of the types `SAID_IN` holds the text, ignoring case; damaged ones do not."""
    try:
        encoded = json_text(text).decode().casefold()
    except UnicodeEncodeError:
        return False  # no record holds what cannot be written
    if encoded not in body.decode(errors="replace").casefold():
        return False  # most records: told without decoding them
    try:
        event = decode_event(type_, v, body)
    except UnreadableEvent:
        return False
    match event:
        case MessageReceived():
            return is_in(text, event.text)
        case Responded():
            return is_in(text, text_of(event.parts))
    return False


def is_in(text: str, words: str) -> bool:
    """Whether the words hold the text, ignoring case."""
    return text.casefold() in words.casefold()
