"""What a command may do: builds its fence from the settings of the run and from what the workspace has in it.

Every command gets a fence of its own, because a file may have become secret or protected since the last one. `policy`
has the lists of names. `sandbox` keeps the process inside.
"""

# Pathlib makes an object for each of a hundred thousand names.
# ruff: noqa: PTH110, PTH111, PTH112, PTH114, PTH118, PTH119

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeGuard

import msgspec
from msgspec.structs import replace

from holdfast.clock import SYSTEM_CLOCK
from holdfast.policy.paths import is_inside, is_within
from holdfast.policy.protected import Own
from holdfast.policy.rules import is_configured
from holdfast.protocol.fence import Backend, Fence, Launch, Sandbox, Undone, Walled
from holdfast.protocol.ports import Tool
from holdfast.protocol.settings import Policy, Walls
from holdfast.sandbox.installed import OURS
from holdfast.sandbox.mounted import is_blank
from holdfast.sandbox.probing import interpreter
from holdfast.sandbox.process import Processes
from holdfast.sandbox.proxy import libraries
from holdfast.sandbox.system import is_shown
from holdfast.tools.aside import seen, there
from holdfast.tools.baseline import older
from holdfast.tools.blocking import Refused, in_thread
from holdfast.tools.folders import GIT, NO_COMMANDS, Folder, Folders, deep_in_git, fixed
from holdfast.tools.git_folders import FOLDERS, OF_OTHERS, trees_elsewhere
from holdfast.tools.git_identity import git_identity
from holdfast.tools.git_made import is_loose
from holdfast.tools.kept import Kept, keep, opened
from holdfast.tools.led import Leads, way
from holdfast.tools.moved import folders, held_open, still_there
from holdfast.tools.other_names import OtherNames
from holdfast.tools.own import OwnPlaces, own_places
from holdfast.tools.repository import Repository, find
from holdfast.tools.trace import Trace, session_of
from holdfast.tools.traces import Traces
from holdfast.tools.turns import has_others
from holdfast.tools.undoing import Undoing
from holdfast.tools.unfit import real, unfit

if TYPE_CHECKING:
    from holdfast.access.credentials import Credentials

STARTING = frozenset(
    {"shell", "grep", "read_output", "web_fetch", "web_search", "git_status", "git_diff", "git_log"}
)
"""The built-in tools that start programs."""
_STRICTEST: Backend = "bubblewrap"
"""Stands for the sandbox that a process does not have: no command runs."""
_OTHER = (
    "Nothing was run: the session runs commands in {asked}, and this process in {found}, by [sandbox] mode."
)
_ELSEWHERE = (
    "Nothing was run: a command of a Holdfast with another home, or without one, runs in this workspace, and nobody "
    "could tell which of the two changed a file that controls other programs. It can be called again when that one "
    "has ended."
)
_CHANGED = (
    "Nothing was run: the folders that its sandbox shows have changed since the call was allowed. It can be called "
    "again."
)


class Starts(Protocol):
    """A tool that may start programs of others, which run in a fence."""

    def readable(self) -> tuple[str, ...] | None:
        """Return what they need to read beside what commands may; None if it starts none."""
        ...


def _may_start(tool: object) -> TypeGuard[Starts]:
    # To ask a protocol with `isinstance` takes 30 calls of functions, and every call of a tool asks.
    return hasattr(tool, "readable")


def _starts(tool: object) -> bool:
    return _may_start(tool) and tool.readable() is not None


