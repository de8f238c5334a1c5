"""The processes that go on after the call that started them: what the state knows of them.

They belong to a runtime, and end with it or with their run. A driver that attaches says which of them still run, and
a note tells the model which are gone.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast.protocol.events import Attached, NoteAdded
from holdfast.protocol.tools import BackgroundProcess

GONE = (
    "These background processes have ended, and their output is gone: {processes}. They ended with the process of "
    "Holdfast that started them. Look at what they did before you start them again."
)
ELSEWHERE = (
    "These background processes belong to the session that this one branched off from, and may still run there: "
    "{processes}. Nothing here reads or stops them."
)

Running = tuple[BackgroundProcess, ...]


def after_result(running: Running, told: BackgroundProcess) -> Running:
    """Return what runs after a result that tells of a process."""
    others = tuple([each for each in running if each.id != told.id])
    return others if told.is_over else (*others, told)


def after_attach(running: Running, event: Attached) -> Running:
    return tuple([each for each in running if each.id in event.background]) if running else running


def notes(running: Running, still: Collection[str], *, is_branch: bool = False) -> list[NoteAdded]:
    """Return the note that tells the model which processes are gone, or are those of the parent, if any are."""
    text = ELSEWHERE if is_branch else GONE
    gone = [f"{each.id} (`{each.command}`)" for each in running if each.id not in still]
    return [NoteAdded("processes", text.format(processes=", ".join(gone)))] if gone else []
