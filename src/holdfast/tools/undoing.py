"""Undoes what commands in a sandbox changed: when they end, and later where that failed or Holdfast was killed."""

# Pathlib makes an object for each name.
# ruff: noqa: PTH118

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from msgspec.structs import replace

from holdfast.clock import is_fresh
from holdfast.depths import walked
from holdfast.protocol.fence import Undone
from holdfast.sandbox import own_folder
from holdfast.sandbox.mounted import remove_blank
from holdfast.sandbox.trees import end_trees
from holdfast.tools.aside import ASIDE, is_aside, not_put_back, put_right, sentence
from holdfast.tools.blocking import Refused
from holdfast.tools.kept import put_back, righted
from holdfast.tools.led import first_on_the_way
from holdfast.tools.moved import is_elsewhere, where_it_is
from holdfast.tools.trace import Trace
from holdfast.tools.traces import STUCK, Traces, meet

_OF_ANOTHER = (
    "A command of session {session} was left behind when its Holdfast was killed. Files that control other programs "
    "had come or changed, and were put aside or put back: `holdfast resume {session}` names them."
)
_NOT_UNDONE = (
    "A command of session {session} was left behind when its Holdfast was killed, and an error keeps what it changed "
    "in {workspace} from being put right. Until then, no command runs there. `holdfast doctor` says more."
)
_ELSEWHERE = (
    "A command of session {session} was left behind when its Holdfast was killed, and {workspace} is not there, or "
    "not the folder in which it ran. What it changed is put right when that folder is back: then run "
    "`holdfast resume {session}`."
)
_NOTHING_RUN = (
    "Nothing was run: what an earlier command changed here cannot be put right, because of an error in Holdfast "
    "({why}). Holdfast tries again before the next command."
)