class _Look(NamedTuple):
    """What the folders that commands may change have in them."""

    found: list[Folder]
    """The folders of the workspace."""
    others: list[Folder]
    shown: list[Folder]
    """Those that commands may only read, not deep down."""
    fixed: list[str]
    """The paths that nobody may change. Not all of them need to exist."""
    lists: list[str]
    """Where a repository elsewhere has what is of its other working trees and submodules."""
    folders: list[str]
    """What must be folders there, and no links."""
    led: tuple[str, ...] = ()
    """What these lead to, and the links on the way. Only known before a command."""

    def places(self) -> list[str]:
        """Return these paths, also links to folders that have some."""
        links = (path for folder in (*self.found, *self.others) for path in folder.fixed_links)
        return [*self.fixed, *self.lists, *self.folders, *links]

    def opened(self) -> Iterator[str]:
        """Yield the folders that a command had closed."""
        return (path for folder in (*self.found, *self.others) for path in folder.opened)


class Enclosure(msgspec.Struct, frozen=True):
    """The sandbox of what a process starts beside the calls of its sessions, as hooks are."""

    sandbox: Sandbox
    fences: Fences
    walls: Walls

    async def around(self, launch: Launch, workspace: str, readable: Iterable[str]) -> Launch:
        """Return how to start a program in the fence of a command.

        Raises:
            Refused: no command may run in such a workspace.
        """
        return await self.fences.around(launch, workspace, self.walls, readable=readable)


def enclosed(
    sandbox: Sandbox,
    own: Own,
    walls: Walls,
    credentials: Credentials | None = None,
    traces: Traces | None = None,
) -> Enclosure:
    """Return the enclosure of a process."""
    fences = Fences(own_places(own), str(Path.home()), sandbox.backend, credentials, traces)
    return Enclosure(sandbox, fences, walls)


def may_start(policy: Policy, tools: Iterable[Tool], offers: Callable[[str], bool]) -> bool:
    """Return whether the runs of a process may have a tool that starts programs. Others need no sandbox.

    Args:
        policy: What the configuration leaves to runs.
        tools: Those beside the built-in ones.
        offers: Whether the runs may have a tool of this name.
    """
    others = (each.spec.name for each in tools if _starts(each))
    return any(is_configured(name, policy) and offers(name) for name in (*STARTING, *others))


def starts(names: Iterable[str], tools: Iterable[object]) -> bool:
    """Return whether a built-in tool with such a name, or one of the others, starts programs."""
    return not STARTING.isdisjoint(names) or any(map(_starts, tools))


def own_fence(
    processes: Processes,
    *readable: str,
    writable: Iterable[str] = (),
    walls: Walls = Walls(),  # noqa: B008 - frozen
) -> Fence | None:
    """Return the fence of a program of Holdfast's own, or of git, that reads what others wrote. It sees nothing else.
    None where nothing has a fence.
    """
    if not processes.is_fenced:
        return None
    return Fence(tuple(map(real, writable)), _readable(walls.read, (*interpreter(), *readable)))


