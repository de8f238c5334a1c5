"""Undoes what commands in a sandbox changed: when they end, and later where that failed or Holdfast was killed."""

# Pathlib makes an object for each name.
# ruff: noqa: PTH118, PTH120

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from msgspec.structs import replace

from holdfast.clock import is_fresh
from holdfast.depths import walked
from holdfast.protocol.fence import Undone
from holdfast.sandbox import own_folder
from holdfast.sandbox.mounted import remove_blank
from holdfast.sandbox.trees import end_trees
from holdfast.tools.aside import ASIDE, again, is_aside, not_put_back, put_right, sentence
from holdfast.tools.blocking import Refused
from holdfast.tools.kept import righted
from holdfast.tools.led import first_on_the_way
from holdfast.tools.moved import Elsewhere, check_it_is_there, is_elsewhere, where_it_is
from holdfast.tools.rest import left, tried_again
from holdfast.tools.trace import Trace
from holdfast.tools.traces import STUCK, UNREADABLE, Traces, meet

_OF_ANOTHER = (
    "A command of session {session} was left behind when its Holdfast was killed. Files that control other programs "
    "had come or changed, and were put aside or put back: `holdfast resume {session}` names them."
)
_OF_ANOTHER_NOW = "Of a command of session {session}, which had ended: {text}"
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
            return self._ended(trace, held, tops)

    def _ended(self, trace: Trace, held: Mapping[str, int], tops: Mapping[str, int]) -> Undone:
        """Undo what a command of this process changed, unless another one has done it meanwhile."""
        undone, is_undone = Undone(), False
        try:
            if self._traces.is_still_here(trace.key):
                now, held = where_it_is(trace, tops, held)
                undone = self._undone(now, held)
                is_undone = True
        finally:
            if not self._traces.is_still_here(trace.key):
                self._traces.lose(trace.key)
                undone = replace(undone, stuck=(), why="")
            elif is_undone:
                self._traces.end(trace.key, undone, left(now, undone))
            else:
                self._traces.fail(trace.key)
        return undone

    def retry(self, session: str, find_roots: Callable[[], Sequence[str]]) -> None:
        """Undo what could not be undone before.

        Args:
            session: A command of this one is about to begin. It hears what is changed by that.
            find_roots: Returns the folders in which the command could change something, the workspace first. What was
                changed elsewhere does not matter to it.

        Raises:
            Refused: it still cannot be.
        """
        if not self._traces.are_any():
            return
        roots = find_roots()
        with self._traces.alone():
            for trace in self._traces.failed():
                if meet(trace.writable, roots):
                    try:
                        self._ended(trace, {}, {})
                    except Elsewhere:
                        continue
                    except Exception as error:
                        raise Refused(_NOTHING_RUN.format(why=_why(error))) from error
            still = [
                undone
                for name, trace in self._traces.pending().items()
                if meet(trace.writable, roots)
                and not is_elsewhere(trace)
                and (undone := self._tried_again(session, name, trace)).stuck
            ]
        if still:
            stuck = Undone(stuck=tuple(path for each in still for path in each.stuck), why=still[0].why)
            raise Refused(STUCK.format(paths=not_put_back(stuck, roots[0])))

    def _tried_again(self, session: str, name: str, trace: Trace) -> Undone:
        """Put right what is left, and let those hear of it whom it concerns.

        Raises:
            Refused: an error keeps it from being put right.
        """
        try:
            undone, now = self._finish(name, trace)
        except Exception as error:
            self._traces.note_fault(name, trace, error)
            raise Refused(_NOTHING_RUN.format(why=_why(error))) from error
        workspace = trace.writable[0]
        text = again(now, workspace) if trace.changed else sentence(now, workspace) if now.changed else ""
        if text and (trace.session == session or self._traces.is_own(name)):
            self._traces.say(trace.session, text)
        elif not undone.stuck and self._traces.is_own(name):
            self._traces.drop_if_heard(trace.session, name)
        if text and trace.session != session:
            self._traces.say(session, _OF_ANOTHER_NOW.format(session=trace.session, text=text))
        return undone

    def recovered(self, session: str) -> list[str]:
        """Undo what killed processes left, of any session, and return sentences for this one. All of its own
        commands have ended.
        """
        said = self._traces.taken(session)
        with self._traces.alone():
            mine = self._traces.left(session)
            others = {
                name: trace
                for name, trace in self._traces.abandoned().items()
                if name not in mine and trace.key and not trace.changed
            }
            _end({**mine, **others})
            for name, trace in mine.items():
                said += self._said(trace, self._finished(name, trace), is_own=True)
            for name, trace in others.items():
                said += self._said(trace, self._finished(name, trace), is_own=trace.session == session)
            said += self._unreadable()
        return said

    def worked_off(self, session: str) -> list[str]:
        """Do the same where nobody drives the session, and nothing is recorded of it."""
        said = self._unreadable()
        if not self._traces.abandoned():
            return said
        with self._traces.alone():
            abandoned = self._traces.abandoned()
            _end(abandoned)
            for name, trace in abandoned.items():
                is_own = trace.session == session
                if trace.changed and not is_own:
                    continue
                undone = self._finished(name, trace)
                said += self._said(trace, undone, is_own=is_own)
                if is_own and undone is not None and not undone.stuck:
                    self._traces.told(name)
        return said

    def _unreadable(self) -> list[str]:
        return [UNREADABLE.format(path=path, why=why) for path, why in self._traces.unreadable().items()]

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
            return self._finish(name, trace)[0]
        except Exception as error:
            self._traces.note_fault(name, trace, error)
            return None

    def _finish(self, name: str, trace: Trace) -> tuple[Undone, Undone]:
        """Undo what is not undone yet of a command that has ended. Return all that was undone, and what of it now.

        Raises:
            Elsewhere: its folder is not there.
            OSError: nobody can tell what is to be undone.
        """
        check_it_is_there(trace)
        if trace.changed:
            now = tried_again(trace)
            all_of_it = replace(
                now,
                changed=tuple(dict.fromkeys([*trace.changed, *now.changed])),
                since=tuple(dict.fromkeys([*trace.since, *now.since])),
            )
        else:
            now = self._undone(trace)
            # The killed process may have begun with it, and what it did is right by now.
            earlier = {*_put_aside_since(trace)}.difference(_names_aside(now.changed))
            all_of_it = replace(now, changed=tuple(sorted({*now.changed, *earlier})))
        self._traces.finish(name, left(trace, all_of_it))
        return all_of_it, now

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
        undone = put_right(trace.before, places, trace.gone, led, is_mounted=trace.kept is None)
        return replace(undone, changed=tuple(sorted({*opened, *undone.changed})))


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


def _put_aside_since(trace: Trace) -> Iterator[str]:
    """Yield where something was put aside after a command began."""
    for top in trace.writable if trace.looked_ms else ():
        for folder, entries in walked(top):
            for entry in entries or ():
                with suppress(OSError):  # it is gone, or nobody can tell: then it is not said twice
                    if not is_aside(entry.name):
                        continue
                    # It may look older than it is, by as much as the times of its file system are rounded.
                    if is_fresh(entry.stat(follow_symlinks=False).st_ctime_ns, trace.looked_ms):
                        yield os.path.join(folder, entry.name.partition(ASIDE)[0])


def _names_aside(changed: Iterable[str]) -> Iterator[str]:
    """Yield what the names begin with that something gets which is put aside out of the folder that protects it."""
    for path in changed:
        folder, name = os.path.split(path)
        while folder != "/":
            yield f"{folder}.{name}"
            folder = os.path.dirname(folder)


def _end(left: Mapping[str, Trace]) -> None:
    """End what still runs of killed commands, and remove their own folders."""
    if keys := frozenset(trace.key for trace in left.values() if trace.key and not trace.changed):
        end_trees(keys)
        own_folder.remove_left(keys)
