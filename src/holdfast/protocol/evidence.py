"""What a call and its result show, apart from what differs each time: the guard compares this, not the texts."""

from __future__ import annotations

import msgspec


class Likeness(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What makes two calls the same call."""

    digest: str = ""
    """The same for all spellings of the call: other paths to the same file, other spaces or comments in a command.
    Empty: the arguments say it all."""
    place: str = ""
    """For a search: the digest of the call without what it searches for. Another word that finds the same shows
    nothing new."""
    only_looks: bool = False
    """A command of which every program only reads. It cannot have changed the workspace."""


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a result shows."""

    digest: str = ""
    """The digest of the text without clock times, durations, process ids and the like. Empty: the text has nothing of
    that kind."""
    tests: str = ""
    """How many tests passed and failed, as the output says."""
    is_negative: bool = False
    """An error status that is an answer: a search found nothing, or two files differ."""


PARTIAL = "named:"
"""The beginning of a survey of the workspace that covers only the named files."""

NOTHING_SHOWN = Evidence()
ANY_CALL = Likeness()
