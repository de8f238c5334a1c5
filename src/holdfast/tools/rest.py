"""What is left to do of a command that has ended: what could not be put right at the first try, and nothing else.

All else was right then. So who changes that later is a person, and it stays. The same is true where something was
left: if it is no longer what it was when the first try ended, somebody has made it since.
"""

from __future__ import annotations

import stat

from msgspec.structs import replace

from holdfast.policy.paths import is_inside
from holdfast.protocol.fence import Undone
from holdfast.tools.aside import at, leads_to, put_link_back
from holdfast.tools.identity import is_same, of_folder
from holdfast.tools.kept import Kept, keep_aside, put_back, set_aside
from holdfast.tools.trace import Trace

_Facts = tuple[int, ...]
_NOTHING: _Facts = (0,)
_UNKNOWN: _Facts = ()


def left(trace: Trace, undone: Undone) -> Trace:
    """Return what must be known to put right the rest of what a command changed. It has ended."""
    stuck = {*undone.stuck}
    return replace(
        trace,
        before={path: place for path, place in trace.before.items() if path in stuck and place.target},
        covered=(),
        changed=undone.changed,
        stuck=undone.stuck,
        why=undone.why,
        kept=trace.kept.only(stuck) if trace.kept is not None and stuck else None,
        gone=(),
        led=(),
        folders=trace.folders if stuck else {},
        fault="",
        found={path: _facts(path) for path in stuck},
        since=undone.since,
    )


def tried_again(trace: Trace) -> Undone:
    """Put right what is left, but for what somebody has changed since. Return what that changed, and what is left."""
    theirs = [path for path in trace.stuck if _is_of_others(path, trace)]
    mine = [path for path in trace.stuck if not any(is_inside(path, other) for other in theirs)]
    undone = put_back(trace.kept.only(mine)) if trace.kept is not None else Undone()
    changed, stuck = [*undone.changed], dict.fromkeys(undone.stuck, undone.why)
    since: list[str] = []
    for path in trace.stuck:
        try:
            if path in mine:
                if not _is_kept(path, trace.kept) and _put_right(path, trace):
                    changed.append(path)
            elif trace.kept is None or path not in trace.kept.copies:
                since += [path] if path in theirs else []
            elif keep_aside(path, trace.kept):
                since.append(path)
        except OSError as error:
            stuck[path] = error.strerror or str(error)
    why = next(iter(stuck.values()), "")
    return Undone(tuple(dict.fromkeys([*changed, *stuck])), tuple(stuck), why, tuple(since))


def _is_kept(path: str, kept: Kept | None) -> bool:
    return kept is not None and (path in kept.copies or path in kept.above)


def _put_right(path: str, trace: Trace) -> bool:
    """Make a link again, or put aside what came. Return whether there was something to do.

    Raises:
        OSError: it could not be done.
    """
    if (place := trace.before.get(path)) is not None:
        if leads_to(path) == place.target:
            return False
        put_link_back(path, place.target)
        return True
    if at(path) is None:
        return False
    set_aside(path, trace.kept.tops if trace.kept is not None else ())
    return True


def _is_of_others(path: str, trace: Trace) -> bool:
    """Return whether somebody has made something at a path since the first try."""
    now, then = _facts(path), trace.found.get(path, _UNKNOWN)
    if _UNKNOWN in (now, then) or now in (then, _NOTHING):
        return False
    if trace.kept is None:
        return True
    if path in trace.kept.above:  # a person may have moved it back
        there = of_folder(path)
        return there is None or not is_same(there, trace.kept.above[path])
    copy = trace.kept.copies.get(path)
    found = at(path)
    return not (copy and stat.S_ISDIR(copy.mode) and found and stat.S_ISDIR(found.st_mode))


def _facts(path: str) -> _Facts:
    """Return what proves that something at a path is still the same. A folder is, whatever comes into it."""
    try:
        found = at(path)
    except OSError:  # then it counts as what the command left
        return _UNKNOWN
    if found is None:
        return _NOTHING
    if stat.S_ISDIR(found.st_mode):
        return found.st_dev, found.st_ino
    return found.st_dev, found.st_ino, found.st_mode, found.st_ctime_ns