class Fences:
    """Builds fences. Remembers what each folder has in it until the folder changes.

    Args:
        own: Holdfast's own files, which no command may see.
        home: The folder of the user, which is an empty one inside.
        backend: The sandbox of this process.
        credentials: The secrets for which programs inside get placeholders; None: for none.
        traces: What commands left, until somebody hears of it.
    """

    def __init__(
        self,
        own: OwnPlaces,
        home: str,
        backend: Backend = "unsafe",
        credentials: Credentials | None = None,
        traces: Traces | None = None,
    ) -> None:
        self._traces = traces or Traces()
        self._undoing = Undoing(self._traces, self._after)
        self._own = own
        self._backend = backend
        self._credentials = credentials
        self._home = os.path.realpath(home)
        self._folders = Folders()
        self._leads = Leads(self._home)
        self._names = OtherNames()
        self._lock = Lock()

    def confine(self, backend: Backend) -> None:
        """Use this sandbox from now on."""
        self._backend = backend

    def backend(self, walls: Walls) -> Backend:
        """Return the sandbox of a run's commands. Neither the run nor this process can do without the other's."""
        if self._backend != "unsafe" or walls.backend == "unsafe":
            return self._backend
        return _STRICTEST if walls.backend == "auto" else walls.backend

    def rules(
        self, workspace: str, walls: Walls, readable: Iterable[str] = (), hosts: Sequence[str] = ()
    ) -> Fence:
        """Return the fence of a command, without what is masked and protected. Reads little.

        Raises:
            Refused: no command may run in such a workspace.
        """
        self._check(workspace, walls)
        repository = self._elsewhere(workspace, walls)
        shown = repository.folders if repository else ()
        ways = (*walls.read, *walls.write, *([repository.named] if repository else ()))
        return Fence(
            writable=(workspace, *shown, *map(real, walls.write)),
            readable=_readable(walls.read, readable, self._home),
            private=(self._home,),
            files=self._files((*walls.read, *walls.write)),
            memory_bytes=walls.memory_bytes,
            file_bytes=walls.file_bytes,
            hosts=tuple(hosts),
            links=dict(_links(ways)),
            processes=walls.processes,
            cpu_s=walls.cpu_s,
        )

    def fence(
        self, workspace: str, walls: Walls, readable: Iterable[str] = (), hosts: Sequence[str] = ()
    ) -> Fence:
        """Return the fence of a command. Reads each folder that is new or has changed.

        Raises:
            Refused: no command may run in such a workspace.
        """
        rules = self.rules(workspace, walls, readable, hosts)
        return self._filled(rules, self._looked(rules, walls), self.backend(walls))

    def _filled(self, rules: Fence, look: _Look, backend: Backend) -> Fence:
        """Return the rules with what is masked and protected now, under each of its names."""
        own, whole = self._own, tuple[str, ...]()
        # What is put back afterwards is lost, and others work in these meanwhile. Under Landlock git sees that a tree
        # is there.
        if backend != "landlock":
            whole = (*look.lists, *trees_elsewhere(look.fixed, (*rules.writable, *rules.readable)))
        fence = _filled(rules, look, own.homes, whole)
        masked = (path for path in fence.masked if path in own.keys or path not in own.homes)
        # The files of an installed Holdfast have other names in the cache of what installed it.
        ours = {*map(os.path.realpath, (*OURS, *libraries()))}
        protected = (path for path in fence.protected if path not in ours)
        with self._lock:
            named = self._names.found(masked, protected, (*fence.writable, *fence.readable))
        return replace(
            fence,
            masked=tuple(dict.fromkeys((*fence.masked, *named.masked))),
            protected=tuple(dict.fromkeys((*fence.protected, *_protected(named.protected, fence.writable)))),
        )

    def _looked(self, rules: Fence, walls: Walls) -> _Look:
        """Look at what a command may change, and may read, right before it."""
        beside = (top for top in map(real, walls.read) if not is_within(rules.writable, top))
        look = self._look(rules.writable, len(walls.write), beside)
        with self._lock:
            return look._replace(led=self._leads.found(look.fixed, [*map(real, rules.writable)]))

    def _look(
        self,
        writable: Sequence[str],
        beside: int,
        readable: Iterable[str] = (),
        closed: Collection[str] | None = None,
    ) -> _Look:
        """Look at the workspace, at its repository, and at what else commands may change: the last `beside` places.

        Args:
            writable: What commands may change, the workspace first.
            beside: How many of these the settings name, at the end.
            readable: What else the settings show.
            closed: When a command has ended, what was closed before. None: before a command.
        """
        workspace, first_more = writable[0], len(writable) - beside
        repository, named = writable[1:first_more], writable[first_more:]
        more = [top for top in named if not is_inside(workspace, top)]
        of_git = [(top, deep_in_git(top)) for top in dict.fromkeys(repository)]

        def walked(top: str, deep: int | None = None) -> Iterator[Folder]:
            if closed is None:
                return self._folders.below(top, deep=deep)
            return self._folders.controlling(top, closed, deep=deep)

        with self._lock:
            found = [*walked(workspace), *(each for top, deep in of_git for each in walked(top, deep))]
            others = [each for top in more for each in walked(top)]
            shown = [each for top in readable for each in self._folders.with_sockets(top)]
        places = [path for folder in repository for path in fixed(folder, GIT, is_folder=True)]
        for top in named:
            places += fixed(top, os.path.basename(top), is_folder=os.path.isdir(top))
        places += [path for folder in (*found, *others) for path in folder.fixed]
        own = (*self._own.settings, *self._own.keys)
        places += [path for path in own if is_within(writable, path)]
        lists = [os.path.join(top, name) for top in {*repository} - {*repository[-1:]} for name in OF_OTHERS]
        no_links = [os.path.join(top, name) for top in repository for name in FOLDERS]
        return _Look(found, others, shown, places, lists, no_links)

    def _after(self, trace: Trace) -> tuple[list[str], list[str]]:
        """Return the folders that a command had closed, and where it could make something that controls programs."""
        look = self._look(trace.writable, trace.beside, closed=trace.before)
        return [*look.opened()], look.places()

    def _places(self, trace: Trace) -> list[str]:
        """Return where a command that still runs could make something that controls other programs."""
        return self._look(trace.writable, trace.beside).places()

    async def put_aside(self, session: str, *, is_first: bool) -> str:
        """Return a sentence about what was put aside of a session's commands, once; empty if nothing was.

        Args:
            session: Whose commands.
            is_first: A driver begins: what a killed process left is put aside now.
        """
        if not is_first:
            return "\n".join(self._traces.taken(session))
        return "\n".join(await in_thread(lambda: self._undoing.recovered(session)))

    def worked_off(self, session: str) -> list[str]:
        """Do what a driver does, where nobody drives the session. Return sentences about it."""
        return self._undoing.worked_off(session)

    def check(self, tool: object, workspace: str, walls: Walls) -> None:
        """Raise `Refused` for a tool that starts programs, where none may run. Reads nothing."""
        if _starts(tool) and self._agreed(walls) != "unsafe":
            self._check(workspace, walls)

    async def recorded(
        self, tool: object, workspace: str, walls: Walls, hosts: Sequence[str] = ()
    ) -> Walled | None:
        """Return in which sandbox a call of a tool will run; None: it starts no program of others. Its programs may
        reach the hosts.

        Raises:
            Refused: no command may run in such a workspace.
        """
        backend = self._agreed(walls)
        readable = tool.readable() if _may_start(tool) else None
        if readable is None:
            return None
        if backend == "unsafe":
            return Walled(backend, "", "all")
        rules = await in_thread(lambda: self.rules(workspace, walls, readable, hosts))
        return Walled(backend, rules.digest(), rules.network)

    async def around(
        self,
        launch: Launch,
        workspace: str,
        walls: Walls,
        walled: Walled | None = None,
        readable: Iterable[str] = (),
        hosts: Sequence[str] = (),
    ) -> Launch:
        """Return how to start a program of others in its fence, with placeholders in the variables of secrets.

        Args:
            launch: The program.
            workspace: The folder of the session.
            walls: The settings of the run.
            walled: What the intent of the call recorded; None: it recorded nothing.
            readable: What the program needs to read beside what commands may.
            hosts: Those of `[network] allow`. The program reaches them if the intent of its call says so.

        Raises:
            Refused: no command may run in such a workspace, or the fence is not the recorded one, or what an earlier
                command changed is not put back.
        """
        if self._agreed(walls) == "unsafe":
            return launch
        is_cut = walled is None or walled.network == "none"
        reached = () if is_cut else hosts
        is_keeping = self.backend(walls) == "landlock"

        def looked() -> tuple[Fence, Trace]:
            self._undoing.retry(
                session_of(launch.key),
                lambda: (workspace, *self._repository(workspace, walls), *map(real, walls.write)),
            )
            with self._traces.looking():
                rules = self.rules(workspace, walls, readable, reached)
                if walled is not None and walled.digest != rules.digest():
                    raise Refused(_CHANGED)
                is_shared = has_others(workspace)
                look, now_ms = self._looked(rules, walls), SYSTEM_CLOCK.now_ms()
                fence = self._filled(rules, look, self.backend(walls))
                if is_shared and not self._traces.beside(fence.writable):
                    raise Refused(_ELSEWHERE)  # it may have moved what cannot be read now
                kept = keep(fence, self._homes()) if is_keeping else None
                trace = replace(_trace(fence, look, len(walls.write), kept), key=launch.key, looked_ms=now_ms)
                others = still_there(self._traces.beside(fence.writable))
                if not others and (is_shared or has_others(workspace)):
                    raise Refused(_ELSEWHERE)
                if not others:
                    return fence, trace
                trace = older(trace, others, self._places)
                return _without_new(fence, look, trace.before), trace

        fence, trace = await in_thread(looked)
        held: dict[str, int] = {}
        tops: dict[str, int] = {}

        def check() -> int:
            until_ms = launch.check()
            self._traces.begin(launch.key, trace)
            tops.update(held_open(trace))
            if trace.kept is not None:
                held.update(opened(trace.kept))
            return until_ms

        def put_all_right() -> Undone:
            return self._undoing.end(trace, held, tops)

        stand_ins = self._credentials.stand_ins() if self._credentials is not None else ()
        return replace(
            launch,
            env={**launch.env, **{variable: each.mark for variable, each in stand_ins}},
            secrets=tuple(each for _, each in stand_ins),
            fence=fence,
            check=check,
            put_right=put_all_right,
        )

    def _agreed(self, walls: Walls) -> Backend:
        """Return the sandbox of a run's commands.

        Raises:
            Refused: the run asks for another one than this process has.
        """
        backend = self.backend(walls)
        if walls.backend not in ("auto", "unsafe", backend):
            raise Refused(_OTHER.format(asked=walls.backend, found=backend))
        return backend

    def _repository(self, workspace: str, walls: Walls) -> Sequence[str]:
        """Return the folders of the repository if it lies elsewhere."""
        repository = self._elsewhere(workspace, walls)
        return repository.folders if repository else ()

    def _elsewhere(self, workspace: str, walls: Walls) -> Repository | None:
        """Return the repository if it lies elsewhere, as a worktree's and a submodule's do. One that does not lead
        back to the workspace is not shown, unless a link leads there and it belongs to nobody else.
        """
        try:
            repository = find(workspace, self._own, takes_link=self._is_lasting(workspace, walls))
        except (Refused, OSError):
            return None
        if repository.top != workspace or is_inside(workspace, repository.folder):
            return None
        if is_inside(repository.folder, workspace) or is_inside(repository.common, self._home):
            return None
        return repository

    def _is_lasting(self, workspace: str, walls: Walls) -> bool:
        """Return whether `.git` is a link that no command which still runs has made or can lead elsewhere."""
        link = os.path.join(workspace, ".git")
        on_the_way, _ = way(link)
        roots = (workspace, *map(real, walls.write))
        if on_the_way[:1] != [link] or any(is_within(roots, each) for each in on_the_way[1:]):
            return False
        place, others = seen([link]).get(link), self._traces.beside([workspace])
        return all(each.before.get(link) == place for each in others if is_within(each.writable, link))

    def _files(self, shown: Iterable[str]) -> dict[str, str]:
        """Return the files of the home inside: who the user is for git, unless more of the real home is shown."""
        if any(is_inside(self._home, path) for path in map(real, shown)):
            return {}
        identity = git_identity()
        return {os.path.join(self._home, ".gitconfig"): identity} if identity else {}

    def _check(self, workspace: str, walls: Walls) -> None:
        if why := unfit(workspace, walls, self._own, self._home, self.backend(walls)):
            raise Refused(f"{NO_COMMANDS}: {why}")

    def _homes(self) -> list[str]:
        """Return Holdfast's own folders and files, beside which no command may run. A key may lie in a workspace."""
        return [path for path in self._own.homes if path not in self._own.keys]