class Undoing:
    """Undoes what the commands of a home changed.

    Args:
        traces: What they left.
        look: Returns the folders that a command had closed, and where it could make what controls other programs.
    """

    def __init__(self, traces: Traces, look: Callable[[Trace], tuple[Sequence[str], Sequence[str]]]) -> None:
        self._traces = traces
        self._look = look

    def end(
        self,
        trace: Trace,
        held: Mapping[str, int] = MappingProxyType({}),
        tops: Mapping[str, int] = MappingProxyType({}),
    ) -> Undone:
        """Undo what a command changed that has ended.

        Args:
            trace: What is known of it.
            held: What `kept` holds open, which is closed.
            tops: What `moved` holds open, which is closed.
        """
        try:
            return self._end(trace, held, tops)
        finally:
            for fd in (*held.values(), *tops.values()):
                os.close(fd)

    def _end(self, trace: Trace, held: Mapping[str, int], tops: Mapping[str, int]) -> Undone:
        if not self._traces.is_running(trace.key):  # it did not begin
            return Undone()
        with self._traces.alone():
            is_undone = False
            try:
                now, held = where_it_is(trace, tops, held)
                undone = self._undone(now, held)
                if _is_whole(now, undone):
                    self._traces.end(trace.key, undone, now)
                    is_undone = True
                return undone
            finally:
                if not is_undone:
                    self._traces.fail(trace.key)

    def retry(self, find_roots: Callable[[], Sequence[str]]) -> None:
        """Undo what could not be undone before.

        Args:
            find_roots: Returns the folders in which the next command could change something, the workspace first.
                What was changed elsewhere does not matter to it.

        Raises:
            Refused: it still cannot be.
        """
        if not self._traces.are_any():
            return
        roots = find_roots()
        for trace in self._traces.failed():
            if meet(trace.writable, roots) and not is_elsewhere(trace):
                try:
                    undone = self.end(trace)
                except Exception as error:
                    raise Refused(_NOTHING_RUN.format(why=type(error).__name__)) from error
                if self._traces.is_running(trace.key):
                    raise Refused(STUCK.format(paths=not_put_back(undone, roots[0])))
        for name, trace in self._traces.faulty().items():
            if meet(trace.writable, roots) and not is_elsewhere(trace):
                with self._traces.alone():
                    if self._finished(name, trace) is None:
                        raise Refused(_NOTHING_RUN.format(why=self._traces.faulty()[name].fault))
        self._traces.put_back_stuck(roots)

    def recovered(self, session: str) -> list[str]:
        """Undo what killed processes left, of any session, and return sentences for this one. All of its own
        commands have ended.
        """
        said = self._traces.taken(session)
        with self._traces.alone():
            left = self._traces.left(session)
            others = {
                name: trace
                for name, trace in self._traces.abandoned().items()
                if name not in left and trace.key and not trace.changed
            }
            _end({**left, **others})
            for name, trace in left.items():
                said += self._said(trace, self._finished(name, trace), is_own=True)
            for name, trace in others.items():
                said += self._said(trace, self._finished(name, trace), is_own=False)
        return said

    def worked_off(self, session: str) -> list[str]:
        """Do the same where nobody drives the session, and nothing is recorded of it."""
        if not self._traces.abandoned():
            return []
        said: list[str] = []
        with self._traces.alone():
            left = self._traces.abandoned()
            _end(left)
            for name, trace in left.items():
                is_own = trace.session == session
                if trace.changed and not is_own:
                    continue
                undone = self._finished(name, trace)
                said += self._said(trace, undone, is_own=is_own)
                if is_own and undone is not None and not undone.stuck:
                    self._traces.told(name)
        return said

    def _said(self, trace: Trace, undone: Undone | None, *, is_own: bool) -> list[str]:
        """Return what to say of a command that was killed. Another session hears of a fault once."""
        if undone is None:
            text = _ELSEWHERE if is_elsewhere(trace) else _NOT_UNDONE
            of_it = text.format(session=trace.session, workspace=trace.writable[0])
            return [of_it] if is_own or not trace.fault else []
        of_another = _OF_ANOTHER.format(session=trace.session)
        return [sentence(undone, trace.writable[0]) if is_own else of_another] if undone.changed else []

    def _finished(self, name: str, trace: Trace) -> Undone | None:
        """Undo what a killed command changed; None: an error keeps it from being undone, which stops nobody else."""
        try:
            return self._finish(name, trace)
        except Exception as error:
            self._traces.note_fault(name, trace, error)
            return None

    def _finish(self, name: str, trace: Trace) -> Undone:
        trace, _ = where_it_is(trace, {}, {})
        if trace.changed:  # it was undone, as far as it could be
            again = put_back(trace.kept) if trace.kept is not None else Undone()
            undone = replace(again, changed=trace.changed)
        else:
            undone = self._undone(trace)
            if not _is_whole(trace, undone):
                raise OSError(undone.why)
            # The killed process may have begun with it, and what it did is right by now.
            undone = replace(undone, changed=tuple(sorted({*undone.changed, *_put_aside_since(trace)})))
        self._traces.finish(name, trace, undone)
        return undone

    def _undone(
        self,
        trace: Trace,
        held: Mapping[str, int] = MappingProxyType({}),
    ) -> Undone:
        if trace.kept is None:
            return self._put_right(trace)
        return righted(
            trace.kept, trace.before, lambda known: self._put_right(replace(trace, before=known)), held
        )

    def _put_right(self, trace: Trace) -> Undone:
        for path in trace.covered:
            remove_blank(path)
        opened, places = self._look(trace)
        led = {*map(first_on_the_way, trace.led)}
        undone = put_right(trace.before, places, trace.gone, led)
        return replace(undone, changed=tuple(sorted({*opened, *undone.changed})))


def _is_whole(trace: Trace, undone: Undone) -> bool:
    """Return whether all that is left of it is to put back what is kept. Of the rest, nothing else is known."""
    return undone.stuck == () or (trace.kept is not None and trace.kept.copies.keys() >= {*undone.stuck})


def _put_aside_since(trace: Trace) -> Iterator[str]:
    """Yield where something was put aside after a command began."""
    for top in trace.writable if trace.looked_ms else ():
        for folder, entries in walked(top):
            for entry in entries or ():
                with suppress(OSError):
                    if not is_aside(entry.name):
                        continue
                    # It may look older than it is, by as much as the times of its file system are rounded.
                    if is_fresh(entry.stat(follow_symlinks=False).st_ctime_ns, trace.looked_ms):
                        yield os.path.join(folder, entry.name.partition(ASIDE)[0])


def _end(left: Mapping[str, Trace]) -> None:
    """End what still runs of killed commands, and remove their own folders."""
    if keys := frozenset(trace.key for trace in left.values() if trace.key and not trace.changed):
        end_trees(keys)
        own_folder.remove_left(keys)
