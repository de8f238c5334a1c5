"""Finds what lay in a workspace before all commands that run there, for one that begins beside them.

What it sees itself may be what another one has just planted. So it takes over what they know, and the last one to end
leaves the workspace so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec.structs import replace

from holdfast.policy.paths import is_inside, is_within
from holdfast.tools.aside import seen
from holdfast.tools.kept import Kept
from holdfast.tools.trace import Trace


def older(trace: Trace, others: Sequence[Trace], places: Callable[[Trace], Collection[str]]) -> Trace:
    """Return the trace of a command as it would be if the others had not run.

    Args:
        trace: What it sees now.
        others: The commands that may have changed something there, the oldest first.
        places: Returns the places with controlling names where a command may make something.
    """
    oldest: dict[tuple[tuple[str, ...], int], Trace] = {}
    for each in others:  # a later one with the same borders has taken over the same
        oldest.setdefault((each.writable, each.beside), each)
    for each in reversed(oldest.values()):
        trace = _before(trace, each, places(each))
    return trace


def _before(trace: Trace, other: Trace, paths: Collection[str]) -> Trace:
    """Return a trace as it would be without one other command, which may make something at these places."""
    theirs = {*paths, *other.led, *other.before}
    taken = {path: place for path, place in other.before.items() if is_within(trace.writable, path)}
    there = seen(taken)
    before = {path: place for path, place in trace.before.items() if path not in theirs} | taken
    gone = {path for path in (*trace.gone, *taken) if path in before and path not in there}
    led = dict.fromkeys((*trace.led, *(path for path in other.led if is_within(trace.writable, path))))
    return replace(
        trace, before=before, gone=tuple(gone), led=tuple(led), kept=_kept_before(trace, other, theirs)
    )


def _kept_before(trace: Trace, other: Trace, theirs: Iterable[str]) -> Kept | None:
    mine, known = trace.kept, other.kept
    covered = {*map(os.path.realpath, theirs)}
    if known is None:
        if mine is None:
            return None
        # A sandbox keeps what was there. So only what is new may be from the other command.
        return _without(mine, covered.difference(map(os.path.realpath, other.before)))
    rest = _without(mine, covered) if mine is not None else replace(known, copies={}, above={}, tops=())
    within = [top for top in known.tops if is_within(trace.writable, top)]
    copies = {path: copy for path, copy in known.copies.items() if is_within(within, path)}
    above = {path: facts for path, facts in known.above.items() if is_within(trace.writable, path)}
    return Kept(
        dict(sorted({**rest.copies, **copies}.items())),
        dict(sorted({**rest.above, **above}.items(), key=lambda each: (each[0].count("/"), each[0]))),
        (*rest.tops, *within),
        trace.writable,
        min(rest.read_ns, known.read_ns),
    )


def _without(kept: Kept, tops: Collection[str]) -> Kept:
    """Return what is kept, but for these paths and what is in them."""
    rest = tuple(top for top in kept.tops if top not in tops)
    return replace(
        kept,
        copies={path: copy for path, copy in kept.copies.items() if is_within(rest, path)},
        above={
            path: facts for path, facts in kept.above.items() if any(is_inside(path, top) for top in rest)
        },
        tops=rest,
    )