def _without_new(fence: Fence, look: _Look, before: Collection[str]) -> Fence:
    """Return the fence without the protection of what others have made that still run. It is put aside when they end,
    and a sandbox would take that for a change of what it protects.
    """
    # What a new link leads to was there before, and stays protected.
    new = {
        path for path in look.fixed if path not in before and there(path) == path == os.path.realpath(path)
    }
    return replace(fence, protected=tuple(path for path in fence.protected if path not in new))


def _trace(fence: Fence, look: _Look, beside: int, kept: Kept | None) -> Trace:
    """Return what must be known to undo what a command makes. `beside`: how much of the fence the settings name."""
    mounted = () if kept is not None else (*fence.masked, *fence.protected)
    return Trace(
        fence.writable,
        beside,
        seen((*(path for path in look.places() if not is_loose(path)), *look.led)),
        tuple(path for path in mounted if not is_blank(path)),
        kept=kept,
        led=look.led,
        folders=folders(fence.writable),
    )


def _filled(rules: Fence, look: _Look, homes: Iterable[str], whole: Sequence[str]) -> Fence:
    """Return the rules with what is masked and protected now. `whole`: what is protected with all that is in it, but
    for what may be changed.
    """
    workspace = rules.writable[0]
    links = [link for folder in look.found for link in folder.links]
    own = [root for root in rules.writable if is_within(whole, root)]
    fixed_now = (
        path
        for path in look.fixed
        if not is_loose(path) and (is_within(own, path) or not is_within(whole, path))
    )
    roots = (*rules.writable, *rules.readable)
    return replace(
        rules,
        masked=(
            *(home for home in homes if (is_within(roots, home) or is_shown(home)) and os.path.lexists(home)),
            *(path for folder in look.found for path in folder.masked),
            *(path for folder in look.others if folder.is_shut for path in folder.masked),
            *(path for folder in (*look.found, *look.others, *look.shown) for path in folder.sockets),
            *_led_to(links, workspace, roots),
        ),
        protected=tuple(_protected((*fixed_now, *whole, *look.led, *OURS, *libraries()), rules.writable)),
    )


