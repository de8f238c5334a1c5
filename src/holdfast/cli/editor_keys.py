"""The keys of the line editor, beside the usual ones of Emacs and readline."""

from __future__ import annotations

from typing import Protocol

from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys


class Hands(Protocol):
    """What keys can do in the editor."""

    @property
    def question(self) -> str:
        """The open question; empty without one."""
        ...

    def enter(self) -> None:
        """Send the line, or give the answer."""
        ...

    def paste(self, text: str) -> None:
        """Insert a pasted text."""
        ...

    def escape(self) -> None:
        """Leave the question open, or stop the turn."""
        ...

    def interrupt(self) -> None:
        """Stop the turn, clear the line, or leave."""
        ...

    def leave(self) -> None:
        """Leave, or leave the question open."""
        ...

    def suspend(self) -> None:
        """Suspend this process."""
        ...

    def complete(self) -> None:
        """Complete what is typed."""
        ...

    def edit_elsewhere(self) -> None:
        """Edit the line in another editor."""
        ...


def keys_of(hands: Hands) -> KeyBindings:
    """Return the keys that have a meaning of their own in `chat`."""
    keys = KeyBindings()
    is_empty = Condition(lambda: not get_app().current_buffer.text)
    is_asked = Condition(lambda: bool(hands.question))
    keys.add("enter", filter=~is_searching)(lambda _: hands.enter())
    keys.add("c-j", filter=is_asked)(lambda _: hands.enter())
    keys.add("c-j", filter=~is_asked & ~is_searching)(_new_line)
    keys.add("escape", "enter", filter=~is_asked & ~is_searching)(_new_line)
    keys.add("escape", filter=~is_searching)(lambda _: hands.escape())
    keys.add("c-c", filter=~is_searching)(lambda _: hands.interrupt())
    keys.add("c-d", filter=is_empty & ~is_searching)(lambda _: hands.leave())
    keys.add("c-z")(lambda _: hands.suspend())
    keys.add("tab", filter=~is_asked & ~is_searching)(lambda _: hands.complete())
    keys.add(Keys.BracketedPaste, filter=~is_searching)(lambda event: hands.paste(_pasted(event.data)))
    # Ctrl-X does not begin a sequence here: the time for its second key is too short for two hands.
    keys.add("c-x", eager=True)(lambda _: None)

    @keys.add("c-e", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        before = event.previous_key_sequence
        if before and before[-1].key == Keys.ControlX and not hands.question:
            hands.edit_elsewhere()
        else:
            buffer = event.current_buffer
            buffer.cursor_position += buffer.document.get_end_of_line_position()

    return keys


def _new_line(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")


def _pasted(text: str) -> str:
    """Return a pasted text with the line breaks that it had: terminals send Enter for each."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
