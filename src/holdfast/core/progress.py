"""What a session knows about its progress: the evidence that it has seen, in bounded rings, and what failed.

`guard` judges turns with it. Nothing here knows the rest of the state.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from holdfast.core.evidence import digest_of
from holdfast.protocol.tools import MARK_DIGITS, FileChange, Written

SEEN = 256
"""How many pieces of evidence are remembered. A rotation of more calls than that looks new in every round."""
WRITTEN = 64
"""How many of the files that calls wrote are remembered."""
FAILURES = 24
"""How many failing calls are remembered."""
_KEY_DIGITS = 15
"""So many hex digits fit into a number of 64 bits."""
TIMES = 3
"""After this many failures in a row, with nothing changed in between, an approach has failed."""


class Failed(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A call that failed."""

    name: str
    arguments: str
    """The first part of them."""
    said: str
    """The first part of the error."""
    call_id: str
    """The last such call."""
    seq: int
    """The record of the last failure."""
    likeness: str
    """The digest of the call (`evidence.Likeness`)."""
    error: str
    """The digest of the error."""
    row: int = 1
    """How often it failed like this in a row, with no change of the workspace in between."""
    times: int = 1
    """How often in the session."""
    workspace: str = ""
    """The state of the workspace after the last failure, if it was looked at."""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The evidence of a session."""

    stall: int = 0
    """How many turns in a row brought nothing new."""
    is_told: bool = False
    """The model was told so."""
    has_reflected: bool = False
    """The model reflected on it."""
    is_open: bool = False
    """The last of those turns may have changed the workspace: the next response brings the answer."""
    seen: tuple[int, ...] = ()
    """Digests of what was new: calls with their results, states of files and of the workspace, test counts. Numbers
    take a quarter of the room in a snapshot."""
    written: tuple[Written, ...] = ()
    """The files that file tools wrote, the newest last."""
    is_partial: bool = False
    """The workspace has too many files: only those named are looked at."""
    failures: tuple[Failed, ...] = ()
    news_turn: int = 0
    """The last turn that brought something new by its calls."""
    has_new_files: bool = False
    """It wrote what a file never was before."""
    has_waited: bool = False
    """A call of the turn in progress was waiting."""
    may_have_written: bool = False
    """A call of the turn in progress may have changed anything."""

    @property
    def named(self) -> tuple[str, ...]:
        """The files that file tools wrote, relative to the workspace."""
        return tuple([each.path for each in self.written])


def with_evidence(
    progress: Progress, digests: list[str], turn: int, *, is_of_files: bool = False
) -> Progress:
    """Add evidence of a turn. If something of it is new, the turns in a row begin anew."""
    seen = progress.seen
    new = [key for digest in digests if (key := int(digest[:_KEY_DIGITS], 16)) not in seen]
    if not new:
        return progress
    return replace(
        progress,
        seen=(*seen, *new)[-SEEN:],
        news_turn=turn,
        stall=0,
        is_told=False,
        has_reflected=False,
        has_new_files=progress.has_new_files or is_of_files,
    )


def with_written(progress: Progress, changes: Sequence[FileChange]) -> Progress:
    """Remember files that a call wrote."""
    # What was in a file that is too large to be kept would be lost for good, so nobody may overwrite it unasked.
    new = [Written(each.path, "" if each.is_large else each.after[:MARK_DIGITS]) for each in changes]
    if all(each in progress.written for each in new):
        return progress
    paths = {each.path for each in new}
    kept = [each for each in progress.written if each.path not in paths]
    return replace(progress, written=tuple([*kept, *new][-WRITTEN:]))


def closed(progress: Progress, turn: int) -> Progress:
    """Judge the turn whose last call is done."""
    # An example with three turns: a new file is read, the same file again, then `make`, which prints what it
    # printed before. `stall` is 0, 1, 2, and the last turn is open: if `make` has changed a file, the next response
    # says so, and `looked` makes it 0.
    has_news, may_have_written = progress.news_turn == turn, progress.may_have_written
    if has_news and not (may_have_written or progress.has_new_files or progress.has_waited):
        return progress
    # A waiting call changed nothing that is known yet, and says nothing about being stuck either.
    counts = not has_news and not progress.has_waited
    # After news nobody has to look, unless it matters whether what failed before could work now.
    is_asked = counts or (has_news and any(failed.row for failed in progress.failures))
    return replace(
        progress,
        stall=progress.stall + counts,
        is_open=may_have_written and is_asked,
        has_new_files=False,
        has_waited=False,
        may_have_written=False,
    )


def looked(progress: Progress, workspace: str, turn: int) -> tuple[Progress, bool]:
    """Take the state of the workspace after a turn. Return whether it is a new one."""
    # A rewrite back and forth: the survey after "one" is new, the one after "two" is new, and from then on both are
    # known. A return to an earlier state brings nothing.
    failures = tuple([_after_look(failed, workspace, turn) for failed in progress.failures])
    progress = replace(progress, is_open=False, failures=failures)
    after = with_evidence(progress, [digest_of(workspace)], progress.news_turn)
    return after, after is not progress


def _after_look(failed: Failed, workspace: str, turn: int) -> Failed:
    if not failed.row or failed.workspace == workspace:
        return failed
    if not failed.workspace:  # the first look since it failed
        return replace(failed, workspace=workspace)
    # Changed since the look before: by what came before the last failure, or after it.
    is_of_turn = failed.call_id.startswith(f"t{turn}.")
    return replace(failed, workspace=workspace, row=1 if is_of_turn else 0)


def spoken(progress: Progress) -> Progress:
    """Begin anew after words of a person: they are always new, and may say that something has changed elsewhere."""
    return changed(replace(progress, stall=0, is_told=False, has_reflected=False))


def changed(progress: Progress) -> Progress:
    """Something has changed: what failed before may work now."""
    if not any(failed.row for failed in progress.failures):
        return progress
    return replace(
        progress, failures=tuple([replace(failed, row=0, workspace="") for failed in progress.failures])
    )