def _led_to(links: Iterable[str], workspace: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield where links lead now, if a command can read it there."""
    for _, target in map(way, links):  # `realpath` calls itself for each link, and there may be a thousand
        is_shown = is_within(roots, target)
        if is_shown and os.path.exists(target) and not is_inside(target, workspace):
            yield target


def _protected(paths: Iterable[str], writable: Sequence[str]) -> Iterator[str]:
    """Yield what is there at the paths, with links followed, if a command could change it. In place of what lies in a
    closed folder, this folder is protected.

    What is protected is shown inside. So a link `.vscode -> ~` would show the home.
    """
    roots = [real(root) for root in writable]
    for path in dict.fromkeys(map(there, _followed(paths))):
        if path and path not in roots and is_within(roots, path):
            yield path


def _followed(paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths with links followed. Many lie in the same folder, which is followed once."""
    known = dict[str, str]()
    for path in paths:
        above, name = os.path.split(path)
        if above not in known:
            known[above] = os.path.realpath(above)
        found = os.path.join(known[above], name)
        yield os.path.realpath(found) if os.path.islink(found) else found


def _readable(named: Iterable[str], needed: Iterable[str], hidden: str = "") -> tuple[str, ...]:
    """Return what a person names, and what a program needs beside what every sandbox shows. `hidden`: a folder of
    which nothing is shown, wherever it lies.
    """
    more = (path for path in map(real, needed) if not is_shown(path) or (hidden and is_inside(hidden, path)))
    return tuple(dict.fromkeys((*map(real, named), *more)))


def _links(named: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the links on the way to what a person names, and what each of them says. Programs use the same names."""
    for link in (link for path in named for link in way(os.path.expanduser(path))[0]):
        with suppress(OSError):
            yield link, str(Path(link).readlink())
